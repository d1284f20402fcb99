//! The deterministic simulation: whole replicas and nodes on one thread, in virtual time, from a seed.

mod acts;
mod batches;
mod definitions;
mod fleet;
mod freezes;
mod given;
mod history;
mod hooks;
mod intents;
mod ladder;
mod locks;
mod overlaps;
mod reload;
mod runs;
mod slots;
mod spread;
mod terms;
mod tick_locks;
mod ticks;
mod world;
