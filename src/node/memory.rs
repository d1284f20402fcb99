//! A node in memory.
