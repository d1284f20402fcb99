//! What a look has found beyond what was claimed then. The next claims are of that, without another look, for a moment: a look
//! may cost more than all the rest of a batch.
//!
//! Kept is only what this replica begins with before any other that it knows. They keep none of that, as they do the same, and
//! meet it only where a look of theirs finds it among the first. Whatever is not kept is found by the next look, whichever
//! replica would begin with it.

use std::{collections::VecDeque, time::Duration};

use super::order::is_first;
use crate::clock::Moment;

/// So long may pass from a look to the claim of what it found.
const LIFETIME: Duration = Duration::from_millis(250);
/// Names that are compared, each with each replica, after a look.
const COMPARED: usize = 20_000;

/// Names of batches that had work a moment ago.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// In the order in which they are to be claimed.
    names: VecDeque<String>,
    found_at: Option<Moment>,
}

// === impl Kept ===

impl Kept {
    /// Of what was found at `now`, that with which `replica` begins before any of the `others`.
    pub(super) fn of(found: Vec<String>, replica: &str, others: &[String], now: Moment) -> Self {
        let most = COMPARED / (others.len() + 1);
        let mine = found.into_iter().take(most);
        Self {
            names: mine
                .filter(|name| is_first(replica, others, name))
                .collect(),
            found_at: Some(now),
        }
    }

    /// At most so many that may be claimed now; they are not kept any more. None when the last look is too long ago.
    pub(super) fn take(
        &mut self,
        most: usize,
        now: Moment,
        may_be_claimed: impl Fn(&String) -> bool,
    ) -> Vec<String> {
        if self.found_at.is_none_or(|at| now >= at + LIFETIME) {
            self.forget();
        }
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(name) = self.names.pop_front()
        {
            if may_be_claimed(&name) {
                taken.push(name);
            }
        }
        taken
    }

    /// It is not as it was found: the next claims are of what a new look finds.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: fn(&String) -> bool = |_| true;

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    fn names(n: usize) -> Vec<String> {
        (0..n).map(|n| n.to_string()).collect()
    }

    #[test]
    fn what_was_found_is_claimed_in_its_order_and_only_for_a_moment() {
        let mut kept = Kept::of(names(9), "a", &[], at(0));
        assert_eq!(kept.take(2, at(10), ALL), ["0", "1"]);
        assert_eq!(kept.take(2, at(20), |name| name != "2"), ["3", "4"]);
        assert_eq!(kept.take(2, at(249), ALL), ["5", "6"]);
        assert_eq!(kept.take(2, at(250), ALL), [""; 0]);
        assert_eq!(kept.take(2, at(20), ALL), [""; 0], "it does not come back");
    }

    #[test]
    fn no_two_replicas_keep_the_same_and_together_they_keep_all() {
        let ids = ["a", "b", "c"].map(str::to_owned);
        let mut all: Vec<String> = Vec::new();
        for id in &ids {
            let others: Vec<String> = ids.iter().filter(|other| *other != id).cloned().collect();
            let kept = Kept::of(names(300), id, &others, at(0)).take(300, at(0), ALL);
            assert!(kept.len() > 50, "{id} keeps {}", kept.len());
            all.extend(kept);
        }
        all.sort();
        let mut found = names(300);
        found.sort();
        assert_eq!(all, found);
    }

    #[test]
    fn many_replicas_and_names_are_compared_in_part() {
        let others = names(999);
        let kept = Kept::of(names(100_000), "me", &others, at(0)).take(usize::MAX, at(0), ALL);
        assert!(kept.len() <= COMPARED / 1000, "{}", kept.len());
    }
}
