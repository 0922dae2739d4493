// What figures mean, in words. The words are those of `tidegate status`.

import type { BandPosition, ConsumerStatus, ResourceStatus, ServiceStatus } from "../service/documents";
import { failures, isFailing, kindWords } from "./errors";
import { duration, iops, plural, requests, UNKNOWN } from "./figures";

/** The kinds of state, the worst first: the order of the list of resources. */
export const TONES = ["bad", "unknown", "throttling", "dry", "good", "idle"] as const;
export type Tone = (typeof TONES)[number];

export interface Judgement {
  tone: Tone;
  /** A few words, for a list. */
  short: string;
  /** The sentence that the tone belongs to. */
  long: string;
  /** More sentences, without a tone. Empty: there are none. */
  rest: string;
}

/** A promise counts as kept if at least this part of a span is, as in the service. */
const KEPT = 0.95;

/** Without a decision for so many intervals, and so many seconds, the last one says nothing of now. */
const OLD_INTERVALS = 3;
const OLD_SECONDS = 3;

/** Judges a resource: requests that fail come first, then broken promises, then the state of its law. */
export function judgeResource(resource: ResourceStatus, sees: boolean): Judgement {
  const { tone, short, long } = judgeLaw(resource, sees);
  const failing = failures(resource);
  const { broken } = resource.promises;
  const troubles: string[] = [];
  if (failing !== null) troubles.push(failing.long);
  if (broken > 0) troubles.push(`${plural(broken, "promise")} broken in the last minute.`);
  // The law's own state is never in the colour of a trouble that it does not tell of.
  if (troubles.length === 0) return { tone, short, long, rest: "" };
  const first = failing?.short ?? `${plural(broken, "promise")} broken`;
  return { tone: "bad", short: `${first}; ${short}`, long: troubles.join(" "), rest: long };
}

type LawJudgement = Omit<Judgement, "rest">;

function judgeLaw(resource: ResourceStatus, sees: boolean): LawJudgement {
  const { law, decided } = resource;
  const unknown = (short: string, long: string): LawJudgement => ({ tone: "unknown", short, long });
  if (!sees) return unknown("cannot see", "Unknown: the machine's counters cannot be read.");
  if (!resource.present) return unknown("storage away", "Unknown: its storage is not on this machine.");
  const uncounted = resource.uncounted ?? [];
  if (uncounted.length > 0) return unknown("cannot see", `Unknown: ${uncounted.join("; ")}.`);
  if (law === null) return { tone: "idle", short: "no law", long: "No law: shares and limits only." };
  if (decided === null) return unknown("no decision", "Unknown: nothing has been decided yet.");
  if (decided.age_seconds > Math.max(OLD_INTERVALS * law.interval_seconds, OLD_SECONDS)) {
    const ago = duration(decided.age_seconds);
    const every = duration(law.interval_seconds);
    return unknown(
      "decision is old",
      `Unknown: the last decision was ${ago} ago, instead of every ${every}.`,
    );
  }
  if (resource.throttle_fails) {
    return {
      tone: "bad",
      short: "throttle fails",
      long: "The throttle fails, and nothing is throttled. The log says why.",
    };
  }
  const { held, throttled } = decided;
  if (decided.input === "overload") {
    return { tone: "bad", short: "overload", long: `Overload: nothing completes${throttling(resource)}.` };
  }
  if (law.dry_run) {
    const would = held > 0 ? `would throttle ${held} of ${throttled}` : "would throttle nothing";
    return {
      tone: "dry",
      short: held > 0 ? `dry run, would throttle ${held}` : "dry run",
      long: `Dry run: nothing is throttled. The law ${would}.`,
    };
  }
  if (decided.input === "unknown" || decided.input === "no_time") {
    return unknown(
      "latency unknown",
      `Latency unknown: requests wait, and none completed${throttling(resource)}.`,
    );
  }
  if (decided.input === "idle") {
    return {
      tone: "idle",
      short: held > 0 ? `no requests, ${held} throttled` : "no requests",
      long: `No requests to judge by${throttling(resource)}.`,
    };
  }
  const estimate = decided.estimate_seconds;
  const isAbove = estimate !== null && estimate > law.target_seconds;
  const place = isAbove ? "Latency is above its target" : "Latency is within its target now";
  return {
    tone: held > 0 ? "throttling" : isAbove ? "bad" : "good",
    short: held > 0 ? `${held} of ${throttled} throttled` : isAbove ? "above target" : "within target",
    long: `${place}${held > 0 ? throttling(resource) : "; nothing is throttled"}.`,
  };
}

function throttling({ decided }: ResourceStatus): string {
  if (decided === null || decided.held === 0) return "";
  return `; ${decided.held} of ${decided.throttled} consumers throttled ${throttleWords(decided)}`;
}

function throttleWords(decided: NonNullable<ResourceStatus["decided"]>): string {
  const point = decided.operating_point;
  if (decided.window_requests !== null) return `to a window of ${requests(decided.window_requests)} requests`;
  if (point?.state === "limits") return `to ${iops(point.iops)} together`;
  if (decided.delay_seconds !== null && decided.delay_seconds > 0) {
    return `by delays of up to ${duration(decided.delay_seconds)}`;
  }
  return "to rates";
}

export function bandWords(band: BandPosition): string {
  return "in" in band
    ? `in band ${band.in.band} at ${Math.floor(band.in.part * 100)} %`
    : `beyond the last band by ${band.beyond.by.toFixed(2)}`;
}

export interface ConsumerState {
  tone: Tone | "plain";
  words: string;
}

export function consumerState(one: ConsumerStatus): ConsumerState {
  const troubles: string[] = [];
  if (one.poisoned) troubles.push("flushes fail: written data is lost");
  if (one.errors != null && isFailing(one)) troubles.push(`requests fail: ${kindWords(one.errors)}`);
  if (troubles.length > 0) return { tone: "bad", words: troubles.join("; ") };
  if (one.held === true) return { tone: "throttling", words: "throttled" };
  if (one.waits_for === "limit") return { tone: "throttling", words: "at its limit" };
  if (one.waits_for === "share") return { tone: "plain", words: "waits for its share" };
  if (one.waits_for === "depth") return { tone: "plain", words: "at the pool's depth" };
  if (one.released) return { tone: "dry", words: "released" };
  if (one.protected) return { tone: "plain", words: "protected" };
  return one.held === false ? { tone: "plain", words: "free" } : { tone: "unknown", words: UNKNOWN };
}

/** Returns whether a promise was kept in a span. `null`: not known. */
export function isKept(part: number | null | undefined): boolean | null {
  return part === null || part === undefined ? null : part >= KEPT;
}

/** The latency at the storage, in words that never call silence good. */
export function storageLatency(one: ConsumerStatus): string {
  const lately = one.recent?.response_time_seconds ?? one.measured_seconds;
  if (one.oldest_seconds !== null && (one.recent?.response_time_seconds ?? null) === null) {
    return `none in ${duration(one.oldest_seconds)}`;
  }
  if (lately !== null && lately !== undefined) return duration(lately);
  return one.recent !== null && one.outstanding === 0 ? "idle" : UNKNOWN;
}

/** The limit that a consumer feels now, in words. */
export function limitWords(one: ConsumerStatus): string {
  const words: string[] = [];
  if (one.rate_iops !== null) words.push(iops(one.rate_iops));
  if (one.delay_seconds !== null) words.push(`${duration(one.delay_seconds)} delay`);
  return words.length === 0 ? "–" : words.join(", ");
}

/** The name by which the configuration selects a consumer: its own, or that of a pod, for example. */
export function shownName(one: ConsumerStatus): string {
  return one.selected_as ?? one.name;
}

/** The number of consumers, those that are not told of included. */
export function consumerCount(resource: ResourceStatus): number {
  return resource.consumers.length + resource.consumers_left_out;
}

export interface Totals {
  consumers: number;
  /** Consumers whose requests fail. */
  failing: number;
  held: number;
  broken: number;
  unknown: number;
}

export function totals(status: ServiceStatus): Totals {
  const sum = { consumers: 0, failing: 0, held: 0, broken: 0, unknown: 0 };
  for (const resource of status.resources) {
    sum.consumers += consumerCount(resource);
    sum.failing += resource.consumers.filter(isFailing).length;
    const isCarriedOut = !(resource.law?.dry_run ?? false) && !resource.throttle_fails;
    sum.held += isCarriedOut ? (resource.decided?.held ?? 0) : 0;
    sum.broken += resource.promises.broken;
    sum.unknown += judgeResource(resource, status.sees).tone === "unknown" ? 1 : 0;
  }
  return sum;
}
