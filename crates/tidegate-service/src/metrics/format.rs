//! The formats of the exposition, and which one a scraper takes.
//!
//! Services make OpenMetrics 1.0. Tools of the older text format, 0.0.4, do not read it: there the name of a
//! family is that of its samples, and there are no units, no infos and no end.

use std::fmt::Write as _;

use axum::body::Bytes;

use super::paced::SharedPage;

/// A format of the exposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricsFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

impl MetricsFormat {
    /// Returns the format for a scraper with this header `Accept`: OpenMetrics, where it is named.
    pub(super) fn accepted(accept: &str) -> Self {
        let takes = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            let is_open =
                parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"));
            let has = |(key, value): (&str, &str)| match key.to_ascii_lowercase().as_str() {
                "version" => value == "1.0.0",
                "q" => value.parse::<f64>().is_ok_and(|quality| quality > 0.0),
                _ => true,
            };
            is_open && parts.filter_map(|part| part.split_once('=')).all(has)
        };
        if accept.split(',').any(takes) { Self::OpenMetrics } else { Self::Text }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns an exposition, made in OpenMetrics, in this format.
    pub(super) fn page(self, exposition: &SharedPage) -> Bytes {
        match self {
            Self::OpenMetrics => exposition.bytes(),
            Self::Text => exposition.in_other_form(text),
        }
    }
}

fn text(exposition: &str) -> String {
    let mut text = String::with_capacity(exposition.len());
    let mut help = None;
    for line in exposition.lines() {
        let words = line.strip_prefix("# ").map(|comment| comment.splitn(3, ' ').collect::<Vec<_>>());
        match words.as_deref() {
            Some(["HELP", name, said]) => help = Some((*name, *said)),
            Some(["TYPE", name, kind]) => {
                let (suffix, kind) = match *kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                // Writing to a String does not fail.
                if let Some((_, said)) = help.take().filter(|(of, _)| of == name) {
                    let _ = writeln!(text, "# HELP {name}{suffix} {said}");
                }
                let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
            }
            // Units, and the end.
            Some(_) => {}
            None => text.extend([line, "\n"]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_those_who_name_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;\
                          version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for accept in
            [prometheus, "Application/OpenMetrics-Text", "a/b, application/openmetrics-text; version=1.0.0"]
        {
            assert_eq!(MetricsFormat::accepted(accept), MetricsFormat::OpenMetrics, "{accept}");
        }
        let others = ["", "*/*", "text/plain;version=0.0.4", "application/openmetrics-text;version=0.0.1"];
        for accept in
            others.into_iter().chain(["application/openmetrics-text;q=0", "application/openmetrics-textual"])
        {
            assert_eq!(MetricsFormat::accepted(accept), MetricsFormat::Text, "{accept}");
        }
    }

    #[test]
    fn families_of_the_text_format_are_named_as_their_samples() {
        let open = "# HELP a_seconds A time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
                    a_seconds_total{x=\"# TYPE y\"} 1.5\n# HELP b The build.\n# TYPE b info\n\
                    b_info{version=\"1\"} 1\n# TYPE c gauge\nc 2\n# TYPE d histogram\nd_bucket{le=\"+Inf\"} 0\n\
                    # HELP e Odd.\n# TYPE e unknown\ne 1\n# EOF\n";
        let expected = "# HELP a_seconds_total A time.\n# TYPE a_seconds_total counter\n\
                        a_seconds_total{x=\"# TYPE y\"} 1.5\n# HELP b_info The build.\n# TYPE b_info gauge\n\
                        b_info{version=\"1\"} 1\n# TYPE c gauge\nc 2\n# TYPE d histogram\n\
                        d_bucket{le=\"+Inf\"} 0\n# HELP e Odd.\n# TYPE e untyped\ne 1\n";
        let page = SharedPage::new(open.to_owned());
        assert_eq!(MetricsFormat::Text.page(&page), expected);
        assert_eq!(MetricsFormat::OpenMetrics.page(&page), open);
    }
}
