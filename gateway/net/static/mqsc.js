// MQSC commands through the API: what the page changes about objects is what an administrator would type.

import { call } from "./api.js";

export const quoted = (text) => `'${String(text).replaceAll("'", "''")}'`;

export async function mqsc(text) {
  const report = await call("/mqsc", { method: "POST", body: { text } });
  if (!report.ok) throw new Error(report.lines.filter((line) => line.trim() && !line.includes(text)).join(" ") || "The queue manager refuses.");
  return report.lines;
}
