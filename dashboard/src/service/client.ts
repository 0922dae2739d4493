// Requests to the service that the page comes from, also through a proxy that has it below a path.

import type {
  Caller,
  HistoryDecision,
  Overrides,
  ResourceExplanation,
  ResourceHistory,
  ServiceSettings,
  ServiceStatus,
} from "./documents";
import { servicePath } from "./service_path";

/** The place of the page, which is the place of its service: `/`, or the path at a proxy. */
export const SERVICE_PATH = servicePath(location.pathname);

/** Services at other paths of one proxy have tokens of their own. */
const TOKEN_KEY = `tidegate.token ${SERVICE_PATH}`;

/** An answer that is none: the status, and the service's words. A status of 0 means that nothing answered. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** The reason, for programs. */
    readonly code: string | null = null,
  ) {
    super(message);
  }

  /** Returns true if other credentials may help. */
  get needsToken(): boolean {
    return this.status === 401 || this.status === 403;
  }
}

/** The bearer token, which ends with the tab. */
export const token = {
  get: (): string | null => sessionStorage.getItem(TOKEN_KEY),
  set: (text: string): void => sessionStorage.setItem(TOKEN_KEY, text),
  forget: (): void => sessionStorage.removeItem(TOKEN_KEY),
};

/** Sends a request to a path below that of the service, and throws a Refusal for an answer that is none. */
export async function send(path: string, options: RequestInit = {}): Promise<Response> {
  const headers = new Headers(options.headers);
  const shown = token.get();
  if (shown !== null) headers.set("Authorization", `Bearer ${shown}`);
  let answer: Response;
  try {
    answer = await fetch(SERVICE_PATH + path, {
      ...options,
      headers,
      cache: "no-store",
      credentials: "same-origin",
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refusal(0, "the service does not answer");
  }
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

async function refusal(answer: Response): Promise<Refusal> {
  const text = await answer.text().catch(() => "");
  try {
    const { error, code } = JSON.parse(text) as { error?: unknown; code?: unknown };
    if (typeof error === "string") {
      return new Refusal(answer.status, error, typeof code === "string" ? code : null);
    }
  } catch {
    // Words without JSON around them.
  }
  return new Refusal(answer.status, text.trim() || `the service answered with status ${answer.status}`);
}

/** Asks for a document. */
export async function document<T>(path: string, options?: RequestInit): Promise<T> {
  return (await send(path, options)).json() as Promise<T>;
}

const BUSY_PAUSE_MS = 500;
const MOST_ATTEMPTS = 40;
let lastQuestion: Promise<unknown> = Promise.resolve();

/** Asks the decision journal, which answers one question at a time: those of this page stand in line. */
function ask<T>(path: string, signal?: AbortSignal): Promise<T> {
  const answer = lastQuestion.then(() => askPatiently<T>(path, signal));
  lastQuestion = answer.catch(() => undefined);
  return answer;
}

/** Asks again while the journal is read for another page. */
async function askPatiently<T>(path: string, signal?: AbortSignal): Promise<T> {
  for (let attempts = 1; ; attempts += 1) {
    signal?.throwIfAborted();
    try {
      return await document<T>(path, signal === undefined ? {} : { signal });
    } catch (error) {
      const isBusy = error instanceof Refusal && error.code === "busy";
      if (!isBusy || attempts === MOST_ATTEMPTS) throw error;
      await new Promise((resolve) => setTimeout(resolve, BUSY_PAUSE_MS));
    }
  }
}

function change(method: string, path: string, body?: unknown): Promise<Overrides> {
  const content = { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return document<Overrides>(path, body === undefined ? { method } : { method, ...content });
}

/** The consumers of a history: as many as the page remembers. */
const MOST_CONSUMERS = 50;

function span(resource: string, from: Date, to: Date): URLSearchParams {
  return new URLSearchParams({ resource, from: from.toISOString(), to: to.toISOString() });
}

export const service = {
  caller: (): Promise<Caller> => document("v1/caller"),
  status: (): Promise<ServiceStatus> => document("v1/status"),
  settings: (): Promise<ServiceSettings> => document("v1/settings"),

  explain(name: string, at: string | null): Promise<ResourceExplanation[]> {
    const query = new URLSearchParams({ name });
    if (at !== null) query.set("at", at);
    return ask(`v1/explain?${query}`);
  },

  /** Asks for a history in the most points, with the busiest consumers. */
  history(resource: string, from: Date, to: Date, signal: AbortSignal): Promise<ResourceHistory> {
    const query = span(resource, from, to);
    query.set("consumers", String(MOST_CONSUMERS));
    return ask(`v1/history?${query}`, signal);
  },

  /** Asks for the decisions of a span, as the log was told them. */
  async decisions(resource: string, from: Date, to: Date, signal: AbortSignal): Promise<HistoryDecision[]> {
    const query = span(resource, from, to);
    query.set("points", "1");
    return (await ask<ResourceHistory>(`v1/history?${query}`, signal)).decisions;
  },

  setDryRun(resource: string, dryRun: boolean | null): Promise<Overrides> {
    return change("PATCH", `v1/resources/${encodeURIComponent(resource)}`, { dry_run: dryRun });
  },

  setTarget(resource: string, seconds: number | null): Promise<Overrides> {
    return change("PATCH", `v1/resources/${encodeURIComponent(resource)}`, { target_seconds: seconds });
  },

  resetConsumer(resource: string, consumer: string): Promise<Overrides> {
    const path = `v1/resources/${encodeURIComponent(resource)}/consumers/${encodeURIComponent(consumer)}`;
    return change("PATCH", path, { shares: null, limit_iops: null, limit_bytes_per_second: null });
  },

  release(resource: string, consumer: string | null, seconds: number): Promise<Overrides> {
    const scope = consumer === null ? { resource } : { resource, consumer };
    return change("POST", "v1/releases", { ...scope, for_seconds: seconds });
  },

  endRelease(resource: string | null, consumer: string | null): Promise<Overrides> {
    const query = new URLSearchParams();
    if (resource !== null) query.set("resource", resource);
    if (consumer !== null) query.set("consumer", consumer);
    return change("DELETE", `v1/releases?${query}`);
  },
};
