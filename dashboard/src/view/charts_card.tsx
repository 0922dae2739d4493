// Latency and throttle over time: live, or from the decision journal.

import { useEffect, useMemo, useState } from "preact/hooks";

import { clock, duration, plainRate, requests, UNKNOWN } from "../model/figures";
import { emptySeries, historySeries, REMEMBERED_SECONDS, type Series } from "../model/series";
import { Refusal, service } from "../service/client";
import type { ResourceHistory, ResourceStatus } from "../service/documents";
import type { Store } from "../store";
import { Chart, type ChartLine } from "./chart";

type Span =
  | { live: true }
  | { live: false; words: string; seconds: number }
  | { live: false; words: string; from: Date; to: Date };

const LEAST_LIVE_SECONDS = 60;
const LIVE: Span = { live: true };
const SPANS: readonly [string, number][] = [
  ["1 h", 3_600],
  ["6 h", 21_600],
  ["24 h", 86_400],
  ["7 days", 604_800],
];

export function ChartsCard({ store, resource }: { store: Store; resource: ResourceStatus }) {
  const [span, setSpan] = useState<Span>(LIVE);
  const [picks, setPicks] = useState(false);
  const history = useHistory(resource.name, span, store);
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
        <Charts series={series} from={from} to={to} />
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
    return `A figure each second since ${since}, for ten minutes at most.`;
  }
  if (problem !== null) return `No history: ${problem}.`;
  if (isBusy || history === null) return "Reading the decision journal…";
  const range = `${clock(history.from_seconds * 1_000)} to ${clock(history.to_seconds * 1_000)}`;
  return `${range}, from the decision journal; each figure is of ${duration(history.step_seconds)}.`;
}

function Charts({ series, from, to }: { series: Series; from: number; to: number }) {
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
      <Chart title="Latency" times={series.times} from={from} to={to} lines={latency} format={timeFormat} />
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

interface HistoryAnswer {
  history: ResourceHistory | null;
  problem: string | null;
  isBusy: boolean;
}

const NO_HISTORY: HistoryAnswer = { history: null, problem: null, isBusy: false };

/** Asks for the history of a span; of the live one, for the minutes before the page was opened. */
function useHistory(resource: string, span: Span, store: Store): HistoryAnswer {
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

function RangeForm({ onPick }: { onPick: (span: Span) => void }) {
  const now = Date.now();
  const [from, setFrom] = useState(localText(now - 3_600_000));
  const [to, setTo] = useState(localText(now));
  const [begin, end] = [new Date(from), new Date(to)];
  const isRange = begin.getTime() < end.getTime();
  return (
    <form
      class="range"
      onSubmit={(event) => {
        event.preventDefault();
        if (isRange) onPick({ live: false, words: "other", from: begin, to: end });
      }}
    >
      <label>
        From
        <input
          type="datetime-local"
          step="1"
          value={from}
          onInput={(event) => setFrom(event.currentTarget.value)}
        />
      </label>
      <label>
        To
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

/** A time as an input of the browser has it: by the browser's zone, without naming it. */
function localText(time: number): string {
  const date = new Date(time);
  return new Date(time - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
