// How far the data pipeline is behind the queues.

import { call } from "../api.js";
import { badge, format, h, panel, put, Table } from "../dom.js";

export default function pipeline(target, _rest, _page, every) {
  const queues = new Table("", [
    { title: "Queue", cell: (each) => each.queue, mono: true },
    { title: "Waiting", cell: (each) => format.count(each.lag_messages), value: (each) => each.lag_messages, number: true },
    { title: "Oldest", cell: (each) => format.seconds(each.oldest_seconds), value: (each) => each.oldest_seconds ?? 0, number: true },
    { title: "Landed", cell: (each) => format.count(each.committed_messages), value: (each) => each.committed_messages, number: true },
    { title: "Last commit", cell: (each) => format.ago(each.last_commit), value: (each) => each.last_commit ?? 0, number: true },
    { title: "Job", cell: (each) => each.job ?? "–" },
  ], { key: (each) => each.queue, empty: "No pipeline reads a queue of this gateway. `mqgate pipeline run` starts one." });
  const jobs = new Table("", [
    { title: "Job", cell: (each) => each.name },
    { title: "State", cell: (each) => badge(each.state, { running: "good", failed: "bad" }[each.state] ?? ""), value: (each) => each.state },
    { title: "Lag", cell: (each) => format.count(each.lag_messages), value: (each) => each.lag_messages, number: true },
    { title: "Rows a second", cell: (each) => format.count(each.rows_per_second), value: (each) => each.rows_per_second ?? 0, number: true },
    { title: "Last commit", cell: (each) => format.ago(each.last_commit), value: (each) => each.last_commit ?? 0, number: true },
    { title: "Files", cell: (each) => format.count(each.parts), value: (each) => each.parts ?? 0, number: true },
    { title: "Next compaction", cell: (each) => each.next_compaction ?? "–" },
    { title: "Says", cell: (each) => each.detail },
  ], { key: (each) => each.group, empty: "No jobs are known." });
  put(target, h("h1", {}, "Pipeline"), panel("Queues", queues.element), panel("Jobs", jobs.element));
  every(5, async () => {
    const now = await call("/pipeline");
    queues.update(now.queues);
    jobs.update(now.jobs);
  });
}
