// Elements, tables that keep their rows, dialogs and formats. No framework, nothing inline (the policy forbids it).

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const panel = (title, ...children) => h("section", { class: "panel" }, title && h("h2", {}, title), ...children);
export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);
export const button = (text, onclick, kind = "", more = {}) => h("button", { type: "button", class: kind, onclick, ...more }, text);
export const two = (first, second) => h("span", { class: "stack" }, first, second && h("small", {}, second));
export const link = (text, href) => h("a", { href }, text);

// The rules of a queue, each a way to its page.
export const ruleLinks = (rules) => rules.flatMap((name, at) => [at ? ", " : "", link(name, `#/rules/${encodeURIComponent(name)}`)]);

export function put(target, ...children) {
  target.replaceChildren(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
}

export function field(title, control, kind = "") {
  return h("label", { class: kind }, title, control);
}

export function check(title, name, checked = false) {
  return h("label", { class: "check" }, h("input", { type: "checkbox", name, checked }), title);
}

export function choice(name, options, chosen) {
  return h("select", { name }, options.map(([value, text]) => h("option", { value, selected: String(value) === String(chosen) }, text ?? value)));
}

// Text that may break behind a separator, so that long names stay readable; copied it is as it was.
export function breakable(text) {
  const parts = String(text).split(/(?<=[/._,@=-])(?=[^/._,@=-])/).flatMap((part) => (part.length > 30 ? part.match(/.{1,16}/gs) : [part]));
  return parts.flatMap((part, at) => (at ? [h("wbr"), part] : [part]));
}

// A name that others choose, of a device or a topic, may have 65,535 bytes, on which browsers spend minutes, and any direction.
const SHOWN = 300;
export const brief = (text) => (text.length > SHOWN ? `${text.slice(0, SHOWN).replace(/[\ud800-\udbff]$/, "")}… (${format.count(text.length)} characters)` : text);
export const named = (text) => h("bdi", { class: "name", title: text }, breakable(brief(text)));

export function pairs(object, kind = "") {
  const rows = Object.entries(object).filter(([, value]) => value !== undefined);
  if (kind === "facts") return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value instanceof Node ? value : shown(value)))));
  const inner = (value) => (value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Node) && Object.keys(value).length ? pairs(value) : value);
  return h("dl", { class: "pairs" }, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, inner(value) instanceof Node ? inner(value) : shown(value))]));
}

export function shown(value) {
  if (value === null || value === "") return "–";
  if (value === true) return "yes";
  if (value === false) return "no";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

// A table whose rows stay the same elements while their values change, so that focus and position are kept.
export class Table {
  // columns: {title, value(row), cell(row) -> text | node, number, mono, short, wide}; a node cell is built once for a row
  constructor(caption, columns, { key, empty = "Nothing here.", sort = null, descending = false } = {}) {
    Object.assign(this, { columns, key, sort, descending, rows: new Map(), items: [], known: false });
    this.body = h("tbody");
    this.none = h("tr", {}, h("td", { class: "none", colspan: columns.length }, marked(empty)));
    this.heads = columns.map((column, at) => h("th", { scope: "col", class: column.number ? "number" : "" }, button(column.title, () => this.sortBy(at))));
    this.element = h("div", { class: "scroll" }, h("table", { class: "cards" }, caption && h("caption", {}, caption), h("thead", {}, h("tr", {}, this.heads)), this.body));
    this.mark();
  }

  sortBy(at) {
    this.descending = this.sort === at ? !this.descending : Boolean(this.columns[at].number);
    this.sort = at;
    this.mark();
    if (this.known) this.update(this.items); // before the first answer nothing is not none
  }

  mark() {
    this.heads.forEach((head, at) => {
      if (at === this.sort) head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  update(items) {
    this.items = items;
    this.known = true;
    const sorted = this.sort === null ? items : [...items].sort((a, b) => this.compare(a, b));
    const wanted = sorted.map((item) => this.row(item));
    const keep = new Set(wanted);
    for (const [key, row] of this.rows) {
      if (!keep.has(row)) {
        row.remove();
        this.rows.delete(key);
      }
    }
    if (wanted.length) this.none.remove();
    else this.body.append(this.none);
    wanted.forEach((row, at) => {
      if (this.body.children[at] !== row) this.body.insertBefore(row, this.body.children[at] ?? null);
    });
  }

  compare(a, b) {
    const value = this.columns[this.sort].value ?? this.columns[this.sort].cell;
    const [one, two] = [value(a) ?? "", value(b) ?? ""];
    const order = typeof one === "number" && typeof two === "number" ? one - two : String(one).localeCompare(String(two), undefined, { numeric: true });
    return this.descending ? -order : order;
  }

  row(item) {
    const key = this.key(item);
    let row = this.rows.get(key);
    if (!row) {
      const cells = this.columns.map((column) => h("td", { class: [column.number && "number", column.mono && "mono", column.short && "short", column.wide && "wide"].filter(Boolean).join(" "), "data-label": column.title }));
      row = h("tr", {}, cells);
      this.rows.set(key, row);
    }
    row.item = item;
    this.columns.forEach((column, at) => {
      const content = column.node && row.cells[at].firstChild ? null : (column.node ?? column.cell)(item, row);
      if (content === null || content === undefined) return;
      if (content instanceof Node) row.cells[at].replaceChildren(content);
      else if (row.cells[at].textContent !== String(content)) row.cells[at].replaceChildren(...(column.mono && !column.short ? breakable(content) : [String(content)]));
      row.cells[at].classList.toggle("nothing", ["–", "0", "0, 0", ""].includes(row.cells[at].textContent) && !row.cells[at].querySelector("input"));
    });
    return row;
  }
}

export function notice(text, bad = false) {
  const element = h("div", { class: bad ? "notice bad" : "notice" }, text);
  const area = document.getElementById("notices");
  area.append(element);
  while (area.children.length > 4) area.firstChild.remove();
  setTimeout(() => element.remove(), bad ? 12000 : 5000);
}

// Asks before something cannot be undone; with `typed` the name must be typed again.
export function confirmed(title, text, action, typed = "") {
  return new Promise((resolve) => {
    const input = typed && h("input", { autocomplete: "off", spellcheck: "false" });
    const go = h("button", { class: "danger", disabled: Boolean(typed) }, action);
    const dialog = h("dialog", { "aria-label": title }, h("form", { method: "dialog", onsubmit: () => resolve(true) }, h("h2", {}, title), h("p", {}, text), input && field(`Type ${typed} to confirm`, input), h("div", { class: "bar" }, button("Cancel", () => dialog.close(), "quiet"), go)));
    if (input) input.addEventListener("input", () => (go.disabled = input.value !== typed));
    open(dialog, () => resolve(false));
  });
}

export function open(dialog, closed = () => {}) {
  dialog.addEventListener("close", () => {
    dialog.remove();
    closed();
  });
  document.body.append(dialog);
  dialog.showModal();
  if (!dialog.querySelector("input")) {
    const title = dialog.querySelector("h2"); // begin at the top, not at the button below a long message
    title.tabIndex = -1;
    title.focus();
    dialog.scrollTop = 0;
  }
}

// Long work in steps, with progress and a way to stop: `step(done)` answers how many more are done, or null at the end.
export async function inSteps(title, total, step) {
  const bar = h("progress", { max: Math.max(1, total), value: 0, "aria-label": title });
  const said = h("p", { role: "status" });
  let stopped = false;
  const dialog = h("dialog", { "aria-label": title }, h("h2", {}, title), bar, said, h("div", { class: "bar" }, button("Stop", () => dialog.close(), "quiet")));
  open(dialog, () => (stopped = true));
  let done = 0;
  try {
    while (!stopped) {
      said.textContent = `${format.count(done)} of ${format.count(total)}`;
      const more = await step(done);
      if (more === null) break;
      done += more;
      bar.value = done;
    }
  } finally {
    if (dialog.open) dialog.close();
  }
  return done;
}

export function download(name, content) {
  const address = URL.createObjectURL(new Blob([content]));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// `names` in a text of ours, set as code.
export const marked = (text) => String(text).split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part));

export function findings(list, title) {
  return h("div", { class: "alert", role: "alert" }, h("b", {}, title), h("ul", {}, list.map((each) => h("li", {}, h("code", {}, each.line ? `${each.file}:${each.line}:${each.column}` : each.file), " ", marked(each.what), each.fix && [": ", marked(each.fix)]))));
}

const stampOf = (date) => new Date(date.getTime() - date.getTimezoneOffset() * 60000).toISOString().replace("T", " ").slice(0, -1);

export const format = {
  count(value) {
    if (value === null || value === undefined) return "–";
    if (Math.abs(value) < 10000) return Number.isInteger(value) || value >= 10 ? Math.round(value).toLocaleString("en") : value.toFixed(1);
    const [scale, unit] = Math.abs(value) < 1e6 ? [1e3, "k"] : Math.abs(value) < 1e9 ? [1e6, "M"] : [1e9, "G"];
    return `${(value / scale).toFixed(value / scale < 100 ? 1 : 0)}\u00a0${unit}`;
  },
  many: (value, one, more = `${one}s`) => `${format.count(value)} ${value === 1 ? one : more}`,
  messages: (value) => format.many(value, "message"),
  rate: (value) => (value === null || value === undefined ? "–" : `${format.count(value)}/s`),
  bytes(value) {
    if (value === null || value === undefined) return "–";
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let at = 0;
    while (value >= 1024 && at < units.length - 1) {
      value /= 1024;
      at += 1;
    }
    return `${at && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
  },
  seconds(value) {
    if (value === null || value === undefined) return "–";
    if (value < 1) return `${value < 0.01 && (value * 1000) % 1 ? (value * 1000).toFixed(1) : Math.round(value * 1000)} ms`;
    if (value < 90) return `${Math.round(value)} s`;
    if (value < 5400) return `${Math.round(value / 60)} min`;
    if (value < 172800) return `${Math.round(value / 3600)} h`;
    return `${Math.round(value / 86400)} d`;
  },
  // Times have one form everywhere, that of the logs, in the reader's time zone: 2026-11-22 19:03:10.
  date: (value) => (value ? stampOf(new Date(value * 1000)).slice(0, 10) : "–"),
  time: (value) => (value ? stampOf(new Date(value * 1000)).slice(0, 19) : "–"),
  clock: (value) => stampOf(new Date(value * 1000)).slice(11),
  stamp: (text) => (text ? stampOf(new Date(text)).slice(0, 19) : "–"),
  zone: () => Intl.DateTimeFormat().resolvedOptions().timeZone,
  ago: (value) => (value ? `${format.seconds(Math.max(0, Date.now() / 1000 - value))} ago` : "–"),
};

// Folders of an MQRFH2 as `folder: {name: value}`, a type that is not text beside its value.
function readable(fields) {
  const { folders, ...others } = fields;
  if (!Array.isArray(folders)) return fields;
  const shownFolder = (elements) => Object.fromEntries((elements ?? []).map((each) => [each.name, each.type && each.type !== "string" ? `${shown(each.value)} (${each.type})` : each.value]));
  return { ...others, ...Object.fromEntries(folders.map((each, at) => [each.folder in others ? `${each.folder} ${at + 1}` : each.folder, each.elements ? shownFolder(each.elements) : each])) };
}

// A decoded message: descriptor, headers in order, properties, body.
export function messageView(message) {
  const body = message.body;
  return h("div", {},
    message.error && h("p", { class: "alert" }, message.error),
    h("h3", {}, "Body"), h("p", { class: "soft" }, `${format.bytes(body.length)}${body.ccsid ? `, CCSID ${body.ccsid}` : ""}${body.truncated ? ", beginning only" : ""}`),
    body.text === null && body.base64 === null ? null : h("pre", {}, body.text ?? hex(body.base64)),
    Object.keys(message.properties ?? {}).length ? [h("h3", {}, "Properties"), pairs(message.properties)] : null,
    (message.headers ?? []).map((header) => [h("h3", {}, `${header.structure} (${header.length} bytes at ${header.offset})`), pairs(readable(header.fields))]),
    h("h3", {}, "Message descriptor"), pairs(message.descriptor));
}

function hex(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.slice(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("")}`);
  }
  return lines.join("\n");
}
