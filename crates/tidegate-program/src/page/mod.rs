//! Common parts of the reports: one HTML file each that needs nothing else, for light and dark, screen and
//! paper.

pub mod plot;

use std::fmt::Write;

use plotters::style::RGBColor;

/// The product in a paragraph: a report is read by people who have never heard of it.
const PRODUCT: &str = "\
    Tidegate is quality of service for shared storage. It measures latency, and throttles the consumers that \
    matter less, just enough that the important ones keep their target.";

/// Begins a page, which says first what the product is. What follows goes into its `main`; [`end`] closes it.
///
/// `dark` says for each colour of the drawings what it becomes in the dark: drawings are recoloured by value,
/// so that one of them serves both.
pub fn begin(out: &mut String, title: &str, dark: &[(RGBColor, &str)]) {
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>\n{}{}</style>\n</head>\n<body>\n<main>\n\
         <p class=\"product\">{PRODUCT}</p>\n",
        escape(title),
        include_str!("page.css"),
        recoloured(dark),
    );
}

/// Ends a page.
pub fn end(out: &mut String) {
    out.push_str("</main>\n</body>\n</html>\n");
}

fn recoloured(dark: &[(RGBColor, &str)]) -> String {
    let mut out = "@media (prefers-color-scheme: dark) {\n".to_owned();
    for (light, dark) in dark {
        let light = hex(*light);
        let _ = writeln!(
            out,
            "svg [fill=\"{light}\"] {{ fill: {dark} }} svg [stroke=\"{light}\"] {{ stroke: {dark} }}"
        );
    }
    out.push_str("}\n");
    out
}

/// Returns text as text of HTML, whatever it contains.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns the key of a line or an area.
#[must_use]
pub fn swatch(colour: RGBColor) -> String {
    format!(
        "<svg class=\"key\" viewBox=\"0 0 12 12\"><circle cx=\"6\" cy=\"6\" r=\"5\" fill=\"{}\"/></svg>",
        hex(colour)
    )
}

/// Returns the key of a dashed line.
#[must_use]
pub fn dash(colour: RGBColor) -> String {
    format!(
        "<svg class=\"key\" viewBox=\"0 0 12 12\"><path d=\"M0 6h5m2 0h5\" stroke-width=\"3\" \
            stroke=\"{}\"/></svg>",
        hex(colour)
    )
}

/// Returns a colour as plotters writes it, so that the style sheet finds it.
fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}
