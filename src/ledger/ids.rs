//! Ids of runs and triggers: they grow with time, so that a ledger can forget the old ones by a floor.

use jiff::Timestamp;

use crate::chance::Chance;

/// An id that grows with time: UUID version 7 from the fleet's time, so that those of different replicas are in order.
pub(crate) fn sortable_id(now: Timestamp, chance: &Chance) -> String {
    let ms = u64::try_from(now.as_millisecond()).unwrap_or(0);
    let mut random = [0; 10];
    for byte in &mut random {
        *byte = u8::try_from(chance.below(256)).unwrap_or(0);
    }
    uuid::Builder::from_unix_timestamp_millis(ms, &random)
        .into_uuid()
        .to_string()
}

/// Larger than the ids of all triggers that were asked for at `at` or before.
#[must_use]
pub(crate) fn trigger_floor(at: Timestamp) -> String {
    let ms = u64::try_from(at.as_millisecond()).unwrap_or(0);
    // An id goes on with a hyphen, which is smaller.
    format!("{:08x}-{:04x}~", ms >> 16, ms & 0xffff)
}
