// Settings in force with their origin, and the log level.

import { call } from "../api.js";
import { choice, field, h, notice, panel, put, shown, Table } from "../dom.js";

export default function settings(target, _rest, page, every) {
  const level = choice("level", [["debug"], ["info"], ["warning"], ["error"]], "info");
  level.disabled = !page.operator();
  level.addEventListener("change", async () => {
    try {
      await call("/log", { method: "PUT", body: { level: level.value } });
      notice(`Log level is ${level.value} until the next start.`);
    } catch (error) {
      notice(error.message, true);
    }
  });
  const search = h("input", { type: "search", placeholder: "part of a key", oninput: () => table.update(items.filter((each) => each.key.includes(search.value))) });
  let items = [];
  const table = new Table("Secrets are masked.", [
    { title: "Setting", cell: (each) => each.key, mono: true },
    { title: "Value", cell: (each) => shown(each.value), mono: true },
    { title: "From", cell: (each) => each.origin },
    { title: "On reload", cell: (each) => (each.reloadable ? "takes effect" : "needs a restart") },
  ], { key: (each) => each.key, empty: "No setting matches." });
  put(target, h("h1", {}, "Settings"), panel("", h("div", { class: "bar" }, field("Search", search, "grow"), field("Log level", level)), table.element));
  every(30, async () => {
    const [found, log] = await Promise.all([call("/settings"), call("/log")]);
    items = found.items;
    level.value = log.level;
    table.update(items.filter((each) => each.key.includes(search.value)));
  });
}
