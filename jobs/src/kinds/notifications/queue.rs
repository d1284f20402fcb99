//! The items of a batch that are still to be begun, by receiver: the receivers take turns, so that none holds up the
//! others.
//!
//! # Invariants
//! - Q1 An item whose receiver cannot take it holds up none of another receiver.  (`a_receiver_that_is_full_holds_up_no_other`)
//! - Q2 Items of one receiver go in their order.                   (`receivers_take_turns_and_keep_their_order`)

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

use watchkeeper::clock::Moment;

use super::sink::{Admission, Permit};

/// The items, by their positions in the batch.
#[derive(Debug, Default)]
pub(super) struct Queue {
    hosts: VecDeque<(String, VecDeque<usize>)>,
    aside: Vec<(usize, Moment, String)>,
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Next {
    /// Begin this item, with the receiver's permit.
    Begin(usize, Option<Permit>),
    /// Wait: until something is answered, or until then.
    Wait(Moment),
}

// === impl Queue ===

impl Queue {
    /// All items of a batch; the receiver of each.
    pub(super) fn new(of: impl Iterator<Item = String>) -> Self {
        let mut hosts: BTreeMap<String, VecDeque<usize>> = BTreeMap::new();
        for (i, host) in of.enumerate() {
            hosts.entry(host).or_default().push_back(i);
        }
        Self {
            hosts: hosts.into_iter().collect(),
            aside: Vec::new(),
        }
    }

    /// Whether all were begun or put aside.
    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The next item that may go; `admit` says it of a receiver. Items of one that is paused are put aside.
    pub(super) fn next(&mut self, mut admit: impl FnMut(&str) -> Admission) -> Next {
        let mut wake = Moment::NEVER;
        for _ in 0..self.hosts.len() {
            let Some((host, mut items)) = self.hosts.pop_front() else {
                break;
            };
            match admit(&host) {
                Admission::Go(permit) => {
                    let first = items.pop_front();
                    if !items.is_empty() {
                        self.hosts.push_back((host, items));
                    }
                    if let Some(first) = first {
                        return Next::Begin(first, permit);
                    }
                }
                Admission::Paused { until, why } => {
                    let items = items.into_iter().map(|i| (i, until, why.clone()));
                    self.aside.extend(items);
                }
                Admission::At(at) => {
                    wake = wake.min(at);
                    self.hosts.push_back((host, items));
                }
                Admission::Full => self.hosts.push_back((host, items)),
            }
        }
        Next::Wait(wake)
    }

    /// Items that were put aside since the last call, until when, and why.
    pub(super) fn take_aside(&mut self) -> Vec<(usize, Moment, String)> {
        mem::take(&mut self.aside)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn queue(hosts: &[&str]) -> Queue {
        Queue::new(hosts.iter().map(|host| (*host).to_owned()))
    }

    fn begun(queue: &mut Queue, mut admit: impl FnMut(&str) -> Admission) -> Vec<usize> {
        let mut begun = Vec::new();
        while let Next::Begin(i, _) = queue.next(&mut admit) {
            begun.push(i);
        }
        begun
    }

    #[test]
    fn receivers_take_turns_and_keep_their_order() {
        let mut queue = queue(&["a", "a", "a", "b", "b", "c"]);
        assert_eq!(begun(&mut queue, |_| Admission::free()), [0, 3, 5, 1, 4, 2]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_receiver_that_is_full_holds_up_no_other() {
        let mut queue = queue(&["full", "full", "slow", "a", "a"]);
        let at = Moment::from_boot(Duration::from_secs(7));
        let admit = |host: &str| match host {
            "full" => Admission::Full,
            "slow" => Admission::At(at),
            _ => Admission::free(),
        };
        assert_eq!(begun(&mut queue, admit), [3, 4]);
        assert!(matches!(queue.next(admit), Next::Wait(until) if until == at));
        assert!(!queue.is_empty());
        assert_eq!(begun(&mut queue, |_| Admission::free()), [0, 2, 1]);
    }

    #[test]
    fn items_of_a_paused_receiver_are_put_aside() {
        let mut queue = queue(&["paused", "b", "paused"]);
        let until = Moment::from_boot(Duration::from_secs(7));
        let admit = |host: &str| match host {
            "paused" => Admission::Paused {
                until,
                why: "answered 429".to_owned(),
            },
            _ => Admission::free(),
        };
        assert_eq!(begun(&mut queue, admit), [1]);
        let aside = queue.take_aside();
        assert_eq!(aside.iter().map(|(i, ..)| *i).collect::<Vec<_>>(), [0, 2]);
        assert!(queue.is_empty() && queue.take_aside().is_empty());
    }
}
