import assert from "node:assert/strict";
import { test } from "node:test";

import {
  byteRate,
  clock,
  duration,
  inputText,
  inputTime,
  iops,
  percent,
  plural,
} from "../../src/model/figures";

test("a time has three digits and its unit", () => {
  const told = [0, 0.0000123, 0.00512, 0.0128, 0.25, 1.5, 119, 180, 7_200, 259_200].map(duration);
  assert.deepEqual(told, [
    "0 s",
    "12.3 µs",
    "5.12 ms",
    "12.8 ms",
    "250 ms",
    "1.50 s",
    "119 s",
    "3 min",
    "2.00 h",
    "3.00 days",
  ]);
});

test("what is not known is not zero", () => {
  assert.deepEqual(
    [duration(null), duration(NaN), iops(null), byteRate(undefined)],
    Array(4).fill("unknown"),
  );
  assert.equal(percent(null), "?");
});

test("nearly all of a span is not all", () => {
  assert.deepEqual(
    [percent(1), percent(0.9999), percent(0.95), percent(0)],
    ["100 %", "99 %", "95 %", "0 %"],
  );
});

test("rates have their units", () => {
  assert.deepEqual([iops(0), iops(3.14), iops(1234.5)], ["0 IO/s", "3.1 IO/s", "1,235 IO/s"]);
  assert.deepEqual([byteRate(0), byteRate(999), byteRate(2_621_440)], ["0 B/s", "999 B/s", "2.50 MiB/s"]);
  assert.deepEqual([plural(1, "promise"), plural(1_000, "promise")], ["1 promise", "1,000 promises"]);
});

test("times are in UTC, wherever the browser is", () => {
  process.env["TZ"] = "Asia/Tokyo";
  const time = Date.UTC(2026, 10, 28, 23, 30, 5);
  assert.equal(clock(time, new Date(time + 1_000)), "23:30:05");
  assert.match(clock(time, new Date(time + 3_600_000)), /^28 Nov,? .*23:30:05$/);
  assert.equal(inputText(time), "2026-11-28T23:30:05");
  assert.equal(inputTime("2026-11-28T23:30:05")?.getTime(), time);
  assert.equal(inputTime(""), null);
});
