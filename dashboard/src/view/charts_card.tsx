// Latency and throttle over time: live, or from the decision journal.

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";

import { clock, duration, inputText, inputTime, plainRate, requests, UNKNOWN, ZONE } from "../model/figures";
import { emptySeries, historySeries, REMEMBERED_SECONDS, type Series } from "../model/series";
import type { ResourceStatus } from "../service/documents";
import type { Store } from "../store";
import { Chart, type ChartLine } from "./chart";
import { ConsumersOverTime } from "./consumers_over_time";
import { LIVE, type HistoryAnswer, type Span } from "./history";

const LEAST_LIVE_SECONDS = 60;
const SPANS: readonly [string, number][] = [
  ["1 h", 3_600],
  ["6 h", 21_600],
  ["24 h", 86_400],
  ["7 days", 604_800],
];

export function ChartsCard({
  store,
  resource,
  span,
  setSpan,
  history,
}: {
  store: Store;
  resource: ResourceStatus;
  span: Span;
  setSpan: (span: Span) => void;
  history: HistoryAnswer;
}) {
  const [picks, setPicks] = useState(false);
  const recorded = useMemo(
    () => (history.history === null ? emptySeries() : historySeries(history.history)),
    [history.history],
  );
  const live = store.series(resource.name).series;
  const series = span.live ? live : recorded;
  // Not before the last figure, which counts for the scale, too.
  const now = Math.max(store.statusAt / 1_000, live.times.at(-1) ?? 0);
  const [from, to] = span.live
    ? [liveFrom(live, now), now]
    : [history.history?.from_seconds ?? now - 3_600, history.history?.to_seconds ?? now];
  return (
    <section class="card" aria-labelledby="charts">
      <header>
        <h2 id="charts">Latency and throttle</h2>
        <div class="picker" role="group" aria-label="Time">
          <button
            aria-pressed={span.live}
            onClick={() => {
              setSpan(LIVE);
              setPicks(false);
            }}
          >
            Live
          </button>
          {SPANS.map(([words, seconds]) => (
            <button
              key={words}
              aria-pressed={!span.live && span.words === words}
              onClick={() => {
                setSpan({ live: false, words, seconds });
                setPicks(false);
              }}
            >
              {words}
            </button>
          ))}
          <button aria-pressed={picks} aria-expanded={picks} onClick={() => setPicks(!picks)}>
            Other…
          </button>
        </div>
      </header>
      {picks ? <RangeForm onPick={(range) => setSpan(range)} /> : null}
      <div class="body charts">
        <p class="soft" role="status">
          {note(span, history, live.times[0])}
        </p>
        <Charts series={series} target={resource.law?.target_seconds ?? 0} from={from} to={to}>
          <ConsumersOverTime
            resource={resource}
            series={series}
            history={span.live ? null : history.history}
            from={from}
            to={to}
          />
        </Charts>
      </div>
    </section>
  );
}

/** The live charts grow with what is known, so that a page just opened is not empty. */
function liveFrom({ times }: Series, now: number): number {
  const first = times[0] ?? now;
  return Math.max(now - REMEMBERED_SECONDS, Math.min(first, now - LEAST_LIVE_SECONDS));
}

function note(span: Span, { history, problem, isBusy }: HistoryAnswer, first: number | undefined): string {
  if (span.live) {
    const since = first === undefined ? "now" : clock(first * 1_000);
    return `A figure each second since ${since} ${ZONE}, for ten minutes at most.`;
  }
  if (problem !== null) return `No history: ${problem}.`;
  if (isBusy || history === null) return "Reading the decision journal…";
  const range = `${clock(history.from_seconds * 1_000)} to ${clock(history.to_seconds * 1_000)} ${ZONE}`;
  return `${range}, from the decision journal; each figure is of ${duration(history.step_seconds)}.`;
}

function Charts({
  series,
  target,
  from,
  to,
  children,
}: {
  series: Series;
  target: number;
  from: number;
  to: number;
  /** Stands below the latency, which it may explain. */
  children: ComponentChildren;
}) {
  const latency: ChartLine[] = [
    { label: "each interval", values: series.worst, colour: "chart-worst", width: 1 },
    { label: "smoothed", values: series.latency, colour: "chart-latency" },
    {
      label: "set point",
      values: series.setPoint,
      colour: "chart-set-point",
      dash: [2, 3],
      width: 1,
      steps: true,
    },
    { label: "target", values: series.target, colour: "chart-target", dash: [8, 4], steps: true },
  ];
  return (
    <>
      <Chart
        title="Latency"
        times={series.times}
        from={from}
        to={to}
        lines={latency}
        format={timeFormat}
        seen={target}
      />
      {children}
      {throttles(series).map(({ title, line, format }) => (
        <Chart
          key={title}
          title={title}
          times={series.times}
          from={from}
          to={to}
          lines={[line]}
          format={format}
          isLow
        />
      ))}
      <Chart
        title="Throughput"
        times={series.times}
        from={from}
        to={to}
        lines={[{ label: "all consumers", values: series.iops, colour: "chart-rate", fill: true }]}
        format={rateFormat}
        isLow
      />
    </>
  );
}

interface Throttle {
  title: string;
  line: ChartLine;
  format: (value: number | null) => string;
}

/** The throttles that were used in this time; without any, the number of throttled consumers. */
function throttles(series: Series): Throttle[] {
  const line = (label: string, values: (number | null)[]): ChartLine => ({
    label,
    values,
    colour: "chart-throttle",
    steps: true,
    fill: true,
  });
  const isUsed = (values: (number | null)[]): boolean => values.some((value) => value !== null);
  const all: Throttle[] = [
    { title: "Window of throttled consumers", line: line("requests", series.window), format: requestFormat },
    { title: "Greatest delay of a request", line: line("delay", series.delay), format: timeFormat },
    { title: "Operating point", line: line("all consumers", series.rate), format: rateFormat },
  ];
  const used = all.filter((one) => isUsed(one.line.values));
  if (used.length > 0) return used;
  return [{ title: "Throttled consumers", line: line("consumers", series.held), format: countFormat }];
}

const timeFormat = (value: number | null): string => (value === 0 ? "0" : duration(value));
const rateFormat = (value: number | null): string =>
  value === 0 ? "0" : value === null ? UNKNOWN : `${plainRate(value)} IO/s`;
const requestFormat = (value: number | null): string => (value === null ? "none" : requests(value));
const countFormat = (value: number | null): string =>
  value === null ? UNKNOWN : Number.isInteger(value) ? String(value) : "";

function RangeForm({ onPick }: { onPick: (span: Span) => void }) {
  const now = Date.now();
  const [from, setFrom] = useState(inputText(now - 3_600_000));
  const [to, setTo] = useState(inputText(now));
  const [begin, end] = [inputTime(from), inputTime(to)];
  const isRange = begin !== null && end !== null && begin < end;
  return (
    <form
      class="range"
      onSubmit={(event) => {
        event.preventDefault();
        if (isRange) onPick({ live: false, words: "other", from: begin, to: end });
      }}
    >
      <label>
        From ({ZONE})
        <input
          type="datetime-local"
          step="1"
          value={from}
          onInput={(event) => setFrom(event.currentTarget.value)}
        />
      </label>
      <label>
        To ({ZONE})
        <input
          type="datetime-local"
          step="1"
          value={to}
          onInput={(event) => setTo(event.currentTarget.value)}
        />
      </label>
      <button class="main" disabled={!isRange}>
        Show
      </button>
      {isRange ? null : <span class="problem">The end must come after the beginning.</span>}
    </form>
  );
}
