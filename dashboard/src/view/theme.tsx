// Light or dark: as the system says, until the reader chooses.

import { useState } from "preact/hooks";

const KEY = "tidegate.theme";
type Theme = "light" | "dark";

const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

function chosen(): Theme | null {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : null;
}

export function theme(): Theme {
  return chosen() ?? (system.matches ? "dark" : "light");
}

export function applyTheme(): void {
  document.documentElement.dataset["theme"] = theme();
  for (const listener of listeners) listener();
}

system.addEventListener("change", applyTheme);

/** Calls back when colours change, until the returned function is called. */
export function onTheme(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The value of a colour of style.css. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function ThemeButton() {
  const [current, setCurrent] = useState(theme());
  const other = current === "dark" ? "light" : "dark";
  const toggle = (): void => {
    localStorage.setItem(KEY, other);
    applyTheme();
    setCurrent(other);
  };
  return (
    <button class="plain tool" onClick={toggle}>
      {other === "dark" ? "Dark" : "Light"}
    </button>
  );
}
