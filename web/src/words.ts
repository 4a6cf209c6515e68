// SPDX-License-Identifier: Apache-2.0
// Why a layer takes its time, as sentences, from its causes, its bytes and its waits.
import { causesOf, Layer, Run, Stream, STREAMS } from "./report";
import { bytes, count, percent, short } from "./look";

const STREAM_WORDS: Record<Stream, string> = {
  input: "its input",
  weights: "its weights",
  params: "its parameters",
  second: "its second operand",
  output: "its output",
  instructions: "its instructions",
};

function share(part: number | undefined, whole: number): number {
  return whole === 0 ? 0 : (part ?? 0) / whole;
}

/// Cycles that the instructions of a layer waited at the head of their queues, by the pair of engines.
export function waitsOf(run: Run, layer: number): { who: string; whom: string; cycles: number }[] {
  const timeline = run.report.timeline;
  if (!timeline || !run.timed) return [];
  const { columns } = timeline.instructions;
  const sums = new Map<string, number>();
  for (const [instruction, waits] of run.waits) {
    if (columns.layer[instruction] !== layer) continue;
    for (const wait of waits) {
      const key = `${timeline.engines[columns.engine[instruction]]} ${timeline.engines[wait.engine]}`;
      sums.set(key, (sums.get(key) ?? 0) + wait.cycles);
    }
  }
  return [...sums]
    .map(([key, cycles]) => ({ who: key.split(" ")[0].toUpperCase(), whom: key.split(" ")[1].toUpperCase(), cycles }))
    .filter((wait) => wait.cycles > 0)
    .sort((a, b) => b.cycles - a.cycles);
}

function largestStream(row: Layer): [Stream, number] {
  const all = STREAMS.map((stream): [Stream, number] => [stream, row.bytes?.[stream] ?? 0]);
  return all.reduce((most, one) => (one[1] > most[1] ? one : most));
}

function boundSentences(run: Run, row: Layer): string[] {
  const cycles = row.cycles ?? 0;
  const out: string[] = [];
  const moved = Object.values(row.bytes ?? {}).reduce((sum, value) => sum + value, 0);
  const wide = run.report.dram?.bandwidth_bytes ?? 0;
  if (row.bound === "compute") {
    out.push(`It is bound by compute: the array works in ${percent(share(row.gemm_cycles, cycles), 1, 0)} of its cycles. Fewer products or a larger array would make it faster; more bandwidth would not.`);
  } else if (row.bound === "dram") {
    const [stream, most] = largestStream(row);
    out.push(
      `It is bound by the memory: its ${bytes(moved)} need ${count(row.dram_cycles)} cycles at ${wide} bytes a cycle. ` +
        `The largest part, ${percent(most, moved, 0)}, is ${STREAM_WORDS[stream]}. ` +
        (stream === "weights"
          ? "More rows or images for each load of the weights, or a wider bus, would make it faster."
          : stream === "input" || stream === "second"
            ? "A chain that keeps the tensor on the chip, larger tiles, or a wider bus would make it faster."
            : stream === "instructions"
              ? "Larger tiles would need fewer instructions."
              : "A chain with its reader, or a wider bus, would make it faster."),
    );
  } else if (row.bound === "alu") {
    out.push(`It is bound by the vector unit, which works for ${count(row.alu_cycles)} cycles (${percent(share(row.alu_cycles, cycles), 1, 0)}). More lanes for results, or fewer stages behind the product, would make it faster.`);
  } else if (row.bound === "sync") {
    out.push("No engine is busy for long: the layer loses its time in waits between engines, in the latency of the memory, or at the begin and end of instructions. Larger tiles, second copies of operands, or fewer and longer instructions would help.");
  }
  return out;
}

/// Sentences about a layer, the most important first.
export function explain(run: Run, index: number): string[] {
  const row = run.layers[index];
  if (row.placement === "cpu") {
    const why =
      row.macs > 0 ? ` It has ${short(row.macs)} multiply-accumulates in float; quantised, they could run on the NPU.` : "";
    return [`It runs on the CPU and takes ${(1000 * (row.seconds ?? 0)).toFixed(3)} ms of the host's time; it costs no cycles of the NPU.${why}`];
  }
  if (row.cycles === null)
    return [
      `This device has no time. The compiler predicts ${count(row.predicted_cycles)} cycles, and the roofline allows ${count(row.bound_cycles)}.`,
    ];
  const cycles = row.cycles;
  const out = [
    `It costs ${count(cycles)} cycles, ${percent(share(cycles, run.report.cycles ?? 0))} of the run, and uses ${percent(row.utilization ?? 0)} of the array.`,
  ];
  if (cycles === 0) return [`${out[0]} All of its work hides behind other layers.`];
  out.push(...boundSentences(run, row));
  const padding = row.issued_macs ? 1 - row.macs / row.issued_macs : 0;
  if (padding > 0.1)
    out.push(`${percent(padding, 1, 0)} of the products that the array computes are padding: the layer's channels or columns do not fill blocks of ${run.report.machine?.block_in} by ${run.report.machine?.block_out}.`);
  const causes = causesOf(row).filter(([cause, value]) => cause !== "compute" && value > 0.08 * cycles);
  const words: Record<string, string> = {
    alu: "the vector unit works alone",
    load: "only LOAD works",
    store: "only STORE works",
    sync: "no engine works",
  };
  if (causes.length) out.push(`${sentence(causes.map(([cause, value]) => `in ${percent(value, cycles, 0)} of its cycles ${words[cause]}`))}.`);
  const waits = waitsOf(run, index).slice(0, 2).filter((wait) => wait.cycles > 0.1 * cycles);
  if (waits.length) out.push(`At the heads of their queues ${waits.map((wait) => `${wait.who} waited ${count(wait.cycles)} cycles for ${wait.whom}`).join(", and ")}.`);
  if (row.bound_cycles && cycles > 1.1 * row.bound_cycles)
    out.push(`The roofline allows ${count(row.bound_cycles)} cycles; the layer takes ${(cycles / row.bound_cycles).toFixed(2)} times that.`);
  const error = share(row.predicted_cycles, cycles) - 1;
  if (Math.abs(error) > 0.1) out.push(`The compiler had predicted ${count(row.predicted_cycles)} cycles (${error > 0 ? "+" : "−"}${Math.abs(100 * error).toFixed(0)} %).`);
  return out;
}

function sentence(clauses: string[]): string {
  const text = clauses.join(", ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
