// SPDX-License-Identifier: Apache-2.0
// What is selected and which stretch of time is shown: one place for all views, which are told of changes.
import { Run } from "./report";

export interface Selection {
  layer: number; // -1: none
  instruction: number;
  node: number; // of the graph
}

const NONE: Selection = { layer: -1, instruction: -1, node: -1 };

export class State {
  private listeners: ((what: "selection" | "view" | "run" | "theme") => void)[] = [];
  selection: Selection = { ...NONE };
  view: [number, number] = [0, 1];

  constructor(
    readonly runs: Run[],
    public active = 0,
  ) {
    this.view = [0, this.run.end];
  }

  get run(): Run {
    return this.runs[this.active];
  }

  listen(listener: (what: "selection" | "view" | "run" | "theme") => void): void {
    this.listeners.push(listener);
  }

  /// Selects a layer, and perhaps an instruction or a node of it.
  select(selection: Partial<Selection>): void {
    this.selection = { ...NONE, ...selection };
    this.tell("selection");
  }

  show(begin: number, end: number): void {
    const least = Math.min(this.run.end, 8);
    let width = Math.min(Math.max(end - begin, least), this.run.end);
    if (!Number.isFinite(width)) width = this.run.end;
    const from = Math.min(Math.max(0, begin), this.run.end - width);
    this.view = [from, from + width];
    this.tell("view");
  }

  zoom(factor: number, around?: number): void {
    const [begin, end] = this.view;
    const at = around ?? (begin + end) / 2;
    this.show(at - (at - begin) * factor, at + (end - at) * factor);
  }

  pan(share: number): void {
    const width = this.view[1] - this.view[0];
    this.show(this.view[0] + share * width, this.view[1] + share * width);
  }

  showLayer(layer: number): void {
    const row = this.run.layers[layer];
    if (row?.begin_cycle === undefined || row.end_cycle === undefined) return;
    const margin = (row.end_cycle - row.begin_cycle) * 0.08;
    this.show(row.begin_cycle - margin, row.end_cycle + margin);
  }

  activate(run: number): void {
    const label = this.run.labels[this.selection.layer];
    this.active = run;
    this.view = [0, this.run.end];
    this.selection = { ...NONE, layer: label === undefined ? -1 : this.run.labels.indexOf(label) };
    this.tell("run");
  }

  /// Keys that move the stretch of time, and others, for a canvas.
  keys(canvas: HTMLElement, others: Record<string, () => void> = {}): void {
    const acts: Record<string, () => void> = {
      ArrowLeft: () => this.pan(-0.2),
      ArrowRight: () => this.pan(0.2),
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      "0": () => this.show(0, this.run.end),
      ...others,
    };
    canvas.addEventListener("keydown", (event) => {
      if (!acts[event.key]) return;
      event.preventDefault();
      acts[event.key]();
    });
  }

  tell(what: "selection" | "view" | "run" | "theme"): void {
    for (const listener of this.listeners) listener(what);
  }
}
