import type { ComponentChildren } from "preact";

export function Brand({ children }: { children: ComponentChildren }) {
  return (
    <span class="brand">
      <svg width="22" height="22" viewBox="0 0 22 22" aria-hidden="true">
        <path
          d="M1 15c3.3-4 6.7 4 10 0s6.7-4 10 0M1 9c3.3-4 6.7 4 10 0"
          fill="none"
          stroke="var(--chart-latency)"
          stroke-width="2.4"
          stroke-linecap="round"
        />
        <path d="M16 3v7" stroke="var(--chart-target)" stroke-width="2.4" stroke-linecap="round" />
      </svg>
      Tidegate
      {children}
    </span>
  );
}
