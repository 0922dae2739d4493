//! `GET /`: the dashboard. It is one page that asks the other pages, as any other client does.
//!
//! Its sources are in `dashboard/` at the root of the repository, and `scripts/dashboard` builds it.

use tidegate_http::StaticPage;

/// The pages that need no credentials.
pub(super) const PUBLIC_PAGES: &[&str] = &["/"];

/// The dashboard.
pub(super) static DASHBOARD: StaticPage = StaticPage::new(
    include_bytes!("../dashboard/index.html"),
    // Its own script and style, by their hashes, and requests to its own service.
    include_str!("../dashboard/policy.txt"),
);
