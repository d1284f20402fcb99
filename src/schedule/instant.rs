//! Arithmetic of instants.

use jiff::Timestamp;

/// The instant just before `t`.
pub(crate) fn before(t: Timestamp) -> Option<Timestamp> {
    Timestamp::from_nanosecond(t.as_nanosecond() - 1).ok()
}

/// Half way, nearer to `from`, so that halving ends.
pub(super) fn midpoint(from: Timestamp, to: Timestamp) -> Timestamp {
    let (from_ns, to_ns) = (from.as_nanosecond(), to.as_nanosecond());
    Timestamp::from_nanosecond(from_ns + (to_ns - from_ns) / 2).unwrap_or(from)
}
