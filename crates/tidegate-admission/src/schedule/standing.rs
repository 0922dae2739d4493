//! The sets of a day's requirements, and the one of them that is in force in a pool.
//!
//! Promises change at times of day. All promises that hold together at some time are a set. A set is judged
//! before it holds: measured on the pool's model, or found in what was measured beforehand. A refused set is
//! not put into force: the one before it stays as a whole. No clock is read here, and nothing is measured.

use std::fmt;

use tidegate_config::contract::ContractRequirement;
use tidegate_control::Contract;
use tidegate_sched::BucketRelease;
use tidegate_units::{ConsumerName, DailyPeriod, DailyValues, Latency, ResourceName, Shares, TimeOfDay};

use super::known_answers::KnownAnswers;
use super::promises::{PromiseSet, SetVerdict};
use super::question::{StandingAnswer, StorageModel};

/// The promises to a pool's exports, and the basis of their judgement.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolContracts {
    /// The pool.
    pub pool: ResourceName,
    /// Each export with a contract: its weight, and its requirements.
    pub exports: Vec<(ConsumerName, Shares, DailyValues<ContractRequirement>)>,
    /// By what they are judged.
    pub basis: JudgementBasis,
}

/// By what requirements are judged.
#[derive(Debug, Clone, PartialEq)]
pub enum JudgementBasis {
    /// They are measured on the pool's model.
    Model(StorageModel),
    /// They are compared with what was measured beforehand.
    Beforehand(KnownAnswers),
    /// Nothing is known: they are taken as they are given.
    Nothing,
}

impl PoolContracts {
    /// The parts of a day in which none of the requirements changes.
    #[must_use]
    pub fn periods(&self) -> Vec<DailyPeriod> {
        DailyPeriod::between(self.exports.iter().flat_map(|(.., daily)| daily.changes()).collect())
    }
}

/// The sets of a pool, the answers to them, and which one is in force.
#[derive(Debug, Clone)]
pub struct PoolStanding {
    contracts: PoolContracts,
    /// Every part of the day, and the set that holds then.
    periods: Vec<(DailyPeriod, usize)>,
    sets: Vec<(PromiseSet, Option<SetVerdict>)>,
    in_force: usize,
    /// The set that was due and was refused, once that was said.
    refused: Option<usize>,
    /// The set that was due and is not judged yet, once that was said.
    awaited: Option<usize>,
    begun: u64,
    kept_out: u64,
}

/// The state of the promises to a pool's exports, as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContractsStatus {
    /// True if the set in force was admitted; `None`: it was not judged, or not yet.
    pub admitted: Option<bool>,
    /// True if the set of the configuration for this time of day is not in force.
    pub overdue: bool,
    /// Sets that were put into force when their time came.
    pub begun: u64,
    /// Sets that were refused when their time came.
    pub refused: u64,
}

/// The subject of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum AnswerSubject {
    /// The set in force is admitted: what is expected of it is known.
    InForce,
    /// One of another time is.
    Later,
    /// One is refused, in words.
    Refused(String),
}

/// The outcome for a set whose time has come.
#[derive(Debug, PartialEq, Eq)]
pub enum SetChange {
    /// It is to be in force.
    Begun(String),
    /// It is not, and what was stays.
    Refused(String),
    /// It is not known yet, and the set before stays until it is.
    Waits(String),
}

impl PoolStanding {
    /// With what is due at this time in force, whatever is known of it: there is nothing before it to go back
    /// to.
    pub fn new(contracts: PoolContracts, now: TimeOfDay) -> Self {
        let mut sets: Vec<(PromiseSet, Option<SetVerdict>)> = Vec::new();
        let mut periods = Vec::new();
        for period in contracts.periods() {
            let requirement =
                |(name, shares, daily): &(ConsumerName, Shares, DailyValues<ContractRequirement>)| {
                    (name.clone(), *shares, daily.at(period.from()).copied())
                };
            let set =
                PromiseSet { period, requirements: contracts.exports.iter().map(requirement).collect() };
            let known = sets.iter().position(|(other, _)| other.requirements == set.requirements);
            periods.push((period, known.unwrap_or(sets.len())));
            if known.is_none() {
                let verdict = match &contracts.basis {
                    JudgementBasis::Model(_) => set.is_empty().then(|| SetVerdict::Admitted(Vec::new())),
                    JudgementBasis::Beforehand(known) => Some(known.judge(&set)),
                    JudgementBasis::Nothing => Some(SetVerdict::Unjudged),
                };
                sets.push((set, verdict));
            }
        }
        let mut standing = Self {
            contracts,
            periods,
            sets,
            in_force: 0,
            refused: None,
            awaited: None,
            begun: 0,
            kept_out: 0,
        };
        standing.in_force = standing.due(now);
        standing
    }

    /// Returns the pool.
    #[must_use]
    pub fn pool(&self) -> &ResourceName {
        &self.contracts.pool
    }

    /// Returns the promises.
    #[must_use]
    pub fn contracts(&self) -> &PoolContracts {
        &self.contracts
    }

    /// The set that holds at this time.
    fn due(&self, time: TimeOfDay) -> usize {
        self.periods.iter().find(|(period, _)| period.contains(time)).map_or(0, |(_, set)| *set)
    }

    /// The first set of which nothing is known, from the one in force on, and how many come before it.
    pub fn unknown(&self) -> Option<(usize, &PromiseSet)> {
        let order = (self.in_force..self.sets.len()).chain(0..self.in_force);
        order
            .enumerate()
            .find(|&(_, at)| self.sets[at].1.is_none())
            .map(|(before, at)| (before, &self.sets[at].0))
    }

    /// The pool's model, where it is what its sets are measured on.
    pub fn model(&self) -> Option<&StorageModel> {
        match &self.contracts.basis {
            JudgementBasis::Model(model) => Some(model),
            JudgementBasis::Beforehand(_) | JudgementBasis::Nothing => None,
        }
    }

    /// Takes an answer, if it is one about a set of its that waits for it.
    pub fn judged(&mut self, StandingAnswer { question, verdict }: &StandingAnswer) -> Option<AnswerSubject> {
        if *self.pool() != question.pool || self.model() != Some(&question.model) {
            return None;
        }
        let at = self
            .sets
            .iter()
            .position(|(set, known)| known.is_none() && set.requirements == question.set.requirements)?;
        self.sets[at].1 = Some(verdict.clone());
        Some(match verdict {
            SetVerdict::Refused(why) => AnswerSubject::Refused(self.refused_words(at, why)),
            SetVerdict::Admitted(_) | SetVerdict::Unjudged if at == self.in_force => AnswerSubject::InForce,
            SetVerdict::Admitted(_) | SetVerdict::Unjudged => AnswerSubject::Later,
        })
    }

    fn refused_words(&self, at: usize, why: &str) -> String {
        let (pool, period) = (self.pool(), self.sets[at].0.period);
        if at == self.in_force {
            format!(
                "pool {pool}: the contracts in force are refused, and kept as well as the storage can, \
                    {period}: {why}"
            )
        } else {
            format!("pool {pool}: contracts will be refused when their time comes, {period}: {why}")
        }
    }

    /// Returns a message about every set that is known to be refused: the one in force, and those of later
    /// times.
    pub fn refused_sets(&self) -> impl Iterator<Item = String> {
        self.sets.iter().enumerate().filter_map(|(at, (_, verdict))| match verdict {
            Some(SetVerdict::Refused(why)) => Some(self.refused_words(at, why)),
            _ => None,
        })
    }

    /// It begins now, in the place of the pool's other one, of which it takes over what was counted.
    pub fn begin_in_place_of(&mut self, other: Option<&Self>, now: TimeOfDay) {
        self.in_force = self.due(now);
        if let Some(other) = other {
            (self.begun, self.kept_out) = (other.begun, other.kept_out);
        }
    }

    /// Returns the reason why one of the sets was refused.
    pub fn refusal(&self) -> Option<String> {
        self.sets.iter().find_map(|(set, verdict)| match verdict {
            Some(SetVerdict::Refused(why)) => Some(format!(
                "pool {}: the contracts that hold {} are refused: {why}",
                self.pool(),
                set.period
            )),
            _ => None,
        })
    }

    /// Returns the change that the time of day asks for. A set whose answer is not known yet waits for it,
    /// which is said once. A refused set is reported once, until another one was due. After a leap of the
    /// clock, the set that is due at the new time is asked for.
    pub fn step(&mut self, now: TimeOfDay) -> Option<SetChange> {
        let due = self.due(now);
        if due == self.in_force {
            (self.refused, self.awaited) = (None, None);
            return None;
        }
        let (set, verdict) = &self.sets[due];
        match verdict {
            None if self.awaited == Some(due) => None,
            None => {
                let stays = SetInWords(&self.sets[self.in_force].0);
                let said = format!(
                    "pool {}: the contracts that hold {} are not judged yet, {stays} stays in force until \
                        they are",
                    self.pool(),
                    set.period
                );
                self.awaited = Some(due);
                Some(SetChange::Waits(said))
            }
            Some(SetVerdict::Refused(_)) if self.refused == Some(due) => None,
            Some(SetVerdict::Refused(why)) => {
                let stays = &self.sets[self.in_force].0;
                let said = format!(
                    "pool {}: the contracts that hold {} are refused, {} stays in force: {why}",
                    self.pool(),
                    set.period,
                    SetInWords(stays)
                );
                self.refused = Some(due);
                self.kept_out += 1;
                Some(SetChange::Refused(said))
            }
            Some(verdict) => {
                let how = if *verdict == SetVerdict::Unjudged {
                    ", which was not judged"
                } else {
                    ", which was admitted"
                };
                let said = format!("pool {}: in force now is {}{how}", self.pool(), SetInWords(set));
                self.in_force = due;
                (self.refused, self.awaited) = (None, None);
                self.begun += 1;
                Some(SetChange::Begun(said))
            }
        }
    }

    /// Returns the terms in force of each export that has requirements at some time.
    pub fn in_force(&self) -> impl Iterator<Item = ExportTerms<'_>> {
        let (set, verdict) = &self.sets[self.in_force];
        set.requirements.iter().map(move |(name, _, promised)| {
            let measured = match verdict {
                Some(SetVerdict::Admitted(all)) => {
                    all.iter().find(|(of, _)| of == name).map(|&(_, expected)| expected)
                }
                _ => None,
            };
            ExportTerms {
                name,
                contract: promised.map(|promised| with(promised, measured)),
                bucket: promised
                    .and_then(|promised| promised.given.bucket)
                    .unwrap_or(BucketRelease::USUAL_SIZE),
            }
        })
    }

    /// Returns the state of the contracts at this time of day.
    pub fn status(&self, now: TimeOfDay) -> ContractsStatus {
        let admitted = match &self.sets[self.in_force].1 {
            Some(SetVerdict::Admitted(_)) => Some(true),
            Some(SetVerdict::Refused(_)) => Some(false),
            Some(SetVerdict::Unjudged) | None => None,
        };
        let overdue = self.due(now) != self.in_force;
        ContractsStatus { admitted, overdue, begun: self.begun, refused: self.kept_out }
    }
}

/// The terms in force of an export.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExportTerms<'a> {
    /// The export.
    pub name: &'a ConsumerName,
    /// Its contract, if it has one now.
    pub contract: Option<Contract>,
    /// The size of its bucket.
    pub bucket: u32,
}

/// The promise, with what was measured where it does not say what is expected.
fn with(requirement: ContractRequirement, measured: Option<Latency>) -> Contract {
    let contract = requirement.given.contract;
    let measured = measured.filter(|_| !requirement.expects);
    // What was admitted is expected sooner than it was promised.
    let known = measured.and_then(|it| Contract::new(contract.iops(), contract.response_time(), it).ok());
    known.unwrap_or(contract)
}

/// A set, in words.
struct SetInWords<'a>(&'a PromiseSet);

impl fmt::Display for SetInWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no contract");
        }
        for (index, (name, _, ContractRequirement { given, .. })) in self.0.promised().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let (iops, response_time) = (given.contract.iops(), given.contract.response_time());
            write!(f, "{separator}{name} {iops} within {response_time}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::contract::ContractTerms;
    use tidegate_device::Preset;
    use tidegate_sched::Discipline;
    use tidegate_units::{Bytes, Iops};

    use super::super::question::StandingQuestion;
    use super::*;

    fn time(text: &str) -> TimeOfDay {
        text.parse().unwrap()
    }

    fn requirement(iops: f64) -> ContractRequirement {
        let ms = Latency::from_millis;
        let contract = Contract::new(Iops::new(iops), ms(36), ms(30)).unwrap();
        ContractRequirement {
            given: ContractTerms { contract, bucket: None },
            expects: false,
            size: Some(Bytes::from_kib(4)),
        }
    }

    /// One with 40 IO/s all day, and another with 20 by day, 5 in the evening, and nothing at night.
    fn standing(basis: JudgementBasis, now: &str) -> PoolStanding {
        let name = |name| ConsumerName::new(name).unwrap();
        let day = vec![
            (time("08:00"), None, requirement(20.0)),
            (time("18:00"), Some(time("22:00")), requirement(5.0)),
        ];
        let exports = vec![
            (name("w1"), Shares::DEFAULT, DailyValues::always(requirement(40.0))),
            (name("w2"), Shares::DEFAULT, DailyValues::new(day).unwrap()),
        ];
        PoolStanding::new(PoolContracts { pool: ResourceName::new("p").unwrap(), exports, basis }, time(now))
    }

    fn unasked(now: &str) -> PoolStanding {
        let model = StorageModel::new(Preset::Dnes309170w.config(), 1, Discipline::default());
        standing(JudgementBasis::Model(model), now)
    }

    /// The outcome for one of the sets.
    fn judged(standing: &mut PoolStanding, set: usize, verdict: SetVerdict) -> Option<AnswerSubject> {
        let (pool, model) = (standing.pool().clone(), standing.model().unwrap().clone());
        let question = StandingQuestion { pool, model, set: standing.sets[set].0.clone() };
        standing.judged(&StandingAnswer { question, verdict })
    }

    fn promised(standing: &PoolStanding) -> Option<f64> {
        let (set, _) = &standing.sets[standing.in_force];
        set.requirements[1].2.map(|held| held.given.contract.iops().per_second())
    }

    #[test]
    fn what_is_due_begins_when_it_is_admitted_and_not_before() {
        let mut standing = unasked("12:00");
        assert_eq!(
            standing.unknown().map(|(before, set)| (before, set.period.from())),
            Some((0, time("08:00")))
        );
        assert_eq!((standing.step(time("17:59:59")), promised(&standing)), (None, Some(20.0)));
        let Some(SetChange::Waits(said)) = standing.step(time("18:00")) else { panic!("not known yet") };
        let expected = "pool p: the contracts that hold from 18:00 until 22:00 are not judged yet, w1 40 \
            IO/s within 36.0ms, w2 20 \
                        IO/s within 36.0ms stays in force until they are";
        assert_eq!(said, expected);
        assert_eq!((standing.step(time("18:00")), promised(&standing)), (None, Some(20.0)), "said once");
        assert!(standing.status(time("18:00")).overdue);
        assert_eq!(judged(&mut standing, 1, SetVerdict::Admitted(Vec::new())), Some(AnswerSubject::Later));
        assert!(matches!(standing.step(time("18:00:01")), Some(SetChange::Begun(_))));
        assert_eq!((standing.step(time("18:00:02")), promised(&standing)), (None, Some(5.0)));
        let status = ContractsStatus { admitted: Some(true), overdue: false, begun: 1, refused: 0 };
        assert_eq!(standing.status(time("18:00:02")), status);
    }

    #[test]
    fn what_is_refused_is_said_once_and_what_was_stays_until_another_set_is_due() {
        let mut standing = unasked("12:00");
        assert_eq!(judged(&mut standing, 0, SetVerdict::Admitted(Vec::new())), Some(AnswerSubject::InForce));
        let said =
            "pool p: contracts will be refused when their time comes, from 18:00 until 22:00: too much";
        assert_eq!(
            judged(&mut standing, 1, SetVerdict::Refused("too much".to_owned())),
            Some(AnswerSubject::Refused(said.to_owned()))
        );
        judged(&mut standing, 2, SetVerdict::Admitted(Vec::new()));
        let Some(SetChange::Refused(said)) = standing.step(time("19:00")) else { panic!("it is refused") };
        assert_eq!(
            said,
            "pool p: the contracts that hold from 18:00 until 22:00 are refused, w1 40 IO/s within 36.0ms, \
                w2 20 IO/s within \
             36.0ms stays in force: too much"
        );
        assert_eq!((standing.step(time("21:00")), promised(&standing)), (None, Some(20.0)));
        let status = ContractsStatus { admitted: Some(true), overdue: true, begun: 0, refused: 1 };
        assert_eq!(standing.status(time("21:00")), status);
        assert!(matches!(standing.step(time("22:00")), Some(SetChange::Begun(_))));
        assert_eq!(promised(&standing), None);
        // The next evening it is asked for, and refused, again.
        assert!(matches!(standing.step(time("18:00")), Some(SetChange::Refused(_))));
        assert_eq!(promised(&standing), None);
    }

    #[test]
    fn a_clock_that_leaps_asks_for_what_is_due_where_it_arrives() {
        let mut standing = standing(JudgementBasis::Nothing, "12:00");
        for (now, expected) in [
            ("23:00", None),
            ("12:00", Some(20.0)),
            ("18:00", Some(5.0)),
            ("17:59", Some(20.0)),
            ("02:00", None),
        ] {
            assert!(matches!(standing.step(time(now)), Some(SetChange::Begun(_))), "{now}");
            assert_eq!((promised(&standing), standing.step(time(now))), (expected, None), "{now}");
        }
        assert_eq!(standing.status(time("02:00")).admitted, None, "not judged");
    }

    #[test]
    fn at_the_start_what_is_due_is_in_force_whatever_is_said_of_it_later() {
        let mut standing = unasked("19:00");
        let in_force = standing.in_force;
        judged(&mut standing, in_force, SetVerdict::Refused("too much".to_owned()));
        assert_eq!((standing.step(time("19:00")), promised(&standing)), (None, Some(5.0)));
        let status = ContractsStatus { admitted: Some(false), overdue: false, begun: 0, refused: 0 };
        assert_eq!(standing.status(time("19:00")), status);
    }

    #[test]
    fn what_was_measured_is_expected_unless_something_else_was_said() {
        let measured = Some(Latency::from_millis(12));
        assert_eq!(with(requirement(1.0), measured).expected(), Latency::from_millis(12));
        assert_eq!(with(requirement(1.0), None).expected(), Latency::from_millis(30));
        let told = ContractRequirement { expects: true, ..requirement(1.0) };
        assert_eq!(with(told, measured).expected(), Latency::from_millis(30));
    }

    #[test]
    fn who_asks_for_no_more_than_was_measured_is_admitted_by_it() {
        let answer = |deliverable: &str| {
            format!(
                r#"{{ "admitted": true, "tenants": [
                    {{ "name": "w1", "iops": 40.0, "size": 4096, "expected_s": 0.02, "deliverable_s": 0.024, "kept": true }},
                    {{ "name": "w2", "iops": 20.0, "size": 4096, "expected_s": 0.03, "deliverable_s": {deliverable} }} ] }}"#
            )
        };
        let judged = |text: &str| {
            let known = KnownAnswers::parse(text).unwrap();
            let standing = standing(JudgementBasis::Beforehand(known), "12:00");
            standing
                .sets
                .iter()
                .map(|(_, verdict)| matches!(verdict, Some(SetVerdict::Admitted(_))))
                .collect::<Vec<_>>()
        };
        assert_eq!(judged(&answer("0.036")), [true; 3]);
        let short = answer("0.0361");
        assert_eq!(judged(&short), [false, false, true], "at night there is only the first");
        let day = format!(r#"{{ "admitted": true, "periods": [{short}, {}] }}"#, answer("0.036"));
        assert_eq!(judged(&day), [true; 3]);
        assert_eq!(judged(&answer("null")), [false, false, true], "the storage did not keep up");
        for text in ["", "{}", "[]", r#"{ "tenants": [{}] }"#] {
            assert!(KnownAnswers::parse(text).is_err(), "{text}");
        }
        let weighted =
            |first: u32| answer("0.036").replacen("\"size\"", &format!("\"weight\": {first}, \"size\""), 1);
        let both = |first| weighted(first).replace("20.0, \"size\"", "20.0, \"weight\": 50, \"size\"");
        assert_eq!(judged(&both(50)), [true; 3], "only proportions matter");
        assert_eq!(judged(&both(100)), [false, false, true], "with other weights others wait");
        for (arrivals, expected) in [("in-step", true), ("poisson", true), ("even", false), ("drawn", false)]
        {
            let text = answer("0.036").replacen('{', &format!(r#"{{ "arrivals": "{arrivals}","#), 1);
            assert_eq!(judged(&text), [expected; 3], "{arrivals}");
        }
        let small = standing(
            JudgementBasis::Beforehand(
                KnownAnswers::parse(&answer("0.036").replace("40.0", "39.9")).unwrap(),
            ),
            "12:00",
        );
        assert!(small.refusal().is_some_and(|why| why.contains("nothing that was measured beforehand")));
    }
}
