// SPDX-License-Identifier: Apache-2.0
// What `tessera explore` found: a point for each machine over two of its figures, those that nothing beats marked, and a
// table of them.
import { scaleLinear, scaleLog } from "d3-scale";
import { Exploration, Point } from "./exploration";
import { count, element, short, svg, Tooltip } from "./look";
import { Table } from "./table";

const HEIGHT = 360;
const MARGIN = { left: 70, right: 20, top: 16, bottom: 46 };

export class Explore {
  private readonly body = element("div", { class: "chart" });
  private readonly axes: [HTMLSelectElement, HTMLSelectElement];
  private readonly front: Set<number>;
  private readonly table: Table<Point>;
  private readonly varied: string[];
  private chosen: Point | null = null;

  constructor(
    host: HTMLElement,
    private readonly found: Exploration,
    private readonly tooltip: Tooltip,
  ) {
    this.front = new Set(found.front);
    const figures = [...new Set(found.points.flatMap((point) => Object.keys(point.figures)))];
    const wanted = (found.objectives ?? []).filter((name) => figures.includes(name));
    const choice = (label: string, preferred: string[]): HTMLSelectElement => {
      const select = element("select", { "aria-label": label });
      for (const name of figures) select.append(element("option", { value: name }, name));
      select.value = preferred.find((name) => figures.includes(name)) ?? figures[0];
      select.addEventListener("change", () => this.draw());
      return select;
    };
    const x = choice("Figure to the right", [...wanted.slice(1), "lut"]);
    this.axes = [x, choice("Figure upward", [...wanted.slice(0, 1), "milliseconds", "cycles"])];
    const keys = [...new Set(found.points.flatMap((point) => Object.keys(point.machine)))];
    this.varied = keys.filter((key) => new Set(found.points.map((point) => point.machine[key])).size > 1);
    const networks = (found.networks ?? []).map((one) => one.name).join(", ");
    host.append(
      element("p", {}, `${count(found.points.length)} machines for ${networks || "the network"}; ${found.front.length} that no other beats in every objective (${(found.objectives ?? []).join(", ")}).`),
      element("div", { class: "tools" }, "right:", this.axes[0], "up:", this.axes[1]),
      this.body,
    );
    for (const reason of found.reasons ?? []) host.append(element("p", { class: "hint" }, reason));
    const holder = element("div");
    host.append(holder);
    const order = new Map(found.front.map((number, i) => [number, i]));
    this.table = new Table<Point>(
      holder,
      "Machines of the front",
      [
        { title: "#", value: (point) => point.number },
        ...this.varied.map((key) => ({ title: key, value: (point: Point) => point.machine[key] })),
        ...(found.points.some((point) => point.megahertz) ? [{ title: "MHz", value: (point: Point) => point.megahertz ?? null }] : []),
        ...figures.map((key) => ({ title: key, value: (point: Point) => point.figures[key] ?? null, show: (point: Point) => (key in point.figures ? short(point.figures[key]) : "–") })),
        { title: "judged by", value: (point: Point) => point.judge ?? null },
      ],
      (point) => this.choose(point),
    );
    this.table.fill(found.points.filter((point) => this.front.has(point.number)).sort((a, b) => order.get(a.number)! - order.get(b.number)!));
    new ResizeObserver(() => this.draw()).observe(this.body);
  }

  private choose(point: Point): void {
    this.chosen = point;
    this.table.mark(point);
    this.draw();
  }

  private draw(): void {
    const width = this.body.clientWidth;
    if (width === 0) return;
    const [a, b] = this.axes.map((axis) => axis.value);
    const points = this.found.points.filter((point) => a in point.figures && b in point.figures);
    const scale = (name: string, range: [number, number]): ((value: number) => number) & { ticks: (n: number) => number[] } => {
      const values = points.map((point) => point.figures[name]);
      const [low, high] = [Math.min(...values), Math.max(...values)];
      return (low > 0 ? scaleLog([low / 1.15, high * 1.15], range) : scaleLinear([low, high || 1], range)) as never;
    };
    const x = scale(a, [MARGIN.left, width - MARGIN.right]);
    const y = scale(b, [HEIGHT - MARGIN.bottom, MARGIN.top]);
    const picture = svg("svg", { width, height: HEIGHT, role: "group", "aria-label": `Machines by ${a} and ${b}` });
    let last = -99;
    for (const tick of x.ticks(6)) {
      if (x(tick) - last < 46) continue;
      last = x(tick);
      picture.append(
        svg("line", { x1: last, x2: last, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, class: "grid" }),
        svg("text", { x: last, y: HEIGHT - MARGIN.bottom + 16, "text-anchor": "middle" }, short(tick)),
      );
    }
    last = HEIGHT * 2;
    for (const tick of y.ticks(5)) {
      if (last - y(tick) < 22) continue;
      last = y(tick);
      picture.append(
        svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: last, y2: last, class: "grid" }),
        svg("text", { x: MARGIN.left - 6, y: last + 4, "text-anchor": "end" }, short(tick)),
      );
    }
    picture.append(
      svg("text", { x: (MARGIN.left + width) / 2, y: HEIGHT - 8, "text-anchor": "middle", class: "mark" }, a),
      svg("text", { transform: `translate(14 ${HEIGHT / 2}) rotate(-90)`, "text-anchor": "middle", class: "mark" }, b),
    );
    const best = points.filter((point) => this.front.has(point.number)).sort((p, q) => p.figures[a] - q.figures[a]);
    for (const point of points) if (!this.front.has(point.number)) picture.append(this.mark(point, x(point.figures[a]), y(point.figures[b])));
    for (const point of best) picture.append(this.mark(point, x(point.figures[a]), y(point.figures[b])));
    this.body.replaceChildren(picture);
  }

  private mark(point: Point, cx: number, cy: number): SVGElement {
    const front = this.front.has(point.number);
    const title = this.varied.map((key) => `${key} ${point.machine[key]}`).join(", ");
    const made = svg("g", { class: `point${point === this.chosen ? " chosen" : ""}`, role: front ? "button" : "img", "aria-label": `machine ${point.number}: ${title}` });
    // The front has squares, the rest small circles, so that colour is not needed.
    made.append(
      front ? svg("path", { d: `M${cx - 6},${cy - 6} h12 v12 h-12 z`, class: "front" }) : svg("circle", { cx, cy, r: 3.5, fill: "#77aadd" }),
    );
    if (front) made.setAttribute("tabindex", "0");
    made.addEventListener("click", () => this.choose(point));
    made.addEventListener("keydown", (event) => (event as KeyboardEvent).key === "Enter" && this.choose(point));
    made.addEventListener("pointermove", (event) => {
      const e = event as PointerEvent;
      const figures = Object.entries(point.figures).map(([name, value]) => element("div", {}, element("span", {}, name), short(value)));
      this.tooltip.show(e.clientX, e.clientY, element("strong", {}, `machine ${point.number}`), element("div", {}, title), ...figures);
    });
    made.addEventListener("pointerleave", () => this.tooltip.hide());
    return made;
  }
}
