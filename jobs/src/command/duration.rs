//! Durations on a command line.

use std::time::Duration;

use serde::de::IntoDeserializer;
use watchkeeper::human;

/// A duration, written as in the configuration.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    human::duration::deserialize(text.into_deserializer())
        .map_err(|error: serde::de::value::Error| error.to_string())
}
