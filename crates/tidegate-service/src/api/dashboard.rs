//! `GET /`: the dashboard. It is one page that asks the other pages, as any other client does.
//!
//! The page is the same for every caller and holds no secrets, so it needs no credentials. Its sources are in
//! `dashboard/` at the root of the repository, and `scripts/dashboard` builds it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// The pages that need no credentials.
pub(super) const PUBLIC_PAGES: &[&str] = &["/"];

const PAGE: &[u8] = include_bytes!("../dashboard/index.html");

/// The permissions of the page: its own script and style, by their hashes, and requests to its own service.
const POLICY: &str = include_str!("../dashboard/policy.txt");

/// The name of this version of the page.
static TAG: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    (PAGE, POLICY).hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
});

/// Returns the page.
pub(super) fn dashboard() -> Router {
    Router::new().route("/", get(page))
}

async fn page(headers: HeaderMap) -> Response {
    let known = headers.get_all(header::IF_NONE_MATCH).iter();
    let is_known = known.filter_map(|tags| tags.to_str().ok()).any(|tags| tags.contains(TAG.as_str()));
    let common = [
        (header::ETAG, TAG.as_str()),
        // A browser asks each time whether its copy is still the one of the service.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY.trim_ascii()),
    ];
    if is_known {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    let more = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (common, more, PAGE).into_response()
}
