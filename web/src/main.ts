// SPDX-License-Identifier: Apache-2.0
// The page: reads the reports that stand in it, makes the views and joins them by one state.
import { causesOf, Core, Layer, PageData, Run, STREAMS } from "./report";
import { State } from "./state";
import { bytes, CAUSE_COLOURS, count, element, fit, parts, percent, STREAM_COLOURS, Tooltip } from "./look";
import { Compare } from "./compare";
import { Explore } from "./explore";
import { Details, swatch } from "./details";
import { GraphView } from "./graph";
import { MemoryView } from "./memory";
import { Roofline } from "./roofline";
import { Table } from "./table";
import { Timeline } from "./timeline";

const SOURCES: Record<string, string> = {
  functional: "functional simulator",
  predicted: "predicted by the compiler",
  systemc: "SystemC timing model",
  rtl: "Verilated RTL",
  board: "board",
  simulated_board: "simulated board",
  host: "clock of the host",
};

function section(id: string, title: string, ...lead: (Node | string)[]): HTMLElement {
  const made = element("section", { id, "aria-labelledby": `${id}-title` }, element("h2", { id: `${id}-title` }, title), ...lead);
  document.querySelector("#nav")!.append(element("a", { href: `#${id}` }, title));
  return made;
}

function source(run: Run, key: string): string {
  const word = run.report.provenance[key];
  return word ? (SOURCES[word] ?? word) : "not known";
}

/// The figures at the top, each with where it comes from.
function drawSums(host: HTMLElement, run: Run): void {
  const r = run.report;
  const error = r.cycles && r.predicted_cycles ? r.predicted_cycles / r.cycles - 1 : null;
  const card = (name: string, value: string, note: string): HTMLElement =>
    element("div", { class: "card" }, element("span", {}, name), element("strong", {}, value), element("small", {}, note));
  const cards = element(
    "div",
    { class: "cards" },
    card("cycles", count(r.cycles), source(run, "cycles")),
    card("utilisation", r.utilization === null || r.utilization === undefined ? "–" : percent(r.utilization), `of ${run.peak} MACs a cycle`),
    card("predicted", count(r.predicted_cycles), error === null ? "by the compiler" : `error ${error >= 0 ? "+" : "−"}${Math.abs(100 * error).toFixed(1)} %`),
    card("roofline", count(r.roofline_cycles), "least cycles, layer by layer"),
    card("DRAM", bytes((r.dram_read_bytes ?? 0) + (r.dram_write_bytes ?? 0)), `${bytes(r.dram_read_bytes)} read, ${bytes(r.dram_write_bytes)} written`),
    card("arena", bytes(r.arena_bytes), `${bytes(r.arena_bytes_without_reuse)} without reuse`),
    card("ONNX nodes", `${count(r.nodes_npu)} + ${count(r.nodes_cpu)}`, "on the NPU + on the CPU"),
  );
  const bars = element("div", { class: "two" });
  if (r.cycles) bars.append(element("div", {}, element("h3", {}, "Cycles by cause"), parts(causesOf(r).map(([c, v]) => [c, v, CAUSE_COLOURS[c]]), "Cycles by cause", count)));
  if (r.bytes) bars.append(element("div", {}, element("h3", {}, "DRAM bytes by stream"), parts(STREAMS.map((s) => [s, r.bytes![s] ?? 0, STREAM_COLOURS[s]]), "DRAM bytes by stream", bytes)));
  host.replaceChildren(cards, bars);
}

function drawHeader(state: State): void {
  const r = state.run.report;
  const chips = document.querySelector("#chips")!;
  const chip = (text: string | undefined | null): Node | string => (text ? element("span", { class: "chip" }, text) : "");
  document.querySelector("#model")!.textContent = r.model.name || "model";
  document.title = `${r.model.name || "model"} · Tessera`;
  chips.replaceChildren(
    chip(r.config),
    chip(SOURCES[r.provenance.results ?? ""] ?? r.device),
    chip(r.dram && state.run.timed ? `DRAM ${r.dram.bandwidth_bytes} B a cycle, latency ${r.dram.latency_cycles}` : null),
    chip(r.compiler),
  );
}

/// What each core of a chip did; nothing for other machines.
function drawCores(host: HTMLElement, run: Run): void {
  const cores = run.report.cores ?? [];
  host.replaceChildren();
  if (cores.length === 0) return;
  const whole = Math.max(1, run.report.cycles ?? 1);
  const number = (title: string, value: (row: Core) => number | undefined, hint = "") => ({
    title,
    hint,
    value,
    show: (row: Core) => (value(row) === undefined ? "–" : count(value(row))),
  });
  host.append(element("h3", {}, "Cores"));
  const table = new Table<Core>(host, "Cores", [
    number("core", (row) => row.core),
    number("cycles", (row) => row.cycles, "From the start of the run to this core's end"),
    ...causesOf({} as Core).map(([cause]) => ({
      title: cause,
      hint: `Share of the core's cycles charged to ${cause}`,
      value: (row: Core) => causesOf(row).find(([one]) => one === cause)![1] / Math.max(1, row.cycles ?? 1),
      show: (row: Core) => percent(causesOf(row).find(([one]) => one === cause)![1], Math.max(1, row.cycles ?? 1)),
    })),
    number("waits for cores", (row) => row.core_wait_cycles, "Cycles in which LOAD or STORE waited for another core"),
    number("waits for the bus", (row) => row.bus_wait_cycles, "Cycles in which a burst waited for its turn on the shared bus"),
    number("read B", (row) => row.dram_read_bytes),
    number("written B", (row) => row.dram_write_bytes),
    number("instructions", (row) => row.instructions),
  ], () => undefined);
  table.fill(cores);
  if (run.report.bus_busy_cycles !== undefined)
    host.append(element("p", {}, `The shared bus moved data in ${count(run.report.bus_busy_cycles)} cycles (${percent(run.report.bus_busy_cycles, whole)}).`));
}

function layerTable(host: HTMLElement, state: State): void {
  const number = (title: string, value: (row: Layer) => number | null | undefined, hint = "", bar = false) => ({
    title,
    hint,
    value,
    show: (row: Layer) => count(value(row)),
    bar,
  });
  const share = (title: string, value: (row: Layer) => number | null, hint = "") => ({
    title,
    hint,
    value,
    show: (row: Layer) => (value(row) === null ? "–" : percent(value(row)!)),
  });
  const table = new Table<Layer>(
    host,
    "Layers",
    [
      { title: "#", value: (row) => state.run.layers.indexOf(row) },
      {
        title: "layer",
        value: (row) => state.run.label(state.run.layers.indexOf(row)),
        show: (row) => element("span", { title: state.run.label(state.run.layers.indexOf(row)) }, swatch(state.run.layers.indexOf(row)), fit(state.run.label(state.run.layers.indexOf(row)), 60)),
      },
      { title: "operators", value: (row) => row.op },
      { title: "where", value: (row) => row.placement },
      { title: "exactness", value: (row) => row.exactness },
      number("cycles", (row) => row.cycles, "Cycles of the run that the layer costs", true),
      share("of run", (row) => (row.cycles === null ? null : row.cycles / Math.max(1, state.run.report.cycles ?? 1))),
      share("utilisation", (row) => row.utilization),
      { title: "bound", value: (row) => row.bound ?? null },
      number("predicted", (row) => row.predicted_cycles, "The compiler's replay of the program"),
      share("error", (row) => (row.cycles && row.predicted_cycles !== undefined ? row.predicted_cycles / row.cycles - 1 : null), "Of the prediction"),
      number("roofline", (row) => row.bound_cycles),
      ...causesOf({} as Layer).map(([cause]) =>
        share(cause, (row) => (row.cycles ? (causesOf(row).find(([one]) => one === cause)?.[1] ?? 0) / row.cycles : null), `Share of the layer's cycles charged to ${cause}`),
      ),
      ...STREAMS.map((stream) => number(`${stream} B`, (row) => row.bytes?.[stream], `Bytes of DRAM for ${stream}`)),
      number("MACs", (row) => row.macs),
      number("instructions", (row) => row.instructions),
    ],
    (row) => state.select({ layer: state.run.layers.indexOf(row) }),
  );
  const fill = (): void => table.fill(state.run.layers);
  const mark = (): void => table.mark(state.run.layers[state.selection.layer] ?? null);
  fill();
  state.listen((what) => {
    if (what === "run") fill();
    if (what !== "view") mark();
  });
}

function provenance(host: HTMLElement, run: Run): void {
  const list = element("dl", { class: "sources" });
  for (const key of Object.keys(run.report.provenance)) list.append(element("dt", {}, key), element("dd", {}, source(run, key)));
  const machine = element("dl", { class: "sources" });
  for (const [key, value] of Object.entries(run.report.machine ?? {})) machine.append(element("dt", {}, key), element("dd", {}, String(value)));
  host.replaceChildren(element("div", { class: "two" }, element("div", {}, element("h3", {}, "Figures"), list), element("div", {}, element("h3", {}, "Machine"), machine)));
}

/// Makes a view when it comes near the screen.
function lazily(host: HTMLElement, make: () => void): void {
  const observer = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      make();
    },
    { rootMargin: "600px" },
  );
  observer.observe(host);
}

function themeButton(): HTMLElement {
  const dark = (): boolean =>
    (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = element("button", { id: "theme", type: "button", "aria-pressed": dark() }, "Dark");
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    button.setAttribute("aria-pressed", String(dark()));
  });
  return button;
}

/// The views of runs, joined by one state.
function showRuns(data: PageData, main: Element, tooltip: Tooltip): void {
  const state = new State(data.runs.map(({ name, report }) => new Run(name, report)));
  const tools = document.querySelector("#tools")!;
  if (state.runs.length > 1) {
    const choice = element("select", { "aria-label": "Run that the views show" });
    state.runs.forEach((run, r) => choice.append(element("option", { value: r }, run.name)));
    choice.addEventListener("change", () => state.activate(Number(choice.value)));
    state.listen((what) => what === "run" && (choice.value = String(state.active)));
    tools.append(choice);
  }
  document.querySelector("#theme")!.addEventListener("click", () => state.tell("theme"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => state.tell("theme"));

  const sums = section("sums", "Sums");
  const sumsBody = element("div");
  const coresBody = element("div");
  sums.append(sumsBody, coresBody);
  main.append(sums);
  if (state.runs.length > 1) {
    const compare = section("compare", "Compare");
    new Compare(compare, state);
    main.append(compare);
  }
  const [timeline, memory, roofline, graph, layers, sources] = [
    section("timeline", "Timeline"),
    section("memory", "Memory"),
    section("roofline", "Roofline"),
    section("graph", "Graph"),
    section("layers", "Layers"),
    section("sources", "Where the figures come from"),
  ];
  const sourcesBody = element("div");
  sources.append(sourcesBody);
  main.append(timeline, memory, roofline, graph, layers, sources);

  const render = (): void => {
    drawHeader(state);
    drawSums(sumsBody, state.run);
    drawCores(coresBody, state.run);
    provenance(sourcesBody, state.run);
  };
  render();
  state.listen((what) => what === "run" && render());
  new Details(document.querySelector("#aside")!, state);
  new Timeline(timeline, state, tooltip);
  lazily(memory, () => new MemoryView(memory, state, tooltip));
  lazily(roofline, () => new Roofline(roofline, state, tooltip));
  lazily(graph, () => new GraphView(graph, state, tooltip));
  lazily(layers, () => layerTable(layers, state));
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") state.select({});
  });
}

function start(): void {
  const data = JSON.parse(document.querySelector("#data")!.textContent!) as PageData;
  const tooltip = new Tooltip();
  const main = document.querySelector("main")!;
  document.querySelector("#tools")!.append(themeButton());
  if (data.runs.length > 0) showRuns(data, main, tooltip);
  if (data.explore) {
    const explore = section("explore", "Machines");
    main.append(explore);
    new Explore(explore, data.explore, tooltip);
  }
  if (data.runs.length === 0) {
    document.querySelector("#model")!.textContent = "Machines";
    document.querySelector("#aside")!.remove();
    document.querySelector(".page")!.classList.add("wide");
  }
  // Behind the first frame: the page can be seen and used.
  requestAnimationFrame(() => requestAnimationFrame(() => {
    document.documentElement.dataset.milliseconds = String(Math.round(performance.now()));
    document.documentElement.dataset.ready = "yes";
  }));
}

start();
