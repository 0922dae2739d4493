import type { ConsumerStatus, DecisionStatus, ResourceStatus } from "../../src/service/documents";

/** A resource that decided a moment ago. */
export function resource(
  decided: Partial<DecisionStatus>,
  more: Partial<ResourceStatus> = {},
): ResourceStatus {
  return {
    name: "array",
    present: true,
    throttle_fails: false,
    law: { kind: "auto", target_seconds: 0.02, interval_seconds: 0.25, dry_run: false },
    decided: {
      age_seconds: 0.1,
      said: "array: protected reads 15.0ms against 19.6ms: nothing throttled",
      input: "samples",
      measured_seconds: 0.014,
      estimate_seconds: 0.015,
      set_point_seconds: 0.0196,
      held: 0,
      throttled: 2,
      operating_point: null,
      window_requests: null,
      delay_seconds: null,
      ...decided,
    },
    recent: null,
    promises: { kept: 1, broken: 0, unknown: 0 },
    consumers: [],
    consumers_left_out: 0,
    reporters: [],
    source: null,
    signal_origin: "measured",
    ...more,
  };
}

export function consumer(more: Partial<ConsumerStatus>): ConsumerStatus {
  return {
    name: "backup",
    selected_as: null,
    protected: false,
    goal_seconds: null,
    set_point_seconds: null,
    measured_seconds: null,
    oldest_seconds: null,
    recent: null,
    outstanding: null,
    entitled_iops: null,
    rate_iops: null,
    delay_seconds: null,
    held: null,
    released: false,
    waits_for: null,
    promise: null,
    poisoned: false,
    removed: false,
    errors: null,
    ...more,
  };
}
