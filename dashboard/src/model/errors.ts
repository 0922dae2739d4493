// Requests that failed, in words: recent ones are trouble, earlier ones are a fact.

import type { ConsumerErrors, ConsumerStatus, ErrorCount, ResourceStatus } from "../service/documents";
import { age, plural } from "./figures";

/** Errors go on until a minute has passed without one, as in the service. */
const RECENT_SECONDS = 60;

const KINDS: Record<ErrorCount["kind"], string> = {
  io: "I/O error",
  no_space: "no space left",
  no_memory: "no memory",
  shutting_down: "shutting down",
};

/** Consumers that are named in a sentence. The others are counted. */
const MOST_NAMED = 2;

/** Returns true if a request failed in the last minute. */
export function isFailing({ errors }: ConsumerStatus): boolean {
  return hasFailed(errors) && errors.last_seconds !== null && errors.last_seconds < RECENT_SECONDS;
}

function hasFailed(errors: ConsumerErrors | null | undefined): errors is ConsumerErrors {
  return errors != null && errors.kinds.some(({ count }) => count > 0);
}

/** The kinds of errors, the most frequent first: `no space left, I/O error`. */
export function kindWords(errors: ConsumerErrors): string {
  return byCount(errors)
    .map(({ kind }) => KINDS[kind] ?? kind)
    .join(", ");
}

function byCount({ kinds }: ConsumerErrors): ErrorCount[] {
  return kinds.filter(({ count }) => count > 0).sort((one, other) => other.count - one.count);
}

export interface Failures {
  /** A few words, for a list. */
  short: string;
  /** A sentence. */
  long: string;
}

/** The consumers of a resource whose requests fail now. `null`: none is known. */
export function failures(resource: ResourceStatus): Failures | null {
  const failing = resource.consumers.filter(isFailing);
  const all = failing.flatMap((one) => one.errors ?? []);
  if (all.length === 0) return null;
  const kinds = [...new Set(all.map(kindWords))].join("; ");
  const names = named(failing);
  const last = age(Math.min(...all.map((errors) => errors.last_seconds ?? Infinity)));
  const since = all.flatMap((errors) => errors.since_seconds ?? []);
  const length = since.length === 0 ? "" : `for ${age(Math.max(...since))}, `;
  return {
    short: `requests of ${names} fail`,
    long: `Requests of ${names} fail: ${kinds}; ${length}the last one ${last} ago.`,
  };
}

/** Errors that are over, in a sentence. `null`: there were none. */
export function earlierFailures(resource: ResourceStatus): string | null {
  const over = resource.consumers.filter((one) => hasFailed(one.errors) && !isFailing(one));
  if (over.length === 0) return null;
  const lasts = over.flatMap((one) => one.errors?.last_seconds ?? []);
  const last = lasts.length === 0 ? "" : `, the last one ${age(Math.min(...lasts))} ago`;
  return `Requests of ${named(over)} failed earlier${last}.`;
}

function named(consumers: ConsumerStatus[]): string {
  const names = consumers.slice(0, MOST_NAMED).map((one) => one.selected_as ?? one.name);
  const others = consumers.length - names.length;
  if (others > 0) return `${names.join(", ")} and ${plural(others, "other consumer")}`;
  return names.join(" and ");
}

/** All that is known of a consumer's failed requests, in sentences. Empty: nothing is. */
export function errorSentences(one: ConsumerStatus): string[] {
  const { errors } = one;
  if (errors == null) return [];
  const told: string[] = [];
  if (hasFailed(errors)) {
    const counts = byCount(errors).map(
      ({ kind, count }) => `${count.toLocaleString("en")} × ${KINDS[kind] ?? kind}`,
    );
    const last = errors.last_seconds === null ? "" : ` The last one was ${age(errors.last_seconds)} ago.`;
    const since =
      isFailing(one) && errors.since_seconds !== null
        ? ` They have gone on for ${age(errors.since_seconds)}.`
        : "";
    told.push(`Requests that failed since the start: ${counts.join(", ")}.${since}${last}`);
  }
  if (errors.mistakes > 0) {
    told.push(
      `${plural(errors.mistakes, "request")} refused as ${errors.mistakes === 1 ? "a mistake" : "mistakes"} of the client.`,
    );
  }
  return told;
}
