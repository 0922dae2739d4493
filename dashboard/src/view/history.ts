// The span of time that the charts and decisions of a resource are of, and what the journal has of it.

import { useEffect, useState } from "preact/hooks";

import { REMEMBERED_SECONDS } from "../model/series";
import { Refusal, service } from "../service/client";
import type { HistoryDecision, ResourceHistory } from "../service/documents";
import type { Store } from "../store";

export type Span =
  | { live: true }
  | { live: false; words: string; seconds: number }
  | { live: false; words: string; from: Date; to: Date };

export const LIVE: Span = { live: true };

export interface HistoryAnswer {
  history: ResourceHistory | null;
  problem: string | null;
  isBusy: boolean;
}

const NO_HISTORY: HistoryAnswer = { history: null, problem: null, isBusy: false };

/** Asks for the history of a span; of the live one, for the minutes before the page was opened. */
export function useHistory(resource: string, span: Span, store: Store): HistoryAnswer {
  const [answer, setAnswer] = useState(NO_HISTORY);
  useEffect(() => {
    const stop = new AbortController();
    const live = store.series(resource);
    const isFilled = span.live && live.isFilled;
    if (isFilled) return undefined;
    if (span.live) live.isFilled = true;
    const to = "to" in span ? span.to : new Date();
    const seconds = span.live ? REMEMBERED_SECONDS : "seconds" in span ? span.seconds : 0;
    const from = "from" in span ? span.from : new Date(to.getTime() - seconds * 1_000);
    setAnswer({ ...NO_HISTORY, isBusy: !span.live });
    service.history(resource, from, to, stop.signal).then(
      (history) => {
        if (span.live) live.prepend(history);
        else setAnswer({ ...NO_HISTORY, history });
        store.changed();
      },
      (error: unknown) => {
        // Without a journal, the live charts begin with the page.
        if (!stop.signal.aborted && !span.live && error instanceof Refusal) {
          setAnswer({ ...NO_HISTORY, problem: error.message });
        }
      },
    );
    return () => {
      if (!span.live) stop.abort();
    };
  }, [resource, span, store]);
  return answer;
}

/** Live decisions begin with those of the hour before the page came to the resource. */
const DECISIONS_MS = 3_600_000;

export interface RecordedDecisions {
  /** The oldest first. */
  decisions: HistoryDecision[];
  from: Date;
  to: Date;
}

/** Asks for the recorded decisions before now. `null`: there is no answer, or not yet. */
export function useRecordedDecisions(resource: string): RecordedDecisions | null {
  const [recorded, setRecorded] = useState<RecordedDecisions | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    const to = new Date();
    const from = new Date(to.getTime() - DECISIONS_MS);
    setRecorded(null);
    service.decisions(resource, from, to, stop.signal).then(
      (decisions) => setRecorded({ decisions, from, to }),
      // Without a journal, decisions begin with the page.
      () => undefined,
    );
    return () => stop.abort();
  }, [resource]);
  return recorded;
}
