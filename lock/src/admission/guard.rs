//! What the clients of guarded nodes have in common.

use std::sync::{Arc, atomic::AtomicBool};

use crate::{node::Token, settings::FleetConfig};

/// Where tokens go on when too few nodes remember them.
pub(crate) type TokenFloor = Arc<dyn Fn() -> Token + Send + Sync>;

/// What the clients of guarded nodes have in common.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) fleet: FleetConfig,
    pub(crate) token_floor: Option<TokenFloor>,
    /// Others bring nodes back.
    pub(crate) bystander: bool,
    /// That memory was lost for good is said once.
    pub(crate) memory_loss_said: Arc<AtomicBool>,
}
