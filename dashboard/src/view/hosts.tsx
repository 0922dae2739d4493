import { age } from "../model/figures";
import type { ClusterStatus } from "../service/documents";
import { Pager, pageOf } from "./pager";
import { ToneWords } from "./tone";
import { useState } from "preact/hooks";

const PAGE = 50;

export function HostsCard({ cluster }: { cluster: ClusterStatus }) {
  const [page, setPage] = useState(0);
  const members = pageOf(cluster.members, page, PAGE);
  const slot = cluster.slot === null ? "" : `, slot ${cluster.slot}`;
  return (
    <section class="card" aria-labelledby="hosts">
      <header>
        <h2 id="hosts">Hosts of cluster {cluster.name}</h2>
        <ToneWords tone={cluster.up ? "good" : "bad"}>
          carrier {cluster.carrier}
          {slot}, {cluster.up ? "up" : "down"}
        </ToneWords>
      </header>
      <div class="body">
        <p>
          This host is <b>{cluster.host}</b>.{cluster.reason === null ? "" : ` ${cluster.reason}`}
        </p>
        {cluster.duplicates.length === 0 ? null : (
          <p class="problem">Two live hosts use one name: {cluster.duplicates.join(", ")}.</p>
        )}
        {cluster.members.length === 0 ? (
          <p class="soft">No other host has been heard.</p>
        ) : (
          <table class="wide">
            <thead>
              <tr>
                <th scope="col">Host</th>
                <th scope="col">Counts</th>
                <th scope="col" class="number">
                  Last report
                </th>
                <th scope="col">Reports on</th>
              </tr>
            </thead>
            <tbody>
              {members.items.map((member) => (
                <tr key={member.name}>
                  <th scope="row">{member.name}</th>
                  <td data-label="Counts">
                    {member.stale ? (
                      <ToneWords tone="bad">no, silent for {age(member.heard_age_seconds)}</ToneWords>
                    ) : (
                      <ToneWords tone="good">yes</ToneWords>
                    )}
                  </td>
                  <td class="number" data-label="Last report">
                    {member.report_age_seconds === null
                      ? "none yet"
                      : `${age(member.report_age_seconds)} ago`}
                  </td>
                  <td data-label="Reports on">{member.pools.join(", ") || "nothing"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </div>
      <Pager page={members} noun="hosts" onPage={setPage} />
    </section>
  );
}
