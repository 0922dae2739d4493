//! The promises of all pools, and the next question about them. No clock is read here, and nothing is
//! measured.

use tidegate_gateway::{GatewayConfig, PoolConfig};
use tidegate_units::{ResourceName, TimeOfDay};

use tidegate_admission::schedule::{
    AnswerSubject, ContractsStatus, PoolContracts, PoolStanding, SetChange, StandingAnswer, StandingQuestion,
};

/// The promises of pools: each pool at most once.
#[derive(Debug, Clone, Default)]
pub(crate) struct PoolStandings(Vec<PoolStanding>);

impl PoolStandings {
    /// With what is due at this time in force.
    pub(crate) fn new(contracts: &[PoolContracts], now: TimeOfDay) -> Self {
        Self(contracts.iter().map(|of| PoolStanding::new(of.clone(), now)).collect())
    }

    fn find(&self, contracts: &PoolContracts) -> Option<&PoolStanding> {
        self.0.iter().find(|standing| standing.contracts() == contracts)
    }

    /// Returns the promises of a configuration that these do not have already. `known` are those of one that
    /// was read before it: what was found out about them is not asked again.
    pub(crate) fn brought_by(
        &self,
        contracts: &[PoolContracts],
        known: Option<&Self>,
        now: TimeOfDay,
    ) -> Self {
        let new = contracts.iter().filter(|of| self.find(of).is_none());
        let standing = |of: &PoolContracts| {
            let known = known.and_then(|known| known.find(of));
            known.cloned().unwrap_or_else(|| PoolStanding::new(of.clone(), now))
        };
        Self(new.map(standing).collect())
    }

    /// Returns the promises under a configuration that brings these, which begin now. The promises of
    /// `before` that stay are as they are at this moment: they may have changed since the configuration was
    /// read.
    pub(crate) fn in_place_of(self, before: &Self, contracts: &[PoolContracts], now: TimeOfDay) -> Self {
        let standing = |of: &PoolContracts| {
            if let Some(stays) = before.find(of) {
                return stays.clone();
            }
            let mut new = self.find(of).cloned().unwrap_or_else(|| PoolStanding::new(of.clone(), now));
            new.begin_in_place_of(before.of_pool(&of.pool), now);
            new
        };
        Self(contracts.iter().map(standing).collect())
    }

    fn of_pool(&self, pool: &ResourceName) -> Option<&PoolStanding> {
        self.0.iter().find(|standing| standing.pool() == pool)
    }

    /// Returns the reason why a configuration that brings them is refused.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.0.iter().find_map(PoolStanding::refusal)
    }

    /// Returns a message about every set that is known to be refused.
    pub(crate) fn refused_sets(&self) -> Vec<String> {
        self.0.iter().flat_map(PoolStanding::refused_sets).collect()
    }

    /// Returns true if something is not known about them.
    pub(crate) fn is_unknown(&self) -> bool {
        self.0.iter().any(|standing| standing.unknown().is_some())
    }

    /// Returns the next question to measure: first the sets in force in every pool, then the next ones of
    /// every pool, and so on.
    pub(crate) fn question(&self) -> Option<StandingQuestion> {
        let unknown = self.0.iter().filter_map(|standing| {
            let (before, set) = standing.unknown()?;
            Some((before, standing.pool(), standing.model()?, set))
        });
        let (_, pool, model, set) = unknown.min_by_key(|&(before, ..)| before)?;
        Some(StandingQuestion { pool: pool.clone(), model: model.clone(), set: set.clone() })
    }

    /// Takes an answer. `None` where none of them waits for it.
    pub(crate) fn judged(&mut self, judged: &StandingAnswer) -> Option<AnswerSubject> {
        self.0.iter_mut().find_map(|standing| standing.judged(judged))
    }

    /// Returns the changes that the time of day asks for.
    pub(crate) fn step(&mut self, now: TimeOfDay) -> Vec<SetChange> {
        self.0.iter_mut().filter_map(|standing| standing.step(now)).collect()
    }

    /// Puts what is in force into the configuration of a gateway.
    pub(crate) fn apply(&self, config: &mut GatewayConfig) {
        for pool in &mut config.pools {
            if let Some(standing) = self.of_pool(&pool.name) {
                put_into_force(standing, pool);
            }
        }
    }

    /// Returns the state of every pool's promises, as it is shown.
    pub(crate) fn status(&self, now: TimeOfDay) -> impl Iterator<Item = (ResourceName, ContractsStatus)> {
        self.0.iter().map(move |standing| (standing.pool().clone(), standing.status(now)))
    }
}

/// Writes the terms in force into the pool's configuration.
fn put_into_force(standing: &PoolStanding, pool: &mut PoolConfig) {
    for terms in standing.in_force() {
        if let Some(export) = pool.exports.iter_mut().find(|export| export.name == *terms.name) {
            (export.contract, export.bucket) = (terms.contract, terms.bucket);
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::contract::{ContractRequirement, ContractTerms};
    use tidegate_control::Contract;
    use tidegate_device::Preset;
    use tidegate_sched::Discipline;
    use tidegate_units::{Bytes, ConsumerName, DailyValues, Iops, Latency, Shares};

    use super::super::StorageModel;
    use super::*;
    use tidegate_admission::schedule::{JudgementBasis, SetVerdict};

    fn time(text: &str) -> TimeOfDay {
        text.parse().unwrap()
    }

    /// 20 IO/s by day, and in the evening what is given.
    fn pool(name: &str, evening: f64) -> PoolContracts {
        let requirement = |iops| {
            let contract = Contract::new(Iops::new(iops), Latency::from_millis(60), Latency::from_millis(30));
            let given = ContractTerms { contract: contract.unwrap(), bucket: None };
            ContractRequirement { given, expects: false, size: Some(Bytes::from_kib(4)) }
        };
        let day = vec![(time("08:00"), None, requirement(20.0)), (time("18:00"), None, requirement(evening))];
        PoolContracts {
            pool: ResourceName::new(name).unwrap(),
            exports: vec![(ConsumerName::new("w").unwrap(), Shares::DEFAULT, DailyValues::new(day).unwrap())],
            basis: JudgementBasis::Model(StorageModel::new(
                Preset::Dnes309170w.config(),
                1,
                Discipline::default(),
            )),
        }
    }

    /// The next question, answered like this.
    fn answer(of: &PoolStandings, verdict: SetVerdict) -> StandingAnswer {
        StandingAnswer { question: of.question().unwrap(), verdict }
    }

    fn admit_next(standings: &mut PoolStandings) -> AnswerSubject {
        let judged = answer(standings, SetVerdict::Admitted(Vec::new()));
        standings.judged(&judged).unwrap()
    }

    fn status(of: &PoolStandings, name: &str, now: &str) -> ContractsStatus {
        of.status(time(now)).find(|(pool, _)| pool.as_str() == name).unwrap().1
    }

    #[test]
    fn a_reload_that_waits_long_does_not_bring_back_what_an_unchanged_pool_promised_before() {
        let (a, z, other) = (pool("a", 30.0), pool("z", 30.0), pool("z", 25.0));
        let mut before = PoolStandings::new(&[a.clone(), z], time("12:00"));
        while before.is_unknown() {
            admit_next(&mut before);
        }
        let wanted = [a, other];
        let mut brought = before.brought_by(&wanted, None, time("17:59"));
        assert_eq!(brought.0.len(), 1, "the one that changes");
        assert_eq!(before.step(time("18:00")).len(), 2);
        while brought.is_unknown() {
            admit_next(&mut brought);
        }
        let mut after = brought.in_place_of(&before, &wanted, time("18:01"));
        assert_eq!(after.step(time("18:01")), [], "all is in force already");
        for name in ["a", "z"] {
            assert_eq!(
                status(&after, name, "18:01"),
                status(&before, name, "18:01"),
                "counters do not go back"
            );
        }
        assert_eq!(status(&after, "a", "18:01").begun, 1);
    }

    #[test]
    fn a_verdict_that_comes_while_a_reload_waits_is_not_lost() {
        let (a, z, other) = (pool("a", 30.0), pool("z", 30.0), pool("z", 25.0));
        let mut before = PoolStandings::new(&[a.clone(), z], time("12:00"));
        let wanted = [a, other];
        let mut brought = before.brought_by(&wanted, None, time("12:00"));
        while before.is_unknown() {
            let judged = answer(&before, SetVerdict::Admitted(Vec::new()));
            assert!(before.judged(&judged).is_some());
            // By day the pool that changes asks for what it asked for before.
            brought.judged(&judged);
        }
        assert_eq!(brought.question().map(|next| next.set.period.from()), Some(time("18:00")));
        admit_next(&mut brought);
        let after = brought.in_place_of(&before, &wanted, time("12:00"));
        assert!(!after.is_unknown());
    }

    #[test]
    fn a_reload_of_what_is_being_measured_does_not_begin_anew() {
        let before = PoolStandings::default();
        let wanted = [pool("a", 30.0)];
        let mut brought = before.brought_by(&wanted, None, time("12:00"));
        admit_next(&mut brought);
        let under_way = answer(&brought, SetVerdict::Refused("too much".to_owned()));
        let mut again = before.brought_by(&wanted, Some(&brought), time("12:00"));
        assert_eq!(again.question(), Some(under_way.question.clone()), "the day is known");
        assert!(matches!(again.judged(&under_way), Some(AnswerSubject::Refused(_))));
        assert!(again.refusal().is_some() && !again.is_unknown());
    }

    #[test]
    fn what_is_in_force_in_any_pool_is_measured_before_what_is_due_later_in_another() {
        let mut both = PoolStandings::new(&[pool("a", 30.0), pool("z", 25.0)], time("12:00"));
        let mut asked = Vec::new();
        while let Some(StandingQuestion { pool, set, .. }) = both.question() {
            asked.push((pool.to_string(), set.period.from().to_string()));
            admit_next(&mut both);
        }
        let expected = [("a", "08:00"), ("z", "08:00"), ("a", "18:00"), ("z", "18:00")];
        assert_eq!(asked, expected.map(|(pool, from)| (pool.to_owned(), from.to_owned())));
    }

    #[test]
    fn every_refused_set_of_the_day_is_said_at_the_start() {
        let mut one = PoolStandings::new(&[pool("a", 30.0)], time("12:00"));
        while one.is_unknown() {
            let judged = answer(&one, SetVerdict::Refused("too much".to_owned()));
            one.judged(&judged);
        }
        let expected = [
            "pool a: the contracts in force are refused, and kept as well as the storage can, from 08:00 \
                until 18:00: too much",
            "pool a: contracts will be refused when their time comes, from 18:00 until 08:00: too much",
        ];
        assert_eq!(one.refused_sets(), expected);
    }
}
