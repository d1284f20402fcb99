//! The API, described for programs.

use axum::response::Response;

use super::super::{ask::Ask, problem::Problem};

pub(super) async fn show(ask: Ask) -> Result<Response, Problem> {
    Ok(ask.bytes(ask.shared.description.clone()))
}
