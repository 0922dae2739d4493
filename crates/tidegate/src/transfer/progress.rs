//! Bars on a terminal, one for each transfer under way, and what happened meanwhile; nothing elsewhere.

use std::io;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tidegate_transfer::{ObjectName, TransferEvent};
use tidegate_units::visible;

/// Names are cut off after so many characters, so that bars stand below each other and there is room for
/// them.
const LONGEST: usize = 24;

/// The progress bars of all transfers of a command.
pub(super) struct ProgressBars {
    /// Hidden by itself where stderr is no terminal.
    all: Option<MultiProgress>,
    /// The bar of ended transfers, if there are several.
    total: Option<ProgressBar>,
    width: usize,
}

impl ProgressBars {
    pub(super) fn new(names: &[ObjectName], shown: bool) -> Self {
        let width = names.iter().map(|name| name.as_str().len()).max().unwrap_or(0).min(LONGEST);
        let all = shown.then(MultiProgress::new);
        let total = all.as_ref().filter(|_| names.len() > 1).map(|all| {
            let bar = all.add(ProgressBar::new(names.len() as u64));
            styled(&bar, "{pos} of {len} done, {elapsed}");
            bar.tick();
            bar
        });
        Self { all, total, width }
    }

    /// Adds the bar of one object, above the total.
    pub(super) fn of(&self, name: &ObjectName) -> TransferBar<'_> {
        let bar = self.all.as_ref().map(|all| {
            let bar = match &self.total {
                Some(total) => all.insert_before(total, ProgressBar::new(0)),
                None => all.add(ProgressBar::new(0)),
            };
            styled(&bar, "{prefix} {wide_bar} {bytes:>10} of {total_bytes:>10}, {msg}");
            let width = self.width;
            bar.set_prefix(format!("{:<width$}", cut(name.as_str(), width)));
            bar.set_message("asking");
            bar
        });
        TransferBar { bars: self, name: name.clone(), bar }
    }

    /// Writes lines while no bar is in the way.
    pub(super) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.all {
            Some(all) => all.suspend(write),
            None => write(),
        }
    }
}

impl Drop for ProgressBars {
    fn drop(&mut self) {
        if let Some(total) = &self.total {
            total.finish_and_clear();
        }
    }
}

fn styled(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

/// The end of a name tells more than its middle: `run-2026-11-22-0007.h5` of others of the day.
fn cut(name: &str, width: usize) -> String {
    // Names are ASCII.
    if name.len() <= width { name.to_owned() } else { format!("…{}", &name[name.len() + 1 - width..]) }
}

/// The progress bar of one transfer.
pub(super) struct TransferBar<'a> {
    bars: &'a ProgressBars,
    name: ObjectName,
    bar: Option<ProgressBar>,
}

impl TransferBar<'_> {
    pub(super) fn show(&self, event: &TransferEvent<'_>) {
        let Some(bar) = &self.bar else { return };
        match event {
            TransferEvent::Waits => bar.set_message("waiting for a node that can carry it"),
            TransferEvent::Begins(node, size) => {
                bar.set_length(size.get());
                bar.set_message(node.to_string());
            }
            TransferEvent::Moved(bytes) => bar.set_position(bytes.get()),
            TransferEvent::Failed(node, why) => {
                self.say(&format!("{}: failed on node `{node}`: {why}", self.name));
            }
        }
    }

    fn say(&self, line: &str) {
        if let Some(all) = &self.bars.all {
            // It is shown, not told: what came of the transfer says it as well.
            let _: io::Result<()> = all.println(visible(line));
        }
    }
}

impl Drop for TransferBar<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some(total) = &self.bars.total {
            total.inc(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_at_its_beginning() {
        assert_eq!(cut("run7.h5", 24), "run7.h5");
        assert_eq!(cut("a-rather-long-name-of-run-0007.h5", 24), "…ong-name-of-run-0007.h5");
        assert_eq!(cut("a-rather-long-name-of-run-0007.h5", 24).chars().count(), 24);
    }
}
