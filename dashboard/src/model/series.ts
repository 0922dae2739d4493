// The figures of a resource over the last minutes, as the page has seen them.

import type { HistoryPoint, ResourceHistory, ResourceStatus } from "../service/documents";

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
}

type Column = Exclude<keyof Series, "times">;

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
  };
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
    if (last !== undefined && seconds - last > GAP_SECONDS) this.#append(last + 1, {});
    this.#append(seconds, figures(resource));
    let old = 0;
    while ((this.series.times[old] ?? seconds) < seconds - REMEMBERED_SECONDS) old += 1;
    // In lumps: taking from the front moves all the rest.
    if (old > 60) this.#forget(old);
  }

  /** Puts recorded figures before those that the page has seen itself. */
  prepend(history: ResourceHistory): void {
    const first = this.series.times[0] ?? Infinity;
    const earlier = historySeries({
      ...history,
      points: history.points.filter((point) => point.at_seconds + history.step_seconds < first),
    });
    const last = earlier.times.at(-1);
    if (last !== undefined && first - last > history.step_seconds + GAP_SECONDS) {
      earlier.times.push(last + history.step_seconds);
      for (const column of COLUMNS) earlier[column].push(null);
    }
    this.series.times.unshift(...earlier.times);
    for (const column of COLUMNS) this.series[column].unshift(...earlier[column]);
  }

  #append(time: number, values: Partial<Record<Column, number | null>>): void {
    this.series.times.push(time);
    for (const column of COLUMNS) this.series[column].push(values[column] ?? null);
  }

  #forget(count: number): void {
    this.series.times.splice(0, count);
    for (const column of COLUMNS) this.series[column].splice(0, count);
  }
}

function figures(resource: ResourceStatus): Partial<Record<Column, number | null>> {
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
  const append = (time: number, point: HistoryPoint | null): void => {
    series.times.push(time);
    series.latency.push(point?.latency_seconds ?? null);
    series.worst.push(point?.worst_latency_seconds ?? null);
    series.target.push(point?.target_seconds ?? null);
    series.setPoint.push(point?.set_point_seconds ?? null);
    series.window.push(point?.window_requests ?? null);
    series.delay.push(point?.delay_seconds ?? null);
    series.rate.push(point?.rate_iops ?? null);
    series.held.push(point?.held ?? null);
    series.iops.push(point?.iops ?? null);
  };
  for (const point of history.points) {
    // A part without decisions may follow from a control interval longer than a part.
    const isGap =
      expected !== null && point.at_seconds - expected > Math.max(history.step_seconds, GAP_SECONDS);
    if (isGap && expected !== null) append(expected, null);
    append(point.at_seconds, point);
    expected = point.at_seconds + history.step_seconds;
  }
  return series;
}

/** The last value, and the greatest. `null`: none is known. */
export function lastAndGreatest(values: (number | null)[]): { last: number | null; greatest: number | null } {
  let greatest: number | null = null;
  for (const value of values) if (value !== null && (greatest === null || value > greatest)) greatest = value;
  return { last: values.at(-1) ?? null, greatest };
}
