//! What each of those who follow a page has got, so that one that comes back is sent what has changed meanwhile.
//!
//! # Invariants
//! - W2 What those have got who may come back is bounded, in number and in time.   (what_was_got_is_forgotten)

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::clock::Moment;

/// How many may come back, and for how long.
const MOST: usize = 128;
const REMEMBERED: Duration = Duration::from_secs(300);

/// What was got.
#[derive(Debug)]
pub(super) struct Latest {
    got: Mutex<Remembered>,
    /// What ids begin with: those of another life of the process mean nothing here.
    name: String,
}

#[derive(Debug, Default)]
struct Remembered {
    last: u64,
    entries: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    address: String,
    got: Arc<Got>,
    at: Moment,
}

/// What one page looked like when it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Got {
    /// By table and key.
    pub(super) rows: BTreeMap<(&'static str, String), GotRow>,
    /// The keys of each table, in order.
    pub(super) orders: BTreeMap<&'static str, Vec<String>>,
    /// The names of the tables, in order.
    pub(super) parts: Vec<&'static str>,
    /// Digests of other elements.
    pub(super) pieces: BTreeMap<&'static str, u64>,
}

/// One row as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GotRow {
    pub(super) digest: u64,
    /// What remained of a lease, in milliseconds, and when: the browser counts it down from then on.
    pub(super) left: Option<(u64, Moment)>,
}

// === impl GotRow ===

impl GotRow {
    /// Whether the browser has counted half of what remained, and more remains than it shows by now.
    pub(super) fn has_more(&self, left: Option<u64>, now: Moment) -> bool {
        let (Some((was, at)), Some(left)) = (self.left, left) else {
            return false;
        };
        let passed = u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
        passed >= was / 2 && left > was.saturating_sub(passed)
    }
}

// === impl Latest ===

impl Latest {
    /// `name` must differ from that of another life of the process.
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self {
            got: Mutex::default(),
            name: name.into(),
        }
    }

    /// The id for what a client of this page has got now, in the place of what it had before.
    pub(super) fn note(
        &self,
        before: Option<u64>,
        address: &str,
        got: &Arc<Got>,
        now: Moment,
    ) -> u64 {
        let mut all = self.remembered();
        all.entries
            .retain(|entry| Some(entry.number) != before && now.since(entry.at) < REMEMBERED);
        while all.entries.len() >= MOST {
            all.entries.pop_front();
        }
        all.last += 1;
        let number = all.last;
        all.entries.push_back(Entry {
            number,
            address: address.to_owned(),
            got: got.clone(),
            at: now,
        });
        number
    }

    /// As it is sent.
    pub(super) fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.name)
    }

    /// What a client has got that says this id, if it is remembered and was of this page; with its number.
    pub(super) fn back(&self, id: &str, address: &str, now: Moment) -> Option<(u64, Arc<Got>)> {
        let (name, number) = id.rsplit_once('-')?;
        let number: u64 = number.parse().ok().filter(|_| name == self.name)?;
        let all = self.remembered();
        let mut entries = all.entries.iter();
        let entry = entries.find(|entry| entry.number == number)?;
        let good = entry.address == address && now.since(entry.at) < REMEMBERED;
        good.then(|| (number, entry.got.clone()))
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_got_is_forgotten() {
        let latest = Latest::new("a");
        let at = |secs| Moment::ZERO + Duration::from_secs(secs);
        let got = Arc::new(Got::default());
        let first = latest.note(None, "/?q=x", &got, at(1));
        let id = latest.id(first);
        assert!(latest.back(&id, "/?q=x", at(2)).is_some());
        assert!(latest.back(&id, "/", at(2)).is_none(), "another page");
        assert!(latest.back(&id, "/?q=x", at(400)).is_none());
        for strange in ["", "a-", "b-1", "a-2", "a-99999999999999999999", "1"] {
            assert!(latest.back(strange, "/?q=x", at(2)).is_none(), "{strange}");
        }
        // Its newer state takes the place of the older one.
        let second = latest.note(Some(first), "/?q=x", &got, at(3));
        assert!(latest.back(&id, "/?q=x", at(3)).is_none());
        assert!(latest.back(&latest.id(second), "/?q=x", at(3)).is_some());
        for _ in 0..2 * MOST {
            latest.note(None, "/", &got, at(4));
        }
        assert_eq!(latest.remembered().entries.len(), MOST);
    }
}
