// The feed of decisions, in the words of the log.

import { useState } from "preact/hooks";

import { clock } from "../model/figures";
import type { Store } from "../store";

const SHOWN = 100;

export function DecisionsCard({
  store,
  resource,
  isOnly,
}: {
  store: Store;
  resource: string;
  isOnly: boolean;
}) {
  const [hasAll, setAll] = useState(false);
  const entries = store.entries.filter(
    (entry) => hasAll || entry.resource === null || entry.resource === resource,
  );
  const opened = clock(store.opened);
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
        {entries.length === 0 ? (
          <p class="soft">
            Throttling has neither begun nor ended, nor changed fourfold, since the page was opened at{" "}
            {opened}.
          </p>
        ) : (
          <ol class="feed" reversed tabIndex={0} aria-label="Decisions, the newest first">
            {entries.slice(0, SHOWN).map((entry) => (
              <li key={entry.key}>
                <time dateTime={new Date(entry.at).toISOString()}>{clock(entry.at)}</time>
                <span>{entry.said}</span>
              </li>
            ))}
          </ol>
        )}
      </div>
    </section>
  );
}
