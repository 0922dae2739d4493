//! Quantities as text with a unit in a serialised document: `#[serde(with = "tidegate_units::text")]`.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serializer, de};

/// Writes the quantity as a person would.
///
/// # Errors
/// When the serialiser fails.
pub fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Reads the quantity from text.
///
/// # Errors
/// When the value is not text, or the text is not such a quantity.
pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    std::borrow::Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use crate::Latency;

    #[derive(Serialize, Deserialize)]
    struct Target {
        #[serde(with = "crate::text")]
        latency: Latency,
    }

    #[test]
    fn a_field_reads_and_writes_units() {
        let target: Target = serde_json::from_str(r#"{"latency":"15ms"}"#).unwrap();
        assert_eq!(target.latency, Latency::from_millis(15));
        assert_eq!(serde_json::to_string(&target).unwrap(), r#"{"latency":"15.0ms"}"#);
        let error = serde_json::from_str::<Target>(r#"{"latency":"15"}"#).err().unwrap().to_string();
        assert!(error.contains("the unit is missing"), "{error}");
    }
}
