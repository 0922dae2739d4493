//! Any sequence of operations, checked after each against a list of what was put in and taken out.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_sched::{
    BeyondLimit, CompleteError, ConsumerLimit, Discipline, FlowBatch, FlowCapacity, FlowConfig, FlowId,
    LeakyBucket, PullAnswer, QueueRefusal, RefillTime, RequestCost, Sfq, SfqConfig, StorageExtent,
    UnknownFlow,
};
use tidegate_units::{ByteRate, Bytes, Instant, Iops, Latency, Shares, Window};

#[derive(Debug, Clone)]
enum Operation {
    Add { weight: u32, exempt: bool, requests: u32, kib: u64 },
    Remove { flow: usize },
    Enqueue { flow: usize, offset: u64, bytes: u32 },
    Pull,
    Complete { index: usize },
    CompleteWhatIsNotThere { flow: usize },
    Weight { flow: usize, weight: u32 },
    Exempt { flow: usize, exempt: bool },
    Delay { flow: usize, micros: u64 },
    Limit { flow: usize, limit: Option<(Option<f64>, Option<f64>, u64)>, beyond: BeyondLimit },
    Reservation { flow: usize, reservation: Option<f64> },
    Bucket { flow: usize, bucket: Option<(f64, u32, u64, Option<u32>, bool)> },
    Window(Option<f64>),
    Spacing(u64),
    Advance(u64),
    JumpBack(u64),
    JumpTo(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation as O;
    let flow = || 0usize..12;
    prop_oneof![
        3 => (1u32..1_000, prop::bool::weighted(0.2), 0u32..20, 0u64..512)
            .prop_map(|(weight, exempt, requests, kib)| O::Add { weight, exempt, requests, kib }),
        1 => flow().prop_map(|flow| O::Remove { flow }),
        20 => (flow(), 0u64..1 << 30, 0u32..1 << 20)
            .prop_map(|(flow, offset, bytes)| O::Enqueue { flow, offset, bytes }),
        2 => (flow(), any::<u64>(), any::<u32>())
            .prop_map(|(flow, offset, bytes)| O::Enqueue { flow, offset, bytes }),
        20 => Just(O::Pull),
        15 => any::<usize>().prop_map(|index| O::Complete { index }),
        1 => flow().prop_map(|flow| O::CompleteWhatIsNotThere { flow }),
        1 => (flow(), 1u32..=1_000_000).prop_map(|(flow, weight)| O::Weight { flow, weight }),
        1 => (flow(), any::<bool>()).prop_map(|(flow, exempt)| O::Exempt { flow, exempt }),
        2 => (flow(), prop_oneof![Just(0), 0u64..50_000, Just(u64::MAX)])
            .prop_map(|(flow, micros)| O::Delay { flow, micros }),
        2 => (flow(), prop::option::of((
                prop::option::of(prop_oneof![Just(0.0), 1.0f64..1e4]),
                prop::option::of(prop_oneof![Just(0.0), 1e3f64..1e8, Just(f64::MAX)]),
                0u64..1_000,
            )), prop_oneof![Just(BeyondLimit::Wait), Just(BeyondLimit::Surplus)])
            .prop_map(|(flow, limit, beyond)| O::Limit { flow, limit, beyond }),
        2 => (flow(), prop::option::of(prop_oneof![Just(0.0), 1e-12f64..1.0, 1.0f64..1e5, Just(f64::MAX)]))
            .prop_map(|(flow, reservation)| O::Reservation { flow, reservation }),
        2 => (flow(), prop::option::of((
                prop_oneof![Just(0.0), 1.0f64..1e4, Just(f64::MAX)],
                prop_oneof![0u32..10, Just(u32::MAX)],
                prop_oneof![Just(0), Just(1_000_000), 1u64..5_000_000, Just(u64::MAX)],
                prop::option::of(0u32..5),
                any::<bool>(),
            )))
            .prop_map(|(flow, bucket)| O::Bucket { flow, bucket }),
        2 => prop::option::of(prop_oneof![0.0f64..8.0, Just(f64::NAN), Just(f64::INFINITY), Just(0.0)])
            .prop_map(O::Window),
        1 => prop_oneof![Just(0), 0u64..50_000, Just(u64::MAX)].prop_map(O::Spacing),
        15 => (0u64..20_000_000).prop_map(O::Advance),
        1 => (0u64..10_000_000_000).prop_map(O::JumpBack),
        1 => prop_oneof![Just(0), Just(u64::MAX), any::<u64>()].prop_map(O::JumpTo),
    ]
}

#[derive(Debug)]
struct ModelFlow {
    id: FlowId,
    exempt: bool,
    soft: bool,
    /// How many released requests may wait behind the bucket, if there is one.
    ahead: Option<usize>,
    /// How many waited behind it when last seen.
    released: usize,
    capacity: FlowCapacity,
    queue: VecDeque<(u64, u32)>,
}

/// What must be inside, according to what was put in and taken out.
struct Model {
    scheduler: Sfq<u64>,
    now: u64,
    /// Whether the clock has ever been, which makes times of before it meaningless.
    was_set_back: bool,
    next_request: u64,
    window: Option<f64>,
    flows: Vec<ModelFlow>,
    removed: Vec<FlowId>,
    /// By flow: outstanding requests, those dispatched as exempt first.
    outstanding: HashMap<FlowId, [u32; 2]>,
}

impl Model {
    fn new(config: SfqConfig) -> Self {
        Self {
            scheduler: Sfq::new(config),
            now: 0,
            was_set_back: false,
            next_request: 0,
            window: config.window.map(Window::get),
            flows: Vec::new(),
            removed: Vec::new(),
            outstanding: HashMap::new(),
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn apply(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        let now = self.now();
        let count = self.flows.len().max(1);
        match *operation {
            Operation::Add { weight, exempt, requests, kib } => {
                let capacity = FlowCapacity { requests, bytes: Bytes::from_kib(kib) };
                let weight = Shares::new(weight).unwrap();
                let id = self
                    .scheduler
                    .add_flow(&FlowConfig { weight, exempt, capacity, ..FlowConfig::default() }, now);
                prop_assert!(!self.removed.contains(&id), "an identifier was used again");
                self.flows.push(ModelFlow {
                    id,
                    exempt,
                    soft: false,
                    ahead: None,
                    released: 0,
                    capacity,
                    queue: VecDeque::new(),
                });
            }
            Operation::Remove { flow } if !self.flows.is_empty() => {
                let flow = self.flows.remove(flow % count);
                let returned = self.scheduler.remove_flow(flow.id);
                prop_assert_eq!(returned, Ok(flow.queue.iter().map(|&(request, _)| request).collect()));
                self.removed.push(flow.id);
            }
            Operation::Enqueue { flow, offset, bytes } if !self.flows.is_empty() => {
                self.enqueue(flow % count, StorageExtent { offset, bytes })?;
            }
            Operation::Pull => self.pull()?,
            Operation::Complete { index } => {
                let mut open: Vec<FlowId> = self.outstanding.keys().copied().collect();
                open.sort();
                if let Some(&id) = open.get(index % open.len().max(1)) {
                    prop_assert_eq!(self.scheduler.complete(id, now), Ok(()));
                    let counts = self.outstanding.get_mut(&id).unwrap();
                    counts[usize::from(counts[0] == 0)] -= 1;
                    if *counts == [0, 0] {
                        self.outstanding.remove(&id);
                    }
                }
            }
            Operation::CompleteWhatIsNotThere { flow } if !self.flows.is_empty() => {
                let id = self.flows[flow % count].id;
                if !self.outstanding.contains_key(&id) {
                    let error = self.scheduler.complete(id, now);
                    prop_assert_eq!(error, Err(CompleteError::NothingOutstanding));
                }
            }
            Operation::Weight { flow, weight } if !self.flows.is_empty() => {
                self.scheduler.set_weight(self.flows[flow % count].id, Shares::new(weight).unwrap()).unwrap();
            }
            Operation::Exempt { flow, exempt } if !self.flows.is_empty() => {
                let flow = &mut self.flows[flow % count];
                flow.exempt = exempt;
                self.scheduler.set_exempt(flow.id, exempt, now).unwrap();
            }
            Operation::Delay { flow, micros } if !self.flows.is_empty() => {
                self.scheduler
                    .set_delay(self.flows[flow % count].id, Latency::from_micros(micros), now)
                    .unwrap();
            }
            Operation::Reservation { flow, reservation } if !self.flows.is_empty() => {
                self.scheduler
                    .set_reservation(self.flows[flow % count].id, reservation.map(Iops::new), now)
                    .unwrap();
            }
            Operation::Limit { flow, limit, beyond } if !self.flows.is_empty() => {
                let limit = limit.map(|(iops, bytes, burst)| ConsumerLimit {
                    iops: iops.map(Iops::new),
                    bytes_per_s: bytes.map(ByteRate::new),
                    burst: Duration::from_millis(burst),
                    beyond,
                });
                let flow = &mut self.flows[flow % count];
                flow.soft = limit.is_some() && beyond == BeyondLimit::Surplus;
                self.scheduler.set_limit(flow.id, limit, now).unwrap();
            }
            Operation::Bucket { flow, bucket } if !self.flows.is_empty() => {
                let bucket = bucket.map(|(rate, size, tick, ahead, dither)| LeakyBucket {
                    rate: Iops::new(rate),
                    size,
                    tick: Duration::from_nanos(tick),
                    ahead,
                    dither,
                });
                let flow = &mut self.flows[flow % count];
                flow.ahead =
                    bucket.map(|bucket| bucket.ahead.map_or(usize::MAX, |ahead| ahead.max(1) as usize));
                self.scheduler.set_bucket(flow.id, bucket, now).unwrap();
            }
            Operation::Window(window) => {
                self.window = window.map(|window| Window::new(window).get());
                self.scheduler.set_window(window.map(Window::new), now);
            }
            Operation::Spacing(micros) => self.scheduler.set_spacing(Latency::from_micros(micros)),
            Operation::Advance(nanos) => self.now = self.now.saturating_add(nanos),
            Operation::JumpBack(nanos) => {
                self.now = self.now.saturating_sub(nanos);
                self.was_set_back = true;
            }
            Operation::JumpTo(nanos) => {
                self.was_set_back |= nanos < self.now;
                self.now = nanos;
            }
            _ => {}
        }
        self.check()
    }

    fn enqueue(&mut self, index: usize, extent: StorageExtent) -> Result<(), TestCaseError> {
        let now = self.now();
        let flow = &mut self.flows[index];
        let request = self.next_request;
        self.next_request += 1;
        let bytes: u64 = flow.queue.iter().map(|&(_, bytes)| u64::from(bytes)).sum();
        let expected = if flow.queue.is_empty() {
            Ok(())
        } else if flow.queue.len() as u64 >= u64::from(flow.capacity.requests) {
            Err(QueueRefusal::TooManyRequests)
        } else if bytes + u64::from(extent.bytes) > flow.capacity.bytes.get() {
            Err(QueueRefusal::TooManyBytes)
        } else {
            Ok(())
        };
        let result = self.scheduler.enqueue(flow.id, now, request, extent);
        if let Err(refused) = &result {
            prop_assert_eq!(refused.request, request);
        } else {
            flow.queue.push_back((request, extent.bytes));
        }
        prop_assert_eq!(result.map_err(|refused| refused.reason), expected);
        Ok(())
    }

    fn pull(&mut self) -> Result<(), TestCaseError> {
        let now = self.now();
        let windowed = self.scheduler.outstanding();
        match self.scheduler.pull(now) {
            PullAnswer::Request { flow: id, request, released } => {
                prop_assert!(released <= now || self.was_set_back, "dispatched before it was released");
                let flow = self.flows.iter_mut().find(|flow| flow.id == id);
                prop_assert!(flow.is_some(), "a request of a flow that is gone");
                let flow = flow.unwrap();
                let first = flow.queue.pop_front().map(|(request, _)| request);
                prop_assert_eq!(first, Some(request), "first in, first out");
                let in_window = self.scheduler.outstanding() > windowed;
                prop_assert!(in_window != flow.exempt || in_window && flow.soft, "exempt is outside");
                if in_window {
                    let room = self.window.is_none_or(|window| f64::from(windowed) < window.ceil().max(1.0));
                    prop_assert!(room, "{windowed} outstanding, window {:?}", self.window);
                }
                self.outstanding.entry(id).or_default()[usize::from(in_window)] += 1;
            }
            PullAnswer::NotBefore(then) => prop_assert!(then > now || self.now == u64::MAX),
            PullAnswer::Nothing => {}
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let now = self.now();
        let queued: usize = self.flows.iter().map(|flow| flow.queue.len()).sum();
        let bytes: u64 =
            self.flows.iter().flat_map(|flow| &flow.queue).map(|&(_, bytes)| u64::from(bytes)).sum();
        prop_assert_eq!(self.scheduler.queued(), queued);
        prop_assert_eq!(self.scheduler.queued_bytes(), Bytes::new(bytes));
        let outstanding =
            self.outstanding.values().fold([0, 0], |sum, count| [sum[0] + count[0], sum[1] + count[1]]);
        prop_assert_eq!([self.scheduler.exempt_outstanding(), self.scheduler.outstanding()], outstanding);
        for flow in &mut self.flows {
            let status = self.scheduler.status(flow.id, now).unwrap();
            prop_assert_eq!(status.queued, flow.queue.len());
            prop_assert_eq!(status.oldest.is_some(), !flow.queue.is_empty());
            prop_assert_eq!(status.bucket.is_some(), flow.ahead.is_some());
            if let (Some(bucket), Some(ahead)) = (status.bucket, flow.ahead) {
                prop_assert!(bucket.released + bucket.held <= flow.queue.len());
                // What was released under a larger bound stays.
                prop_assert!(bucket.released <= ahead.max(flow.released));
                flow.released = bucket.released;
            }
            prop_assert_eq!(
                status.outstanding,
                self.outstanding.get(&flow.id).map_or(0, |count| count.iter().sum())
            );
        }
        for &id in &self.removed {
            prop_assert_eq!(self.scheduler.status(id, now), None);
            prop_assert_eq!(self.scheduler.set_weight(id, Shares::MIN), Err(UnknownFlow));
        }
        Ok(())
    }

    /// With nothing in the way, everything comes out within a second for each request.
    fn drain(&mut self) -> Result<(), TestCaseError> {
        let now = self.now();
        for flow in &mut self.flows {
            self.scheduler.set_delay(flow.id, Latency::ZERO, now).unwrap();
            self.scheduler.set_limit(flow.id, None, now).unwrap();
            self.scheduler.set_bucket(flow.id, None, now).unwrap();
            flow.ahead = None;
        }
        let left = self.scheduler.queued();
        for _ in 0..left + 1 {
            while !self.outstanding.is_empty() {
                self.apply(&Operation::Complete { index: 0 })?;
            }
            // The clock may stand at its end.
            self.now = if self.now > u64::MAX / 2 { 0 } else { self.now + 1_100_000_000 };
            self.apply(&Operation::Pull)?;
            self.now = if self.now > u64::MAX / 2 { 0 } else { self.now + 1_100_000_000 };
            self.apply(&Operation::Pull)?;
        }
        prop_assert_eq!(self.scheduler.queued(), 0);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_doubled_or_overtaken(
        discipline in prop_oneof![Just(Discipline::StartTags), Just(Discipline::FinishTags)],
        refill in prop_oneof![3 => Just(RefillTime::OneByOne), 1 => Just(RefillTime::InBatches)],
        window in prop::option::of(0.0f64..8.0),
        batch in prop::option::of(Just(FlowBatch::default())),
        credit in 0u32..100,
        operations in prop::collection::vec(operation(), 1..300),
    ) {
        let mut model = Model::new(SfqConfig {
            discipline,
            refill,
            window: window.map(Window::new),
            batch,
            idle_credit: RequestCost::from_ios(credit),
            ..SfqConfig::default()
        });
        for operation in &operations {
            model.apply(operation)?;
        }
        model.drain()?;
    }
}
