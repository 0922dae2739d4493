//! A page for browsers that is a part of the program.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// One HTML document with its script and style. It is the same for every caller and holds no secrets.
#[derive(Debug)]
pub struct StaticPage {
    html: &'static [u8],
    policy: &'static str,
    /// The name of this version of the page.
    tag: OnceLock<String>,
}

impl StaticPage {
    /// Makes a page from its document, and from its Content-Security-Policy.
    #[must_use]
    pub const fn new(html: &'static [u8], policy: &'static str) -> Self {
        Self { html, policy, tag: OnceLock::new() }
    }

    /// Returns the route `/`, which answers with the page.
    pub fn router<S: Clone + Send + Sync + 'static>(&'static self) -> Router<S> {
        Router::new().route("/", get(async |headers: HeaderMap| self.answer(&headers)))
    }

    fn answer(&'static self, headers: &HeaderMap) -> Response {
        let tag = self.tag().as_str();
        let known = headers.get_all(header::IF_NONE_MATCH).iter();
        let is_known = known.filter_map(|tags| tags.to_str().ok()).any(|tags| tags.contains(tag));
        let common = [
            (header::ETAG, tag),
            // A browser asks each time whether its copy is still the one of the service.
            (header::CACHE_CONTROL, "no-cache"),
            (header::CONTENT_SECURITY_POLICY, self.policy.trim_ascii()),
        ];
        if is_known {
            return (StatusCode::NOT_MODIFIED, common).into_response();
        }
        let more = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
        ];
        (common, more, self.html).into_response()
    }

    fn tag(&'static self) -> &'static String {
        self.tag.get_or_init(|| {
            let mut hasher = DefaultHasher::new();
            (self.html, self.policy).hash(&mut hasher);
            format!("\"{:016x}\"", hasher.finish())
        })
    }
}
