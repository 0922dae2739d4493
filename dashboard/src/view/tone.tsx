// Shapes of states: each tone has one of its own, so that no state is told by colour alone.

import type { ComponentChildren } from "preact";

import type { Tone } from "../model/judgement";

const SHAPES: Record<Tone | "plain", preact.JSX.Element | null> = {
  // A triangle with a mark.
  bad: (
    <>
      <path d="M8 1.5 15 14.5H1Z" fill="currentColor" />
      <path d="M8 6v4M8 11.6v1.2" stroke="var(--card)" stroke-width="1.6" />
    </>
  ),
  // A ring with a question.
  unknown: (
    <>
      <circle
        cx="8"
        cy="8"
        r="6.4"
        fill="none"
        stroke="currentColor"
        stroke-width="1.6"
        stroke-dasharray="2.2 1.6"
      />
      <path
        d="M6 6.2c0-2.6 4-2.6 4 0 0 1.4-2 1.5-2 3M8 11v1.3"
        fill="none"
        stroke="currentColor"
        stroke-width="1.5"
      />
    </>
  ),
  // A funnel: less comes out than goes in.
  throttling: <path d="M1.5 2h13L9.6 8.2V14l-3.2-1.6V8.2Z" fill="currentColor" />,
  // An eye: it looks on.
  dry: (
    <>
      <path
        d="M1 8c3-5.6 11-5.6 14 0-3 5.6-11 5.6-14 0Z"
        fill="none"
        stroke="currentColor"
        stroke-width="1.5"
      />
      <circle cx="8" cy="8" r="2.2" fill="currentColor" />
    </>
  ),
  // A disc with a tick.
  good: (
    <>
      <circle cx="8" cy="8" r="7" fill="currentColor" />
      <path d="m4.8 8.2 2.2 2.3 4.2-4.6" fill="none" stroke="var(--card)" stroke-width="1.7" />
    </>
  ),
  // A ring with a dash.
  idle: (
    <>
      <circle cx="8" cy="8" r="6.4" fill="none" stroke="currentColor" stroke-width="1.5" />
      <path d="M5 8h6" stroke="currentColor" stroke-width="1.6" />
    </>
  ),
  plain: null,
};

export function ToneShape({ tone }: { tone: Tone | "plain" }) {
  const shape = SHAPES[tone];
  return shape === null ? null : (
    <svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">
      {shape}
    </svg>
  );
}

export function ToneWords({
  tone,
  children,
  className = "",
}: {
  tone: Tone | "plain";
  children: ComponentChildren;
  className?: string;
}) {
  return (
    <span class={`tone ${tone} ${className}`}>
      <ToneShape tone={tone} />
      <span>{children}</span>
    </span>
  );
}
