// The mapping edited: checked as one types, tried on what is being published, put into force, taken back.

import { call, events } from "../api.js";
import { badge, button, choice, confirmed, download, field, format, h, link, marked, notice, panel, put, Table } from "../dom.js";
import { reading } from "./definitions.js";

const LISTENED_SECONDS = 10;
const MAX_TRIED = 40;

export default function mapping(target, page, onLeave) {
  const text = h("textarea", { "aria-label": "Mapping (YAML)", class: "code", rows: 24, spellcheck: "false", disabled: !page.administrator(), oninput: () => typed() });
  const file = h("span");
  const what = h("input", { maxlength: 200, placeholder: "why, for the history" });
  const said = h("div", { role: "status", "aria-live": "polite" });
  const trial = h("div", { role: "status", "aria-live": "polite" });
  let files = [];
  let at = 0;
  const changed = () => files[at] && text.value !== files[at].text;
  const show = (findings) => {
    apply.disabled = findings.length > 0 || !changed() || !page.administrator();
    put(said, findings.length ? h("ul", { class: "found" }, findings.map((each) => h("li", {}, button(`line ${each.line}`, () => goTo(each.line), "link"), " ", marked(each.what), each.fix && [": ", marked(each.fix)])))
      : h("p", {}, badge(changed() ? "can be put into force" : "as in force", changed() ? "good" : "")));
  };
  const goTo = (line) => {
    const lines = text.value.split("\n");
    const from = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    text.focus();
    text.setSelectionRange(from, from + (lines[line - 1]?.length ?? 0));
    text.scrollTop = (line - 4) * (text.scrollHeight / lines.length);
  };
  let typing;
  let asked = 0;
  const typed = () => {
    clearTimeout(typing);
    apply.disabled = true;
    typing = setTimeout(async () => {
      const mine = (asked += 1);
      try {
        const found = await call("/mapping/check", { method: "POST", body: { file: files[at].file, text: text.value } });
        if (mine === asked) show(found.findings);
      } catch (error) {
        notice(error.message, true);
      }
    }, 300);
  };
  const apply = page.action("Put into force", async () => {
    await call("/mapping", { method: "PUT", body: { file: files[at].file, text: text.value, what: what.value } });
    notice("The mapping is in force.");
    what.value = "";
    await load();
  });
  const take = button("Download", () => download(files[at].file.split("/").pop(), text.value), "quiet");
  const bring = page.administrator() ? reading("Read a file in its place", ".yaml,.yml,text/plain", (read) => {
    text.value = read;
    typed();
  }) : null;
  let listening = null;
  const halt = () => listening?.abort();
  onLeave(halt);
  const live = page.action("Try on live traffic", async () => {
    const seen = new Map();
    listening = new AbortController();
    const stop = setTimeout(halt, LISTENED_SECONDS * 1000);
    put(trial, h("p", {}, `Listening for ${LISTENED_SECONDS} seconds …`));
    try {
      await events("/trace", { topic: "#", seconds: LISTENED_SECONDS }, listening.signal, (name, data) => {
        if (name === "trace" && data.direction === "in" && data.topic && seen.size < MAX_TRIED) seen.set(`${data.topic} ${data.client_id} ${data.qos}`, data);
      });
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    } finally {
      clearTimeout(stop);
    }
    const rows = [];
    for (const each of seen.values()) {
      const asking = { topic: each.topic, client_id: each.client_id, qos: each.qos ?? 0 };
      const [now, then] = await Promise.all([call("/explain", { method: "POST", body: asking }), call("/explain", { method: "POST", body: { ...asking, mapping: text.value, file: files[at].file } })]);
      if (then.findings.length) return show(then.findings);
      const ends = (answer) => answer.puts.map((one) => `${one.rule}: ${one.error || one.queue || "topic"}`).join(", ") || "no queue";
      rows.push({ topic: each.topic, client: each.client_id, now: ends(now), then: ends(then) });
    }
    const table = new Table("Without their payloads: conditions and checks of payloads are not tried.", [
      { title: "Topic", cell: (row) => row.topic, mono: true }, { title: "Client", cell: (row) => row.client },
      { title: "Now", cell: (row) => row.now }, { title: "Then", cell: (row) => (row.then === row.now ? "the same" : row.then) },
    ], { key: (row) => `${row.topic} ${row.client}`, empty: "Nothing was published meanwhile." });
    table.update(rows);
    put(trial, h("p", {}, `${format.many(rows.filter((row) => row.now !== row.then).length, "topic")} of ${rows.length} would go elsewhere.`), table.element);
    return undefined;
  }, "quiet");
  const past = new Table("The last twenty; taking one back is a change too.", [
    { title: "When", cell: (each) => format.time(each.time), short: true }, { title: "Who", cell: (each) => each.who },
    { title: "File", cell: (each) => each.file.split("/").pop() }, { title: "What", cell: (each) => each.what || "–" },
    { title: "Undo", node: (each) => page.action("Take back", async () => {
      if (!(await confirmed("Take this change back?", "The file gets the text that it had before, and that is put into force.", "Take back"))) return;
      await call("/mapping/undo", { method: "POST", body: { number: each.number } });
      notice("The change is taken back.");
      await load();
    }, "quiet") },
  ], { key: (each) => String(each.number), empty: "Nothing has been changed here." });
  const load = async () => {
    const found = await call("/mapping");
    files = found.files;
    past.update(found.history);
    if (!files.length) return put(body, h("p", {}, "The built-in mapping is in force: there is no file to edit. `mappings` in the settings names files; `mqgate init` writes an example."));
    const select = choice("file", files.map((each, n) => [n, each.file]), at);
    select.addEventListener("change", () => choose(Number(select.value)));
    put(file, field("File", select));
    choose(Math.min(at, files.length - 1));
    return undefined;
  };
  const choose = (number) => {
    at = number;
    text.value = files[at].text;
    show([]);
    put(trial);
  };
  const body = h("div", {}, file, text, said, h("div", { class: "bar" }, field("What for", what, "grow"), live, apply), h("div", { class: "bar" }, take, bring), trial);
  put(target, h("h1", {}, link("Rules", "#/rules"), " / edit"), panel("", body), panel("Changes", past.element));
  load().catch((error) => notice(error.message, true));
}
