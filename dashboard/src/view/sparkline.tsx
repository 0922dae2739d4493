// A small chart of one line, for a row of a table. The row says its figures in words.

const WIDTH = 300;
const HEIGHT = 34;

export function Sparkline({
  times,
  values,
  from,
  to,
  end,
  colour,
  target = null,
  throttled = [],
}: {
  times: number[];
  values: (number | null)[];
  from: number;
  to: number;
  /** The end of the scale, which begins at zero. */
  end: number;
  /** A colour of style.css, without its dashes. */
  colour: string;
  /** A line across. `null`: none. */
  target?: number | null;
  /** The parts of the time for which the consumer was throttled: a band below the line. */
  throttled?: (number | null)[];
}) {
  const x = (time: number): string => (((time - from) / (to - from)) * WIDTH).toFixed(1);
  const y = (value: number): string => (HEIGHT - 1 - Math.min(value / end, 1) * (HEIGHT - 2)).toFixed(1);
  return (
    <svg class="sparkline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      <path class="ground" d={`M0 ${HEIGHT - 0.5}H${WIDTH}`} />
      <path class="throttled" d={bandPath(times, throttled, x)} />
      {target === null || target > end ? null : <path class="target" d={`M0 ${y(target)}H${WIDTH}`} />}
      <path d={linePath(times, values, x, y)} style={{ stroke: `var(--${colour})` }} />
      <path class="clipped" d={clippedPath(times, values, x, end)} />
    </svg>
  );
}

/** A line through the values that are known, with gaps. A value alone is a dot. */
function linePath(
  times: number[],
  values: (number | null)[],
  x: (time: number) => string,
  y: (value: number) => string,
): string {
  let path = "";
  let isDrawing = false;
  values.forEach((value, index) => {
    if (value !== null)
      path += `${isDrawing ? "L" : "M"}${x(times[index] ?? 0)} ${y(value)}${isDrawing ? "" : "h0"}`;
    isDrawing = value !== null;
  });
  return path;
}

/** A bar for each time in which the consumer was throttled, as high as the part of it. */
function bandPath(times: number[], throttled: (number | null)[], x: (time: number) => string): string {
  let path = "";
  throttled.forEach((part, index) => {
    const time = times[index];
    const next = times[index + 1];
    if (part === null || part === 0 || time === undefined || next === undefined) return;
    const top = (HEIGHT * (1 - part)).toFixed(1);
    path += `M${x(time)} ${HEIGHT}V${top}H${x(next)}V${HEIGHT}Z`;
  });
  return path;
}

/** A mark at the upper edge for each value beyond the scale. */
function clippedPath(
  times: number[],
  values: (number | null)[],
  x: (time: number) => string,
  end: number,
): string {
  let path = "";
  values.forEach((value, index) => {
    if (value !== null && value > end) path += `M${x(times[index] ?? 0)} 0v4`;
  });
  return path;
}
