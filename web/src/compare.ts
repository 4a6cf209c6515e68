// SPDX-License-Identifier: Apache-2.0
// Runs side by side: sums, and each layer's cycles against those of the first run. Layers meet under the name that
// schedules use.
import { Run, STREAMS } from "./report";
import { State } from "./state";
import { bytes, count, element, fit, percent, short } from "./look";
import { Table } from "./table";

interface Row {
  key: string;
  cycles: (number | null)[];
  bytes: (number | null)[];
}

const FIGURES: [string, (run: Run) => number | null | undefined, (value: number | null | undefined) => string][] = [
  ["cycles", (run) => run.report.cycles, count],
  ["predicted cycles", (run) => run.report.predicted_cycles, count],
  ["utilisation", (run) => run.report.utilization, (v) => (v === null || v === undefined ? "–" : percent(v))],
  ["roofline cycles", (run) => run.report.roofline_cycles, count],
  ["DRAM bytes", (run) => (run.report.dram_read_bytes ?? 0) + (run.report.dram_write_bytes ?? 0), bytes],
  ["arena", (run) => run.report.arena_bytes, bytes],
  ["instructions", (run) => run.report.instructions, count],
  ["MACs on the NPU", (run) => run.report.macs, short],
];

export class Compare {
  private readonly table: Table<Row>;
  private rows: Row[] = [];

  constructor(
    host: HTMLElement,
    state: State,
  ) {
    const { runs } = state;
    const head = element("tr", {}, element("th", { scope: "col" }, "figure"));
    runs.forEach((run, r) => {
      const show = element("button", { type: "button", class: "link", onclick: () => state.activate(r) }, run.name);
      head.append(element("th", { scope: "col" }, show));
    });
    const sums = element("tbody");
    for (const [name, value, show] of FIGURES) {
      const line = element("tr", {}, element("th", { scope: "row" }, name));
      const first = value(runs[0]);
      runs.forEach((run, r) => {
        const mine = value(run);
        const change = r > 0 && first && mine ? ` (${signed(mine / first - 1)})` : "";
        line.append(element("td", { class: "number" }, show(mine) + change));
      });
      sums.append(line);
    }
    host.append(
      element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Sums of the runs" }, element("table", { class: "sums" }, element("thead", {}, head), sums)),
    );
    const holder = element("div");
    host.append(holder);
    this.rows = rowsOf(runs);
    const columns = [
      { title: "layer", value: (row: Row) => row.key, show: (row: Row) => element("span", { title: row.key }, fit(row.key, 60)) },
      ...runs.map((run, r) => ({ title: `cycles: ${run.name}`, value: (row: Row) => row.cycles[r], show: (row: Row) => count(row.cycles[r]), bar: true })),
      ...runs.slice(1).map((run, r) => ({
        title: `change: ${run.name}`,
        value: (row: Row) => ratio(row.cycles[0], row.cycles[r + 1]),
        show: (row: Row) => signedOrNothing(ratio(row.cycles[0], row.cycles[r + 1])),
      })),
      ...runs.slice(1).map((run, r) => ({
        title: `bytes: ${run.name}`,
        value: (row: Row) => ratio(row.bytes[0], row.bytes[r + 1]),
        show: (row: Row) => signedOrNothing(ratio(row.bytes[0], row.bytes[r + 1])),
      })),
    ];
    this.table = new Table(holder, "Layers of the runs", columns, (row) => state.select({ layer: state.run.labels.indexOf(row.key) }));
    this.table.fill(this.rows);
    state.listen(() => {
      const key = state.run.labels[state.selection.layer];
      this.table.mark(this.rows.find((row) => row.key === key) ?? null);
    });
  }
}

function rowsOf(runs: Run[]): Row[] {
  const keys = new Set<string>();
  for (const run of runs) run.layers.forEach((row, i) => row.placement === "npu" && keys.add(run.labels[i]));
  return [...keys].map((key) => {
    const found = runs.map((run) => run.layers[run.labels.indexOf(key)]);
    return {
      key,
      cycles: found.map((row) => row?.cycles ?? row?.predicted_cycles ?? null),
      bytes: found.map((row) => (row?.bytes ? STREAMS.reduce((sum, stream) => sum + (row.bytes![stream] ?? 0), 0) : null)),
    };
  });
}

function ratio(a: number | null, b: number | null): number | null {
  return a && b ? b / a - 1 : null;
}

function signed(change: number): string {
  return `${change >= 0 ? "+" : "−"}${Math.abs(100 * change).toFixed(1)} %`;
}

function signedOrNothing(change: number | null): string {
  return change === null ? "–" : signed(change);
}
