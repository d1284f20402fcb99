//! The items of a batch that are still to be begun, by receiver and limit: these groups take turns, so that none holds up
//! the others.
//!
//! # Invariants
//! - Q1 An item that may not go holds up none of another group.  (`a_receiver_that_is_full_holds_up_no_other`)
//! - Q2 Items of one group go in their order.                      (`receivers_take_turns_and_keep_their_order`)
//! - Q3 Of one recipient whose items go in order one is under way, and none follows one that failed.
//!   (`a_recipient_has_one_row_under_way_and_none_behind_a_failed_one`)
//! - Q4 What is not to be sent uses no turn and no permit, and does not wait with the others.
//!   (`what_is_not_to_be_sent_uses_no_turn`)

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

use watchkeeper::clock::Moment;

use super::{
    delivery::Answer,
    sink::{Admission, Permit},
};

/// The items, by their positions in the batch.
#[derive(Debug)]
pub(super) struct Queue<G> {
    groups: VecDeque<(G, VecDeque<usize>)>,
    /// What follows an item when it was taken: the next of its recipient, with its group.
    followers: BTreeMap<usize, (usize, G)>,
    aside: Vec<(usize, Moment, String)>,
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Next {
    /// These are not to be sent, and were taken out.
    Settled(Vec<(usize, Answer)>),
    /// Begin this item, with the receiver's permit.
    Begin(usize, Option<Permit>),
    /// Wait: until something is answered, or until then.
    Wait(Moment),
}

// === impl Queue ===

impl<G: Ord> Queue<G> {
    /// All items of a batch: the group of each, and the recipient of one that has its place in an order.
    pub(super) fn new<'i>(of: impl Iterator<Item = (G, Option<&'i str>)>) -> Self {
        let mut groups: BTreeMap<G, VecDeque<usize>> = BTreeMap::new();
        let (mut last, mut followers) = (BTreeMap::new(), BTreeMap::new());
        for (i, (group, recipient)) in of.enumerate() {
            match recipient.and_then(|recipient| last.insert(recipient, i)) {
                Some(before) => {
                    followers.insert(before, (i, group));
                }
                None => groups.entry(group).or_default().push_back(i),
            }
        }
        Self {
            groups: groups.into_iter().collect(),
            followers,
            aside: Vec::new(),
        }
    }

    /// The item was taken, or is out of the way of those behind it: the next of its recipient may go. Without this word they
    /// stay where they are.
    pub(super) fn follow(&mut self, i: usize) {
        let Some((next, group)) = self.followers.remove(&i) else {
            return;
        };
        match self.groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, items)) => items.push_back(next),
            None => self.groups.push_back((group, VecDeque::from([next]))),
        }
    }

    /// Whether all were begun or put aside.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Nothing more is to be begun.
    pub(super) fn clear(&mut self) {
        self.groups.clear();
        self.followers.clear();
    }

    /// The next item that may go; `admit` says it of a group. Items of one that is paused are put aside. Before a group is asked for
    /// its first item, and all are to wait, `settled` says which items are not to be sent at all.
    pub(super) fn next(
        &mut self,
        mut settled: impl FnMut(usize) -> Option<Answer>,
        mut admit: impl FnMut(&G) -> Admission,
    ) -> Next {
        let mut wake = Moment::NEVER;
        for _ in 0..self.groups.len() {
            let Some((group, mut items)) = self.groups.pop_front() else {
                break;
            };
            if let Some(first) = items.front().copied()
                && let Some(answer) = settled(first)
            {
                items.pop_front();
                if !items.is_empty() {
                    self.groups.push_front((group, items));
                }
                return Next::Settled(vec![(first, answer)]);
            }
            match admit(&group) {
                Admission::Go(permit) => {
                    let first = items.pop_front();
                    if !items.is_empty() {
                        self.groups.push_back((group, items));
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
                    self.groups.push_back((group, items));
                }
                Admission::Full => self.groups.push_back((group, items)),
            }
        }
        let settled = self.settle(settled);
        match settled.is_empty() {
            true => Next::Wait(wake),
            false => Next::Settled(settled),
        }
    }

    /// Takes out the items of which `settled` says something.
    fn settle(&mut self, mut settled: impl FnMut(usize) -> Option<Answer>) -> Vec<(usize, Answer)> {
        let mut taken = Vec::new();
        for (_, items) in &mut self.groups {
            items.retain(|i| {
                let answer = settled(*i);
                let stays = answer.is_none();
                taken.extend(answer.map(|answer| (*i, answer)));
                stays
            });
        }
        self.groups.retain(|(_, items)| !items.is_empty());
        taken
    }

    /// Takes out items of the groups about which `of_group` says something: those for which `place` says where they are to wait.
    /// It is told of each how many of its group are before it.
    pub(super) fn take_out<W, T>(
        &mut self,
        of_group: impl Fn(&G) -> Option<W>,
        place: impl Fn(&W, u32) -> Option<T>,
    ) -> Vec<(usize, T)> {
        let mut taken = Vec::new();
        for (group, items) in &mut self.groups {
            let Some(group) = of_group(group) else {
                continue;
            };
            let mut before = 0;
            items.retain(|i| {
                let place = place(&group, before);
                before += 1;
                let stays = place.is_none();
                taken.extend(place.map(|place| (*i, place)));
                stays
            });
        }
        self.groups.retain(|(_, items)| !items.is_empty());
        taken
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

    fn queue(hosts: &[&'static str]) -> Queue<&'static str> {
        Queue::new(hosts.iter().map(|host| (*host, None)))
    }

    fn begun(
        queue: &mut Queue<&'static str>,
        mut admit: impl FnMut(&&'static str) -> Admission,
    ) -> Vec<usize> {
        let mut begun = Vec::new();
        while let Next::Begin(i, _) = queue.next(|_| None, &mut admit) {
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
    fn a_recipient_has_one_row_under_way_and_none_behind_a_failed_one() {
        let rows = [
            ("h", Some("a")),
            ("h", Some("a")),
            ("k", Some("a")),
            ("h", Some("b")),
            ("h", None),
            ("h", None),
        ];
        let mut queue = Queue::new(rows.into_iter());
        let free = |_: &&'static str| Admission::free();
        assert_eq!(begun(&mut queue, free), [0, 3, 4, 5]);
        assert!(queue.is_empty());
        queue.follow(0);
        assert_eq!(begun(&mut queue, free), [1]);
        queue.follow(3);
        assert!(queue.is_empty(), "there is none behind it");
        queue.follow(1);
        assert_eq!(begun(&mut queue, free), [2], "at another receiver");
        // One that failed is followed by none, for nobody says that it was taken.
        let mut queue = Queue::new([("h", Some("a")), ("h", Some("a"))].into_iter());
        assert_eq!(begun(&mut queue, free), [0]);
        assert!(queue.is_empty());
        // What is given up has no followers.
        queue.clear();
        queue.follow(0);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_receiver_that_is_full_holds_up_no_other() {
        let mut queue = queue(&["full", "full", "slow", "a", "a"]);
        let at = Moment::from_boot(Duration::from_secs(7));
        let admit = |host: &&'static str| match *host {
            "full" => Admission::Full,
            "slow" => Admission::At(at),
            _ => Admission::free(),
        };
        assert_eq!(begun(&mut queue, admit), [3, 4]);
        assert!(matches!(queue.next(|_| None, admit), Next::Wait(until) if until == at));
        assert!(!queue.is_empty());
        assert_eq!(begun(&mut queue, |_| Admission::free()), [0, 2, 1]);
    }

    #[test]
    fn items_that_are_to_wait_elsewhere_are_taken_out() {
        let mut queue = queue(&["slow", "b", "slow", "slow"]);
        let slow = |host: &&'static str| (*host == "slow").then_some(());
        let taken = queue.take_out(slow, |(), before| (before > 0).then_some(before));
        assert_eq!(taken, [(2, 1), (3, 2)]);
        assert_eq!(begun(&mut queue, |_| Admission::free()), [1, 0]);
        assert!(queue.is_empty());
    }

    #[test]
    fn what_is_not_to_be_sent_uses_no_turn() {
        let mut queue = queue(&["a", "a", "a", "b", "b"]);
        let settled = |i| [0, 2, 3].contains(&i).then_some(Answer::Duplicate);
        let (mut turns, mut order) = (0, Vec::new());
        let wait = loop {
            let admit = |host: &&'static str| match *host {
                "a" if turns == 0 => {
                    turns += 1;
                    Admission::free()
                }
                _ => Admission::Full,
            };
            match queue.next(settled, admit) {
                Next::Settled(items) => order.extend(items.into_iter().map(|(i, _)| i)),
                Next::Begin(i, _) => order.push(i),
                Next::Wait(at) => break at,
            }
        };
        // The first of `a`, without a turn, and then the second with the only one; what is behind it does not wait.
        assert_eq!((order, wait), (vec![0, 1, 3, 2], Moment::NEVER));
        assert_eq!(begun(&mut queue, |_| Admission::free()), [4]);
        assert!(queue.is_empty());
        // Behind one that waits it takes up no place either.
        let mut queue = self::queue(&["a", "a"]);
        let settled = |i| (i == 1).then_some(Answer::Duplicate);
        let next = queue.next(settled, |_| Admission::Full);
        assert!(matches!(next, Next::Settled(items) if items == [(1, Answer::Duplicate)]));
        assert_eq!(begun(&mut queue, |_| Admission::free()), [0]);
    }

    #[test]
    fn items_of_a_paused_receiver_are_put_aside() {
        let mut queue = queue(&["paused", "b", "paused"]);
        let until = Moment::from_boot(Duration::from_secs(7));
        let admit = |host: &&'static str| match *host {
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
