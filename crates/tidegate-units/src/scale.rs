//! Numbers of units: without a sign or NaN, and with binary prefixes.

use std::fmt;

/// Maps anything to a finite number in `[0, f64::MAX]`: NaN and negative to 0, +∞ to the greatest.
pub(crate) const fn saturate(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, f64::MAX) }
}

/// Writes a number of bytes with the largest binary prefix that leaves at least 1.
pub(crate) fn write_scaled_bytes(f: &mut fmt::Formatter<'_>, bytes: f64) -> fmt::Result {
    let mut value = bytes;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            let decimals = usize::from(unit != "B" && value < 100.0 && value.fract() != 0.0);
            return write!(f, "{value:.decimals$} {unit}");
        }
        value /= 1024.0;
    }
    write!(f, "{value:.1} TiB")
}
