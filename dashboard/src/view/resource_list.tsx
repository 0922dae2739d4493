// The resources of the service, the worst first.

import { useEffect, useState } from "preact/hooks";

import { duration } from "../model/figures";
import { linkTo } from "../model/place";
import { judgeResource, shownName, TONES, type Judgement, type Tone } from "../model/judgement";
import { service } from "../service/client";
import type { ResourceStatus, ServiceStatus } from "../service/documents";
import { Pager, pageOf } from "./pager";
import { ToneShape } from "./tone";

export interface RankedResource {
  resource: ResourceStatus;
  judgement: Judgement;
}

/** Orders resources by what they need, and else by the configuration: so rows seldom move. */
export function ranked(status: ServiceStatus): RankedResource[] {
  const rows = status.resources.map((resource) => ({
    resource,
    judgement: judgeResource(resource, status.sees),
  }));
  const rank = (row: RankedResource): number => TONES.indexOf(row.judgement.tone);
  return rows.sort((one, other) => rank(one) - rank(other));
}

const TONE_NAMES: Record<Tone, string> = {
  bad: "in trouble",
  unknown: "unknown",
  throttling: "throttling",
  dry: "on a dry run",
  good: "within target",
  idle: "idle",
};

const PAGE = 100;
/** Consumers of other resources are asked for once in this time while someone searches. */
const SEARCH_AGE_MS = 30_000;

export function ResourceList({ rows, shown }: { rows: RankedResource[]; shown: string | null }) {
  const [search, setSearch] = useState("");
  const [tone, setTone] = useState<Tone | "">("");
  const [page, setPage] = useState(0);
  const text = search.trim().toLowerCase();
  const byConsumer = useConsumerNames(text.length >= 2);
  const matches = rows.filter(({ resource, judgement }) => {
    const isMeant =
      text === "" ||
      resource.name.toLowerCase().includes(text) ||
      (byConsumer?.get(resource.name)?.some((name) => name.includes(text)) ?? false);
    return isMeant && (tone === "" || judgement.tone === tone);
  });
  const current = pageOf(matches, page, PAGE);
  const restart = (): void => setPage(0);
  return (
    <nav class="card list" aria-label="Resources">
      <h1>Resources</h1>
      <div class="filters">
        <label class="unseen" for="search">
          Search resources and consumers
        </label>
        <input
          id="search"
          type="search"
          placeholder="Resource or consumer"
          value={search}
          onInput={(event) => {
            setSearch(event.currentTarget.value);
            restart();
          }}
        />
        <label class="unseen" for="tone">
          Show resources that are
        </label>
        <select
          id="tone"
          value={tone}
          onChange={(event) => {
            setTone(event.currentTarget.value as Tone | "");
            restart();
          }}
        >
          <option value="">All {rows.length.toLocaleString("en")}, the worst first</option>
          {TONES.map((one) => {
            const count = rows.filter((row) => row.judgement.tone === one).length;
            return count === 0 && tone !== one ? null : (
              <option key={one} value={one}>
                {count.toLocaleString("en")} {TONE_NAMES[one]}
              </option>
            );
          })}
        </select>
      </div>
      <ul>
        {current.items.map(({ resource, judgement }) => (
          <li key={resource.name}>
            <a
              href={linkTo(resource.name)}
              {...(resource.name === shown ? { "aria-current": "page" as const } : {})}
            >
              <span class={`tone ${judgement.tone}`}>
                <ToneShape tone={judgement.tone} />
              </span>
              <span class="name">{resource.name}</span>
              <Figure resource={resource} />
              <span class="short">{judgement.short}</span>
            </a>
          </li>
        ))}
        {matches.length === 0 ? <li class="body soft">No resource fits.</li> : null}
      </ul>
      <Pager page={current} noun="resources" onPage={setPage} />
    </nav>
  );
}

function Figure({ resource: { law, decided } }: { resource: ResourceStatus }) {
  if (law === null) return <span class="figure" />;
  const latency = decided?.input === "samples" ? decided.estimate_seconds : null;
  return (
    <span class="figure">
      {latency === null ? "–" : duration(latency)}
      <small>of {duration(law.target_seconds)}</small>
    </span>
  );
}

/** The names of each resource's consumers, in small letters. `null`: not known yet. */
function useConsumerNames(isWanted: boolean): Map<string, string[]> | null {
  const [names, setNames] = useState<{ at: number; of: Map<string, string[]> } | null>(null);
  const isOld = names === null || Date.now() - names.at > SEARCH_AGE_MS;
  useEffect(() => {
    if (!isWanted || !isOld) return undefined;
    let isMeant = true;
    const timer = setTimeout(() => {
      service.status().then(
        (status) => {
          const entries = status.resources.map((one): [string, string[]] => [
            one.name,
            one.consumers.map((consumer) => `${shownName(consumer)}\n${consumer.name}`.toLowerCase()),
          ]);
          if (isMeant) setNames({ at: Date.now(), of: new Map(entries) });
        },
        () => undefined,
      );
    }, 400);
    return () => {
      isMeant = false;
      clearTimeout(timer);
    };
  }, [isWanted, isOld]);
  return names?.of ?? null;
}
