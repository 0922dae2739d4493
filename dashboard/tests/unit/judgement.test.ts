import assert from "node:assert/strict";
import { test } from "node:test";

import { consumerState, isKept, judgeResource, storageLatency } from "../../src/model/judgement";
import { earlierFailures, errorSentences } from "../../src/model/errors";
import type { ConsumerErrors, DecisionStatus, ResourceStatus } from "../../src/service/documents";
import { consumer, resource } from "./samples";

function tone(decided: Partial<DecisionStatus>, more: Partial<ResourceStatus> = {}): string {
  return judgeResource(resource(decided, more), true).tone;
}

test("nothing that is unknown is called good", () => {
  assert.equal(judgeResource(resource({}), false).tone, "unknown");
  assert.equal(tone({}, { present: false }), "unknown");
  assert.equal(tone({}, { decided: null }), "unknown");
  assert.equal(tone({ age_seconds: 30 }), "unknown");
  assert.equal(tone({ input: "unknown", estimate_seconds: null }), "unknown");
  assert.equal(tone({ input: "idle", estimate_seconds: null }), "idle");
  assert.equal(tone({}), "good");
});

test("a broken promise, an overload and a throttle that fails are trouble", () => {
  const promises = { kept: 0, broken: 1, unknown: 0 };
  assert.equal(tone({}, { promises }), "bad");
  assert.equal(tone({ input: "idle" }, { promises }), "bad");
  assert.equal(tone({ input: "overload" }), "bad");
  assert.equal(tone({ held: 1 }, { throttle_fails: true }), "bad");
  assert.equal(tone({ estimate_seconds: 0.03 }), "bad");
});

test("the sentence in the colour of a trouble tells of nothing else", () => {
  const judgement = judgeResource(resource({}, { promises: { kept: 0, broken: 1, unknown: 0 } }), true);
  assert.equal(judgement.long, "1 promise broken in the last minute.");
  assert.equal(judgement.rest, "Latency is within its target now; nothing is throttled.");
  assert.match(judgement.short, /^1 promise broken; /);
});

const NO_SPACE: ConsumerErrors = {
  kinds: [{ kind: "no_space", count: 17_600 }],
  since_seconds: 121,
  last_seconds: 0.4,
  mistakes: 3,
};

test("requests that fail come first, whatever else is well or unknown", () => {
  const consumers = [consumer({ errors: NO_SPACE })];
  for (const sees of [true, false]) {
    const { tone, short, long } = judgeResource(resource({}, { consumers, errors: NO_SPACE }), sees);
    assert.equal(tone, "bad");
    assert.match(short, /^requests of backup fail; /);
    assert.equal(long, "Requests of backup fail: no space left; for 2 min, the last one under 1 s ago.");
  }
  const hidden = judgeResource(resource({}, { errors: NO_SPACE }), true);
  assert.match(hidden.long, /^Requests fail: no space left; /);
  assert.deepEqual(consumerState(consumer({ held: true, errors: NO_SPACE })), {
    tone: "bad",
    words: "requests fail: no space left",
  });
});

test("errors that are over, and mistakes of clients, are told without alarm", () => {
  const over = consumer({ held: false, errors: { ...NO_SPACE, last_seconds: 300 } });
  const old = resource({}, { consumers: [over] });
  assert.equal(judgeResource(old, true).tone, "good");
  assert.equal(earlierFailures(old), "Requests of backup failed earlier, the last one 5 min ago.");
  assert.equal(consumerState(over).words, "free");
  assert.deepEqual(errorSentences(over), [
    "Requests that failed since the start: 17,600 × no space left. The last one was 5 min ago.",
    "3 requests refused as mistakes of the client.",
  ]);
  const mistaken = { kinds: [], since_seconds: null, last_seconds: null, mistakes: 1 };
  const client = resource({}, { consumers: [consumer({ errors: mistaken })] });
  assert.deepEqual([judgeResource(client, true).tone, earlierFailures(client)], ["good", null]);
});

test("throttling is said with its means", () => {
  const said = (decided: Partial<DecisionStatus>): string =>
    judgeResource(resource({ held: 1, ...decided }), true).long;
  assert.match(said({ window_requests: 1.62 }), /1 of 2 consumers throttled to a window of 1\.62 requests/);
  assert.match(said({ delay_seconds: 0.004 }), /by delays of up to 4\.00 ms/);
  assert.match(
    said({ operating_point: { state: "limits", iops: 635, band: null } }),
    /to 635 IO\/s together/,
  );
});

test("a dry run throttles nothing, whatever it decides", () => {
  const law = { kind: "auto", target_seconds: 0.02, interval_seconds: 0.25, dry_run: true } as const;
  const judgement = judgeResource(resource({ held: 2 }, { law }), true);
  assert.equal(judgement.tone, "dry");
  assert.match(judgement.long, /nothing is throttled.*would throttle 2 of 2/);
});

test("a consumer that completes nothing is not called quick", () => {
  const recent = {
    seconds: 2,
    iops: 0,
    response_time_seconds: null,
    client_seconds: null,
    read_bytes_per_second: 0,
    written_bytes_per_second: 0,
  };
  assert.equal(
    storageLatency(consumer({ oldest_seconds: 4, recent, measured_seconds: 0.001 })),
    "none in 4.00 s",
  );
  assert.equal(storageLatency(consumer({ recent, outstanding: 0 })), "idle");
  assert.equal(storageLatency(consumer({})), "unknown");
});

test("states of consumers are those of the status", () => {
  const words = [
    consumer({ held: true }),
    consumer({ waits_for: "limit" }),
    consumer({ waits_for: "share" }),
    consumer({ released: true }),
    consumer({ protected: true }),
    consumer({ held: false }),
    consumer({}),
  ].map((one) => consumerState(one).words);
  assert.deepEqual(words, [
    "throttled",
    "at its limit",
    "waits for its share",
    "released",
    "protected",
    "free",
    "unknown",
  ]);
  assert.equal(consumerState(consumer({ held: true, poisoned: true })).tone, "bad");
});

test("a promise counts as kept from 95 % on", () => {
  assert.deepEqual([isKept(1), isKept(0.95), isKept(0.949), isKept(null)], [true, true, false, null]);
});
