import assert from "node:assert/strict";
import { test } from "node:test";

import { EventTextParser } from "../../src/service/event_text";

const STREAM =
  'event: status\ndata: {"a":1}\n\n: the service does not answer\n\nevent: lost\ndata: {"events":7}\n\n';

test("events are whole, however the text is cut", () => {
  for (let size = 1; size <= STREAM.length; size += 1) {
    const parser = new EventTextParser();
    const events = [];
    for (let at = 0; at < STREAM.length; at += size) events.push(...parser.push(STREAM.slice(at, at + size)));
    assert.deepEqual(
      events,
      [
        { event: "status", data: '{"a":1}' },
        { event: "comment", data: "the service does not answer" },
        { event: "lost", data: '{"events":7}' },
      ],
      `pieces of ${size}`,
    );
  }
});

test("an event that has not ended is not told", () => {
  assert.deepEqual(new EventTextParser().push("event: status\ndata: {"), []);
});
