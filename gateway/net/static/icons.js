// One small drawing for each section, in the colour of the text beside it.

const SPACE = "http://www.w3.org/2000/svg";
const DRAWN = {
  overview: "M3 13h4l2-7 4 12 2-5h6",
  rules: "M4 6h9M4 12h16M4 18h9M17 3l3 3-3 3M17 15l3 3-3 3",
  clients: "M9 3h6v4H9zM4 15h6v5H4zM14 15h6v5h-6zM12 7v4M7 15v-2h10v2",
  retained: "M12 3v6M12 9l-7 5M12 9l7 5M5 14v6M12 9v11M19 14v6",
  queues: "M3 6h4v12H3zM10 6h4v12h-4zM17 6h4v12h-4z",
  "dead-letters": "M4 6h16v12H4zM4 7l8 6 8-6",
  try: "M10 3v6l-5 9a2 2 0 0 0 2 3h10a2 2 0 0 0 2-3l-5-9V3M8 3h8M7.5 15h9",
  trace: "M10.5 4a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zM15.5 15.5L21 21",
  "test-client": "M8 4h8v16H8zM11 17h2",
  pipeline: "M4 5h16l-6 7v7l-4-2v-5z",
  gateways: "M12 3v5M12 8l-7 5M12 8l7 5M2 13h6v7H2zM16 13h6v7h-6zM9 13h6v7H9zM12 8v5",
  audit: "M6 3h9l4 4v14H6zM9 11h7M9 15h7",
  users: "M12 4a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM4 21c0-4 3-7 8-7s8 3 8 7",
  settings: "M4 7h8M18 7h2M4 17h2M12 17h8M15 4v6M9 14v6",
};

export function icon(name) {
  const drawing = document.createElementNS(SPACE, "svg");
  drawing.setAttribute("viewBox", "0 0 24 24");
  drawing.setAttribute("aria-hidden", "true");
  drawing.setAttribute("class", "icon");
  const path = document.createElementNS(SPACE, "path");
  path.setAttribute("d", DRAWN[name]);
  drawing.append(path);
  return drawing;
}
