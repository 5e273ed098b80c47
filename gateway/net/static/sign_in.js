// The dialog by which one signs in: as a user, or with a token. The gateway keeps a session behind a cookie that no
// script can read; a token stays in this tab.

import { call, formToken, token } from "./api.js";
import { button, field, h, open } from "./dom.js";

let asking = false;
export const isAsking = () => asking;

export function signIn(done) {
  if (asking) return;
  asking = true;
  const user = h("input", { name: "user", autocomplete: "username", spellcheck: "false", autocapitalize: "none" });
  const password = h("input", { type: "password", autocomplete: "current-password", name: "password", required: true });
  const wrong = h("p", { class: "wrong", role: "alert" });
  const go = h("button", {}, "Sign in");
  const hint = "Without a user it is a token: of a user, or the one in the file that admin.token_file names, else in admin.token of the data directory. A token is kept in this tab only.";
  const others = h("div", { class: "bar" });
  const form = h("form", { method: "dialog" }, h("h2", {}, "Sign in"), field("User", user), field("Password or token", password), wrong, h("p", { class: "soft" }, hint), h("div", { class: "bar" }, go), others);
  const dialog = h("dialog", { "aria-label": "Sign in", "data-stays": true }, form);
  form.addEventListener("submit", async (event) => {
    if (!user.value.trim()) {
      token.set(password.value.trim());
      return;
    }
    event.preventDefault();
    go.disabled = true;
    wrong.textContent = "";
    try {
      const found = await call("/session", { method: "POST", body: { user: user.value.trim(), password: password.value }, asking: true });
      token.set("");
      formToken.set(found.form_token);
      dialog.close();
    } catch (error) {
      wrong.textContent = error.message;
      password.select();
    } finally {
      go.disabled = false;
    }
  });
  call("/sign-in").then((ways) => ways.openid && others.append(h("a", { href: "../api/v1/sign-in/begin", class: "button quiet" }, `Sign in with ${ways.openid}`))).catch(() => {});
  open(dialog, () => {
    asking = false;
    done();
  });
}

export async function signOut() {
  const bySession = !token.get();
  token.set("");
  if (bySession) await call("/session", { method: "DELETE" }).catch(() => {});
  location.reload();
}
