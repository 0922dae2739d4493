// The figures of a resource over the last minutes, as the page has seen them.

import type { ConsumerStatus, HistoryPoint, ResourceHistory, ResourceStatus } from "../service/documents";

/** Columns for a chart: times in seconds since 1970, and values. `null` is unknown, and a gap. */
export interface Series {
  times: number[];
  latency: (number | null)[];
  worst: (number | null)[];
  target: (number | null)[];
  setPoint: (number | null)[];
  window: (number | null)[];
  delay: (number | null)[];
  rate: (number | null)[];
  held: (number | null)[];
  iops: (number | null)[];
  /** By name, as long as the other columns. */
  consumers: Map<string, ConsumerColumns>;
}

/** One consumer over the same times. */
export interface ConsumerColumns {
  iops: (number | null)[];
  latency: (number | null)[];
  /** The part of the time for which it was throttled, from 0 to 1. */
  throttled: (number | null)[];
}

type Column = Exclude<keyof Series, "times" | "consumers">;
type ConsumerColumn = keyof ConsumerColumns;

const COLUMNS: readonly Column[] = [
  "latency",
  "worst",
  "target",
  "setPoint",
  "window",
  "delay",
  "rate",
  "held",
  "iops",
];

const CONSUMER_COLUMNS: readonly ConsumerColumn[] = ["iops", "latency", "throttled"];

/** Figures of more consumers of a resource are not remembered. */
const MOST_CONSUMERS = 200;

export function emptySeries(): Series {
  return {
    times: [],
    latency: [],
    worst: [],
    target: [],
    setPoint: [],
    window: [],
    delay: [],
    rate: [],
    held: [],
    iops: [],
    consumers: new Map(),
  };
}

/** The columns of a consumer, with nothing known of the times so far. `null`: there are too many. */
function columnsOf(series: Series, name: string): ConsumerColumns | null {
  const known = series.consumers.get(name);
  if (known !== undefined) return known;
  if (series.consumers.size >= MOST_CONSUMERS) return null;
  const nothing = (): null[] => series.times.map(() => null);
  const columns = { iops: nothing(), latency: nothing(), throttled: nothing() };
  series.consumers.set(name, columns);
  return columns;
}

/** A second without a status is a gap after so many seconds. */
const GAP_SECONDS = 3.5;

/** The time that the page remembers: ten minutes. */
export const REMEMBERED_SECONDS = 600;

/** Appends a value of each column, and forgets what is too old. */
export class LiveSeries {
  readonly series = emptySeries();
  /** Recorded figures of the time before were asked for. */
  isFilled = false;

  push(seconds: number, resource: ResourceStatus): void {
    const last = this.series.times.at(-1);
    if (last !== undefined && seconds <= last) return;
    if (last !== undefined && seconds - last > GAP_SECONDS) this.#append(last + 1, {}, []);
    this.#append(seconds, figures(resource), resource.consumers);
    let old = 0;
    while ((this.series.times[old] ?? seconds) < seconds - REMEMBERED_SECONDS) old += 1;
    // In lumps: taking from the front moves all the rest.
    if (old > 60) this.#forget(old);
  }

  /** Puts recorded figures before those that the page has seen itself. */
  prepend(history: ResourceHistory): void {
    const first = this.series.times[0] ?? Infinity;
    // The first ones: so the columns of consumers still fit.
    const isEarlier = (point: HistoryPoint): boolean => point.at_seconds + history.step_seconds < first;
    const earlier = historySeries({ ...history, points: history.points.filter(isEarlier) });
    const last = earlier.times.at(-1);
    if (last === undefined) return;
    if (first - last > history.step_seconds + GAP_SECONDS) {
      appendTo(earlier, last + history.step_seconds, {}, new Map());
    }
    for (const name of earlier.consumers.keys()) columnsOf(this.series, name);
    for (const [name, columns] of this.series.consumers) {
      const before = columnsOf(earlier, name);
      for (const column of CONSUMER_COLUMNS) {
        columns[column].unshift(...(before?.[column] ?? earlier.times.map(() => null)));
      }
    }
    this.series.times.unshift(...earlier.times);
    for (const column of COLUMNS) this.series[column].unshift(...earlier[column]);
  }

  #append(time: number, values: Figures, consumers: ConsumerStatus[]): void {
    appendTo(this.series, time, values, new Map(consumers.map((one) => [one.name, consumerFigures(one)])));
  }

  #forget(count: number): void {
    const { series } = this;
    series.times.splice(0, count);
    for (const column of COLUMNS) series[column].splice(0, count);
    for (const [name, columns] of series.consumers) {
      for (const column of CONSUMER_COLUMNS) columns[column].splice(0, count);
      if (columns.iops.every((value) => value === null)) series.consumers.delete(name);
    }
  }
}

type Figures = Partial<Record<Column, number | null>>;
type ConsumerFigures = Record<ConsumerColumn, number | null>;

/** Appends one time. Columns without a value get a gap. */
function appendTo(
  series: Series,
  time: number,
  values: Figures,
  consumers: Map<string, ConsumerFigures>,
): void {
  for (const name of consumers.keys()) columnsOf(series, name);
  series.times.push(time);
  for (const column of COLUMNS) series[column].push(values[column] ?? null);
  for (const [name, columns] of series.consumers) {
    const known = consumers.get(name);
    for (const column of CONSUMER_COLUMNS) columns[column].push(known?.[column] ?? null);
  }
}

function consumerFigures(one: ConsumerStatus): ConsumerFigures {
  return {
    iops: one.recent?.iops ?? null,
    latency: one.recent?.response_time_seconds ?? null,
    throttled: one.held === null ? null : one.held ? 1 : 0,
  };
}

function figures(resource: ResourceStatus): Figures {
  const { law, decided, recent } = resource;
  const point = decided?.operating_point;
  const isMeasured = decided?.input === "samples";
  return {
    latency: isMeasured ? decided.estimate_seconds : null,
    worst: isMeasured ? decided.measured_seconds : null,
    target: law?.target_seconds ?? null,
    setPoint: decided?.set_point_seconds ?? null,
    window: decided?.window_requests ?? null,
    delay: positive(decided?.delay_seconds),
    rate: point?.state === "limits" ? point.iops : null,
    held: decided?.held ?? null,
    iops: recent?.iops ?? null,
  };
}

function positive(value: number | null | undefined): number | null {
  return value !== null && value !== undefined && value > 0 ? value : null;
}

/** The columns of a recorded history, with gaps where nothing was decided. */
export function historySeries(history: ResourceHistory): Series {
  const series = emptySeries();
  let expected: number | null = null;
  history.points.forEach((point, index) => {
    // A part without decisions may follow from a control interval longer than a part.
    const isGap =
      expected !== null && point.at_seconds - expected > Math.max(history.step_seconds, GAP_SECONDS);
    if (isGap && expected !== null) appendTo(series, expected, {}, new Map());
    const consumers = history.consumers.map((one): [string, ConsumerFigures] => [
      one.name,
      {
        iops: one.iops[index] ?? null,
        latency: one.latency_seconds[index] ?? null,
        throttled: one.throttled[index] ?? null,
      },
    ]);
    appendTo(series, point.at_seconds, pointFigures(point), new Map(consumers));
    expected = point.at_seconds + history.step_seconds;
  });
  return series;
}

function pointFigures(point: HistoryPoint): Figures {
  return {
    latency: point.latency_seconds,
    worst: point.worst_latency_seconds,
    target: point.target_seconds,
    setPoint: point.set_point_seconds,
    window: point.window_requests,
    delay: point.delay_seconds,
    rate: point.rate_iops,
    held: point.held,
    iops: point.iops,
  };
}

/** The mean of the values that are known. `null`: none is. */
export function mean(values: (number | null)[]): number | null {
  let sum = 0;
  let count = 0;
  for (const value of values) {
    if (value === null) continue;
    sum += value;
    count += 1;
  }
  return count === 0 ? null : sum / count;
}

/** A scale that ends at less than this part of the greatest value is clipped. */
const CLIPPED = 0.5;
const USUAL = 0.95;

/** The end of a scale from zero on that shows all values. */
export function wholeScaleEnd(columns: (number | null)[][]): number {
  const greatest = Math.max(0, ...columns.map((values) => lastAndGreatest(values).greatest ?? 0));
  return greatest > 0 ? greatest * 1.15 : 1;
}

/**
 * The end of a scale from zero on. A few spikes that are far above all else, and above what is to be seen
 * beside them, do not stretch it: they are clipped there. A column that is high for longer is shown whole.
 */
export function scaleEnd(columns: (number | null)[][], seen: number): number {
  const usual = Math.max(0, ...columns.map(usualValue));
  const whole = wholeScaleEnd([...columns, [seen]]);
  const room = Math.max(usual * 2, seen * 3);
  return room > 0 && room < whole * CLIPPED ? room : whole;
}

/** The value that one in twenty exceeds. */
function usualValue(column: (number | null)[]): number {
  const values = column.filter((value) => value !== null).sort((one, other) => one - other);
  return values[Math.floor((values.length - 1) * USUAL)] ?? 0;
}

/** Times in a row at which a value is beyond a scale, as indexes. */
export interface Spike {
  first: number;
  last: number;
  /** The place of the greatest value. */
  at: number;
  height: number;
}

export function spikes(columns: ArrayLike<number | null | undefined>[], end: number): Spike[] {
  const found: Spike[] = [];
  const length = Math.max(0, ...columns.map((column) => column.length));
  for (let index = 0; index < length; index += 1) {
    const value = columns.reduce((most, column) => Math.max(most, column[index] ?? 0), 0);
    if (value <= end) continue;
    const open = found.at(-1);
    if (open === undefined || open.last < index - 1) {
      found.push({ first: index, last: index, at: index, height: value });
      continue;
    }
    open.last = index;
    if (value > open.height) Object.assign(open, { at: index, height: value });
  }
  return found;
}

/** The last value, and the greatest. `null`: none is known. */
export function lastAndGreatest(values: (number | null)[]): { last: number | null; greatest: number | null } {
  let greatest: number | null = null;
  for (const value of values) if (value !== null && (greatest === null || value > greatest)) greatest = value;
  return { last: values.at(-1) ?? null, greatest };
}
