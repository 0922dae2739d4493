//! The walk over a decision: each of its numbers with its column and what is expected of it.
//!
//! Writer and reader take the same walk. Expectations are made of what both know: earlier decisions of the
//! resource, and what the walk has passed already. Nothing here may change without a new format version.

use tidegate_control::{
    ClusterLoad, ClusterSignal, Commands, ConsumerCommand, ConsumerObservation, MeanOutstanding,
    OperationTotals, SignalPercentile, SignalRequests, SignalStatistic,
};
use tidegate_units::{ByteRate, Bytes, HostName, Iops, Latency, Window};

use crate::error::DamagedBlock;
use crate::number::{
    CONSUMER_COLUMNS, Cell, Coder, Column, ConsumerColumn as Each, Expected, RESOURCE_COLUMNS,
    ResourceColumn as Once,
};
use crate::record::{ConsumerReading, DecisionBody, RecordedTerms, ThrottleReading};

/// Above this an integer has no exact floating-point number of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The parts of a decision that are there, or are written out instead of as columns.
mod form {
    pub(super) const TERMS: u64 = 1;
    pub(super) const COMMANDS_AS_DOCUMENT: u64 = 2;
    pub(super) const READING: u64 = 4;
    pub(super) const READING_AS_DOCUMENT: u64 = 8;
    pub(super) const PERCENTILE: u64 = 16;
    pub(super) const CLUSTER: u64 = 32;
    pub(super) const CLUSTER_LOAD: u64 = 64;
    pub(super) const CLUSTER_HOSTS: u64 = 128;
    pub(super) const READING_OF_CONSUMERS: u64 = 256;
    /// All of them.
    pub(super) const KNOWN: u64 = 511;
}

/// Knowledge of both sides about a resource after its last decision.
#[derive(Debug, Clone)]
pub(crate) struct ResourceMemory {
    consumers: Vec<ConsumerMemory>,
    cells: [Cell; RESOURCE_COLUMNS],
    hosts: ClusterHosts,
}

impl Default for ResourceMemory {
    fn default() -> Self {
        let cells = std::array::from_fn(|_| Cell::default());
        Self { consumers: Vec::new(), cells, hosts: ClusterHosts::default() }
    }
}

/// Knowledge of both sides about a consumer.
#[derive(Debug, Clone)]
struct ConsumerMemory {
    terms: RecordedTerms,
    cells: [Cell; CONSUMER_COLUMNS],
    means: [OperationMeans; 2],
}

/// Count, bytes and latency of the last interval in which requests completed.
#[derive(Debug, Clone, Copy, Default)]
struct OperationMeans {
    count: u64,
    bytes: u64,
    latency: u64,
}

/// Names in a cluster's signal, and reports of the self-tuning law. They are written out when they change.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct ClusterHosts {
    leader: Option<HostName>,
    points: Vec<tidegate_control::PeerPoint>,
}

impl OperationMeans {
    /// Returns what `total` of these comes to for another number of requests. `None` before the first one.
    fn scaled(&self, total: u64, count: u64) -> Option<u64> {
        let product = u128::from(total) * u128::from(count);
        product.checked_div(u128::from(self.count)).map(|scaled| u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

/// Codes a decision. `at` is the time of its observation, and `elapsed` the time since the one before.
pub(crate) fn code<C: Coder>(
    coder: &mut C,
    memory: &mut ResourceMemory,
    body: &mut DecisionBody,
    elapsed: u64,
) -> Result<(), DamagedBlock> {
    let form = code_form(coder, memory, body)?;
    if form & form::TERMS != 0 {
        code_terms(coder, memory, body)?;
    }
    code_observation(coder, memory, body, form, elapsed)?;
    code_reading(coder, memory, body, form)?;
    code_commands(coder, memory, body, form)?;
    let cells = &mut memory.cells;
    once_u32(coder, Once::Held, &mut body.held, cells)?;
    let mut lag = body.lag.cast_unsigned();
    once(coder, Once::Lag, &mut lag, cells)?;
    body.lag = lag.cast_signed();
    Ok(())
}

/// Codes the parts that are there. Of a decision that is being read, only they are known afterwards.
fn code_form<C: Coder>(
    coder: &mut C,
    memory: &mut ResourceMemory,
    body: &mut DecisionBody,
) -> Result<u64, DamagedBlock> {
    let observation = &body.observation;
    let flag = |flag: u64, is_set: bool| if is_set { flag } else { 0 };
    let known = memory.consumers.iter().map(|consumer| &consumer.terms);
    let same_terms = observation.consumers.len() == memory.consumers.len()
        && known.zip(&observation.consumers).all(|(terms, consumer)| is_of(terms, consumer));
    let cluster = observation.cluster.as_ref();
    let hosts = cluster.map_or_else(ClusterHosts::default, ClusterHosts::of);
    let reading = body.reading.as_ref();
    let mut form = Some(
        flag(form::TERMS, !same_terms)
            | flag(form::COMMANDS_AS_DOCUMENT, !is_regular(&observation.consumers, &body.commands))
            | flag(form::READING, reading.is_some())
            | flag(form::READING_OF_CONSUMERS, reading.is_some_and(|reading| !reading.consumers.is_empty()))
            | flag(
                form::READING_AS_DOCUMENT,
                reading.is_some_and(|reading| {
                    !(reading.consumers.is_empty() || reads_all(reading, observation))
                }),
            )
            | flag(form::PERCENTILE, observation.percentile.is_some())
            | flag(form::CLUSTER, cluster.is_some())
            | flag(form::CLUSTER_LOAD, cluster.is_some_and(|cluster| cluster.load.is_some()))
            | flag(form::CLUSTER_HOSTS, cluster.is_some() && !hosts.is(&memory.hosts)),
    );
    let cell = &mut memory.cells[Once::Form.cell()];
    coder.number(Once::Form, &mut form, Expected::one(cell.last), cell)?;
    form.filter(|form| *form <= form::KNOWN).ok_or(DamagedBlock("the form of a decision is unknown"))
}

fn is_of(terms: &RecordedTerms, consumer: &ConsumerObservation) -> bool {
    terms.name == consumer.name
        && terms.shares == consumer.shares
        && terms.contract == consumer.contract
        && terms.goal == consumer.goal
        && terms.protected == consumer.protected
}

/// Returns true if the commands name every eligible consumer, in the order of the observation.
fn is_regular(consumers: &[ConsumerObservation], commands: &Commands) -> bool {
    let eligible = consumers.iter().filter(|consumer| !consumer.protected).map(|consumer| &consumer.name);
    eligible.eq(commands.consumers.iter().map(|command| &command.name))
}

fn reads_all(reading: &ThrottleReading, observation: &tidegate_control::Observation) -> bool {
    let eligible = observation.consumers.iter().filter(|consumer| !consumer.protected);
    eligible.map(|consumer| &consumer.name).eq(reading.consumers.iter().map(|each| &each.name))
}

impl ClusterHosts {
    fn of(cluster: &ClusterSignal) -> Self {
        Self { leader: Some(cluster.leader.clone()), points: cluster.points.clone() }
    }

    /// Returns true if both are the same, bit for bit: zeros of different signs are equal.
    fn is(&self, other: &Self) -> bool {
        if self.points.is_empty() && other.points.is_empty() {
            return self.leader == other.leader;
        }
        let bytes = |hosts: &Self| rmp_serde::to_vec_named(hosts).ok();
        bytes(self) == bytes(other)
    }
}

fn code_terms<C: Coder>(
    coder: &mut C,
    memory: &mut ResourceMemory,
    body: &mut DecisionBody,
) -> Result<(), DamagedBlock> {
    let of = |consumer: &ConsumerObservation| RecordedTerms {
        name: consumer.name.clone(),
        shares: consumer.shares,
        contract: consumer.contract,
        goal: consumer.goal,
        protected: consumer.protected,
    };
    let mut terms: Vec<_> = body.observation.consumers.iter().map(of).collect();
    coder.document(&mut terms)?;
    let mut before = std::mem::take(&mut memory.consumers);
    for terms in terms {
        let known = before.iter().position(|known| known.terms.name == terms.name);
        let known = known.map(|place| before.swap_remove(place));
        let (cells, means) = known.map_or_else(Default::default, |known| (known.cells, known.means));
        memory.consumers.push(ConsumerMemory { terms, cells, means });
    }
    Ok(())
}

fn code_observation<C: Coder>(
    coder: &mut C,
    memory: &mut ResourceMemory,
    body: &mut DecisionBody,
    form: u64,
    elapsed: u64,
) -> Result<(), DamagedBlock> {
    let observation = &mut body.observation;
    // A reader begins with the terms; a writer has them already.
    if form & form::TERMS != 0 || observation.consumers.len() != memory.consumers.len() {
        let known = std::mem::take(&mut observation.consumers);
        let mut known = known.into_iter();
        observation.consumers = memory
            .consumers
            .iter()
            .map(|consumer| {
                known.next().filter(|known| is_of(&consumer.terms, known)).unwrap_or_else(|| idle(consumer))
            })
            .collect();
    }
    let mut before = [MeansBefore::default(); 2];
    for (consumer, memory) in observation.consumers.iter_mut().zip(&mut memory.consumers) {
        let cells = &mut memory.cells;
        for (operations, columns) in [(&mut consumer.reads, READS), (&mut consumer.writes, WRITES)] {
            let last = cells[columns.count.cell()].last;
            each(coder, columns.count, &mut operations.count, Expected::one(last), cells)?;
        }
        let is_rounded = code_outstanding(coder, &mut consumer.mean_outstanding, cells)?;
        // By Little's law the latencies add up to about this.
        let outstanding = (consumer.mean_outstanding.get() * elapsed as f64) as u64;
        let mut rest = Some(outstanding).filter(|_| is_rounded);
        for (kind, (operations, columns)) in
            [(&mut consumer.reads, READS), (&mut consumer.writes, WRITES)].into_iter().enumerate()
        {
            let means = &mut memory.means[kind];
            code_operations(coder, operations, columns, cells, means, &mut before[kind], rest)?;
            let latency = operations.total_latency.as_nanos();
            rest = rest.map(|rest| rest.saturating_sub(latency));
        }
        if !is_rounded {
            code_mean_outstanding(coder, consumer, cells, elapsed)?;
        }
        code_waiting(coder, consumer, cells, elapsed)?;
    }
    code_percentile(coder, &mut observation.percentile, &mut memory.cells, form)?;
    code_cluster(coder, &mut observation.cluster, memory, form)
}

fn idle(consumer: &ConsumerMemory) -> ConsumerObservation {
    let RecordedTerms { name, shares, contract, goal, protected } = consumer.terms.clone();
    ConsumerObservation { contract, goal, ..ConsumerObservation::idle(name, shares, protected) }
}

/// Columns of one kind of operations.
#[derive(Debug, Clone, Copy)]
struct OperationColumns {
    count: Each,
    bytes: Each,
    latency: Each,
    in_flight: Each,
    oldest: Each,
}

const READS: OperationColumns = OperationColumns {
    count: Each::ReadCount,
    bytes: Each::ReadBytes,
    latency: Each::ReadLatency,
    in_flight: Each::ReadInFlight,
    oldest: Each::ReadOldest,
};

const WRITES: OperationColumns = OperationColumns {
    count: Each::WriteCount,
    bytes: Each::WriteBytes,
    latency: Each::WriteLatency,
    in_flight: Each::WriteInFlight,
    oldest: Each::WriteOldest,
};

type ConsumerCells = [Cell; CONSUMER_COLUMNS];

/// Knowledge of the consumer before: an agent knows only the latency of the device.
#[derive(Debug, Clone, Copy, Default)]
struct MeansBefore {
    means: Option<OperationMeans>,
    oldest: Option<u64>,
}

/// Codes completed requests but for their number, and those in flight. Requests are as large and as slow as
/// this consumer's last ones, or as those of the consumer before it. Their latencies may as well be the
/// `rest` of the outstanding time.
fn code_operations<C: Coder>(
    coder: &mut C,
    operations: &mut OperationTotals,
    columns: OperationColumns,
    cells: &mut ConsumerCells,
    means: &mut OperationMeans,
    before: &mut MeansBefore,
    rest: Option<u64>,
) -> Result<(), DamagedBlock> {
    let count = operations.count;
    let bytes = means.scaled(means.bytes, count).unwrap_or(0);
    let other = before.means.and_then(|before| before.scaled(before.bytes, count));
    let mut total = operations.bytes.get();
    each(coder, columns.bytes, &mut total, Expected::either(bytes, other), cells)?;
    operations.bytes = Bytes::new(total);
    let latency = means.scaled(means.latency, count).unwrap_or(0);
    let other = before.means.and_then(|before| before.scaled(before.latency, count));
    let mut total = operations.total_latency.as_nanos();
    let rest = rest.filter(|_| count > 0);
    each(coder, columns.latency, &mut total, Expected::either(latency, other).or(rest), cells)?;
    operations.total_latency = Latency::from_nanos(total);
    if count > 0 {
        *means = OperationMeans { count, bytes: operations.bytes.get(), latency: total };
        before.means = Some(*means);
    }
    each_u32(coder, columns.in_flight, &mut operations.in_flight, cells)?;
    each_latency(coder, columns.oldest, &mut operations.oldest_in_flight, before.oldest, cells)?;
    before.oldest = operations.oldest_in_flight.map(Latency::as_nanos);
    Ok(())
}

/// Codes a mean that the sensor has rounded. Returns false if it has not.
fn code_outstanding<C: Coder>(
    coder: &mut C,
    mean: &mut MeanOutstanding,
    cells: &mut ConsumerCells,
) -> Result<bool, DamagedBlock> {
    let mut bits = Some(*mean).filter(|mean| mean.rounded() == *mean).map(|mean| mean.get().to_bits());
    each_option(coder, Each::Outstanding, &mut bits, None, cells)?;
    if let Some(bits) = bits {
        *mean = MeanOutstanding::new(f64::from_bits(bits));
    }
    Ok(bits.is_some())
}

fn code_waiting<C: Coder>(
    coder: &mut C,
    consumer: &mut ConsumerObservation,
    cells: &mut ConsumerCells,
    elapsed: u64,
) -> Result<(), DamagedBlock> {
    each_u32(coder, Each::Queued, &mut consumer.queued, cells)?;
    let mut short = consumer.short_of_tokens.as_nanos();
    let expected = Expected::either(cells[Each::ShortOfTokens.cell()].last, Some(elapsed));
    each(coder, Each::ShortOfTokens, &mut short, expected, cells)?;
    consumer.short_of_tokens = Latency::from_nanos(short);
    let expected = Expected::one(cells[Each::Late.cell()].last);
    each(coder, Each::Late, &mut consumer.late, expected, cells)?;
    let mut wait = consumer.scheduler_wait.as_nanos();
    let expected = Expected::one(cells[Each::SchedulerWait.cell()].last);
    each(coder, Each::SchedulerWait, &mut wait, expected, cells)?;
    consumer.scheduler_wait = Latency::from_nanos(wait);
    each_latency(coder, Each::ReleaseToCompletion, &mut consumer.release_to_completion, None, cells)?;
    each_latency(coder, Each::OldestReleased, &mut consumer.oldest_released, None, cells)?;
    let mut rate = consumer.reservation.map(|rate| rate.per_second().to_bits());
    each_option(coder, Each::Reservation, &mut rate, None, cells)?;
    consumer.reservation = rate.map(|bits| Iops::new(f64::from_bits(bits)));
    Ok(())
}

/// Codes a mean as a number of request-nanoseconds over the time, which is what most sensors divide, and what
/// that is off by in units of the last place. By Little's law the latencies add up to about that number.
fn code_mean_outstanding<C: Coder>(
    coder: &mut C,
    consumer: &mut ConsumerObservation,
    cells: &mut ConsumerCells,
    elapsed: u64,
) -> Result<(), DamagedBlock> {
    let time = elapsed as f64;
    let product = (consumer.mean_outstanding.get() * time).round();
    let mut nanos = if product < EXACT { product as u64 } else { 0 };
    let little = consumer.reads.total_latency.saturating_add(consumer.writes.total_latency).as_nanos();
    let expected = Expected::either(little, Some(cells[Each::OutstandingNanos.cell()].last));
    each(coder, Each::OutstandingNanos, &mut nanos, expected, cells)?;
    let quotient = if elapsed > 0 { nanos as f64 / time } else { 0.0 };
    let mut rest = consumer.mean_outstanding.get().to_bits().wrapping_sub(quotient.to_bits());
    each(coder, Each::OutstandingRest, &mut rest, Expected::one(0), cells)?;
    consumer.mean_outstanding = MeanOutstanding::new(f64::from_bits(quotient.to_bits().wrapping_add(rest)));
    Ok(())
}

fn code_percentile<C: Coder>(
    coder: &mut C,
    percentile: &mut Option<SignalPercentile>,
    cells: &mut [Cell; RESOURCE_COLUMNS],
    form: u64,
) -> Result<(), DamagedBlock> {
    if form & form::PERCENTILE == 0 {
        *percentile = None;
        return Ok(());
    }
    let nothing = SignalPercentile {
        statistic: SignalStatistic::Mean,
        count: 0,
        latency: Latency::ZERO,
        stretch: None,
    };
    let known = percentile.get_or_insert(nothing);
    let place = SignalStatistic::NAMED.iter().position(|(_, statistic)| *statistic == known.statistic);
    let mut statistic = place.unwrap_or(0) as u64;
    once(coder, Once::PercentileStatistic, &mut statistic, cells)?;
    let named = usize::try_from(statistic).ok().and_then(|place| SignalStatistic::NAMED.get(place));
    known.statistic = named.ok_or(DamagedBlock("a statistic is unknown"))?.1;
    once(coder, Once::PercentileCount, &mut known.count, cells)?;
    once_latency(coder, Once::PercentileLatency, &mut known.latency, cells)?;
    once_optional_latency(coder, Once::PercentileStretch, &mut known.stretch, cells)
}

fn code_cluster<C: Coder>(
    coder: &mut C,
    cluster: &mut Option<ClusterSignal>,
    memory: &mut ResourceMemory,
    form: u64,
) -> Result<(), DamagedBlock> {
    if form & form::CLUSTER == 0 {
        *cluster = None;
        return Ok(());
    }
    if form & form::CLUSTER_HOSTS != 0 {
        let mut hosts = cluster.as_ref().map_or_else(ClusterHosts::default, ClusterHosts::of);
        coder.document(&mut hosts)?;
        memory.hosts = hosts;
    }
    let leader = memory.hosts.leader.clone().ok_or(DamagedBlock("a cluster has no leader"))?;
    let points = memory.hosts.points.clone();
    let signal = cluster.get_or_insert_with(|| nothing_heard(leader.clone()));
    (signal.leader, signal.points) = (leader, points);
    let cells = &mut memory.cells;
    once_u32(coder, Once::ClusterHosts, &mut signal.hosts, cells)?;
    once_u32(coder, Once::ClusterStale, &mut signal.stale, cells)?;
    once_u32(coder, Once::ClusterAdjusted, &mut signal.adjusted, cells)?;
    let mut kind = match signal.signal {
        SignalRequests::ProtectedReads => 0,
        SignalRequests::Reads => 1,
        SignalRequests::Everything => 2,
    };
    once(coder, Once::ClusterSignal, &mut kind, cells)?;
    signal.signal = match kind {
        0 => SignalRequests::ProtectedReads,
        1 => SignalRequests::Reads,
        2 => SignalRequests::Everything,
        _ => return Err(DamagedBlock("a signal is unknown")),
    };
    once(coder, Once::ClusterCompleted, &mut signal.completed, cells)?;
    once_optional_latency(coder, Once::ClusterMean, &mut signal.mean, cells)?;
    once_iops(coder, Once::ClusterIops, &mut signal.iops, cells)?;
    once_iops(coder, Once::ClusterReserved, &mut signal.reserved, cells)?;
    once_bool(coder, Once::ClusterOutstanding, &mut signal.outstanding, cells)?;
    once_optional_latency(coder, Once::ClusterOldest, &mut signal.oldest, cells)?;
    once_bool(coder, Once::ClusterLeads, &mut signal.leads, cells)?;
    once_optional_latency(coder, Once::ClusterSetPoint, &mut signal.set_point, cells)?;
    if form & form::CLUSTER_LOAD == 0 {
        signal.load = None;
        return Ok(());
    }
    code_load(coder, signal.load.get_or_insert_with(no_load), cells)
}

const fn nothing_heard(leader: HostName) -> ClusterSignal {
    ClusterSignal {
        hosts: 0,
        stale: 0,
        adjusted: 0,
        signal: SignalRequests::Everything,
        completed: 0,
        mean: None,
        iops: Iops::ZERO,
        reserved: Iops::ZERO,
        outstanding: false,
        oldest: None,
        leader,
        leads: false,
        set_point: None,
        points: Vec::new(),
        load: None,
    }
}

fn no_load() -> ClusterLoad {
    ClusterLoad {
        iops: Iops::ZERO,
        writes: Iops::ZERO,
        outstanding: MeanOutstanding::default(),
        writing: MeanOutstanding::default(),
        waiting: 0.0,
        late: false,
        mean: None,
        worst: 0.0,
        total_window: None,
        active_shares: 0.0,
    }
}

fn code_load<C: Coder>(
    coder: &mut C,
    load: &mut ClusterLoad,
    cells: &mut [Cell; RESOURCE_COLUMNS],
) -> Result<(), DamagedBlock> {
    once_iops(coder, Once::LoadIops, &mut load.iops, cells)?;
    once_iops(coder, Once::LoadWrites, &mut load.writes, cells)?;
    for (column, mean) in
        [(Once::LoadOutstanding, &mut load.outstanding), (Once::LoadWriting, &mut load.writing)]
    {
        let mut number = mean.get();
        once_f64(coder, column, &mut number, cells)?;
        *mean = MeanOutstanding::new(number);
    }
    once_f64(coder, Once::LoadWaiting, &mut load.waiting, cells)?;
    once_bool(coder, Once::LoadLate, &mut load.late, cells)?;
    once_optional_latency(coder, Once::LoadMean, &mut load.mean, cells)?;
    once_f64(coder, Once::LoadWorst, &mut load.worst, cells)?;
    once_window(coder, Once::LoadTotalWindow, &mut load.total_window, None, cells)?;
    once_f64(coder, Once::LoadActiveShares, &mut load.active_shares, cells)
}

/// Codes the reading before the commands: it is of the commands before these.
fn code_reading<C: Coder>(
    coder: &mut C,
    memory: &mut ResourceMemory,
    body: &mut DecisionBody,
    form: u64,
) -> Result<(), DamagedBlock> {
    if form & form::READING == 0 {
        body.reading = None;
        return Ok(());
    }
    let reading = body.reading.get_or_insert_default();
    if form & form::READING_AS_DOCUMENT != 0 {
        return coder.document(reading);
    }
    let commanded = memory.cells[Once::CommandWindow.cell()].last;
    once_window(coder, Once::ReadingWindow, &mut reading.window, Some(commanded), &mut memory.cells)?;
    if form & form::READING_OF_CONSUMERS == 0 {
        reading.consumers.clear();
        return Ok(());
    }
    let eligible = memory.consumers.iter_mut().filter(|consumer| !consumer.terms.protected);
    let mut known = std::mem::take(&mut reading.consumers).into_iter();
    for consumer in eligible {
        let name = consumer.terms.name.clone();
        let known = known.next().filter(|known| known.name == name);
        let mut each = known.unwrap_or_else(|| ConsumerReading::unlimited(name));
        let cells = &mut consumer.cells;
        let commanded = [Each::CommandDelay, Each::CommandRate].map(|column| Some(cells[column.cell()].last));
        each_latency(coder, Each::ReadingDelay, &mut each.delay, commanded[0], cells)?;
        let directions = [
            (&mut each.reads, Each::ReadingReadRate, Each::ReadingReadBytes),
            (&mut each.writes, Each::ReadingWriteRate, Each::ReadingWriteBytes),
        ];
        for (limit, rate_column, bytes_column) in directions {
            let mut rate = limit.rate.map(|rate| rate.per_second().to_bits());
            each_option(coder, rate_column, &mut rate, commanded[1], cells)?;
            limit.rate = rate.map(|bits| Iops::new(f64::from_bits(bits)));
            let mut bytes = limit.bytes.map(|rate| rate.per_second().to_bits());
            each_option(coder, bytes_column, &mut bytes, None, cells)?;
            limit.bytes = bytes.map(|bits| ByteRate::new(f64::from_bits(bits)));
        }
        reading.consumers.push(each);
    }
    Ok(())
}

fn code_commands<C: Coder>(
    coder: &mut C,
    memory: &mut ResourceMemory,
    body: &mut DecisionBody,
    form: u64,
) -> Result<(), DamagedBlock> {
    let commands = &mut body.commands;
    if form & form::COMMANDS_AS_DOCUMENT != 0 {
        return coder.document(commands);
    }
    once_window(coder, Once::CommandWindow, &mut commands.window, None, &mut memory.cells)?;
    once_optional_latency(coder, Once::Spacing, &mut commands.spacing, &mut memory.cells)?;
    let eligible = memory.consumers.iter_mut().filter(|consumer| !consumer.terms.protected);
    let mut known = std::mem::take(&mut commands.consumers).into_iter();
    let (mut delay_before, mut rate_before) = (None, None);
    for consumer in eligible {
        let name = consumer.terms.name.clone();
        let free = ConsumerCommand { name: name.clone(), delay: None, rate: None };
        let mut command = known.next().filter(|known| known.name == name).unwrap_or(free);
        let cells = &mut consumer.cells;
        each_latency(coder, Each::CommandDelay, &mut command.delay, delay_before, cells)?;
        let mut rate = command.rate.map(|rate| rate.per_second().to_bits());
        each_option(coder, Each::CommandRate, &mut rate, rate_before, cells)?;
        command.rate = rate.map(|bits| Iops::new(f64::from_bits(bits)));
        delay_before = command.delay.map(Latency::as_nanos);
        rate_before = rate;
        commands.consumers.push(command);
    }
    Ok(())
}

const MISSING: DamagedBlock = DamagedBlock("a number is missing");
const TOO_GREAT: DamagedBlock = DamagedBlock("a number is too great");

fn each<C: Coder>(
    coder: &mut C,
    column: Each,
    value: &mut u64,
    expected: Expected,
    cells: &mut ConsumerCells,
) -> Result<(), DamagedBlock> {
    let mut number = Some(*value);
    coder.number(column, &mut number, expected, &mut cells[column.cell()])?;
    *value = number.ok_or(MISSING)?;
    Ok(())
}

fn each_u32<C: Coder>(
    coder: &mut C,
    column: Each,
    value: &mut u32,
    cells: &mut ConsumerCells,
) -> Result<(), DamagedBlock> {
    let mut number = u64::from(*value);
    let expected = Expected::one(cells[column.cell()].last);
    each(coder, column, &mut number, expected, cells)?;
    *value = u32::try_from(number).map_err(|_| TOO_GREAT)?;
    Ok(())
}

fn each_option<C: Coder>(
    coder: &mut C,
    column: Each,
    value: &mut Option<u64>,
    other: Option<u64>,
    cells: &mut ConsumerCells,
) -> Result<(), DamagedBlock> {
    let cell = &mut cells[column.cell()];
    coder.number(column, value, Expected::either(cell.last, other), cell)
}

fn each_latency<C: Coder>(
    coder: &mut C,
    column: Each,
    value: &mut Option<Latency>,
    other: Option<u64>,
    cells: &mut ConsumerCells,
) -> Result<(), DamagedBlock> {
    let mut nanos = value.map(Latency::as_nanos);
    each_option(coder, column, &mut nanos, other, cells)?;
    *value = nanos.map(Latency::from_nanos);
    Ok(())
}

type ResourceCells = [Cell; RESOURCE_COLUMNS];

fn once_option<C: Coder>(
    coder: &mut C,
    column: Once,
    value: &mut Option<u64>,
    cells: &mut ResourceCells,
) -> Result<(), DamagedBlock> {
    let cell = &mut cells[column.cell()];
    coder.number(column, value, Expected::one(cell.last), cell)
}

fn once<C: Coder>(
    coder: &mut C,
    column: Once,
    value: &mut u64,
    cells: &mut ResourceCells,
) -> Result<(), DamagedBlock> {
    let mut number = Some(*value);
    once_option(coder, column, &mut number, cells)?;
    *value = number.ok_or(MISSING)?;
    Ok(())
}

fn once_u32<C: Coder>(
    coder: &mut C,
    column: Once,
    value: &mut u32,
    cells: &mut ResourceCells,
) -> Result<(), DamagedBlock> {
    let mut number = u64::from(*value);
    once(coder, column, &mut number, cells)?;
    *value = u32::try_from(number).map_err(|_| TOO_GREAT)?;
    Ok(())
}

fn once_bool<C: Coder>(
    coder: &mut C,
    column: Once,
    value: &mut bool,
    cells: &mut ResourceCells,
) -> Result<(), DamagedBlock> {
    let mut number = u64::from(*value);
    once(coder, column, &mut number, cells)?;
    *value = number != 0;
    Ok(())
}

fn once_f64<C: Coder>(
    coder: &mut C,
    column: Once,
    value: &mut f64,
    cells: &mut ResourceCells,
) -> Result<(), DamagedBlock> {
    let mut bits = value.to_bits();
    once(coder, column, &mut bits, cells)?;
    *value = f64::from_bits(bits);
    Ok(())
}

fn once_iops<C: Coder>(
    coder: &mut C,
    column: Once,
    value: &mut Iops,
    cells: &mut ResourceCells,
) -> Result<(), DamagedBlock> {
    let mut number = value.per_second();
    once_f64(coder, column, &mut number, cells)?;
    *value = Iops::new(number);
    Ok(())
}

fn once_window<C: Coder>(
    coder: &mut C,
    column: Once,
    value: &mut Option<Window>,
    other: Option<u64>,
    cells: &mut ResourceCells,
) -> Result<(), DamagedBlock> {
    let mut bits = value.map(|window| window.get().to_bits());
    let cell = &mut cells[column.cell()];
    coder.number(column, &mut bits, Expected::either(cell.last, other), cell)?;
    *value = bits.map(|bits| Window::new(f64::from_bits(bits)));
    Ok(())
}

fn once_latency<C: Coder>(
    coder: &mut C,
    column: Once,
    value: &mut Latency,
    cells: &mut ResourceCells,
) -> Result<(), DamagedBlock> {
    let mut nanos = value.as_nanos();
    once(coder, column, &mut nanos, cells)?;
    *value = Latency::from_nanos(nanos);
    Ok(())
}

fn once_optional_latency<C: Coder>(
    coder: &mut C,
    column: Once,
    value: &mut Option<Latency>,
    cells: &mut ResourceCells,
) -> Result<(), DamagedBlock> {
    let mut nanos = value.map(Latency::as_nanos);
    once_option(coder, column, &mut nanos, cells)?;
    *value = nanos.map(Latency::from_nanos);
    Ok(())
}
