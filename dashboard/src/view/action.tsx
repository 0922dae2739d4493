// Actions of operators: what was done is told, and so is why something was not.

import { useState } from "preact/hooks";

import { Refusal } from "../service/client";
import type { Overrides } from "../service/documents";
import type { Store } from "../store";
import { AccessForm } from "./access";
import { Dialog } from "./dialog";
import { WithCode } from "./text";

export interface ActionRun {
  isBusy: boolean;
  /** The reason why the last attempt failed. `null`: it did not. */
  problem: string | null;
  needsToken: boolean;
  start: () => Promise<boolean>;
  reset: () => void;
}

/** Runs an action, and keeps why it failed. */
export function useAction(store: Store, run: () => Promise<Overrides>, done: string): ActionRun {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Refusal | null>(null);
  const start = async (): Promise<boolean> => {
    setBusy(true);
    try {
      store.takeOverrides(await run(), done);
      setProblem(null);
      return true;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      setProblem(error);
      return false;
    } finally {
      setBusy(false);
    }
  };
  return {
    isBusy,
    problem: problem?.message ?? null,
    needsToken: problem?.needsToken ?? false,
    start,
    reset: () => setProblem(null),
  };
}

export function ActionProblem({
  store,
  action,
  onToken,
}: {
  store: Store;
  action: ActionRun;
  onToken: () => void;
}) {
  if (action.problem === null) return null;
  return (
    <div role="alert">
      {action.needsToken ? (
        <AccessForm store={store} why={action.problem} onDone={onToken} />
      ) : (
        <p class="problem">
          <WithCode text={`It was not done: ${action.problem}.`} />
        </p>
      )}
    </div>
  );
}

/** A button that acts at once. If a token is needed, it asks for one, and then acts. */
export function ActionButton({
  store,
  words,
  done,
  run,
}: {
  store: Store;
  words: string;
  done: string;
  run: () => Promise<Overrides>;
}) {
  const action = useAction(store, run, done);
  return (
    <>
      <button disabled={action.isBusy} onClick={() => void action.start()}>
        {words}
      </button>
      {action.problem === null ? null : (
        <Dialog title={words} onClose={action.reset}>
          <ActionProblem store={store} action={action} onToken={() => void action.start()} />
        </Dialog>
      )}
    </>
  );
}
