// Requests that failed, in words: recent ones are trouble, earlier ones are a fact.

import type { ConsumerErrors, ConsumerStatus, ErrorCount, ResourceStatus } from "../service/documents";
import { age, plural } from "./figures";

/** Errors go on until a minute has passed without one, as in the service. */
const RECENT_SECONDS = 60;

const KINDS: Record<ErrorCount["kind"], string> = {
  io: "I/O error",
  no_space: "no space left",
  not_permitted: "not permitted by the storage",
  invalid: "not taken by the storage",
  no_memory: "no memory",
  shutting_down: "shutting down",
};

/** Consumers that are named in a sentence. The others are counted. */
const MOST_NAMED = 2;

/** Returns true if a request failed in the last minute. */
export function isFailing({ errors }: { errors?: ConsumerErrors | null }): boolean {
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

/** The requests of a resource that fail now. `null`: none does. */
export function failures(resource: ResourceStatus): Failures | null {
  const { errors } = resource;
  if (errors == null || !isFailing(resource)) return null;
  // Consumers of other resources than the one shown are not told one by one.
  const failing = resource.consumers.filter(isFailing);
  const requests = failing.length === 0 ? "requests" : `requests of ${named(failing)}`;
  const length = errors.since_seconds === null ? "" : `for ${age(errors.since_seconds)}, `;
  const last = age(errors.last_seconds ?? 0);
  const sentence = `${requests} fail: ${kindWords(errors)}; ${length}the last one ${last} ago.`;
  return { short: `${requests} fail`, long: sentence.charAt(0).toUpperCase() + sentence.slice(1) };
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
