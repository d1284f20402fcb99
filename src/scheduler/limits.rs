//! How long a run may say nothing, and how long a leader may lead: the questions behind `progress_deadline` and
//! `max_term`.

use std::time::Duration;

use super::Context;
use crate::{
    clock::Moment,
    status::{PRESENCE_PREFIX, Presence, Role, Standing},
};

/// When a run counts as stuck that last said something at `said`. What passes while the process is frozen does not
/// count: `thawed` is the end of its last freeze.
pub(crate) fn stuck_at(said: Moment, thawed: Moment, limit: Option<Duration>) -> Moment {
    limit.map_or(Moment::NEVER, |limit| said.max(thawed) + limit)
}

/// Whether another replica than `me` stands by for the job, as far as these documents tell. One of smaller priority does
/// not count: it would give the job back.
fn stands_by(presences: &[Presence], me: &str, priority: i32, job: &str) -> bool {
    presences.iter().any(|other| {
        let standing =
            |j: &crate::status::JobPresence| j.name == job && j.standing == Standing::StandingBy;
        other.id != me
            && !other.draining
            && other.unfit.is_none()
            && other.role != Role::Observer
            && other.priority >= priority
            && other.jobs.iter().any(standing)
    })
}

/// Whether another candidate stands by; `None` when the store does not tell.
pub(super) async fn has_standby(ctx: &Context, job: &str) -> Option<bool> {
    let docs = ctx.locks.docs(PRESENCE_PREFIX).await.ok()?;
    let (me, priority) = (&ctx.replica, ctx.place.priority);
    Some(stands_by(&Presence::from_docs(&docs), me, priority, job))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::JobPresence;

    #[test]
    fn a_freeze_is_no_lack_of_progress() {
        let at = |secs| Moment::from_boot(Duration::from_secs(secs));
        let limit = Some(Duration::from_secs(60));
        assert_eq!(stuck_at(at(10), at(0), limit), at(70));
        assert_eq!(stuck_at(at(10), at(500), limit), at(560));
        assert_eq!(stuck_at(at(10), at(0), None), Moment::NEVER);
    }

    #[test]
    fn only_another_replica_that_could_take_over_stands_by() {
        let presence = |id: &str, standing| Presence {
            id: id.to_owned(),
            jobs: vec![JobPresence {
                name: "job".to_owned(),
                standing,
                ..JobPresence::default()
            }],
            ..Presence::default()
        };
        let standby = || presence("b", Standing::StandingBy);
        assert!(stands_by(&[standby()], "a", 0, "job"));
        assert!(!stands_by(&[standby()], "b", 0, "job"), "that is this one");
        assert!(!stands_by(&[standby()], "a", 0, "another"));
        assert!(!stands_by(&[standby()], "a", 1, "job"), "it is worth less");
        assert!(!stands_by(&[presence("b", Standing::Off)], "a", 0, "job"));
        let observes = Presence {
            role: Role::Observer,
            ..standby()
        };
        assert!(!stands_by(&[observes], "a", 0, "job"));
        let drains = Presence {
            draining: true,
            ..standby()
        };
        let ill = Presence {
            unfit: Some("disk full".to_owned()),
            ..standby()
        };
        assert!(!stands_by(&[drains, ill], "a", 0, "job"));
    }
}
