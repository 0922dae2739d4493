// Requests to the service that the page comes from.

import type {
  Caller,
  Overrides,
  ResourceExplanation,
  ResourceHistory,
  ServiceSettings,
  ServiceStatus,
} from "./documents";

const TOKEN_KEY = "tidegate.token";

/** An answer that is none: the status, and the service's words. A status of 0 means that nothing answered. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
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

/** Sends a request, and throws a Refusal for an answer that is none. */
export async function send(path: string, options: RequestInit = {}): Promise<Response> {
  const headers = new Headers(options.headers);
  const shown = token.get();
  if (shown !== null) headers.set("Authorization", `Bearer ${shown}`);
  let answer: Response;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refusal(0, "the service does not answer");
  }
  if (!answer.ok) throw new Refusal(answer.status, await reason(answer));
  return answer;
}

async function reason(answer: Response): Promise<string> {
  const text = await answer.text().catch(() => "");
  try {
    const said: unknown = (JSON.parse(text) as { error?: unknown }).error;
    if (typeof said === "string") return said;
  } catch {
    // Words without JSON around them.
  }
  return text.trim() || `the service answered with status ${answer.status}`;
}

/** Asks for a document. */
export async function document<T>(path: string, options?: RequestInit): Promise<T> {
  return (await send(path, options)).json() as Promise<T>;
}

function change(method: string, path: string, body?: unknown): Promise<Overrides> {
  const content = { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return document<Overrides>(path, body === undefined ? { method } : { method, ...content });
}

export const service = {
  caller: (): Promise<Caller> => document("/v1/caller"),
  status: (): Promise<ServiceStatus> => document("/v1/status"),
  settings: (): Promise<ServiceSettings> => document("/v1/settings"),

  explain(name: string, at: string | null): Promise<ResourceExplanation[]> {
    const query = new URLSearchParams({ name });
    if (at !== null) query.set("at", at);
    return document(`/v1/explain?${query}`);
  },

  history(resource: string, from: Date, to: Date, signal: AbortSignal): Promise<ResourceHistory> {
    const query = new URLSearchParams({ resource, from: from.toISOString(), to: to.toISOString() });
    return document(`/v1/history?${query}`, { signal });
  },

  setDryRun(resource: string, dryRun: boolean | null): Promise<Overrides> {
    return change("PATCH", `/v1/resources/${encodeURIComponent(resource)}`, { dry_run: dryRun });
  },

  setTarget(resource: string, seconds: number | null): Promise<Overrides> {
    return change("PATCH", `/v1/resources/${encodeURIComponent(resource)}`, { target_seconds: seconds });
  },

  resetConsumer(resource: string, consumer: string): Promise<Overrides> {
    const path = `/v1/resources/${encodeURIComponent(resource)}/consumers/${encodeURIComponent(consumer)}`;
    return change("PATCH", path, { shares: null, limit_iops: null, limit_bytes_per_second: null });
  },

  release(resource: string, consumer: string | null, seconds: number): Promise<Overrides> {
    const scope = consumer === null ? { resource } : { resource, consumer };
    return change("POST", "/v1/releases", { ...scope, for_seconds: seconds });
  },

  endRelease(resource: string | null, consumer: string | null): Promise<Overrides> {
    const query = new URLSearchParams();
    if (resource !== null) query.set("resource", resource);
    if (consumer !== null) query.set("consumer", consumer);
    return change("DELETE", `/v1/releases?${query}`);
  },
};
