// Users of this page, their roles and tokens. For administrators.

import { call, part } from "../api.js";
import { badge, button, choice, confirmed, field, format, h, notice, open, panel, put, Table } from "../dom.js";

const ROLES = [["viewer"], ["operator"], ["administrator"]];
const password = (required) => h("input", { type: "password", autocomplete: "new-password", minlength: 10, required });

export default function users(target, _rest, page, every) {
  const file = h("p", { class: "soft" });
  const change = async (user, body, said) => {
    await call(`/users/${part(user.name)}`, { method: "PUT", body });
    notice(said);
    await load();
  };
  const table = new Table("", [
    { title: "User", cell: (user) => user.name, value: (user) => user.name },
    { title: "Role", cell: (user) => user.role, value: (user) => user.role },
    { title: "State", cell: (user) => badge(user.disabled ? "disabled" : "enabled", user.disabled ? "warn" : "good") },
    { title: "Password", cell: (user) => (user.password ? "yes" : "–") },
    { title: "Tokens", cell: (user) => user.tokens.filter((each) => !each.over).length, number: true },
    { title: "Change", cell: (user) => h("div", { class: "bar" },
      page.action(user.disabled ? "Enable" : "Disable", () => change(user, { disabled: !user.disabled }, `${user.name} is ${user.disabled ? "enabled" : "disabled"}.`), "quiet"),
      button("Edit", () => edit(user, change), "quiet"),
      button("Tokens", () => tokens(user, load), "quiet"),
      page.action("Remove", async () => {
        if (!(await confirmed(`Remove ${user.name}?`, "Sessions and tokens of this user end at once.", "Remove"))) return;
        await call(`/users/${part(user.name)}`, { method: "DELETE" });
        notice(`${user.name} is gone.`);
        await load();
      }, "danger")) },
  ], { key: (user) => JSON.stringify(user), empty: "No users yet: the tokens of the settings are the only way in." });
  const load = async () => {
    const found = await call("/users");
    file.textContent = `Kept in ${found.file}`;
    table.update(found.items);
  };
  put(target, h("h1", {}, "Users"), panel("", h("div", { class: "bar" }, page.action("Add user", () => add(load))), table.element, file));
  every(10, load);
}

function ask(title, fields, action, run) {
  const wrong = h("p", { class: "wrong", role: "alert" });
  const dialog = h("dialog", { "aria-label": title });
  const form = h("form", { method: "dialog" }, h("h2", {}, title), fields, wrong, h("div", { class: "bar" }, button("Cancel", () => dialog.close(), "quiet"), h("button", {}, action)));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await run();
      dialog.close();
    } catch (error) {
      wrong.textContent = error.message;
    }
  });
  dialog.append(form);
  open(dialog);
}

function add(load) {
  const name = h("input", { required: true, maxlength: 64, autocomplete: "off", spellcheck: "false" });
  const role = choice("role", ROLES, "viewer");
  const secret = password(false);
  ask("Add user", [field("Name", name), field("Role", role), field("Password (without it: tokens only)", secret)], "Add", async () => {
    await call("/users", { method: "POST", body: { name: name.value.trim(), role: role.value, ...(secret.value ? { password: secret.value } : {}) } });
    notice(`${name.value.trim()} is ${role.value}.`);
    await load();
  });
}

function edit(user, change) {
  const role = choice("role", ROLES, user.role);
  const secret = password(false);
  ask(`Edit ${user.name}`, [field("Role", role), field("New password (empty: as it is)", secret)], "Save", () => change(user, { role: role.value, ...(secret.value ? { password: secret.value } : {}) }, `${user.name} is ${role.value}; who was signed in so, signs in again.`));
}

function tokens(user, load) {
  const scope = choice("scope", ROLES.slice(0, ROLES.findIndex(([name]) => name === user.role) + 1), "viewer");
  const days = h("input", { type: "number", min: 1, max: 366, value: 90, required: true });
  const note = h("input", { maxlength: 200, placeholder: "what it is for" });
  const made = h("p", { class: "mono" });
  const list = h("ul", {}, user.tokens.map((each) => h("li", {}, h("code", {}, each.id), ` ${each.scope}, ${each.over ? "ended" : "ends"} ${format.time(each.ends)} ${each.note} `, button("End", async (event) => {
    await call(`/users/${part(user.name)}/tokens/${part(each.id)}`, { method: "DELETE" });
    event.target.closest("li").remove();
    await load();
  }, "danger"))));
  const dialog = h("dialog", { "aria-label": `Tokens of ${user.name}` });
  const form = h("form", { method: "dialog" }, h("h2", {}, `Tokens of ${user.name}`), list, field("May do what is for", scope), field("Days until it ends", days), field("Note", note), made, h("div", { class: "bar" }, button("Close", () => dialog.close(), "quiet"), h("button", {}, "Make a token")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const found = await call(`/users/${part(user.name)}/tokens`, { method: "POST", body: { scope: scope.value, days: Number(days.value), note: note.value } });
      made.textContent = `${found.token} (copy it now: nobody can see it again)`;
      await load();
    } catch (error) {
      made.textContent = error.message;
    }
  });
  dialog.append(form);
  open(dialog);
}
