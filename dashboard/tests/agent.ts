// The walk through the page of a real agent, to which an initiator with an agent reports.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import type { Browser } from "playwright-core";

import { freePort, Service, temporaryFolder } from "./gateway";
import { barriers, fits, LOOKS, PATIENCE, step, WIDE } from "./walking";

const KEY = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0MTI=";

/** An agent on a dry run, which needs no rights. */
function agent(program: string, folder: string, configuration: string): Service {
  mkdirSync(folder);
  writeFileSync(join(folder, "key"), KEY, { mode: 0o600 });
  writeFileSync(join(folder, "agent.toml"), configuration);
  return new Service(program, ["agent", "-c", "agent.toml"], folder);
}

function cluster(host: string, own: number, peer: number): string {
  return (
    `[cluster]\nname = "san-a"\nhost = "${host}"\n` +
    `carrier = { kind = "udp", listen = "127.0.0.1:${own}", ` +
    `peers = ["127.0.0.1:${peer}"], key_file = "key" }\n`
  );
}

/** The first block device of this machine. */
function device(): string {
  const name = readFileSync("/proc/diskstats", "utf8").trim().split(/\s+/)[2];
  assert.ok(name !== undefined, "a block device");
  return name;
}

export async function walkAgent(browser: Browser, program: string): Promise<void> {
  const folder = temporaryFolder();
  const [page, own, peer] = [await freePort(), await freePort(), await freePort()];
  const url = `http://127.0.0.1:${page}/`;
  const target = agent(
    program,
    join(folder, "target"),
    `metrics = "127.0.0.1:${page}"\n${cluster("target", own, peer)}` +
      `[resource.vg0]\ndevice = "no-such-device"\ntarget = "15ms"\ndry_run = true\nreports = true\n`,
  );
  const initiator = agent(
    program,
    join(folder, "initiator"),
    `${cluster("db1", peer, own)}[report_to.vg0]\ndevice = "${device()}"\ninterval = "100ms"\n`,
  );
  await target.start();
  await initiator.start();
  const context = await browser.newContext({ viewport: WIDE, colorScheme: "light" });
  context.setDefaultTimeout(PATIENCE);
  try {
    await step("an initiator that reports is shown, and the reason why it does not count", async () => {
      const page = await context.newPage();
      await page.goto(url);
      const signal = page.getByRole("region", { name: "Signal" });
      await signal.getByText("The law steers by what this host measures.").waitFor();
      const row = signal.getByRole("row", { name: /^db1 none / });
      await row.getByText("under 1 s ago").waitFor();
      await row.getByText("does not count: no consumer of the resource by its name or address").waitFor();
      for (const look of LOOKS) {
        const other = await browser.newContext({ viewport: look.viewport, colorScheme: look.colorScheme });
        other.setDefaultTimeout(PATIENCE);
        const page = await other.newPage();
        await page.goto(url);
        await page.getByRole("region", { name: "Signal" }).getByText("db1").waitFor();
        await barriers(page, `reports, ${look.name}`);
        await fits(page, look);
        await other.close();
      }
      // One that ends by itself says farewell, and is not shown any more.
      await initiator.stop("SIGKILL");
      await row.getByText("too old to count").waitFor();
    });
  } finally {
    await context.close();
    await initiator.stop();
    await target.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}
