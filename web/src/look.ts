// SPDX-License-Identifier: Apache-2.0
// Colours, numbers and small pieces of the page. Layers have Paul Tol's "light" colours and causes those of Okabe and
// Ito; both are made for the colour-blind. Layers' colours stand in the order that puts the most different ones beside
// each other. No view tells anything by colour alone.
import { Cause, Stream } from "./report";

const LAYERS = ["#77aadd", "#ee8866", "#99ddff", "#eedd88", "#44bb99", "#bbcc33", "#ffaabb", "#aaaa00"];
export const NO_LAYER = "#c9ced6";
export const CAUSE_COLOURS: Record<Cause, string> = {
  compute: "#009e73",
  alu: "#e69f00",
  load: "#56b4e9",
  store: "#cc79a7",
  sync: "#5b6472",
};
export const STREAM_COLOURS: Record<Stream, string> = {
  input: "#56b4e9",
  weights: "#0072b2",
  params: "#009e73",
  second: "#f0e442",
  output: "#cc79a7",
  instructions: "#5b6472",
};
export const PLACEMENT_COLOURS: Record<string, string> = { npu: "#44bb99", cpu: "#ee8866", compiler: "#c9ced6" };
export const EXACTNESS_COLOURS: Record<string, string> = {
  exact: "#44bb99",
  "exact by proof": "#99ddff",
  tolerance: "#eedd88",
  close: "#ee8866",
};

export function layerColour(layer: number): string {
  return layer < 0 ? NO_LAYER : LAYERS[layer % LAYERS.length];
}

/// From light to dark blue; `share` from 0 to 1.
export function heat(share: number): string {
  const t = Math.sqrt(Math.min(1, Math.max(0, share)));
  const mix = (a: number, b: number): number => Math.round(a + (b - a) * t);
  return `rgb(${mix(232, 86)},${mix(242, 160)},${mix(250, 233)})`;
}

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-US");
}

/// Three digits with k, M or G.
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]] as [string, number][])
    if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(3))} ${unit}`;
  return String(Number(value.toPrecision(3)));
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value >= 1 << 20) return `${Number((value / (1 << 20)).toPrecision(3))} MiB`;
  if (value >= 1 << 10) return `${Number((value / (1 << 10)).toPrecision(3))} KiB`;
  return `${value} B`;
}

export function percent(part: number, whole = 1, digits = 1): string {
  if (whole === 0) return "–";
  const text = ((100 * part) / whole).toFixed(digits);
  return `${Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−")} %`;
}

type Child = Node | string | null | undefined | false;

/// An element with attributes and children; "on..." attributes are listeners.
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number | boolean | ((event: never) => void)> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value as EventListener);
    else if (name.startsWith("aria-")) made.setAttribute(name, String(value));
    else if (value !== false) made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child) made.append(child);
  return made;
}

export function svg(tag: string, attributes: Record<string, string | number> = {}, ...children: Child[]): SVGElement {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  for (const child of children) if (child) made.append(child);
  return made;
}

/// A colour of the style sheet, for canvases.
export function css(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/// Parts of a whole as a bar with a legend in words.
export function parts(values: [string, number, string][], label: string, format: (value: number) => string): HTMLElement {
  const whole = values.reduce((sum, [, value]) => sum + value, 0);
  const bar = element("div", { class: "parts", role: "img", "aria-label": label });
  const legend = element("ul", { class: "legend" });
  for (const [name, value, colour] of values) {
    if (value <= 0) continue;
    const part = element("span", { title: `${name}: ${format(value)}` });
    part.style.width = `${(100 * value) / whole}%`;
    part.style.background = colour;
    bar.append(part);
    const key = element("i");
    key.style.background = colour;
    legend.append(element("li", {}, key, `${name} `, element("b", {}, percent(value, whole, value < 0.095 * whole ? 1 : 0)), ` ${format(value)}`));
  }
  return element("div", {}, bar, legend);
}

/// A canvas that fills its parent at the screen's resolution, and is drawn at most once a frame.
export class Surface {
  readonly canvas: HTMLCanvasElement;
  readonly context: CanvasRenderingContext2D;
  width = 0;
  private wanted = false;

  constructor(
    parent: HTMLElement,
    public height: number,
    label: string,
    private readonly paint: (surface: Surface) => void,
  ) {
    this.canvas = element("canvas", { tabindex: 0, role: "application", "aria-label": label });
    this.context = this.canvas.getContext("2d")!;
    parent.append(this.canvas);
    new ResizeObserver(() => this.draw()).observe(parent);
  }

  draw(): void {
    if (this.wanted) return;
    this.wanted = true;
    requestAnimationFrame(() => {
      this.wanted = false;
      this.now();
    });
  }

  private now(): void {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.parentElement!.clientWidth;
    if (this.width === 0) return;
    const width = Math.round(this.width * ratio);
    const height = Math.round(this.height * ratio);
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.canvas.style.height = `${this.height}px`;
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, this.width, this.height);
    this.context.font = "11px system-ui, sans-serif";
    this.paint(this);
  }
}

/// A note at the pointer.
export class Tooltip {
  private readonly box = element("div", { class: "tooltip", role: "status" });

  constructor() {
    this.box.hidden = true;
    document.body.append(this.box);
  }

  show(x: number, y: number, ...lines: Child[]): void {
    this.box.replaceChildren(...lines.filter((line): line is Node | string => Boolean(line)));
    this.box.hidden = false;
    const { width, height } = this.box.getBoundingClientRect();
    this.box.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
    this.box.style.top = `${Math.max(4, y + 18 + height > innerHeight ? y - height - 12 : y + 18)}px`;
  }

  hide(): void {
    this.box.hidden = true;
  }
}

/// At most so many letters of a text: its begin and, where there is room, its end, which tells layers apart.
export function fit(text: string, most: number): string {
  const letters = [...text];
  return letters.length <= most ? text : cut(letters, Math.max(1, Math.floor(most) - 1));
}

function cut(letters: string[], kept: number): string {
  const behind = kept < 12 ? 0 : kept >> 1;
  return `${letters.slice(0, kept - behind).join("")}…${letters.slice(letters.length - behind).join("")}`;
}

/// As much of a text as fits so many pixels of a canvas in its font.
export function fitted(c: CanvasRenderingContext2D, text: string, room: number): string {
  const short = fit(text, 300);
  if (c.measureText(short).width <= room) return short;
  const letters = [...short];
  let [least, most] = [1, letters.length - 1];
  while (least < most) {
    const middle = (least + most + 1) >> 1;
    if (c.measureText(cut(letters, middle)).width <= room) least = middle;
    else most = middle - 1;
  }
  return cut(letters, least);
}
