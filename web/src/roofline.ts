// SPDX-License-Identifier: Apache-2.0
// A point for each layer with products: multiply-accumulates a cycle over multiply-accumulates a byte of DRAM, as large
// as its cycles; a small mark shows what the compiler predicted.
import { scaleLog, scaleSqrt } from "d3-scale";
import { Layer } from "./report";
import { State } from "./state";
import { count, element, layerColour, percent, short, svg, Tooltip } from "./look";

const HEIGHT = 380;
const MARGIN = { left: 58, right: 18, top: 18, bottom: 44 };
/// Who limits a layer, as a shape inside its point.
const BOUND_SIGNS: Record<string, string> = { compute: "C", dram: "D", alu: "A", sync: "S" };

interface Point {
  layer: number;
  row: Layer;
  intensity: number;
  rate: number;
  predicted: number;
}

export class Roofline {
  private readonly body = element("div", { class: "chart" });
  private readonly note = element("p", { class: "hint" });
  private current = 0;

  constructor(
    host: HTMLElement,
    private readonly state: State,
    private readonly tooltip: Tooltip,
  ) {
    host.append(this.body, this.note);
    new ResizeObserver(() => this.draw()).observe(this.body);
    state.listen((what) => what !== "view" && this.draw());
  }

  private points(): Point[] {
    const out: Point[] = [];
    this.state.run.layers.forEach((row, layer) => {
      const moved = (row.dram_read_bytes ?? 0) + (row.dram_write_bytes ?? 0);
      const cycles = this.state.run.weight(row);
      if (row.placement !== "npu" || row.macs === 0 || moved === 0 || cycles === 0) return;
      const predicted = row.predicted_cycles ? row.macs / row.predicted_cycles : 0;
      out.push({ layer, row, intensity: row.macs / moved, rate: row.macs / cycles, predicted });
    });
    return out;
  }

  private draw(): void {
    const { run, selection } = this.state;
    const points = this.points();
    const width = this.body.clientWidth;
    const focused = this.body.contains(document.activeElement);
    if (width === 0) return;
    if (points.length === 0 || run.peak === 0) {
      this.body.replaceChildren(element("p", {}, "No layer of this run has products on the NPU."));
      return;
    }
    const bandwidth = run.report.dram?.bandwidth_bytes ?? Number(run.report.machine?.axi_bytes ?? 8);
    const ridge = run.peak / bandwidth;
    const xs = points.map((p) => p.intensity);
    const low = Math.min(...points.map((p) => Math.min(p.rate, p.predicted || p.rate)));
    const x = scaleLog([Math.min(ridge / 4, ...xs) / 1.5, Math.max(ridge * 4, ...xs) * 1.5], [MARGIN.left, width - MARGIN.right]);
    const y = scaleLog([Math.min(low, run.peak / 8) / 1.6, run.peak * 2.2], [HEIGHT - MARGIN.bottom, MARGIN.top]);
    const size = scaleSqrt([0, Math.max(...points.map((p) => run.weight(p.row)))], [4, 22]);
    const picture = svg("svg", { width, height: HEIGHT, role: "group", "aria-label": "Roofline: layers by intensity and rate" });
    this.axes(picture, x, y, width);
    const [left, right] = x.domain();
    const roof = `M${x(left)},${y(Math.max(y.domain()[0], bandwidth * left))} L${x(ridge)},${y(run.peak)} L${x(right)},${y(run.peak)}`;
    picture.append(
      svg("path", { d: roof, class: "roof" }),
      svg("text", { x: width - MARGIN.right, y: MARGIN.top + 8, "text-anchor": "end", class: "mark" }, `array: ${run.peak} MACs a cycle`),
      svg("text", { x: x(Math.sqrt(left * ridge)) + 14, y: y(bandwidth * Math.sqrt(left * ridge)) + 14, class: "mark" }, `DRAM: ${bandwidth} bytes a cycle`),
    );
    this.current = Math.max(0, points.findIndex((p) => p.layer === selection.layer));
    [...points]
      .sort((a, b) => run.weight(b.row) - run.weight(a.row))
      .forEach((point) => picture.append(this.mark(point, x, y, size, points)));
    this.body.replaceChildren(picture);
    if (focused) (picture.querySelector("[tabindex='0']") as SVGElement | null)?.focus();
    const without = run.layers.filter((row) => row.placement === "npu" && row.macs === 0).length;
    this.note.textContent =
      "Size: cycles. Letter: what limits the layer (C compute, D DRAM, A vector unit, S synchronisation). Diamond: predicted." +
      " A layer stands above the roof where other layers' work hides its bytes." +
      (without ? ` Layers without products are not shown (${without}).` : "") +
      (run.timed ? "" : " This device has no time: all points are predicted.");
  }

  private axes(picture: SVGElement, x: ReturnType<typeof scaleLog>, y: ReturnType<typeof scaleLog>, width: number): void {
    const decades = (scale: ReturnType<typeof scaleLog>): number[] => {
      const [a, b] = scale.domain().map(Number);
      const out: number[] = [];
      for (let e = Math.floor(Math.log10(a)); e <= Math.ceil(Math.log10(b)); ++e)
        for (const m of [1, 2, 5]) if (m * 10 ** e >= a && m * 10 ** e <= b) out.push(m * 10 ** e);
      return out;
    };
    for (const tick of decades(x))
      picture.append(
        svg("line", { x1: Number(x(tick)), x2: Number(x(tick)), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, class: "grid" }),
        svg("text", { x: Number(x(tick)), y: HEIGHT - MARGIN.bottom + 16, "text-anchor": "middle" }, short(tick)),
      );
    for (const tick of decades(y))
      picture.append(
        svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: Number(y(tick)), y2: Number(y(tick)), class: "grid" }),
        svg("text", { x: MARGIN.left - 6, y: Number(y(tick)) + 4, "text-anchor": "end" }, short(tick)),
      );
    picture.append(
      svg("text", { x: (MARGIN.left + width) / 2, y: HEIGHT - 8, "text-anchor": "middle", class: "mark" }, "multiply-accumulates for each byte of DRAM"),
      svg("text", { transform: `translate(14 ${HEIGHT / 2}) rotate(-90)`, "text-anchor": "middle", class: "mark" }, "multiply-accumulates a cycle"),
    );
  }

  private mark(point: Point, x: ReturnType<typeof scaleLog>, y: ReturnType<typeof scaleLog>, size: ReturnType<typeof scaleSqrt>, points: Point[]): SVGElement {
    const { run, selection } = this.state;
    const at = [Number(x(point.intensity)), Number(y(point.rate))];
    const chosen = selection.layer === point.layer;
    const radius = Number(size(run.weight(point.row)));
    const group = svg("g", {
      class: `point${chosen ? " chosen" : selection.layer >= 0 ? " other" : ""}`,
      role: "button",
      tabindex: points[this.current] === point ? 0 : -1,
      "data-layer": point.layer,
      "aria-pressed": chosen ? "true" : "false",
      "aria-label": `${run.label(point.layer)}, ${count(run.weight(point.row))} cycles, bound by ${point.row.bound ?? "unknown"}`,
    });
    if (point.predicted && run.timed) {
      const py = Number(y(point.predicted));
      if (Math.abs(py - at[1]) > 5) group.append(
        svg("line", { x1: at[0], x2: at[0], y1: at[1], y2: py, class: "error" }),
        svg("path", { d: `M${at[0]},${py - 4} l4,4 l-4,4 l-4,-4 z`, class: "predicted" }),
      );
    }
    group.append(svg("circle", { cx: at[0], cy: at[1], r: radius, fill: layerColour(point.layer) }));
    if (radius > 6) group.append(svg("text", { x: at[0], y: at[1] + 4, "text-anchor": "middle", class: "sign" }, BOUND_SIGNS[point.row.bound ?? ""] ?? ""));
    group.addEventListener("click", () => this.state.select({ layer: point.layer }));
    group.addEventListener("pointermove", (event) => {
      const e = event as PointerEvent;
      this.tooltip.show(
        e.clientX,
        e.clientY,
        element("strong", {}, run.label(point.layer)),
        element("div", {}, `${point.row.op}, bound by ${point.row.bound ?? "unknown"}`),
        element("div", {}, `${count(point.row.cycles)} cycles, predicted ${count(point.row.predicted_cycles)}`),
        element("div", {}, `${short(point.rate)} MACs a cycle (${percent(point.rate, run.peak)} of the array), ${short(point.intensity)} a byte`),
      );
    });
    group.addEventListener("pointerleave", () => this.tooltip.hide());
    group.addEventListener("keydown", (event) => {
      const key = (event as KeyboardEvent).key;
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key];
      if (step === undefined && key !== "Enter" && key !== " ") return;
      event.preventDefault();
      const next = points[(points.indexOf(point) + (step ?? 0) + points.length) % points.length];
      this.state.select({ layer: next.layer });
    });
    return group;
  }
}
