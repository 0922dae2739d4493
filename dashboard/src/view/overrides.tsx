// What operators changed since the start, with the way back.

import { useState } from "preact/hooks";

import { byteRate, clock, duration, iops } from "../model/figures";
import { service } from "../service/client";
import type { Overrides, ReleaseEntry } from "../service/documents";
import type { Store } from "../store";
import { ActionButton } from "./action";
import { Pager, pageOf } from "./pager";

interface Row {
  key: string;
  what: string;
  by: string;
  since: string;
  undo: string;
  run: () => Promise<Overrides>;
}

const PAGE = 20;

export function OverridesCard({ store, overrides }: { store: Store; overrides: Overrides }) {
  const [page, setPage] = useState(0);
  const rows = rowsOf(overrides);
  if (rows.length === 0) return null;
  const shown = pageOf(rows, page, PAGE);
  return (
    <section class="card" aria-labelledby="overrides">
      <header>
        <h2 id="overrides">Changed by operators</h2>
        <span class="soft">until the service restarts</span>
      </header>
      <div class="body">
        <table class="wide">
          <thead>
            <tr>
              <th scope="col">Change</th>
              <th scope="col">By</th>
              <th scope="col">Since</th>
              <th scope="col">
                <span class="unseen">Action</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.items.map((row) => (
              <tr key={row.key}>
                <td data-label="Change">{row.what}</td>
                <td data-label="By">{row.by}</td>
                <td data-label="Since">{clock(row.since)}</td>
                <td data-label="">
                  <ActionButton
                    store={store}
                    words={row.undo}
                    done={`${row.undo}: ${row.what}`}
                    run={row.run}
                  />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Pager page={shown} noun="changes" onPage={setPage} />
    </section>
  );
}

function rowsOf(overrides: Overrides): Row[] {
  const of = ({ resource, consumer }: ReleaseEntry): string =>
    `${consumer ?? "all consumers"} of ${resource ?? "every resource"}`;
  const releases = overrides.releases.map((one): Row => ({
    key: `release/${one.resource}/${one.consumer}`,
    what: `${of(one)} released until ${clock(one.until)}`,
    by: one.by,
    since: one.since,
    undo: "End the release",
    run: () => service.endRelease(one.resource, one.consumer),
  }));
  const resources = overrides.resources.flatMap((one): Row[] => {
    const row = (name: string, what: string, run: () => Promise<Overrides>): Row => ({
      key: `${name}/${one.resource}`,
      what,
      by: one.by,
      since: one.since,
      undo: "Undo",
      run,
    });
    const rows: Row[] = [];
    if (one.dry_run !== null) {
      const what = one.dry_run ? `dry run of ${one.resource}` : `no dry run of ${one.resource}`;
      rows.push(row("dry_run", what, () => service.setDryRun(one.resource, null)));
    }
    if (one.target_seconds !== null) {
      const what = `target of ${one.resource}: ${duration(one.target_seconds)}`;
      rows.push(row("target", what, () => service.setTarget(one.resource, null)));
    }
    return rows;
  });
  const consumers = overrides.consumers.map((one): Row => ({
    key: `consumer/${one.resource}/${one.consumer}`,
    what: `${one.consumer} of ${one.resource}: ${[
      one.shares === null ? null : `${one.shares} shares`,
      one.limit_iops === null ? null : `limit ${iops(one.limit_iops)}`,
      one.limit_bytes_per_second === null ? null : `bandwidth ${byteRate(one.limit_bytes_per_second)}`,
    ]
      .filter((word) => word !== null)
      .join(", ")}`,
    by: one.by,
    since: one.since,
    undo: "Undo",
    run: () => service.resetConsumer(one.resource, one.consumer),
  }));
  return [...releases, ...resources, ...consumers];
}
