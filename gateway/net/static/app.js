// The page's frame: sections by the address after #, the token, and the state in the header. Sections are in views/.

import { call, onRefused, token } from "./api.js";
import { badge, button, field, h, notice, open, put } from "./dom.js";
import { icon } from "./icons.js";
import clients from "./views/clients.js";
import deadLetters from "./views/dead_letters.js";
import overview from "./views/overview.js";
import pipeline from "./views/pipeline.js";
import queues from "./views/queues.js";
import rules from "./views/rules.js";
import settings from "./views/settings.js";
import testClient from "./views/test_client.js";
import trace from "./views/trace.js";
import tryOut from "./views/try_out.js";

const SECTIONS = [
  ["overview", "Overview", overview],
  ["rules", "Rules", rules],
  ["clients", "Clients", clients],
  ["queues", "Queues", queues],
  ["dead-letters", "Dead letters", deadLetters],
  ["try", "Try out", tryOut],
  ["trace", "Trace", trace],
  ["test-client", "Test client", testClient],
  ["pipeline", "Pipeline", pipeline],
  ["settings", "Settings", settings],
];

const main = document.getElementById("main");
const page = {
  me: { role: "read_only", websocket_listeners: [] },
  operator: () => page.me.role === "operator",
  // A button for operators; others see it, disabled, with the reason.
  action: (text, run, kind = "") => {
    const element = button(text, () => act(element, run), kind);
    if (!page.operator()) {
      element.disabled = true;
      element.title = "Needs an operator's token.";
    }
    return element;
  },
};

let leave = () => {};

async function act(element, run) {
  element.disabled = true;
  try {
    await run();
  } catch (error) {
    notice(error.message, true);
  } finally {
    element.disabled = false;
  }
}

// A section is a function (target, arguments, page, every): `every(seconds, run)` repeats while the section is shown.
function show() {
  leave();
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const [key, title, view] = SECTIONS.find(([each]) => each === name) ?? SECTIONS[0];
  for (const each of document.querySelectorAll("nav a")) {
    if (each.dataset.name === key) {
      each.setAttribute("aria-current", "page");
      each.scrollIntoView({ inline: "center", block: "nearest" });
    }
    else each.removeAttribute("aria-current");
  }
  document.title = `${title} – mqgate`;
  const stops = [];
  leave = () => stops.splice(0).forEach((stop) => stop());
  const every = (seconds, run) => stops.push(repeat(seconds, run));
  put(main);
  scrollTo(0, 0);
  view(main, rest, page, every, (stop) => stops.push(stop));
}

function repeat(seconds, run) {
  let timer;
  let stopped = false;
  let failed = "";
  const turn = async () => {
    if (!document.hidden) {
      try {
        await run();
        failed = "";
      } catch (error) {
        if (!stopped && error.status !== 401 && failed !== error.message) notice(error.message, true);
        failed = error.message;
      }
    }
    if (!stopped) timer = setTimeout(turn, seconds * 1000);
  };
  turn();
  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}

// How many there are of what wants attention, beside its section.
function mark(section, count, what) {
  const place = document.querySelector(`nav a[data-name="${section}"] .count`);
  place.textContent = count > 999 ? "999+" : count || "";
  place.title = count ? `${count} ${what}` : "";
}

const state = document.getElementById("state");
async function headline() {
  try {
    const now = await call("/overview");
    const kind = now.draining ? "warn" : now.ready ? "good" : "bad";
    put(state, badge(now.draining ? "draining" : now.ready ? "ready" : "not ready", kind));
    mark("dead-letters", now.dead_letters, "dead letters");
    mark("overview", now.problems.length + now.last_reload.findings.length, "problems");
  } catch (error) {
    if (error.status !== 401) put(state, badge("no answer", "bad"));
    throw error;
  }
}

let asking = false;
function signIn() {
  if (asking) return;
  asking = true;
  const input = h("input", { type: "password", autocomplete: "current-password", name: "token", required: true });
  const form = h("form", { method: "dialog" }, h("h2", {}, "Sign in"), h("p", {}, "The token is in the file that admin.token_file names, else in admin.token of the data directory. It is kept in this tab only."), field("Token", input), h("div", { class: "bar" }, h("button", {}, "Sign in")));
  const dialog = h("dialog", { "aria-label": "Sign in" }, form);
  form.addEventListener("submit", () => token.set(input.value.trim()));
  open(dialog, () => {
    asking = false;
    start();
  });
}

async function start() {
  try {
    page.me = await call("/me");
  } catch (error) {
    if (error.status === 401) return;
    notice(error.message, true);
  }
  put(document.getElementById("identity"), `${page.me.queue_manager ?? ""} · ${page.me.version ?? ""} · ${page.me.role === "operator" ? "operator" : "read only"}`);
  const account = document.getElementById("account");
  account.textContent = token.get() ? "Sign out" : "Sign in";
  account.onclick = () => {
    token.set("");
    location.reload();
  };
  if (!token.get()) account.onclick = signIn;
  show();
}

put(document.getElementById("navigation"), SECTIONS.map(([key, title]) => h("a", { href: `#/${key}`, "data-name": key }, icon(key), h("span", {}, title), h("span", { class: "count" }))));
onRefused(signIn);
document.getElementById("account").onclick = signIn;
addEventListener("hashchange", show);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) {
    const search = document.querySelector("main input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
});
await start();
repeat(5, headline);
