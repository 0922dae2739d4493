//! The callers of an API, and the one rule about them: only operators change something.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderValue, Method, StatusCode, header};

use crate::problem::problem;

/// The permissions of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// GET only.
    Reader,
    /// Everything.
    Operator,
}

/// The caller of a request, known from its listener, its token or its certificate. It is among the request's
/// extensions. A request that showed no credentials, where none are needed to read, has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Its permissions.
    pub role: Role,
    /// The name for messages and for the journal: `uid 0`, `operators' token`, `certificate ops.example`.
    pub name: String,
}

impl Caller {
    /// Returns true for the caller of a request that is an operator.
    #[must_use]
    pub fn is_operator(caller: Option<&Self>) -> bool {
        caller.is_some_and(|caller| caller.role == Role::Operator)
    }
}

/// Refuses a request that changes something, unless its caller is an operator. A layer for the routes of an
/// API: [`axum::middleware::from_fn`] makes one of it.
pub async fn only_operators_change(request: Request, next: Next) -> Response {
    if [Method::GET, Method::HEAD].contains(request.method()) {
        return next.run(request).await;
    }
    match request.extensions().get::<Caller>() {
        Some(Caller { role: Role::Operator, .. }) => next.run(request).await,
        Some(Caller { role: Role::Reader, name }) => {
            problem(StatusCode::FORBIDDEN, "reader", &format!("{name} may only read: {SHOW}"))
        }
        None => unauthorized(&format!("only an operator may change something: {SHOW}")),
    }
}

const SHOW: &str = "ask an address of `[api]` with the token of `operators` (`--token-file FILE`), \
                    or ask as root through the service's Unix socket";

/// The answer to a caller that shows no credentials, or wrong ones.
pub(crate) fn unauthorized(why: &str) -> Response {
    let mut answer = problem(StatusCode::UNAUTHORIZED, "unauthorized", why);
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::any;
    use axum::{Router, middleware};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;

    use super::*;

    fn ask(method: Method, role: Option<Role>) -> StatusCode {
        let routes = Router::new().route("/", any(|| async { "done" }));
        let router = routes.layer(middleware::from_fn(only_operators_change));
        let mut request = Request::builder().method(method).uri("/").body(Body::empty()).unwrap();
        if let Some(role) = role {
            request.extensions_mut().insert(Caller { role, name: "uid 1000".to_owned() });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(TowerToHyperService::new(router).call(request)).unwrap().status()
    }

    #[test]
    fn a_reader_changes_nothing_by_any_method() {
        for method in [Method::GET, Method::HEAD] {
            for role in [None, Some(Role::Reader), Some(Role::Operator)] {
                assert_eq!(ask(method.clone(), role), StatusCode::OK, "{method} {role:?}");
            }
        }
        let invented = Method::from_bytes(b"RELEASE").unwrap();
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS, invented] {
            assert_eq!(ask(method.clone(), None), StatusCode::UNAUTHORIZED, "{method}");
            assert_eq!(ask(method.clone(), Some(Role::Reader)), StatusCode::FORBIDDEN, "{method}");
            assert_eq!(ask(method.clone(), Some(Role::Operator)), StatusCode::OK, "{method}");
        }
    }
}
