//! The deterministic simulation: whole replicas and nodes on one thread, in virtual time, from a seed.

mod batches;
mod cage;
mod fleet;
mod locks;
mod terms;
mod ticks;
mod world;
