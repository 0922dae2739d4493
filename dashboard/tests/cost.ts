// What an open dashboard costs: processor time of the service and of the page's thread, with 1,000
// resources and 10,000 consumers.
//
//   node cost.mjs --program BINARY --chromium BINARY [--seconds NUMBER]

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";

import { chromium, type Browser, type CDPSession } from "playwright-core";

import { freePort, Gateway, Load } from "./gateway";

const RESOURCES = 1_000;
const CONSUMERS = 10;
/** Resources with load. */
const LOADED = 4;
/** The pages that are open at a time. */
const PAGES = [0, 1, 4];
const TICKS_PER_SECOND = 100;

const { values } = parseArgs({
  options: {
    program: { type: "string" },
    chromium: { type: "string" },
    seconds: { type: "string", default: "30" },
  },
});
if (values.program === undefined || values.chromium === undefined) {
  console.error("usage: node cost.mjs --program BINARY --chromium BINARY [--seconds NUMBER]");
  process.exit(2);
}
const seconds = Number(values.seconds);

const port = await freePort();
const gateway = new Gateway(values.program, configuration(port));
const loads: Load[] = [];
const browser = await chromium.launch({ executablePath: values.chromium, args: ["--no-sandbox"] });
try {
  await gateway.start();
  for (let resource = 0; resource < LOADED; resource += 1) {
    loads.push(new Load(gateway, consumer(resource, 0), ["--rate", "30"]));
    loads.push(new Load(gateway, consumer(resource, 1), ["--depth", "16"]));
  }
  await measure(browser);
} finally {
  for (const load of loads) load.stop();
  await browser.close();
  await gateway.end();
}

async function measure(running: Browser): Promise<void> {
  // Each page has its session from the beginning: the browser counts from when a session asks.
  const pages: CDPSession[] = [];
  const results = [];
  for (const number of PAGES) {
    while (pages.length < number) pages.push(await open(running));
    // A page that was just opened has more to do.
    await sleep(5_000);
    const [service, page] = [processTicks(), await pageTime(pages[0])];
    await sleep(seconds * 1_000);
    const after = await pageTime(pages[0]);
    const busy = (processTicks() - service) / TICKS_PER_SECOND / seconds;
    const perUpdate = (key: keyof PageTime): number | null =>
      page === null || after === null ? null : round(((after[key] - page[key]) * 1_000) / seconds);
    results.push({
      pages: number,
      service_processor: round(busy),
      page_thread_ms_per_second: perUpdate("TaskDuration"),
      of_it_script_ms: perUpdate("ScriptDuration"),
      of_it_layout_ms: perUpdate("LayoutDuration"),
      page_heap_mib: after === null ? null : round(after.JSHeapUsedSize / 1_048_576),
    });
  }
  const stream = await streamBytes();
  console.log(
    JSON.stringify(
      { resources: RESOURCES, consumers: RESOURCES * CONSUMERS, seconds, status_bytes: stream, results },
      null,
      2,
    ),
  );
}

async function open(running: Browser): Promise<CDPSession> {
  const page = await running.newPage({ viewport: { width: 1_280, height: 900 } });
  const begin = Date.now();
  await page.goto(gateway.url(port));
  await page.getByText("live", { exact: true }).waitFor();
  console.error(`live ${Date.now() - begin} ms after it was asked for`);
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  return session;
}

interface PageTime {
  TaskDuration: number;
  ScriptDuration: number;
  LayoutDuration: number;
  JSHeapUsedSize: number;
}

async function pageTime(session: CDPSession | undefined): Promise<PageTime | null> {
  if (session === undefined) return null;
  const { metrics } = await session.send("Performance.getMetrics");
  return Object.fromEntries(metrics.map(({ name, value }) => [name, value])) as unknown as PageTime;
}

/** The processor time of the service so far, in ticks. */
function processTicks(): number {
  const fields = readFileSync(`/proc/${gateway.pid}/stat`, "utf8").split(") ").at(-1)?.split(" ") ?? [];
  return Number(fields[11]) + Number(fields[12]);
}

/** The bytes of one status event, as a page gets it. */
async function streamBytes(): Promise<number> {
  const stop = new AbortController();
  const answer = await fetch(`${gateway.url(port)}v1/events?consumers_of=${resource(0)}`, {
    signal: stop.signal,
  });
  const reader = answer.body?.getReader();
  let bytes = 0;
  for (;;) {
    const piece = await reader?.read();
    if (piece?.value === undefined) break;
    bytes += piece.value.length;
    // The last piece of an event ends with an empty line.
    if (piece.value.at(-1) === 10 && piece.value.at(-2) === 10) break;
  }
  stop.abort();
  return bytes;
}

function resource(number: number): string {
  return `array-${number}`;
}

function consumer(ofResource: number, number: number): string {
  return `a${ofResource}-vm-${number}`;
}

function round(value: number): number {
  return Math.round(value * 1_000) / 1_000;
}

function configuration(at: number): string {
  const lines = ["listen = ['unix:nbd.sock']", `metrics = '127.0.0.1:${at}'`];
  for (let number = 0; number < RESOURCES; number += 1) {
    lines.push(
      `[pool.${resource(number)}]`,
      "backend = { kind = 'emulated', exponential = { rate = '200 IO/s', servers = 1, capacity = '64MiB' } }",
      "target = '20ms'",
    );
    for (let one = 0; one < CONSUMERS; one += 1) {
      lines.push(`export.${consumer(number, one)} = { size = '1MiB', protected = ${one === 0} }`);
    }
  }
  return `${lines.join("\n")}\n`;
}
