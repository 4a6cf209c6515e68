// SPDX-License-Identifier: Apache-2.0
// The network as a graph. Folded, a box is a layer with all the ONNX nodes that it computes; unfolded, a box is a node.
// Of an artifact, which has no ONNX graph, boxes are layers and edges are what layers read from each other in DRAM.
import { Run } from "./report";
import { State } from "./state";
import { Box, Edge, place } from "./graph_layout";
import { count, css, element, fit, fitted, EXACTNESS_COLOURS, heat, layerColour, percent, PLACEMENT_COLOURS, short, Surface, Tooltip } from "./look";

const HEIGHT = 620;
const NAMES = 0.3; // the scale from which boxes have names
type Paint = "layer" | "placement" | "cycles" | "exactness";

export class GraphView {
  private readonly surface: Surface;
  private readonly status = element("span", { class: "hint", role: "status" });
  private boxes: Box[] = [];
  private edges: Edge[] = [];
  private ready = 0; // boxes that have a place
  private generation = 0;
  private homeless = false; // the camera waits for the width of the view
  private camera = { x: 0, y: 0, k: 1 };
  private unfolded = new Set<number>();
  private everything = false;
  private paintBy: Paint = "layer";
  private found: number[] = [];
  private at = -1;
  private dragging: { x: number; y: number; camera: { x: number; y: number; k: number }; moved: boolean } | null = null;
  private readonly label: { box: HTMLButtonElement };

  constructor(
    host: HTMLElement,
    private readonly state: State,
    private readonly tooltip: Tooltip,
  ) {
    const search = element("input", { type: "search", placeholder: "Search name, operator, shape", "aria-label": "Search the graph" });
    search.addEventListener("input", () => this.search(search.value));
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.next(event.shiftKey ? -1 : 1);
    });
    const fold = element("button", { type: "button", "aria-pressed": "false", onclick: () => this.toggleAll() }, "Unfold all");
    this.label = { box: fold };
    const paint = element("select", { "aria-label": "Colour of the boxes" });
    for (const [value, text] of [["layer", "layer"], ["placement", "placement"], ["cycles", "cycles"], ["exactness", "exactness"]])
      paint.append(element("option", { value }, `Colour: ${text}`));
    paint.addEventListener("change", () => {
      this.paintBy = paint.value as Paint;
      this.surface.draw();
    });
    const zoom = (factor: number): (() => void) => () => this.zoom(factor, this.surface.width / 2, HEIGHT / 2);
    const body = element("div", { class: "chart" });
    host.append(
      element(
        "div",
        { class: "tools" },
        search,
        fold,
        paint,
        element("button", { type: "button", "aria-label": "Zoom out", onclick: zoom(0.7) }, "−"),
        element("button", { type: "button", "aria-label": "Zoom in", onclick: zoom(1.4) }, "+"),
        element("button", { type: "button", onclick: () => this.fitAll() }, "Whole graph"),
        this.status,
      ),
      body,
      element("p", { class: "hint" }, "Drag moves, wheel zooms (hold Ctrl, or click first). Double click or Enter folds and unfolds a layer; ↑ and ↓ follow the edges."),
    );
    this.surface = new Surface(body, HEIGHT, "Graph of the network; up and down follow the edges, Enter unfolds a layer", () => this.paint());
    this.listen();
    state.listen((what) => {
      if (what === "run") this.rebuild(true);
      if (what === "selection") this.reveal();
      if (what !== "view") this.surface.draw();
    });
    void this.rebuild(true);
  }

  private get run(): Run {
    return this.state.run;
  }

  private async rebuild(home: boolean): Promise<void> {
    const mine = ++this.generation;
    [this.boxes, this.edges] = boxesOf(this.run, (layer) => this.everything || this.unfolded.has(layer));
    this.ready = 0;
    let since = performance.now();
    const pause = async (): Promise<boolean> => {
      if (performance.now() - since > 14) {
        await new Promise((resolve) => requestAnimationFrame(resolve));
        since = performance.now();
      }
      return mine === this.generation;
    };
    if (!(await place(this.boxes, this.edges, pause))) return;
    this.ready = this.boxes.length;
    this.status.textContent = `${count(this.boxes.length)} boxes`;
    this.surface.canvas.dataset.boxes = String(this.boxes.length);
    this.found = [];
    this.homeless = this.homeless || home;
    this.reveal();
    this.surface.draw();
  }

  /// The begin of the graph, as wide as the view.
  private home(): void {
    this.homeless = false;
    this.camera = { x: this.surface.width / 2 - (this.boxes[0]?.x ?? 0), y: 20, k: 1 };
    this.reveal();
  }

  private fitAll(): void {
    const left = Math.min(...this.boxes.map((b) => b.x - b.width / 2));
    const right = Math.max(...this.boxes.map((b) => b.x + b.width / 2));
    const bottom = Math.max(...this.boxes.map((b) => b.y + b.height / 2));
    const k = Math.min(1.2, (this.surface.width - 40) / (right - left), (HEIGHT - 40) / bottom);
    this.camera = { k, x: this.surface.width / 2 - (k * (left + right)) / 2, y: 20 };
    this.surface.draw();
  }

  private zoom(factor: number, x: number, y: number): void {
    const k = Math.min(3, Math.max(0.004, this.camera.k * factor));
    const ratio = k / this.camera.k;
    this.camera = { k, x: x - (x - this.camera.x) * ratio, y: y - (y - this.camera.y) * ratio };
    this.surface.draw();
  }

  private toggleAll(): void {
    this.everything = !this.everything;
    this.unfolded.clear();
    this.label.box.textContent = this.everything ? "Fold into layers" : "Unfold all";
    this.label.box.setAttribute("aria-pressed", String(this.everything));
    void this.rebuild(true);
  }

  private toggle(layer: number): void {
    if (layer < 0 || this.everything || !this.run.report.graph) return;
    if (!this.unfolded.delete(layer)) this.unfolded.add(layer);
    void this.rebuild(false);
  }

  /// The box of what is selected.
  private chosen(): number {
    const { layer, node } = this.state.selection;
    if (node >= 0) {
      const exact = this.boxes.findIndex((box) => box.node === node);
      if (exact >= 0) return exact;
    }
    return layer < 0 ? -1 : this.boxes.findIndex((box) => box.layer === layer);
  }

  private reveal(): void {
    const box = this.boxes[this.chosen()];
    if (!box || this.ready === 0 || this.homeless) return;
    const { x, y, k } = this.camera;
    const at = [x + box.x * k, y + box.y * k];
    if (at[0] > 40 && at[0] < this.surface.width - 40 && at[1] > 30 && at[1] < HEIGHT - 30) return;
    this.camera = { k, x: this.surface.width / 2 - box.x * k, y: HEIGHT / 2 - box.y * k };
  }

  private search(text: string): void {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const { graph } = this.run.report;
    this.found = [];
    this.at = -1;
    if (words.length)
      this.boxes.forEach((box, i) => {
        let all = `${box.label} ${box.sub}`;
        for (const k of box.members) {
          all += ` ${graph?.nodes.name[k]} ${graph?.nodes.op[k]}`;
          for (const v of graph?.nodes.outputs[k] ?? []) if (v >= 0) all += ` ${graph?.values.name[v]} ${graph?.values.type[v]}`;
        }
        all = all.toLowerCase();
        if (words.every((word) => all.includes(word))) this.found.push(i);
      });
    this.status.textContent = words.length ? `${this.found.length} found; Enter goes to the next` : `${count(this.boxes.length)} boxes`;
    this.surface.draw();
  }

  private next(by: number): void {
    if (this.found.length === 0) return;
    this.at = (this.at + by + this.found.length) % this.found.length;
    this.select(this.found[this.at]);
    const box = this.boxes[this.found[this.at]];
    if (box && this.camera.k < NAMES) {
      // Boxes without names, as of all of a large graph, do not show what was found.
      this.camera = { k: 1, x: this.surface.width / 2 - box.x, y: HEIGHT / 2 - box.y };
      this.surface.draw();
    }
    this.status.textContent = `${this.at + 1} of ${this.found.length}`;
  }

  private select(index: number): void {
    const box = this.boxes[index];
    if (box) this.state.select({ layer: box.layer, node: box.node >= 0 ? box.node : box.members.length === 1 ? box.members[0] : -1 });
  }

  private colour(box: Box): string {
    const layer = this.run.layers[box.layer];
    const nodes = this.run.report.graph?.nodes;
    const k = box.members[0];
    if (this.paintBy === "cycles") {
      const most = Math.max(...this.run.layers.map((row) => this.run.weight(row)));
      return layer ? heat(this.run.weight(layer) / most) : "#eef1f5";
    }
    if (this.paintBy === "placement") return PLACEMENT_COLOURS[layer?.placement ?? nodes?.placement[k] ?? "compiler"];
    if (this.paintBy === "exactness") return EXACTNESS_COLOURS[layer?.exactness ?? nodes?.exactness[k] ?? ""] ?? "#eef1f5";
    return layerColour(box.layer);
  }

  private paint(): void {
    const { context: c, width } = this.surface;
    if (this.ready === 0) {
      c.fillStyle = css("--muted");
      c.fillText(this.boxes.length ? "Placing the boxes …" : "This run has no graph.", 20, 30);
      return;
    }
    if (this.homeless) this.home();
    const { x, y, k } = this.camera;
    this.surface.canvas.dataset.scale = k.toFixed(3);
    const [left, right, top, bottom] = [-x / k, (width - x) / k, -y / k, (HEIGHT - y) / k];
    const chosen = this.chosen();
    c.save();
    c.translate(x, y);
    c.scale(k, k);
    this.paintEdges(c, left, right, top, bottom, chosen);
    const marked = new Set(this.found);
    this.boxes.forEach((box, i) => {
      if (box.y + box.height < top || box.y - box.height > bottom || box.x + box.width < left || box.x - box.width > right) return;
      this.paintBox(c, box, i === chosen, marked.has(i));
    });
    c.restore();
  }

  private paintEdges(c: CanvasRenderingContext2D, left: number, right: number, top: number, bottom: number, chosen: number): void {
    const texts = this.camera.k > 0.75;
    c.strokeStyle = css("--edge");
    c.fillStyle = css("--muted");
    for (const edge of this.edges) {
      const a = this.boxes[edge.from];
      const b = this.boxes[edge.to];
      if (Math.max(a.y, b.y) < top || Math.min(a.y, b.y) > bottom) continue;
      if (Math.max(a.x, b.x) < left - 200 || Math.min(a.x, b.x) > right + 200) continue;
      const near = edge.from === chosen || edge.to === chosen;
      c.strokeStyle = near ? css("--accent") : css("--edge");
      c.globalAlpha = edge.far && !near ? 0.15 : 1;
      c.lineWidth = near ? 2.4 : 1.2;
      const path = [{ x: a.x, y: a.y + a.height / 2 }, ...edge.bends, { x: b.x, y: b.y - b.height / 2 }];
      c.beginPath();
      c.moveTo(path[0].x, path[0].y);
      for (let i = 1; i < path.length; ++i) {
        const [p, q] = [path[i - 1], path[i]];
        const middle = (p.y + q.y) / 2;
        c.bezierCurveTo(p.x, middle, q.x, middle, q.x, q.y);
      }
      c.stroke();
      c.globalAlpha = 1;
      const [p, q] = path.length === 2 ? path : path.slice(path.length / 2 - 0.5, path.length / 2 + 1.5);
      if (texts && !edge.far && edge.label) c.fillText(edge.label, (p.x + q.x) / 2 + 5, (p.y + q.y) / 2 + 3);
    }
  }

  private paintBox(c: CanvasRenderingContext2D, box: Box, chosen: boolean, marked: boolean): void {
    const [left, top] = [box.x - box.width / 2, box.y - box.height / 2];
    const port = box.layer < 0 && box.members.length === 0;
    c.fillStyle = port ? css("--panel") : this.colour(box);
    c.strokeStyle = chosen ? css("--accent") : marked ? css("--text") : css("--edge");
    c.lineWidth = chosen ? 4 : marked ? 3 : 1;
    c.beginPath();
    c.roundRect(left, top, box.width, box.height, port ? box.height / 2 : 7);
    c.fill();
    c.stroke();
    if (this.camera.k < NAMES) return;
    c.fillStyle = port ? css("--text") : "#10151c";
    c.textAlign = "center";
    c.font = "600 12px system-ui, sans-serif";
    c.fillText(fitted(c, box.label, box.width - 12), box.x, box.sub ? box.y - 3 : box.y + 4);
    c.font = "10px system-ui, sans-serif";
    if (box.sub) c.fillText(fitted(c, box.sub, box.width - 8), box.x, box.y + 12);
    c.textAlign = "start";
    c.font = "11px system-ui, sans-serif";
  }

  private hit(event: MouseEvent): number {
    const x = (event.offsetX - this.camera.x) / this.camera.k;
    const y = (event.offsetY - this.camera.y) / this.camera.k;
    return this.boxes.findIndex((box) => Math.abs(x - box.x) < box.width / 2 && Math.abs(y - box.y) < box.height / 2);
  }

  private describe(box: Box): HTMLElement {
    const { graph } = this.run.report;
    const row = this.run.layers[box.layer];
    const out = element("div", {}, element("strong", {}, box.label), element("div", {}, box.sub));
    if (row) out.append(element("div", {}, `layer ${this.run.label(box.layer)}: ${count(row.cycles)} cycles, utilisation ${percent(row.utilization ?? 0)}`));
    if (box.members.length > 1) out.append(element("div", {}, `${box.members.length} ONNX nodes; double click unfolds`));
    for (const k of box.members.slice(0, 8)) {
      const outputs = graph!.nodes.outputs[k].map((v) => (v < 0 ? "" : graph!.values.type[v])).join(", ");
      out.append(element("div", {}, element("span", {}, graph!.nodes.op[k]), `${fit(graph!.nodes.name[k], 40)} → ${outputs}`));
    }
    return out;
  }

  private follow(by: number): void {
    const current = this.chosen();
    const next = this.edges.find((edge) => (by > 0 ? edge.from : edge.to) === current);
    this.select(current < 0 ? 0 : next ? (by > 0 ? next.to : next.from) : current);
  }

  private listen(): void {
    const canvas = this.surface.canvas;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.dragging = { x: event.clientX, y: event.clientY, camera: { ...this.camera }, moved: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      const drag = this.dragging;
      if (drag) {
        const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
        if (Math.abs(dx) + Math.abs(dy) > 4) drag.moved = true;
        if (drag.moved) this.camera = { k: drag.camera.k, x: drag.camera.x + dx, y: drag.camera.y + dy };
        this.surface.draw();
        return;
      }
      const box = this.boxes[this.hit(event)];
      if (box) this.tooltip.show(event.clientX, event.clientY, this.describe(box));
      else this.tooltip.hide();
    });
    canvas.addEventListener("pointerup", (event) => {
      const clicked = this.dragging && !this.dragging.moved;
      this.dragging = null;
      if (!clicked) return;
      const found = this.hit(event);
      if (found >= 0) this.select(found);
      else this.state.select({});
    });
    canvas.addEventListener("pointerleave", () => this.tooltip.hide());
    canvas.addEventListener("dblclick", (event) => this.toggle(this.boxes[this.hit(event)]?.layer ?? -1));
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
        event.preventDefault();
        this.zoom(Math.exp(-event.deltaY * 0.0018), event.offsetX, event.offsetY);
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (event) => {
      const middle: [number, number] = [this.surface.width / 2, HEIGHT / 2];
      const acts: Record<string, () => void> = {
        ArrowDown: () => this.follow(1),
        ArrowUp: () => this.follow(-1),
        Enter: () => this.toggle(this.state.selection.layer),
        "+": () => this.zoom(1.4, ...middle),
        "-": () => this.zoom(0.7, ...middle),
        "0": () => this.fitAll(),
      };
      if (!acts[event.key]) return;
      event.preventDefault();
      acts[event.key]();
    });
  }
}

/// Boxes in the order of the model, and the edges between them.
function boxesOf(run: Run, open: (layer: number) => boolean): [Box[], Edge[]] {
  return run.report.graph ? fromNodes(run, open) : fromLayers(run);
}

function box(label: string, sub: string, layer: number, node: number, members: number[], rank: number): Box {
  const width = Math.min(300, Math.max(110, 8 * label.length + 22, 5.8 * sub.length + 18));
  return { label, sub, layer, node, members, rank, x: 0, y: 0, width, height: sub ? 42 : 30 };
}

function layerBox(run: Run, layer: number, members: number[], rank: number): Box {
  const row = run.layers[layer];
  const cost = row.placement === "cpu" ? "CPU" : `NPU · ${short(run.weight(row))} ${row.cycles === null ? "predicted" : "cycles"}`;
  return box(row.op === run.label(layer) ? row.op : `${run.label(layer)}`, `${fit(row.op, 24)} · ${cost} · ${row.exactness}`, layer, -1, members, rank);
}

function fromLayers(run: Run): [Box[], Edge[]] {
  const boxes = run.layers.map((_, i) => layerBox(run, i, [], i));
  const edges = (run.report.memory?.layer_edges ?? []).map(([from, to]) => ({ from, to, label: "", far: false, bends: [] }));
  return [boxes, edges];
}

function shapeOf(type: string): string {
  const at = type.indexOf("[");
  return at < 0 ? "" : type.slice(at + 1, -1).replace(/,/g, "×");
}

function fromNodes(run: Run, open: (layer: number) => boolean): [Box[], Edge[]] {
  const { nodes, values, inputs, outputs } = run.report.graph!;
  const root = (k: number): number => (nodes.parent[k] < 0 ? k : root(nodes.parent[k]));
  const groups = new Map<string, number[]>();
  const key = (k: number): string => (nodes.layer[k] >= 0 && !open(nodes.layer[k]) ? `L${nodes.layer[k]}` : `N${root(k)}`);
  nodes.name.forEach((_, k) => {
    const list = groups.get(key(k));
    if (list) list.push(k);
    else groups.set(key(k), [k]);
  });
  const boxes: Box[] = inputs.map((v) => box(values.name[v], shapeOf(values.type[v]), -1, -1, [], -1));
  for (const [name, members] of groups) {
    const k = name[0] === "N" ? Number(name.slice(1)) : -1;
    const last = members[members.length - 1];
    if (k < 0) boxes.push(layerBox(run, nodes.layer[members[0]], members, last));
    else boxes.push(box(nodes.op[k], `${fit(nodes.name[k], 30)} · ${nodes.placement[k]} · ${nodes.exactness[k]}`, nodes.layer[k], k, members, last));
  }
  outputs.forEach((v) => boxes.push(box(v < 0 ? "output" : values.name[v], v < 0 ? "" : shapeOf(values.type[v]), -1, -1, [], nodes.name.length)));
  boxes.sort((a, b) => a.rank - b.rank);
  const maker = new Map<number, number>(); // value -> box
  const where = new Map<Box, number>(boxes.map((one, i) => [one, i]));
  const firsts = boxes.filter((one) => one.rank < 0);
  inputs.forEach((v, i) => maker.set(v, where.get(firsts[i])!));
  boxes.forEach((one, i) => one.members.forEach((k) => nodes.outputs[k].forEach((v) => v >= 0 && maker.set(v, i))));
  const edges = new Map<string, Edge>();
  const node = new Map<number, number>(); // value -> node
  nodes.outputs.forEach((values, k) => values.forEach((v) => v >= 0 && node.set(v, k)));
  /// The box that a value comes from. A DequantizeLinear that several layers share is folded into the first of them; the
  /// others read what it reads.
  const origin = (v: number): number | undefined => {
    const k = node.get(v);
    const own = maker.get(v);
    if (k === undefined || own === undefined || boxes[own].node >= 0 || nodes.op[k] !== "DequantizeLinear") return own;
    return maker.get(nodes.inputs[k][0]) ?? own;
  };
  const link = (v: number, to: number): void => {
    const from = maker.get(v) === to ? to : origin(v);
    if (from === undefined || from === to) return;
    const id = `${from},${to}`;
    if (!edges.has(id)) edges.set(id, { from, to, label: shapeOf(values.type[v]), far: false, bends: [] });
  };
  boxes.forEach((one, i) => one.members.forEach((k) => nodes.inputs[k].forEach((v) => v >= 0 && link(v, i))));
  const lasts = boxes.filter((one) => one.rank === nodes.name.length && one.members.length === 0);
  outputs.forEach((v, i) => v >= 0 && link(v, where.get(lasts[i])!));
  return [boxes, [...edges.values()]];
}
