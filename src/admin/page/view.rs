//! What every page is made from.

use super::{super::backlogs::Growth, address::Address, times::Times};
use crate::fleet::status::FleetStatus;

/// The fleet as the client of a page may see it, and what the client has chosen.
pub(in crate::admin) struct View<'a> {
    pub(in crate::admin) fleet: &'a FleetStatus,
    /// How fast backlogs grow.
    pub(in crate::admin) growth: &'a Growth,
    /// The id of the replica that answers.
    pub(in crate::admin) replica: &'a str,
    /// Whether the token was said: what runs say of themselves is shown then.
    pub(in crate::admin) signed_in: bool,
    /// Whether orders are taken here: there is a token to give them with, and `admin.read_only` does not forbid them.
    pub(in crate::admin) orders: bool,
    pub(in crate::admin) ready: Result<(), String>,
    pub(in crate::admin) address: &'a Address,
    pub(in crate::admin) times: Times,
}

impl View<'_> {
    /// The name of a replica, by its id.
    pub(super) fn name_of<'b>(&'b self, id: &'b str) -> &'b str {
        self.fleet.replica(id).map_or(id, |replica| &replica.name)
    }
}
