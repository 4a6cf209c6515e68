// SPDX-License-Identifier: Apache-2.0
// The versioned report (docs/report.schema.json) as types, and a run made ready for the views.

import type { Exploration } from "./exploration";

export type Cause = "compute" | "alu" | "load" | "store" | "sync";
export const CAUSES: Cause[] = ["compute", "alu", "load", "store", "sync"];
export type Stream = "input" | "weights" | "params" | "second" | "output" | "instructions";
export const STREAMS: Stream[] = ["input", "weights", "params", "second", "output", "instructions"];
export type Exactness = "exact" | "exact by proof" | "tolerance" | "close";

export interface Layer {
  name: string;
  key?: string;
  op: string;
  placement: "npu" | "cpu";
  exactness: Exactness;
  nodes?: string[];
  macs: number;
  issued_macs?: number;
  instructions?: number;
  cycles: number | null;
  cycles_compute?: number;
  cycles_alu?: number;
  cycles_load?: number;
  cycles_store?: number;
  cycles_sync?: number;
  gemm_cycles?: number;
  alu_cycles?: number;
  dram_cycles?: number;
  begin_cycle?: number;
  end_cycle?: number;
  utilization: number | null;
  bound?: "compute" | "dram" | "alu" | "sync" | null;
  bound_cycles?: number;
  predicted_cycles?: number;
  bytes?: Record<Stream, number>;
  dram_read_bytes?: number;
  dram_write_bytes?: number;
  schedule?: unknown;
  seconds?: number;
}

/// What one core of a chip did, over all programs.
export interface Core {
  core: number;
  instructions: number;
  issued_macs: number;
  dram_read_bytes: number;
  dram_write_bytes: number;
  cycles?: number;
  cycles_compute?: number;
  cycles_alu?: number;
  cycles_load?: number;
  cycles_store?: number;
  cycles_sync?: number;
  core_wait_cycles?: number;
  bus_wait_cycles?: number;
}

interface Columns {
  program: number[];
  pc: number[];
  core?: number[]; // of a chip of several
  engine: number[];
  op: number[];
  layer: number[];
  tile: number[];
  queued: number[];
  taken: number[];
  begin: number[];
  end: number[];
  completed: number[];
  bytes: number[];
  work: number[];
}

export interface Regions {
  begin: number[];
  end: number[];
  from: number[];
  to: number[];
  layer: number[];
  instruction?: number[];
}

export interface Report {
  schema: string;
  schema_version: number;
  model: { name: string; kind: "onnx" | "artifact" };
  device: string;
  config?: string;
  compiler?: string;
  machine?: Record<string, number | string>;
  dram?: { latency_cycles: number; bandwidth_bytes: number };
  provenance: Record<string, string | null>;
  cycles?: number | null;
  cycles_compute?: number;
  cycles_alu?: number;
  cycles_load?: number;
  cycles_store?: number;
  cycles_sync?: number;
  utilization?: number | null;
  roofline_cycles?: number;
  predicted_cycles?: number;
  macs?: number;
  macs_cpu?: number;
  issued_macs?: number;
  bytes?: Record<Stream, number>;
  dram_read_bytes?: number;
  dram_write_bytes?: number;
  arena_bytes?: number;
  arena_bytes_without_reuse?: number;
  instructions?: number;
  nodes_npu?: number;
  nodes_cpu?: number;
  cores?: Core[];
  bus_busy_cycles?: number;
  layers: Layer[];
  timeline?: {
    unit: "cycle" | "instruction";
    end: number;
    engines: string[];
    programs: { program: number; begin: number; end: number; instructions: number }[];
    instructions: { ops: string[]; columns: Columns };
    waits: { instruction: number[]; engine: number[]; cycles: number[]; source: number[] };
    fetch?: { begin: number[]; end: number[]; bytes: number[]; core?: number[] };
    bandwidth?: { cycles_per_bin: number; load: number[]; store: number[]; fetch: number[] };
  };
  memory?: {
    scratchpads: { name: string; core?: number; bytes: number; peak_bytes: number; peak_at: number; regions: Regions }[];
    arena: { bytes: number; peak_bytes: number; peak_at: number; regions: Regions };
    layer_edges: [number, number][];
  };
  graph?: {
    values: { name: string[]; type: string[]; constant: number[] };
    nodes: {
      name: string[];
      op: string[];
      domain: string[];
      inputs: number[][];
      outputs: number[][];
      attributes: Record<string, string>[];
      layer: number[];
      placement: ("npu" | "cpu" | "compiler")[];
      exactness: Exactness[];
      parent: number[];
    };
    inputs: number[];
    outputs: number[];
  };
}

export interface PageData {
  runs: { name: string; report: Report }[];
  explore?: Exploration; // what `tessera explore` wrote
}

export interface Wait {
  source: number;
  engine: number;
  cycles: number;
}

/// A report with what several views look up.
export class Run {
  readonly waits: Map<number, Wait[]> = new Map();
  readonly waiters: Map<number, number[]> = new Map();
  readonly labels: string[];

  constructor(
    readonly name: string,
    readonly report: Report,
  ) {
    const waits = report.timeline?.waits;
    waits?.instruction.forEach((instruction, k) => {
      const wait = { source: waits.source[k], engine: waits.engine[k], cycles: waits.cycles[k] };
      push(this.waits, instruction, wait);
      push(this.waiters, wait.source, instruction);
    });
    this.labels = report.layers.map((layer, i) => {
      const name = layer.key ?? layer.name;
      return name.trim() === "" ? `layer ${i}` : name; // one without a letter could be neither read nor clicked
    });
  }

  get layers(): Layer[] {
    return this.report.layers;
  }
  /// Why there are no figures of single instructions.
  get silence(): string {
    return this.report.nodes_npu === 0 ? "Nothing of this model ran on the NPU." : "This device keeps no figures of single instructions.";
  }
  get timed(): boolean {
    return this.report.timeline?.unit === "cycle";
  }
  /// "cycles", or "instructions" on devices without time.
  get unit(): string {
    return this.timed ? "cycles" : "instructions";
  }
  get end(): number {
    return Math.max(1, this.report.timeline?.end ?? 1);
  }
  get peak(): number {
    return Number(this.report.machine?.peak_macs ?? 0) * Number(this.report.machine?.cores ?? 1);
  }
  label(layer: number): string {
    return layer < 0 ? "the host" : (this.labels[layer] ?? "?");
  }
  /// Cycles, or what stands for them in sizes where there are none.
  weight(layer: Layer): number {
    return layer.cycles ?? layer.predicted_cycles ?? 0;
  }
}

function push<K, V>(map: Map<K, V[]>, key: K, value: V): void {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}

export function causesOf(row: Report | Layer | Core): [Cause, number][] {
  return CAUSES.map((cause) => [cause, (row as unknown as Record<string, number>)[`cycles_${cause}`] ?? 0]);
}
