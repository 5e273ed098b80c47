// Definitions taken along: the objects as MQSC, downloaded, and a file of MQSC commands read and carried out.

import { call } from "../api.js";
import { button, confirmed, download, field, format, h, marked, notice, panel, put } from "../dom.js";

// A file that somebody chooses, as text.
export function reading(title, accept, arrived) {
  const input = h("input", { type: "file", accept });
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (file) arrived(await file.text(), file.name);
    input.value = "";
  });
  return field(title, input);
}

export function definitions(page, done) {
  const text = h("textarea", { "aria-label": "MQSC commands", class: "code", rows: 10, spellcheck: "false", oninput: () => (run.disabled = !text.value.trim()) });
  const report = h("div", { role: "status", "aria-live": "polite" });
  const take = button("Download as MQSC", async () => {
    try {
      const found = await call("/definitions");
      download(`${page.me.queue_manager || "mqgate"}.mqsc`, found.mqsc);
      notice(`${format.many(found.objects, "object")} as MQSC commands.`);
    } catch (error) {
      notice(error.message, true);
    }
  }, "quiet");
  const run = page.action("Run commands", async () => {
    if (!(await confirmed("Run these commands?", "They change objects of the queue manager: what has `REPLACE` gets the attributes of the file.", "Run"))) return;
    const found = await call("/mqsc", { method: "POST", body: { text: text.value } });
    put(report, h("pre", {}, [...found.lines, ...found.summary].join("\n")));
    notice(found.ok ? "All commands were carried out." : "Some commands were refused.", !found.ok);
    await done();
  });
  run.disabled = true;
  const arrived = (read) => {
    text.value = read;
    run.disabled = false;
    put(report);
  };
  return panel("", h("details", {}, h("summary", {}, "Export and import definitions"),
    h("p", { class: "soft" }, marked("Queues, topics, subscriptions, namelists and processes, as commands that `DEFINE` them with `REPLACE`."), " Mapping files are taken along where they are edited, in ", h("a", { href: "#/rules/edit%20mapping" }, "Rules"), "."),
    h("div", { class: "bar" }, take),
    page.administrator() ? [reading("Read a file of MQSC commands", ".mqsc,.mqs,.txt,text/plain", arrived), text, h("div", { class: "bar" }, run), report] : null));
}
