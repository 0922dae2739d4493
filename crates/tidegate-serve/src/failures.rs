//! Spells in which requests of an export fail: the log and the journal have their beginning and their end.

use std::collections::BTreeMap;

use tidegate_gateway::{ConsumerSnapshot, ERROR_PAUSE, GatewaySnapshot, IoErrors};
use tidegate_journal::ActionRecord;
use tidegate_units::{ConsumerName, Instant, ResourceName};

use crate::status::errors_status;

/// The exports whose requests failed at some time.
#[derive(Debug, Default)]
pub(crate) struct FailureSpells(BTreeMap<(ResourceName, ConsumerName), FailureSpell>);

/// The latest spell of an export, or the time since it ended.
#[derive(Debug, Default)]
struct FailureSpell {
    goes_on: bool,
    /// The errors that were counted when it began, or when it ended.
    before: IoErrors,
}

impl FailureSpells {
    /// Logs what began and what ended since the last look, and returns it for the journal.
    pub(crate) fn look(&mut self, snapshot: &GatewaySnapshot) -> Vec<ActionRecord> {
        let is_there = |(resource, name): &(ResourceName, ConsumerName)| {
            let of = snapshot.pools.iter().find(|pool| pool.name == *resource);
            of.map_or_else(
                || snapshot.silent.contains(resource),
                |pool| pool.consumers.iter().any(|consumer| consumer.name == *name),
            )
        };
        self.0.retain(|key, _| is_there(key));
        let consumers =
            snapshot.pools.iter().flat_map(|pool| pool.consumers.iter().map(move |one| (pool, one)));
        let failed = consumers.filter(|(_, consumer)| consumer.errors.total() > 0);
        let told = failed.filter_map(|(pool, consumer)| {
            let spell = self.0.entry((pool.name.clone(), consumer.name.clone())).or_default();
            let text = spell.look(consumer, pool.at)?;
            if spell.goes_on {
                tracing::warn!(pool = %pool.name, "{text}");
            } else {
                tracing::info!(pool = %pool.name, "{text}");
            }
            Some(ActionRecord { resource: Some(pool.name.clone()), actor: "storage".to_owned(), text })
        });
        told.collect()
    }
}

impl FailureSpell {
    /// Returns what is to be told, if it began or ended.
    fn look(&mut self, consumer: &ConsumerSnapshot, now: Instant) -> Option<String> {
        let (_, last) = consumer.errors.spell()?;
        let goes_on = now.saturating_since(last) < ERROR_PAUSE;
        if goes_on == self.goes_on {
            return None;
        }
        self.goes_on = goes_on;
        if consumer.errors.total() < self.before.total() {
            // The export was removed and added again: it counts from nothing.
            self.before = IoErrors::default();
        }
        let errors = errors_status(&consumer.errors.since(&self.before), now)?.kinds_text();
        if goes_on {
            return Some(format!("requests of {} fail: {errors} so far", consumer.name));
        }
        self.before = consumer.errors;
        Some(format!("requests of {} have not failed for a minute; before it: {errors}", consumer.name))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_control::IoErrorKind;

    use super::*;
    use crate::status::tests::pool;

    #[test]
    fn a_spell_is_told_when_it_begins_and_when_it_ends() {
        let mut spells = FailureSpells::default();
        let mut look = |second: u64, errors: &IoErrors| {
            let mut pool = pool(second, 0, 0);
            pool.consumers[0].errors = *errors;
            let snapshot = GatewaySnapshot {
                pools: vec![pool],
                silent: Vec::new(),
                handshakes: 0,
                handshakes_ended: 0,
                guest_memory: 0,
                refused: Vec::new(),
            };
            spells.look(&snapshot).into_iter().map(|told| told.text).collect::<Vec<_>>()
        };
        let at = |second: u64| Instant::from_nanos(second * 1_000_000_000);
        let mut errors = IoErrors::default();
        assert_eq!(look(1, &errors), [""; 0]);
        errors.count(IoErrorKind::NoSpace, at(2));
        assert_eq!(look(2, &errors), ["requests of w1 fail: 1 no space left so far"]);
        errors.count(IoErrorKind::NoSpace, at(3));
        assert_eq!(look(3, &errors), [""; 0], "it is told once");
        let ended = "requests of w1 have not failed for a minute; before it: 2 no space left";
        assert_eq!(look(70, &errors), [ended]);
        errors.count(IoErrorKind::Io, at(100));
        assert_eq!(look(101, &errors), ["requests of w1 fail: 1 input/output error so far"]);
    }
}
