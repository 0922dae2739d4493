// The walk through the page of a real broker: one transfer under way, and one that waits for it.

import assert from "node:assert/strict";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import type { Browser } from "playwright-core";

import { freePort, Service, temporaryFolder } from "./gateway";
import { barriers, fits, keepToken, LOOKS, PATIENCE, step, WIDE } from "./walking";

const TOKEN = "a-token-of-the-broker-that-is-long-enough";

export async function walkBroker(browser: Browser, program: string): Promise<void> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}/`;
  const folder = temporaryFolder();
  mkdirSync(join(folder, "a"));
  writeFileSync(join(folder, "token"), TOKEN, { mode: 0o600 });
  writeFileSync(
    join(folder, "broker.toml"),
    `listen = "127.0.0.1:${port}"\nstate = "state"\ntoken_file = "token"\n` +
      `[node.a]\nplace = "file://${join(folder, "a")}"\npeak = "60MB/s"\n`,
  );
  const broker = new Service(program, ["broker", "-c", "broker.toml"], folder);
  await broker.start();
  const context = await browser.newContext({ viewport: WIDE, colorScheme: "light" });
  context.setDefaultTimeout(PATIENCE);
  try {
    await step("a broker's page asks for its token", async () => {
      const page = await context.newPage();
      await page.goto(url);
      await page.getByRole("heading", { name: "A token is needed" }).waitFor();
      await barriers(page, "the question for a broker's token");
      await page.getByLabel("Token of the broker").fill(TOKEN);
      await page.keyboard.press("Enter");
      await page.getByRole("row", { name: /^a file:/ }).waitFor();
      await page.getByText("No transfer waits or is under way.").waitFor();
      await page.close();
    });

    await step("transfers under way and waiting are told, for every eye", async () => {
      for (const name of ["first", "second"]) await place(url, name);
      for (const look of LOOKS) {
        const other = await browser.newContext({ viewport: look.viewport, colorScheme: look.colorScheme });
        other.setDefaultTimeout(PATIENCE);
        await keepToken(other, TOKEN);
        const page = await other.newPage();
        await page.goto(url);
        const transfers = page.getByRole("region", { name: "Transfers" });
        await transfers.getByText("writes to a").waitFor();
        await transfers.getByText("waits to write").waitFor();
        await page.getByText("1 transfer waiting").waitFor();
        await barriers(page, `a broker, ${look.name}`);
        await fits(page, look);
        await other.close();
      }
    });

    await step("a broker that is gone is told", async () => {
      const page = await context.newPage();
      await keepToken(context, TOKEN);
      await page.goto(url);
      await page.getByText("live", { exact: true }).waitFor();
      await broker.stop();
      await page
        .getByRole("alert")
        .getByText(/Not connected:/)
        .waitFor();
      await page.waitForFunction(() => document.title.startsWith("not connected"));
    });
  } finally {
    await context.close();
    await broker.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Asks for a transfer that takes most of the node. */
async function place(url: string, name: string): Promise<void> {
  const answer = await fetch(`${url}v1/place`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Authorization: `Bearer ${TOKEN}` },
    body: JSON.stringify({ way: "write", name, size: 1_000_000_000, needs: { average: 50_000_000 } }),
  });
  assert.ok(answer.ok, await answer.text());
}
