// One consumer: why it is throttled, and what an operator can do for it.

import { useEffect, useState } from "preact/hooks";

import { consumerWords, episodeWords, signalWords } from "../model/explanation";
import { errorSentences, isFailing } from "../model/errors";
import { byteRate, clock, duration, inputTime, iops, ZONE } from "../model/figures";
import { consumerState, shownName } from "../model/judgement";
import { Refusal, service } from "../service/client";
import type { ConsumerSettings, ResourceExplanation, ResourceStatus } from "../service/documents";
import type { Store } from "../store";
import { ActionButton } from "./action";
import { Dialog } from "./dialog";
import { ReleaseForm } from "./resource_actions";
import { WithCode } from "./text";
import { ToneWords } from "./tone";

const EPISODES = 10;

export function ConsumerDialog({
  store,
  resource,
  name,
  onClose,
}: {
  store: Store;
  resource: ResourceStatus;
  name: string;
  onClose: () => void;
}) {
  const one = resource.consumers.find((consumer) => consumer.name === name);
  const settings = useSettings(resource.name, name);
  const release = store.status?.overrides.releases.find(
    (entry) => entry.resource === resource.name && entry.consumer === name,
  );
  const state = one === undefined ? null : consumerState(one);
  return (
    <Dialog title={`${one === undefined ? name : shownName(one)} at ${resource.name}`} onClose={onClose}>
      {one === undefined || one.selected_as === null ? null : <p class="soft path">{name}</p>}
      {state === null ? (
        <p class="soft">It is not among the consumers now.</p>
      ) : (
        <p>
          <ToneWords tone={state.tone}>Now: {state.words}</ToneWords>
        </p>
      )}
      {(one === undefined ? [] : errorSentences(one)).map((sentence) => (
        <p key={sentence} class={one !== undefined && isFailing(one) ? "" : "soft"}>
          {sentence}
        </p>
      ))}
      <Explanation resource={resource.name} name={name} />
      {settings === null ? null : <Settings settings={settings} />}
      {one === undefined || one.protected ? null : (
        <section class="field" aria-labelledby="release">
          <h3 id="release">Release</h3>
          {release === undefined ? (
            <>
              <p class="soft">
                Neither a law nor its limit throttles it for a time. Promises to others may break.
              </p>
              <ReleaseForm store={store} resource={resource.name} consumer={name} onDone={() => undefined} />
            </>
          ) : (
            <p>
              Released until {clock(release.until)} {ZONE} by {release.by}.{" "}
              <ActionButton
                store={store}
                words="End the release"
                done={`the release of ${name} has ended`}
                run={() => service.endRelease(resource.name, name)}
              />
            </p>
          )}
        </section>
      )}
    </Dialog>
  );
}

type Answer = { explanation: ResourceExplanation } | { problem: string } | null;

function Explanation({ resource, name }: { resource: string; name: string }) {
  const [at, setAt] = useState<string | null>(null);
  const [time, setTime] = useState("");
  const [turn, setTurn] = useState(0);
  const [answer, setAnswer] = useState<Answer>(null);
  useEffect(() => {
    let isMeant = true;
    setAnswer(null);
    service.explain(name, at).then(
      (all) => {
        const explanation = all.find((one) => one.resource === resource);
        const problem = "the journal has nothing of it in that hour";
        if (isMeant) setAnswer(explanation === undefined ? { problem } : { explanation });
      },
      (error: unknown) => {
        if (isMeant) setAnswer({ problem: error instanceof Refusal ? error.message : String(error) });
      },
    );
    return () => {
      isMeant = false;
    };
  }, [resource, name, at, turn]);
  const asked = inputTime(time);
  return (
    <section class="field" aria-labelledby="explanation">
      <h3 id="explanation">Explanation</h3>
      <div role="status">
        {answer === null ? (
          <p class="soft">Reading the decision journal…</p>
        ) : (
          <ExplanationText answer={answer} name={name} />
        )}
      </div>
      <form
        class="picker"
        onSubmit={(event) => {
          event.preventDefault();
          if (asked !== null) setAt(asked.toISOString());
        }}
      >
        <label class="field">
          As it was at ({ZONE})
          <input
            type="datetime-local"
            step="1"
            value={time}
            onInput={(event) => setTime(event.currentTarget.value)}
          />
        </label>
        <button disabled={asked === null}>Explain</button>
        <button
          type="button"
          onClick={() => {
            setAt(null);
            setTurn(turn + 1);
          }}
        >
          Now
        </button>
      </form>
    </section>
  );
}

function ExplanationText({ answer, name }: { answer: NonNullable<Answer>; name: string }) {
  if ("problem" in answer)
    return (
      <p class="problem">
        <WithCode text={`No explanation: ${answer.problem}.`} />
      </p>
    );
  const { explanation } = answer;
  const consumer = explanation.consumers.find((one) => one.name === name);
  const words =
    consumer === undefined
      ? { heading: "Nothing is known of it in that time.", rows: [] }
      : consumerWords(explanation, consumer);
  const episodes = consumer?.episodes.slice(-EPISODES).reverse() ?? [];
  return (
    <>
      <p>
        <b>{words.heading}</b>
      </p>
      <dl class="pairs">
        {words.rows.map(([word, text]) => [
          <dt key={word}>{word}</dt>,
          <dd key={`${word}.`}>
            <WithCode text={text} />
          </dd>,
        ])}
        <dt>signal</dt>
        <dd>{signalWords(explanation)}</dd>
        <dt>decided</dt>
        <dd>{explanation.said}</dd>
        <dt>as of</dt>
        <dd>
          {clock(explanation.at)} {ZONE}
        </dd>
      </dl>
      {episodes.length === 0 ? null : (
        <details>
          <summary>Throttled spans of the hour before ({consumer?.episodes.length})</summary>
          <ul>
            {episodes.map((episode) => (
              <li key={episode.from}>
                {clock(episode.from)} to {clock(episode.until)}: {episodeWords(episode)}
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function Settings({ settings }: { settings: ConsumerSettings }) {
  const told: [string, string][] = [["shares", settings.shares.toLocaleString("en")]];
  if (settings.reservation_iops !== null) told.push(["reservation", iops(settings.reservation_iops)]);
  if (settings.goal_seconds !== null) told.push(["goal", duration(settings.goal_seconds)]);
  if (settings.limit_iops !== null) told.push(["limit", iops(settings.limit_iops)]);
  if (settings.limit_bytes_per_second !== null)
    told.push(["limit", byteRate(settings.limit_bytes_per_second)]);
  return (
    <section class="field" aria-labelledby="settings">
      <h3 id="settings">Settings in force</h3>
      <dl class="pairs">
        {told.map(([word, text], index) => [<dt key={index}>{word}</dt>, <dd key={`${index}.`}>{text}</dd>])}
      </dl>
    </section>
  );
}

/** The settings of a consumer that the configuration names. `null`: not known, or it names none such. */
function useSettings(resource: string, name: string): ConsumerSettings | null {
  const [settings, setSettings] = useState<ConsumerSettings | null>(null);
  useEffect(() => {
    let isMeant = true;
    service.settings().then(
      (all) => {
        const one = all.resources.find((each) => each.name === resource);
        const found = one?.consumers.find((consumer) => consumer.name === name) ?? null;
        if (isMeant) setSettings(found);
      },
      () => undefined,
    );
    return () => {
      isMeant = false;
    };
  }, [resource, name]);
  return settings;
}
