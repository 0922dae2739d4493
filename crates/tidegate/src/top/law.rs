//! The state of a resource's law in lines.

use ratatui::text::{Line, Span};

use super::row::TopRow;
use super::state::{ServiceView, TopState};
use crate::status::text::{self, time};

/// Returns the state of a resource's law: how it stands, and the last decision in words.
pub(super) fn law_lines(row: &TopRow<'_>, service: &ServiceView, state: &TopState) -> Vec<Line<'static>> {
    let resource = row.resource;
    let stands = match service.is_current {
        true => text::stands(resource, row.sees),
        false => "unknown: the service does not answer".to_owned(),
    };
    let palette = state.palette;
    let of = match state.services.iter().filter(|view| view.is_shown()).count() {
        0 | 1 => String::new(),
        _ => format!(" of {}", service.address),
    };
    let title = format!("{}{of}", resource.name);
    let mut lines =
        vec![Line::from(vec![Span::styled(title, palette.strong()), Span::raw(format!(": {stands}"))])];
    if let Some(law) = &resource.law {
        // Laws that judge each consumer by itself have a set point for each.
        let decided = resource.decided.as_ref().filter(|_| !law.kind.is_by_rates());
        let set_point =
            decided.map_or_else(String::new, |one| format!(", set point {}", time(one.set_point_seconds)));
        let (target, interval) = (time(law.target_seconds), time(law.interval_seconds));
        let law = format!("law {}, target {target}{set_point}, decides every {interval}", law.kind);
        lines.push(Line::styled(law, palette.quiet()));
    }
    if let Some(decided) = &resource.decided {
        lines.push(Line::styled(format!("decided: {}", decided.said), palette.quiet()));
    }
    lines
}
