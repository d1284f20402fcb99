//! One node on its way back to its vote: what to do next, as a function of what was read. Pure.
//!
//! # States            voting -> lost -> watched(nonce) -> voting; or kept for another fleet
//! # Invariants
//! - G2 A nomination counts from the arrival of the first reply that showed it, for the longest lease and an allowance for
//!   clocks, on our own clock.                           (g2_a_nomination_is_watched_for_the_longest_lease)
//! - G2 Another loss starts it again.                    (g2_another_loss_starts_the_watch_again)
//! - G4 A marker of another fleet is left alone. Once it is taken away, the longer of both limits is waited for.
//!   (g4_the_longer_of_both_limits_is_waited_for)
//! - G4 A nomination names its fleet. A program for which the node has voted puts its own in the place of another fleet's: a
//!   newcomer that is configured differently, and comes first after a loss, neither shuts the right fleet out nor votes before
//!   the leases of that one are over. (g4_a_program_that_was_admitted_replaces_the_nomination_of_another_fleet)
//! - G4 So does one that finds another node of its list to be its fleet's, or closed by it for a founding.
//!   (g4_a_fleet_that_is_founded_anew_keeps_its_nodes)
//! - G4 A program for which the node has voted waits like any other once another fleet has admitted the node since.
//!   (g4_a_program_whose_node_another_fleet_has_admitted_since_waits_like_any_other)
//! - G4 Others wait until that nomination should have become a marker, and then do the same: its program may have died.
//!   (g4_a_nomination_of_another_fleet_that_comes_to_nothing_is_replaced)
//! - G4 What another fleet has closed for itself is waited for as long, and is no order of a person.
//!   (g4_a_founding_of_another_fleet_that_comes_to_nothing_is_undone)
//! - G4 Longer each time: where that comes back, its fleet is at work. (g4_a_nomination_that_comes_back_is_waited_for_longer)
//! - G4 A program that has seen the node kept for another fleet gives that one as long to nominate it after a loss.
//!   (g4_what_was_kept_for_another_fleet_is_left_to_it_first)
//! - G4 A program for which the node has not voted yet leaves it alone while another node of its list keeps locks for another fleet:
//!   it may be theirs as well. (g4_a_lost_node_beside_one_of_another_fleet_is_left_alone)
//! - Without the guard nothing is watched but a node whose vote was taken away: a marker is written with the first vote.
//!   (unguarded_a_node_is_watched_only_when_its_vote_was_taken_away)

use std::time::Duration;

use crate::{
    clock::Moment,
    node::{Admission, guard::closed_since},
    settings::{FleetConfig, Timing},
};

/// Another fleet's node is looked at so often: a person has to change something.
const OTHERS: Duration = Duration::from_secs(5);

/// A nomination of another fleet is looked at so often, and may take so much longer than its watch.
const RIVALS: Duration = Duration::from_secs(1);

/// The patience with a fleet whose nomination comes back is doubled so often.
const LONGER: u32 = 10;

/// What this client knows of one node that may have no vote.
#[derive(Debug, Default)]
pub(crate) struct Candidate {
    watched: Option<Watched>,
    /// It has voted for this program.
    voted: bool,
    /// The nomination of another fleet, and until when that may become a marker.
    rival: Option<(String, Moment)>,
    /// Such a nomination that was to be replaced, and how often another came back: its fleet is at work.
    replaced: Option<String>,
    outlasted: u32,
    /// The fleet for which it was kept, or nominated, when it was read before, and how long that one is waited for.
    before: Option<(String, Moment)>,
    /// The configuration of another fleet that a node beside it keeps locks for.
    elsewhere: Option<String>,
}

#[derive(Debug)]
struct Watched {
    incarnation: String,
    nonce: String,
    roster: String,
    since: Moment,
    until: Moment,
}

/// What the roster says of a node, see [`super::roster`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// What it shows is that which stands: it may be watched, and admitted.
    pub(crate) stands: bool,
    /// Its fleet has a roster: what it has lost is its own.
    pub(crate) is_complete: bool,
    /// A node of its list is, or was, one of its fleet.
    pub(crate) is_known: bool,
}

/// What to do next about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It votes: nothing, until a reply says otherwise.
    Rest,
    /// Read its admission again at this time.
    Look(Moment),
    /// Nominate it: no nomination stands for its present incarnation, or this one of another fleet.
    Nominate(Option<String>),
    /// It was watched for its whole time: read what the others know, and admit it under this nonce.
    Admit(String),
    /// It keeps locks for a fleet with this configuration; read its admission again at that time.
    Other(String, Moment),
}

// === impl Candidate ===

impl Candidate {
    /// The node has voted for this program, as an answer to another question has shown.
    pub(crate) fn has_vote(&mut self) {
        self.voted = true;
    }

    /// Takes note of another fleet that a node beside it keeps locks for, if one does.
    pub(crate) fn hears(&mut self, elsewhere: Option<String>) {
        self.elsewhere = elsewhere;
    }

    /// What to do after `shown`, which was asked for at `asked`, has arrived by `now`.
    pub(crate) fn on(
        &mut self,
        (asked, now): (Moment, Moment),
        shown: &Admission,
        (ours, timing): (&FleetConfig, &Timing),
        part: Part,
    ) -> Next {
        let theirs = shown.config.as_deref().unwrap_or_default();
        if let Some(theirs) = ours.stranger(shown) {
            self.watched = None;
            // That it has voted for this program is of the past.
            self.voted &= !shown.admitted;
            let until = now + patience(theirs, (ours, timing));
            self.before = Some((theirs.to_owned(), until));
            return Next::Other(theirs.to_owned(), now + OTHERS);
        }
        let closed = closed_since(theirs).is_some();
        // A marker that names no fleet takes the vote away, and stays until the node is admitted again.
        if shown.admitted && !closed {
            *self = Self {
                voted: true,
                ..Self::default()
            };
            return Next::Rest;
        }
        // The fleet is configured anew, by a person: a program that was here before knows no better. What a program of another
        // fleet has closed says nothing of the kind.
        let ours_anew = ours.has_closed(shown);
        let closed_by_other = ours.closed_by_other(shown);
        self.voted &= !closed || ours_anew || closed_by_other.is_some();
        if let Some(theirs) = ours.rival(shown) {
            let first = self.voted || part.is_known || ours_anew;
            return self.outlast(now, shown, theirs, (ours, timing), first);
        }
        self.rival = None;
        if !ours.is_guarded() && !closed {
            self.watched = None;
            return Next::Rest;
        }
        let its_own = self.voted || part.is_complete;
        if let Some(theirs) = self.elsewhere.take().filter(|_| !its_own) {
            self.watched = None;
            return Next::Other(theirs, now + RIVALS);
        }
        let Some(nonce) = &shown.nonce else {
            self.watched = None;
            let before = self.before.take();
            let before = match closed_by_other {
                Some(theirs) => {
                    let known = before.filter(|(before, _)| before == theirs);
                    let until = || now + patience(theirs, (ours, timing));
                    Some(known.unwrap_or_else(|| (theirs.to_owned(), until())))
                }
                None => before.filter(|_| !closed),
            };
            // Kept when its time is over: the nomination may not get there, and is not to wait once more.
            self.before = before.filter(|_| !its_own);
            return match &self.before {
                Some((theirs, until)) if now < *until => {
                    Next::Other(theirs.clone(), (*until).min(now + RIVALS))
                }
                _ => Next::Nominate(None),
            };
        };
        let same = |w: &Watched| {
            (&w.nonce, &w.incarnation, &w.roster) == (nonce, &shown.incarnation, &shown.roster)
        };
        let known = self.watched.take().filter(same);
        if !part.stands {
            return Next::Look(now + poll(watch_time(theirs, ours, timing)));
        }
        let watched = known.unwrap_or_else(|| Watched {
            incarnation: shown.incarnation.clone(),
            nonce: nonce.clone(),
            roster: shown.roster.clone(),
            since: now,
            until: now + watch_time(theirs, ours, timing),
        });
        // It was read again after the watch.
        let next = if asked >= watched.until {
            Next::Admit(watched.nonce.clone())
        } else {
            let whole = watched.until.since(watched.since);
            Next::Look(watched.until.min(now + poll(whole)))
        };
        self.watched = Some(watched);
        next
    }

    /// What to do while the nomination of the fleet `theirs` stands.
    fn outlast(
        &mut self,
        now: Moment,
        shown: &Admission,
        theirs: &str,
        (ours, timing): (&FleetConfig, &Timing),
        first: bool,
    ) -> Next {
        self.watched = None;
        let other = Next::Other(theirs.to_owned(), now + RIVALS);
        let Some(nonce) = &shown.nonce else {
            // Without the guard it is not for us to judge which life it is of.
            return other;
        };
        if first {
            return Next::Nominate(Some(nonce.clone()));
        }
        if self
            .replaced
            .as_ref()
            .is_some_and(|replaced| replaced != nonce)
        {
            self.replaced = None;
            self.outlasted = self.outlasted.saturating_add(1);
        }
        let known = self.rival.take().filter(|(stands, _)| stands == nonce);
        let longer = 1 << self.outlasted.min(LONGER);
        let patience = patience(theirs, (ours, timing)).saturating_mul(longer);
        let (_, until) = self
            .rival
            .insert(known.unwrap_or_else(|| (nonce.clone(), now + patience)));
        self.before = Some((theirs.to_owned(), *until));
        if now >= *until {
            self.replaced = Some(nonce.clone());
            return Next::Nominate(Some(nonce.clone()));
        }
        other
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
        .max(ours.watched())
        .max(timing.max_ttl);
    timing.watch_time(limit)
}

/// How long a fleet has to make its nomination a marker, or to nominate what it has lost.
pub(super) fn patience(theirs: &str, (ours, timing): (&FleetConfig, &Timing)) -> Duration {
    let watch = watch_time(theirs, ours, timing);
    watch + watch / 10 + RIVALS * 2
}

/// Others may admit it before us, and it may lose its memory once more.
fn poll(whole: Duration) -> Duration {
    (whole / 10).clamp(Duration::from_millis(20), Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Expiry, RestartGuard, guard::closed_for};

    fn ours() -> FleetConfig {
        FleetConfig {
            layout: 2,
            nodes: 3,
            max_ttl: Duration::from_secs(30),
            expiry: Expiry::Observed,
            generation: 1,
            guard: RestartGuard::Call,
            raw_keys: false,
            drift_ppm: 10_000,
            failover: false,
        }
    }

    const PART: Part = Part {
        stands: true,
        is_complete: false,
        is_known: false,
    };

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
        candidate.on((at(ms), at(ms)), shown, (&ours(), &Timing::default()), PART)
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
        assert_eq!(
            on(&mut candidate, 0, &lost("i1", None)),
            Next::Nominate(None)
        );
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
            Next::Nominate(None)
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
        assert_eq!(on(&mut candidate, 0, &closed), Next::Nominate(None));
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

    fn rival(nonce: &str) -> Admission {
        let theirs = FleetConfig {
            max_ttl: Duration::from_secs(2),
            ..ours()
        };
        Admission {
            nominated_for: Some(theirs.to_string()),
            ..lost("i2", Some(nonce))
        }
    }

    fn own(nonce: &str) -> Admission {
        Admission {
            nominated_for: Some(ours().to_string()),
            ..rival(nonce)
        }
    }

    #[test]
    fn g4_a_program_that_was_admitted_replaces_the_nomination_of_another_fleet() {
        let mut candidate = Candidate::default();
        let shown = admitted(&ours().to_string());
        assert_eq!(on(&mut candidate, 0, &shown), Next::Rest);
        let over = Next::Nominate(Some("n1".into()));
        assert_eq!(on(&mut candidate, 1_000, &rival("n1")), over);
        on(&mut candidate, 1_001, &own("n2"));
        assert_eq!(candidate.until(), Some(at(31_303)));
        // Again, however often the other one comes.
        let over = Next::Nominate(Some("n3".into()));
        assert_eq!(on(&mut candidate, 20_000, &rival("n3")), over);
        assert_eq!(candidate.until(), None);
    }

    #[test]
    fn g4_a_program_whose_node_another_fleet_has_admitted_since_waits_like_any_other() {
        let mut candidate = Candidate::default();
        on(&mut candidate, 0, &admitted(&ours().to_string()));
        let theirs = rival("").nominated_for.unwrap();
        on(&mut candidate, 1_000, &admitted(&theirs));
        let next = on(&mut candidate, 2_000, &rival("n1"));
        assert!(matches!(next, Next::Other(..)), "{next:?}");
    }

    #[test]
    fn g4_a_vote_that_an_acquisition_got_counts_as_well() {
        // Before its admission was ever read.
        let mut candidate = Candidate::default();
        candidate.has_vote();
        let over = Next::Nominate(Some("n1".into()));
        assert_eq!(on(&mut candidate, 0, &rival("n1")), over);
        let mut stranger = Candidate::default();
        assert_ne!(on(&mut stranger, 0, &rival("n1")), over);
    }

    #[test]
    fn g4_who_was_there_before_a_reconfiguration_replaces_nothing() {
        let mut candidate = Candidate::default();
        on(&mut candidate, 0, &admitted(&ours().to_string()));
        let closed = Admission {
            config: Some(crate::node::guard::closed(30_000)),
            ..rival("n1")
        };
        let next = on(&mut candidate, 1_000, &closed);
        assert!(matches!(next, Next::Other(..)), "{next:?}");
    }

    #[test]
    fn g4_a_fleet_that_is_founded_anew_keeps_its_nodes() {
        let closed = |by: &FleetConfig| Admission {
            config: Some(closed_for(30_000, &by.to_string())),
            ..rival("n1")
        };
        // Also for a program that has just started.
        let over = Next::Nominate(Some("n1".into()));
        assert_eq!(on(&mut Candidate::default(), 0, &closed(&ours())), over);
        let known = Part {
            is_known: true,
            ..PART
        };
        let timing = Timing::default();
        let looked = (at(0), at(0));
        let next = Candidate::default().on(looked, &rival("n1"), (&ours(), &timing), known);
        assert_eq!(next, over);
        let others = FleetConfig { nodes: 1, ..ours() };
        let next = on(&mut Candidate::default(), 0, &closed(&others));
        assert!(matches!(next, Next::Other(..)), "{next:?}");
    }

    #[test]
    fn g4_a_founding_of_another_fleet_that_comes_to_nothing_is_undone() {
        let others = FleetConfig { nodes: 1, ..ours() };
        let closed = |shown| Admission {
            config: Some(closed_for(30_000, &others.to_string())),
            ..shown
        };
        // Before it was nominated, and after that.
        for (shown, over) in [(lost("i1", None), None), (rival("n1"), Some("n1".into()))] {
            let mut candidate = Candidate::default();
            for ms in [0, 20_000, 35_000] {
                let next = on(&mut candidate, ms, &closed(shown.clone()));
                assert!(matches!(next, Next::Other(..)), "{ms}: {next:?}");
            }
            // Again where that did not get there.
            for ms in [36_000, 36_500] {
                let next = on(&mut candidate, ms, &closed(shown.clone()));
                assert_eq!(next, Next::Nominate(over.clone()));
            }
        }
        // A program for which it has voted does not wait: no person has closed it.
        let mut candidate = Candidate::default();
        on(&mut candidate, 0, &admitted(&ours().to_string()));
        let next = on(&mut candidate, 1, &closed(lost("i2", None)));
        assert_eq!(next, Next::Nominate(None));
        let next = on(&mut candidate, 2, &closed(rival("n1")));
        assert_eq!(next, Next::Nominate(Some("n1".into())));
    }

    #[test]
    fn g4_a_nomination_of_another_fleet_that_comes_to_nothing_is_replaced() {
        let mut candidate = Candidate::default();
        for ms in [0, 20_000, 35_000] {
            let next = on(&mut candidate, ms, &rival("n1"));
            assert!(matches!(next, Next::Other(..)), "{ms}: {next:?}");
            assert_eq!(candidate.until(), None);
        }
        let over = Next::Nominate(Some("n1".into()));
        assert_eq!(on(&mut candidate, 36_000, &rival("n1")), over);
    }

    #[test]
    fn g4_a_nomination_that_comes_back_is_waited_for_longer() {
        let mut candidate = Candidate::default();
        let over = |nonce: &str| Next::Nominate(Some(nonce.into()));
        on(&mut candidate, 0, &rival("n1"));
        assert_eq!(on(&mut candidate, 36_000, &rival("n1")), over("n1"));
        on(&mut candidate, 36_100, &own("n2"));
        for ms in [37_000, 75_000, 107_000] {
            let next = on(&mut candidate, ms, &rival("n3"));
            assert!(matches!(next, Next::Other(..)), "{ms}: {next:?}");
        }
        assert_eq!(on(&mut candidate, 109_000, &rival("n3")), over("n3"));
    }

    #[test]
    fn g4_what_was_kept_for_another_fleet_is_left_to_it_first() {
        let theirs = rival("").nominated_for.unwrap();
        let mut candidate = Candidate::default();
        on(&mut candidate, 0, &admitted(&theirs));
        for ms in [1_000, 35_000] {
            let next = on(&mut candidate, ms, &lost("i2", None));
            assert!(matches!(next, Next::Other(..)), "{ms}: {next:?}");
        }
        let next = on(&mut candidate, 36_000, &lost("i2", None));
        assert_eq!(next, Next::Nominate(None));
        // A person has taken it from that fleet.
        let mut candidate = Candidate::default();
        on(&mut candidate, 0, &admitted(&theirs));
        let closed = Admission {
            config: Some(crate::node::guard::closed(30_000)),
            ..lost("i2", None)
        };
        let next = on(&mut candidate, 1_000, &closed);
        assert_eq!(next, Next::Nominate(None));
    }

    #[test]
    fn g4_a_lost_node_beside_one_of_another_fleet_is_left_alone() {
        let theirs = rival("").nominated_for;
        let mut candidate = Candidate::default();
        candidate.hears(theirs.clone());
        let next = on(&mut candidate, 0, &lost("i1", None));
        assert_eq!(next, Next::Other(theirs.clone().unwrap(), at(1_000)));
        // Also when its watch is over.
        on(&mut candidate, 0, &own("n1"));
        candidate.hears(theirs.clone());
        let next = on(&mut candidate, 40_000, &own("n1"));
        assert!(matches!(next, Next::Other(..)), "{next:?}");
        // Whom it has voted for brings it back, or one such program could shut out all others.
        on(&mut candidate, 50_000, &admitted(&ours().to_string()));
        candidate.hears(theirs);
        let next = on(&mut candidate, 60_000, &lost("i3", None));
        assert_eq!(next, Next::Nominate(None));
    }

    #[test]
    fn unguarded_a_node_is_watched_only_when_its_vote_was_taken_away() {
        let unguarded = FleetConfig {
            guard: RestartGuard::Off,
            ..ours()
        };
        let timing = Timing::default();
        let mut candidate = Candidate::default();
        let shown = lost("", None);
        assert_eq!(
            candidate.on((at(0), at(0)), &shown, (&unguarded, &timing), PART),
            Next::Rest
        );
        let closed = Admission {
            config: Some(crate::node::guard::closed(60_000)),
            ..shown
        };
        let next = candidate.on((at(0), at(0)), &closed, (&unguarded, &timing), PART);
        assert_eq!(next, Next::Nominate(None));
        // Each names the other, whatever was lost.
        for (theirs, ours) in [(ours(), unguarded), (unguarded, ours())] {
            let shown = Admission {
                config: Some(theirs.to_string()),
                ..lost("i2", None)
            };
            let next = candidate.on((at(0), at(0)), &shown, (&ours, &timing), PART);
            assert_eq!(next, Next::Other(theirs.to_string(), at(5_000)));
        }
    }
}
