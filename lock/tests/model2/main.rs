//! placeholder

mod acts;
mod bounds;
mod breaks;
mod claims;
mod counters;
mod five;
mod fleets;
mod holds;
mod leases;
mod long;
mod machine;
mod node;
mod promises;
mod raw;
mod rules;
#[path = "../shared/search.rs"]
mod shared;
mod steps;
mod sweeping;
mod wakes;
mod world;
