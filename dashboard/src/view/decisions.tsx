// Decisions in the words of the log: those that the journal keeps, and those that come while the page is open.

import { useState } from "preact/hooks";

import { clock, ZONE } from "../model/figures";
import type { HistoryDecision } from "../service/documents";
import type { FeedEntry, Store } from "../store";
import type { HistoryAnswer, RecordedDecisions } from "./history";

const SHOWN = 100;

export function DecisionsCard({
  store,
  resource,
  isOnly,
  isLive,
  history,
  recorded,
}: {
  store: Store;
  resource: string;
  isOnly: boolean;
  /** True if the charts are live; else the decisions are of their span, too. */
  isLive: boolean;
  history: HistoryAnswer;
  recorded: RecordedDecisions | null;
}) {
  const [hasAll, setAll] = useState(false);
  const shown = hasAll
    ? { decisions: store.entries, when: `since the page was opened at ${clock(store.opened)} ${ZONE}` }
    : isLive
      ? liveDecisions(store, resource, recorded)
      : spanDecisions(history);
  return (
    <section class="card" aria-labelledby="decisions">
      <header>
        <h2 id="decisions">Decisions</h2>
        {isOnly ? null : (
          <div class="picker" role="group" aria-label="Decisions on">
            <button aria-pressed={!hasAll} onClick={() => setAll(false)}>
              This resource
            </button>
            <button aria-pressed={hasAll} onClick={() => setAll(true)}>
              All
            </button>
          </div>
        )}
      </header>
      <div class="body">
        {shown.decisions.length === 0 ? (
          <p class="soft">Throttling has neither begun nor ended, nor changed fourfold, {shown.when}.</p>
        ) : (
          <>
            <p class="soft">Throttling began, ended, or changed fourfold, {shown.when}:</p>
            <ol class="feed" reversed tabIndex={0} aria-label="Decisions, the newest first">
              {shown.decisions.slice(0, SHOWN).map((entry) => (
                <li key={entry.key}>
                  <time dateTime={new Date(entry.at).toISOString()}>{clock(entry.at)}</time>
                  <span>{entry.said}</span>
                </li>
              ))}
            </ol>
          </>
        )}
      </div>
    </section>
  );
}

interface Shown {
  /** The newest first. */
  decisions: Pick<FeedEntry, "key" | "at" | "said">[];
  /** The time that they are of. */
  when: string;
}

function liveDecisions(store: Store, resource: string, recorded: RecordedDecisions | null): Shown {
  const own = store.entries.filter((entry) => entry.resource === null || entry.resource === resource);
  if (recorded === null)
    return { decisions: own, when: `since the page was opened at ${clock(store.opened)} ${ZONE}` };
  const newer = own.filter((entry) => entry.at > recorded.to.getTime());
  const when = `since ${clock(recorded.from)} ${ZONE}`;
  return { decisions: [...newer, ...feedOf(recorded.decisions)], when };
}

function spanDecisions({ history }: HistoryAnswer): Shown {
  return { decisions: feedOf(history?.decisions ?? []), when: "in the time of the charts" };
}

/** Recorded decisions have keys below those of the feed. */
function feedOf(decisions: HistoryDecision[]): Shown["decisions"] {
  return decisions
    .map(({ at, said }, index) => ({ key: -1 - index, at: new Date(at).getTime(), said }))
    .reverse();
}
