// SPDX-License-Identifier: Apache-2.0
// Tables that sort by any column and filter by words. Rows stand in the order of the run until a column is chosen.
import { element } from "./look";

export interface Column<Row> {
  title: string;
  hint?: string;
  value: (row: Row) => number | string | null | undefined;
  show?: (row: Row) => string | Node;
  bar?: boolean; // a bar behind the number
}

export class Table<Row> {
  private readonly body = element("tbody");
  private readonly head = element("tr");
  private readonly found = element("span", { class: "hint", role: "status" });
  private sorted = -1;
  private descending = true;
  private filter = "";
  private rows: Row[] = [];
  private chosen: Row | null = null;

  constructor(
    host: HTMLElement,
    label: string,
    private readonly columns: Column<Row>[],
    private readonly choose: (row: Row) => void,
  ) {
    const input = element("input", { type: "search", placeholder: "Filter, e.g. conv dram", "aria-label": `Filter ${label}` });
    input.addEventListener("input", () => {
      this.filter = input.value.toLowerCase();
      this.draw();
    });
    columns.forEach((column, c) => {
      const button = element("button", { type: "button", title: column.hint ?? `Sort by ${column.title}`, onclick: () => this.sort(c) }, column.title);
      this.head.append(element("th", { scope: "col", "aria-sort": "none" }, button));
    });
    const table = element("table", { "aria-label": label }, element("thead", {}, this.head), this.body);
    host.append(element("div", { class: "tools" }, input, this.found), element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table));
  }

  fill(rows: Row[]): void {
    this.rows = rows;
    this.draw();
  }

  mark(row: Row | null): void {
    if (row === this.chosen) return;
    this.chosen = row;
    for (const line of this.body.rows) {
      const mine = this.shown[line.rowIndex - 1] === row;
      line.setAttribute("aria-selected", String(mine));
      const box = line.closest(".scroll");
      if (mine && box && (line.offsetTop < box.scrollTop + 40 || line.offsetTop > box.scrollTop + box.clientHeight - 30))
        box.scrollTop = line.offsetTop - box.clientHeight / 2;
    }
  }

  private shown: Row[] = [];

  private sort(column: number): void {
    if (this.sorted !== column) {
      this.sorted = column;
      this.descending = this.rows.some((row) => typeof this.columns[column].value(row) === "number");
    } else if (this.descending === this.rows.some((row) => typeof this.columns[column].value(row) === "number")) {
      this.descending = !this.descending;
    } else {
      this.sorted = -1;
    }
    this.draw();
  }

  private matches(row: Row): boolean {
    if (!this.filter) return true;
    const text = this.columns.map((column) => String(column.value(row) ?? "")).join(" ").toLowerCase();
    return this.filter.split(/\s+/).every((word) => text.includes(word));
  }

  private draw(): void {
    this.shown = this.rows.filter((row) => this.matches(row));
    if (this.sorted >= 0) {
      const { value } = this.columns[this.sorted];
      const order = (a: Row, b: Row): number => {
        const [x, y] = [value(a), value(b)];
        if (typeof x === "number" && typeof y === "number") return x - y;
        if (typeof x === "number" || typeof y === "number") return typeof x === "number" ? 1 : -1;
        return String(x ?? "").localeCompare(String(y ?? ""));
      };
      this.shown.sort((a, b) => (this.descending ? order(b, a) : order(a, b)));
    }
    [...this.head.cells].forEach((cell, c) =>
      cell.setAttribute("aria-sort", c !== this.sorted ? "none" : this.descending ? "descending" : "ascending"),
    );
    const most = this.columns.map((column) => (column.bar ? Math.max(...this.rows.map((row) => Number(column.value(row) ?? 0)), 1e-9) : 0));
    this.body.replaceChildren(...this.shown.map((row) => this.line(row, most)));
    this.found.textContent = this.filter ? `${this.shown.length} of ${this.rows.length}` : `${this.rows.length} rows`;
  }

  private line(row: Row, most: number[]): HTMLElement {
    const line = element("tr", { tabindex: 0, "aria-selected": row === this.chosen });
    this.columns.forEach((column, c) => {
      const value = column.value(row);
      const shown = column.show?.(row) ?? (value === null || value === undefined ? "–" : String(value));
      const cell = element("td", { class: typeof value === "number" ? "number" : "" }, shown);
      if (column.bar && typeof value === "number") cell.style.setProperty("--share", `${(100 * value) / most[c]}%`), cell.classList.add("bar");
      line.append(cell);
    });
    line.addEventListener("click", () => this.choose(row));
    line.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        this.choose(row);
      } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        const next = event.key === "ArrowDown" ? line.nextElementSibling : line.previousElementSibling;
        (next as HTMLElement | null)?.focus();
      }
    });
    return line;
  }
}
