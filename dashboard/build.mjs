// Builds the pages: each is one HTML file with its script and style, and the policy that permits exactly these.
//
//   node build.mjs FOLDER       writes service/ and broker/ into the folder, each with index.html and policy.txt
//   node build.mjs --tests FILE bundles the tests beside their sources

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { build, transform } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const source = (name) => join(here, "src", name);

/** Browsers of the last four years. */
const TARGET = ["chrome109", "firefox115", "safari16.4"];

/** The pages: their templates and scripts. */
const PAGES = {
  service: { template: "index.html", script: "main.tsx" },
  broker: { template: "broker.html", script: "broker/main.tsx" },
};

async function page(folder, { template, script: entry }) {
  const bundle = await build({
    entryPoints: [source(entry)],
    bundle: true,
    write: false,
    minify: true,
    format: "iife",
    target: TARGET,
    charset: "utf8",
    legalComments: "none",
    jsx: "automatic",
    jsxImportSource: "preact",
    absWorkingDir: here,
    logLevel: "warning",
  });
  const script = bundle.outputFiles[0].text.trimEnd().replaceAll(/<(\/?script)/g, "\\x3c$1");
  const styled = await transform(readFileSync(source("style.css"), "utf8"), {
    loader: "css",
    minify: true,
    target: TARGET,
  });
  const style = styled.code.trimEnd();
  const html = readFileSync(source(template), "utf8")
    .replace("/*STYLE*/", () => style)
    .replace("/*SCRIPT*/", () => script);
  const policy = [
    "default-src 'none'",
    `script-src ${hash(element(html, "script"))}`,
    `style-src ${hash(element(html, "style"))}`,
    "connect-src 'self'",
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; ");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "index.html"), html);
  writeFileSync(join(folder, "policy.txt"), `${policy}\n`);
  console.log(`${join(folder, "index.html")}: ${Buffer.byteLength(html)} bytes`);
}

/** The text of the one element of a name, as a browser hashes it: with the space around it. */
function element(html, name) {
  const parts = html.split(new RegExp(`</?${name}>`));
  if (parts.length !== 3) throw new Error(`the page has not one <${name}>`);
  return parts[1];
}

function hash(text) {
  return `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
}

async function tests(folder) {
  const files = (place, end) =>
    readdirSync(join(here, place))
      .filter((name) => name.endsWith(end))
      .map((name) => join(here, place, name));
  await build({
    entryPoints: [...files("tests/unit", ".test.ts"), ...files("tests", ".ts")],
    outdir: folder,
    outbase: join(here, "tests"),
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node18",
    external: ["playwright-core", "axe-core"],
    absWorkingDir: here,
    logLevel: "warning",
  });
}

const [first, second] = process.argv.slice(2);
if (first === "--tests" && second !== undefined) await tests(second);
else if (first !== undefined && second === undefined) {
  for (const [name, parts] of Object.entries(PAGES)) await page(join(first, name), parts);
} else {
  console.error("usage: node build.mjs FOLDER, or node build.mjs --tests FOLDER");
  process.exit(2);
}
