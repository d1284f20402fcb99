//! Schedules: which instants are ticks.
