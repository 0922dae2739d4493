//! Errors as JSON, as every answer of a service states them.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::json;

/// Returns an error in words, with a code for programs.
#[must_use]
pub fn problem(status: StatusCode, code: &str, why: &str) -> Response {
    let body = json!({ "error": why, "code": code }).to_string() + "\n";
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
