//! Whose definition of a job counts while the replicas of a fleet disagree on it.
//!
//! Every replica tells the others a hash of each of its definitions, and when it loaded it. With `newest` the definition that
//! was loaded last counts, as long as a replica is there that could lead under it; with `refuse` the one under which the job is
//! led, or was led last, until no live replica has it any more.
//!
//! Of jobs on which all agree nothing is kept here. Of a job on which any do not, a replica tells when it has loaded its definition
//! also those that have the same one: a definition may have been loaded again after the other.
//!
//! # Invariants
//! - With `newest` a replica may always lead: the replica that loaded its definition last.   (somebody_always_counts)
//! - Every replica finds the same one first among equals.   (everybody_finds_the_same_one_newest)
//! - Replicas with one definition agree on whether it is the newest.   (with_newest_what_was_loaded_again_counts_for_all_that_have_it)
//! # When things fail
//! A replica that hears of no peer follows its own definition. News is as old as the last look at the others, so an older
//! definition may start a tick in that time; never beside another run of the job.
//! # Not promised
//! Which definition a program's own code has: the hash is of what is configured.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;

use super::LocalStatus;
use crate::{
    event::{Event, Events},
    latest,
    node::Token,
    status::{JobStanding, Presence, Role},
};

/// What the others told of their definitions. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Of the jobs on which not all agree.
    others: Mutex<BTreeMap<String, Vec<PeerDefinition>>>,
    /// Counts the changes; 0 before the first look.
    news: latest::Sender<u64>,
    /// How many definitions of such a job were told of last.
    told: Mutex<BTreeMap<String, usize>>,
}

/// What one replica tells of its definition of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerDefinition {
    pub(crate) replica: String,
    pub(crate) name: String,
    pub(crate) definition: String,
    pub(crate) loaded: Timestamp,
    /// It is a candidate, fit, not draining, and stands back from nothing.
    pub(crate) could_lead: bool,
    /// It says to lead, under this token.
    pub(crate) leads: Option<Token>,
}

/// Whether a replica may lead a job under its definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stance {
    Counts,
    /// Why not, and what to do.
    StandBack(String),
}

// === decisions ===

/// `newest`: the definition that was loaded last by a replica that could lead.
pub(crate) fn newest(me: &PeerDefinition, others: &[PeerDefinition]) -> Stance {
    let told = |peer: &&PeerDefinition| peer.could_lead && !peer.definition.is_empty();
    let last = others.iter().filter(told).chain([me]);
    let last = last.max_by(|a, b| (a.loaded, &a.replica).cmp(&(b.loaded, &b.replica)));
    match last {
        Some(peer) if peer.definition != me.definition => Stance::StandBack(format!(
            "{} has loaded a newer definition ({}): reload or restart this replica with it",
            peer.name, peer.definition
        )),
        _ => Stance::Counts,
    }
}

/// `refuse`: the definition under which the job is led, or was led `last`; any once all agree on it.
pub(crate) fn refuse(me: &PeerDefinition, others: &[PeerDefinition], last: &str) -> Stance {
    let theirs = || others.iter().filter(|peer| !peer.definition.is_empty());
    let disagree: Vec<&PeerDefinition> =
        theirs().filter(|w| w.definition != me.definition).collect();
    let leads = theirs().filter(|peer| peer.leads.is_some());
    let leader = leads.max_by_key(|peer| peer.leads);
    let counts = leader.map_or(last, |peer| &peer.definition);
    if disagree.is_empty() || counts.is_empty() || counts == me.definition {
        return Stance::Counts;
    }
    let names: BTreeSet<&str> = disagree.iter().map(|peer| peer.name.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    Stance::StandBack(format!(
        "the job is led under another definition ({counts}), and definition = \"refuse\": bring all replicas to one \
         definition; others have {}",
        names.join(", ")
    ))
}

// === impl Definitions ===

impl Definitions {
    /// What replicas tell of their definitions that are there, to one that `reaches` enough nodes to lead.
    pub(super) fn noted(
        told: impl Iterator<Item = Presence>,
        reaches: bool,
    ) -> BTreeMap<String, Vec<PeerDefinition>> {
        let mut all = BTreeMap::new();
        for presence in told.filter(|presence| !presence.draining) {
            Self::note(&presence, reaches, &mut all);
        }
        all
    }

    fn note(presence: &Presence, reaches: bool, all: &mut BTreeMap<String, Vec<PeerDefinition>>) {
        let fit = presence.unfit.is_none()
            && presence.role != Role::Observer
            && !(presence.cut_off && reaches);
        for job in &presence.jobs {
            let told = PeerDefinition {
                replica: presence.id.clone(),
                name: presence.name.clone(),
                definition: job.definition.clone(),
                // Not told yet: what is not known makes nothing newer.
                loaded: job.loaded.unwrap_or(Timestamp::MIN),
                could_lead: fit && job.standing != JobStanding::Off,
                leads: job.token.filter(|_| job.standing == JobStanding::Leading),
            };
            all.entry(job.name.clone()).or_default().push(told);
        }
    }

    /// Takes note of what the others tell of jobs on which not all agree.
    pub(super) fn saw(&self, others: BTreeMap<String, Vec<PeerDefinition>>) {
        let mut known = lock(&self.0.others);
        if *known != others || *self.0.news.borrow() == 0 {
            *known = others;
            self.0.news.send_modify(|news| *news += 1);
        }
    }

    /// Tells of each job on which the fleet has begun or ceased to disagree.
    pub(super) fn tell(&self, status: &LocalStatus, events: &Events) {
        let others = lock(&self.0.others);
        let mut told = lock(&self.0.told);
        if others.is_empty() && told.is_empty() {
            return;
        }
        let own = status.own();
        let jobs: BTreeSet<&String> = others.keys().chain(told.keys()).collect();
        let counted = jobs.into_iter().filter_map(|job| {
            let mine = own.definition(job)?;
            let theirs = others.get(job).into_iter().flatten();
            let mut all: BTreeSet<&str> = theirs.map(|peer| peer.definition.as_str()).collect();
            all.insert(mine);
            all.remove("");
            Some((job.clone(), all.len()))
        });
        let now: BTreeMap<String, usize> = counted.collect();
        drop(others);
        for (job, &count) in &now {
            if told.get(job).copied().unwrap_or(1) != count {
                let job = job.clone();
                events.tell(Event::Definitions { job, count });
            }
        }
        *told = now;
        told.retain(|_, count| *count > 1);
    }

    pub(super) fn of(&self, job: &str) -> Vec<PeerDefinition> {
        lock(&self.0.others).get(job).cloned().unwrap_or_default()
    }

    /// Completes at the next news. Cancel-safe when `seen` was read before.
    pub(super) async fn changed(&self, seen: u64) {
        let mut news = self.0.news.subscribe();
        let _ = news.wait_for(|now| *now != seen).await;
    }

    pub(super) fn seen(&self) -> u64 {
        *self.0.news.borrow()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is complete before the lock is given back.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(replica: &str, definition: &str, loaded: i64) -> PeerDefinition {
        PeerDefinition {
            replica: replica.to_owned(),
            name: replica.to_owned(),
            definition: definition.to_owned(),
            loaded: Timestamp::from_second(loaded).unwrap(),
            could_lead: true,
            leads: None,
        }
    }

    fn counts(stance: &Stance) -> bool {
        *stance == Stance::Counts
    }

    #[test]
    fn the_definition_that_was_loaded_last_counts() {
        let (old, new) = (peer("a", "old", 100), peer("b", "new", 200));
        assert!(counts(&newest(&new, std::slice::from_ref(&old))));
        let Stance::StandBack(why) = newest(&old, &[new]) else {
            panic!("it leads under an old definition")
        };
        assert!(
            why.starts_with("b has loaded a newer definition (new)"),
            "{why}"
        );
        let also_new = peer("c", "new", 50);
        assert!(counts(&newest(&also_new, &[peer("b", "new", 200), old])));
    }

    #[test]
    fn whoever_could_not_lead_keeps_nobody_from_it() {
        let old = peer("a", "old", 100);
        let ill = PeerDefinition {
            could_lead: false,
            ..peer("b", "new", 200)
        };
        assert!(counts(&newest(&old, &[ill])));
        let older_version = peer("c", "", 300);
        assert!(counts(&newest(&old, &[older_version])));
    }

    #[test]
    fn somebody_always_counts() {
        for loaded in 0..27 {
            let all = [
                peer("a", "x", loaded % 3),
                peer("b", "y", loaded / 3 % 3),
                peer("c", "x", loaded / 9),
            ];
            let counting = (0..3).filter(|me| {
                let others: Vec<PeerDefinition> = all
                    .iter()
                    .filter(|w| w.replica != all[*me].replica)
                    .cloned()
                    .collect();
                counts(&newest(&all[*me], &others))
            });
            assert_ne!(counting.count(), 0, "{all:?}");
        }
    }

    #[test]
    fn everybody_finds_the_same_one_newest() {
        let (a, b) = (peer("a", "x", 100), peer("b", "y", 100));
        assert!(!counts(&newest(&a, std::slice::from_ref(&b))));
        assert!(counts(&newest(&b, &[a])));
    }

    #[test]
    fn nobody_begins_under_another_definition_than_the_leaders() {
        let me = peer("c", "new", 300);
        let leader = PeerDefinition {
            leads: Some(Token(7)),
            ..peer("a", "old", 100)
        };
        let Stance::StandBack(why) = refuse(&me, std::slice::from_ref(&leader), "") else {
            panic!("it begins a term under another definition")
        };
        assert!(
            why.contains("old") && why.ends_with("others have a"),
            "{why}"
        );
        assert!(counts(&refuse(&peer("b", "old", 200), &[leader], "")));
    }

    #[test]
    fn without_a_leader_the_ledger_tells_which_one_counts() {
        let (me, other) = (peer("c", "new", 300), peer("a", "old", 100));
        assert!(!counts(&refuse(&me, std::slice::from_ref(&other), "old")));
        assert!(counts(&refuse(&other, std::slice::from_ref(&me), "old")));
        assert!(counts(&refuse(&me, &[other], "")), "never led");
    }

    #[test]
    fn a_new_definition_takes_effect_when_all_have_it() {
        let (me, other) = (peer("c", "new", 300), peer("a", "new", 100));
        assert!(counts(&refuse(&me, &[other], "old")));
        assert!(counts(&refuse(&me, &[], "old")), "alone");
    }
}
