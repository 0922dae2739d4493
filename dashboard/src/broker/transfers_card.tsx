import { useState } from "preact/hooks";

import { age, byteRate, bytes, percent } from "../model/figures";
import { Pager, pageOf } from "../view/pager";
import { ToneWords } from "../view/tone";
import type { Transfer, Transfers } from "./documents";

const PAGE = 50;

export function TransfersCard({ transfers }: { transfers: Transfers }) {
  const [page, setPage] = useState(0);
  const shown = pageOf(ordered(transfers.transfers), page, PAGE);
  const left = transfers.all - transfers.transfers.length;
  return (
    <section class="card" aria-labelledby="transfers">
      <header>
        <h2 id="transfers">Transfers</h2>
        {left === 0 ? null : <span class="soft">{left.toLocaleString("en")} more are not shown</span>}
      </header>
      <div class="body">
        {shown.total === 0 ? (
          <p class="soft">No transfer waits or is under way.</p>
        ) : (
          <table class="wide">
            <thead>
              <tr>
                <th scope="col">Object</th>
                <th scope="col">State</th>
                <th scope="col" class="number">
                  Moved
                </th>
                <th scope="col" class="number">
                  Expected rate
                </th>
                <th scope="col" class="number">
                  Last heard
                </th>
              </tr>
            </thead>
            <tbody>
              {shown.items.map((transfer, index) => (
                <tr key={index}>
                  <th scope="row">{transfer.name ?? "without a name"}</th>
                  <td data-label="State">
                    <StateWords transfer={transfer} />
                  </td>
                  <td class="number" data-label="Moved">
                    {transfer.size === 0
                      ? bytes(0)
                      : `${percent(transfer.moved / transfer.size)} of ${bytes(transfer.size)}`}
                  </td>
                  <td class="number" data-label="Expected rate">
                    {byteRate(transfer.expected_bps)}
                  </td>
                  <td class="number" data-label="Last heard">
                    {age(transfer.heard_s)} ago
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </div>
      <Pager page={shown} noun="transfers" onPage={setPage} />
    </section>
  );
}

function StateWords({ transfer }: { transfer: Transfer }) {
  const what = transfer.replica ? "replica, " : "";
  if (transfer.node === null) {
    return (
      <ToneWords tone="throttling">
        {what}waits to {transfer.way}
      </ToneWords>
    );
  }
  const way = transfer.way === "read" ? "reads from" : "writes to";
  return (
    <ToneWords tone="good">
      {what}
      {way} {transfer.node}
    </ToneWords>
  );
}

/** Those that wait come first. */
function ordered(transfers: Transfer[]): Transfer[] {
  const key = ({ node, name }: Transfer): string => `${node === null ? 0 : 1}${name ?? ""}`;
  return [...transfers].sort((one, other) => key(one).localeCompare(key(other)));
}
