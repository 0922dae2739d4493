//! The regulated queue of one resource: a scheduler, the loop that steers it, and the way of commands.

use std::fmt;

use tidegate_control::{
    Commands, ConsumerCommand, ConsumerObservation, ContractUse, ControlLoop, Decision, HostReport,
    LoopConfig, LoopConfigError, Observation, SelfTuningConfig, WaitReason, WaitingConsumers,
};
use tidegate_sched::{BucketRelease, FlowStatus, PullAnswer, Sfq, SfqConfig, StorageExtent};
use tidegate_units::{ConsumerName, Instant, Iops, Latency, Window};

use crate::account::ConsumerAccount;
use crate::rate_account::{AccountRules, AccountStart, RateAccount};
use crate::request::CompletedRequest;
use crate::samples::LatencySamples;
use crate::terms::ConsumerTerms;

/// The configuration of a [`RegulatedQueue`].
#[derive(Debug, Clone)]
pub struct QueueConfig {
    /// The scheduler. Its window is `depth`, whatever it says itself.
    pub scheduler: SfqConfig,
    /// The most requests outstanding of consumers that are not protected. A law works below this bound.
    pub depth: Window,
    /// The release of requests, under laws that command rates.
    pub release: BucketRelease,
    /// The law; `None`: the window is always `depth`.
    pub law: Option<LoopConfig>,
    /// True if consumers begin at the law's first rate. False if nothing is throttled before the law's first
    /// step.
    pub starts_throttled: bool,
}

/// A queue of requests to one resource, with the loop that decides how many are outstanding, how long they
/// are delayed, or at which rate they are released.
///
/// Consumers are [added](Self::add); their accounts belong to the caller. For each request, call
/// [`enqueue`](Self::enqueue), [`pull`](Self::pull), [`ConsumerAccount::dispatched`] and
/// [`completed`](Self::completed). Once per control interval, [`observe`](Self::observe) each consumer, put
/// the answers into an [`Observation`], [`decide`](Self::decide), and [`carry_out`](Self::carry_out) the
/// commands for each consumer in the same order.
#[derive(Debug)]
pub struct RegulatedQueue<T> {
    scheduler: Sfq<T>,
    /// Needed once per interval. In a box of its own, it keeps the data of every request closer together.
    control: Option<Box<ControlLoop>>,
    depth: Window,
    /// The window that the law commands; `None` without a law, or when the law commands none.
    commanded: Option<Window>,
    /// The consumers observed since the last decision that wait for something else than the law.
    waiting: WaitingConsumers,
    /// The consumers observed since the last decision that are released by an operator.
    released: Vec<ConsumerName>,
    release: BucketRelease,
    starts_throttled: bool,
}

/// Commands for consumers, to be [carried out](RegulatedQueue::carry_out) in the order of the observation.
#[derive(Debug)]
pub struct PendingCommands {
    commands: Commands,
    next: usize,
}

impl PendingCommands {
    /// Returns all commands, as the law gave them.
    #[must_use]
    pub const fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Returns the next command if it is for this consumer.
    fn next_for(&mut self, consumer: &ConsumerName) -> Option<&ConsumerCommand> {
        let next = self.commands.consumers.get(self.next).filter(|command| command.name == *consumer)?;
        self.next += 1;
        Some(next)
    }
}

impl<T: fmt::Debug> RegulatedQueue<T> {
    /// An empty queue without consumers.
    ///
    /// # Errors
    /// When the configuration of the law is not valid.
    pub fn new(config: QueueConfig) -> Result<Self, LoopConfigError> {
        let control = config.law.map(ControlLoop::new).transpose()?;
        Ok(Self {
            scheduler: Sfq::new(SfqConfig { window: Some(config.depth), ..config.scheduler }),
            control: control.map(Box::new),
            depth: config.depth,
            commanded: None,
            waiting: WaitingConsumers::default(),
            released: Vec::new(),
            release: config.release,
            starts_throttled: config.starts_throttled,
        })
    }

    /// Adds a consumer, and returns its account.
    pub fn add<S: LatencySamples>(&mut self, terms: ConsumerTerms, now: Instant) -> ConsumerAccount<S> {
        let rates = self.rate_account(&terms, Some(now), now);
        let bucket = rates.as_ref().and_then(|rates| rates.bucket());
        let flow = self.scheduler.add_flow(&terms.flow_config(bucket), now);
        let mut account = ConsumerAccount::new(terms, flow, rates, now);
        self.reserve(&mut account, now);
        account
    }

    /// Adds a consumer of another queue that is no more, as after a failure. Its requests are gone. Its mean
    /// of outstanding requests goes on.
    pub fn add_again<S: LatencySamples>(&mut self, account: &mut ConsumerAccount<S>, now: Instant) {
        account.forget_requests(now);
        // The loop is a new one and has seen nothing: the consumer's next request ends a pause.
        account.rates = self.rate_account(&account.terms, Some(Instant::ZERO), now);
        let bucket = account.rates.as_ref().and_then(|rates| rates.bucket());
        account.flow = self.scheduler.add_flow(&account.terms.flow_config(bucket), now);
        account.reserved = None;
        self.reserve(account, now);
    }

    /// Removes a consumer. Returns the requests that it had queued.
    pub fn remove<S>(&mut self, account: &ConsumerAccount<S>) -> Vec<T> {
        self.scheduler.remove_flow(account.flow).expect(OURS)
    }

    /// Gives a consumer new terms. The caller then [settles](Self::settle) it.
    pub fn reconfigure_consumer<S: LatencySamples>(
        &mut self,
        account: &mut ConsumerAccount<S>,
        terms: ConsumerTerms,
        now: Instant,
    ) {
        let flow = account.flow;
        self.scheduler.set_weight(flow, terms.shares).expect(OURS);
        self.scheduler.set_limit(flow, terms.ceiling(), now).expect(OURS);
        self.scheduler.set_exempt(flow, terms.is_exempt(), now).expect(OURS);
        if terms.is_exempt() {
            self.set_delay(account, Latency::ZERO, now);
            self.set_rate(account, None, now);
        }
        *account.terms = terms;
        self.reserve(account, now);
    }

    /// Takes a new depth, release and law. The caller then [settles](Self::settle) every consumer.
    ///
    /// # Errors
    /// When the configuration of the law is not valid; nothing is changed then.
    pub fn reconfigure(
        &mut self,
        depth: Window,
        release: BucketRelease,
        law: Option<&LoopConfig>,
        now: Instant,
    ) -> Result<(), LoopConfigError> {
        match (&mut self.control, law) {
            (Some(control), Some(config)) if control.config() == config => {}
            (Some(control), Some(config)) => control.reconfigure(config.clone())?,
            (control @ None, Some(config)) => *control = Some(Box::new(ControlLoop::new(config.clone())?)),
            (control, None) => {
                *control = None;
                self.commanded = None;
                self.scheduler.set_spacing(Latency::ZERO);
            }
        }
        (self.depth, self.release) = (depth, release);
        self.scheduler.set_window(Some(self.window()), now);
        Ok(())
    }

    /// Gives a consumer the state that the law, as it is now, needs. Releases it from throttles that no law
    /// commands any more.
    pub fn settle<S: LatencySamples>(&mut self, account: &mut ConsumerAccount<S>, now: Instant) {
        self.reserve(account, now);
        let rules = self.account_rules();
        if self.control.is_none() {
            self.set_delay(account, Latency::ZERO, now);
        }
        let goes_on = |rates: &RateAccount<S>| rates.goes_on_under(rules.contracts);
        let wants = rules.want_account(&account.terms, account.rates.as_deref());
        if !wants || !account.rates.as_deref().is_none_or(goes_on) {
            self.drop_rates(account, now);
        }
        match (&mut account.rates, wants) {
            (_, false) => {}
            (Some(rates), true) => rates.reconfigure(&account.terms, self.release, rules.contracts, now),
            (None, true) => {
                let idle_since = (account.outstanding.value() == 0).then_some(now);
                account.rates = self.rate_account(&account.terms, idle_since, now);
                let bucket = account.rates.as_ref().and_then(|rates| rates.bucket());
                self.scheduler.set_bucket(account.flow, bucket, now).expect(OURS);
            }
        }
    }

    /// Queues a request that arrives now. Returns true if its consumer has a contract that is kept by rates
    /// and is back from a pause: the loop is then to be stepped at once, and not up to an interval later.
    #[inline]
    #[must_use = "a loop that is not stepped leaves the consumer late"]
    pub fn enqueue<S: LatencySamples>(
        &mut self,
        account: &mut ConsumerAccount<S>,
        request: T,
        extent: StorageExtent,
        now: Instant,
    ) -> bool {
        account.queued += 1;
        account.outstanding.add(1, now);
        let returned = if let Some(rates) = &mut account.rates
            && let Some(control) = &self.control
        {
            rates.arrived(now, control.config().idle_half_life)
        } else {
            false
        };
        self.scheduler.enqueue(account.flow, now, request, extent).expect(OURS);
        returned
    }

    /// Returns the next request to dispatch, or the time to ask again.
    #[inline]
    pub fn pull(&mut self, now: Instant) -> PullAnswer<T> {
        self.scheduler.pull(now)
    }

    /// Records that the resource is done with a request that was dispatched.
    #[inline]
    pub fn completed<S: LatencySamples>(
        &mut self,
        account: &mut ConsumerAccount<S>,
        request: &CompletedRequest,
        now: Instant,
    ) {
        // Only the number of its requests that have slots matters, not which.
        if account.lent > 0 {
            account.lent -= 1;
        } else {
            self.scheduler.complete(account.flow, now).expect(OURS);
        }
        account.completed(request, now);
    }

    /// Gives the slots of a consumer's requests at the resource to other consumers, because they do not
    /// complete.
    pub fn lend_slots<S>(&mut self, account: &mut ConsumerAccount<S>, now: Instant) {
        for _ in account.lent..account.in_flight {
            self.scheduler.complete(account.flow, now).expect(OURS);
        }
        account.lent = account.in_flight;
    }

    /// Takes out the queued requests that are `gone`, and returns them.
    pub fn cancel<S: LatencySamples>(
        &mut self,
        account: &mut ConsumerAccount<S>,
        now: Instant,
        gone: impl FnMut(&T) -> bool,
    ) -> Vec<T> {
        let cancelled = self.scheduler.cancel(account.flow, now, gone).expect(OURS);
        for _ in &cancelled {
            account.queued -= 1;
            account.has_one_less(now);
        }
        cancelled
    }

    /// Returns true if requests wait to be dispatched.
    #[must_use]
    pub fn has_queued(&self) -> bool {
        self.scheduler.queued() > 0
    }

    /// Reads the data that the next calls for a consumer are about to need, and does nothing with it; see
    /// [`Sfq::recall`].
    #[inline]
    pub fn recall<S: LatencySamples>(&self, account: &ConsumerAccount<S>) {
        account.recall();
        self.scheduler.recall(account.flow);
    }

    /// Returns the status of a consumer in the scheduler.
    #[must_use]
    pub fn status<S>(&self, account: &ConsumerAccount<S>, now: Instant) -> Option<FlowStatus> {
        self.scheduler.status(account.flow, now)
    }

    /// Returns the reason for which requests of a consumer wait; `None` if none waits.
    #[must_use]
    pub fn wait_reason<S: LatencySamples>(
        &self,
        account: &ConsumerAccount<S>,
        now: Instant,
    ) -> Option<WaitReason> {
        if account.queued == 0 {
            return None;
        }
        let status = self.scheduler.status(account.flow, now)?;
        // A rate beyond the ability of any storage makes no request wait for longer than a tick.
        let bucket = account.rates.as_deref().and_then(RateAccount::bucket);
        let has_rate = bucket.is_some_and(|bucket| bucket.rate < SelfTuningConfig::UNBOUNDED);
        let in_bucket = has_rate && status.bucket.is_some_and(|bucket| bucket.released == 0);
        let is_throttled = account.delay > Latency::ZERO || in_bucket || self.window() < self.depth;
        Some(if status.is_limited {
            WaitReason::Limit
        } else if account.terms.is_exempt() {
            // It waits for the slots of its turn, and for no window.
            return None;
        } else if is_throttled {
            WaitReason::Law
        } else if self.scheduler.outstanding() > status.outstanding {
            WaitReason::Share
        } else {
            WaitReason::Depth
        })
    }

    /// Returns the window in force.
    #[must_use]
    pub fn window(&self) -> Window {
        self.commanded.filter(|window| *window < self.depth).unwrap_or(self.depth)
    }

    /// Returns the most requests that may be outstanding, whatever the law commands.
    #[must_use]
    pub const fn depth(&self) -> Window {
        self.depth
    }

    /// Returns the loop's configuration; `None` without a law.
    #[must_use]
    pub fn law(&self) -> Option<&LoopConfig> {
        self.control.as_deref().map(ControlLoop::config)
    }

    /// Returns the loop; `None` without a law.
    #[must_use]
    pub fn control(&self) -> Option<&ControlLoop> {
        self.control.as_deref()
    }

    /// Returns a consumer's measurements since the last observation. `oldest` are the times when its oldest
    /// read and its oldest write at the resource were dispatched.
    pub fn observe<S: LatencySamples>(
        &mut self,
        account: &mut ConsumerAccount<S>,
        oldest: [Option<Instant>; 2],
        now: Instant,
    ) -> ConsumerObservation {
        if let Some(reason) = self.wait_reason(account, now) {
            self.waiting.add(reason);
        }
        if account.terms.released {
            self.released.push(account.terms.name.clone());
        }
        let status = account.rates.is_some().then(|| self.scheduler.status(account.flow, now)).flatten();
        account.observe(oldest, status, self.account_rules().contracts, now)
    }

    /// Returns this host's report of an observation, for the hosts that share the resource. `None` without a
    /// law. Call it before [`decide`](Self::decide).
    pub fn report(&mut self, observation: &Observation) -> Option<HostReport> {
        Some(self.control.as_mut()?.report(observation))
    }

    /// Adds the last decision to a report, as other hosts are told it.
    #[must_use]
    pub fn decided(&self, report: HostReport) -> HostReport {
        match &self.control {
            Some(control) => control.decided(report),
            None => report,
        }
    }

    /// Steps the loop. Puts window and spacing into force; the commands for consumers wait to be
    /// [carried out](Self::carry_out). `None` without a law.
    pub fn decide(&mut self, observation: &Observation) -> Option<(PendingCommands, Decision)> {
        let now = observation.at;
        let (commands, mut decision) = self.control.as_mut()?.step(now, observation);
        let is_free = |command: &ConsumerCommand| command.rate.is_none() && command.delay.is_none();
        let waiting = std::mem::take(&mut self.waiting);
        let released = self.released.drain(..).filter(|name| {
            commands.consumers.iter().any(|command| command.name == *name && !is_free(command))
        });
        decision.held = decision.held.saturating_sub(u32::try_from(released.count()).unwrap_or(u32::MAX));
        if commands.window.is_some() && commands.consumers.iter().all(is_free) {
            let by_depth = commands.window.is_some_and(|window| window >= self.depth);
            // What waits for the depth of the queue, or at its limit, does not wait for the law.
            decision.held = if by_depth { 0 } else { decision.held.saturating_sub(waiting.limit) };
        }
        // Those that waited for the depth now wait for the law, if its window is smaller.
        decision.waiting = if decision.held > 0 {
            WaitingConsumers { limit: waiting.limit, ..Default::default() }
        } else {
            waiting
        };
        self.commanded = commands.window;
        self.scheduler.set_window(Some(self.window()), now);
        self.scheduler.set_spacing(commands.spacing.unwrap_or_default());
        Some((PendingCommands { commands, next: 0 }, decision))
    }

    /// Puts the command for a consumer into force. Without a command, the consumer is released.
    ///
    /// Commands come in the order of the observation, less the protected consumers. Call it for each consumer
    /// in that order.
    pub fn carry_out<S: LatencySamples>(
        &mut self,
        commands: &mut PendingCommands,
        account: &mut ConsumerAccount<S>,
        now: Instant,
    ) {
        let is_exempt = account.terms.is_exempt();
        let command = commands.next_for(&account.terms.name).filter(|_| !is_exempt);
        self.set_rate(account, command.and_then(|command| command.rate), now);
        self.set_delay(account, command.and_then(|command| command.delay).unwrap_or_default(), now);
        // What a contract's rate costs follows the size of the requests.
        self.reserve(account, now);
    }

    /// Returns the rules of the law as it is now.
    fn account_rules(&self) -> AccountRules {
        self.law().map_or(AccountRules { first: None, contracts: ContractUse::None }, |config| AccountRules {
            first: config.first_rate(),
            contracts: config.law.contract_use(),
        })
    }

    /// Puts the reservation into force that a consumer's terms come to under the law. A law that does not act
    /// reserves nothing.
    fn reserve<S: LatencySamples>(&mut self, account: &mut ConsumerAccount<S>, now: Instant) {
        let acts = self.law().is_some_and(|config| !config.dry_run);
        let contracts = if acts { self.account_rules().contracts } else { ContractUse::None };
        let wanted = account.wanted_reservation(contracts);
        if account.reserved != wanted {
            account.reserved = wanted;
            self.scheduler.set_reservation(account.flow, wanted.map(|(rate, _)| rate), now).expect(OURS);
            if let Some((_, burst)) = wanted {
                self.scheduler.set_reservation_burst(account.flow, burst).expect(OURS);
            }
        }
    }

    /// Makes a consumer's state for a law that commands rates or keeps its contract.
    fn rate_account<S: LatencySamples>(
        &self,
        terms: &ConsumerTerms,
        idle_since: Option<Instant>,
        now: Instant,
    ) -> Option<Box<RateAccount<S>>> {
        let config = self.law()?;
        let rules = self.account_rules();
        if !rules.want_account::<S>(terms, None) {
            return None;
        }
        let start = AccountStart { rules, throttled: self.starts_throttled && !config.dry_run, idle_since };
        Some(Box::new(RateAccount::new(terms, self.release, start, now)))
    }

    /// Releases a consumer, and drops its state for laws that command rates or keep contracts.
    fn drop_rates<S: LatencySamples>(&mut self, account: &mut ConsumerAccount<S>, now: Instant) {
        self.set_rate(account, None, now);
        account.rates = None;
    }

    fn set_rate<S: LatencySamples>(
        &mut self,
        account: &mut ConsumerAccount<S>,
        rate: Option<Iops>,
        now: Instant,
    ) {
        if let Some(rates) = &mut account.rates
            && rates.set_rate(rate)
        {
            self.scheduler.set_bucket(account.flow, rates.bucket(), now).expect(OURS);
        }
    }

    fn set_delay<S>(&mut self, account: &mut ConsumerAccount<S>, delay: Latency, now: Instant) {
        if account.delay != delay {
            account.delay = delay;
            self.scheduler.set_delay(account.flow, delay, now).expect(OURS);
        }
    }
}

/// The invariant behind every `expect` here.
const OURS: &str = "the scheduler knows every account's flow, and its queues have no bounds of their own";

#[cfg(test)]
mod tests;
