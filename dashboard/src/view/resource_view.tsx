// One resource: what it does now, why, and what it did before.

import { useState } from "preact/hooks";

import { byteRate, duration, iops, plural, requests, UNKNOWN } from "../model/figures";
import { earlierFailures } from "../model/errors";
import { bandWords, judgeResource } from "../model/judgement";
import type { LoadFigures, ResourceStatus, ServiceStatus } from "../service/documents";
import type { Store } from "../store";
import { ChartsCard } from "./charts_card";
import { ConsumerDialog } from "./consumer_dialog";
import { ConsumersCard } from "./consumers";
import { DecisionsCard } from "./decisions";
import { LIVE, useHistory, useRecordedDecisions, type Span } from "./history";
import { closeConsumer } from "./navigation";
import { DryRunDialog, ReleaseDialog } from "./resource_actions";
import { SignalCard } from "./signal_card";
import { ToneWords } from "./tone";

export function ResourceView({
  store,
  status,
  resource,
  consumer,
}: {
  store: Store;
  status: ServiceStatus;
  resource: ResourceStatus;
  /** The consumer that the address names. `null`: none. */
  consumer: string | null;
}) {
  const [asked, setAsked] = useState<"dry run" | "release" | null>(null);
  const [span, setSpan] = useState<Span>(LIVE);
  const history = useHistory(resource.name, span, store);
  const recorded = useRecordedDecisions(resource.name);
  const earlier = earlierFailures(resource);
  const judgement = judgeResource(resource, status.sees);
  const { law, decided } = resource;
  const close = (): void => setAsked(null);
  return (
    <>
      <section class="card head" aria-labelledby="resource-name">
        <div class="body row">
          <div class="words">
            <h1 id="resource-name">{resource.name}</h1>
            <p>
              <ToneWords tone={judgement.tone} className="verdict">
                {judgement.long}
              </ToneWords>
            </p>
            {judgement.rest === "" ? null : <p>{judgement.rest}</p>}
            {earlier === null ? null : <p class="soft">{earlier}</p>}
            {law === null ? null : (
              <p class="soft">
                Law {law.kind.replace("_", "-")}, target {duration(law.target_seconds)}, decides every{" "}
                {duration(law.interval_seconds)}.
              </p>
            )}
            {decided === null ? null : <p class="said">{decided.said}</p>}
          </div>
          {law === null ? null : (
            <div class="actions">
              <button onClick={() => setAsked("dry run")}>
                {law.dry_run ? "End the dry run" : "Dry run"}
              </button>
              <button onClick={() => setAsked("release")}>Release all</button>
            </div>
          )}
        </div>
      </section>
      <Figures resource={resource} />
      <ChartsCard store={store} resource={resource} span={span} setSpan={setSpan} history={history} />
      <SignalCard resource={resource} />
      <ConsumersCard resource={resource} />
      <DecisionsCard
        store={store}
        resource={resource.name}
        isOnly={status.resources.length === 1}
        isLive={span.live}
        history={history}
        recorded={recorded}
      />
      {asked === "dry run" ? <DryRunDialog store={store} resource={resource} onClose={close} /> : null}
      {asked === "release" ? (
        <ReleaseDialog store={store} resource={resource.name} consumer={null} onClose={close} />
      ) : null}
      {consumer === null ? null : (
        <ConsumerDialog
          store={store}
          resource={resource}
          name={consumer}
          onClose={() => closeConsumer(resource.name)}
        />
      )}
    </>
  );
}

function Figures({ resource }: { resource: ResourceStatus }) {
  const { law, decided, recent, promises } = resource;
  const point = decided?.operating_point ?? null;
  const band = point?.state === "limits" ? point.band : null;
  const promised = promises.kept + promises.broken + promises.unknown;
  return (
    <dl class="figures">
      {law === null ? null : (
        <div>
          <dt>Latency that the law steers</dt>
          <dd class="value">{decided?.input === "samples" ? duration(decided.estimate_seconds) : UNKNOWN}</dd>
          <dd class="more">
            target {duration(law.target_seconds)}, set point {duration(decided?.set_point_seconds)}
          </dd>
        </div>
      )}
      {decided === null ? null : (
        <div>
          <dt>{law?.dry_run ? "Would be throttled" : "Throttled"}</dt>
          <dd class="value">
            {decided.held} of {decided.throttled}
          </dd>
          <dd class="more">{throttle(resource)}</dd>
        </div>
      )}
      <div>
        <dt>Throughput</dt>
        <dd class="value">{iops(recent?.iops)}</dd>
        <dd class="more">{recent === null ? UNKNOWN : throughput(recent)}</dd>
      </div>
      <div>
        <dt>Mean latency of all requests</dt>
        <dd class="value">{latencyOfAll(resource)}</dd>
        <dd class="more">
          {recent?.client_seconds == null
            ? "at the storage"
            : `at the storage; clients wait ${duration(recent.client_seconds)}`}
        </dd>
      </div>
      {promised === 0 ? null : (
        <div>
          <dt>Promises in the last minute</dt>
          <dd class="value">
            {promises.broken === 0 ? `${promises.kept} kept` : `${promises.broken} broken`}
          </dd>
          <dd class="more">
            {plural(promised, "promise")}
            {promises.unknown > 0 ? `, ${promises.unknown} without requests` : ""}
          </dd>
        </div>
      )}
      {point === null ? null : (
        <div>
          <dt>Operating point</dt>
          <dd class="value">{point.state === "limits" ? iops(point.iops) : "no limit"}</dd>
          <dd class="more">
            {band === null ? "" : bandWords(band)}
            {band !== null && "in" in band ? (
              <div class="meter" aria-hidden="true">
                <div style={{ width: `${Math.round(band.in.part * 100)}%` }} />
              </div>
            ) : null}
          </dd>
        </div>
      )}
    </dl>
  );
}

function throughput({ read_bytes_per_second, written_bytes_per_second }: LoadFigures): string {
  return `${byteRate(read_bytes_per_second)} read, ${byteRate(written_bytes_per_second)} written`;
}

function latencyOfAll({ recent }: ResourceStatus): string {
  if (recent === null) return UNKNOWN;
  return recent.response_time_seconds === null
    ? recent.iops === 0
      ? "idle"
      : UNKNOWN
    : duration(recent.response_time_seconds);
}

function throttle({ decided, law }: ResourceStatus): string {
  if (decided === null || decided.held === 0) return "consumers that may be";
  if (decided.window_requests !== null)
    return `window of ${requests(decided.window_requests)} requests for all of them`;
  if (decided.delay_seconds !== null && decided.delay_seconds > 0)
    return `delays up to ${duration(decided.delay_seconds)}`;
  return law?.dry_run ? "the last decision says by what" : "by rates, see below";
}
