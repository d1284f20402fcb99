//! What is not shown without the token: more than names and standings. What runs, panics and checks say, and what stands in a
//! configuration.

use crate::fleet::status::{FleetStatus, JobStatus};

/// In the place of what only the token shows.
const WITHHELD: &str = "sign in to see why";

/// Takes all of it away.
pub(super) fn withhold(fleet: &mut FleetStatus) {
    fleet.jobs.iter_mut().for_each(withhold_of);
    for reload in fleet.replicas.iter_mut().filter_map(|r| r.reload.as_mut()) {
        reload.error = reload.error.as_ref().map(|_| WITHHELD.to_owned());
    }
    for why in fleet.replicas.iter_mut().filter_map(|r| r.unfit.as_mut()) {
        *why = in_short(why);
    }
}

fn withhold_of(job: &mut JobStatus) {
    for run in &mut job.running {
        run.message = None;
    }
    if let Some(trouble) = &mut job.trouble {
        WITHHELD.clone_into(&mut trouble.why);
    }
    job.by_shard.iter_mut().for_each(withhold_of);
}

/// Why a replica is unfit, without what a job has said in its panic, or a check in its error: the name of either alone, which
/// stands before it.
pub(super) fn in_short(why: &str) -> String {
    match why.split_once(": ") {
        Some((what, _)) => format!("{what}: {WITHHELD}"),
        None => why.to_owned(),
    }
}
