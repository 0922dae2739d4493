//! The cache of oracles: a file for each scenario and seed, in the user's cache directory.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidegate_experiments::arena::{ArenaOracle, ArenaScenario, ENGINE, ScenarioKind};
use tidegate_sim::ScenarioError;

/// Oracles in `tidegate/arena/ENGINE` below the user's cache directory.
pub(super) struct OracleCache {
    /// `None`: this user has no cache directory, and nothing is kept.
    folder: Option<PathBuf>,
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct CachedOracle {
    /// The scenario's fingerprint. The oracle of another scenario is of no use.
    scenario: u64,
    oracle: ArenaOracle,
}

impl OracleCache {
    /// The cache of this user: below `$XDG_CACHE_HOME`, or else `~/.cache`.
    pub(super) fn of_user() -> Self {
        let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        Self { folder: caches.map(|caches| caches.join("tidegate/arena").join(ENGINE.to_string())) }
    }

    #[cfg(test)]
    pub(super) fn below(folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()) }
    }

    /// Returns the oracle of a scenario, from the cache or newly searched. Both come from the same text, so
    /// that no digit depends on the cache. A file that is broken or of another scenario is written anew.
    ///
    /// # Errors
    /// When the scenario cannot be simulated.
    pub(super) fn oracle(&self, arena: &ArenaScenario) -> Result<ArenaOracle, ScenarioError> {
        let path = self.folder.as_ref().map(|folder| folder.join(file_of(arena)));
        if let Some(known) = path.as_deref().and_then(|path| read(path, arena.fingerprint())) {
            return Ok(known);
        }
        let found = CachedOracle { scenario: arena.fingerprint(), oracle: ArenaOracle::search(arena)? };
        let Ok(text) = serde_json::to_string(&found) else { return Ok(found.oracle) };
        if let Some(path) = &path {
            // Without a cache the next run takes longer, and that is all.
            let _ = write(path, &text);
        }
        Ok(parse(&text, found.scenario).unwrap_or(found.oracle))
    }
}

/// The name of a scenario's file. The name of a written scenario is not fit for one.
fn file_of(arena: &ArenaScenario) -> String {
    match arena.kind {
        ScenarioKind::Written => format!("written-{:016x}.json", arena.fingerprint()),
        _ => format!("{}.json", arena.seed),
    }
}

fn read(path: &Path, scenario: u64) -> Option<ArenaOracle> {
    parse(&fs::read_to_string(path).ok()?, scenario)
}

fn parse(text: &str, scenario: u64) -> Option<ArenaOracle> {
    let cached: CachedOracle = serde_json::from_str(text).ok()?;
    let is_whole = cached.oracle.stretches.iter().all(|stretch| !stretch.settings.is_empty());
    (cached.scenario == scenario && is_whole).then_some(cached.oracle)
}

/// Writes a file as a whole: another run of the program may read it at the same time.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_file_is_searched_anew_and_gives_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let cache = OracleCache::below(&folder.path().join("new"));
        let seed = (1_000_000..).find(|seed| ScenarioKind::of(*seed) == ScenarioKind::Slow).unwrap();
        let arena = ArenaScenario::draw(seed).unwrap();
        let first = cache.oracle(&arena).unwrap();
        let path = folder.path().join(format!("new/{seed}.json"));
        let kept = fs::read_to_string(&path).unwrap();
        assert_eq!(cache.oracle(&arena).unwrap(), first);
        for broken in ["", "{", &kept[..kept.len() / 2], &kept.replacen("\"scenario\":", "\"scenario\":1", 1)]
        {
            fs::write(&path, broken).unwrap();
            assert_eq!(cache.oracle(&arena).unwrap(), first);
            assert_eq!(fs::read_to_string(&path).unwrap(), kept);
        }
    }
}
