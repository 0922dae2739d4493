// The latency that the law steers by, where other machines say it: initiators, or an array itself.

import { useState } from "preact/hooks";

import { age, duration } from "../model/figures";
import { originWords, sourceWords } from "../model/signal";
import type { ReporterStatus, ResourceStatus } from "../service/documents";
import { Pager, pageOf } from "./pager";
import { ToneWords } from "./tone";

const PAGE = 50;

export function SignalCard({ resource }: { resource: ResourceStatus }) {
  const { reporters, source } = resource;
  const origin = originWords(resource);
  if (origin === null) return null;
  return (
    <section class="card" aria-labelledby="signal">
      <header>
        <h2 id="signal">Signal</h2>
      </header>
      <div class="body">
        <p>{origin}</p>
        {source === null ? null : (
          <p>
            <ToneWords tone={source.counts ? "good" : "unknown"}>{sourceWords(source)}</ToneWords>
          </p>
        )}
        {source === null && reporters.length === 0 ? <p class="soft">No initiator has reported.</p> : null}
      </div>
      {reporters.length === 0 ? null : <Reporters reporters={reporters} />}
    </section>
  );
}

function Reporters({ reporters }: { reporters: ReporterStatus[] }) {
  const [page, setPage] = useState(0);
  const shown = pageOf(reporters, page, PAGE);
  return (
    <>
      <div class="body">
        <table class="wide">
          <thead>
            <tr>
              <th scope="col">Initiator</th>
              <th scope="col">Consumer</th>
              <th scope="col" class="number">
                Reads took
              </th>
              <th scope="col" class="number">
                Last report
              </th>
              <th scope="col">Use</th>
            </tr>
          </thead>
          <tbody>
            {shown.items.map((one) => (
              <tr key={one.host}>
                <th scope="row">{one.host}</th>
                <td data-label="Consumer">{one.consumer ?? "none"}</td>
                <td class="number" data-label="Reads took">
                  {one.mean_seconds === null ? "no read" : duration(one.mean_seconds)}
                </td>
                <td class="number" data-label="Last report">
                  {age(one.age_seconds)} ago
                </td>
                <td data-label="Use">
                  <ToneWords tone={one.counts ? "good" : "unknown"}>{one.said}</ToneWords>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Pager page={shown} noun="initiators" onPage={setPage} />
    </>
  );
}
