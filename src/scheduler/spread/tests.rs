//! From any start, with any order of decisions.

use proptest::prelude::*;

use super::{
    super::ranks::{Me, Ranks},
    *,
};
use crate::{clock::Moment, status::Presence};

const TTL: Duration = Duration::from_secs(10);

/// What a candidate does so many seconds after it has heard of the others.
fn attention(job: &str, (id, priority): (&str, i32), others: &[Peer], after: u64) -> Attention {
    let now = Moment::ZERO + Duration::from_secs(after);
    let ranks = ranks_among((id, priority), others);
    ranks.attention(job, None, Some(Moment::ZERO), now).0
}

/// Where a candidate stands who has just heard of the others.
fn ranks_among((id, priority): (&str, i32), others: &[Peer]) -> Ranks {
    let (mut ranks, me) = (Ranks::default(), Me { id, priority });
    for other in others {
        ranks.change(None, Some(other), me, Moment::ZERO);
    }
    ranks
}

fn peer(id: &str, priority: i32, leads: &[&str], stands_by: &[&str]) -> Peer {
    Peer {
        id: id.to_owned(),
        priority,
        leads: leads.iter().map(|job| ((*job).to_owned(), true)).collect(),
        stands_by: stands_by.iter().map(|job| (*job).to_owned()).collect(),
        is_active: false,
    }
}

fn held(job: &str) -> Held {
    Held {
        job: job.to_owned(),
        age: Duration::from_secs(60),
        min_term: Duration::from_secs(60),
        idle: true,
        until_tick: None,
    }
}

#[test]
fn a_sole_candidate_bids_at_once_and_nobody_waits_long() {
    let me = peer("a", 0, &["x", "y", "z"], &[]);
    assert_eq!(
        bid_after("job", (&me, me.leads.len()), &[], TTL),
        Duration::ZERO
    );
    let elsewhere = peer("b", 5, &[], &["mail"]);
    assert_eq!(
        bid_after("job", (&me, me.leads.len()), &[elsewhere], TTL),
        Duration::ZERO
    );
    let better = peer("b", 1, &[], &["job"]);
    let lighter = peer("c", 0, &[], &["job"]);
    let wait = bid_after(
        "job",
        (&me, me.leads.len()),
        &[better.clone(), lighter],
        TTL,
    );
    assert_eq!(wait, longest_wait(TTL));
    assert!(wait <= TTL * 3 / 20);
    assert_eq!(
        bid_after("job", (&better, better.leads.len()), &[me], TTL),
        Duration::ZERO
    );
}

#[test]
fn who_leads_more_bids_later() {
    let with = |id: &str, n: usize| {
        let jobs = ["1", "2", "3", "4", "5", "6", "7", "8"];
        peer(id, 0, &jobs[..n], &["job"])
    };
    let fleet = [with("a", 0), with("b", 5), with("c", 8)];
    let waits: Vec<Duration> = (0..3)
        .map(|n| {
            let mut others = fleet.to_vec();
            let me = others.remove(n);
            bid_after("job", (&me, me.leads.len()), &others, TTL)
        })
        .collect();
    assert_eq!(waits[0], Duration::ZERO);
    assert!(waits.is_sorted_by(|a, b| a < b), "{waits:?}");
    assert_eq!(waits[2], TTL / 20);
    // One that rests is not waited for.
    let crowd = |n| with(&format!("r{n}"), 0);
    let fleet: Vec<Peer> = (0..9).map(crowd).collect();
    let better = |me: &Peer| {
        let others = fleet.iter().filter(|o| o.id != me.id);
        others
            .filter(|o| rank("job", &o.id, 0) < rank("job", &me.id, 0))
            .count()
    };
    for me in fleet.iter().filter(|me| better(me) < WATCHERS) {
        let others: Vec<Peer> = fleet.iter().filter(|o| o.id != me.id).cloned().collect();
        let mut alone = others.clone();
        alone.retain(|o| better(o) < WATCHERS);
        let (beside, among) = (
            bid_after("job", (me, me.leads.len()), &alone, TTL),
            bid_after("job", (me, me.leads.len()), &others, TTL),
        );
        assert_eq!(beside, among, "{}", me.id);
    }
}

#[test]
fn jobs_that_become_free_together_go_to_different_replicas() {
    let fleet = ["a", "b", "c"].map(|id| {
        let jobs: Vec<String> = (0..30).map(|n| format!("job-{n}")).collect();
        let jobs: Vec<&str> = jobs.iter().map(String::as_str).collect();
        peer(id, 0, &[], &jobs)
    });
    let mut first = BTreeMap::<&str, usize>::new();
    for n in 0..30 {
        let at_once: Vec<&Peer> = fleet
            .iter()
            .filter(|me| {
                let others: Vec<Peer> = fleet.iter().filter(|o| o.id != me.id).cloned().collect();
                bid_after(&format!("job-{n}"), (me, me.leads.len()), &others, TTL).is_zero()
            })
            .collect();
        assert_eq!(at_once.len(), 1, "one bids first");
        *first.entry(&at_once[0].id).or_default() += 1;
    }
    assert!(
        first.len() == 3 && first.values().all(|n| *n >= 4),
        "{first:?}"
    );
}

#[test]
fn a_candidate_rests_only_while_better_ones_watch_and_a_replica_leads() {
    let ids: Vec<String> = (0..12).map(|n| format!("r{n}")).collect();
    let of = |priority: fn(usize) -> i32| {
        let peer = |(n, id): (usize, &String)| peer(id, priority(n), &[], &["job"]);
        ids.iter().enumerate().map(peer).collect::<Vec<Peer>>()
    };
    let all_after = |fleet: &[Peer], leads: Option<usize>, after| {
        let attention = |n: usize| {
            let mut others = fleet.to_vec();
            let me = others.remove(n);
            for other in &mut others {
                if leads.is_some_and(|leads| fleet[leads].id == other.id) {
                    other.stands_by = StandsBy::default();
                    other.leads.insert("job".to_owned(), true);
                }
            }
            attention("job", (&me.id, me.priority), &others, after)
        };
        let candidates = (0..fleet.len()).filter(|n| Some(*n) != leads);
        candidates.map(attention).collect::<Vec<_>>()
    };
    let all = |fleet: &[Peer], leads| all_after(fleet, leads, 0);
    let count = |all: &[Attention], of| all.iter().filter(|it| **it == of).count();
    let equals = of(|_| 0);
    for leads in 0..12 {
        let all = all(&equals, Some(leads));
        assert_eq!(count(&all, Attention::Watches), 3);
        assert_eq!(count(&all, Attention::Rests), 8);
    }
    // No replica leads, as far as is known: the others come to help one after the other.
    for (after, help) in [(0, 0), (4, 0), (5, 3), (9, 3), (10, 9), (600, 9)] {
        let vacant = all_after(&equals, None, after);
        assert_eq!(count(&vacant, Attention::Watches), 3);
        assert_eq!(count(&vacant, Attention::Helps), help, "after {after} s");
    }
    // Larger priorities watch, and then others until there are enough.
    let some = of(|n| i32::from(n < 2));
    let led = all(&some, Some(11));
    assert_eq!(led[..2], [Attention::Watches; 2]);
    assert_eq!(count(&led, Attention::Watches), 3);
    // Four replicas and fewer all have something to do.
    for leads in 0..4 {
        assert_eq!(all(&equals[..4], Some(leads)), [Attention::Watches; 3]);
    }
}

#[test]
fn a_fleets_candidates_share_what_is_to_be_watched() {
    let jobs: Vec<String> = (0..300).map(|n| format!("job-{n}")).collect();
    let names: Vec<&str> = jobs.iter().map(String::as_str).collect();
    let mut fleet: Vec<Peer> = (0..30)
        .map(|n| peer(&format!("r{n}"), 0, &[], &names))
        .collect();
    let mut counts = Vec::new();
    for n in 0..fleet.len() {
        let me = fleet.remove(n);
        let ranks = ranks_among((&me.id, me.priority), &fleet);
        let at_once = Moment::ZERO;
        let watches = |job: &&&str| {
            ranks.attention(job, None, Some(at_once), at_once).0 == Attention::Watches
        };
        counts.push(names.iter().filter(watches).count());
        fleet.insert(n, me);
    }
    assert_eq!(counts.iter().sum::<usize>(), 300 * WATCHERS);
    let fair = 300 * WATCHERS / 30;
    assert!(
        counts.iter().all(|n| (fair / 2..=fair * 2).contains(n)),
        "{counts:?}"
    );
}

#[test]
fn each_tick_has_another_order_of_replicas_and_all_agree_on_it() {
    let fleet: Vec<Peer> = (0..6)
        .map(|n| peer(&format!("r{n}"), 0, &[], &["job"]))
        .collect();
    let mut firsts = [0; 6];
    for second in 0..300 {
        let at = Timestamp::from_second(second * 10).unwrap();
        let turns: Vec<usize> = (0..6)
            .map(|n| {
                let mut others = fleet.clone();
                let me = others.remove(n);
                turn("job", at, &me.id, &others).len()
            })
            .collect();
        let all: BTreeSet<usize> = turns.iter().copied().collect();
        assert_eq!(all.len(), 6, "{turns:?}");
        firsts[turns.iter().position(|turn| *turn == 0).unwrap()] += 1;
    }
    assert!(firsts.iter().all(|n| (30..=75).contains(n)), "{firsts:?}");
    // What stands by for another job has no place.
    let at = Timestamp::UNIX_EPOCH;
    assert!(turn("mail", at, "r0", &fleet[1..]).is_empty());
}

#[test]
fn the_active_replica_of_a_failover_fleet_is_what_its_standbys_stand_by_for() {
    let of = |id: &str, role| {
        let told = Telling::all(Presence {
            id: id.to_owned(),
            mode: "failover".to_owned(),
            role,
            ..Presence::default()
        });
        Peer::of(&told, &Own::default(), true, true)
    };
    let mut others: Vec<Peer> = ["b", "c", "d", "e", "f", "g", "h"]
        .map(|id| of(id, Role::Standby))
        .into();
    let rests = |others: &[Peer]| {
        let mut ids = ["b", "c", "d", "e", "f", "g", "h"].iter();
        let others_of = |id: &str| {
            let mut others = others.to_vec();
            others.retain(|o| o.id != id);
            others
        };
        ids.any(|id| attention(WHOLE_REPLICA, (id, 0), &others_of(id), 60) == Attention::Rests)
    };
    assert!(!rests(&others), "no replica is active");
    others.push(of("a", Role::Leader));
    assert!(rests(&others));
}

#[test]
fn a_term_stays_for_its_minimum_and_while_a_run_is_in_flight() {
    let me = peer("a", 0, &["x", "y"], &[]);
    let other = [peer("b", 0, &[], &["x", "y"])];
    let young = Held {
        age: Duration::from_secs(59),
        ..held("x")
    };
    let busy = Held {
        idle: false,
        ..held("y")
    };
    assert_eq!(hand_over(&me, &[young, busy], &other), None);
    let soon = Held {
        until_tick: Some(Duration::from_secs(1)),
        ..held("x")
    };
    let late = Held {
        until_tick: Some(Duration::from_secs(900)),
        ..held("y")
    };
    let found = hand_over(&me, &[soon, late], &other).unwrap();
    assert_eq!((found.job.as_str(), found.why), ("y", Why::Share));
}

#[test]
fn a_difference_of_one_moves_nothing() {
    let me = peer("a", 0, &["x", "y"], &[]);
    let terms = [held("x"), held("y")];
    let other = |leads: &[&str]| [peer("b", 0, leads, &["x", "y"])];
    assert_eq!(hand_over(&me, &terms, &other(&["z"])), None);
    assert!(hand_over(&me, &terms, &other(&[])).is_some());
}

#[test]
fn a_term_never_goes_to_a_smaller_priority() {
    let me = peer("a", 1, &["x", "y", "z"], &[]);
    let terms = ["x", "y", "z"].map(held);
    let below = peer("b", 0, &[], &["x", "y", "z"]);
    assert_eq!(hand_over(&me, &terms, std::slice::from_ref(&below)), None);
    let above = peer("c", 7, &["1", "2", "3", "4", "5"], &["y"]);
    let found = hand_over(&me, &terms, &[below, above]).unwrap();
    assert_eq!((found.job.as_str(), found.to.as_str()), ("y", "c"));
    assert_eq!(found.why, Why::Priority);
}

#[test]
fn a_smaller_priority_neither_delays_a_bid_nor_counts_among_those_that_give() {
    let me = peer("a", 5, &["x", "y"], &[]);
    let below = peer("b", 0, &[], &["job"]);
    assert_eq!(
        bid_after("job", (&me, me.leads.len()), &[below], TTL),
        Duration::ZERO
    );
    // A replica of a larger priority gives nothing to this one, however much it leads.
    let me = peer("b", 0, &["x", "y"], &[]);
    let other = peer("c", 0, &[], &["x", "y", "1", "2"]);
    let above = peer("a", 9, &["1", "2"], &[]);
    let found = hand_over(&me, &[held("x"), held("y")], &[above, other]);
    assert_eq!(found.map(|found| found.why), Some(Why::Share));
}

#[test]
fn a_replica_that_is_no_candidate_stands_by_for_nothing() {
    let of = |role| {
        let job = JobPresence {
            name: "job".to_owned(),
            standing: JobStanding::Standby,
            ..JobPresence::default()
        };
        let own = Own::of([job.clone()]);
        let told = Telling::all(Presence {
            mode: "shared".to_owned(),
            role,
            jobs: vec![job],
            ..Presence::default()
        });
        Peer::of(&told, &own, false, true).stands_by.len()
    };
    assert_eq!([Role::Standby, Role::Observer].map(of), [1, 0]);
}

#[test]
fn a_replica_with_services_alone_does_not_keep_another_one_from_giving() {
    let mut me = peer("b", 0, &["x", "y"], &[]);
    let other = peer("c", 0, &[], &["x", "y", "1", "2"]);
    let mut services = peer("a", 0, &["1", "2"], &[]);
    let terms = [held("x"), held("y")];
    // It gives first, and then a difference of two is gone.
    assert_eq!(
        hand_over(&me, &terms, &[services.clone(), other.clone()]),
        None
    );
    services
        .leads
        .values_mut()
        .for_each(|movable| *movable = false);
    assert!(hand_over(&me, &terms, &[services, other.clone()]).is_some());
    me.leads.insert("z".to_owned(), true);
    let equal = peer("a", 0, &["1", "2", "3"], &[]);
    assert!(
        hand_over(&me, &terms, &[equal, other]).is_some(),
        "room for both"
    );
}

/// A fleet in a test: who leads each job, and who could.
#[derive(Clone, Debug)]
struct Start {
    priorities: Vec<i32>,
    leaders: Vec<usize>,
    able: Vec<Vec<bool>>,
}

fn starts(all_able: bool) -> impl Strategy<Value = Start> {
    (1_usize..7, 0_usize..20).prop_flat_map(move |(replicas, jobs)| {
        let able = prop::collection::vec(prop::collection::vec(any::<bool>(), jobs), replicas);
        let priorities = prop::collection::vec(0..3, replicas);
        let leaders = prop::collection::vec(0..replicas, jobs);
        (priorities, leaders, able).prop_map(move |(priorities, leaders, mut able)| {
            for row in &mut able {
                row.iter_mut().for_each(|able| *able |= all_able);
            }
            Start {
                priorities,
                leaders,
                able,
            }
        })
    })
}

impl Start {
    fn peers(&self) -> Vec<Peer> {
        let of = |me: usize| {
            let name = |n: usize| format!("job-{n}");
            let jobs = || (0..self.leaders.len()).filter(move |n| self.able[me][*n]);
            let leads = (0..self.leaders.len()).filter(|n| self.leaders[*n] == me);
            Peer {
                id: format!("r{me}"),
                priority: self.priorities[me],
                leads: leads.map(|n| (name(n), true)).collect(),
                stands_by: jobs()
                    .filter(|n| self.leaders[*n] != me)
                    .map(name)
                    .collect(),
                is_active: false,
            }
        };
        (0..self.priorities.len()).map(of).collect()
    }

    /// What every replica decides from the same picture: job and next leader.
    fn decide(&self) -> Vec<Option<(usize, usize)>> {
        let peers = self.peers();
        let number = |id: &str| -> usize { id[id.len() - 1..].parse().unwrap() };
        let decide = |me: usize| {
            let mut others = peers.clone();
            let mine = others.remove(me);
            let terms: Vec<Held> = mine.leads.keys().map(|job| held(job)).collect();
            let found = hand_over(&mine, &terms, &others)?;
            let job = found.job.trim_start_matches("job-").parse().unwrap();
            Some((job, number(&found.to)))
        };
        (0..peers.len()).map(decide).collect()
    }

    /// Grows with every term that goes to a larger priority, then with every one that goes to a smaller share.
    fn order(&self) -> (i32, Reverse<usize>) {
        let priority = self.leaders.iter().map(|n| self.priorities[*n]).sum();
        let shares = self.peers().iter().map(|p| p.leads.len().pow(2)).sum();
        (priority, Reverse(shares))
    }
}

proptest! {
    #[test]
    fn from_any_start_terms_come_to_rest(start in starts(true), acting in prop::collection::vec(any::<u8>(), 400)) {
        come_to_rest(start.clone(), &acting)?;
        come_to_rest(start, &[u8::MAX; 400])?;
    }

    #[test]
    fn where_not_all_can_do_all_jobs_terms_come_to_rest_too(start in starts(false), acting in prop::collection::vec(any::<u8>(), 400)) {
        let mut start = start;
        for (job, leader) in start.leaders.clone().into_iter().enumerate() {
            start.able[leader][job] = true;
        }
        come_to_rest(start.clone(), &acting)?;
        come_to_rest(start, &[u8::MAX; 400])?;
    }
}

/// In each round some of the replicas act, all by one picture; each round in which any does is progress.
fn come_to_rest(mut fleet: Start, acting: &[u8]) -> Result<(), TestCaseError> {
    let everywhere = fleet.able.iter().flatten().all(|able| *able);
    for who in acting.iter().chain(&[u8::MAX; 400]) {
        let decided = fleet.decide();
        if decided.iter().all(Option::is_none) {
            // At rest.
            let (top, shares) = (fleet.priorities.iter().max(), fleet.peers());
            let shares: Vec<usize> = shares
                .iter()
                .filter(|p| Some(&p.priority) == top)
                .map(|p| p.leads.len())
                .collect();
            if everywhere {
                let all: usize = shares.iter().sum();
                prop_assert_eq!(
                    all,
                    fleet.leaders.len(),
                    "all where the priority is largest"
                );
                let spread = shares.iter().max().unwrap() - shares.iter().min().unwrap();
                prop_assert!(spread <= 1, "{:?}", shares);
            }
            return Ok(());
        }
        let before = fleet.order();
        let acts = |me: usize| who & (1 << me) != 0;
        let mut any = false;
        for (me, decided) in decided.into_iter().enumerate() {
            if let Some((job, to)) = decided.filter(|_| acts(me)) {
                prop_assert_eq!(fleet.leaders[job], me);
                fleet.leaders[job] = to;
                any = true;
            }
        }
        prop_assert!(!any || fleet.order() > before, "{:?}", fleet);
    }
    Err(TestCaseError::fail("no rest"))
}

#[test]
fn a_lock_that_is_taken_for_a_tick_is_nobodys_share() {
    let job = |name: &str, coordination: &str| JobPresence {
        name: name.to_owned(),
        coordination: coordination.to_owned(),
        standing: JobStanding::Leading,
        ..JobPresence::default()
    };
    let told = Telling::all(Presence {
        mode: "shared".to_owned(),
        jobs: vec![job("led", "leader"), job("brief", "tick")],
        ..Presence::default()
    });
    let peer = Peer::of(&told, &Own::default(), false, true);
    let leads: Vec<String> = peer.leads.into_keys().collect();
    assert_eq!(leads, ["led"]);
}

#[test]
fn what_a_standby_of_everything_would_take_over_is_kept_once_for_all() {
    let job = |n: usize, standing| JobPresence {
        name: format!("job-{n}"),
        coordination: "leader".to_owned(),
        standing,
        ..JobPresence::default()
    };
    let own = Own::of((0..1_000).map(|n| job(n, JobStanding::Standby)));
    let presence = |jobs| Presence {
        mode: "shared".to_owned(),
        jobs,
        ..Presence::default()
    };
    let peer = |told: &Telling| Peer::of(told, &own, false, true).stands_by;
    let others_rest = |jobs| Telling {
        presence: presence(jobs),
        others_rest: true,
    };
    let told = others_rest(vec![
        job(3, JobStanding::Leading),
        job(4, JobStanding::Standby),
        job(5_000, JobStanding::Off),
    ]);
    let found = peer(&told);
    assert_eq!((found.len(), found.kept()), (999, 1));
    assert!(!found.contains("job-3") && found.contains("job-4"));
    assert!(!found.contains("job-5000"));
    // Told job by job it is the same.
    let named = (0..1_000).filter(|n| *n != 3);
    let named = named.map(|n| job(n, JobStanding::Standby));
    let named = Telling::all(presence(
        named.chain([job(3, JobStanding::Leading)]).collect(),
    ));
    assert_eq!(peer(&named), found);
    assert_eq!(peer(&Telling::all(presence(Vec::new()))).len(), 0);
}

/// Where all are cut off alike none is worse than another.
#[test]
fn a_replica_that_reaches_too_few_nodes_stands_by_for_nothing_where_others_reach_enough() {
    let own = Own::of([JobPresence {
        name: "job".to_owned(),
        ..JobPresence::default()
    }]);
    let told = |cut_off| Telling {
        presence: Presence {
            mode: "shared".to_owned(),
            cut_off,
            ..Presence::default()
        },
        others_rest: true,
    };
    let stands_by = |cut_off, reaches| {
        let peer = Peer::of(&told(cut_off), &own, false, reaches);
        peer.stands_by.contains("job")
    };
    assert!(stands_by(false, true) && stands_by(false, false));
    assert!(!stands_by(true, true));
    assert!(stands_by(true, false));
}
