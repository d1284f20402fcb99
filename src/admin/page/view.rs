//! What every page is made from.

use super::{
    super::{backlogs::Growth, round_trips::Spreads},
    address::Address,
    all::{Chosen, Looked, Totals},
    times::Times,
};
use crate::fleet::status::{FleetStatus, JobStatus};

/// The fleet as the client of a page may see it, and what the client has chosen.
pub(in crate::admin) struct View<'a> {
    /// Replicas and nodes as they are now; of the jobs those that the page shows, or all of them.
    pub(in crate::admin) fleet: &'a FleetStatus,
    /// All jobs, as they were when all of them were looked at.
    pub(in crate::admin) all: &'a FleetStatus,
    pub(in crate::admin) looked: Looked,
    /// Whether the jobs that the page shows were looked at for it.
    pub(in crate::admin) is_fresh: bool,
    /// What all jobs come to.
    pub(in crate::admin) totals: &'a Totals,
    /// Which of them the page shows.
    pub(in crate::admin) chosen: &'a Chosen,
    /// How fast backlogs grow.
    pub(in crate::admin) growth: &'a Growth,
    /// How the nodes have answered lately, in their order.
    pub(in crate::admin) spreads: &'a Spreads,
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

impl<'a> View<'a> {
    /// The name of a replica, by its id.
    pub(super) fn name_of<'b>(&'b self, id: &'b str) -> &'b str {
        self.fleet.replica(id).map_or(id, |replica| &replica.name)
    }

    /// A job by name, or a shard of one, as it is known last.
    pub(super) fn job(&self, name: &str) -> Option<&'a JobStatus> {
        self.fleet.job(name).or_else(|| self.all.job(name))
    }

    /// The jobs that the page shows, in their order.
    pub(super) fn shown(&self) -> Vec<&'a JobStatus> {
        let (fleet, all) = (self.fleet, self.all);
        let shown = self.chosen.places.iter();
        let shown = shown.filter_map(|place| all.jobs.get(*place));
        let newest = |job: &'a JobStatus| match self.is_fresh {
            true => fleet.job(&job.name).unwrap_or(job),
            false => job,
        };
        shown.map(newest).collect()
    }
}
