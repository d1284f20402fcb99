//! The deterministic simulation: whole replicas and nodes on one thread, in virtual time, from a seed.

mod cage;
mod locks;
mod world;
