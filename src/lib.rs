//! Watchkeeper.
