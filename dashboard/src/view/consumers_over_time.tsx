// Each consumer over time, on one scale: the noisy neighbour is the one that fills its row.

import { useState } from "preact/hooks";

import { duration, iops, percent } from "../model/figures";
import { shownName } from "../model/judgement";
import { linkTo } from "../model/place";
import {
  lastAndGreatest,
  mean,
  scaleEnd,
  wholeScaleEnd,
  type ConsumerColumns,
  type Series,
} from "../model/series";
import type { ResourceHistory, ResourceStatus } from "../service/documents";
import { followToConsumer } from "./navigation";
import { Pager, pageOf } from "./pager";
import { Sparkline } from "./sparkline";

const PAGE = 10;

interface Row {
  name: string;
  shown: string;
  isProtected: boolean;
  columns: ConsumerColumns;
  /** Mean requests per second. */
  load: number;
}

export function ConsumersOverTime({
  resource,
  series,
  history,
  from,
  to,
}: {
  resource: ResourceStatus;
  series: Series;
  /** The history that the series is of. `null`: it is live. */
  history: ResourceHistory | null;
  from: number;
  to: number;
}) {
  const [page, setPage] = useState(0);
  const rows = rowsOf(resource, series, history);
  if (rows.length === 0) return null;
  const current = pageOf(rows, page, PAGE);
  const columns = (of: (one: ConsumerColumns) => (number | null)[]): (number | null)[][] =>
    rows.map((row) => of(row.columns));
  const rateEnd = wholeScaleEnd(columns((one) => one.iops));
  const target = resource.law?.target_seconds ?? null;
  const latencyEnd = scaleEnd(
    columns((one) => one.latency),
    target ?? 0,
  );
  const hasLatency = columns((one) => one.latency).some((values) => values.some((value) => value !== null));
  const spark = { times: series.times, from, to };
  return (
    <section aria-labelledby="over-time">
      <h3 id="over-time">Each consumer</h3>
      <table class="wide over-time">
        <thead>
          <tr>
            <th scope="col">Consumer</th>
            <th scope="col">Requests, 0 to {iops(rateEnd)}</th>
            {hasLatency ? <th scope="col">Latency at the storage, 0 to {duration(latencyEnd)}</th> : null}
            <th scope="col">Throttled</th>
          </tr>
        </thead>
        <tbody>
          {current.items.map(({ name, shown, isProtected, columns }) => (
            <tr key={name}>
              <th scope="row">
                <a
                  href={linkTo(resource.name, name)}
                  onClick={(event) => followToConsumer(event, resource.name, name)}
                >
                  {shown}
                </a>
                {isProtected ? <div class="soft path">protected</div> : null}
              </th>
              <td data-label="Requests">
                <Sparkline
                  {...spark}
                  values={columns.iops}
                  throttled={columns.throttled}
                  end={rateEnd}
                  colour="chart-rate"
                />
                <span class="soft">{meanAndMost(columns.iops, iops)}</span>
              </td>
              {hasLatency ? (
                <td data-label="Latency">
                  <Sparkline
                    {...spark}
                    values={columns.latency}
                    end={latencyEnd}
                    colour="chart-latency"
                    target={target}
                  />
                  <span class="soft">{meanAndMost(columns.latency, duration)}</span>
                </td>
              ) : null}
              <td data-label="Throttled">{throttledWords(isProtected, columns)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <Pager page={current} noun="consumers" onPage={setPage} />
    </section>
  );
}

function rowsOf(resource: ResourceStatus, series: Series, history: ResourceHistory | null): Row[] {
  const now = new Map(resource.consumers.map((one) => [one.name, one]));
  const then = new Map((history?.consumers ?? []).map((one) => [one.name, one.protected]));
  const rows = [...series.consumers].map(([name, columns]): Row => {
    const one = now.get(name);
    return {
      name,
      shown: one === undefined ? name : shownName(one),
      isProtected: then.get(name) ?? one?.protected ?? false,
      columns,
      load: mean(columns.iops) ?? 0,
    };
  });
  return rows.sort((one, other) => other.load - one.load || one.shown.localeCompare(other.shown));
}

function meanAndMost(values: (number | null)[], format: (value: number | null) => string): string {
  const { greatest } = lastAndGreatest(values);
  return greatest === null ? "unknown" : `mean ${format(mean(values))}, most ${format(greatest)}`;
}

function throttledWords(isProtected: boolean, { throttled }: ConsumerColumns): string {
  if (isProtected) return "never";
  const part = mean(throttled);
  if (part === null) return "unknown";
  return part === 0 ? "not at all" : part < 0.01 ? "under 1 % of the time" : `${percent(part)} of the time`;
}
