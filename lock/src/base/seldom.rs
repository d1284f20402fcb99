//! Trouble that repeats many times a second is said once a second, and once a minute where it lasts until a person mends it, with how
//! often it was not said.

use std::{collections::BTreeMap, time::Duration};

use crate::clock::Moment;

/// Time between two lines about one thing.
const BETWEEN: Duration = Duration::from_secs(1);

/// Things that are remembered; those that were said of longest ago are forgotten.
const MOST: usize = 10_000;

/// When what was said last, by name.
#[derive(Debug, Default)]
pub struct Seldom(BTreeMap<String, Said>);

#[derive(Debug)]
struct Said {
    last: Moment,
    held_back: u64,
}

impl Seldom {
    /// Whether something is to be said of `what` now, and how often nothing was since it was said last.
    pub fn say(&mut self, what: &str, now: Moment) -> Option<u64> {
        self.say_after(what, BETWEEN, now)
    }

    /// The same with so much time between two lines, for what lasts until a person mends it.
    pub fn say_after(&mut self, what: &str, between: Duration, now: Moment) -> Option<u64> {
        if let Some(said) = self.0.get_mut(what) {
            if now.since(said.last) < between {
                said.held_back += 1;
                return None;
            }
            said.last = now;
            return Some(std::mem::take(&mut said.held_back));
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, said| now.since(said.last) < BETWEEN);
        }
        if self.0.len() >= MOST {
            // Ten thousand different ones within a second: as if this were one of them.
            return None;
        }
        let said = Said {
            last: now,
            held_back: 0,
        };
        self.0.insert(what.to_owned(), said);
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_said_once_a_second_with_how_often_it_was_not() {
        let mut seldom = Seldom::default();
        let at = |ms| Moment::ZERO + Duration::from_millis(ms);
        assert_eq!(seldom.say("a", at(0)), Some(0));
        for ms in (50..1000).step_by(50) {
            assert_eq!(seldom.say("a", at(ms)), None);
        }
        assert_eq!(seldom.say("b", at(999)), Some(0), "another one");
        assert_eq!(seldom.say("a", at(1000)), Some(19));
        assert_eq!(seldom.say("a", at(60_000)), Some(0));
        let minute = Duration::from_secs(60);
        assert_eq!(seldom.say_after("a", minute, at(119_999)), None);
        assert_eq!(seldom.say_after("a", minute, at(120_000)), Some(1));
    }

    #[test]
    fn what_is_remembered_has_an_end() {
        let mut seldom = Seldom::default();
        for n in 0..MOST * 3 {
            seldom.say(&n.to_string(), Moment::ZERO);
        }
        assert_eq!(seldom.0.len(), MOST);
        assert_eq!(seldom.say("new", Moment::ZERO + BETWEEN), Some(0));
        assert_eq!(seldom.0.len(), 1);
    }
}
