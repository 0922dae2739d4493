//! A query to a Prometheus server (`/api/v1/query`), whose result is one number.

use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;

use super::config::ServerCredentials;

/// The longest answer. Chosen: one number, with long labels.
const LONGEST_ANSWER: usize = 64 * 1024;

/// The reasons why there is no number.
#[derive(Debug, Error)]
pub(super) enum PrometheusError {
    /// The server does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// The answer is longer than one number is.
    #[error("its answer has more than {LONGEST_ANSWER} bytes")]
    TooLong,
    /// The server answers something else.
    #[error("what answers is no Prometheus server: {0}")]
    NoServer(String),
    /// The query is refused.
    #[error("the query is refused: {0}")]
    Refused(String),
    /// The query has no result, or several.
    #[error("the query has {0} results, and one is needed; write one that selects or sums")]
    Results(usize),
    /// Some of the servers behind it did not answer.
    #[error("the answer is partial: servers behind this one are missing")]
    Partial,
    /// The result is no number.
    #[error("the result is no number: {0}")]
    NoNumber(String),
}

#[derive(Deserialize)]
struct QueryAnswer {
    status: String,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    data: Option<QueryData>,
    /// Said by servers that ask others.
    #[serde(default, rename = "isPartial")]
    is_partial: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", tag = "resultType", content = "result")]
enum QueryData {
    Vector(Vec<VectorSample>),
    Scalar((f64, String)),
    Matrix(IgnoredAny),
    String(IgnoredAny),
}

#[derive(Deserialize)]
struct VectorSample {
    /// `None`: a native histogram.
    value: Option<(f64, String)>,
}

/// A query to a server, asked again and again.
#[derive(Debug)]
pub(super) struct PrometheusQuery<'a> {
    pub(super) url: &'a str,
    pub(super) query: &'a str,
    pub(super) credentials: Option<&'a ServerCredentials>,
    pub(super) timeout: Duration,
}

impl PrometheusQuery<'_> {
    /// Asks for the number.
    pub(super) async fn ask(&self, client: &reqwest::Client) -> Result<f64, PrometheusError> {
        let unreachable = |error: reqwest::Error| {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            PrometheusError::Unreachable(cause.to_string())
        };
        let form = format!("query={}", encoded(self.query));
        let mut request = client.post(format!("{}/api/v1/query", self.url)).timeout(self.timeout);
        request = match self.credentials {
            None => request,
            Some(ServerCredentials::Token(token)) => request.bearer_auth(token.as_str()),
            Some(ServerCredentials::User { name, password }) => {
                request.basic_auth(name, Some(password.as_str()))
            }
        };
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
        let mut answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(unreachable)? {
            if body.len() + piece.len() > LONGEST_ANSWER {
                return Err(PrometheusError::TooLong);
            }
            body.extend_from_slice(&piece);
        }
        number(&body).map_err(|error| match error {
            PrometheusError::NoServer(_) if !status.is_success() => {
                PrometheusError::NoServer(status.to_string())
            }
            error => error,
        })
    }
}

/// Returns the number in an answer.
pub(super) fn number(body: &[u8]) -> Result<f64, PrometheusError> {
    let answer: QueryAnswer =
        serde_json::from_slice(body).map_err(|error| PrometheusError::NoServer(error.to_string()))?;
    if answer.status != "success" {
        let said = answer.error.unwrap_or_default();
        return Err(PrometheusError::Refused(
            said.chars().filter(|one| !one.is_control()).take(200).collect(),
        ));
    }
    if answer.is_partial {
        return Err(PrometheusError::Partial);
    }
    let value = match answer.data {
        Some(QueryData::Scalar((_, value))) => value,
        Some(QueryData::Vector(mut samples)) => match (samples.pop(), samples.len()) {
            (Some(VectorSample { value: Some((_, value)) }), 0) => value,
            (Some(VectorSample { value: None }), 0) => {
                let said = "it is a native histogram; take its `histogram_avg` or `histogram_quantile`";
                return Err(PrometheusError::NoNumber(said.to_owned()));
            }
            (last, others) => return Err(PrometheusError::Results(others + usize::from(last.is_some()))),
        },
        Some(QueryData::Matrix(_) | QueryData::String(_)) | None => {
            return Err(PrometheusError::NoNumber("it is a range, or a text".to_owned()));
        }
    };
    value.parse().map_err(|_| PrometheusError::NoNumber(value.chars().take(40).collect()))
}

/// Returns a text as a part of a form.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let each = text
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(body: &str) -> String {
        number(body.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn one_number_is_read_and_anything_else_is_said() {
        let vector = |samples: &str| {
            format!(
                "{{\"status\":\"success\",\"data\":{{\"resultType\":\"vector\",\"result\":[{samples}]}}}}"
            )
        };
        let sample = r#"{"metric":{"pool":"gold"},"value":[1795773000.5,"12.5"]}"#;
        assert!((number(vector(sample).as_bytes()).unwrap() - 12.5).abs() < 1e-9);
        let scalar = r#"{"status":"success","data":{"resultType":"scalar","result":[1.5,"0.004"]}}"#;
        assert!((number(scalar.as_bytes()).unwrap() - 0.004).abs() < 1e-9);
        assert!(said(&vector("")).starts_with("the query has 0 results"));
        assert!(said(&vector(&format!("{sample},{sample}"))).starts_with("the query has 2 results"));
        let matrix = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
        assert!(said(matrix).contains("a range"));
        assert!(said(r#"{"status":"error","error":"parse error\n"}"#).contains("refused: parse error"));
        assert!(said("<html>").contains("no Prometheus server"));
        let histogram = vector(r#"{"metric":{},"histogram":[1.5,{"count":"3","sum":"1"}]}"#);
        assert!(said(&histogram).contains("a native histogram"));
        assert!(said(&vector(sample).replacen('{', "{\"isPartial\":true,", 1)).contains("is partial"));
        // No latency, and a number all the same: it is judged where latencies are.
        let nan = vector(&sample.replace("12.5", "NaN"));
        assert!(number(nan.as_bytes()).unwrap().is_nan());
    }

    #[test]
    fn a_query_is_a_part_of_a_form() {
        assert_eq!(encoded("a{b=\"c\"}[1m]"), "a%7Bb%3D%22c%22%7D%5B1m%5D");
    }
}
