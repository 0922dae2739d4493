import assert from "node:assert/strict";
import { test } from "node:test";

import { originWords, sourceWords } from "../../src/model/signal";
import type { ReporterStatus, ResourceStatus } from "../../src/service/documents";
import { resource } from "./samples";

const REPORTER: ReporterStatus = {
  host: "db1",
  consumer: null,
  age_seconds: 0.2,
  mean_seconds: 0.04,
  counts: false,
  said: "too old to count",
};

test("the origin of the signal is said where it could be another one", () => {
  const words = (more: Partial<ResourceStatus>): string | null => originWords(resource({}, more));
  assert.equal(words({}), null);
  assert.match(words({ reporters: [REPORTER] }) ?? "", /by what this host measures/);
  assert.match(words({ reporters: [REPORTER], signal_origin: "reports" }) ?? "", /initiators report/);
  assert.match(words({ signal_origin: "source" }) ?? "", /another machine publishes/);
});

test("a source that is silent is not called young, nor an idle one silent", () => {
  const silent = {
    place: "the SNMP agent at 10.0.0.9:161",
    age_seconds: null,
    latency_seconds: null,
    counts: false,
    trouble: "no answer within 2s",
  };
  assert.equal(
    sourceWords(silent),
    "the SNMP agent at 10.0.0.9:161: no answer yet; too old, so nothing is throttled; " +
      "the last question failed: no answer within 2s",
  );
  assert.equal(
    sourceWords({ ...silent, age_seconds: 3, counts: true, trouble: null }),
    "the SNMP agent at 10.0.0.9:161: idle, no samples, 3 s ago",
  );
  const young = { ...silent, age_seconds: 1.5, latency_seconds: 0.0125, counts: true, trouble: null };
  assert.equal(sourceWords(young), "the SNMP agent at 10.0.0.9:161: 12.5 ms, 1 s ago");
});
