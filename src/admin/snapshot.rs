//! The fleet as one client may see it at one moment: what pages and their streams are made from.

use std::sync::Arc;

use axum::{
    extract::{Path, rejection::PathRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use jiff::Timestamp;

use super::{
    backlogs::Growth,
    page::{
        address::{Address, LONGEST, Misfit},
        block::Page,
        layout::render,
        times::Times,
        view::View,
    },
    problem::{Kind, Problem},
    rights::Seen,
    shared::Shared,
};
use crate::fleet::status::FleetStatus;

/// What pages are made from, besides what was chosen on them.
pub(super) struct Snapshot {
    fleet: Arc<FleetStatus>,
    growth: Arc<Growth>,
    replica: String,
    ready: Result<(), String>,
    now: Timestamp,
    signed_in: bool,
    orders: bool,
}

// === impl Snapshot ===

impl Snapshot {
    pub(super) async fn of(shared: &Shared, seen: Seen) -> Self {
        let fleet = shared.readings.fleet_now(seen).await;
        Self::over(shared, seen, fleet)
    }

    /// Of a fleet that was read for several.
    pub(super) fn over(shared: &Shared, seen: Seen, fleet: Arc<FleetStatus>) -> Self {
        Self {
            fleet,
            growth: shared.readings.growth(),
            replica: shared.admin.source.replica(),
            ready: shared.ready(seen),
            now: shared.admin.source.wall(),
            signed_in: seen.token,
            orders: shared.rules.takes_orders(),
        }
    }

    pub(super) fn view<'a>(&'a self, address: &'a Address) -> View<'a> {
        View {
            fleet: &self.fleet,
            growth: &self.growth,
            replica: &self.replica,
            signed_in: self.signed_in,
            orders: self.orders,
            ready: self.ready.clone(),
            address,
            times: Times::new(self.now, address.zone()),
        }
    }

    /// A page as it is answered.
    pub(super) fn answer(
        &self,
        status: StatusCode,
        address: &Address,
        make: impl FnOnce(&View<'_>) -> Page,
    ) -> Response {
        let view = self.view(address);
        let page = make(&view);
        let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
        (status, kind, render(&view, &page)).into_response()
    }
}

/// What stands in the path of a page.
pub(super) type Named = Result<Path<String>, PathRejection>;

/// The same, where it may be the name of anything.
///
/// # Errors
/// It is no text, or a longer one than names are.
pub(super) fn named(name: Named) -> Result<String, Problem> {
    match name {
        Ok(Path(name)) if name.len() <= LONGEST => Ok(name),
        _ => Err(Problem::new(Kind::NoSuchPath, "there is no such page")),
    }
}

/// A parameter of a page that does not fit.
pub(super) fn misfit(misfit: &Misfit) -> Problem {
    Problem::parameter(misfit.name, &misfit.wanted)
}
