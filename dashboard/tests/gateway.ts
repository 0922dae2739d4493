// A real gateway in front of an emulated array, and clients that load it.

import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export const READERS = "a-token-for-those-that-read";
export const OPERATORS = "a-token-for-those-that-operate";

/** What both hosts of the cluster have. */
const HOST = `
listen = ['unix:nbd.sock']

[cluster]
name = 'san-a'
host = 'HOST'
carrier = { kind = 'file', path = '../cluster' }

[pool.array]
backend = { kind = 'emulated', exponential = { rate = '200 IO/s', servers = 1, capacity = '1GiB' } }
target = '20ms'
cluster = true
`;

/** A database beside a backup, and two consumers that bands divide an array for. */
const FIRST_HOST = `
${HOST.replace("HOST", "host-1").replace(
  "\n[cluster]",
  `
journal = { folder = 'journal', limit = '64MiB' }

[api]
listen = ['127.0.0.1:PORT']
readers = 'readers'
operators = 'operators'

[cluster]`,
)}
law = 'window'
dry_run = true
export.database = { size = '64MiB', protected = true }
export.backup = { size = '64MiB' }

[pool.vault]
backend = { kind = 'emulated', exponential = { rate = '200 IO/s', servers = 1, capacity = '1GiB' } }
law = 'self-tuning'
target = '40ms'
bands = [
    { up_to = '50 IO/s', ratios = { business = 0.5, mining = 0.5 } },
    { up_to = '120 IO/s', ratios = { business = 1.0 } },
    { up_to = '400 IO/s', ratios = { mining = 1.0 } },
]
export.business = { size = '64MiB', goal = '30ms' }
export.mining = { size = '64MiB' }
`;

const SECOND_HOST = `
${HOST.replace("HOST", "host-2")}
export.archive = { size = '64MiB' }
`;

const PATIENCE_MS = 60_000;

/** Two gateways that hear each other. The page is that of the first one. */
export class Gateways {
  readonly url: string;
  readonly #folder = temporaryFolder();
  readonly #first: Gateway;
  readonly #second: Gateway;

  private constructor(
    readonly program: string,
    port: number,
  ) {
    this.url = `http://127.0.0.1:${port}/`;
    this.#first = new Gateway(program, FIRST_HOST.replace("PORT", String(port)), join(this.#folder, "first"));
    this.#second = new Gateway(program, SECOND_HOST, join(this.#folder, "second"));
  }

  static async start(program: string): Promise<Gateways> {
    const gateways = new Gateways(program, await freePort());
    await gateways.#second.start();
    await gateways.#first.start();
    return gateways;
  }

  startFirst(): Promise<void> {
    return this.#first.start();
  }

  stopFirst(): Promise<void> {
    return this.#first.stop();
  }

  uri(name: string): string {
    return this.#first.uri(name);
  }

  async end(): Promise<void> {
    await Promise.all([this.#first.stop(), this.#second.stop()]);
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** A service of the program, in a folder. */
export class Service {
  #process: ChildProcess | undefined;

  constructor(
    readonly program: string,
    readonly command: string[],
    readonly folder: string,
  ) {}

  async start(): Promise<void> {
    const log = join(this.folder, "log");
    writeFileSync(log, "");
    const file = openSync(log, "a");
    const started = spawn(this.program, this.command, {
      cwd: this.folder,
      stdio: ["ignore", "ignore", file],
    });
    closeSync(file);
    this.#process = started;
    const end = Date.now() + PATIENCE_MS;
    while (!readFileSync(log, "utf8").includes(" ready")) {
      if (started.exitCode !== null || Date.now() > end) throw new Error(readFileSync(log, "utf8"));
      await sleep(20);
    }
  }

  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const running = this.#process;
    this.#process = undefined;
    if (running === undefined || running.exitCode !== null) return;
    const ended = new Promise((resolve) => running.once("exit", resolve));
    running.kill(signal);
    await ended;
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }
}

/** One gateway, in a folder of its own. */
export class Gateway extends Service {
  constructor(program: string, configuration: string, folder = temporaryFolder()) {
    super(program, ["serve", "-c", "tidegate.toml"], folder);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "readers"), READERS, { mode: 0o600 });
    writeFileSync(join(folder, "operators"), OPERATORS, { mode: 0o600 });
    writeFileSync(join(folder, "tidegate.toml"), configuration);
  }

  /** Stops it, and removes its folder. */
  async end(): Promise<void> {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  url(port: number): string {
    return `http://127.0.0.1:${port}/`;
  }

  uri(name: string): string {
    return `nbd+unix:///${name}?socket=${join(this.folder, "nbd.sock")}`;
  }
}

export function temporaryFolder(): string {
  return mkdtempSync(join(tmpdir(), "tidegate-dashboard-"));
}

/** A client that loads an export until it is stopped, and comes back when the gateway does. */
export class Load {
  #process: ChildProcess | undefined;
  #isStopped = false;

  constructor(
    readonly gateway: { program: string; uri(name: string): string },
    readonly name: string,
    readonly options: string[],
  ) {
    this.#start();
  }

  #start(): void {
    const arguments_ = ["load", this.gateway.uri(this.name), "--duration", "1h", ...this.options];
    this.#process = spawn(this.gateway.program, arguments_, { stdio: "ignore" });
    this.#process.once("exit", () => {
      if (!this.#isStopped) setTimeout(() => this.#isStopped || this.#start(), 500);
    });
  }

  stop(): void {
    this.#isStopped = true;
    this.#process?.kill("SIGKILL");
  }
}

/** A port that nothing listens at now. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}
