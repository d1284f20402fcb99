//! The deterministic simulation: whole replicas and nodes on one thread, in virtual time, from a seed.

mod acts;
mod batches;
mod cage;
mod fleet;
mod history;
mod locks;
mod runs;
mod terms;
mod ticks;
mod world;
