// The page of a broker: its storage nodes, and the transfers that wait or are under way.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";

import { age } from "../model/figures";
import { token } from "../service/client";
import { Brand } from "../view/brand";
import { applyTheme, ThemeButton } from "../view/theme";
import { WithCode } from "../view/text";
import { NodesCard } from "./nodes_card";
import { usePolled, type Polled } from "./poll";
import { TransfersCard } from "./transfers_card";

/** Figures of this age say nothing of now. */
const STALE_MS = 6_000;

function BrokerPage() {
  const polled = usePolled();
  const { told, refusal } = polled;
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  const isStale = told !== null && now - told.at > STALE_MS;
  const isRefused = refusal?.needsToken ?? false;
  useEffect(() => {
    document.title = isStale ? "not connected · Tidegate broker" : "Tidegate broker";
  }, [isStale]);
  return (
    <>
      <header class="top">
        <Brand>
          <small class="soft">broker</small>
        </Brand>
        <span class="tools">
          <span class="soft number">
            {told === null
              ? "connecting…"
              : isStale
                ? `figures are ${age((now - told.at) / 1_000)} old`
                : "live"}
          </span>
          <ThemeButton />
        </span>
      </header>
      {refusal !== null && !isRefused ? (
        <div class="banner bad" role="alert">
          <WithCode text={`Not connected: ${refusal.message}.`} />
          {told === null ? null : " The figures below say nothing of now."}
        </div>
      ) : null}
      <main class={`layout single chosen${isStale ? " stale" : ""}`}>
        <div class="content">
          {isRefused ? <TokenCard polled={polled} /> : null}
          {told === null ? null : (
            <>
              <NodesCard nodes={told.nodes} />
              <TransfersCard transfers={told.transfers} />
            </>
          )}
        </div>
      </main>
    </>
  );
}

function TokenCard({ polled: { refusal, again } }: { polled: Polled }) {
  const [text, setText] = useState("");
  return (
    <section class="card" aria-labelledby="token">
      <header>
        <h1 id="token">A token is needed</h1>
      </header>
      <form
        class="body stack"
        onSubmit={(event) => {
          event.preventDefault();
          token.set(text.trim());
          setText("");
          again();
        }}
      >
        <p class="problem">
          <WithCode text={`The broker says: ${refusal?.message ?? ""}.`} />
        </p>
        <label class="field">
          Token of the broker
          <input
            type="password"
            autocomplete="off"
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </label>
        <p class="soft">
          Its file is named by <code>token_file</code> in the broker&apos;s configuration. The page keeps the
          token in this tab alone, until the tab is closed.
        </p>
        <p class="buttons">
          <button class="main" disabled={text.trim() === ""}>
            Use this token
          </button>
        </p>
      </form>
    </section>
  );
}

applyTheme();
const place = document.getElementById("app");
if (place !== null) {
  place.textContent = "";
  render(<BrokerPage />, place);
}
