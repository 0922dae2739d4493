//! Styles of the views. Meaning stands in words and marks; colour only repeats it.

use std::env;

use ratatui::style::{Color, Modifier, Style};

/// The styles of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Palette {
    has_colours: bool,
}

impl Palette {
    /// The palette that the environment asks for: without colours where `NO_COLOR` is set and not empty.
    pub(crate) fn of_environment() -> Self {
        Self { has_colours: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    /// The palette without colours.
    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self { has_colours: false }
    }

    /// The palette with colours.
    #[cfg(test)]
    pub(crate) const fn coloured() -> Self {
        Self { has_colours: true }
    }

    const fn in_colour(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// A promise that is broken, a service that is gone.
    pub(crate) const fn bad(self) -> Style {
        self.in_colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// A promise that is kept.
    pub(crate) const fn good(self) -> Style {
        self.in_colour(Color::Green)
    }

    /// A throttled consumer.
    pub(crate) const fn throttled(self) -> Style {
        self.in_colour(Color::Yellow)
    }

    /// A line of the target.
    pub(crate) const fn target(self) -> Style {
        self.in_colour(Color::Yellow)
    }

    /// A line of measurements.
    pub(crate) const fn measured(self) -> Style {
        self.in_colour(Color::Cyan)
    }

    /// Text of less weight.
    pub(crate) const fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// The heading of a table, and the selected row of the table in use.
    pub(crate) const fn reversed(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Names and titles.
    pub(crate) const fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }
}
