//! Which ticks are due: pure decisions.
