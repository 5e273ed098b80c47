// The page's frame: sections by the address after #, the token, and the state in the header. Sections are in views/.

import { call, formToken, onRefused, unpart } from "./api.js";
import { badge, button, format, h, notice, put } from "./dom.js";
import { icon } from "./icons.js";
import { isAsking, signIn, signOut } from "./sign_in.js";
import audit from "./views/audit.js";
import clients from "./views/clients.js";
import deadLetters from "./views/dead_letters.js";
import gateways from "./views/gateways.js";
import overview from "./views/overview.js";
import pipeline from "./views/pipeline.js";
import queues from "./views/queues.js";
import retained from "./views/retained.js";
import rules from "./views/rules.js";
import settings from "./views/settings.js";
import testClient from "./views/test_client.js";
import trace from "./views/trace.js";
import tryOut from "./views/try_out.js";
import users from "./views/users.js";

const SECTIONS = [
  ["overview", "Overview", overview],
  ["rules", "Rules", rules],
  ["clients", "Clients", clients],
  ["retained", "Retained", retained],
  ["queues", "Queues", queues],
  ["dead-letters", "Dead letters", deadLetters],
  ["try", "Try out", tryOut],
  ["trace", "Trace", trace],
  ["test-client", "Test client", testClient],
  ["pipeline", "Pipeline", pipeline],
  ["gateways", "Gateways", gateways],
  ["settings", "Settings", settings],
  ["users", "Users", users],
  ["audit", "Audit", audit],
];
const FOR_ADMINISTRATORS = ["users", "audit"];

const main = document.getElementById("main");
const page = {
  me: { role: "viewer", websocket_listeners: [] },
  operator: () => page.me.role !== "viewer",
  administrator: () => page.me.role === "administrator",
  // What a section keeps in the address (`#/clients?search=line`), so that Back and a copied address bring it again.
  kept: (name, otherwise = "") => new URLSearchParams(location.hash.split("?")[1]).get(name) ?? otherwise,
  keep: (name, value) => {
    const [path, query] = (location.hash || "#/overview").split("?");
    const given = new URLSearchParams(query);
    if (value === "" || value === false || value === null || value === undefined) given.delete(name);
    else given.set(name, value === true ? "1" : value);
    history.replaceState(null, "", given.size ? `${path}?${given}` : path);
  },
  // A button for operators; others see it, disabled, with the reason.
  action: (text, run, kind = "") => {
    const element = button(text, () => act(element, run), kind);
    if (!page.operator()) {
      element.disabled = true;
      element.title = "Needs an operator.";
    }
    return element;
  },
};

let leave = () => {};

// Narrow screens have the sections behind a button.
const menu = document.getElementById("menu");
function fold(folded) {
  menu.setAttribute("aria-expanded", String(!folded));
  document.getElementById("navigation").classList.toggle("folded", folded);
}
menu.addEventListener("click", () => fold(menu.getAttribute("aria-expanded") === "true"));

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
  document.querySelectorAll("dialog[open]:not([data-stays])").forEach((each) => each.close());
  document.querySelectorAll(".notice.bad").forEach((each) => each.remove()); // it was about another section
  const [name, ...rest] = location.hash.split("?")[0].replace(/^#\/?/, "").split("/").map(unpart);
  const known = SECTIONS.find(([each]) => each === name);
  const [key, title, view] = known ?? SECTIONS[0];
  if (!known && name) notice(`The page has no section ${name}: this is its first one.`, true);
  for (const each of document.querySelectorAll("nav a")) {
    if (each.dataset.name === key) {
      each.setAttribute("aria-current", "page");
    }
    else each.removeAttribute("aria-current");
  }
  document.title = `${title} – mqgate`;
  menu.textContent = title;
  fold(true);
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
    if (!document.hidden && !isAsking()) { // nobody is signed in meanwhile, and each refusal is in the audit trail
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
  place.textContent = count > 99 ? "99+" : count || "";
  place.title = count ? format.many(count, what) : "";
}

const state = document.getElementById("state");
async function headline() {
  try {
    const now = await call("/overview");
    const wrong = now.problems.length + now.last_reload.findings.length;
    const kind = now.draining || (now.ready && wrong) ? "warn" : now.ready ? "good" : "bad";
    put(state, badge(now.draining ? "draining" : !now.ready ? "not ready" : wrong ? [h("span", { class: "unless-narrow" }, "ready, "), format.many(wrong, "problem")] : "ready", kind));
    mark("dead-letters", now.dead_letters, "dead letter");
    mark("overview", wrong, "problem");
  } catch (error) {
    if (error.status !== 401) put(state, badge("no answer", "bad"));
    throw error;
  }
}

function ask() {
  put(state);
  signIn(start);
}

async function start() {
  try {
    page.me = await call("/me");
  } catch (error) {
    if (error.status === 401) return;
    notice(error.message, true);
  }
  put(document.getElementById("identity"), `${page.me.queue_manager ?? ""} · ${page.me.version ?? ""} · ${page.me.name} (${page.me.role})`);
  formToken.set(page.me.form_token);
  for (const name of FOR_ADMINISTRATORS) document.querySelector(`nav a[data-name="${name}"]`).hidden = !page.administrator();
  const account = document.getElementById("account");
  account.textContent = "Sign out";
  account.onclick = signOut;
  document.querySelector('nav a[data-name="pipeline"]').hidden = !page.me.pipeline;
  show();
}

put(document.getElementById("navigation"), SECTIONS.map(([key, title]) => h("a", { href: `#/${key}`, "data-name": key }, icon(key), h("span", {}, title), h("span", { class: "count" }))));
onRefused(ask);
document.getElementById("account").onclick = ask;
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
