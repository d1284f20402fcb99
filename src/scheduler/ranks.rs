//! Where this replica stands among the candidates of each job, and since when no other one leads it: kept up with what each replica
//! tells, so that a thousand jobs need not be compared with two hundred replicas whenever one of those says something.
//!
//! # Invariants
//! - Kept up or counted anew, it is the same, but for since when there is no leader.   (ranks_that_are_kept_up_are_those_that_are_counted_anew)
//! - A change of one replica costs what it has changed.   (a_change_of_one_replica_is_all_that_is_looked_at)

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use super::spread::{Attention, Peer, WATCHERS, is_better, patience};
use crate::clock::Moment;

/// Of the jobs for which any other replica stands by, or which it leads.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    by_job: HashMap<Box<str>, Rank>,
    /// How many jobs were looked at.
    #[cfg(test)]
    looked: usize,
}

/// What is known of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rank {
    /// Candidates that come before this replica.
    better: u32,
    /// Others that stand by, better or not.
    candidates: u32,
    /// Others that say to lead it.
    leaders: u32,
    /// Since when there is none of these.
    vacant: Moment,
}

/// This replica.
#[derive(Clone, Copy)]
pub(super) struct Me<'a> {
    pub(super) id: &'a str,
    pub(super) priority: i32,
}

// === impl Ranks ===

impl Ranks {
    /// A replica tells something else now than it `was`; either is `None` where it tells nothing.
    pub(super) fn change(
        &mut self,
        was: Option<&Peer>,
        is: Option<&Peer>,
        me: Me<'_>,
        now: Moment,
    ) {
        if let (Some(was), Some(is)) = (was, is)
            && (&was.id, was.priority) == (&is.id, is.priority)
            && let Some(differ) = was.stands_by.differences(&is.stands_by)
        {
            for job in differ {
                let stands_by = is.stands_by.contains(job);
                if stands_by != was.stands_by.contains(job) {
                    self.stands_by(job, is, me, stands_by, now);
                }
            }
            let (led, leads): (BTreeSet<&str>, BTreeSet<&str>) =
                (was.all_led().collect(), is.all_led().collect());
            for job in leads.difference(&led) {
                self.leads(job, true, now);
            }
            for job in led.difference(&leads) {
                self.leads(job, false, now);
            }
            return;
        }
        for (peer, comes) in [(is, true), (was, false)] {
            let Some(peer) = peer else { continue };
            for job in peer.stands_by.iter() {
                self.stands_by(job, peer, me, comes, now);
            }
            for job in peer.all_led() {
                self.leads(job, comes, now);
            }
        }
    }

    /// What this replica does about the lock of a job, and when that changes by itself: the last look may have shown that it is
    /// `vacant`, since when, and so many nodes vote since `voted` that it can be led.
    pub(super) fn attention(
        &self,
        job: &str,
        vacant: Option<Moment>,
        voted: Option<Moment>,
        now: Moment,
    ) -> (Attention, Option<Duration>) {
        let Some(rank) = self.by_job.get(job) else {
            return (Attention::Watches, None);
        };
        let better = usize::try_from(rank.better).unwrap_or(usize::MAX);
        if better < WATCHERS {
            return (Attention::Watches, None);
        }
        let told = (rank.leaders == 0).then_some(rank.vacant);
        // What was seen counts as what is told.
        let since = match (told, vacant) {
            (Some(told), Some(seen)) => Some(told.min(seen)),
            (told, seen) => told.or(seen),
        };
        let (Some(since), Some(voted)) = (since, voted) else {
            return (Attention::Rests, None);
        };
        let waits = patience(better).saturating_sub(now.since(since.max(voted)));
        match waits.is_zero() {
            true => (Attention::Helps, None),
            false => (Attention::Rests, Some(waits)),
        }
    }

    fn stands_by(&mut self, job: &str, peer: &Peer, me: Me<'_>, comes: bool, now: Moment) {
        let better = is_better(job, (&peer.id, peer.priority), (me.id, me.priority));
        self.change_one(job, now, |rank| {
            count(&mut rank.candidates, comes);
            if better {
                count(&mut rank.better, comes);
            }
        });
    }

    fn leads(&mut self, job: &str, comes: bool, now: Moment) {
        self.change_one(job, now, |rank| {
            count(&mut rank.leaders, comes);
            if rank.leaders == 0 {
                rank.vacant = now;
            }
        });
    }

    fn change_one(&mut self, job: &str, now: Moment, change: impl FnOnce(&mut Rank)) {
        #[cfg(test)]
        {
            self.looked += 1;
        }
        let mut rank = Rank {
            better: 0,
            candidates: 0,
            leaders: 0,
            vacant: now,
        };
        if let Some(known) = self.by_job.get_mut(job) {
            change(known);
            if known.candidates == 0 && known.leaders == 0 {
                self.by_job.remove(job);
            }
        } else {
            change(&mut rank);
            self.by_job.insert(job.into(), rank);
        }
    }
}

fn count(of: &mut u32, comes: bool) {
    *of = match comes {
        true => *of + 1,
        false => of.saturating_sub(1),
    };
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use proptest::prelude::*;

    use super::*;

    const ME: Me<'_> = Me {
        id: "me",
        priority: 0,
    };

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    /// A replica that stands by for all of these jobs but some, and leads some.
    fn peer(n: usize, all: &Arc<BTreeSet<String>>, but: &[&str], leads: &[&str]) -> Peer {
        Peer {
            id: format!("r{n}"),
            priority: i32::try_from(n % 3).unwrap() - 1,
            leads: leads.iter().map(|job| ((*job).to_owned(), true)).collect(),
            stands_by: crate::scheduler::spread::StandsBy::all_but(all, but),
            is_active: n == 3,
        }
    }

    fn jobs(count: usize) -> Arc<BTreeSet<String>> {
        Arc::new((0..count).map(|n| format!("job-{n}")).collect())
    }

    proptest! {
        #[test]
        fn ranks_that_are_kept_up_are_those_that_are_counted_anew(
            changes in prop::collection::vec((0..6_usize, any::<bool>(), 0..16_u8, 0..16_u8, any::<bool>()), 1..40)
        ) {
            let sets = [jobs(4), jobs(4)];
            let pick = |bits: u8| -> Vec<String> {
                (0..4).filter(|n| bits & (1 << n) != 0).map(|n| format!("job-{n}")).collect()
            };
            let (mut kept, mut told) = (Ranks::default(), BTreeMap::new());
            for (n, lives, but, leads, set) in changes {
                let (but, leads) = (pick(but), pick(leads));
                let (but, leads): (Vec<&str>, Vec<&str>) =
                    (but.iter().map(String::as_str).collect(), leads.iter().map(String::as_str).collect());
                let is = lives.then(|| peer(n, &sets[usize::from(set)], &but, &leads));
                let was = match is.clone() {
                    Some(is) => told.insert(n, is),
                    None => told.remove(&n),
                };
                // All at one instant: since when is not compared.
                kept.change(was.as_ref(), is.as_ref(), ME, at(1));
                let mut anew = Ranks::default();
                for peer in told.values() {
                    anew.change(None, Some(peer), ME, at(1));
                }
                prop_assert_eq!(&kept.by_job, &anew.by_job);
            }
        }
    }

    #[test]
    fn a_change_of_one_replica_is_all_that_is_looked_at() {
        let all = jobs(1_000);
        let (mut ranks, none) = (Ranks::default(), &[][..]);
        let looked = |ranks: &mut Ranks, was: Option<&Peer>, is: Option<&Peer>| {
            let before = ranks.looked;
            ranks.change(was, is, ME, at(1));
            ranks.looked - before
        };
        let rests = peer(0, &all, none, none);
        assert_eq!(looked(&mut ranks, None, Some(&rests)), 1_000, "it is new");
        let leads = peer(0, &all, &["job-7"], &["job-7"]);
        assert_eq!(looked(&mut ranks, Some(&rests), Some(&leads)), 2);
        assert_eq!(looked(&mut ranks, Some(&leads), Some(&leads)), 0);
        assert_eq!(looked(&mut ranks, Some(&leads), None), 1_000, "it goes");
        assert!(ranks.by_job.is_empty());
    }

    #[test]
    fn patience_counts_from_when_the_last_leader_has_ceased() {
        let all = jobs(1);
        let mut ranks = Ranks::default();
        for n in 0..3 {
            let better = Peer {
                priority: 1,
                ..peer(n, &all, &[], &[])
            };
            ranks.change(None, Some(&better), ME, at(0));
        }
        let leads = peer(4, &all, &["job-0"], &["job-0"]);
        ranks.change(None, Some(&leads), ME, at(0));
        let attention = |ranks: &Ranks, now| ranks.attention("job-0", None, Some(at(0)), at(now)).0;
        assert_eq!(attention(&ranks, 100), Attention::Rests);
        ranks.change(Some(&leads), None, ME, at(100));
        assert_eq!(attention(&ranks, 104), Attention::Rests);
        assert_eq!(attention(&ranks, 105), Attention::Helps);
    }

    #[test]
    fn while_too_few_nodes_vote_no_patience_ends() {
        let all = jobs(1);
        let mut ranks = Ranks::default();
        for n in 0..12 {
            let better = Peer {
                priority: 1,
                ..peer(n, &all, &[], &[])
            };
            ranks.change(None, Some(&better), ME, at(0));
        }
        let attention =
            |voted: Option<u64>, now| ranks.attention("job-0", None, voted.map(at), at(now));
        assert_eq!(attention(None, 600), (Attention::Rests, None));
        let rests = |secs| (Attention::Rests, Some(Duration::from_secs(secs)));
        assert_eq!(attention(Some(600), 600), rests(15));
        assert_eq!(attention(Some(600), 614), rests(1));
        assert_eq!(attention(Some(600), 615), (Attention::Helps, None));
    }
}
