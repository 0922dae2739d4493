import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { age, clock, ZONE } from "../model/figures";
import { judgeResource, totals } from "../model/judgement";
import type { Store } from "../store";
import { Brand } from "./brand";
import { HostsCard } from "./hosts";
import { usePlace } from "./navigation";
import { OverridesCard } from "./overrides";
import { ResourceList, ranked } from "./resource_list";
import { ResourceView } from "./resource_view";
import { AccessButton, AccessForm } from "./access";
import { ThemeButton } from "./theme";

/** A status of this age says nothing of now. */
const STALE_MS = 4_000;

export function App({ store }: { store: Store }) {
  const [, setTick] = useState(0);
  const { resource: wanted, consumer } = usePlace();
  useEffect(() => store.subscribe(() => setTick((tick) => tick + 1)), [store]);
  // Ages go on while nothing comes.
  useEffect(() => {
    const timer = setInterval(() => store.changed(), 1_000);
    return () => clearInterval(timer);
  }, [store]);

  const { status } = store;
  const resources = useMemo(() => (status === null ? [] : ranked(status)), [status]);
  const isOne = resources.length === 1;
  // The worst one of the beginning stays, so that nothing changes under the reader's eyes.
  const first = useRef<string | null>(null);
  if (first.current === null || !resources.some((one) => one.resource.name === first.current)) {
    first.current = resources[0]?.resource.name ?? null;
  }
  const shown = wanted ?? first.current;
  useEffect(() => store.choose(shown ?? ""), [store, shown]);
  const found = status?.resources.find((resource) => resource.name === shown) ?? null;
  const isStale = status !== null && Date.now() - store.statusAt > STALE_MS;

  useEffect(() => {
    const said =
      found === null || status === null
        ? ""
        : `${judgeResource(found, status.sees).short} · ${consumer === null ? "" : `${consumer} at `}${found.name} · `;
    document.title = `${isStale ? "not connected · " : said}Tidegate`;
  });

  return (
    <>
      <a class="skip" href="#resource" onClick={focusMain}>
        To the figures
      </a>
      <Top store={store} isStale={isStale} />
      <Banner store={store} isStale={isStale} />
      {status === null ? (
        <Waiting store={store} />
      ) : (
        <main
          class={classes({
            layout: true,
            single: isOne,
            chosen: wanted !== null || isOne,
            stale: isStale,
          })}
        >
          {isOne ? null : <ResourceList rows={resources} shown={shown} />}
          <div class="content" id="resource" tabIndex={-1}>
            {isOne ? null : (
              <a class="back" href="#/">
                ‹ All {resources.length} resources
              </a>
            )}
            {found !== null ? (
              <ResourceView
                key={found.name}
                store={store}
                status={status}
                resource={found}
                consumer={consumer}
              />
            ) : (
              <p class="card body">
                {resources.length === 0
                  ? "This service regulates nothing: its configuration names no resource."
                  : `There is no resource “${shown}” in this service.`}
              </p>
            )}
            <OverridesCard store={store} overrides={status.overrides} />
            {status.cluster === null ? null : <HostsCard cluster={status.cluster} />}
          </div>
        </main>
      )}
      <div class="toast" role="status">
        {store.toast}
      </div>
    </>
  );
}

function classes(names: Record<string, boolean>): string {
  return Object.keys(names)
    .filter((name) => names[name])
    .join(" ");
}

function focusMain(event: Event): void {
  event.preventDefault();
  document.getElementById("resource")?.focus();
}

function Top({ store, isStale }: { store: Store; isStale: boolean }) {
  const { status } = store;
  const sum = status === null ? null : totals(status);
  const hosts = status?.cluster?.members;
  return (
    <header class="top">
      <Brand>
        {status === null ? null : (
          <small class="soft">
            {status.service === "serve" ? "gateway" : "agent"} {status.program}
            {status.cluster === null ? "" : ` on ${status.cluster.host}`}
          </small>
        )}
      </Brand>
      <span class="facts">
        {status === null || sum === null ? null : (
          <>
            {sum.failing === 0 ? null : (
              <span class="problem">
                <b>{sum.failing.toLocaleString("en")}</b> {sum.failing === 1 ? "consumer" : "consumers"} with
                requests that fail
              </span>
            )}
            <span>
              <b>{status.resources.length.toLocaleString("en")}</b>{" "}
              {status.resources.length === 1 ? "resource" : "resources"}
            </span>
            <span>
              <b>{sum.consumers.toLocaleString("en")}</b> {sum.consumers === 1 ? "consumer" : "consumers"}
            </span>
            <span>
              <b>{sum.held.toLocaleString("en")}</b> throttled
            </span>
            <span>
              <b>{sum.broken.toLocaleString("en")}</b> {sum.broken === 1 ? "promise" : "promises"} broken in
              the last minute
            </span>
            {hosts === undefined ? null : (
              <span>
                <b>
                  {hosts.filter((host) => !host.stale).length} of {hosts.length}
                </b>{" "}
                other hosts heard
              </span>
            )}
            <span class="soft">Times are in {ZONE}</span>
          </>
        )}
      </span>
      <span class="tools">
        <span class="soft number">{connectionWords(store, isStale)}</span>
        <AccessButton store={store} />
        <ThemeButton />
      </span>
    </header>
  );
}

function connectionWords({ connection, statusAt, status }: Store, isStale: boolean): string {
  if (status !== null && isStale) return `figures are ${age((Date.now() - statusAt) / 1_000)} old`;
  return connection.state === "live" ? "live" : "connecting…";
}

function Banner({ store, isStale }: { store: Store; isStale: boolean }) {
  const { connection, status, statusAt } = store;
  const old = status === null ? "" : ` The figures below are of ${clock(statusAt)}, and say nothing of now.`;
  if (connection.state === "lost") {
    const wait = Math.max(0, Math.ceil((connection.retryAt - Date.now()) / 1_000));
    return (
      <div class="banner bad" role="alert">
        <span>
          Not connected: {connection.why}.{old}
        </span>
        <span>Trying again {wait === 0 ? "now" : `in ${wait} s`}.</span>
        <button onClick={() => store.retry()}>Try now</button>
      </div>
    );
  }
  if (connection.state === "silent" || (isStale && connection.state === "live")) {
    return (
      <div class="banner bad" role="alert">
        The service sends no status: it is stopping, or overloaded.{old}
      </div>
    );
  }
  if (connection.state === "refused" && status !== null) {
    return (
      <div class="banner bad" role="alert">
        <span>
          The service refuses: {connection.why}.{old}
        </span>
        <AccessButton store={store} />
      </div>
    );
  }
  return null;
}

function Waiting({ store }: { store: Store }) {
  if (store.connection.state === "refused") {
    return (
      <main class="layout single chosen">
        <div class="content" id="resource">
          <section class="card">
            <header>
              <h1>A token is needed</h1>
            </header>
            <div class="body">
              <AccessForm store={store} why={store.connection.why} />
            </div>
          </section>
        </div>
      </main>
    );
  }
  return (
    <p class="boot" role="status">
      {store.connection.state === "lost" ? "No status yet." : "Asking the service…"}
    </p>
  );
}
