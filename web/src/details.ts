// SPDX-License-Identifier: Apache-2.0
// What is selected, in words and figures.
import { causesOf, Layer, STREAMS } from "./report";
import { State } from "./state";
import { bytes, CAUSE_COLOURS, count, element, fit, layerColour, parts, percent, STREAM_COLOURS } from "./look";
import { explain } from "./words";

interface Level {
  dim?: string;
  factor?: number;
  kind?: string;
  threads?: number;
}

/// A schedule's loops as words, outermost first.
/** Of a layer; on a chip how it is divided, with the schedules of the parts by core. */
type Schedule = {
  levels?: Level[];
  chain?: unknown[];
  tile?: Record<string, number | string>;
  divided?: string;
  core?: number;
  cores?: unknown[];
};

function schedule(value: unknown): string {
  if (Array.isArray(value)) return value.map(schedule).join("; ");
  const { levels, chain, tile, divided, core, cores } = (value ?? {}) as Schedule;
  if (cores) return `${divided ? `${divided} over the cores` : `core ${core}`}: ${schedule(cores.find((part) => part))}`;
  if (chain) return `chain of ${chain.length}, tile ${Object.entries(tile ?? {}).map(([d, n]) => `${d} ${n}`).join(", ")}`;
  return (levels ?? [])
    .map((level) => `${level.dim} ${level.factor}${level.kind === "vthread" ? ` × ${level.threads} threads` : level.kind === "hwloop" ? "" : " times"}`)
    .join(" › ");
}

export class Details {
  private readonly body = element("div", { class: "details", "aria-live": "polite" });

  constructor(
    host: HTMLElement,
    private readonly state: State,
  ) {
    host.append(this.body);
    state.listen((what) => what !== "view" && this.draw());
    this.draw();
  }

  private draw(): void {
    const { run, selection } = this.state;
    const row = run.layers[selection.layer];
    const children: (HTMLElement | null)[] = row ? this.layer(row) : selection.node >= 0 ? [] : [this.nothing()];
    this.body.replaceChildren(...[this.node(), ...children].filter((one): one is HTMLElement => one !== null));
  }

  private nothing(): HTMLElement {
    const { run } = this.state;
    const slow = run.layers
      .map((row, i) => ({ row, i }))
      .filter(({ row }) => row.placement === "npu")
      .sort((a, b) => run.weight(b.row) - run.weight(a.row))
      .slice(0, 8);
    const whole = run.report.cycles ?? run.report.predicted_cycles ?? 0;
    const list = element("ol", { class: "slowest" });
    for (const { row, i } of slow)
      list.append(
        element(
          "li",
          {},
          element("button", { type: "button", class: "link", title: run.label(i), onclick: () => this.state.select({ layer: i }) }, swatch(i), fit(run.label(i), 60)),
          ` ${percent(run.weight(row), whole)}`,
        ),
      );
    const most = slow.length > 0 ? " These take most of the run:" : "";
    return element("div", {}, element("p", {}, `Select a layer in any view.${most}`), list);
  }

  private layer(row: Layer): HTMLElement[] {
    const { run, selection } = this.state;
    const out: HTMLElement[] = [
      element(
        "h3",
        { class: "name" },
        swatch(selection.layer),
        run.label(selection.layer),
        element("button", { type: "button", class: "quiet", "aria-label": "Clear the selection", onclick: () => this.state.select({}) }, "✕"),
      ),
      element("p", { class: "badges" }, badge(row.placement.toUpperCase()), badge(row.op), badge(row.exactness), row.bound ? badge(`bound: ${row.bound}`) : null),
    ];
    const words = element("div", { class: "why" }, element("h4", {}, "Why does it take this long?"));
    for (const text of explain(run, selection.layer)) words.append(element("p", {}, text));
    out.push(words);
    if (row.cycles) out.push(element("h4", {}, "Cycles by cause"), parts(causesOf(row).map(([cause, value]) => [cause, value, CAUSE_COLOURS[cause]]), "Cycles by cause", count));
    if (row.bytes) out.push(element("h4", {}, "DRAM bytes by stream"), parts(STREAMS.map((s) => [s, row.bytes![s] ?? 0, STREAM_COLOURS[s]]), "DRAM bytes by stream", bytes));
    const list = element("dl", {});
    const line = (name: string, value: string | null): void => {
      if (value) list.append(element("dt", {}, name), element("dd", {}, value));
    };
    line("predicted", row.predicted_cycles !== undefined ? `${count(row.predicted_cycles)} cycles` : null);
    line("roofline", row.bound_cycles !== undefined ? `${count(row.bound_cycles)} cycles` : null);
    line("products", row.macs ? `${count(row.macs)} MACs` : null);
    line("instructions", row.instructions !== undefined ? count(row.instructions) : null);
    line("schedule", schedule(row.schedule) || null);
    line("ONNX nodes", (row.nodes ?? []).join(", "));
    out.push(list);
    return out;
  }

  private node(): HTMLElement | null {
    const graph = this.state.run.report.graph;
    const k = this.state.selection.node;
    if (!graph || k < 0) return null;
    const { nodes, values } = graph;
    const list = element("dl", {});
    const line = (name: string, value: string): void => {
      list.append(element("dt", {}, name), element("dd", {}, value));
    };
    const tell = (v: number): string => (v < 0 ? "absent" : `${values.name[v] || "(no name)"}: ${values.type[v]}${values.constant[v] ? ", constant" : ""}`);
    nodes.inputs[k].forEach((v, i) => line(`input ${i}`, tell(v)));
    nodes.outputs[k].forEach((v, i) => line(`output ${i}`, tell(v)));
    for (const [name, value] of Object.entries(nodes.attributes[k])) line(name, value);
    return element(
      "div",
      { class: "node" },
      element("h3", { class: "name" }, nodes.name[k] || nodes.op[k]),
      element("p", { class: "badges" }, badge(`${nodes.domain[k] ? `${nodes.domain[k]}.` : ""}${nodes.op[k]}`), badge(nodes.placement[k]), badge(nodes.exactness[k])),
      list,
    );
  }
}

export function swatch(layer: number): HTMLElement {
  const made = element("i", { class: "swatch", "aria-hidden": true });
  made.style.background = layerColour(layer);
  return made;
}

function badge(text: string): HTMLElement {
  return element("span", { class: "badge" }, text);
}
