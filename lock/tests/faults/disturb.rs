//! What happens to nodes in the torture, at random: a new fault is one more variant here.

use std::{collections::BTreeMap, time::Duration};

use watchkeeper_lock::{
    chance::Chance,
    clock::{Clock, Moment},
};

use crate::masters::{Follower, Masters};

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Killed, and started anew without memory.
    Kill,
    /// It stands still for a while.
    Freeze,
    Flush,
    /// Its wall clock jumps by an hour.
    Mislead,
    /// Killed, and started from a copy of its memory that is older.
    Restore,
    /// An operator takes a copy of its memory, as `redis-cli --rdb` does: for the server that is a replica.
    Backup,
    /// It gets a replica; if it has one, that takes its place and its address, with what has reached it.
    Follow,
    /// It forgets its scripts.
    Scripts,
    /// For a while it has no memory left.
    Full,
    /// For a while it evicts what it keeps, although it was started without.
    Evict,
    /// For a while its address leads to another node, for connections that are made anew.
    Reroute,
}

/// As often as they are listed. Not most of them cost a node its memory: where no node may vote, nobody believes anything.
pub(crate) const ALL: &[Fault] = &[
    Fault::Kill,
    Fault::Kill,
    Fault::Freeze,
    Fault::Freeze,
    Fault::Freeze,
    Fault::Flush,
    Fault::Mislead,
    Fault::Mislead,
    Fault::Restore,
    Fault::Backup,
    Fault::Backup,
    Fault::Follow,
    Fault::Follow,
    Fault::Scripts,
    Fault::Scripts,
    Fault::Full,
    Fault::Full,
    Fault::Evict,
    Fault::Reroute,
];

/// How many of each.
pub(crate) type Faults = BTreeMap<Fault, usize>;

/// What is over by itself after a while.
struct Passing {
    node: usize,
    fault: Fault,
    until: Moment,
}

/// The nodes while they are tortured.
struct Victims<'a> {
    masters: &'a mut Masters,
    followers: Vec<Option<Follower>>,
    passing: Vec<Passing>,
}

/// Lets faults of these kinds happen, and ends those that pass.
pub(crate) async fn disturb(
    masters: &mut Masters,
    clock: &Clock,
    seed: u64,
    time: Duration,
    kinds: &[Fault],
) -> Faults {
    let chance = Chance::seeded(seed);
    let end = clock.now() + time;
    let mut faults = Faults::new();
    let mut victims = Victims {
        followers: (0..masters.len()).map(|_| None).collect(),
        masters,
        passing: Vec::new(),
    };
    loop {
        // In bursts: what a holder has lost on one node it soon heals, so two must be struck together.
        let rest = if chance.hits(0.6) {
            chance.up_to(ms(30))
        } else {
            ms(200) + chance.up_to(ms(600))
        };
        let next = clock.now() + rest;
        victims.pass(clock, next, next >= end).await;
        clock.sleep_until(next).await;
        if next >= end {
            return faults;
        }
        let any = |bound: usize| usize::try_from(chance.below(bound as u64)).unwrap();
        let (node, fault) = (any(victims.masters.len()), kinds[any(kinds.len())]);
        let until = clock.now() + ms(50) + chance.up_to(ms(450));
        let ahead = chance.hits(0.67);
        if victims.strike(node, fault, until, ahead) {
            *faults.entry(fault).or_default() += 1;
        }
    }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

// === impl Victims ===

impl Victims<'_> {
    /// Ends what is over by `next`, or everything.
    async fn pass(&mut self, clock: &Clock, next: Moment, all: bool) {
        self.passing.sort_by_key(|passing| passing.until);
        let over = |passing: &Passing| all || passing.until <= next;
        let over = self
            .passing
            .iter()
            .take_while(|passing| over(passing))
            .count();
        for passing in self.passing.drain(..over).collect::<Vec<_>>() {
            clock.sleep_until(passing.until.min(next)).await;
            self.masters.end(passing.node, passing.fault);
        }
    }

    /// Whether it came to it. No node has two faults that pass at a time, and one at most stands still: with two, the other
    /// faults would not be noticed.
    fn strike(&mut self, node: usize, fault: Fault, until: Moment, ahead: bool) -> bool {
        let masters = &mut *self.masters;
        let busy = self.passing.iter().any(|passing| {
            passing.node == node || passing.fault == fault && fault == Fault::Freeze
        });
        // A server that stands still answers nobody, and an address that leads elsewhere is no node to torture.
        if busy {
            return false;
        }
        match fault {
            Fault::Kill => {
                // Starting a machine sets its clock.
                masters.step(node, 0);
                masters.forget(node);
            }
            Fault::Freeze => masters.freeze(node),
            Fault::Flush => masters.flush(node),
            Fault::Mislead => masters.step(node, if ahead { 3600 } else { -3600 }),
            // There is no copy while another is being made.
            Fault::Restore if !masters.save(node) => return false,
            Fault::Restore => {}
            Fault::Backup => masters.back_up(node),
            Fault::Follow => match self.followers[node].take() {
                Some(follower) => masters.replace(node, follower),
                None => self.followers[node] = Some(masters.follower(node)),
            },
            Fault::Scripts => masters.tell(node, &["SCRIPT", "FLUSH"]),
            Fault::Full => masters.tell(node, &["CONFIG", "SET", "maxmemory", "1"]),
            Fault::Evict => {
                masters.tell(
                    node,
                    &["CONFIG", "SET", "maxmemory-policy", "allkeys-random"],
                );
                masters.tell(node, &["CONFIG", "SET", "maxmemory", "1"]);
            }
            Fault::Reroute => masters.lead_to(node, (node + 1) % masters.len()),
        }
        let passes = matches!(
            fault,
            Fault::Freeze | Fault::Restore | Fault::Full | Fault::Evict | Fault::Reroute
        );
        if passes {
            self.passing.push(Passing { node, fault, until });
        }
        true
    }
}

// === impl Masters ===

impl Masters {
    /// Ends what passes.
    fn end(&mut self, node: usize, fault: Fault) {
        match fault {
            Fault::Freeze => self.thaw(node),
            Fault::Restore => self.restore(node),
            Fault::Full | Fault::Evict => {
                self.tell(node, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
                self.tell(node, &["CONFIG", "SET", "maxmemory", "0"]);
            }
            Fault::Reroute => self.lead_back(node),
            _ => {}
        }
    }
}
