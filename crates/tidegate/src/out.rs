//! What commands print. Much of it comes from outside: answers of services and brokers, files of others, names
//! that tenants give. None of it reaches the terminal as a control character.

use std::borrow::Cow;
use std::io::{self, Stderr, Stdout, Write};

use tidegate_units::visible;

/// Writes texts, in which characters that people do not see are escaped as in JSON.
#[derive(Debug)]
pub(crate) struct VisibleOutput<W>(W);

/// The standard output.
pub(crate) fn stdout() -> VisibleOutput<Stdout> {
    VisibleOutput(io::stdout())
}

/// The standard error output.
pub(crate) fn stderr() -> VisibleOutput<Stderr> {
    VisibleOutput(io::stderr())
}

impl<W: Write> Write for VisibleOutput<W> {
    /// Takes whole characters, as formatting and JSON give them.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text: Cow<'_, str> = String::from_utf8_lossy(bytes);
        self.0.write_all(visible(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_escaped_and_json_stays_what_it_is() {
        let mut out = VisibleOutput(Vec::new());
        writeln!(out, "a\u{1b}[2J\tb\r\u{9b}\u{202e}").unwrap();
        assert_eq!(String::from_utf8(out.0).unwrap(), "a\\u001b[2J\tb\\u000d\\u009b\\u202e\n");
        let mut out = VisibleOutput(Vec::new());
        let text = "\u{1b}\u{e0041}\u{7f}".to_owned();
        serde_json::to_writer(&mut out, &text).unwrap();
        assert_eq!(out.0, br#""\u001b\udb40\udc41\u007f""#);
        assert_eq!(serde_json::from_slice::<String>(&out.0).unwrap(), text);
    }
}
