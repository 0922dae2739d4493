// Walks through the page of a real service, as an administrator at night would: a database suffers, the law
// helps, an explanation says how, and an operator changes things. On the way axe-core looks for barriers.
//
//   node walk.mjs --program BINARY --chromium BINARY [--pictures FOLDER]

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { parseArgs } from "node:util";

import { chromium, type Browser, type BrowserContext, type Locator, type Page } from "playwright-core";

import { walkAgent } from "./agent";
import { walkBroker } from "./broker";
import { Gateways, Load, OPERATORS, READERS } from "./gateway";
import { PathProxy } from "./proxy";
import { barriers, fits, keepToken, LOOKS, PATIENCE, step, WIDE, type Look } from "./walking";

const { values } = parseArgs({
  options: { program: { type: "string" }, chromium: { type: "string" }, pictures: { type: "string" } },
});
if (values.program === undefined || values.chromium === undefined) {
  console.error("usage: node walk.mjs --program BINARY --chromium BINARY [--pictures FOLDER]");
  process.exit(2);
}
const pictures = values.pictures;
const gateways = await Gateways.start(values.program);
const loads: Load[] = [];
const launched = await chromium.launch({ executablePath: values.chromium, args: ["--no-sandbox"] });
try {
  loads.push(
    new Load(gateways, "database", ["--rate", "30"]),
    new Load(gateways, "backup", ["--depth", "16"]),
  );
  loads.push(
    new Load(gateways, "business", ["--depth", "4"]),
    new Load(gateways, "mining", ["--depth", "8"]),
  );
  await walk(launched);
  await walkAgent(launched, values.program);
  await walkBroker(launched, values.program);
  console.log("walked through the dashboard");
} finally {
  for (const load of loads) load.stop();
  await launched.close();
  await gateways.end();
}

async function walk(browser: Browser): Promise<void> {
  const context = await browser.newContext({ viewport: WIDE, colorScheme: "light" });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  const asked: string[] = [];
  const complaints: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  page.on("pageerror", (error) => complaints.push(String(error.stack)));
  page.on("console", (message) => {
    // What the service refuses is a line of the console, too.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) {
      complaints.push(message.text());
    }
  });

  await step("the page needs no token, and its figures do", async () => {
    await page.goto(gateways.url);
    await page.getByRole("heading", { name: "A token is needed" }).waitFor();
    const status = await page.evaluate(async () => (await fetch("/v1/status")).status);
    assert.equal(status, 401);
    await page.getByLabel("Token of readers or operators").fill("a-token-of-nobody-at-all");
    await page.getByRole("button", { name: "Use this token" }).click();
    await page.getByText("the token that was shown is neither").waitFor();
    await barriers(page, "the question for a token");
    await page.getByLabel("Token of readers or operators").fill(READERS);
    await page.keyboard.press("Enter");
    await page.getByRole("link", { name: /array/ }).first().waitFor();
    const kept = await page.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie]);
    assert.deepEqual(kept, [0, 1, ""], "the token is kept in this tab alone");
  });

  await step("a database suffers on a dry run, and the page says so", async () => {
    await page.goto(`${gateways.url}#/array`);
    await page.getByRole("heading", { name: "array", level: 1 }).waitFor();
    await page
      .getByText(/Dry run: nothing is throttled\. The law would throttle/)
      .first()
      .waitFor();
    await page
      .getByText(/1 promise broken in the last minute\./)
      .first()
      .waitFor();
    await consumerRow(page, "database").getByText("minute: broken").waitFor({ state: "attached" });
    await page.waitForFunction(() => document.title.startsWith("1 promise broken; dry run"));
    // Some seconds of a line.
    await page.waitForTimeout(pictures === undefined ? 1_000 : 20_000);
    await picture(page, "dashboard-dry-run");
  });

  await step("a reader ends no dry run, and an operator does", async () => {
    await page.getByRole("button", { name: "End the dry run" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "End the dry run" }).click();
    await dialog.getByText("may only read").waitFor();
    await barriers(page, "a refusal");
    await dialog.getByLabel("Token of readers or operators").fill(OPERATORS);
    await dialog.getByRole("button", { name: "Use this token" }).click();
    await dialog.waitFor({ state: "detached" });
    await page.getByRole("status").getByText("the dry run of array has ended").waitFor();
    await page.getByRole("button", { name: "Operator" }).waitFor();
    await page
      .getByText(/1 of 1 consumers throttled to a window/)
      .first()
      .waitFor();
    await page
      .getByRole("region", { name: "Changed by operators" })
      .getByText("no dry run of array")
      .waitFor();
  });

  await step("the law regulates, and the page says by what", async () => {
    await consumerRow(page, "backup").getByText("throttled").waitFor();
    // A busy machine keeps no promise of an emulated array: only a picture waits for that.
    if (pictures !== undefined) await page.waitForTimeout(60_000);
    await picture(page, "dashboard");
  });

  await step("the explanation of a consumer is a key away, and the keyboard comes back", async () => {
    const dialog = page.getByRole("dialog", { name: "backup at array" });
    const throttled = dialog.getByText(/Throttled since .*, for .* in all\./);
    // It tells of the moment at which it is opened, and the law throttles nothing in some of them.
    for (let attempts = 5; ; attempts--) {
      await consumerRow(page, "backup").getByRole("link", { name: "backup" }).focus();
      await page.keyboard.press("Enter");
      try {
        await throttled.waitFor(attempts > 1 ? { timeout: 10_000 } : {});
        break;
      } catch (error) {
        if (attempts === 1) throw error;
        await page.keyboard.press("Escape");
        await dialog.waitFor({ state: "detached" });
      }
    }
    await dialog.getByText("database, whose reads are promised the target").waitFor();
    await dialog.getByText("shares", { exact: true }).first().waitFor();
    await barriers(page, "an explanation");
    await picture(page, "dashboard-explanation", false);
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await page.waitForFunction(() => document.activeElement?.textContent === "backup");
  });

  await step("the history comes from the decision journal", async () => {
    await page.getByRole("button", { name: "1 h", exact: true }).click();
    await page.getByText(/from the decision journal; each figure is of 7\.20 s/).waitFor();
    await page.getByRole("img", { name: /^Latency\. .*smoothed: now .*, at most \d/ }).waitFor();
    await page.getByRole("button", { name: "Other…" }).click();
    await page.getByLabel("From (UTC)").fill("2001-01-01T00:00:01");
    await page.getByLabel("To (UTC)").fill("2001-01-01T01:00:01");
    await page.getByRole("button", { name: "Show" }).click();
    await page.getByText(/No history: .*nothing is kept of/).waitFor();
    await barriers(page, "a time without history");
    await page.getByRole("button", { name: "Live" }).click();
    await page.getByText(/A figure each second since/).waitFor();
  });

  await step("each consumer is shown over time, and the busiest comes first", async () => {
    const rows = page.getByRole("region", { name: "Each consumer" }).getByRole("row");
    await rows.nth(1).getByText("backup").waitFor();
    await rows
      .nth(1)
      .getByText(/% of the time/)
      .waitFor();
    await rows.nth(2).getByText("protected").waitFor();
    await rows
      .nth(2)
      .getByText(/mean .*, most .* IO\/s/)
      .waitFor();
  });

  await step("arrow keys move along a chart", async () => {
    await page.getByRole("img", { name: /^Latency\./ }).focus();
    await page.keyboard.press("ArrowLeft");
    await page
      .getByText(/^at \d\d:\d\d:\d\d/)
      .first()
      .waitFor();
  });

  await step("a release and its end are told in the words of the log", async () => {
    await consumerRow(page, "backup").getByRole("link", { name: "backup" }).click();
    const dialog = page.getByRole("dialog", { name: "backup at array" });
    await dialog.getByRole("combobox").selectOption("5 minutes");
    await dialog.getByRole("button", { name: "Release", exact: true }).click();
    await dialog.getByText(/Released until .* by operators' token/).waitFor();
    await dialog.getByRole("button", { name: "Close" }).click();
    await consumerRow(page, "backup").getByText("released").waitFor();
    const changes = page.getByRole("region", { name: "Changed by operators" });
    await barriers(page, "a release");
    await changes
      .getByRole("row", { name: /backup of array released until/ })
      .getByRole("button", { name: "End the release" })
      .click();
    await consumerRow(page, "backup").getByText("throttled").waitFor();
    assert.equal(await changes.getByText(/released until/).count(), 0);
    await page
      .getByRole("list", { name: /Decisions/ })
      .getByText(/throttled to a window/)
      .first()
      .waitFor();
  });

  await step("bands and goals of another resource are a search away", async () => {
    await page.getByLabel("Search resources and consumers").fill("mining");
    await page.getByRole("link", { name: /^vault/ }).click();
    await page.getByRole("heading", { name: "vault", level: 1 }).waitFor();
    await page.getByText("Operating point").first().waitFor();
    await page
      .getByText(/in band \d at \d+ %|beyond the last band/)
      .first()
      .waitFor();
    await page
      .getByRole("region", { name: "Hosts of cluster san-a" })
      .getByRole("row", { name: /host-2 yes/ })
      .waitFor();
    await page.getByLabel("Search resources and consumers").fill("");
  });

  await step("nobody is kept out, in light and dark, on a desk and a phone", async () => {
    for (const look of LOOKS) {
      const other = await openAs(browser, look);
      await barriers(other.page, look.name);
      await fits(other.page, look);
      await other.context.close();
    }
  });

  await step("below a path of a proxy, an address leads to a consumer, and back", async () => {
    const path = "/api/v1/namespaces/san/services/tidegate:api/proxy/";
    const proxy = await PathProxy.start(path, gateways.url);
    const context = await browser.newContext({ viewport: WIDE, colorScheme: "light" });
    context.setDefaultTimeout(PATIENCE);
    await keepToken(context, READERS, path);
    try {
      const page = await context.newPage();
      await page.goto(`${proxy.url}#/array/database`);
      const dialog = page.getByRole("dialog", { name: "database at array" });
      await dialog.getByText("Protected, and never throttled.").waitFor();
      await page.getByText("live", { exact: true }).waitFor();
      await page.reload();
      await dialog.getByText("Protected, and never throttled.").waitFor();
      await dialog.getByRole("button", { name: "Close" }).click();
      await dialog.waitFor({ state: "detached" });
      assert.equal(await page.evaluate(() => location.hash), "#/array");
      // The page has seen no decision itself.
      const decisions = page.getByRole("list", { name: /Decisions/ });
      await decisions
        .getByText(/throttled to a window/)
        .first()
        .waitFor();
      await consumerRow(page, "backup").getByRole("link", { name: "backup" }).click();
      await page.getByRole("dialog", { name: "backup at array" }).waitFor();
      await page.goBack();
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await page.goForward();
      await page.getByRole("dialog", { name: "backup at array" }).waitFor();
      assert.deepEqual(proxy.astray, [], "every request is below the path");
    } finally {
      await context.close();
      proxy.stop();
    }
  });

  await step("a chosen theme stays, whatever the system says", async () => {
    await page.getByRole("button", { name: "Dark", exact: true }).click();
    await page.reload();
    await page.getByRole("button", { name: "Light", exact: true }).waitFor();
    assert.equal(await page.evaluate(() => document.documentElement.dataset["theme"]), "dark");
    await page.getByRole("button", { name: "Light", exact: true }).click();
    await page.getByText("live", { exact: true }).waitFor();
  });

  await step("a service that is gone is not called well, and is found again", async () => {
    await gateways.stopFirst();
    await page
      .getByRole("alert")
      .getByText(/Not connected:.* say nothing of now/)
      .waitFor();
    await page.waitForFunction(() => document.title.startsWith("not connected"));
    await barriers(page, "a service that is gone");
    await gateways.startFirst();
    await page.getByRole("button", { name: "Try now" }).click();
    await page.getByText("live", { exact: true }).waitFor();
    assert.equal(await page.getByRole("alert").count(), 0);
  });

  await step("the page asks its own service alone", async () => {
    const others = asked.filter((url) => !url.startsWith(gateways.url) && !url.startsWith("data:"));
    assert.deepEqual(others, []);
    const blocked = await page.evaluate(async () =>
      fetch("http://127.0.0.1:9/").then(
        () => "sent",
        () => "blocked",
      ),
    );
    assert.equal(blocked, "blocked");
    assert.ok(
      complaints.every((text) => text.includes("http://127.0.0.1:9/")),
      complaints.join("\n"),
    );
    const { length } = Buffer.from(await (await fetch(gateways.url)).arrayBuffer());
    console.log(`  the page has ${length} bytes`);
    assert.ok(length < 200_000, `${length} bytes`);
    const timing = await page.evaluate(() => {
      const [load] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
      return load === undefined ? null : Math.round(load.loadEventEnd);
    });
    console.log(`  it was loaded within ${timing} ms`);
  });
  await context.close();
}

function consumerRow(page: Page, name: string): Locator {
  return page.getByRole("region", { name: "Consumers" }).getByRole("row", { name: new RegExp(`^${name}`) });
}

/** Opens the page as an operator sees it, in this look. */
async function openAs(browser: Browser, look: Look): Promise<{ context: BrowserContext; page: Page }> {
  const context = await browser.newContext({ viewport: look.viewport, colorScheme: look.colorScheme });
  context.setDefaultTimeout(PATIENCE);
  await keepToken(context, OPERATORS);
  const page = await context.newPage();
  await page.goto(gateways.url);
  await page.getByRole("navigation", { name: "Resources" }).waitFor();
  await barriers(page, `${look.name}, the list of resources`);
  await page.goto(`${gateways.url}#/array`);
  await consumerRow(page, "backup").getByText("throttled").waitFor();
  return { context, page };
}

async function picture(page: Page, name: string, isWhole = true): Promise<void> {
  if (pictures === undefined) return;
  mkdirSync(pictures, { recursive: true });
  await page.screenshot({ path: `${pictures}/${name}.png`, fullPage: isWhole });
}
