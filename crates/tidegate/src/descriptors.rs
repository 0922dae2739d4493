//! The limit of open files, raised at the start of a service.

/// Raises the soft limit to the hard limit. A service runs without it, too, with fewer connections.
pub(crate) fn raise() {
    if let Err(error) = tidegate_http::descriptors::raise_limit() {
        tracing::warn!("cannot raise the soft limit of open files to the hard limit: {error}");
    }
}
