// The token that the page shows to the service. It is kept in this tab alone, and ends with it.

import { useState } from "preact/hooks";

import { token } from "../service/client";
import type { Store } from "../store";
import { Dialog } from "./dialog";
import { WithCode } from "./text";

export function AccessButton({ store }: { store: Store }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button class="plain tool" onClick={() => setOpen(true)}>
        {words(store)}
      </button>
      {isOpen ? (
        <Dialog title="Access" onClose={() => setOpen(false)}>
          <AccessForm store={store} why={null} onDone={() => setOpen(false)} />
        </Dialog>
      ) : null}
    </>
  );
}

function words({ caller }: Store): string {
  if (caller === null) return "Access";
  return caller.role === "operator" ? "Operator" : "Reading only";
}

export function AccessForm({
  store,
  why,
  onDone,
}: {
  store: Store;
  why: string | null;
  onDone?: () => void;
}) {
  const [text, setText] = useState("");
  const [isBusy, setBusy] = useState(false);
  const { caller } = store;
  const use = async (given: string | null): Promise<void> => {
    setBusy(true);
    await store.useToken(given);
    setBusy(false);
    setText("");
    if (store.caller !== null && (given === null || store.caller.role !== null)) onDone?.();
  };
  const hasToken = token.get() !== null;
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        if (text.trim() !== "") void use(text.trim());
      }}
    >
      {why !== null ? (
        <p class="problem">
          <WithCode text={`The service says: ${why}.`} />
        </p>
      ) : caller === null ? null : (
        <p>
          <WithCode text={standing(caller.role, caller.name, hasToken)} />
        </p>
      )}
      <label class="field">
        Token of readers or operators
        <input
          type="password"
          autocomplete="off"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      <p class="soft">
        The files of both tokens are named by <code>readers</code> and <code>operators</code> in{" "}
        <code>[api]</code> of the configuration. The page keeps the token in this tab alone, until the tab is
        closed.
      </p>
      <p class="buttons">
        {hasToken ? (
          <button type="button" disabled={isBusy} onClick={() => void use(null)}>
            Forget the token
          </button>
        ) : null}
        <button class="main" disabled={isBusy || text.trim() === ""}>
          Use this token
        </button>
      </p>
    </form>
  );
}

function standing(role: "operator" | "reader" | null, name: string | null, hasToken: boolean): string {
  if (role === "operator") return `You are an operator here (${name}): you may change settings.`;
  if (role === "reader") return `You are a reader here (${name}): you may look, and change nothing.`;
  return hasToken
    ? "This address knows no tokens, and changes nothing: open the page at an address of `listen` in `[api]`."
    : "You may look. To change settings, show the token of operators at an address of `[api]`.";
}
