// The state of the page: what the service told last, and what the page has seen before.

import { Refusal, service, token } from "./service/client";
import type { Caller, DecisionEvent, Overrides, ServiceStatus } from "./service/documents";
import { Feed, type Connection } from "./service/feed";
import { LiveSeries } from "./model/series";

export interface FeedEntry {
  key: number;
  at: number;
  /** `null`: a remark of the page about the feed itself. */
  resource: string | null;
  said: string;
}

/** Older entries are forgotten: the log and the journal have them. */
const MOST_ENTRIES = 300;
/** Figures of more resources are not remembered before they are looked at. */
const MOST_SERIES = 2_000;
const TOAST_MS = 6_000;

export class Store {
  connection: Connection = { state: "connecting" };
  status: ServiceStatus | null = null;
  /** The time of the last status, by the browser's clock. */
  statusAt = 0;
  caller: Caller | null = null;
  readonly opened = Date.now();
  readonly entries: FeedEntry[] = [];
  toast = "";

  readonly #series = new Map<string, LiveSeries>();
  readonly #listeners = new Set<() => void>();
  #chosen = "";
  #key = 0;
  #pending = false;
  #toastTimer: ReturnType<typeof setTimeout> | undefined;

  readonly #feed = new Feed({
    connection: (connection) => {
      if (this.connection.state !== connection.state || connection.state === "lost") {
        this.connection = connection;
        this.changed();
      }
    },
    status: (status) => this.#takeStatus(status),
    decision: (decision) => this.#takeDecision(decision),
    lost: (events) => {
      this.#remark(`${events} events were lost: this page took them too slowly.`);
    },
  });

  /** Calls back after each change, until the returned function is called. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  changed(): void {
    if (this.#pending) return;
    this.#pending = true;
    // A hidden page gets no frames, and then draws nothing.
    requestAnimationFrame(() => {
      this.#pending = false;
      for (const listener of this.#listeners) listener();
    });
  }

  /** Begins to listen, with the consumers of this resource. */
  choose(resource: string): void {
    this.#chosen = resource;
    this.#feed.open(resource);
    if (this.caller === null) void this.#askCaller();
  }

  retry(): void {
    this.#feed.reopen();
  }

  series(resource: string): LiveSeries {
    let series = this.#series.get(resource);
    if (series === undefined) {
      series = new LiveSeries();
      this.#series.set(resource, series);
    }
    return series;
  }

  async useToken(text: string | null): Promise<void> {
    if (text === null) token.forget();
    else token.set(text);
    this.caller = null;
    await this.#askCaller();
    this.#feed.reopen();
    this.changed();
  }

  /** Takes the overrides that a change left. */
  takeOverrides(overrides: Overrides, toast: string): void {
    if (this.status !== null) this.status = { ...this.status, overrides };
    this.say(toast);
  }

  say(toast: string): void {
    this.toast = toast;
    clearTimeout(this.#toastTimer);
    this.#toastTimer = setTimeout(() => {
      this.toast = "";
      this.changed();
    }, TOAST_MS);
    this.changed();
  }

  async #askCaller(): Promise<void> {
    try {
      this.caller = await service.caller();
    } catch (error) {
      // The stream says the same, and the banner shows it.
      if (!(error instanceof Refusal)) throw error;
    }
    this.changed();
  }

  #takeStatus(status: ServiceStatus): void {
    if (this.caller === null) void this.#askCaller();
    this.status = status;
    this.statusAt = Date.now();
    const seconds = Math.round(this.statusAt / 100) / 10;
    for (const resource of status.resources.slice(0, MOST_SERIES)) {
      this.series(resource.name).push(seconds, resource);
    }
    // Resources that a reload removed.
    if (this.#series.size > status.resources.length + 1) {
      const names = new Set(status.resources.map((resource) => resource.name));
      for (const name of this.#series.keys()) {
        if (!names.has(name) && name !== this.#chosen) this.#series.delete(name);
      }
    }
    this.changed();
  }

  #takeDecision(decision: DecisionEvent): void {
    this.#add(decision.resource, decision.said);
  }

  #remark(said: string): void {
    this.#add(null, said);
  }

  #add(resource: string | null, said: string): void {
    this.#key += 1;
    this.entries.unshift({ key: this.#key, at: Date.now(), resource, said });
    this.entries.length = Math.min(this.entries.length, MOST_ENTRIES);
    this.changed();
  }
}
