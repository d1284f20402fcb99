//! One node on its way back to its vote: what to do next, as a function of what was read. Pure.
//!
//! # States            voting -> lost -> watched(nonce) -> voting; or kept for another fleet
//! # Invariants
//! - G2 A nomination counts from the arrival of the first reply that showed it, for the longest lease and an allowance for
//!   clocks, on our own clock.                           (g2_a_nomination_is_watched_for_the_longest_lease)
//! - G2 Another loss starts it again.                    (g2_another_loss_starts_the_watch_again)
//! - G4 A marker of another fleet is left alone. Once it is taken away, the longer of both limits is waited for.
//!   (g4_the_longer_of_both_limits_is_waited_for)

use std::time::Duration;

use crate::{
    clock::Moment,
    node::{Admission, guard::closed_since},
    settings::{FleetConfig, Timing},
};

/// Another fleet's node is looked at so often: a person has to change something.
const OTHERS: Duration = Duration::from_secs(5);

/// What this client knows of one node that may have no vote.
#[derive(Debug, Default)]
pub(crate) struct Candidate {
    watched: Option<Watched>,
}

#[derive(Debug)]
struct Watched {
    incarnation: String,
    nonce: String,
    since: Moment,
    until: Moment,
}

/// What to do next about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It votes: nothing, until a reply says otherwise.
    Rest,
    /// Read its admission again at this time.
    Look(Moment),
    /// Nominate it: no nomination stands for its present incarnation.
    Nominate,
    /// It was watched for its whole time: read what the others know, and admit it under this nonce.
    Admit(String),
    /// It keeps locks for a fleet with this configuration; read its admission again at that time.
    Other(String, Moment),
}

// === impl Candidate ===

impl Candidate {
    /// What to do after `shown` has arrived at `now`.
    pub(crate) fn on(
        &mut self,
        now: Moment,
        shown: &Admission,
        ours: &FleetConfig,
        timing: &Timing,
    ) -> Next {
        let theirs = shown.config.as_deref().unwrap_or_default();
        // A marker that names no fleet takes the vote away, and stays until the node is admitted again.
        if shown.admitted && closed_since(theirs).is_none() {
            self.watched = None;
            return if shown.incarnation.is_empty() || ours.differs_from(theirs).is_none() {
                Next::Rest
            } else {
                Next::Other(theirs.to_owned(), now + OTHERS)
            };
        }
        let Some(nonce) = &shown.nonce else {
            self.watched = None;
            return Next::Nominate;
        };
        let known = self
            .watched
            .take()
            .filter(|w| w.nonce == *nonce && w.incarnation == shown.incarnation);
        let watched = known.unwrap_or_else(|| Watched {
            incarnation: shown.incarnation.clone(),
            nonce: nonce.clone(),
            since: now,
            until: now + watch_time(theirs, ours, timing),
        });
        let next = if now >= watched.until {
            Next::Admit(watched.nonce.clone())
        } else {
            Next::Look(watched.until.min(now + poll(&watched)))
        };
        self.watched = Some(watched);
        next
    }

    /// The nomination that is watched, and when its votes count again; `None` while it is not watched.
    pub(crate) fn watched(&self) -> Option<(String, Moment)> {
        self.watched.as_ref().map(|w| (w.nonce.clone(), w.until))
    }

    /// When its votes count again if nothing happens to it; `None` while it is not watched.
    pub(crate) fn until(&self) -> Option<Moment> {
        self.watched.as_ref().map(|w| w.until)
    }
}

/// Whatever was granted by the life that is lost is over after so long. The marker tells the limit of the fleet that
/// had the node.
fn watch_time(theirs: &str, ours: &FleetConfig, timing: &Timing) -> Duration {
    let limit = FleetConfig::max_ttl_in(theirs)
        .unwrap_or_default()
        .max(ours.max_ttl)
        .max(timing.max_ttl);
    timing.watch_time(limit)
}

/// Others may admit it before us, and it may lose its memory once more.
fn poll(watched: &Watched) -> Duration {
    let whole = watched.until.since(watched.since);
    (whole / 10).clamp(Duration::from_millis(20), Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Expiry;

    fn ours() -> FleetConfig {
        FleetConfig {
            layout: 2,
            nodes: 3,
            max_ttl: Duration::from_secs(30),
            expiry: Expiry::Observed,
            generation: 1,
        }
    }

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    fn lost(incarnation: &str, nonce: Option<&str>) -> Admission {
        Admission {
            incarnation: incarnation.into(),
            nonce: nonce.map(str::to_owned),
            ..Admission::default()
        }
    }

    fn admitted(config: &str) -> Admission {
        Admission {
            admitted: true,
            config: Some(config.into()),
            ..lost("i1", None)
        }
    }

    fn on(candidate: &mut Candidate, ms: u64, shown: &Admission) -> Next {
        candidate.on(at(ms), shown, &ours(), &Timing::default())
    }

    #[test]
    fn g1_a_node_that_votes_is_left_alone() {
        let mut candidate = Candidate::default();
        let shown = admitted(&ours().to_string());
        assert_eq!(on(&mut candidate, 0, &shown), Next::Rest);
        let unguarded = Admission {
            admitted: true,
            ..Admission::default()
        };
        assert_eq!(on(&mut candidate, 0, &unguarded), Next::Rest);
    }

    #[test]
    fn g2_a_nomination_is_watched_for_the_longest_lease() {
        let mut candidate = Candidate::default();
        assert_eq!(on(&mut candidate, 0, &lost("i1", None)), Next::Nominate);
        let shown = lost("i1", Some("n1"));
        assert_eq!(on(&mut candidate, 500, &shown), Next::Look(at(1_500)));
        // 30 s, one percent of it, and a granule of clocks, from the first reply that showed it.
        assert_eq!(candidate.until(), Some(at(30_802)));
        assert_eq!(on(&mut candidate, 30_300, &shown), Next::Look(at(30_802)));
        assert_eq!(on(&mut candidate, 30_801, &shown), Next::Look(at(30_802)));
        let admit = Next::Admit("n1".into());
        assert_eq!(on(&mut candidate, 30_802, &shown), admit);
        // The others could not be read: it is still watched long enough.
        assert_eq!(on(&mut candidate, 31_000, &shown), admit);
    }

    #[test]
    fn g2_another_loss_starts_the_watch_again() {
        let mut candidate = Candidate::default();
        on(&mut candidate, 0, &lost("i1", Some("n1")));
        // Flushed, and nominated by another process.
        on(&mut candidate, 20_000, &lost("i1", Some("n2")));
        assert_eq!(candidate.until(), Some(at(50_302)));
        // Restarted with its data: the nomination came back with it, for a life that is over.
        on(&mut candidate, 40_000, &lost("i2", Some("n2")));
        assert_eq!(candidate.until(), Some(at(70_302)));
        assert_eq!(
            on(&mut candidate, 60_000, &lost("i3", None)),
            Next::Nominate
        );
        assert_eq!(candidate.until(), None);
        let looked = on(&mut candidate, 80_000, &lost("i3", Some("n3")));
        assert!(matches!(looked, Next::Look(_)), "{looked:?}");
    }

    #[test]
    fn g2_whoever_admits_it_first_ends_the_watch() {
        let mut candidate = Candidate::default();
        on(&mut candidate, 0, &lost("i1", Some("n1")));
        let shown = admitted(&ours().to_string());
        assert_eq!(on(&mut candidate, 1_000, &shown), Next::Rest);
        assert_eq!(candidate.until(), None);
    }

    #[test]
    fn g4_a_node_of_another_fleet_is_left_alone() {
        let theirs = FleetConfig {
            max_ttl: Duration::from_secs(5),
            ..ours()
        };
        let next = on(&mut Candidate::default(), 0, &admitted(&theirs.to_string()));
        assert_eq!(next, Next::Other(theirs.to_string(), at(5_000)));
    }

    #[test]
    fn g4_a_node_that_was_closed_is_watched_like_a_lost_one() {
        let mut candidate = Candidate::default();
        let closed = admitted(&crate::node::guard::closed(60_000));
        assert_eq!(on(&mut candidate, 0, &closed), Next::Nominate);
        let nominated = Admission {
            nonce: Some("n1".into()),
            ..closed
        };
        on(&mut candidate, 0, &nominated);
        assert_eq!(candidate.until(), Some(at(60_602)));
        let admit = Next::Admit("n1".into());
        assert_eq!(on(&mut candidate, 60_602, &nominated), admit);
    }

    #[test]
    fn g4_the_longer_of_both_limits_is_waited_for() {
        for (theirs, until) in [(90, 90_902), (5, 30_302)] {
            let theirs = FleetConfig {
                max_ttl: Duration::from_secs(theirs),
                ..ours()
            };
            let shown = Admission {
                config: Some(theirs.to_string()),
                ..lost("i1", Some("n1"))
            };
            let mut candidate = Candidate::default();
            on(&mut candidate, 0, &shown);
            assert_eq!(candidate.until(), Some(at(until)));
        }
    }
}
