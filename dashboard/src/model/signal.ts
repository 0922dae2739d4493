// Where the latency comes from that the law steers by, in words.

import type { ResourceStatus, SourceStatus } from "../service/documents";
import { age, duration } from "./figures";

/** One sentence. `null`: the service measures by itself, and nothing else is configured. */
export function originWords(resource: ResourceStatus): string | null {
  switch (resource.signal_origin) {
    case "reports":
      return "The law steers by what initiators report. It is longer than what this host measures.";
    case "source":
      return "The law steers by a latency that another machine publishes.";
    case "measured":
      return resource.reporters.length === 0
        ? null
        : "The law steers by what this host measures. No report that counts is longer.";
    case null:
      return resource.source === null ? null : "Nothing was decided by the published latency yet.";
  }
}

export function sourceWords(source: SourceStatus): string {
  // An idle array answers, and has no latency.
  const latency = source.latency_seconds === null ? "idle, no samples" : duration(source.latency_seconds);
  const latest = source.age_seconds === null ? "no answer yet" : `${latency}, ${age(source.age_seconds)} ago`;
  const old = source.counts ? "" : "; too old, so nothing is throttled";
  const trouble = source.trouble === null ? "" : `; the last question failed: ${source.trouble}`;
  return `${source.place}: ${latest}${old}${trouble}`;
}
