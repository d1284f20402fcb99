//! How much room an engine takes while nothing of its job happens. A replica has a thousand of them.

use std::future::Future;

use super::{engine::Engine, term::TermLoop};
use crate::election::Elector;

/// Bytes of the future that this function makes.
fn size<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
    size_of::<F>()
}

#[test]
fn an_engine_takes_little_room_between_its_steps() {
    let campaigns = size(|elector: &'static Elector| elector.campaign_timed());
    let stands_by = size(|engine: &'static mut Engine| engine.run_led()) + campaigns;
    let leads = size(|term: TermLoop<'static>| term.run());
    assert!(stands_by <= 3_050, "{stands_by} ({campaigns})");
    assert!(leads <= 3_050, "{leads}");
}
