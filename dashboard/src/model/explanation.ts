// Explanations in words, as `tidegate explain` writes them.

import type {
  ConsumerExplanation,
  ResourceExplanation,
  ThrottleEpisode,
  ThrottleFigures,
} from "../service/documents";
import { clock, duration, iops, requests } from "./figures";

/** A heading, and rows of a word and what it is about. */
export interface ExplanationWords {
  heading: string;
  rows: [string, string][];
}

export function signalWords({ signal, law, protects }: ResourceExplanation): string {
  const what =
    signal.requests === "protected_reads"
      ? `reads of ${protects.join(", ")}`
      : signal.requests === "reads"
        ? "all reads"
        : "all requests";
  const latency =
    signal.latency_seconds === null
      ? "unknown"
      : signal.overload
        ? `none completes, the oldest waits ${duration(signal.latency_seconds)}`
        : duration(signal.latency_seconds);
  const floor =
    signal.floor_seconds === null
      ? ""
      : `; the storage cannot go below ${duration(signal.floor_seconds)}, whatever is throttled`;
  const name = law.replace("_", "-");
  return (
    `${what}: ${latency}, target ${duration(signal.target_seconds)}, ` +
    `set point ${duration(signal.set_point_seconds)} of the law ${name}${floor}`
  );
}

export function consumerWords(
  resource: ResourceExplanation,
  consumer: ConsumerExplanation,
): ExplanationWords {
  const latency =
    consumer.latency_seconds === null ? "" : `, ${duration(consumer.latency_seconds)} at the storage`;
  const gets = `${iops(consumer.iops)}${latency}`;
  if (consumer.protected) return { heading: "Protected, and never throttled.", rows: [["gets", gets]] };
  const last = consumer.episodes.at(-1);
  if (last === undefined) return { heading: "Not throttled in that time.", rows: [["gets", gets]] };
  if (!consumer.throttled) {
    const away = consumer.present ? "" : " It is away, or not eligible.";
    const rows: [string, string][] = consumer.present ? [["gets", gets]] : [];
    return { heading: `${ENDED[last.effect]} ${clock(last.until)}.${away}`, rows };
  }
  const verb = GOES_ON[last.effect];
  const before =
    last.iops_before === null
      ? "its rate before is not known"
      : `${iops(last.iops_before)} in the ten seconds before`;
  return {
    heading: `${verb} since ${clock(last.from)}, for ${duration(last.throttled_seconds)} in all.`,
    rows: [
      ["by", byWords(resource, consumer.throttle)],
      ["for", forWords(resource)],
      ["gets", `${gets}; ${before}`],
      ["ends", endWords(resource)],
      ["change", changeWords(resource)],
    ],
  };
}

const GOES_ON = {
  throttled: "Throttled",
  dry_run: "On a dry run; would be throttled",
  released: "Released; would be throttled",
} as const;

const ENDED = {
  throttled: "Not throttled since",
  dry_run: "Not throttled; without the dry run it would have been until",
  released: "Not throttled; without the release it would have been until",
} as const;

const DELAYED = {
  queue: "for each request",
  cgroup_limit: "for each request",
  packet_delay: "for each packet to it",
  device_limit: "for each write",
} as const;

const CARRIED_OUT = {
  queue: "",
  packet_delay: ", carried out by delays of packets",
  device_limit: ", carried out by limits of writes to its devices",
  cgroup_limit: ", carried out by limits of cgroups",
} as const;

function byWords({ mechanism, law }: ResourceExplanation, throttle: ThrottleFigures): string {
  const told: string[] = [];
  if (throttle.rate_iops !== null) told.push(`a rate of ${iops(throttle.rate_iops)}`);
  if (throttle.delay_seconds !== null) {
    told.push(`a delay of ${duration(throttle.delay_seconds)} ${DELAYED[mechanism]}`);
  }
  if (throttle.window_requests !== null) {
    told.push(
      `a window of ${requests(throttle.window_requests)} requests for all consumers that are not protected`,
    );
  }
  const words = told.length === 0 ? `the law ${law.replace("_", "-")}` : told.join(", ");
  const saysDelay = mechanism === "packet_delay" && throttle.delay_seconds !== null;
  return saysDelay ? words : words + CARRIED_OUT[mechanism];
}

function forWords({ signal, protects }: ResourceExplanation): string {
  if (signal.requests === "reads") return "all reads, which are promised the target";
  return protects.length === 0
    ? "the latency of all consumers, which is above the set point without it"
    : `${protects.join(", ")}, whose reads are promised the target`;
}

function endWords({ law, signal }: ResourceExplanation): string {
  const setPoint = duration(signal.set_point_seconds);
  switch (law) {
    case "integral":
      return "when its contract and those of the others leave more";
    case "self_tuning":
    case "queueing_model":
      return `when every consumer stays below its goal, here ${setPoint}: the operating point then grows`;
    case "auto":
    case "window":
      return `when the signal stays below ${setPoint}: the window then grows until no request waits`;
    case "pid":
      return `when the signal stays below ${setPoint}: the delay then falls to nothing`;
  }
}

function changeWords({ mechanism, signal }: ResourceExplanation): string {
  const own =
    mechanism === "queue"
      ? "more `shares` for it"
      : mechanism === "cgroup_limit"
        ? "`cgroups` that do not mean it"
        : "its name in `exempt`";
  return `a target above ${duration(signal.target_seconds)}, ${own}, or less load of the others`;
}

const EFFECT = {
  throttled: "",
  dry_run: "not throttled, on a dry run; ",
  released: "not throttled, released; ",
} as const;

export function episodeWords(episode: ThrottleEpisode): string {
  const { strongest } = episode;
  const told: string[] = [];
  if (strongest.window_requests !== null) told.push(`window down to ${requests(strongest.window_requests)}`);
  if (strongest.delay_seconds !== null) told.push(`delay up to ${duration(strongest.delay_seconds)}`);
  if (strongest.rate_iops !== null) told.push(`rate down to ${iops(strongest.rate_iops)}`);
  if (episode.worst_signal_seconds !== null)
    told.push(`signal up to ${duration(episode.worst_signal_seconds)}`);
  told.push(`${iops(episode.iops)} on average`);
  return EFFECT[episode.effect] + told.join(", ");
}
