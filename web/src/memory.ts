// SPDX-License-Identifier: Apache-2.0
// Who lives where and when: a rectangle for each region, time to the right and addresses upward, over the same stretch
// of time as the timeline.
import { Regions } from "./report";
import { State } from "./state";
import { bytes, count, css, element, fitted, layerColour, percent, Surface, Tooltip } from "./look";

const LEFT = 72;
const HEIGHT = 260;
const AXIS = 20;

interface Memory {
  name: string;
  title: string;
  bytes: number;
  peak_bytes: number;
  peak_at: number;
  regions: Regions;
}

export class MemoryView {
  private readonly surface: Surface;
  private readonly tabs = element("div", { class: "tabs", role: "tablist", "aria-label": "Memories" });
  private readonly note = element("p", { class: "hint" });
  private memories: Memory[] = [];
  private chosen = "arena";
  private hovered = -1;

  constructor(
    host: HTMLElement,
    private readonly state: State,
    private readonly tooltip: Tooltip,
  ) {
    const body = element("div", { class: "chart", role: "tabpanel", "aria-label": "Memory over time" });
    host.append(this.tabs, body, this.note);
    this.surface = new Surface(body, HEIGHT, "Regions of the memory over time; arrow keys pan, plus and minus zoom", () => this.paint());
    this.prepare();
    state.listen((what) => {
      if (what === "run") this.prepare();
      this.surface.draw();
    });
    this.listen();
  }

  private get memory(): Memory | undefined {
    return this.memories.find((memory) => memory.name === this.chosen);
  }

  private prepare(): void {
    const memory = this.state.run.report.memory;
    this.memories = memory
      ? [
          { name: "arena", title: "DRAM arena", ...memory.arena },
          ...memory.scratchpads.map((space) => {
            const core = space.core === undefined ? "" : ` ${space.core}`;
            return { ...space, name: space.name + core, title: space.name.toUpperCase() + core };
          }),
        ]
      : [];
    this.tabs.replaceChildren(
      ...this.memories.map((one) =>
        element(
          "button",
          {
            type: "button",
            role: "tab",
            "data-memory": one.name,
            "aria-selected": one.name === this.chosen,
            tabindex: one.name === this.chosen ? 0 : -1,
            onclick: () => this.choose(one.name),
            onkeydown: (event: KeyboardEvent) => {
              const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
              if (!step) return;
              const at = this.memories.findIndex((other) => other.name === this.chosen);
              this.choose(this.memories[(at + step + this.memories.length) % this.memories.length].name);
              (this.tabs.querySelector("[aria-selected='true']") as HTMLElement).focus();
            },
          },
          one.title,
          element("small", {}, ` ${percent(one.peak_bytes, one.bytes, 0)}`),
        ),
      ),
    );
    const shown = this.memory;
    this.note.textContent = shown
      ? `${shown.title}: ${bytes(shown.bytes)}, at most ${bytes(shown.peak_bytes)} (${percent(shown.peak_bytes, shown.bytes)}) in use at one time, at ${this.state.run.timed ? "cycle" : "step"} ${count(shown.peak_at)} (marked). Time is that of the timeline above.`
      : `${this.state.run.silence} Lives in memory are seen from instructions.`;
  }

  private choose(name: string): void {
    this.chosen = name;
    this.prepare();
    this.surface.draw();
  }

  private paint(): void {
    const { context: c, width } = this.surface;
    const memory = this.memory;
    if (!memory) return;
    const [begin, end] = this.state.view;
    const scale = (width - LEFT - 8) / (end - begin);
    const tall = (HEIGHT - AXIS) / memory.bytes;
    const { regions } = memory;
    const chosen = this.state.selection.layer;
    c.fillStyle = css("--lane");
    c.fillRect(LEFT, 0, width - LEFT - 8, HEIGHT - AXIS);
    c.fillStyle = css("--muted");
    for (let k = 0; k <= 4; ++k) c.fillText(bytes(Math.round((memory.bytes * k) / 4)), 4, HEIGHT - AXIS - (k / 4) * (HEIGHT - AXIS - 10));
    c.save();
    c.beginPath();
    c.rect(LEFT, 0, width - LEFT - 8, HEIGHT);
    c.clip();
    for (let k = 0; k < regions.begin.length; ++k) {
      if (regions.to[k] < begin || regions.from[k] > end) continue;
      const x = LEFT + (regions.from[k] - begin) * scale;
      const wide = Math.max(0.7, (regions.to[k] - regions.from[k]) * scale);
      const y = HEIGHT - AXIS - regions.end[k] * tall;
      const high = Math.max(1, (regions.end[k] - regions.begin[k]) * tall);
      c.globalAlpha = chosen < 0 || regions.layer[k] === chosen ? 0.95 : 0.25;
      c.fillStyle = layerColour(regions.layer[k]);
      c.fillRect(x, y, wide, high);
      if (wide > 3 && high > 3) {
        c.strokeStyle = k === this.hovered ? css("--text") : css("--panel");
        c.lineWidth = k === this.hovered ? 2 : 0.8;
        c.strokeRect(x + 0.5, y + 0.5, wide - 1, high - 1);
      }
      if (wide > 50 && high > 13) {
        c.fillStyle = c.globalAlpha < 0.5 ? css("--text") : "#10151c";
        const from = Math.max(x, LEFT);
        c.fillText(fitted(c, this.state.run.label(regions.layer[k]), Math.min(x + wide, width) - from - 6), from + 4, y + Math.min(high / 2 + 4, 14));
      }
    }
    c.globalAlpha = 1;
    const peak = LEFT + (memory.peak_at - begin) * scale;
    c.strokeStyle = c.fillStyle = css("--accent");
    c.lineWidth = 1.5;
    c.setLineDash([4, 3]);
    c.beginPath();
    c.moveTo(peak, 0);
    c.lineTo(peak, HEIGHT - AXIS);
    c.stroke();
    c.setLineDash([]);
    c.fillText(`peak ${bytes(memory.peak_bytes)}`, Math.min(peak + 4, width - 90), HEIGHT - 6);
    c.restore();
  }

  private hit(event: MouseEvent): number {
    const memory = this.memory;
    if (!memory) return -1;
    const [begin, end] = this.state.view;
    const cycle = begin + ((event.offsetX - LEFT) / (this.surface.width - LEFT - 8)) * (end - begin);
    const slack = ((end - begin) / this.surface.width) * 1.5;
    const address = ((HEIGHT - AXIS - event.offsetY) / (HEIGHT - AXIS)) * memory.bytes;
    const { regions } = memory;
    return regions.begin.findIndex(
      (low, k) => low <= address && address < regions.end[k] && regions.from[k] - slack <= cycle && cycle <= regions.to[k] + slack,
    );
  }

  private listen(): void {
    const canvas = this.surface.canvas;
    canvas.addEventListener("pointermove", (event) => {
      const found = this.hit(event);
      if (found !== this.hovered) {
        this.hovered = found;
        this.surface.draw();
      }
      if (found < 0) return this.tooltip.hide();
      const { regions } = this.memory!;
      this.tooltip.show(
        event.clientX,
        event.clientY,
        element("strong", {}, `written by ${this.state.run.label(regions.layer[found])}`),
        element("div", {}, `bytes ${count(regions.begin[found])} to ${count(regions.end[found])}: ${bytes(regions.end[found] - regions.begin[found])}`),
        element("div", {}, `from ${count(regions.from[found])} to ${count(regions.to[found])}: ${count(regions.to[found] - regions.from[found])} ${this.state.run.unit}`),
      );
    });
    canvas.addEventListener("pointerleave", () => this.tooltip.hide());
    canvas.addEventListener("click", (event) => {
      const found = this.hit(event);
      const { regions } = this.memory ?? {};
      this.state.select({ layer: regions && found >= 0 ? regions.layer[found] : -1, instruction: regions?.instruction?.[found] ?? -1 });
    });
    this.state.keys(canvas);
  }
}
