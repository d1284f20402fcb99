//! Places of rows that are put aside: each gets a time of its own, behind those of its group that were put aside before it. So
//! rows come back as fast as they can go, and those that cannot go for long are not looked at meanwhile.
//!
//! # Invariants
//! - V1 A row waits for no place longer than five minutes.   (`places_are_one_behind_the_other_and_not_far_away`)
//! - V2 What is remembered is bounded.                       (`groups_that_are_over_are_forgotten`)

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use watchkeeper::clock::Moment;

/// The last place of each group. Of this replica: others have theirs, and who finds no turn takes another place.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<BTreeMap<Vec<String>, Moment>>);

/// The farthest place. A limit that is raised, or a receiver that recovers, is noticed then.
const FARTHEST: Duration = Duration::from_secs(300);
/// Groups that are remembered.
const MOST: usize = 10_000;

// === impl Places ===

impl Places {
    /// The place that a row would get: not before `from`, and so much behind the last one.
    pub(crate) fn next(&self, group: &[String], from: Moment, step: Duration) -> Moment {
        let last = self.with(|places| places.get(group).copied());
        last.map_or(from, |last| from.max(last + step))
    }

    /// Gives it away.
    pub(crate) fn take(
        &self,
        group: &[String],
        from: Moment,
        step: Duration,
        now: Moment,
    ) -> Moment {
        let place = self.next(group, from, step).min(now + FARTHEST);
        self.with(|places| {
            if places.len() >= MOST && !places.contains_key(group) {
                places.retain(|_, last| *last > now);
            }
            if places.len() < MOST || places.contains_key(group) {
                places.insert(group.to_vec(), place);
            }
        });
        place
    }

    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<Vec<String>, Moment>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(1);

    fn at(secs: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(secs))
    }

    #[test]
    fn places_are_one_behind_the_other_and_not_far_away() {
        let places = Places::default();
        let group = ["a".to_owned()];
        let take = |from: u64, now: u64| places.take(&group, at(from), STEP, at(now));
        assert_eq!(places.next(&group, at(3), STEP), at(3));
        assert_eq!((take(3, 1), take(3, 1), take(3, 1)), (at(3), at(4), at(5)));
        assert_eq!(places.next(&group, at(3), STEP), at(6));
        assert_eq!(take(20, 18), at(20), "nobody is before it any more");
        let other = ["b".to_owned()];
        assert_eq!(places.next(&other, at(3), STEP), at(3));
        for _ in 0..1_000 {
            take(20, 18);
        }
        assert_eq!(take(20, 18), at(318));
    }

    #[test]
    fn groups_that_are_over_are_forgotten() {
        let places = Places::default();
        let take = |n: usize, now: u64| places.take(&[n.to_string()], at(now + 5), STEP, at(now));
        for n in 0..2 * MOST {
            take(n, 1);
        }
        let kept = || places.with(|places| places.len());
        assert_eq!(kept(), MOST);
        take(2 * MOST, 9);
        assert_eq!(kept(), 1);
    }
}
