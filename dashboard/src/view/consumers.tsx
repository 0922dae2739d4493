import { useState } from "preact/hooks";

import { age, byteRate, duration, iops, percent } from "../model/figures";
import { isFailing } from "../model/errors";
import { consumerState, isKept, limitWords, shownName, storageLatency } from "../model/judgement";
import { linkTo } from "../model/place";
import type { ConsumerStatus, PromiseStatus, ResourceStatus } from "../service/documents";
import { followToConsumer } from "./navigation";
import { Pager, pageOf } from "./pager";
import { ToneWords } from "./tone";

const PAGE = 50;
/** A shorter list is seen at a glance. */
const SEARCHED = 8;

type Order = "configuration" | "promise" | "latency" | "load";

const ORDERS: Record<Order, string> = {
  configuration: "as configured",
  promise: "broken promises first",
  latency: "greatest latency first",
  load: "most requests first",
};

export function ConsumersCard({ resource }: { resource: ResourceStatus }) {
  const [search, setSearch] = useState("");
  const [order, setOrder] = useState<Order>("configuration");
  const [page, setPage] = useState(0);
  const all = resource.consumers;
  const text = search.trim().toLowerCase();
  const matches = all.filter((one) => `${shownName(one)}\n${one.name}`.toLowerCase().includes(text));
  const shown = pageOf(ordered(matches, order), page, PAGE);
  const has = (of: (one: ConsumerStatus) => boolean): boolean => all.some(of);
  const hasPromise = has((one) => one.promise !== null || one.goal_seconds !== null);
  const hasClient = has((one) => one.recent?.client_seconds != null);
  const hasLimit = has((one) => one.rate_iops !== null || one.delay_seconds !== null);
  const hasEntitled = has((one) => one.entitled_iops !== null);
  return (
    <section class="card" aria-labelledby="consumers">
      <header>
        <h2 id="consumers">Consumers</h2>
        {all.length > SEARCHED ? (
          <>
            <label class="unseen" for="consumer-search">
              Search consumers
            </label>
            <input
              id="consumer-search"
              type="search"
              placeholder="Search consumers"
              value={search}
              onInput={(event) => {
                setSearch(event.currentTarget.value);
                setPage(0);
              }}
            />
            <label class="unseen" for="consumer-order">
              Order of consumers
            </label>
            <select
              id="consumer-order"
              value={order}
              onChange={(event) => setOrder(event.currentTarget.value as Order)}
            >
              {Object.entries(ORDERS).map(([key, words]) => (
                <option key={key} value={key}>
                  {words}
                </option>
              ))}
            </select>
          </>
        ) : null}
      </header>
      <div class="body">
        {all.length === 0 ? (
          <p class="soft">
            {resource.consumers_left_out > 0
              ? "Asking for the consumers…"
              : "No consumer is known, or eligible."}
          </p>
        ) : (
          <div class="scroll">
            <table class="wide">
              <thead>
                <tr>
                  <th scope="col">Consumer</th>
                  <th scope="col">State</th>
                  {hasPromise ? (
                    <th scope="col" class="number">
                      Promise
                    </th>
                  ) : null}
                  {hasPromise ? <th scope="col">Kept: minute, hour, day</th> : null}
                  <th scope="col" class="number">
                    At the storage
                  </th>
                  {hasClient ? (
                    <th scope="col" class="number">
                      Clients wait
                    </th>
                  ) : null}
                  <th scope="col" class="number">
                    Requests
                  </th>
                  <th scope="col" class="number">
                    Read
                  </th>
                  <th scope="col" class="number">
                    Written
                  </th>
                  {hasEntitled ? (
                    <th scope="col" class="number">
                      Entitled
                    </th>
                  ) : null}
                  {hasLimit ? (
                    <th scope="col" class="number">
                      Limit now
                    </th>
                  ) : null}
                </tr>
              </thead>
              <tbody>
                {shown.items.map((one) => {
                  const state = consumerState(one);
                  return (
                    <tr key={one.name}>
                      <th scope="row">
                        <a
                          href={linkTo(resource.name, one.name)}
                          title={`Explain ${shownName(one)}`}
                          onClick={(event) => followToConsumer(event, resource.name, one.name)}
                        >
                          {shownName(one)}
                        </a>
                        {one.selected_as === null ? null : <div class="soft path">{one.name}</div>}
                        {one.errors != null && !isFailing(one) && one.errors.last_seconds !== null ? (
                          <div class="soft path">failed earlier, {age(one.errors.last_seconds)} ago</div>
                        ) : null}
                        {one.removed ? <div class="problem">removed, still in use</div> : null}
                      </th>
                      <td data-label="State">
                        <ToneWords tone={state.tone}>{state.words}</ToneWords>
                      </td>
                      {hasPromise ? (
                        <td class="number" data-label="Promise">
                          {promiseWords(one)}
                        </td>
                      ) : null}
                      {hasPromise ? (
                        <td data-label="Kept min, h, day">
                          {one.promise === null ? "–" : <Kept promise={one.promise} />}
                        </td>
                      ) : null}
                      <td class="number" data-label="At the storage">
                        {storageLatency(one)}
                      </td>
                      {hasClient ? (
                        <td class="number" data-label="Clients wait">
                          {one.recent?.client_seconds == null ? "–" : duration(one.recent.client_seconds)}
                        </td>
                      ) : null}
                      <td class="number" data-label="Requests">
                        {iops(one.recent?.iops)}
                      </td>
                      <td class="number" data-label="Read">
                        {byteRate(one.recent?.read_bytes_per_second)}
                      </td>
                      <td class="number" data-label="Written">
                        {byteRate(one.recent?.written_bytes_per_second)}
                      </td>
                      {hasEntitled ? (
                        <td class="number" data-label="Entitled">
                          {one.entitled_iops === null ? "–" : iops(one.entitled_iops)}
                        </td>
                      ) : null}
                      {hasLimit ? (
                        <td class="number" data-label="Limit now">
                          {limitWords(one)}
                        </td>
                      ) : null}
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </div>
        )}
        {all.length > 0 && matches.length === 0 ? (
          <p class="soft">No consumer has “{search.trim()}” in its name.</p>
        ) : null}
        {all.length > 0 && resource.consumers_left_out > 0 ? (
          <p class="soft">
            {resource.consumers_left_out.toLocaleString("en")} more consumers are counted, and not shown.
          </p>
        ) : null}
      </div>
      <Pager page={shown} noun="consumers" onPage={setPage} />
    </section>
  );
}

function promiseWords(one: ConsumerStatus): string {
  const promised = one.promise?.response_time_seconds ?? one.goal_seconds;
  if (promised === null) return "–";
  return one.promise?.judged_by === "requests" ? `${duration(promised)}, contract` : duration(promised);
}

/** The parts kept of three spans. A broken one is marked by weight, a dashed line and a word. */
function Kept({ promise }: { promise: PromiseStatus }) {
  const spans: [string, number | null][] = [
    ["minute", promise.minute],
    ["hour", promise.hour],
    ["day", promise.day],
  ];
  return (
    <span class="kept">
      {spans.map(([name, part]) => {
        const kept = isKept(part);
        return (
          <span key={name} class={kept === null ? "unknown" : kept ? "" : "broken"} title={`last ${name}`}>
            <span class="unseen">
              {name}: {kept === null ? "unknown" : kept ? "kept" : "broken"},{" "}
            </span>
            {percent(part)}
          </span>
        );
      })}
    </span>
  );
}

/** Consumers whose requests fail come first in each order. */
function ordered(consumers: ConsumerStatus[], order: Order): ConsumerStatus[] {
  const all = inOrder(consumers, order);
  const failing = all.filter(isFailing);
  return failing.length === 0 ? all : [...failing, ...all.filter((one) => !isFailing(one))];
}

function inOrder(consumers: ConsumerStatus[], order: Order): ConsumerStatus[] {
  const by = (of: (one: ConsumerStatus) => number): ConsumerStatus[] =>
    consumers.slice().sort((one, other) => of(other) - of(one));
  switch (order) {
    case "configuration":
      return consumers;
    case "promise":
      return by((one) => (one.promise?.minute == null ? -2 : -one.promise.minute));
    case "latency":
      return by((one) => one.recent?.response_time_seconds ?? one.measured_seconds ?? -1);
    case "load":
      return by((one) => one.recent?.iops ?? -1);
  }
}
