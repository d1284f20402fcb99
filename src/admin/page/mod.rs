//! Pages, rendered here and complete without a script: a view of the fleet in, HTML out. Pure: nothing here reads a store.
//!
//! `address`: what a page shows, as its address says · `all`: what all jobs come to, and which are shown · `layout`: what all pages
//! have · `block`: tables whose rows have keys · `times`: times and lengths of time for people · `plot`: drawings. Each view has a
//! file of its own.

pub(super) mod address;
pub(super) mod all;
pub(super) mod audit;
pub(super) mod batches;
pub(super) mod block;
pub(super) mod fleet;
mod flying;
pub(super) mod form;
pub(super) mod job;
pub(super) mod jobs;
pub(super) mod layout;
pub(super) mod locks;
pub(super) mod nodes;
mod plot;
pub(super) mod replicas;
pub(super) mod runs;
mod terms;
pub(super) mod times;
pub(super) mod view;
