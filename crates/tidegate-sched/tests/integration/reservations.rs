//! Reservations and soft limits: against mClock's rules followed slowly, and against what they are for.

use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_sched::{
    BeyondLimit, ConsumerLimit, FlowConfig, FlowId, PullAnswer, Sfq, SfqConfig, StorageExtent,
};
use tidegate_units::{Instant, Iops, Shares, Window};

const SECOND: u64 = 1_000_000_000;
const KIB: u32 = 1024;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn scheduler<T>(window: f64) -> Sfq<T> {
    Sfq::new(SfqConfig { window: Some(Window::new(window)), batch: None, ..SfqConfig::default() })
}

fn flow(shares: u32, reservation: f64) -> FlowConfig {
    FlowConfig {
        weight: Shares::new(shares).unwrap(),
        reservation: (reservation > 0.0).then(|| Iops::new(reservation)),
        ..FlowConfig::default()
    }
}

fn limited(shares: u32, reservation: f64, limit: f64, beyond: BeyondLimit) -> FlowConfig {
    let limit = ConsumerLimit {
        iops: Some(Iops::new(limit)),
        bytes_per_s: None,
        burst: Duration::from_millis(200),
        beyond,
    };
    FlowConfig { limit: Some(limit), ..flow(shares, reservation) }
}

/// mClock's two phases with start tags, in lists that are searched from end to end. All numbers are exact:
/// costs in sixteenths of an I/O, weights powers of two up to 2⁸, times between reserved I/Os multiples of 16
/// ns.
#[derive(Default)]
struct Oracle {
    flows: Vec<OracleFlow>,
    virtual_time: u64,
    greatest_finish: u64,
    outstanding: usize,
    /// Sixteenths of what went by reservation since something went by shares.
    in_a_row: i64,
}

struct OracleFlow {
    weight: u64,
    /// 1/r in nanoseconds.
    interval: Option<u64>,
    /// (sixteenths, request)
    queue: VecDeque<(u64, u64)>,
    start: u64,
    finish: u64,
    tag: u64,
}

impl Oracle {
    fn arrive(&mut self, flow: usize, now: u64, sixteenths: u64, request: u64) {
        self.flows[flow].queue.push_back((sixteenths, request));
        if self.flows[flow].queue.len() == 1 {
            self.flows[flow].tag = self.flows[flow].tag.max(now);
            self.tag_head(flow);
        }
    }

    fn tag_head(&mut self, flow: usize) {
        let flow = &mut self.flows[flow];
        flow.start = flow.finish.max(self.virtual_time);
    }

    /// Flows that may go, and whether by reservation; ties are left open.
    fn may_go(&self, now: u64) -> (Vec<usize>, bool) {
        let waiting = || (0..self.flows.len()).filter(|&flow| !self.flows[flow].queue.is_empty());
        let tag = |flow: &usize| self.flows[*flow].interval.map(|_| self.flows[*flow].tag);
        let earliest = waiting().filter_map(|flow| tag(&flow)).min();
        if let Some(earliest) = earliest.filter(|&tag| tag <= now && self.in_a_row < 128 * 16) {
            return (waiting().filter(|flow| tag(flow) == Some(earliest)).collect(), true);
        }
        let least = waiting().map(|flow| self.flows[flow].start).min();
        (waiting().filter(|&flow| Some(self.flows[flow].start) == least).collect(), false)
    }

    fn go(&mut self, chosen: usize, reserved: bool) -> u64 {
        let flow = &mut self.flows[chosen];
        let (sixteenths, request) = flow.queue.pop_front().unwrap();
        flow.finish = flow.start + sixteenths * 256 / flow.weight;
        if reserved {
            let farthest = self.virtual_time + (sixteenths + 256 * 16) * 256 / flow.weight;
            flow.finish = flow.finish.min(farthest);
            flow.tag += flow.interval.unwrap() * sixteenths / 16;
            self.in_a_row += sixteenths as i64;
        } else {
            self.virtual_time = flow.start;
            let owed = self.in_a_row >= 128 * 16;
            self.in_a_row = if owed { self.in_a_row - 128 * sixteenths as i64 } else { self.in_a_row.min(0) };
        }
        self.greatest_finish = self.greatest_finish.max(flow.finish);
        self.outstanding += 1;
        self.tag_head(chosen);
        request
    }

    fn done(&mut self) {
        self.outstanding -= 1;
        if self.outstanding == 0 && self.flows.iter().all(|flow| flow.queue.is_empty()) {
            self.virtual_time = self.virtual_time.max(self.greatest_finish);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn orders_as_mclock_with_start_tags(
        depth in 1u32..5,
        flows in prop::collection::vec((0u32..9, prop::option::of(1u64..1_000)), 1..8),
        steps in prop::collection::vec((0u32..12, 0usize..8, 16u64..160, 0u64..2_000_000), 1..400),
    ) {
        let mut scheduler = scheduler(f64::from(depth));
        let mut oracle = Oracle::default();
        let mut ids: Vec<FlowId> = Vec::new();
        let mut now = 0;
        for &(exponent, interval) in &flows {
            let interval = interval.map(|units| units * 16_000);
            let reservation = interval.map_or(0.0, |nanos| 1e9 / nanos as f64);
            ids.push(scheduler.add_flow(&flow(1 << exponent, reservation), at(now)));
            oracle.flows.push(OracleFlow {
                weight: 1 << exponent, interval, queue: VecDeque::new(), start: 0, finish: 0, tag: 0,
            });
        }
        let mut running: Vec<FlowId> = Vec::new();
        for (request, &(action, flow, sixteenths, nanos)) in steps.iter().enumerate() {
            let request = request as u64;
            if action < 5 {
                let flow = flow % flows.len();
                let extent = StorageExtent { offset: 0, bytes: sixteenths as u32 * 4 * KIB };
                scheduler.enqueue(ids[flow], at(now), request, extent).unwrap();
                oracle.arrive(flow, now, sixteenths, request);
            } else if action < 8 {
                let (may_go, reserved) =
                    if oracle.outstanding < depth as usize { oracle.may_go(now) }
                        else { (Vec::new(), false) };
                match scheduler.pull(at(now)) {
                    PullAnswer::Request { flow, request, .. } => {
                        let which = ids.iter().position(|&id| id == flow).unwrap();
                        prop_assert!(may_go.contains(&which), "{which} went, {may_go:?} might");
                        prop_assert_eq!(oracle.go(which, reserved), request);
                        running.push(flow);
                    }
                    other => prop_assert!(may_go.is_empty(), "{other:?}, {may_go:?} might go"),
                }
            } else if action < 10 {
                if !running.is_empty() {
                    let flow = running.swap_remove(flow % running.len());
                    scheduler.complete(flow, at(now)).unwrap();
                    oracle.done();
                }
            } else {
                now += nanos;
            }
        }
    }
}

/// A server of `capacity` I/Os per second behind a scheduler, and clients that each keep some requests
/// waiting.
struct Bench {
    scheduler: Sfq<u32>,
    window: u32,
    now: u64,
    capacity: f64,
    free_at: u64,
    random: u64,
    running: BinaryHeap<std::cmp::Reverse<(u64, FlowId)>>,
    clients: Vec<Client>,
}

struct Client {
    id: FlowId,
    active: bool,
    bytes: u32,
    /// In I/Os.
    done: f64,
    dispatched: Vec<u64>,
}

impl Bench {
    fn new(window: u32, capacity: f64, flows: &[FlowConfig]) -> Self {
        let mut scheduler = scheduler(f64::from(window));
        let clients = flows
            .iter()
            .map(|flow| Client {
                id: scheduler.add_flow(flow, at(0)),
                active: true,
                bytes: 4 * KIB,
                done: 0.0,
                dispatched: Vec::new(),
            })
            .collect();
        Self {
            scheduler,
            window,
            now: 0,
            capacity,
            free_at: 0,
            random: 1,
            running: BinaryHeap::new(),
            clients,
        }
    }

    /// Uniform within a tenth of 1, so that nothing is in step by chance.
    fn jitter(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        0.9 + 0.2 * (self.random >> 40) as f64 / f64::from(1u32 << 24)
    }

    /// I/Os per second of each client over the next `seconds`.
    fn run(&mut self, seconds: f64) -> Vec<f64> {
        let end = self.now + (seconds * 1e9) as u64;
        for client in &mut self.clients {
            client.done = 0.0;
            client.dispatched.clear();
        }
        while self.now < end {
            let now = at(self.now);
            for client in self.clients.iter().filter(|client| client.active) {
                while self.scheduler.status(client.id, now).unwrap().queued < 4 {
                    let extent = StorageExtent { offset: 0, bytes: client.bytes };
                    self.scheduler.enqueue(client.id, now, client.bytes, extent).unwrap();
                }
            }
            let mut wake = u64::MAX;
            match self.scheduler.pull(now) {
                PullAnswer::Request { flow, request: bytes, .. } => {
                    let ios = f64::from(bytes.max(64 * KIB)) / f64::from(64 * KIB);
                    let service = (ios * 1e9 / self.capacity * self.jitter()) as u64;
                    self.free_at = self.free_at.max(self.now) + service;
                    self.running.push(std::cmp::Reverse((self.free_at, flow)));
                    assert!(self.scheduler.outstanding() <= self.window, "the window holds for everyone");
                    let now = self.now;
                    let client = self.clients.iter_mut().find(|client| client.id == flow).unwrap();
                    client.done += ios;
                    client.dispatched.push(now);
                    continue;
                }
                PullAnswer::NotBefore(then) => wake = then.as_nanos(),
                PullAnswer::Nothing => {}
            }
            if let Some(&std::cmp::Reverse((done, flow))) =
                self.running.peek().filter(|next| next.0.0 <= wake)
            {
                self.running.pop();
                self.now = done;
                self.scheduler.complete(flow, at(done)).unwrap();
            } else {
                self.now = wake.min(end);
            }
        }
        self.clients.iter().map(|client| client.done / seconds).collect()
    }
}

/// What everyone should get: `λ·φ` within reservation and limit, with λ such that it adds up to the capacity.
fn entitled(capacity: f64, flows: &[(u32, f64, f64)]) -> Vec<f64> {
    let given = |lambda: f64| -> Vec<f64> {
        flows.iter().map(|&(shares, least, most)| (lambda * f64::from(shares)).clamp(least, most)).collect()
    };
    let (mut low, mut high) = (0.0, capacity);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if given(middle).iter().sum::<f64>() < capacity { low = middle } else { high = middle }
    }
    given(high)
}

fn close(got: &[f64], wanted: &[f64], within: f64, requests_per_s: f64) -> Result<(), String> {
    for (got_one, wanted_one) in got.iter().zip(wanted) {
        if (got_one - wanted_one).abs() > within * wanted_one + requests_per_s {
            return Err(format!("got {got:.1?}, wanted {wanted:.1?}"));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Reservations that add up to at most 95 % of the capacity are kept to 1 %, what is left goes by shares,
    /// and nobody gets more than his limit.
    #[test]
    fn the_larger_of_reservation_and_share_the_smaller_of_that_and_the_limit(
        window in 1u32..20,
        flows in prop::collection::vec((1u32..1_000, 0.0f64..1.0, prop::option::of(1.05f64..3.0)), 2..6),
        part in 0.1f64..0.95,
    ) {
        let capacity = 2_000.0;
        let sum: f64 = flows.iter().map(|flow| flow.1).sum();
        let mut entitlements = Vec::new();
        let mut configs = Vec::new();
        for (index, &(shares, reserved, limit)) in flows.iter().enumerate() {
            let reservation = reserved / sum.max(1e-9) * part * capacity;
            // One is unlimited, so that the capacity is used.
            let limit = limit.filter(|_| index > 0).map(|factor| (reservation + 20.0) * factor);
            configs.push(match limit {
                Some(limit) => limited(shares, reservation, limit, BeyondLimit::Wait),
                None => flow(shares, reservation),
            });
            entitlements.push((shares, reservation, limit.unwrap_or(f64::INFINITY)));
        }
        let mut bench = Bench::new(window, capacity, &configs);
        bench.run(5.0);
        let got = bench.run(40.0);
        let wanted = entitled(got.iter().sum(), &entitlements);
        // A limit may be exceeded until its burst of 0.2 s is spent, which takes minutes where little is left
        // to spend it on; what one gets that way, another lacks.
        let bursts: f64 =
            entitlements.iter().filter(|flow| flow.2.is_finite()).map(|flow| (flow.2 * 0.2).ceil()).sum();
        if let Err(message) = close(&got, &wanted, 0.01, 0.5 + bursts / 40.0) {
            prop_assert!(false, "{}", message);
        }
        for ((client, &(_, reservation, _)), got) in bench.clients.iter().zip(&entitlements).zip(&got) {
            prop_assert!(*got >= 0.99 * reservation - 0.5, "{:?}: {got} of {reservation} \
                reserved", client.id);
        }
        for (client, &(_, _, limit)) in bench.clients.iter().zip(&entitlements) {
            let burst = (limit * 0.2).ceil().max(1.0);
            for (index, &from) in client.dispatched.iter().enumerate().step_by(97) {
                let later = client.dispatched.get(index + 500).copied().unwrap_or(u64::MAX);
                let most = burst + limit * (later - from) as f64 / 1e9;
                prop_assert!(later == u64::MAX || 500.0 <= most + 1e-6, "{} beyond {limit}", 500.0 - most);
            }
        }
    }
}

#[test]
fn a_reservation_is_kept_against_ten_thousand_times_the_shares() {
    let mut bench = Bench::new(8, 1_000.0, &[flow(1, 300.0), flow(10_000, 0.0), flow(20_000, 0.0)]);
    let got = bench.run(30.0);
    close(&got, &[300.0, 233.3, 466.7], 0.01, 0.2).unwrap();
}

#[test]
fn a_reservation_counts_large_requests_by_their_cost() {
    let mut bench = Bench::new(8, 1_000.0, &[flow(1, 320.0), flow(1_000, 0.0)]);
    bench.clients[0].bytes = 1024 * KIB;
    let got = bench.run(30.0);
    // 20 requests of 16 I/Os each.
    close(&got, &[320.0, 680.0], 0.02, 1.0).unwrap();
}

/// What mClock pulls the tags back for: else the flow would be shut out for the time that it had the storage.
#[test]
fn what_shares_gave_is_not_taken_from_the_reservation() {
    let mut bench = Bench::new(8, 1_000.0, &[flow(1, 100.0), flow(100_000, 0.0)]);
    bench.clients[1].active = false;
    let alone = bench.run(10.0);
    assert!(alone[0] > 990.0, "{alone:?}");
    bench.clients[1].active = true;
    let first_second = bench.run(1.0);
    assert!((95.0..=115.0).contains(&first_second[0]), "{first_second:?}");
}

/// And the other way round: what the reservation gave is forgotten soon, as SFQ forgets what the idle did not
/// have.
#[test]
fn what_a_reservation_gave_is_not_held_against_the_shares_for_long() {
    let mut bench = Bench::new(8, 1_000.0, &[flow(100, 500.0), flow(100_000, 0.0)]);
    bench.run(60.0);
    let ids = [bench.clients[0].id, bench.clients[1].id];
    let now = at(bench.now);
    bench.scheduler.set_reservation(ids[0], None, now).unwrap();
    bench.scheduler.set_weight(ids[1], Shares::new(100).unwrap()).unwrap();
    bench.run(1.0);
    close(&bench.run(4.0), &[500.0, 500.0], 0.01, 1.0).unwrap();
}

/// The large flow gets its reservation, the third its limit and the burst that this permits. The second is
/// due all that is left, a little more than its reservation.
#[test]
fn the_little_that_reservations_leave_goes_to_the_flow_whose_share_it_is() {
    let limited = limited(85, 208.0, 305.0, BeyondLimit::Wait);
    let mut bench = Bench::new(1, 2_000.0, &[flow(186, 1_682.0), flow(2, 9.6), limited]);
    bench.run(5.0);
    let got = bench.run(40.0);
    close(&got[..1], &[1_682.0], 0.0, 0.2).unwrap();
    assert!(got[2] < 305.0 + 61.0 / 40.0 && got[1] > 12.0, "{got:?}");
}

#[test]
fn an_idle_flow_saves_up_one_request_and_no_more() {
    let mut bench = Bench::new(1, 1_000.0, &[flow(1, 100.0), flow(1_000_000, 0.0)]);
    bench.run(1.0);
    bench.clients[0].active = false;
    bench.run(60.0);
    bench.clients[0].active = true;
    let got = bench.run(0.5);
    assert!((98.0..=104.0).contains(&got[0]), "{got:?}");
    let first: Vec<u64> =
        bench.clients[0].dispatched.windows(2).take(5).map(|pair| pair[1] - pair[0]).collect();
    assert!(first.iter().all(|&gap| gap > SECOND / 130), "one by one: {first:?}");
}

#[test]
fn reservations_beyond_the_capacity_degrade_together_and_leave_a_part_to_the_others() {
    let flows = [flow(1, 1_000.0), flow(1, 500.0), flow(1, 0.0), flow(3, 0.0)];
    let mut bench = Bench::new(4, 750.0, &flows);
    bench.run(5.0);
    let got = bench.run(60.0);
    let by_reservation = 750.0 * 128.0 / 129.0;
    close(&got[..2], &[by_reservation * 2.0 / 3.0, by_reservation / 3.0], 0.01, 0.0).unwrap();
    let rest = got[2] + got[3];
    close(&[rest], &[750.0 / 129.0], 0.01, 0.1).unwrap();
    assert!((got[3] / got[2] - 3.0).abs() < 0.1, "by shares: {got:?}");
}

#[test]
fn seconds_in_which_a_reservation_was_missed_are_counted() {
    let mut bench = Bench::new(4, 1_000.0, &[flow(1, 500.0), flow(1_000, 0.0)]);
    let missed = |bench: &Bench| {
        let status = bench.scheduler.status(bench.clients[0].id, at(bench.now)).unwrap();
        status.reserved.unwrap().missed.as_secs_f64()
    };
    bench.run(20.0);
    assert!(missed(&bench) < 0.1, "{}", missed(&bench));
    bench.capacity = 400.0;
    bench.run(20.0);
    assert!((18.0..=21.5).contains(&missed(&bench)), "{}", missed(&bench));
    bench.capacity = 1_000.0;
    bench.run(20.0);
    assert!(missed(&bench) <= 22.5, "{}", missed(&bench));
}

/// A minute of demand that could not be met is not a minute of priority afterwards: at most a second's worth
/// is.
#[test]
fn what_could_not_be_kept_is_forgiven_beyond_a_second() {
    let mut bench = Bench::new(4, 100.0, &[flow(1, 1_000.0), flow(1_000, 0.0)]);
    bench.run(60.0);
    bench.capacity = 2_000.0;
    let at_once = bench.run(1.0);
    // What was missed, at most 1 000 I/Os, and the reservation itself.
    assert!(at_once[0] <= 2_000.0, "{at_once:?}");
    let then = bench.run(10.0);
    close(&then, &[1_000.0, 1_000.0], 0.02, 0.0).unwrap();
}

#[test]
fn a_soft_limit_holds_under_contention_and_gives_the_surplus_when_alone() {
    let soft = |shares| limited(shares, 0.0, 100.0, BeyondLimit::Surplus);
    let mut bench = Bench::new(4, 1_000.0, &[soft(100), soft(300), flow(1, 0.0)]);
    let got = bench.run(20.0);
    assert!(got[0] <= 101.0 && got[1] <= 101.0 && got[2] > 798.0, "{got:?}");
    bench.clients[2].active = false;
    bench.run(1.0);
    let surplus = bench.run(20.0);
    // 100 each within their limits; the 800 left by shares.
    close(&surplus, &[300.0, 700.0], 0.01, 1.0).unwrap();
    // An hour of surplus is no debt.
    bench.clients[2].active = true;
    let again = bench.run(1.0);
    assert!(again[0] >= 97.0 && again[1] >= 97.0, "{again:?}");
    assert!(again[0] <= 105.0 && again[1] <= 105.0, "{again:?}");
}

#[test]
fn a_soft_limit_keeps_the_storage_busy_with_nobody_else_there() {
    let mut bench = Bench::new(4, 1_000.0, &[limited(100, 50.0, 60.0, BeyondLimit::Surplus)]);
    let got = bench.run(10.0);
    assert!(got[0] > 995.0, "{got:?}");
    let mut hard = Bench::new(4, 1_000.0, &[limited(100, 50.0, 60.0, BeyondLimit::Wait)]);
    hard.run(1.0);
    let got = hard.run(10.0);
    assert!((59.0..=60.3).contains(&got[0]), "{got:?}");
}

/// Ahead of everyone, and outside of the window, within its limit; as anyone else beyond it.
#[test]
fn exemption_ends_at_the_soft_limit() {
    let mut scheduler = scheduler(1.0);
    let exempt = FlowConfig { exempt: true, ..limited(100, 0.0, 10.0, BeyondLimit::Surplus) };
    let exempt = scheduler.add_flow(&exempt, at(0));
    let other = scheduler.add_flow(&flow(1, 0.0), at(0));
    for _ in 0..4 {
        scheduler.enqueue(exempt, at(0), (), StorageExtent::default()).unwrap();
    }
    scheduler.enqueue(other, at(0), (), StorageExtent::default()).unwrap();
    let mut next = || match scheduler.pull(at(0)) {
        PullAnswer::Request { flow, .. } => {
            (Some(flow), scheduler.exempt_outstanding(), scheduler.outstanding())
        }
        _ => (None, scheduler.exempt_outstanding(), scheduler.outstanding()),
    };
    assert_eq!(next(), (Some(exempt), 1, 0));
    assert_eq!(next(), (Some(exempt), 2, 0), "a burst of two");
    assert_eq!(next(), (Some(other), 2, 1), "the window of one is full");
    assert_eq!(next(), (None, 2, 1));
    scheduler.complete(other, at(1)).unwrap();
    assert_eq!(scheduler.pull(at(1)), PullAnswer::Request { flow: exempt, request: (), released: at(0) });
    assert_eq!((scheduler.exempt_outstanding(), scheduler.outstanding()), (2, 1));
}

#[test]
fn a_reservation_changed_while_backlogged_counts_from_then_on() {
    let mut bench = Bench::new(4, 1_000.0, &[flow(1, 0.001), flow(100_000, 0.0)]);
    bench.run(10.0);
    let id = bench.clients[0].id;
    for (reservation, wanted) in [(400.0, 400.0), (100.0, 100.0), (800.0, 800.0)] {
        bench.scheduler.set_reservation(id, Some(Iops::new(reservation)), at(bench.now)).unwrap();
        let got = bench.run(10.0);
        close(&got[..1], &[wanted], 0.01, 0.5).unwrap();
    }
    bench.scheduler.set_reservation(id, Some(Iops::ZERO), at(bench.now)).unwrap();
    let got = bench.run(10.0);
    assert!(got[0] < 1.0, "zero is none: {got:?}");
}

#[test]
fn tells_what_was_served_while_backlogged() {
    let mut bench = Bench::new(4, 1_000.0, &[flow(1, 250.0), flow(1_000, 0.0)]);
    bench.run(10.0);
    let service = bench.scheduler.status(bench.clients[0].id, at(bench.now)).unwrap().reserved.unwrap();
    assert!((9.99..=10.01).contains(&service.backlogged.as_secs_f64()), "{service:?}");
    assert!((service.served_ios() - 2_500.0).abs() < 15.0, "{service:?}");
    assert_eq!(service.missed, Duration::ZERO);
    bench.clients[0].active = false;
    bench.run(10.0);
    let after = bench.scheduler.status(bench.clients[0].id, at(bench.now)).unwrap().reserved.unwrap();
    assert!(after.backlogged < service.backlogged + Duration::from_millis(50), "{after:?}");
    assert_eq!(bench.scheduler.status(bench.clients[1].id, at(bench.now)).unwrap().reserved, None);
}

fn enqueue(scheduler: &mut Sfq<u32>, flow: FlowId, request: u32, now: u64) {
    let extent = StorageExtent { offset: 0, bytes: 4 * KIB };
    scheduler.enqueue(flow, at(now), request, extent).unwrap();
}

fn pulled(scheduler: &mut Sfq<u32>, now: u64) -> Option<u32> {
    match scheduler.pull(at(now)) {
        PullAnswer::Request { request, .. } => Some(request),
        PullAnswer::Nothing | PullAnswer::NotBefore(_) => None,
    }
}

#[test]
fn the_pauses_of_a_fractional_window_are_those_of_consumers_without_a_reservation() {
    const MS: u64 = 1_000_000;
    for (reservation, next) in [(0.0, None), (40.0, Some(1))] {
        let mut scheduler = scheduler::<u32>(0.5);
        let rest = scheduler.add_flow(&flow(100, 0.0), at(0));
        let reserved = scheduler.add_flow(&flow(100, reservation), at(0));
        enqueue(&mut scheduler, rest, 0, 0);
        assert_eq!(pulled(&mut scheduler, 0), Some(0));
        enqueue(&mut scheduler, rest, 9, 0);
        scheduler.complete(rest, at(10 * MS)).unwrap();
        enqueue(&mut scheduler, reserved, 1, 12 * MS);
        assert_eq!(pulled(&mut scheduler, 12 * MS), next, "10 ms at the storage, then a pause of 10 ms");
        if next.is_some() {
            enqueue(&mut scheduler, reserved, 2, 12 * MS);
            assert_eq!(pulled(&mut scheduler, 12 * MS), None, "never more than the window, rounded up");
            scheduler.complete(reserved, at(14 * MS)).unwrap();
            assert_eq!(scheduler.pull(at(14 * MS)), PullAnswer::NotBefore(at(24 * MS)), "the others' pause");
        }
    }
}

#[test]
fn a_burst_is_due_at_once_after_a_pause() {
    for (burst, first) in [(1, [0, 9, 9]), (3, [0, 1, 2])] {
        let mut scheduler = scheduler::<u32>(64.0);
        let reserved = scheduler.add_flow(&flow(1, 40.0), at(0));
        scheduler.set_reservation_burst(reserved, burst).unwrap();
        let rest = scheduler.add_flow(&flow(100_000, 0.0), at(0));
        for request in 0..3 {
            enqueue(&mut scheduler, reserved, request, SECOND);
            enqueue(&mut scheduler, rest, 9, SECOND);
        }
        assert_eq!([0; 3].map(|_| pulled(&mut scheduler, SECOND).unwrap()), first);
    }
}
