//! `allow` of an export: the clients that may use it.

use tidegate_config::{FindingList, Section};
use tidegate_gateway::{AccessRule, AddressRange, CertificateName, ExportAccess};

use super::ReadContext;
use super::accounts::{self, AccountKind};

pub(super) const KEYS: &[&str] = tidegate_config::keys::pool::ALLOW.names;

/// The longest name that DNS knows; so long a common name is none.
const LONGEST_NAME: usize = 253;

/// Reads who may use an export; without the key only clients on this host.
pub(super) fn read(section: &Section<'_>, context: &mut ReadContext<'_>) -> ExportAccess {
    if !section.has("allow") {
        return ExportAccess::Local;
    }
    if section.is_text("allow") {
        let choices = [("local", false), ("any", true)];
        let Some(given) = section.choice("allow", &choices, &mut context.report) else {
            return ExportAccess::Local;
        };
        if !given.value {
            return ExportAccess::Local;
        }
        context.report.warning(
            &given.span,
            format!("every client that can connect may use {}", section.what()),
            "name certificates, networks, users or groups instead of \"any\"",
        );
        return ExportAccess::Any;
    }
    let rules = section.tables("allow", KEYS, &mut context.report);
    ExportAccess::Rules(rules.iter().filter_map(|rule| read_rule(rule, context)).collect())
}

fn read_rule(section: &Section<'_>, context: &mut ReadContext<'_>) -> Option<AccessRule> {
    if KEYS.iter().all(|key| !section.has(key)) {
        context.report.error_with_help(
            section.span(),
            "this rule names nothing, and would allow every client",
            "write `allow = \"any\"` if that is meant",
        );
        return None;
    }
    let report = &mut context.report;
    let certificate = certificate(section, report);
    if let Some(span) = section.key_span("certificate") {
        context.certificate_rules.push(span);
    }
    let report = &mut context.report;
    let user = accounts::read(section, "user", AccountKind::User, report);
    let group = accounts::read(section, "group", AccountKind::Group, report);
    let network = section.parsed::<AddressRange>("network", report).map(|given| given.value);
    if let Some(span) = section.key_span("network")
        && (section.has("user") || section.has("group"))
    {
        report.error_with_help(
            &span,
            "no client fits this rule: users are known of Unix sockets, addresses of TCP",
            "make two rules of it",
        );
    }
    // A mistake in a part must not leave a rule that allows more.
    let complete = KEYS.iter().filter(|key| section.has(key)).count()
        == [certificate.is_some(), user.is_some(), group.is_some(), network.is_some()]
            .iter()
            .filter(|part| **part)
            .count();
    complete.then_some(AccessRule { certificate, user, group, network })
}

fn certificate(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<CertificateName> {
    let given = section.text("certificate", report)?;
    if given.value.is_empty() || given.value.len() > LONGEST_NAME {
        report.error(&given.span, format!("`certificate` is a name of 1 to {LONGEST_NAME} bytes"));
        return None;
    }
    Some(CertificateName::new(given.value))
}
