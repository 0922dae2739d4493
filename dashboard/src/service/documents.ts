// The documents of the service, as docs/reference/http.md has them. `null` is unknown, or does not apply.

export interface ServiceStatus {
  version: number;
  service: "serve" | "agent";
  program: string;
  sees: boolean;
  cluster: ClusterStatus | null;
  resources: ResourceStatus[];
  overrides: Overrides;
}

export interface ClusterStatus {
  name: string;
  host: string;
  carrier: string;
  up: boolean;
  reason: string | null;
  slot: number | null;
  members: ClusterMember[];
  duplicates: string[];
}

export interface ClusterMember {
  name: string;
  pools: string[];
  report_age_seconds: number | null;
  heard_age_seconds: number;
  stale: boolean;
}

export interface ResourceStatus {
  name: string;
  present: boolean;
  /** Requests of all its consumers that failed. */
  errors?: ConsumerErrors | null;
  /** Devices that the kernel does not count, each with the remedy. */
  uncounted?: string[];
  throttle_fails: boolean;
  law: LawStatus | null;
  decided: DecisionStatus | null;
  recent: LoadFigures | null;
  promises: PromiseCounts;
  consumers: ConsumerStatus[];
  consumers_left_out: number;
  reporters: ReporterStatus[];
  source: SourceStatus | null;
  signal_origin: SignalOrigin | null;
}

export type SignalOrigin = "measured" | "reports" | "source";

export interface ReporterStatus {
  host: string;
  consumer: string | null;
  age_seconds: number;
  mean_seconds: number | null;
  counts: boolean;
  said: string;
}

export interface SourceStatus {
  place: string;
  age_seconds: number | null;
  latency_seconds: number | null;
  counts: boolean;
  trouble: string | null;
}

export interface LawStatus {
  kind: LawKind;
  target_seconds: number;
  interval_seconds: number;
  dry_run: boolean;
}

export type LawKind = "auto" | "window" | "pid" | "integral" | "self_tuning" | "queueing_model";

export interface DecisionStatus {
  age_seconds: number;
  said: string;
  input: "samples" | "overload" | "unknown" | "idle" | "no_time";
  measured_seconds: number | null;
  estimate_seconds: number | null;
  set_point_seconds: number;
  held: number;
  throttled: number;
  operating_point: OperatingPoint | null;
  window_requests: number | null;
  delay_seconds: number | null;
}

export type OperatingPoint =
  { state: "holds_nobody" } | { state: "limits"; iops: number; band: BandPosition | null };

export type BandPosition = { in: { band: number; part: number } } | { beyond: { bands: number; by: number } };

export interface LoadFigures {
  seconds: number;
  iops: number;
  response_time_seconds: number | null;
  client_seconds: number | null;
  read_bytes_per_second: number;
  written_bytes_per_second: number;
}

export interface PromiseCounts {
  kept: number;
  broken: number;
  unknown: number;
}

export interface ConsumerStatus {
  name: string;
  selected_as: string | null;
  protected: boolean;
  goal_seconds: number | null;
  set_point_seconds: number | null;
  measured_seconds: number | null;
  oldest_seconds: number | null;
  recent: LoadFigures | null;
  outstanding: number | null;
  entitled_iops: number | null;
  rate_iops: number | null;
  delay_seconds: number | null;
  held: boolean | null;
  released: boolean;
  waits_for: "law" | "limit" | "share" | "depth" | null;
  promise: PromiseStatus | null;
  poisoned: boolean;
  removed: boolean;
  /** Requests that failed. `null`, or absent: none is known. */
  errors?: ConsumerErrors | null;
}

export interface ConsumerErrors {
  /** Kinds of errors of the storage, since the start. */
  kinds: ErrorCount[];
  /** Age of the first error of those that came without a pause of a minute. */
  since_seconds: number | null;
  /** Age of the last error. */
  last_seconds: number | null;
  /** Refused requests that are mistakes of clients. */
  mistakes: number;
}

export interface ErrorCount {
  kind: "io" | "no_space" | "not_permitted" | "invalid" | "no_memory" | "shutting_down";
  count: number;
}

export interface PromiseStatus {
  response_time_seconds: number;
  judged_by: "seconds" | "requests";
  minute: number | null;
  hour: number | null;
  day: number | null;
}

export interface Overrides {
  resources: ResourceOverride[];
  consumers: ConsumerOverride[];
  releases: ReleaseEntry[];
}

export interface ResourceOverride {
  resource: string;
  target_seconds: number | null;
  dry_run: boolean | null;
  by: string;
  since: string;
}

export interface ConsumerOverride {
  resource: string;
  consumer: string;
  shares: number | null;
  limit_iops: number | null;
  limit_bytes_per_second: number | null;
  by: string;
  since: string;
}

export interface ReleaseEntry {
  resource: string | null;
  consumer: string | null;
  until: string;
  by: string;
  since: string;
}

export interface ServiceSettings {
  resources: ResourceSettings[];
}

export interface ResourceSettings {
  name: string;
  consumers: ConsumerSettings[];
}

export interface ConsumerSettings {
  name: string;
  protected: boolean;
  shares: number;
  limit_iops: number | null;
  limit_bytes_per_second: number | null;
  reservation_iops: number | null;
  goal_seconds: number | null;
}

export interface DecisionEvent {
  resource: string;
  said: string;
  held: number;
  dry_run: boolean;
}

export interface ThrottleFigures {
  window_requests: number | null;
  delay_seconds: number | null;
  rate_iops: number | null;
}

export interface ResourceExplanation {
  resource: string;
  at: string;
  law: LawKind;
  mechanism: "queue" | "packet_delay" | "device_limit" | "cgroup_limit";
  dry_run: boolean;
  released: boolean;
  said: string;
  signal: {
    requests: "protected_reads" | "reads" | "everything";
    latency_seconds: number | null;
    set_point_seconds: number;
    target_seconds: number;
    floor_seconds: number | null;
    overload: boolean;
  };
  throttle: ThrottleFigures;
  protects: string[];
  consumers: ConsumerExplanation[];
}

export interface ConsumerExplanation {
  name: string;
  protected: boolean;
  present: boolean;
  throttled: boolean;
  throttle: ThrottleFigures;
  iops: number;
  latency_seconds: number | null;
  episodes: ThrottleEpisode[];
}

export interface ThrottleEpisode {
  effect: "throttled" | "dry_run" | "released";
  from: string;
  until: string;
  throttled_seconds: number;
  iops_before: number | null;
  iops: number;
  strongest: ThrottleFigures;
  worst_signal_seconds: number | null;
}

export interface ResourceHistory {
  resource: string;
  from_seconds: number;
  to_seconds: number;
  step_seconds: number;
  points: HistoryPoint[];
  consumers: ConsumerHistory[];
  consumers_left_out: number;
  decisions: HistoryDecision[];
}

/** Each column has a value for each point of the history. */
export interface ConsumerHistory {
  name: string;
  protected: boolean;
  requests: number;
  iops: (number | null)[];
  latency_seconds: (number | null)[];
  throttled: (number | null)[];
}

export interface HistoryDecision {
  at: string;
  said: string;
  held: number;
  dry_run: boolean;
}

export interface HistoryPoint {
  at_seconds: number;
  judged_seconds: number;
  latency_seconds: number | null;
  worst_latency_seconds: number | null;
  target_seconds: number;
  set_point_seconds: number;
  window_requests: number | null;
  delay_seconds: number | null;
  rate_iops: number | null;
  held: number;
  throttled: number;
  iops: number;
  dry_run: boolean;
}

export interface Caller {
  role: "operator" | "reader" | null;
  name: string | null;
}
