// Figures with their units, as the program writes them: three digits, and no more than they mean.

export const UNKNOWN = "unknown";

function threeDigits(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/** A length of time: `250 ms`, `1.20 s`, `3 min`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return UNKNOWN;
  if (seconds === 0) return "0 s";
  if (seconds < 1e-3) return `${threeDigits(seconds * 1e6)} µs`;
  if (seconds < 1) return `${threeDigits(seconds * 1e3)} ms`;
  if (seconds < 120) return `${threeDigits(seconds)} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${threeDigits(seconds / 3_600)} h`;
  return `${threeDigits(seconds / 86_400)} days`;
}

/** An age in words that change at most once a second. */
export function age(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  if (seconds < 1) return "under 1 s";
  return seconds < 120 ? `${Math.floor(seconds)} s` : duration(seconds);
}

export function iops(perSecond: number | null | undefined): string {
  return perSecond === null || perSecond === undefined ? UNKNOWN : `${plainRate(perSecond)} IO/s`;
}

/** A rate without its unit. */
export function plainRate(perSecond: number): string {
  if (perSecond === 0) return "0";
  return perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond).toLocaleString("en");
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

export function byteRate(perSecond: number | null | undefined): string {
  return perSecond === null || perSecond === undefined ? UNKNOWN : `${bytes(perSecond)}/s`;
}

export function bytes(number: number | null | undefined): string {
  if (number === null || number === undefined) return UNKNOWN;
  let unit = 0;
  let value = number;
  while (value >= 1_000 && unit < BYTE_UNITS.length - 1) {
    value /= 1_024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : threeDigits(value)} ${BYTE_UNITS[unit]}`;
}

/** A part in per cent, rounded down: 99.96 % is not all. */
export function percent(part: number | null | undefined): string {
  return part === null || part === undefined ? "?" : `${Math.floor(part * 100)} %`;
}

export function requests(number: number | null | undefined): string {
  return number === null || number === undefined ? UNKNOWN : threeDigits(number);
}

/** `1 consumer`, `2 consumers`. */
export function plural(number: number, noun: string): string {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

/** The zone of all times of the page: that of the log and of the commands. */
export const ZONE = "UTC";

const TIME_OF_DAY = new Intl.DateTimeFormat("en-GB", {
  timeZone: ZONE,
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
const DATE_AND_TIME = new Intl.DateTimeFormat("en-GB", {
  timeZone: ZONE,
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});

/** A time in the zone of the page, with its date unless it is of today. */
export function clock(time: Date | number | string, now: Date = new Date()): string {
  const date = new Date(time);
  const isToday = dayOf(date) === dayOf(now);
  return (isToday ? TIME_OF_DAY : DATE_AND_TIME).format(date);
}

function dayOf(date: Date): string {
  return date.toISOString().slice(0, 10);
}

/** A time as an input for times has it: in the zone of the page, which the text does not name. */
export function inputText(time: number): string {
  return new Date(time).toISOString().slice(0, 19);
}

/** The time that an input for times has. `null`: it has none. */
export function inputTime(text: string): Date | null {
  const time = new Date(`${text}Z`);
  return text === "" || Number.isNaN(time.getTime()) ? null : time;
}
