// What the broker told last, asked anew every two seconds while the page is looked at.

import { useEffect, useState } from "preact/hooks";

import { Refusal, document as ask } from "../service/client";
import type { Nodes, Transfers } from "./documents";

const PERIOD_MS = 2_000;

export interface Told {
  nodes: Nodes;
  transfers: Transfers;
  /** By the browser's clock. */
  at: number;
}

export interface Polled {
  /** `null`: nothing yet. */
  told: Told | null;
  /** The reason why the last question has no answer. */
  refusal: Refusal | null;
  /** Asks at once, with the credentials of now. */
  again: () => void;
}

export function usePolled(): Polled {
  const [told, setTold] = useState<Told | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isOver = false;
    const next = async (): Promise<void> => {
      if (!document.hidden) {
        try {
          const [nodes, transfers] = await Promise.all([
            ask<Nodes>("v1/nodes"),
            ask<Transfers>("v1/transfers"),
          ]);
          if (isOver) return;
          setTold({ nodes, transfers, at: Date.now() });
          setRefusal(null);
        } catch (error) {
          if (!(error instanceof Refusal)) throw error;
          if (isOver) return;
          setRefusal(error);
        }
      }
      timer = setTimeout(() => void next(), PERIOD_MS);
    };
    void next();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [turn]);
  return { told, refusal, again: () => setTurn((turn) => turn + 1) };
}
