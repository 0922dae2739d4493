//! The regulated queues of a pool: one for all of its exports, or one for each (PARDA §3.3).

use slab::Slab;
use tidegate_control::{
    ConsumerObservation, Decision, HostReport, LawOutput, LoopConfig, Observation, WaitingConsumers,
};
use tidegate_journal::{JournalWriter, ResourceJournal, ThrottleReading};
use tidegate_regulate::{
    ConsumerAccount, ConsumerTerms, LatencySamples, PendingCommands, QueueConfig, RegulatedQueue,
};
use tidegate_sched::{BucketRelease, PullAnswer};
use tidegate_units::{ConsumerName, Instant, ResourceName, Window};

use crate::config::LawScope;

/// A queue with its loop, and the journal of the loop's decisions.
struct Regulation {
    queue: RegulatedQueue<usize>,
    /// It is of one export, which its window does not bound.
    protected: bool,
    journal: Option<ResourceJournal>,
}

/// The queues of a pool. Accounts know theirs by its place.
pub(super) struct Regulations {
    scope: LawScope,
    /// The configuration of the queues, with the pool's law.
    config: QueueConfig,
    /// With one law for the pool, its queue is the only one.
    each: Slab<Regulation>,
    /// The place that is asked first for a request, so that each queue has its turn.
    turn: usize,
    writer: Option<JournalWriter>,
}

impl Regulations {
    pub(super) fn new(
        scope: LawScope,
        config: QueueConfig,
        writer: Option<JournalWriter>,
        now: Instant,
    ) -> Self {
        let mut regulations = Self { scope, config, each: Slab::new(), turn: 0, writer };
        if scope == LawScope::Pool {
            let law = regulations.config.law.clone();
            regulations.open(law, now);
        }
        regulations
    }

    fn open(&mut self, law: Option<LoopConfig>, now: Instant) -> usize {
        let queue = RegulatedQueue::new(QueueConfig { law, ..self.config.clone() }).expect(VALID);
        let mut regulation = Regulation { queue, protected: false, journal: None };
        regulation.begin_to_record(self.writer.as_ref(), now);
        self.each.insert(regulation)
    }

    /// Adds a consumer. Returns its account, and the place of its queue.
    pub(super) fn add<S: LatencySamples>(
        &mut self,
        terms: ConsumerTerms,
        now: Instant,
    ) -> (usize, ConsumerAccount<S>) {
        let place = match self.scope {
            LawScope::Pool => 0,
            LawScope::Export => {
                let law = self.config.law.as_ref().map(|law| law_of(law, &terms.name));
                self.open(law, now)
            }
        };
        self.set_protected(place, terms.protected);
        (place, self.each[place].queue.add(terms, now))
    }

    /// A consumer is protected now, or not any more.
    pub(super) fn set_protected(&mut self, place: usize, protected: bool) {
        self.each[place].protected = protected && self.scope == LawScope::Export;
    }

    /// The windows of exports that are not protected.
    fn windows(&self) -> impl Iterator<Item = Window> {
        let bounded = self.each.iter().filter(|(_, regulation)| !regulation.protected);
        bounded.map(|(_, regulation)| regulation.queue.window())
    }

    /// Forgets a consumer that has nothing queued.
    pub(super) fn remove<S>(&mut self, place: usize, account: &ConsumerAccount<S>) {
        let left = self.each[place].queue.remove(account);
        debug_assert!(left.is_empty(), "a removed consumer has requests queued");
        if self.scope == LawScope::Export {
            self.each.remove(place);
        }
    }

    pub(super) fn queue(&self, place: usize) -> &RegulatedQueue<usize> {
        &self.each[place].queue
    }

    pub(super) fn queue_mut(&mut self, place: usize) -> &mut RegulatedQueue<usize> {
        &mut self.each[place].queue
    }

    /// The pool's law.
    pub(super) fn law(&self) -> Option<&LoopConfig> {
        self.config.law.as_ref()
    }

    /// Takes a new depth and law.
    pub(super) fn reconfigure(
        &mut self,
        depth: Window,
        release: BucketRelease,
        law: Option<&LoopConfig>,
        now: Instant,
    ) {
        (self.config.depth, self.config.release, self.config.law) = (depth, release, law.cloned());
        for (_, regulation) in &mut self.each {
            // A queue of one export keeps the name of its loop.
            let own = law.map(|law| match (self.scope, regulation.queue.law()) {
                (LawScope::Export, Some(known)) => {
                    LoopConfig { resource: known.resource.clone(), ..law.clone() }
                }
                _ => law.clone(),
            });
            regulation.queue.reconfigure(depth, release, own.as_ref(), now).expect(VALID);
            regulation.begin_to_record(self.writer.as_ref(), now);
        }
    }

    /// The next request to dispatch, or when to ask again. Queues of their own are asked by turns.
    pub(super) fn pull(&mut self, now: Instant) -> PullAnswer<usize> {
        if self.scope == LawScope::Pool {
            return self.each[0].queue.pull(now);
        }
        let (first, mut wake) = (self.turn, None);
        let places = (first..self.each.capacity()).chain(0..first.min(self.each.capacity()));
        for place in places {
            let Some(regulation) = self.each.get_mut(place) else { continue };
            match regulation.queue.pull(now) {
                PullAnswer::Nothing => {}
                PullAnswer::NotBefore(at) => wake = Some(wake.map_or(at, |wake: Instant| wake.min(at))),
                request @ PullAnswer::Request { .. } => {
                    self.turn = place + 1;
                    return request;
                }
            }
        }
        wake.map_or(PullAnswer::Nothing, PullAnswer::NotBefore)
    }

    pub(super) fn has_queued(&self) -> bool {
        self.each.iter().any(|(_, regulation)| regulation.queue.has_queued())
    }

    /// The window in force; where each export has one, all of them together.
    pub(super) fn window(&self) -> Window {
        match self.scope {
            LawScope::Pool => self.each[0].queue.window(),
            LawScope::Export => Window::new(self.windows().map(Window::get).sum()),
        }
    }

    /// The window that bounds an export by itself; `None` if the pool has one for all, or it is protected.
    pub(super) fn own_window(&self, place: usize) -> Option<Window> {
        let own = self.scope == LawScope::Export && !self.each[place].protected;
        own.then(|| self.each[place].queue.window())
    }

    /// Returns the report of an observation of the whole pool, for the hosts that share its resource. Call it
    /// once before [`decide`](Self::decide). `places` are the consumers' queues, in the observation's order.
    pub(super) fn report(&mut self, observation: &Observation, places: &[usize]) -> Option<HostReport> {
        if self.scope == LawScope::Pool {
            return self.each[0].queue.report(observation);
        }
        // All loops have measured the same. Their decisions are added up.
        let mut report = self.each[*places.first()?].queue.report(observation)?;
        report.window = Some(Window::new(self.windows().map(Window::get).sum()));
        report.active_shares = 0.0;
        for (place, consumer) in places.iter().zip(&observation.consumers) {
            let queue = &mut self.each[*place].queue;
            report.active_shares += queue.report(&of_one(queue, observation, consumer))?.active_shares;
        }
        Some(report)
    }

    /// Adds the last decision to a report, as other hosts are told it.
    pub(super) fn decided(&self, report: HostReport) -> HostReport {
        match self.scope {
            LawScope::Pool => self.each[0].queue.decided(report),
            // A window law tells no point.
            LawScope::Export => report,
        }
    }

    /// Steps the loops, puts their windows into force, and has `carry_out` put the commands for each consumer
    /// into force. Where each export has a law, the decisions are told as one. `None` without a law.
    pub(super) fn decide(
        &mut self,
        observation: &Observation,
        places: &[usize],
        mut carry_out: impl FnMut(&mut RegulatedQueue<usize>, &mut PendingCommands, usize),
    ) -> Option<Decision> {
        if self.scope == LawScope::Pool {
            let (mut commands, decision) = self.each[0].decide(observation)?;
            let queue = &mut self.each[0].queue;
            (0..places.len()).for_each(|consumer| carry_out(queue, &mut commands, consumer));
            return Some(decision);
        }
        let mut told: Option<Decision> = None;
        for (consumer, place) in places.iter().enumerate() {
            let regulation = &mut self.each[*place];
            let own = of_one(&regulation.queue, observation, &observation.consumers[consumer]);
            let Some((mut commands, decision)) = regulation.decide(&own) else { continue };
            carry_out(&mut regulation.queue, &mut commands, consumer);
            match &mut told {
                None => told = Some(Decision { resource: observation.resource.clone(), ..decision }),
                Some(told) => join(told, decision),
            }
        }
        told
    }
}

impl Regulation {
    /// Gives the journal the loop as it is: when it is new, or has changed by no decision.
    fn begin_to_record(&mut self, writer: Option<&JournalWriter>, now: Instant) {
        let Some(control) = self.queue.control() else {
            self.journal = None;
            return;
        };
        match (&mut self.journal, writer) {
            (Some(journal), _) => journal.checkpoint(control),
            (None, Some(writer)) => self.journal = Some(writer.resource(control, now)),
            (None, None) => {}
        }
    }

    fn decide(&mut self, observation: &Observation) -> Option<(PendingCommands, Decision)> {
        // The window that was in force while the observation was made.
        let reading = ThrottleReading { window: Some(self.queue.window()), consumers: Vec::new() };
        let (commands, decision) = self.queue.decide(observation)?;
        if let (Some(journal), Some(control)) = (&mut self.journal, self.queue.control()) {
            journal.record(control, observation, commands.commands(), &decision, Some(&reading));
        }
        Some((commands, decision))
    }
}

/// The law of one export. Its decisions are of `POOL/EXPORT`; a name that would be too long is the pool's.
fn law_of(law: &LoopConfig, export: &ConsumerName) -> LoopConfig {
    let resource = ResourceName::new(&format!("{}/{export}", law.resource));
    LoopConfig { resource: resource.unwrap_or_else(|_| law.resource.clone()), ..law.clone() }
}

/// Returns the observation of the loop of one export: its own requests, and the signal of all.
fn of_one(
    queue: &RegulatedQueue<usize>,
    observation: &Observation,
    consumer: &ConsumerObservation,
) -> Observation {
    let resource = queue.law().map_or(&observation.resource, |law| &law.resource).clone();
    let one = Observation::new(resource, observation.at, vec![consumer.clone()]);
    Observation { cluster: observation.cluster.clone(), ..one }
}

/// Adds the decision of another export to those of the pool that are told as one: windows, β and numbers of
/// consumers add up. The loop of a protected export decides nothing.
fn join(told: &mut Decision, next: Decision) {
    if told.throttled == 0 {
        *told = Decision { resource: told.resource.clone(), ..next };
        return;
    }
    if next.throttled == 0 {
        return;
    }
    let sum = |one: LawOutput, other: LawOutput| match (one, other) {
        (LawOutput::Window(one), LawOutput::Window(other)) => {
            LawOutput::Window(Window::new(one.get() + other.get()))
        }
        (one, _) => one,
    };
    (told.raw, told.bounded) = (sum(told.raw, next.raw), sum(told.bounded, next.bounded));
    told.beta = told.beta.zip(next.beta).map(|(one, other)| one + other);
    told.bound = told.bound.filter(|bound| Some(*bound) == next.bound);
    told.reserved = told.reserved.take().or(next.reserved);
    told.held += next.held;
    told.throttled += next.throttled;
    told.waiting = WaitingConsumers {
        limit: told.waiting.limit + next.waiting.limit,
        share: told.waiting.share + next.waiting.share,
        depth: told.waiting.depth + next.waiting.depth,
    };
}

/// The invariant behind every `expect` here.
const VALID: &str = "a configuration is validated before a worker sees it";
