// The stream of events: the status each second, and decisions as the log is told them.

import { Refusal, send } from "./client";
import type { DecisionEvent, ServiceStatus } from "./documents";
import { EventTextParser } from "./event_text";

/** The state of the connection. */
export type Connection =
  | { state: "connecting" }
  | { state: "live" }
  /** The service answers, and has no status: it is stopping, or overloaded. */
  | { state: "silent" }
  | { state: "refused"; why: string }
  | { state: "lost"; why: string; retryAt: number };

export interface FeedListener {
  connection(connection: Connection): void;
  status(status: ServiceStatus): void;
  decision(decision: DecisionEvent): void;
  lost(events: number): void;
}

/** The service sends a status each second. After this time without one, the connection is taken for dead. */
const SILENCE_MS = 10_000;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 15_000;

/** Keeps a stream open, with the consumers of one resource. */
export class Feed {
  #stop = new AbortController();
  #resource: string | null = null;
  #pause = FIRST_PAUSE_MS;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isOpen = false;

  constructor(readonly listener: FeedListener) {}

  /** Opens the stream with the consumers of this resource, unless it has them already. */
  open(resource: string): void {
    if (this.#isOpen && this.#resource === resource) return;
    this.#resource = resource;
    this.reopen();
  }

  /** Opens the stream anew: with another token, or before its time. */
  reopen(): void {
    this.#isOpen = true;
    this.#pause = FIRST_PAUSE_MS;
    this.#again();
  }

  close(): void {
    this.#isOpen = false;
    clearTimeout(this.#timer);
    this.#stop.abort();
  }

  #again(): void {
    clearTimeout(this.#timer);
    this.#stop.abort();
    this.#stop = new AbortController();
    void this.#run(this.#stop);
  }

  async #run(stop: AbortController): Promise<void> {
    this.listener.connection({ state: "connecting" });
    try {
      await this.#read(stop);
      if (!stop.signal.aborted) this.#lost(stop, "the service ended the stream");
    } catch (error) {
      if (stop.signal.aborted && stop.signal.reason !== SILENCE) return;
      if (error instanceof Refusal && error.needsToken) {
        this.#isOpen = false;
        this.listener.connection({ state: "refused", why: error.message });
      } else {
        this.#lost(stop, error instanceof Refusal ? error.message : "the service does not answer");
      }
    }
  }

  async #read(stop: AbortController): Promise<void> {
    const query = new URLSearchParams({ consumers_of: this.#resource ?? "" });
    let watchdog = setTimeout(() => stop.abort(SILENCE), SILENCE_MS);
    try {
      const answer = await send(`v1/events?${query}`, { signal: stop.signal });
      const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new EventTextParser();
      for (;;) {
        const piece = await reader?.read();
        if (piece === undefined || piece.done) return;
        for (const { event, data } of parser.push(piece.value)) {
          if (stop.signal.aborted) return;
          if (event === "status" || event === "comment") {
            clearTimeout(watchdog);
            watchdog = setTimeout(() => stop.abort(SILENCE), SILENCE_MS);
          }
          this.#take(event, data);
        }
      }
    } finally {
      clearTimeout(watchdog);
    }
  }

  #take(event: string, data: string): void {
    if (event === "status") {
      this.#pause = FIRST_PAUSE_MS;
      this.listener.connection({ state: "live" });
      this.listener.status(JSON.parse(data) as ServiceStatus);
    } else if (event === "decision") {
      this.listener.decision(JSON.parse(data) as DecisionEvent);
    } else if (event === "lost") {
      this.listener.lost((JSON.parse(data) as { events: number }).events);
    } else if (event === "comment" && data !== "") {
      this.listener.connection({ state: "silent" });
    }
  }

  #lost(stop: AbortController, why: string): void {
    if (stop !== this.#stop || !this.#isOpen) return;
    this.listener.connection({ state: "lost", why, retryAt: Date.now() + this.#pause });
    this.#timer = setTimeout(() => this.#again(), this.#pause);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE_MS);
  }
}

const SILENCE = "silence";
