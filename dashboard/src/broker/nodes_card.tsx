import { age, byteRate, bytes, plural } from "../model/figures";
import { ToneWords } from "../view/tone";
import type { Lane, Nodes, StorageNode } from "./documents";

export function NodesCard({ nodes }: { nodes: Nodes }) {
  return (
    <section class="card" aria-labelledby="nodes">
      <header>
        <h1 id="nodes">Storage nodes</h1>
        <span class="soft">
          {nodes.waiting === 0 ? "no transfer waits" : `${plural(nodes.waiting, "transfer")} waiting`}
        </span>
      </header>
      <div class="body">
        <table class="wide">
          <thead>
            <tr>
              <th scope="col">Node</th>
              <th scope="col">Reads</th>
              <th scope="col">Writes</th>
              <th scope="col" class="number">
                Free
              </th>
              <th scope="col" class="number">
                Waiting
              </th>
              <th scope="col">Sensor</th>
            </tr>
          </thead>
          <tbody>
            {nodes.nodes.map((node) => (
              <tr key={node.name}>
                <th scope="row">
                  {node.name}
                  <br />
                  <small class="soft">{node.place}</small>
                </th>
                <td data-label="Reads">
                  <LaneWords lane={node.read} />
                </td>
                <td data-label="Writes">
                  <LaneWords lane={node.write} />
                </td>
                <td class="number" data-label="Free">
                  {bytes(node.free)}
                </td>
                <td class="number" data-label="Waiting">
                  {node.waiting}
                </td>
                <td data-label="Sensor">
                  <SensorWords node={node} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function LaneWords({ lane }: { lane: Lane }) {
  const lent = lane.lent_bps > 0 ? `, ${byteRate(lane.lent_bps)} lent` : "";
  return (
    <>
      {byteRate(lane.current_bps)} of {byteRate(lane.peak_bps)}
      <br />
      <small class="soft">
        {plural(lane.active, "transfer")}, {byteRate(lane.reserved_bps)} reserved{lent}
      </small>
    </>
  );
}

function SensorWords({ node: { sensor } }: { node: StorageNode }) {
  if (sensor === null) return <span class="soft">none has reported</span>;
  return sensor.recent ? (
    <ToneWords tone="good">reported {age(sensor.age_s)} ago</ToneWords>
  ) : (
    <ToneWords tone="bad">silent for {age(sensor.age_s)}</ToneWords>
  );
}
