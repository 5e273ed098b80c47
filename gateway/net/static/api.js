// Calls of the administration API (openapi.json beside this file). A token lives in this tab only.

export class Problem extends Error {
  constructor(status, detail, findings) {
    super(detail);
    this.status = status;
    this.findings = findings ?? [];
  }
}

const KEY = "mqgate.token";
export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

// Where a cookie says who asks, requests that change something repeat this, which no other site's page can know.
let repeated = "";
export const formToken = { set: (value) => (repeated = value ?? "") };

let refused = () => {};
export function onRefused(call) {
  refused = call;
}

function address(path, query) {
  const url = new URL("../api/v1" + path, document.baseURI);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

async function request(path, { method = "GET", query, body, signal, asking = false } = {}) {
  const headers = {};
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (repeated && method !== "GET") headers["X-Form-Token"] = repeated;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(address(path, query), { method, headers, signal, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The gateway does not answer.");
  }
  if (answer.ok) return answer;
  if (answer.status === 401 && !asking) refused();
  const problem = await answer.json().catch(() => ({}));
  throw new Problem(answer.status, problem.detail ?? problem.title ?? `${answer.status} ${answer.statusText}`, problem.findings);
}

export async function call(path, options) {
  const answer = await request(path, options);
  const type = answer.headers.get("Content-Type") ?? "";
  return type.includes("json") ? answer.json() : null;
}

// Server-sent events through fetch, because EventSource cannot send the token. `begun`: the gateway sends from now on.
export async function events(path, query, signal, arrived, begun = () => {}) {
  const answer = await request(path, { query, signal });
  begun();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (kept + value.replaceAll("\r\n", "\n")).split("\n\n");
    kept = blocks.pop();
    for (const block of blocks) deliver(block, arrived);
  }
}

function deliver(block, arrived) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  if (data.length) arrived(name, JSON.parse(data.join("\n")));
}

// A name as one part of a path. `.` and `..` are a folder to browsers and proxies, however they are encoded: they have a
// `;` before them, which no encoded name has.
export const part = (name) => (name === "." || name === ".." ? `;${name}` : encodeURIComponent(name));

// What `part` made, as the address has it; what has been typed by hand may be no such thing.
export function unpart(text) {
  if (text === ";." || text === ";..") return text.slice(1);
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
