//! A device inside another one: how a document writes it, and ids for requests on their way.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use crate::config::DeviceConfig;
use crate::preset::Preset;

/// Reads a device that is a part of another one: a model with its parameters, or the name of a preset.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<DeviceConfig>, D::Error> {
    deserializer.deserialize_any(NestedVisitor).map(Box::new)
}

struct NestedVisitor;

impl<'de> Visitor<'de> for NestedVisitor {
    type Value = DeviceConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table with a `model`, or the name of a preset")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<DeviceConfig, E> {
        name.parse::<Preset>().map(Preset::config).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DeviceConfig, A::Error> {
        DeviceConfig::deserialize(MapAccessDeserializer::new(map))
    }
}

/// Values by small numbers, which are used again after a value is removed: as many places as values at most
/// were in it at once.
#[derive(Debug, Clone)]
pub(crate) struct Slots<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(value);
            return u64::from(place);
        }
        self.places.push(Some(value));
        (self.places.len() - 1) as u64
    }

    pub(crate) fn get_mut(&mut self, place: u64) -> Option<&mut T> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, place: u64) -> Option<T> {
        let value = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place as u32);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let mut slots = Slots::default();
        assert_eq!([slots.insert('a'), slots.insert('b')], [0, 1]);
        assert_eq!(slots.remove(0), Some('a'));
        assert_eq!(slots.remove(0), None);
        assert_eq!(slots.insert('c'), 0);
        assert_eq!(slots.get_mut(0), Some(&mut 'c'));
        assert_eq!(slots.get_mut(2), None);
    }
}
