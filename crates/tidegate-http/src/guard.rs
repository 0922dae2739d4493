//! A guard against web pages of other sites: it checks where requests come from.
//!
//! A browser sends requests for any page that it shows, also to addresses that only its own machine reaches.
//! Three headers tell such a request from that of a program that was told the address:
//!
//! - `Host`: a page whose name was pointed at our address afterwards (DNS rebinding) still says its own name
//!   there. Addresses, `localhost`, the machine's own name and configured names are ours. To read, a name
//!   without a dot will do, because no web page has one, and from another machine the machine's name in any
//!   domain.
//! - `Origin` and `Sec-Fetch-Site`: a browser says so when a page of another site asks.
//! - `Content-Type`: a browser sends JSON to another site only after it has asked that site for permission,
//!   which it never gets here.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{self, HeaderName};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Method, StatusCode};
use thiserror::Error;

/// The names under which a server may be asked, beside its addresses and `localhost`.
#[derive(Debug, Clone, Default)]
pub struct ServerNames {
    /// The key of the configuration that names further ones.
    key: &'static str,
    names: Arc<[String]>,
    /// The machine's own name without its domain.
    machine: Arc<str>,
}

/// The reasons why a request is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Unwelcome {
    #[error("a request has one `Host` header")]
    NoHost,
    #[error(
        "the name in `Host` is not known here: ask by the address, by `localhost`, by this machine's own \
            name, \
         or by one of the `names` of the configuration"
    )]
    OtherHost,
    #[error("web pages of other sites may not ask: `Origin` or `Sec-Fetch-Site` names one")]
    OtherSite,
    #[error("the body must be JSON: send `Content-Type: application/json`")]
    NotJson,
}

impl Unwelcome {
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::NoHost => StatusCode::BAD_REQUEST,
            Self::OtherHost | Self::OtherSite => StatusCode::FORBIDDEN,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }

    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::NoHost => "not-understood",
            Self::OtherHost => "other-host",
            Self::OtherSite => "other-site",
            Self::NotJson => "not-json",
        }
    }
}

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl ServerNames {
    /// These names, which are of a key of the configuration, and the machine's own.
    #[must_use]
    pub fn new(key: &'static str, configured: impl IntoIterator<Item = String>) -> Self {
        let own = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
        let machine = first_label(&own).into();
        Self { key, machine, ..Self::exactly(configured.into_iter().chain([own])) }
    }

    fn exactly(names: impl IntoIterator<Item = String>) -> Self {
        let plain = |name: String| name.trim_end_matches('.').to_ascii_lowercase();
        let names = names.into_iter().map(plain).filter(|name| !name.is_empty()).collect();
        Self { key: "", names, machine: "".into() }
    }

    /// Returns the key of the configuration that names further ones.
    pub(crate) const fn key(&self) -> &'static str {
        self.key
    }

    /// Checks a request's header. `is_remote`: it comes from another machine.
    pub(crate) fn check(&self, request: &Parts, is_remote: bool) -> Result<(), Unwelcome> {
        if only_reads(&request.method) {
            return self.check_reading(request, is_remote);
        }
        let host = one(&request.headers, &header::HOST).ok_or(Unwelcome::NoHost)?;
        let host = authority(host).ok_or(Unwelcome::OtherHost)?;
        let asked = [Some(&host), request.uri.authority()];
        if !asked.into_iter().flatten().all(|authority| self.knows(authority)) {
            return Err(Unwelcome::OtherHost);
        }
        let mut origins = request.headers.get_all(header::ORIGIN).iter();
        if !origins.all(|origin| origin.to_str().is_ok_and(|origin| is_of_host(origin, &host))) {
            return Err(Unwelcome::OtherSite);
        }
        let mut sites = request.headers.get_all(FETCH_SITE).iter();
        if !sites.all(|site| site == "same-origin" || site == "none") {
            return Err(Unwelcome::OtherSite);
        }
        check_body(request)
    }

    /// Checks a request that only asks for something. A browser keeps the answer from pages of other sites, but
    /// not from one whose name was pointed here. A client without `Host` is no browser.
    fn check_reading(&self, request: &Parts, is_remote: bool) -> Result<(), Unwelcome> {
        let host = match request.headers.contains_key(header::HOST) {
            true => {
                let host = one(&request.headers, &header::HOST).ok_or(Unwelcome::NoHost)?;
                Some(authority(host).ok_or(Unwelcome::OtherHost)?)
            }
            false => None,
        };
        let may_read = |authority: &Authority| {
            let name = authority.host().trim_end_matches('.').to_ascii_lowercase();
            let is_of_machine = is_remote && !self.machine.is_empty() && first_label(&name) == &*self.machine;
            let is_plain = !authority.as_str().contains('@') && !name.is_empty();
            self.knows(authority) || is_plain && (!name.contains('.') || is_of_machine)
        };
        match [host.as_ref(), request.uri.authority()].into_iter().flatten().all(may_read) {
            true => Ok(()),
            false => Err(Unwelcome::OtherHost),
        }
    }

    fn knows(&self, authority: &Authority) -> bool {
        if authority.as_str().contains('@') {
            return false;
        }
        let host = authority.host();
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        address.parse::<IpAddr>().is_ok() || name == "localhost" || self.names.contains(&name)
    }
}

/// Checks the header of a request through a Unix socket, which no web page reaches: its `Host` means nothing.
pub(crate) fn check_body(request: &Parts) -> Result<(), Unwelcome> {
    if has_body(&request.headers) && !is_json(&request.headers) {
        return Err(Unwelcome::NotJson);
    }
    Ok(())
}

/// Returns true for a request that only asks for something.
pub(crate) fn only_reads(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

fn first_label(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn authority(text: &str) -> Option<Authority> {
    text.trim().parse().ok()
}

/// Returns true if an origin, `http://HOST:PORT`, is the host that is asked.
fn is_of_host(origin: &str, host: &Authority) -> bool {
    let of = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")).and_then(authority);
    of.is_some_and(|of| of.as_str().eq_ignore_ascii_case(host.as_str()))
}

fn has_body(headers: &HeaderMap) -> bool {
    let says_length = |value: &http::HeaderValue| value.as_bytes().trim_ascii() != b"0";
    headers.contains_key(header::TRANSFER_ENCODING)
        || headers.get_all(header::CONTENT_LENGTH).iter().any(says_length)
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(said) = one(headers, &header::CONTENT_TYPE) else { return false };
    said.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn check(method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<(), Unwelcome> {
        check_from(false, method, uri, headers)
    }

    fn check_from(
        is_remote: bool,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
    ) -> Result<(), Unwelcome> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let names = ServerNames::exactly(["Broker.example.".to_owned()]);
        let names = ServerNames { machine: "gw1".into(), ..names };
        names.check(&request.body(()).unwrap().into_parts().0, is_remote)
    }

    #[test]
    fn a_name_that_was_pointed_at_our_address_is_not_ours() {
        for ours in
            ["127.0.0.1", "127.0.0.1:7311", "[::1]:7311", "10.0.0.5:80", "LOCALHOST:1", "broker.example:7311"]
        {
            assert_eq!(check("DELETE", "/v1/objects/x", &[("host", ours)]), Ok(()), "{ours}");
        }
        for other in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:7311",
            "broker.example.evil",
            "user@127.0.0.1",
            "x",
            "",
        ] {
            assert_eq!(check("DELETE", "/", &[("host", other)]), Err(Unwelcome::OtherHost), "{other}");
            let may_read = if other == "x" { Ok(()) } else { Err(Unwelcome::OtherHost) };
            assert_eq!(check("GET", "/", &[("host", other)]), may_read, "{other}");
        }
        assert_eq!(check("GET", "/", &[]), Ok(()));
        // A scraper names the machine in the domain that its resolver searches.
        let by_domain = [("host", "GW1.example:9809")];
        assert_eq!(check_from(true, "GET", "/metrics", &by_domain), Ok(()));
        assert_eq!(
            check_from(true, "GET", "/metrics", &[("host", "gw2.example")]),
            Err(Unwelcome::OtherHost)
        );
        for method in ["GET", "DELETE"] {
            assert_eq!(check(method, "/metrics", &by_domain), Err(Unwelcome::OtherHost), "{method}");
        }
        assert_eq!(check("POST", "/", &[]), Err(Unwelcome::NoHost));
        let two = [("host", "127.0.0.1"), ("host", "evil.example")];
        assert_eq!(check("POST", "/", &two), Err(Unwelcome::NoHost));
        assert_eq!(check("GET", "/", &two), Err(Unwelcome::NoHost));
        // The target of a request goes before its `Host` (RFC 9112 §3.2.2).
        let local = [("host", "127.0.0.1")];
        for method in ["GET", "POST"] {
            assert_eq!(check(method, "http://evil.example/", &local), Err(Unwelcome::OtherHost));
        }
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let ask = |name, value| check("POST", "/", &[("host", "127.0.0.1:9"), (name, value)]);
        for other in
            ["http://evil.example", "null", "http://127.0.0.1:8", "http://127.0.0.1:9.evil.example", ""]
        {
            assert_eq!(ask("origin", other), Err(Unwelcome::OtherSite), "{other}");
        }
        assert_eq!(ask("origin", "http://127.0.0.1:9"), Ok(()));
        for other in ["cross-site", "same-site", ""] {
            assert_eq!(ask("sec-fetch-site", other), Err(Unwelcome::OtherSite), "{other}");
        }
        assert_eq!(ask("sec-fetch-site", "same-origin"), Ok(()));
    }

    #[test]
    fn a_body_is_json_and_says_so() {
        let ask = |length, kind: Option<&str>| {
            let mut headers = vec![("host", "localhost"), ("content-length", length)];
            headers.extend(kind.map(|kind| ("content-type", kind)));
            check("POST", "/", &headers)
        };
        for right in ["application/json", "Application/JSON; charset=utf-8"] {
            assert_eq!(ask("2", Some(right)), Ok(()), "{right}");
        }
        for wrong in
            [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("application/jsonx")]
        {
            assert_eq!(ask("2", wrong), Err(Unwelcome::NotJson), "{wrong:?}");
            assert_eq!(ask("0", wrong), Ok(()), "{wrong:?}");
        }
        let streamed = [("host", "localhost"), ("transfer-encoding", "chunked")];
        assert_eq!(check("PUT", "/", &streamed), Err(Unwelcome::NotJson));
    }
}
