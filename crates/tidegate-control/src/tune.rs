//! TEMPORARY: constants from the environment while designing.
#![allow(clippy::all, clippy::disallowed_methods, clippy::disallowed_types)]
use std::collections::HashMap;
use std::sync::OnceLock;
pub(crate) fn t(name: &str, default: f64) -> f64 {
    static M: OnceLock<HashMap<String, f64>> = OnceLock::new();
    *M.get_or_init(|| {
        std::env::var("T")
            .unwrap_or_default()
            .split(',')
            .filter_map(|kv| {
                let (k, v) = kv.split_once('=')?;
                Some((k.to_owned(), v.parse().ok()?))
            })
            .collect()
    })
    .get(name)
    .unwrap_or(&default)
}
