// What the walks have in common: steps with names, and the search for barriers.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

import type { BrowserContext, Page } from "playwright-core";

/** Longer than anything here takes, on the slowest machine. */
export const PATIENCE = 90_000;

export type Look = {
  name: string;
  colorScheme: "light" | "dark";
  viewport: { width: number; height: number };
};
export const WIDE = { width: 1_280, height: 900 };
const PHONE = { width: 390, height: 844 };
export const LOOKS: readonly Look[] = [
  { name: "light", colorScheme: "light", viewport: WIDE },
  { name: "dark", colorScheme: "dark", viewport: WIDE },
  { name: "phone", colorScheme: "light", viewport: PHONE },
  { name: "dark phone", colorScheme: "dark", viewport: PHONE },
];

export async function step(name: string, run: () => Promise<void>): Promise<void> {
  console.log(name);
  try {
    await run();
  } catch (error) {
    throw new Error(`${name}: failed`, { cause: error });
  }
}

/** Gives pages of a service the token that their reader would type. */
export async function keepToken(context: BrowserContext, token: string, path = "/"): Promise<void> {
  const entry: [string, string] = [`tidegate.token ${path}`, token];
  await context.addInitScript(([key, token]) => sessionStorage.setItem(key, token), entry);
}

/** Fails when axe-core finds a barrier by WCAG 2.2 A or AA. */
export async function barriers(page: Page, place: string): Promise<void> {
  const isThere = await page.evaluate(() => "axe" in window);
  // By the inspector: the page's own policy permits no other script.
  if (!isThere) await page.evaluate(await axeSource());
  const found = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run: (options: unknown) => Promise<AxeResults> } };
    const results = await axe.run({
      runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    });
    return results.violations.flatMap(({ id, nodes }) =>
      nodes.map(({ html, failureSummary }) => `${id}: ${html}\n${failureSummary}`),
    );
  });
  assert.deepEqual(found, [], `barriers in ${place}`);
}

/** Fails when a page is wider than what it is looked at on. */
export async function fits(page: Page, look: Look): Promise<void> {
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= look.viewport.width, `${look.name}: the page is ${width} wide`);
}

interface AxeResults {
  violations: { id: string; nodes: { html: string; failureSummary?: string }[] }[];
}

let axeText: string | undefined;

async function axeSource(): Promise<string> {
  axeText ??= await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  return axeText;
}
