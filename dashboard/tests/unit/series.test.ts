import assert from "node:assert/strict";
import { test } from "node:test";

import { historySeries, LiveSeries, REMEMBERED_SECONDS, scaleEnd, spikes } from "../../src/model/series";
import type { HistoryPoint, ResourceHistory } from "../../src/service/documents";
import { consumer, resource } from "./samples";

function history(times: number[], step: number): ResourceHistory {
  const point = (at: number): HistoryPoint => ({
    at_seconds: at,
    judged_seconds: step,
    latency_seconds: 0.01,
    worst_latency_seconds: 0.02,
    target_seconds: 0.02,
    set_point_seconds: 0.018,
    window_requests: null,
    delay_seconds: null,
    rate_iops: null,
    held: 0,
    throttled: 1,
    iops: 5,
    dry_run: false,
  });
  return {
    resource: "array",
    from_seconds: 0,
    to_seconds: 1_000,
    step_seconds: step,
    points: times.map(point),
    consumers: [
      {
        name: "backup",
        protected: false,
        requests: 7,
        iops: times,
        latency_seconds: times,
        throttled: times.map(() => 0.5),
      },
    ],
    consumers_left_out: 0,
    decisions: [],
  };
}

test("seconds without a status are a gap, and not a line", () => {
  const live = new LiveSeries();
  for (const second of [100, 101, 102, 110, 111]) live.push(second, resource({}));
  assert.deepEqual(live.series.times, [100, 101, 102, 103, 110, 111]);
  assert.deepEqual(
    live.series.latency.map((value) => value === null),
    [false, false, false, true, false, false],
  );
});

test("silence is a gap, although the target goes on", () => {
  const live = new LiveSeries();
  live.push(1, resource({ input: "idle", estimate_seconds: null }));
  assert.equal(live.series.latency[0], null);
  assert.equal(live.series.target[0], 0.02);
});

test("what is older than ten minutes is forgotten", () => {
  const live = new LiveSeries();
  for (let second = 0; second < 10_000; second += 1) live.push(second, resource({}));
  const { times, latency } = live.series;
  assert.ok(times.length <= REMEMBERED_SECONDS + 62, `${times.length}`);
  assert.equal(times.length, latency.length);
  assert.equal(times.at(-1), 9_999);
});

test("parts of a history without decisions are gaps", () => {
  const series = historySeries(history([0, 10, 20, 60, 70], 10));
  assert.deepEqual(series.times, [0, 10, 20, 30, 60, 70]);
  assert.equal(series.latency[3], null);
});

test("parts shorter than the control interval are no gaps", () => {
  assert.deepEqual(historySeries(history([0, 1, 3, 4], 0.5)).times, [0, 1, 3, 4]);
});

test("recorded figures come before those that were seen", () => {
  const live = new LiveSeries();
  for (const second of [100, 101]) live.push(second, resource({}));
  live.prepend(history([80, 90, 99.5, 120], 1));
  assert.deepEqual(live.series.times, [80, 81, 90, 91, 100, 101]);
  assert.ok(live.series.times.every((time, at, all) => at === 0 || time > (all[at - 1] ?? 0)));
});

test("consumers have a value or a gap for each time, whenever they came", () => {
  const live = new LiveSeries();
  live.push(100, resource({}));
  live.push(101, resource({}, { consumers: [consumer({ name: "late", held: true })] }));
  live.push(110, resource({}, { consumers: [consumer({ name: "backup", held: false })] }));
  live.prepend(history([80, 90, 120], 1));
  assert.deepEqual(live.series.times, [80, 81, 90, 91, 100, 101, 102, 110]);
  const columns = (name: string) => live.series.consumers.get(name);
  assert.deepEqual(columns("late")?.throttled, [null, null, null, null, null, 1, null, null]);
  assert.deepEqual(columns("backup")?.throttled, [0.5, null, 0.5, null, null, null, null, 0]);
  assert.deepEqual(columns("backup")?.iops.slice(0, 4), [80, null, 90, null]);
});

test("one spike does not hide the target, and a lasting latency is shown whole", () => {
  const quiet = Array.from({ length: 60 }, () => 0.01);
  assert.ok(scaleEnd([[...quiet, 2]], 0.02) < 0.1, "a hundred times the target");
  assert.ok(scaleEnd([[...quiet, ...quiet.map(() => 2)]], 0.02) > 2);
  assert.ok(scaleEnd([[...quiet, 0.05]], 0.02) > 0.05, "a little above all else");
  assert.equal(scaleEnd([[null, null]], 0), 1);
  assert.deepEqual(
    spikes(
      [
        [1, 5, 7, null, 9],
        [1, 6, 2, 3, null],
      ],
      4,
    ),
    [
      { first: 1, last: 2, at: 2, height: 7 },
      { first: 4, last: 4, at: 4, height: 9 },
    ],
  );
});
