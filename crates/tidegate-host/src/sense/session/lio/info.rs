//! The `info` files of LIO: text for people, with which nothing else but its source tells what it may be.

use std::net::IpAddr;
use std::path::PathBuf;

use crate::device::DeviceNumber;
use crate::sense::tree::shown;

/// A problem and the number of its line, counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InfoFault {
    pub(super) line: usize,
    pub(super) problem: String,
}

/// A session that is logged in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LioLogin {
    /// The address of each of its connections; none while the session waits for its initiator to come back.
    pub(super) connections: Vec<IpAddr>,
}

/// `acls/<initiator>/info`; `None` without a session, or with one that is not logged in (yet, or any more).
///
/// The initiator chooses its alias, which may have newlines and look like what follows it. So it is from the
/// end that the text is read: behind the last heading of connections, the kernel alone speaks.
pub(super) fn login(text: &str) -> Result<Option<LioLogin>, InfoFault> {
    let lines: Vec<&str> = text.lines().collect();
    if lines.first().is_some_and(|line| line.starts_with("No active iSCSI Session")) {
        return Ok(None);
    }
    let heading =
        |title: &str| lines.iter().rposition(|line| line.starts_with("----") && line.contains(title));
    let Some(values) = heading("[iSCSI Session Values]") else {
        return Err(InfoFault {
            line: lines.len().max(1),
            problem: "expected a heading `[iSCSI Session Values]`".to_owned(),
        });
    };
    let Some(connections) = heading("[iSCSI Connections]").filter(|at| *at > values) else {
        return Err(InfoFault {
            line: lines.len(),
            problem: "expected a heading `[iSCSI Connections]`".to_owned(),
        });
    };
    let state = lines[..values].last().and_then(|line| line.strip_prefix("Session State: "));
    let Some(state) = state else {
        return Err(InfoFault { line: values, problem: "expected `Session State: …`".to_owned() });
    };
    // FAILED keeps its session, and its turn among the initiator's, until the initiator is back or its time
    // is over.
    if !matches!(
        state,
        "TARG_SESS_STATE_LOGGED_IN" | "TARG_SESS_STATE_FAILED" | "TARG_SESS_STATE_IN_CONTINUE"
    ) {
        return Ok(None);
    }
    let mut addresses = Vec::new();
    let mut logged_in = false;
    for (index, line) in lines.iter().enumerate().skip(connections + 1) {
        let wrong = |problem| InfoFault { line: index + 1, problem };
        if line.starts_with("CID: ") {
            let Some((_, state)) = line.split_once("Connection State: ") else {
                return Err(wrong(format!("expected `Connection State: …`, not `{}`", shown(line))));
            };
            logged_in = state == "TARG_CONN_STATE_LOGGED_IN";
        } else if let Some(rest) = line.trim_start().strip_prefix("Address ") {
            let text = rest.split_whitespace().next().unwrap_or_default();
            let address = address(text)
                .ok_or_else(|| wrong(format!("expected an IP address, not `{}`", shown(text))))?;
            if logged_in {
                addresses.push(address);
            }
        } else if !line.trim().is_empty() {
            return Err(wrong(format!("expected `CID: …` or `Address …`, not `{}`", shown(line))));
        }
    }
    Ok(Some(LioLogin { connections: addresses }))
}

/// `10.0.0.11`, `fd00::11`, and with brackets as older kernels write it: `[fd00::11]`.
fn address(text: &str) -> Option<IpAddr> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    inner.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// `dynamic_sessions`: a name for each session. A NUL is after each newline, so that a name with a newline is
/// one name.
pub(super) fn dynamic(text: &str) -> Vec<&str> {
    let separator = if text.contains('\0') { '\0' } else { '\n' };
    text.split(separator).map(|name| name.trim_end_matches('\n')).filter(|name| !name.is_empty()).collect()
}

/// The device or the path that a backstore reports.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) device: Option<DeviceNumber>,
    pub(super) path: Option<PathBuf>,
}

/// `core/<plugin>_<n>/<backstore>/info`: of a block device its number (iblock), of a file its path (fileio),
/// of anything else nothing.
pub(super) fn backstore(text: &str) -> Result<Told, InfoFault> {
    let mut told = Told::default();
    for (index, line) in text.lines().enumerate() {
        let wrong = |problem| InfoFault { line: index + 1, problem };
        let line = line.trim_start();
        if let Some(rest) = line.strip_prefix("Major: ") {
            let number = numbers(rest)
                .ok_or_else(|| wrong(format!("expected `Major: 253 Minor: 0`, not `{}`", shown(line))))?;
            // 0:0 is written while there is no device.
            told.device = (number != DeviceNumber::new(0, 0)).then_some(number);
        } else if line.starts_with("iBlock device: ") {
            told.path = between(line, "  UDEV PATH: ", "  readonly: ");
        } else if line.starts_with("TCM FILEIO ID: ") {
            told.path = between(line, "        File: ", "  Size: ");
        }
    }
    Ok(told)
}

/// `253 Minor: 0  CLAIMED: IBLOCK`
fn numbers(text: &str) -> Option<DeviceNumber> {
    let (major, rest) = text.split_once(" Minor: ")?;
    let minor = rest.split_whitespace().next()?;
    format!("{major}:{minor}").parse().ok()
}

/// Returns the text between two marks, or up to the end if the second one is missing. The path is the
/// administrator's, and the marks may occur in it: the first begins it, the last ends it.
fn between(line: &str, before: &str, after: &str) -> Option<PathBuf> {
    let (_, rest) = line.split_once(before)?;
    let path = rest.rsplit_once(after).map_or(rest, |(path, _)| path);
    (!path.is_empty()).then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BEFORE_ALIAS: &str = "InitiatorName: iqn.2026-01.lab:initiator1\nInitiatorAlias: ";
    const VALUES: &str = "\
LIO Session ID: 1   ISID: 0x00 02 3d 00 00 01  TSIH: 1  SessionType: Normal
Session State: TARG_SESS_STATE_LOGGED_IN
---------------------[iSCSI Session Values]-----------------------
  CmdSN/WR  :  CmdSN/WC  :  ExpCmdSN  :  MaxCmdSN  :     ITT    :     TTT
 0x00000040   0x00000030   0x000000f5   0x00000124   0x00000077   0x00000061
----------------------[iSCSI Connections]-------------------------
";

    fn connection(cid: u16, state: &str, address: &str) -> String {
        format!("CID: {cid}  Connection State: {state}\n   Address {address} TCP  StatSN: 0x637c24e4\n")
    }

    const IN: &str = "TARG_CONN_STATE_LOGGED_IN";

    fn addresses(text: &str) -> Option<Vec<String>> {
        Some(login(text).unwrap()?.connections.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn addresses_of_every_form_are_read() {
        for (written, read) in [
            ("10.0.0.11", "10.0.0.11"),
            ("fd00::11", "fd00::11"),
            ("[fd00::11]", "fd00::11"),
            ("::ffff:10.0.0.11", "10.0.0.11"),
        ] {
            let text = format!("{BEFORE_ALIAS}lab\n{VALUES}{}", connection(0, IN, written));
            assert_eq!(addresses(&text).unwrap(), [read]);
        }
    }

    #[test]
    fn a_session_may_have_several_connections() {
        let text = format!(
            "{BEFORE_ALIAS}\n{VALUES}{}{}{}{}",
            connection(0, IN, "10.0.1.11"),
            connection(1, IN, "10.0.0.11"),
            connection(2, IN, "10.0.0.11"),
            connection(3, "TARG_CONN_STATE_CLEANUP_WAIT", "10.0.2.11"),
        );
        assert_eq!(addresses(&text).unwrap(), ["10.0.1.11", "10.0.0.11", "10.0.0.11"]);
    }

    #[test]
    fn who_is_not_logged_in_has_no_session() {
        let none = "No active iSCSI Session for Initiator Endpoint: iqn.2026-01.lab:initiator1\n";
        assert_eq!(login(none), Ok(None));
        let active = format!("{BEFORE_ALIAS}\n{VALUES}").replace("STATE_LOGGED_IN", "STATE_ACTIVE");
        assert_eq!(login(&active), Ok(None));
        // The initiator may still come back.
        let failed = format!("{BEFORE_ALIAS}\n{VALUES}").replace("STATE_LOGGED_IN", "STATE_FAILED");
        assert_eq!(addresses(&failed).unwrap(), [""; 0]);
    }

    #[test]
    fn an_alias_that_looks_like_a_connection_is_not_believed() {
        let forged = format!("x\n{VALUES}{}", connection(0, IN, "10.0.0.99"));
        let text = format!("{BEFORE_ALIAS}{forged}\n{VALUES}{}", connection(0, IN, "10.0.0.11"));
        assert_eq!(addresses(&text).unwrap(), ["10.0.0.11"]);
    }

    #[test]
    fn what_the_kernel_does_not_write_is_named_with_its_line() {
        for (text, line) in [
            (String::new(), 1),
            ("garbage\n".to_owned(), 1),
            (format!("{BEFORE_ALIAS}lab\n{VALUES}{}", connection(0, IN, "10.0.0.256")), 10),
            (format!("{BEFORE_ALIAS}lab\n{VALUES}something else\n"), 9),
            (format!("{BEFORE_ALIAS}lab\n{VALUES}CID: 0\n"), 9),
            (format!("{BEFORE_ALIAS}lab\n{}", VALUES.replace("Session State", "State")), 4),
        ] {
            assert_eq!(login(&text).unwrap_err().line, line, "{text}");
        }
    }

    #[test]
    fn initiators_without_an_entry_are_named_one_by_one() {
        assert_eq!(dynamic("iqn.a\n\0iqn.b\n\0"), ["iqn.a", "iqn.b"]);
        assert_eq!(dynamic("iqn.a\n10.0.0.1\n\0"), ["iqn.a\n10.0.0.1"], "one name, whatever is in it");
        assert_eq!(dynamic("iqn.a\niqn.b\n"), ["iqn.a", "iqn.b"]);
        assert_eq!(dynamic(""), [""; 0]);
    }

    #[test]
    fn a_block_devices_number_and_path_are_read() {
        let text = "Status: ACTIVATED  Max Queue Depth: 0  SectorSize: 512  HwMaxSectors: 2560\n        \
            iBlock device: dm-0  \
                    UDEV PATH: /dev/vg0/lv1  readonly: 0\n        Major: 254 Minor: 0  CLAIMED: IBLOCK\n";
        let told = backstore(text).unwrap();
        assert_eq!(told.device, Some(DeviceNumber::new(254, 0)));
        assert_eq!(told.path, Some(PathBuf::from("/dev/vg0/lv1")));
        let without = text.replace("Major: 254 Minor: 0  CLAIMED: IBLOCK", "Major: 0 Minor: 0");
        assert_eq!(backstore(&without).unwrap().device, None);
        assert_eq!(backstore(&text.replace("Minor: 0", "Minor: x")).unwrap_err().line, 3);
    }

    #[test]
    fn a_files_path_is_read() {
        let text = "Status: ACTIVATED  Max Queue Depth: 0  SectorSize: 512  HwMaxSectors: 16384\n        TCM \
            FILEIO ID: 0        \
                    File: /srv/my  Size: file.img  Size: 1073741824  Mode: O_DSYNC Async: 0\n";
        let told = backstore(text).unwrap();
        assert_eq!((told.device, told.path), (None, Some(PathBuf::from("/srv/my  Size: file.img"))));
        assert_eq!(backstore("Status: DEACTIVATED\n        TCMU Config: x\n"), Ok(Told::default()));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
            let _ = login(&text);
            let _ = backstore(&text);
        }

        #[test]
        fn arbitrary_lines_of_the_kernels_never_panic(lines in prop::collection::vec(prop_oneof![
            Just("No active iSCSI Session"),
            Just("Session State: TARG_SESS_STATE_LOGGED_IN"),
            Just("----[iSCSI Session Values]----"),
            Just("----[iSCSI Connections]----"),
            Just("CID: 0  Connection State: TARG_CONN_STATE_LOGGED_IN"),
            Just("   Address 10.0.0.1 TCP"),
            Just("   Address "),
            Just("Major: 1 Minor: "),
            Just("iBlock device: x  UDEV PATH:   readonly: "),
        ], 0..12)) {
            let text = lines.join("\n");
            let _ = login(&text);
            let _ = backstore(&text);
        }

        #[test]
        fn no_alias_changes_what_is_read(alias in "(\\PC|\n){0,100}") {
            let text = format!("{BEFORE_ALIAS}{alias}\n{VALUES}{}", connection(0, IN, "10.0.0.11"));
            prop_assert_eq!(addresses(&text).unwrap(), ["10.0.0.11"]);
        }
    }
}
