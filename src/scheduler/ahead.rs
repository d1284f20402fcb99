//! A ledger that is decided further than the clock shows: a clock had jumped ahead, or this one has gone back.
//!
//! # Rules
//! - More than the skew is said at once. No tick is due then, and most such things pass.
//! - Each term begins anew, and so does a replica that has not looked for long.
//! - When it has stood for [`STANDS`] beside a clock that goes steadily, the ledger is taken back to when it was noticed:
//!   [`crate::due::take_back`] says what that means.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::clock::Moment;

/// How long a ledger is ahead of the clock before it is taken back.
pub(super) const STANDS: Duration = Duration::from_secs(30);

/// A replica that has not looked for so long begins anew: whatever was seen before was something else. Longer than any pause between two looks.
const FORGOTTEN: Duration = STANDS.saturating_mul(2);

/// Since when a job's ledger has been ahead of the clock.
#[derive(Debug, Default)]
pub(crate) struct Ahead(Option<Since>);

#[derive(Clone, Copy, Debug)]
struct Since {
    moment: Moment,
    wall: Timestamp,
    /// When it was looked at last.
    looked: Moment,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is not ahead.
    Level,
    /// It is to be said.
    Say,
    /// It is looked at again, at the latest after this time.
    Wait(Duration),
    /// It is taken back to there.
    TakeBack(Timestamp),
}

impl Ahead {
    /// The ledger was found `ahead` of the wall clock, which showed `wall` at this moment.
    pub(super) fn on(
        &mut self,
        ahead: Option<Duration>,
        (moment, wall): (Moment, Timestamp),
        skew: Duration,
    ) -> Next {
        if ahead.is_none_or(|ahead| ahead <= skew) {
            self.0 = None;
            return Next::Level;
        }
        let anew = Since {
            moment,
            wall,
            looked: moment,
        };
        let known = self.0.filter(|s| moment.since(s.looked) <= FORGOTTEN);
        let Some(since) = known else {
            self.0 = Some(anew);
            return Next::Say;
        };
        let stood = moment.since(since.moment);
        let shown = wall.duration_since(since.wall);
        let steady = SignedDuration::try_from(stood).is_ok_and(|stood| {
            // Clocks of several nodes take turns.
            (shown - stood).unsigned_abs() <= skew
        });
        if !steady {
            self.0 = Some(anew);
            return Next::Wait(STANDS);
        }
        self.0 = Some(Since {
            looked: moment,
            ..since
        });
        match STANDS.checked_sub(stood).filter(|left| !left.is_zero()) {
            Some(left) => Next::Wait(left),
            None => Next::TakeBack(since.wall.min(wall)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SKEW: Duration = Duration::from_secs(1);
    const DAY: Option<Duration> = Some(Duration::from_secs(86_400));

    /// So many seconds after the start, by both clocks.
    fn at(boot: u64, wall: i64) -> (Moment, Timestamp) {
        let moment = Moment::from_boot(Duration::from_secs(boot));
        (
            moment,
            Timestamp::from_second(1_800_000_000 + wall).unwrap(),
        )
    }

    #[test]
    fn a_ledger_ahead_is_said_at_once_and_taken_back_when_it_stands() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.on(None, at(0, 0), SKEW), Next::Level);
        assert_eq!(ahead.on(Some(SKEW), at(0, 0), SKEW), Next::Level);
        assert_eq!(ahead.on(DAY, at(5, 5), SKEW), Next::Say);
        let left = Next::Wait(Duration::from_secs(20));
        assert_eq!(ahead.on(DAY, at(15, 15), SKEW), left);
        let back = Next::TakeBack(at(0, 5).1);
        assert_eq!(ahead.on(DAY, at(35, 35), SKEW), back);
        // It could not be written.
        assert_eq!(ahead.on(DAY, at(36, 36), SKEW), back);
        assert_eq!(ahead.on(None, at(37, 37), SKEW), Next::Level);
    }

    #[test]
    fn a_clock_that_has_caught_up_takes_nothing_back() {
        let mut ahead = Ahead::default();
        ahead.on(DAY, at(0, 0), SKEW);
        assert_eq!(ahead.on(None, at(29, 86_400), SKEW), Next::Level);
        assert_eq!(ahead.on(DAY, at(60, 60), SKEW), Next::Say);
    }

    #[test]
    fn what_was_seen_in_a_term_long_ago_is_another_matter() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.on(DAY, at(0, 0), SKEW), Next::Say);
        let left = Next::Wait(Duration::from_secs(20));
        assert_eq!(ahead.on(DAY, at(10, 10), SKEW), left);
        // Others have led for three hours.
        let (later, moment) = (at(10_800, 10_800), at(10_830, 10_830));
        assert_eq!(ahead.on(DAY, later, SKEW), Next::Say);
        let back = Next::TakeBack(later.1);
        assert_eq!(ahead.on(DAY, moment, SKEW), back);
    }

    #[test]
    fn a_clock_that_jumps_about_takes_nothing_back() {
        let mut ahead = Ahead::default();
        ahead.on(DAY, at(0, 0), SKEW);
        let anew = Next::Wait(STANDS);
        assert_eq!(ahead.on(DAY, at(20, 620), SKEW), anew);
        assert_eq!(ahead.on(DAY, at(40, 40), SKEW), anew);
        let left = Next::Wait(Duration::from_secs(1));
        assert_eq!(ahead.on(DAY, at(69, 69), SKEW), left);
    }
}
