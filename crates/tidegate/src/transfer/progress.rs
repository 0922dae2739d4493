//! A bar on a terminal, and what happened meanwhile; nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use tidegate_transfer::{Event, ObjectName};

pub(super) struct Progress(Option<ProgressBar>);

impl Progress {
    /// Of one object.
    pub(super) fn of(name: &ObjectName, shown: bool) -> Self {
        let bar = || {
            // Hidden by itself where stderr is no terminal.
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{prefix} {wide_bar} {bytes} of {total_bytes}, {msg}");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar.set_prefix(name.to_string());
            bar.set_message("asking");
            bar
        };
        Self(shown.then(bar))
    }

    pub(super) fn show(&self, event: &Event<'_>) {
        let Some(bar) = &self.0 else { return };
        match event {
            Event::Waits => bar.set_message("waiting for a node that can carry it"),
            Event::Begins(node, size) => {
                bar.set_length(size.get());
                bar.set_message(node.to_string());
            }
            Event::Moved(bytes) => bar.set_position(bytes.get()),
            Event::Failed(node, why) => bar.println(format!("failed on node `{node}`: {why}")),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
