//! How long the lock nodes have taken to answer lately, by what was read of the fleet while a page was looked at.
//!
//! Nothing is asked for it: a reading of the fleet tells of each node how long its last answer took, to whichever call that was. One
//! that was told before is noted once. Pure.
//!
//! # Invariants
//! - W16 Nothing is kept for longer than percentiles are made of, nor more than so many answers of a node; one that answers no more
//!   adds none.   (percentiles_are_made_of_the_answers_of_the_last_five_minutes)

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::{clock::Moment, fleet::status::FleetStatus};

/// What percentiles are made of.
const WINDOW: Duration = Duration::from_secs(300);
/// Answers of a node that are kept: those of all that time, where there is a reading every 400 ms.
const MOST: usize = 750;
/// No percentile is made of fewer.
const LEAST: usize = 20;

/// The answers of each node, the oldest first, in microseconds. Nodes go by their place and name: two may have one name.
#[derive(Debug, Default)]
pub(super) struct RoundTrips(BTreeMap<(usize, String), VecDeque<(Moment, u64)>>);

/// Of the nodes, in their order, how long half and nearly all of their answers took at most, where enough were noted.
pub(super) type Spreads = Vec<Option<Spread>>;

/// How long answers of a node took at most, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spread {
    pub(super) p50: u64,
    pub(super) p99: u64,
    /// Of so many.
    pub(super) of: usize,
}

// === impl RoundTrips ===

impl RoundTrips {
    /// The fleet was read at this moment. How its nodes have answered, as far as that is known.
    pub(super) fn note(&mut self, fleet: &FleetStatus, now: Moment) -> Spreads {
        let mut before = std::mem::take(&mut self.0);
        let nodes = fleet.nodes.iter().enumerate();
        let spreads = nodes.map(|(place, node)| {
            let of = (place, node.name.clone());
            let mut noted = before.remove(&of).unwrap_or_default();
            let answer = node.rtt_us.filter(|_| node.up);
            let is_new = |us: &u64| noted.back().is_none_or(|(_, last)| last != us);
            noted.extend(answer.filter(is_new).map(|us| (now, us)));
            let is_old = |(at, _): &(Moment, u64)| now.since(*at) > WINDOW;
            while noted.len() > MOST || noted.front().is_some_and(is_old) {
                noted.pop_front();
            }
            let spread = spread(noted.iter().map(|(_, us)| *us).collect());
            self.0.insert(of, noted);
            spread
        });
        spreads.collect()
    }
}

fn spread(mut answers: Vec<u64>) -> Option<Spread> {
    let of = answers.len();
    if of < LEAST {
        return None;
    }
    answers.sort_unstable();
    // The nearest rank: at least so many of a hundred took no longer.
    let at = |percent: usize| answers[(of * percent).div_ceil(100) - 1];
    let (p50, p99) = (at(50), at(99));
    Some(Spread { p50, p99, of })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::status::NodeStatus;

    /// Nodes, up or not, with the round trip of their last answers.
    fn fleet(nodes: &[(bool, u64)]) -> FleetStatus {
        let node = |(up, us): &(bool, u64)| NodeStatus {
            // One name for all: that of a cluster, say.
            name: "n".to_owned(),
            up: *up,
            rtt_us: Some(*us),
            ..NodeStatus::default()
        };
        FleetStatus {
            nodes: nodes.iter().map(node).collect(),
            ..FleetStatus::default()
        }
    }

    fn at(tenths: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(1_000) + Duration::from_millis(100) * tenths as u32)
    }

    #[test]
    fn percentiles_are_made_of_the_answers_of_the_last_five_minutes() {
        let mut trips = RoundTrips::default();
        for look in 1..=1_000 {
            // One of two nodes has been down for long, and its last answer was a quick one.
            let spreads = trips.note(&fleet(&[(true, look), (false, 7)]), at(10 * look));
            let kept: Vec<usize> = trips.0.values().map(VecDeque::len).collect();
            assert!(kept[0] <= 301 && kept[1] == 0, "{kept:?}");
            assert_eq!(spreads[1], None);
            let expected = match look {
                0..20 => None,
                _ => {
                    let of = look.min(301);
                    let rank = |percent: u64| look - of + (of * percent).div_ceil(100);
                    let (p50, p99) = (rank(50), rank(99));
                    let of = usize::try_from(of).unwrap();
                    Some(Spread { p50, p99, of })
                }
            };
            assert_eq!(spreads[0], expected, "{look}");
        }
        // It goes down, and its last answer is still told: it is none of now.
        let before = trips.note(&fleet(&[(true, 5)]), at(10_010));
        assert_eq!(before[0].map(|spread| spread.of), Some(301));
        let still = trips.note(&fleet(&[(true, 5)]), at(10_010));
        assert_eq!(still, before, "the same answer");
        assert_eq!(trips.note(&fleet(&[(false, 5)]), at(14_000)), [None]);
        // However often it is read.
        for look in 0..2_000 {
            let spreads = trips.note(&fleet(&[(true, look)]), at(20_000 + look));
            assert_eq!(spreads.len(), 1, "the other is not configured any more");
        }
        assert_eq!(
            (trips.0.len(), trips.0[&(0, "n".to_owned())].len()),
            (1, MOST)
        );
    }
}
