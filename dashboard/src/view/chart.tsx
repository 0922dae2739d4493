// A chart of some columns over time.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";

import { clock, UNKNOWN, ZONE } from "../model/figures";
import { lastAndGreatest, scaleEnd, spikes, wholeScaleEnd } from "../model/series";
import { colour, onTheme } from "./theme";

export interface ChartLine {
  label: string;
  values: (number | null)[];
  /** A colour of style.css, without its dashes. */
  colour: string;
  dash?: number[];
  width?: number;
  /** A value stays until the next one, instead of a slope between them. */
  steps?: boolean;
  fill?: boolean;
}

/** The ends of the axes, which change with the figures. */
interface Ends {
  time: [number, number];
  /** The end of the scale of values, which begins at zero. */
  value: number;
}

const HEIGHT = 180;
const LOW_HEIGHT = 110;

export function Chart({
  title,
  times,
  from,
  to,
  lines,
  format,
  seen = null,
  isLow = false,
}: {
  title: string;
  times: number[];
  from: number;
  to: number;
  lines: ChartLine[];
  format: (value: number | null) => string;
  /** A value that is to be seen: spikes far above it are clipped. `null`: nothing is clipped. */
  seen?: number | null;
  isLow?: boolean;
}) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const [index, setIndex] = useState<number | null>(null);
  const values = lines.map((line) => line.values);
  const whole = wholeScaleEnd(values);
  const end = seen === null ? whole : scaleEnd(values, seen);
  const isClipped = seen !== null && end < whole;
  const ends = useRef<Ends>({ time: [from, to], value: end });
  ends.current = { time: [from, to], value: end };
  const height = isLow ? LOW_HEIGHT : HEIGHT;
  const shape = lines.map((line) => line.label).join("|");

  useEffect(() => {
    const box = place.current;
    if (box === null) return undefined;
    const build = (): void => {
      chart.current?.destroy();
      const options = chartOptions(box.clientWidth, height, lines, format, ends, setIndex);
      chart.current = new uPlot(options, columns(times, lines), box);
    };
    build();
    const resize = new ResizeObserver(() => {
      if (box.clientWidth > 0) chart.current?.setSize({ width: box.clientWidth, height });
    });
    resize.observe(box);
    const forget = onTheme(build);
    return () => {
      resize.disconnect();
      forget();
      chart.current?.destroy();
      chart.current = null;
    };
  }, [shape, height]);

  useEffect(() => {
    chart.current?.setData(columns(times, lines));
  });

  const isEmpty = lines.every((line) => line.values.every((value) => value === null));
  const at = index ?? times.length - 1;
  const onKey = (event: KeyboardEvent): void => {
    const step = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
    if (step === 0 || times.length === 0) return;
    event.preventDefault();
    const next = Math.min(Math.max(at + step * (event.shiftKey ? 20 : 1), 0), times.length - 1);
    const plot = chart.current;
    plot?.setCursor({ left: plot.valToPos(times[next] ?? to, "x"), top: 1 });
    setIndex(next);
  };
  return (
    <div class="chart">
      <h3>
        {title}
        {isClipped ? <span class="legend first">▲ cut off above {format(end)}</span> : null}
        <span class="legend">
          {index !== null && times[at] !== undefined ? <span>at {clock(times[at] * 1_000)}</span> : null}
          {lines.map((line) => (
            <span key={line.label}>
              <Swatch line={line} />
              {line.label} <b>{format(line.values[at] ?? null)}</b>
            </span>
          ))}
        </span>
      </h3>
      <div
        class="plot"
        role="img"
        aria-label={summary(title, lines, format)}
        tabIndex={0}
        ref={place}
        onKeyDown={onKey}
        onBlur={() => setIndex(null)}
      >
        {isEmpty ? <span class="empty">nothing known in this time</span> : null}
      </div>
    </div>
  );
}

/** The sample of a line beside its name. */
function Swatch({ line }: { line: ChartLine }) {
  return (
    <svg width="22" height="8" aria-hidden="true">
      <path
        d="M0 4h22"
        stroke={`var(--${line.colour})`}
        stroke-width={line.width ?? 2}
        stroke-dasharray={line.dash?.join(" ")}
      />
    </svg>
  );
}

/** The chart in words, for those who do not see it. */
function summary(title: string, lines: ChartLine[], format: (value: number | null) => string): string {
  const told = lines.map((line) => {
    const { last, greatest } = lastAndGreatest(line.values);
    if (greatest === null) return `${line.label}: ${UNKNOWN}`;
    return `${line.label}: now ${format(last)}, at most ${format(greatest)}`;
  });
  return `${title}. ${told.join("; ")}. Arrow keys move along it.`;
}

function columns(times: number[], lines: ChartLine[]): uPlot.AlignedData {
  return [times, ...lines.map((line) => line.values)];
}

function chartOptions(
  width: number,
  height: number,
  lines: ChartLine[],
  format: (value: number | null) => string,
  ends: { current: Ends },
  setIndex: (index: number | null) => void,
): uPlot.Options {
  const axis = {
    stroke: colour("soft"),
    font: FONT,
    grid: { stroke: colour("line"), width: 1 },
    ticks: { stroke: colour("line"), width: 1, size: 4 },
  };
  return {
    width: Math.max(width, 50),
    height,
    legend: { show: false },
    padding: [8, () => (isDated(ends.current.time) ? 50 : 32), 0, 0],
    cursor: { y: false, drag: { setScale: false, x: false }, sync: { key: "tidegate" }, points: { size: 7 } },
    hooks: {
      setCursor: [(plot) => setIndex(plot.cursor.idx ?? null)],
      draw: [(plot) => markClipped(plot, ends.current.value, format)],
    },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1_000), ZONE),
    scales: {
      x: { time: true, range: () => ends.current.time },
      // From zero on: a latency looks as great as it is.
      y: { range: () => [0, ends.current.value] },
    },
    axes: [
      {
        ...axis,
        size: 26,
        gap: 3,
        space: () => (isDated(ends.current.time) ? 110 : 80),
        values: (_plot, splits) => splits.map((split) => timeLabel(split, ends.current.time)),
      },
      {
        ...axis,
        // The same for most charts, so that one stands exactly above the other.
        size: (plot, labels) => Math.max(LABEL_WIDTH, widest(plot, labels) + 10),
        gap: 3,
        space: 26,
        values: (_plot, splits) => splits.map((split) => format(split)),
      },
    ],
    series: [
      {},
      ...lines.map((line): uPlot.Series => ({
        stroke: colour(line.colour),
        width: line.width ?? 2,
        points: { show: false },
        spanGaps: false,
        ...(line.dash === undefined ? {} : { dash: line.dash }),
        ...(line.fill ? { fill: `${colour(line.colour)}22` } : {}),
        ...(line.steps ? stepped() : {}),
      })),
    ],
  };
}

const FONT = "12px system-ui, sans-serif";
const LABEL_WIDTH = 78;

/** The width of the widest label, in pixels of the page. */
function widest({ ctx }: uPlot, labels: string[] | null): number {
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  const widths = (labels ?? []).map((label) => ctx.measureText(label).width);
  return Math.ceil(Math.max(0, ...widths) / devicePixelRatio);
}

/** Marks each spike that the scale cuts off, with its height where there is room for that. */
function markClipped(plot: uPlot, end: number, format: (value: number | null) => string): void {
  const [times, ...columns] = plot.data;
  const { ctx, bbox } = plot;
  const size = 5 * devicePixelRatio;
  const place = (index: number): number => plot.valToPos(times[index] ?? 0, "x", true);
  ctx.save();
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.fillStyle = colour("text");
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  let free = bbox.left;
  for (const spike of spikes(columns, end)) {
    const left = place(spike.at);
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left + size, bbox.top + size * 1.6);
    ctx.lineTo(left - size, bbox.top + size * 1.6);
    ctx.fill();
    const text = format(spike.height);
    const { width } = ctx.measureText(text);
    const behind = Math.max(place(spike.last), left) + size * 2;
    const before = Math.min(place(spike.first), left) - size * 2 - width;
    const fits = behind + width <= bbox.left + bbox.width;
    const begin = fits ? behind : before;
    if (begin < free) continue;
    ctx.fillText(text, begin, bbox.top);
    free = begin + width + size * 2;
  }
  ctx.restore();
}

function stepped(): Pick<uPlot.Series, "paths"> {
  const paths = uPlot.paths.stepped?.({ align: 1 });
  return paths === undefined ? {} : { paths };
}

const SHORT = new Intl.DateTimeFormat("en-GB", { timeZone: ZONE, hour: "2-digit", minute: "2-digit" });
const EXACT = new Intl.DateTimeFormat("en-GB", {
  timeZone: ZONE,
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
const DATED = new Intl.DateTimeFormat("en-GB", {
  timeZone: ZONE,
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});

/** Returns true if the times of a span need their dates. */
function isDated([from, to]: [number, number]): boolean {
  return to - from > 86_400 * 1.5;
}

function timeLabel(seconds: number, range: [number, number]): string {
  const form = isDated(range) ? DATED : range[1] - range[0] < 480 ? EXACT : SHORT;
  return form.format(new Date(seconds * 1_000));
}
