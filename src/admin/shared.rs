//! What all answers of the server share.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::Semaphore;

use super::{rights::Rules, source::Admin};

/// What the server serves, and the turns at its store.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) admin: Admin,
    pub(super) store: Arc<Semaphore>,
    pub(super) rules: Arc<Rules>,
}

/// Why something was not answered, as JSON.
#[derive(Serialize)]
pub(super) struct Trouble {
    pub(super) error: String,
}
