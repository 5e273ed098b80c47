// A small line chart in SVG: colours come from the style sheet, so it follows dark mode; a description for screen readers.

import { h } from "./dom.js";

const SPACE = "http://www.w3.org/2000/svg";
const KINDS = ["one", "two", "three"];
const TOP = 8, BOTTOM = 18, LEFT = 46, RIGHT = 6, HEIGHT = 150;

function svg(tag, attributes) {
  const element = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

export function niceMaximum(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].find((step) => step * power >= value) * power;
}

export class Chart {
  constructor(title, names, shown, span = 600) {
    Object.assign(this, { title, names, shown, span, times: [], columns: [], at: null });
    this.drawing = svg("svg", { role: "img", preserveAspectRatio: "none", "aria-label": title });
    this.keys = names.map((_, n) => h("span", { class: `key ${KINDS[n]}` }));
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, h("b", {}, title), this.keys), this.drawing);
    this.drawing.addEventListener("pointermove", (event) => this.point(event));
    this.drawing.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(() => this.draw()).observe(this.drawing);
  }

  update(times, columns) {
    Object.assign(this, { times, columns });
    this.draw();
  }

  point(event) {
    if (!event || !this.times.length) this.at = null;
    else {
      const when = this.from() + ((event.offsetX - LEFT) / (this.width() - LEFT - RIGHT)) * this.span;
      this.at = this.times.reduce((best, time, n) => (Math.abs(time - when) < Math.abs(this.times[best] - when) ? n : best), 0);
    }
    this.draw();
  }

  width() {
    return this.drawing.clientWidth || 600;
  }

  from() {
    return (this.times.at(-1) ?? Date.now() / 1000) - this.span;
  }

  draw() {
    const width = this.width();
    const from = this.from();
    const values = this.columns.flat().filter((value) => value !== null);
    const most = niceMaximum(Math.max(0, ...values));
    const x = (time) => LEFT + ((time - from) / this.span) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM);
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.drawing.replaceChildren(...this.frame(width, most, y), ...this.columns.map((column, n) => svg("path", { class: `line ${KINDS[n]}`, d: this.path(column, x, y, from) })));
    const at = this.at ?? this.times.length - 1;
    if (this.at !== null) this.drawing.append(svg("line", { class: "cursor", x1: x(this.times[at]), x2: x(this.times[at]), y1: TOP, y2: HEIGHT - BOTTOM }));
    const texts = this.names.map((name, n) => `${name} ${this.shown(this.columns[n]?.[at] ?? null)}`);
    this.keys.forEach((key, n) => (key.textContent = texts[n]));
    this.drawing.setAttribute("aria-label", `${this.title}: ${texts.join(", ")}`);
  }

  frame(width, most, y) {
    const parts = [0, most / 2, most].flatMap((value) => {
      const label = svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" });
      label.textContent = this.shown(value).replace("/s", "");
      return [svg("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }), label];
    });
    for (const [text, anchor, where] of [[`${this.span / 60} min ago`, "start", LEFT], ["now", "end", width - RIGHT]]) {
      const label = svg("text", { x: where, y: HEIGHT - 4, "text-anchor": anchor });
      label.textContent = text;
      parts.push(label);
    }
    return parts;
  }

  path(column, x, y, from) {
    let pen = "M";
    let drawn = "";
    column.forEach((value, n) => {
      if (value === null || this.times[n] < from) pen = "M";
      else {
        drawn += `${pen}${x(this.times[n]).toFixed(1)} ${y(value).toFixed(1)}`;
        pen = "L";
      }
    });
    return drawn;
  }
}
