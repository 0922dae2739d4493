import { useState } from "preact/hooks";

import { service } from "../service/client";
import type { ResourceStatus } from "../service/documents";
import type { Store } from "../store";
import { ActionProblem, useAction } from "./action";
import { Dialog } from "./dialog";

export function DryRunDialog({
  store,
  resource,
  onClose,
}: {
  store: Store;
  resource: ResourceStatus;
  onClose: () => void;
}) {
  const begins = !(resource.law?.dry_run ?? false);
  // The words stay while the status changes.
  const [isBeginning] = useState(begins);
  const { name } = resource;
  const done = isBeginning
    ? `${name} is on a dry run: nothing is throttled`
    : `the dry run of ${name} has ended`;
  const action = useAction(store, () => service.setDryRun(name, isBeginning), done);
  const start = async (): Promise<void> => {
    if (await action.start()) onClose();
  };
  return (
    <Dialog title={isBeginning ? `Dry run of ${name}` : `End the dry run of ${name}`} onClose={onClose}>
      <p>
        {isBeginning
          ? "The law goes on deciding, and nothing is throttled. The page shows what it would throttle."
          : "The law throttles again from its next decision on."}
      </p>
      <p class="soft">The change lasts until it is undone, or the service restarts.</p>
      <ActionProblem store={store} action={action} onToken={() => void start()} />
      <div class="buttons">
        <button onClick={onClose}>Cancel</button>
        {action.needsToken ? null : (
          <button class="main" disabled={action.isBusy} onClick={() => void start()}>
            {isBeginning ? "Begin the dry run" : "End the dry run"}
          </button>
        )}
      </div>
    </Dialog>
  );
}

const TIMES: readonly [number, string][] = [
  [300, "5 minutes"],
  [1_800, "30 minutes"],
  [3_600, "1 hour"],
  [7_200, "2 hours"],
  [28_800, "8 hours"],
  [86_400, "24 hours"],
];

export function ReleaseForm({
  store,
  resource,
  consumer,
  onDone,
}: {
  store: Store;
  resource: string;
  consumer: string | null;
  onDone: () => void;
}) {
  const [seconds, setSeconds] = useState(1_800);
  const words = TIMES.find(([time]) => time === seconds)?.[1] ?? "";
  const action = useAction(
    store,
    () => service.release(resource, consumer, seconds),
    `${consumer ?? `all consumers of ${resource}`} released for ${words}`,
  );
  const start = async (): Promise<void> => {
    if (await action.start()) onDone();
  };
  return (
    <>
      <label class="field">
        Release for
        <select value={seconds} onChange={(event) => setSeconds(Number(event.currentTarget.value))}>
          {TIMES.map(([time, name]) => (
            <option key={time} value={time}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <ActionProblem store={store} action={action} onToken={() => void start()} />
      <div class="buttons">
        {action.needsToken ? null : (
          <button class="main" disabled={action.isBusy} onClick={() => void start()}>
            Release
          </button>
        )}
      </div>
    </>
  );
}

export function ReleaseDialog({
  store,
  resource,
  consumer,
  onClose,
}: {
  store: Store;
  resource: string;
  consumer: string | null;
  onClose: () => void;
}) {
  return (
    <Dialog title={`Release ${consumer ?? `all consumers of ${resource}`}`} onClose={onClose}>
      <p>Neither a law nor a limit throttles them for this time. Promises to others may break.</p>
      <ReleaseForm store={store} resource={resource} consumer={consumer} onDone={onClose} />
    </Dialog>
  );
}
