// A small line chart in SVG: colours come from the style sheet, so it follows dark mode; a description for screen readers.

import { format, h } from "./dom.js";

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
    this.drawing = svg("svg", { role: "img", tabindex: 0, preserveAspectRatio: "none", "aria-label": title });
    this.keys = names.map((_, n) => h("span", { class: `key ${KINDS[n]}` }));
    this.when = h("span", { class: "when" });
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, h("b", {}, title, this.when), this.keys), this.drawing);
    this.drawing.addEventListener("keydown", (event) => this.step(event));
    this.drawing.addEventListener("blur", () => this.point(null));
    this.drawing.addEventListener("pointermove", (event) => this.point(event));
    this.drawing.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(() => this.draw()).observe(this.drawing);
  }

  // `step`: seconds between two samples; where there are none for longer the line is broken.
  update(times, columns, span = this.span, step = 5) {
    Object.assign(this, { times, columns, span, gap: step * 3 });
    if (this.at !== null) this.at = Math.min(this.at, times.length - 1);
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

  // Arrow keys move the cursor, as the pointer does.
  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (!by || !this.times.length) return;
    event.preventDefault();
    this.at = Math.max(0, Math.min(this.times.length - 1, (this.at ?? this.times.length - 1) + by));
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
    this.when.textContent = this.at === null ? "" : format.time(this.times[at]);
    this.drawing.setAttribute("aria-label", `${this.title}${this.at === null ? "" : ` at ${format.time(this.times[at])}`}: ${texts.join(", ")}`);
  }

  frame(width, most, y) {
    const parts = [0, most / 2, most].flatMap((value) => {
      const label = svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" });
      label.textContent = this.shown(value).replace("/s", "");
      return [svg("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }), label];
    });
    for (const [text, anchor, where] of [[`${this.span < 3600 ? `${this.span / 60} min` : `${this.span / 3600} h`} ago`, "start", LEFT], ["now", "end", width - RIGHT]]) {
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
        if (this.times[n] - this.times[n - 1] > this.gap) pen = "M";
        drawn += `${pen}${x(this.times[n]).toFixed(1)} ${y(value).toFixed(1)}`;
        pen = "L";
      }
    });
    return drawn;
  }
}

const RANGES = [[600, "10 min"], [3600, "1 h"], [21600, "6 h"], [86400, "24 h"]];

// Charts of one history under a choice of ranges; the range lies in the address. `lines`: charts with the columns they show.
export function charts(page, every, ask, lines) {
  let span = Number(page.kept("range", 600));
  const choices = RANGES.map(([seconds, text]) => h("button", { type: "button", class: "quiet", "aria-pressed": String(seconds === span), onclick: () => choose(seconds) }, text));
  const choose = (seconds) => {
    span = seconds;
    page.keep("range", seconds === 600 ? "" : seconds);
    choices.forEach((each, n) => each.setAttribute("aria-pressed", String(RANGES[n][0] === seconds)));
    load().catch(() => {});
  };
  const load = async () => {
    const wanted = span;
    const past = await ask(wanted);
    if (wanted !== span) return;
    for (const [chart, names, scale] of lines) chart.update(past.time, names.map((name) => (scale ? past[name].map((value) => (value === null ? null : value * scale)) : past[name])), span, past.step_seconds);
  };
  every(5, load);
  return [h("div", { class: "ranges", role: "group", "aria-label": "Range of the charts" }, choices), h("div", { class: "grid" }, lines.map(([chart]) => h("section", { class: "panel" }, chart.element)))];
}
