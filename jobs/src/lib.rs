//! Stock jobs.
