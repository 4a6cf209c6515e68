// SPDX-License-Identifier: Apache-2.0
// The five engines over time, of a chip those of each core. What is narrower than a pixel becomes a column as dark as the engine was busy, in the
// colour of the layer that had most of it; so that a whole network and a single instruction are drawn by the same code.
import { bisector } from "d3-array";
import { scaleLinear } from "d3-scale";
import { Run } from "./report";
import { State } from "./state";
import { count, css, element, fit, fitted, layerColour, Surface, Tooltip } from "./look";

const LEFT = 58;
const AXIS = 22;
const LAYERS = 26;
const LANE = 40;
const NARROW = 18; // of a chip's cores
const GAP = 6;
const OVERVIEW = 34;
const ORDER = ["fetch", "load", "gemm", "alu", "store"];
const MOST_ARROWS = 160;

interface Lane {
  engine: string;
  core: number;
  index: number[]; // instructions by begin; of fetch the bursts
  begin: number[];
  end: number[];
  row: number[]; // where several are in flight, the line inside the lane
  rows: number;
}

function laneOf(engine: string, core: number, index: number[], begin: (i: number) => number, end: (i: number) => number): Lane {
  const sorted = [...index].sort((a, b) => begin(a) - begin(b));
  const free: number[] = [];
  const row = sorted.map((i) => {
    let at = free.findIndex((until) => until <= begin(i));
    if (at < 0) at = free.length < 4 ? free.length : free.indexOf(Math.min(...free));
    free[at] = end(i);
    return at;
  });
  return { engine, core, index: sorted, begin: sorted.map(begin), end: sorted.map(end), row, rows: Math.max(1, free.length) };
}

export class Timeline {
  private surface: Surface;
  private overview: Surface;
  private lanes: Lane[] = [];
  private cores = 1;
  private longest: number[] = [];
  private place = new Map<number, [number, number]>(); // instruction -> lane, position in it
  private hovered = -1;
  private pointer = 0;
  private dragging: { x: number; view: [number, number]; moved: boolean } | null = null;

  constructor(
    host: HTMLElement,
    private readonly state: State,
    private readonly tooltip: Tooltip,
  ) {
    const button = (text: string, label: string, act: () => void): HTMLElement =>
      element("button", { type: "button", title: label, "aria-label": label, onclick: act }, text);
    const body = element("div", { class: "chart" });
    const strip = element("div", { class: "chart overview" });
    host.append(
      element(
        "div",
        { class: "tools" },
        button("−", "Zoom out", () => state.zoom(2)),
        button("+", "Zoom in", () => state.zoom(0.5)),
        button("Whole run", "Show the whole run", () => state.show(0, state.run.end)),
        button("Selected layer", "Zoom to the selected layer", () => state.showLayer(state.selection.layer)),
        element("span", { class: "hint" }, "Drag pans, wheel zooms (hold Ctrl, or click first). Keys: ← → + − 0, N and P step."),
      ),
      body,
      strip,
    );
    this.surface = new Surface(body, AXIS + LAYERS + ORDER.length * (LANE + GAP), "Timeline of the engines; arrow keys pan, plus and minus zoom", () => this.paint());
    this.overview = new Surface(strip, OVERVIEW, "Overview of the whole run; click to move there", () => this.paintOverview());
    this.prepare();
    this.listen();
    state.listen((what) => {
      if (what === "run") this.prepare();
      this.surface.draw();
      this.overview.draw();
    });
  }

  private get run(): Run {
    return this.state.run;
  }

  private prepare(): void {
    this.lanes = [];
    this.place.clear();
    const timeline = this.run.report.timeline;
    if (!timeline) return;
    const { columns } = timeline.instructions;
    const { fetch } = timeline;
    this.cores = 1 + (columns.core ?? []).reduce((most, core) => Math.max(most, core), 0);
    const sorted = (count: number, core: number[] | undefined): number[][] => {
      const by: number[][] = Array.from({ length: this.cores }, () => []);
      for (let i = 0; i < count; ++i) by[core?.[i] ?? 0].push(i);
      return by;
    };
    const instructions = sorted(columns.engine.length, columns.core);
    const bursts = sorted(fetch?.begin.length ?? 0, fetch?.core);
    for (let core = 0; core < this.cores; ++core)
      for (const engine of ORDER) {
        const at = timeline.engines.indexOf(engine);
        if (engine === "fetch" && fetch) this.lanes.push(laneOf(engine, core, bursts[core], (i) => fetch.begin[i], (i) => fetch.end[i]));
        else
          this.lanes.push(
            laneOf(engine, core, instructions[core].filter((i) => columns.engine[i] === at), (i) => columns.begin[i], (i) => columns.end[i]),
          );
      }
    this.surface.height = this.top(this.lanes.length);
    this.longest = this.lanes.map((lane) => lane.begin.reduce((most, b, k) => Math.max(most, lane.end[k] - b), 0));
    this.lanes.forEach((lane, l) => {
      if (!this.isFetch(l)) lane.index.forEach((i, k) => this.place.set(i, [l, k]));
    });
  }

  private isFetch(lane: number): boolean {
    return this.lanes[lane].engine === "fetch" && this.run.report.timeline?.fetch !== undefined;
  }

  private x(): (cycle: number) => number {
    const [begin, end] = this.state.view;
    const scale = (this.surface.width - LEFT - 8) / (end - begin);
    return (cycle) => LEFT + (cycle - begin) * scale;
  }

  private cycleAt(x: number): number {
    const [begin, end] = this.state.view;
    return begin + ((x - LEFT) / (this.surface.width - LEFT - 8)) * (end - begin);
  }

  private get lane(): number {
    return this.cores > 1 ? NARROW : LANE;
  }

  private get gap(): number {
    return this.cores > 1 ? 2 : GAP;
  }

  private top(lane: number): number {
    return AXIS + LAYERS + lane * (this.lane + this.gap) + (this.cores > 1 ? Math.floor(lane / ORDER.length) * GAP : 0);
  }

  /// Positions in a lane that may reach into a stretch of time.
  private within(l: number, begin: number, end: number): [number, number] {
    const { left } = bisector((v: number) => v);
    const lane = this.lanes[l];
    return [left(lane.begin, begin - this.longest[l]), left(lane.begin, end)];
  }

  private paint(): void {
    const { context: c, width, height } = this.surface;
    const [begin, end] = this.state.view;
    const x = this.x();
    const text = css("--text");
    const faint = css("--line");
    if (this.lanes.length === 0) {
      c.fillStyle = text;
      c.fillText(this.run.silence, LEFT, 40);
      return;
    }
    c.save();
    this.paintAxis(c, x, width, height, text, faint);
    c.beginPath();
    c.rect(LEFT, 0, width - LEFT, height);
    c.clip();
    this.paintLayers(c, x, text);
    let seen = 0;
    this.lanes.forEach((_, l) => (seen += this.paintLane(c, l, x)));
    this.paintArrows(c, x, seen);
    c.restore();
    c.fillStyle = text;
    this.lanes.forEach((lane, l) => {
      c.font = "600 11px system-ui, sans-serif";
      const name = lane.engine.toUpperCase();
      c.fillText(this.cores > 1 ? `${lane.core} ${name}` : name, 6, this.top(l) + this.lane / 2 + 4);
    });
    c.font = "11px system-ui, sans-serif";
    c.fillText("layers", 6, AXIS + 15);
    this.surface.canvas.dataset.view = `${begin},${end}`;
  }

  private paintAxis(c: CanvasRenderingContext2D, x: (t: number) => number, width: number, height: number, text: string, faint: string): void {
    const [begin, end] = this.state.view;
    c.fillStyle = css("--muted");
    c.strokeStyle = faint;
    c.lineWidth = 1;
    for (const tick of scaleLinear([begin, end], [LEFT, width - 8]).ticks(Math.max(3, width / 130))) {
      if (!Number.isInteger(tick) || x(tick) > width - 62) continue;
      const at = Math.round(x(tick)) + 0.5;
      c.beginPath();
      c.moveTo(at, AXIS - 4);
      c.lineTo(at, height);
      c.stroke();
      c.fillText(count(tick), at + 3, 13);
    }
    c.fillStyle = text;
    c.fillText(this.run.timed ? "cycle" : "step", 6, 13);
    c.fillStyle = css("--lane");
    this.lanes.forEach((_, l) => c.fillRect(LEFT, this.top(l), width - LEFT - 8, this.lane));
  }

  /// Where each layer lies, from its first to its last instruction; neighbours overlap, so two lines take turns.
  private paintLayers(c: CanvasRenderingContext2D, x: (t: number) => number, text: string): void {
    const { selection } = this.state;
    let turn = 0;
    this.run.layers.forEach((layer, i) => {
      if (layer.begin_cycle === undefined || layer.end_cycle === undefined) return;
      const top = AXIS + (turn++ % 2) * 12;
      const left = x(layer.begin_cycle);
      const right = Math.max(left + 1, x(layer.end_cycle));
      if (right < LEFT || left > this.surface.width) return;
      c.globalAlpha = selection.layer < 0 || selection.layer === i ? 1 : 0.35;
      c.fillStyle = layerColour(i);
      c.fillRect(left, top, right - left, 11);
      const from = Math.max(left, LEFT);
      const room = Math.min(right, this.surface.width) - from;
      if (room > 34) {
        c.fillStyle = selection.layer >= 0 && selection.layer !== i ? text : "#10151c";
        c.font = "9px system-ui, sans-serif";
        c.fillText(fitted(c, this.run.label(i), room - 4), from + 3, top + 9);
        c.font = "11px system-ui, sans-serif";
      }
    });
    c.globalAlpha = 1;
  }

  /// How many instructions are in sight.
  private paintLane(c: CanvasRenderingContext2D, l: number, x: (t: number) => number): number {
    const lane = this.lanes[l];
    const timeline = this.run.report.timeline!;
    const { columns, ops } = timeline.instructions;
    const fetch = this.isFetch(l);
    const [first, last] = this.within(l, ...this.state.view);
    const top = this.top(l);
    const chosen = this.state.selection;
    const wide = this.surface.width;
    const cover = new Float32Array(wide + 1);
    const colour = new Int32Array(wide + 1).fill(-1);
    const best = new Float32Array(wide + 1);
    for (let k = first; k < last; ++k) {
      const left = x(lane.begin[k]);
      const right = x(lane.end[k]);
      if (right < LEFT || left > wide) continue;
      const i = lane.index[k];
      const layer = fetch ? -1 : columns.layer[i];
      if (right - left < 1.2) {
        const at = Math.max(0, Math.min(wide, Math.floor(left)));
        cover[at] += right - left;
        if (right - left > best[at]) {
          best[at] = right - left;
          colour[at] = layer;
        }
        continue;
      }
      const tall = this.lane / lane.rows;
      const y = top + lane.row[k] * tall;
      const dim = chosen.layer >= 0 && layer !== chosen.layer;
      c.globalAlpha = dim ? 0.28 : 1;
      c.fillStyle = fetch ? css("--muted") : layerColour(layer);
      c.fillRect(left, y + 0.5, Math.max(1, right - left - 0.5), tall - 1);
      if (!fetch && (i === this.hovered || i === chosen.instruction)) {
        c.globalAlpha = 1;
        c.strokeStyle = css("--text");
        c.lineWidth = 2;
        c.strokeRect(left + 0.5, y + 1, Math.max(2, right - left - 1), tall - 2);
      }
      if (!fetch && right - left > 44 && tall > 9) {
        c.fillStyle = dim ? css("--text") : "#10151c";
        const from = Math.max(left, LEFT);
        c.fillText(fitted(c, `${ops[columns.op[i]]} · ${this.run.label(layer)}`, Math.min(right, wide) - from - 6), from + 4, y + tall / 2 + 4);
      }
    }
    for (let at = LEFT; at <= wide; ++at) {
      if (cover[at] === 0) continue;
      const dim = chosen.layer >= 0 && colour[at] !== chosen.layer;
      c.globalAlpha = Math.min(1, 0.15 + 0.85 * cover[at]) * (dim ? 0.28 : 1);
      c.fillStyle = fetch ? css("--muted") : layerColour(colour[at]);
      c.fillRect(at, top, 1, this.lane);
    }
    c.globalAlpha = 1;
    return fetch ? 0 : last - first;
  }

  /// From the completion of what was waited for to the instruction that waited.
  private paintArrows(c: CanvasRenderingContext2D, x: (t: number) => number, seen: number): void {
    const { selection } = this.state;
    const wanted = new Set<number>();
    if (seen <= MOST_ARROWS)
      this.lanes.forEach((lane, l) => {
        if (this.isFetch(l)) return;
        const [first, last] = this.within(l, ...this.state.view);
        for (let k = first; k < last; ++k) wanted.add(lane.index[k]);
      });
    for (const one of [this.hovered, selection.instruction]) if (one >= 0) wanted.add(one);
    const { columns } = this.run.report.timeline!.instructions;
    for (const i of wanted)
      for (const wait of this.run.waits.get(i) ?? []) {
        const strong = i === this.hovered || i === selection.instruction;
        if (wait.cycles === 0 && !strong) continue;
        const from = this.place.get(wait.source);
        const to = this.place.get(i);
        if (!from || !to) continue;
        c.strokeStyle = c.fillStyle = strong ? css("--accent") : css("--arrow");
        c.globalAlpha = strong ? 1 : 0.75;
        c.lineWidth = strong ? 2 : 1.2;
        arrow(c, x(columns.completed[wait.source]), this.top(from[0]) + this.lane / 2, x(columns.taken[i]), this.top(to[0]) + (to[0] > from[0] ? 2 : this.lane - 2));
      }
    c.globalAlpha = 1;
  }

  private paintOverview(): void {
    const { context: c, width } = this.overview;
    const end = this.run.end;
    const scale = (width - LEFT - 8) / end;
    c.fillStyle = css("--lane");
    c.fillRect(LEFT, 0, width - LEFT - 8, OVERVIEW);
    this.run.layers.forEach((layer, i) => {
      if (layer.begin_cycle === undefined || layer.end_cycle === undefined) return;
      c.globalAlpha = this.state.selection.layer < 0 || this.state.selection.layer === i ? 0.9 : 0.3;
      c.fillStyle = layerColour(i);
      c.fillRect(LEFT + layer.begin_cycle * scale, 4, Math.max(1, (layer.end_cycle - layer.begin_cycle) * scale), 8);
    });
    c.globalAlpha = 1;
    const bandwidth = this.run.report.timeline?.bandwidth;
    if (bandwidth) {
      const most = bandwidth.cycles_per_bin * (this.run.report.dram?.bandwidth_bytes ?? 1);
      const step = bandwidth.cycles_per_bin * scale;
      c.fillStyle = css("--accent");
      bandwidth.load.forEach((_, k) => {
        const share = Math.min(1, (bandwidth.load[k] + bandwidth.store[k] + bandwidth.fetch[k]) / most);
        c.fillRect(LEFT + k * step, OVERVIEW - 18 * share, Math.max(0.6, step - 0.2), 18 * share);
      });
    }
    c.fillStyle = css("--text");
    c.fillText("DRAM", 6, OVERVIEW - 6);
    const [from, to] = this.state.view;
    c.strokeStyle = css("--text");
    c.lineWidth = 1.5;
    c.strokeRect(LEFT + from * scale + 0.5, 1, Math.max(3, (to - from) * scale - 1), OVERVIEW - 2);
  }

  private hit(event: MouseEvent): number {
    const box = this.surface.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    let l = this.lanes.length - 1;
    while (l >= 0 && this.top(l) > y) --l;
    if (x < LEFT || l < 0 || y > this.top(l) + this.lane || this.isFetch(l)) return -1;
    const cycle = this.cycleAt(x);
    const slack = (this.state.view[1] - this.state.view[0]) / (this.surface.width - LEFT);
    const lane = this.lanes[l];
    const [first, last] = this.within(l, cycle - slack, cycle + slack);
    const row = Math.floor((y - this.top(l)) / (this.lane / lane.rows));
    let found = -1;
    for (let k = first; k < last; ++k)
      if (lane.end[k] >= cycle - slack && lane.begin[k] <= cycle + slack && (found < 0 || lane.row[k] === row)) found = lane.index[k];
    return found;
  }

  /// The layer whose bar in the uppermost lane is under the pointer; where bars overlap, the one that was painted last.
  private layerUnder(event: MouseEvent): number {
    const box = this.surface.canvas.getBoundingClientRect();
    const y = event.clientY - box.top;
    if (y < AXIS || y > AXIS + LAYERS) return -1;
    const cycle = this.cycleAt(event.clientX - box.left);
    const line = Math.floor((y - AXIS) / 12);
    let turn = 0;
    let found = -1;
    this.run.layers.forEach((layer, i) => {
      if (layer.begin_cycle === undefined || layer.end_cycle === undefined) return;
      if (turn++ % 2 === line && layer.begin_cycle <= cycle && cycle < layer.end_cycle) found = i;
    });
    return found;
  }

  private describe(i: number): HTMLElement {
    const run = this.run;
    const { columns, ops } = run.report.timeline!.instructions;
    const layer = columns.layer[i];
    const engines = run.report.timeline!.engines;
    const box = element("div", {});
    const line = (name: string, value: string): void => {
      box.append(element("div", {}, element("span", {}, name), value));
    };
    box.append(element("strong", {}, `${ops[columns.op[i]]} #${columns.pc[i]}${columns.core ? ` of core ${columns.core[i]}` : ""}`));
    line("layer", `${run.label(layer)}${layer >= 0 ? ` (${run.layers[layer].op})` : ""}, tile ${columns.tile[i]}`);
    if (layer >= 0) line("ONNX", fit((run.layers[layer].nodes ?? []).join(", "), 90));
    if (run.timed) {
      line("works", `${count(columns.begin[i])} to ${count(columns.end[i])}: ${count(columns.end[i] - columns.begin[i])} cycles`);
      line("taken", `${count(columns.taken[i])}, in the queue since ${count(columns.queued[i])}`);
    }
    if (columns.bytes[i]) line("bytes", count(columns.bytes[i]));
    if (columns.work[i]) line(engines[columns.engine[i]] === "gemm" ? "MACs" : "vectors", count(columns.work[i]));
    for (const wait of run.waits.get(i) ?? [])
      line("waits for", `${engines[wait.engine]} #${columns.pc[wait.source]} (${run.label(columns.layer[wait.source])}): ${count(wait.cycles)} cycles`);
    return box;
  }

  private listen(): void {
    const canvas = this.surface.canvas;
    canvas.addEventListener("pointermove", (event) => {
      this.pointer = this.cycleAt(event.clientX - canvas.getBoundingClientRect().left);
      if (this.dragging) {
        const width = this.dragging.view[1] - this.dragging.view[0];
        const moved = event.clientX - this.dragging.x;
        if (Math.abs(moved) > 3) this.dragging.moved = true;
        const shift = (-moved / (this.surface.width - LEFT)) * width;
        this.state.show(this.dragging.view[0] + shift, this.dragging.view[1] + shift);
        return;
      }
      const found = this.hit(event);
      const layer = found < 0 ? this.layerUnder(event) : -1;
      if (found !== this.hovered) {
        this.hovered = found;
        this.surface.draw();
      }
      if (found >= 0) this.tooltip.show(event.clientX, event.clientY, this.describe(found));
      else if (layer >= 0) this.tooltip.show(event.clientX, event.clientY, `${this.run.label(layer)}: ${count(this.run.layers[layer].cycles)} cycles`);
      else this.tooltip.hide();
    });
    canvas.addEventListener("pointerleave", () => {
      this.tooltip.hide();
      this.hovered = -1;
      this.surface.draw();
    });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.dragging = { x: event.clientX, view: [...this.state.view], moved: false };
    });
    canvas.addEventListener("pointerup", (event) => {
      const clicked = this.dragging && !this.dragging.moved;
      this.dragging = null;
      if (!clicked) return;
      const i = this.hit(event);
      if (i >= 0) this.state.select({ layer: this.run.report.timeline!.instructions.columns.layer[i], instruction: i });
      else this.state.select({ layer: this.layerUnder(event) });
    });
    canvas.addEventListener("dblclick", () => this.state.showLayer(this.state.selection.layer));
    canvas.addEventListener(
      "wheel",
      (event) => {
        const mine = event.ctrlKey || event.metaKey || document.activeElement === canvas;
        if (!mine && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
        event.preventDefault();
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.state.pan(event.deltaX / this.surface.width);
        else this.state.zoom(Math.exp(event.deltaY * 0.002), this.pointer);
      },
      { passive: false },
    );
    this.state.keys(canvas, {
      Enter: () => this.state.showLayer(this.state.selection.layer),
      n: () => this.step(1),
      p: () => this.step(-1),
    });
    this.overview.canvas.addEventListener("pointerdown", (event) => {
      const width = this.state.view[1] - this.state.view[0];
      const at = ((event.offsetX - LEFT) / (this.overview.width - LEFT - 8)) * this.run.end;
      this.state.show(at - width / 2, at + width / 2);
    });
    this.state.keys(this.overview.canvas);
  }

  /// The next or previous instruction of the engine, brought into sight.
  private step(by: number): void {
    const { columns } = this.run.report.timeline!.instructions;
    const current = this.state.selection.instruction;
    let i = columns.layer.indexOf(Math.max(0, this.state.selection.layer));
    const place = this.place.get(current);
    if (place) i = this.lanes[place[0]].index[place[1] + by] ?? current;
    if (i < 0) return;
    this.state.select({ layer: columns.layer[i], instruction: i });
    const [begin, end] = this.state.view;
    const width = Math.min(end - begin, Math.max(200, 30 * (columns.end[i] - columns.begin[i])));
    if (columns.begin[i] < begin || columns.end[i] > end || end - begin > width) {
      const middle = (columns.begin[i] + columns.end[i]) / 2;
      this.state.show(middle - width / 2, middle + width / 2);
    }
  }
}

function arrow(c: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  const bend = Math.max(8, Math.abs(x1 - x0) / 3);
  c.beginPath();
  c.moveTo(x0, y0);
  c.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  c.stroke();
  c.beginPath();
  c.moveTo(x1, y1);
  c.lineTo(x1 - 6, y1 - 3.5);
  c.lineTo(x1 - 6, y1 + 3.5);
  c.closePath();
  c.fill();
}
