//! Schedules: which instants are ticks.
//!
//! A schedule is a fixed set of UTC instants. Every question is answered from the expression and the instants given
//! alone, so that two replicas that take over from one another see the same ticks.
//!
//! | expression | ticks |
//! | --- | --- |
//! | `0 8 * * Mon-Fri` | five fields: minute, hour, day of month, month, day of week |
//! | `30 0 8 * * Mon-Fri`, `… 2027` | six fields: second first; seven: year last |
//! | `@yearly @annually @monthly @weekly @daily @midnight @hourly` | as in crontab; weeks begin on Sunday |
//! | `@every 90s` | whole multiples of the duration since 1970 in UTC; 100 ms to 366 days |
//! | `@every 1m offset 20s` | the same, each of them so much later; less than the duration |
//! | `@every 1m offset auto` | the same, with an offset of the job's own: a function of its name |
//! | `at 2026-12-24T18:00` | one, in civil time or RFC 3339 |
//! | `continuous` | none: the job runs as long as its replica leads |
//! | `manual` | none |
//!
//! Several expressions fire at every instant that any of them names, once. `starting` and `until` cut off what lies
//! before and after, `except` what falls on excluded days of the zone's calendar.
//!
//! # Jitter
//! A delay of the start, below the time that is set and below the distance to the next tick: ticks keep their order and
//! their names. It is a function of the job's name and the tick.
//!
//! # Offsets
//! `offset auto` gives each job its own place in the period, a whole number of milliseconds, so that a thousand jobs of one
//! schedule are not due at one instant. It is a hash of the job's name over the period: the same on every replica, in every
//! version and after every restart. A job under another name has other ticks. Where `jitter` delays a start, an offset moves
//! the tick itself, and with it its name; both may be used together.
//!
//! # Dialects
//! *crontab* (the default for any number of fields): 0 and 7 are Sunday; when neither the day of month nor the day of
//! week starts with `*`, a day matches when *either* does. *quartz*: 1 is Sunday; a day matches when *both* do.
//! A weekday given by number in six or seven fields needs the dialect spelled out, because people mean either.
//! Weekday names mean the same in both.
//!
//! # Zones
//! Expressions are civil time of the job's zone (UTC unless set). Where the clocks change:
//!
//! | | a fixed time (`30 2 * * *`) | repeating times: `*` or a step in the minute or hour field (`*/20 * * * *`) |
//! | --- | --- | --- |
//! | clocks go forward | a skipped time fires once, right after the gap | the same |
//! | clocks go back | once, in the first pass | in both passes: the interval in elapsed time stays |
//!
//! So `30 * * * *` runs at 01:30, 03:00 and 03:30 in a night without 02:30: no time is lost, at the price of one run
//! that comes close to its neighbour.
//!
//! # Invariants
//! - S1 `next_after` is strictly later than what it was asked for and never goes back.
//!   (`ticks_are_the_same_from_wherever_one_asks`)
//! - S2 `latest_upto` and `count` agree with stepping through. (`the_latest_tick_is_found_without_stepping`)
//! - S3 The ticks are those of the two tables. (`ticks_are_those_of_the_stated_rules`)
//! - S4 A delayed tick starts before the next tick, on every replica at the same instant.
//!   (`delayed_ticks_keep_their_order`)
//! - S5 An offset is below its period, and a function of the job's name and the period alone.
//!   (`an_automatic_offset_is_a_function_of_the_name_and_the_period`)
//!
//! # Example
//! ```
//! use watchkeeper::schedule::Schedule;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let schedule = Schedule::parse("30 2 * * *", None, Some("Europe/Rome"))?;
//! // 02:30 does not exist in the night of the 29th: the tick comes right after the gap.
//! let tick = schedule.next_after("2026-03-28T12:00:00Z".parse()?);
//! assert_eq!(tick, Some("2026-03-29T01:00:00Z".parse()?));
//! # Ok(())
//! # }
//! ```

use std::{borrow::Cow, fmt, time::Duration};

use jiff::Timestamp;

mod bounds;
mod civil;
mod days;
mod definition;
mod dialect;
mod error;
mod expressions;
mod field;
mod instant;
mod jitter;
mod kind;
mod oddity;
#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "cli"))]
mod timetable;
#[cfg(any(test, feature = "admin"))]
mod words;
mod zone;

pub(crate) use definition::Definition;
pub use dialect::Dialect;
pub use error::{Field, ScheduleError};
pub use expressions::Expressions;
pub(crate) use instant::before;
#[doc(hidden)] // for the commands
pub use oddity::Oddity;
#[cfg(any(test, feature = "cli"))]
pub(crate) use timetable::{BusyMinute, Herd, Member, Timetable};

use bounds::Bounds;
use days::Days;
use instant::midpoint;
use jitter::Jitter;
use kind::Kind;
use zone::Zone;

/// The instants at which a job is due.
#[derive(Clone, Debug)]
pub struct Schedule {
    expression: String,
    kinds: Vec<Kind>,
    zone: Zone,
    bounds: Bounds,
    except: Days,
    jitter: Option<Jitter>,
    /// Instants that are no ticks, in order: from, to.
    left_out: Vec<(Timestamp, Timestamp)>,
}

/// Excluded days are searched through up to the end of the calendar of cron expressions: 2101-01-01T00:00:00Z.
const END_OF_SEARCH: i64 = 4_133_980_800;

// === impl Schedule ===

impl Schedule {
    /// As the schedule of `job`: with its automatic offsets, and with its starts delayed by less than `most`, each tick by its
    /// own delay: see [`Schedule::delay`].
    #[must_use]
    pub(crate) fn of_job(mut self, job: &str, most: Duration) -> Self {
        self.kinds.iter_mut().for_each(|kind| kind.settle(job));
        self.jitter = (!most.is_zero()).then(|| Jitter::new(job, most));
        self
    }

    /// The same without the ticks in these spans, both ends included; the delays of the others stay as they are. The spans
    /// are to be in order.
    #[must_use]
    pub(crate) fn without(
        &self,
        spans: impl IntoIterator<Item = (Timestamp, Timestamp)>,
    ) -> Cow<'_, Self> {
        let spans: Vec<_> = spans.into_iter().collect();
        if spans == self.left_out {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self {
            left_out: spans,
            ..self.clone()
        })
    }

    /// The first tick after `t`, never `t` itself.
    ///
    /// Cron expressions end with the year 2100.
    #[must_use]
    pub fn next_after(&self, t: Timestamp) -> Option<Timestamp> {
        let mut next = self.next_named(t)?;
        for (from, to) in &self.left_out {
            if *from <= next && next <= *to {
                next = self.next_named(*to)?;
            }
        }
        Some(next)
    }

    /// Also those that are left out.
    fn next_named(&self, t: Timestamp) -> Option<Timestamp> {
        let mut t = match self.bounds.starting.and_then(before) {
            Some(starting) => t.max(starting),
            None => t,
        };
        loop {
            let ticks = self.kinds.iter();
            let next = ticks.filter_map(|k| k.next_after(t, &self.zone)).min()?;
            if self.bounds.until.is_some_and(|until| until < next) {
                return None;
            }
            if self.except.is_empty() {
                return Some(next);
            }
            let day = self.zone.date(next);
            if !self.except.contain(day) {
                return Some(next);
            }
            if next.as_second() >= END_OF_SEARCH {
                return None;
            }
            // Where clocks go back over midnight the day comes twice, and its end may have passed.
            t = self.zone.end_of(day).map_or(next, |end| end.max(next));
        }
    }

    /// The ticks in (`after`, `upto`], in order, the first `limit` of them.
    #[must_use]
    pub(crate) fn between(
        &self,
        after: Timestamp,
        upto: Timestamp,
        limit: usize,
    ) -> Vec<Timestamp> {
        self.walk(after, upto).take(limit).collect()
    }

    /// The last tick in (`after`, `upto`]: the first or the second of them, as usual, else found by halving, in some fifty
    /// steps, however many ticks there are.
    #[must_use]
    pub(crate) fn latest_upto(&self, after: Timestamp, upto: Timestamp) -> Option<Timestamp> {
        if let Some((period, offset)) = self.plain_period() {
            let periods = (upto.as_nanosecond() - offset).div_euclid(period);
            return Timestamp::from_nanosecond(periods * period + offset)
                .ok()
                .filter(|tick| *tick > after);
        }
        let mut tick = self.next_after(after).filter(|tick| *tick <= upto)?;
        // A caller that asks in time finds one.
        match self.next_after(tick) {
            Some(next) if next <= upto => tick = next,
            _ => return Some(tick),
        }
        // No tick lies in (free_from, upto].
        let mut free_from = upto;
        while tick < free_from {
            let middle = midpoint(tick, free_from);
            match self.next_after(middle) {
                Some(next) if next <= upto => tick = next,
                _ => free_from = middle,
            }
        }
        Some(tick)
    }

    /// The last `limit` ticks in (`after`, `upto`], in order.
    #[must_use]
    pub(crate) fn latest(&self, after: Timestamp, upto: Timestamp, limit: usize) -> Vec<Timestamp> {
        let mut ticks = Vec::new();
        let mut upto = Some(upto);
        while ticks.len() < limit
            && let Some(tick) = upto.and_then(|upto| self.latest_upto(after, upto))
        {
            ticks.push(tick);
            upto = before(tick);
        }
        ticks.reverse();
        ticks
    }

    /// How many ticks lie in (`after`, `upto`]; counting stops at `most`.
    #[must_use]
    pub(crate) fn count(&self, after: Timestamp, upto: Timestamp, most: u64) -> u64 {
        if let Some((period, offset)) = self.plain_period() {
            let passed = |t: Timestamp| (t.as_nanosecond() - offset).div_euclid(period);
            let count = passed(upto).saturating_sub(passed(after)).max(0);
            return u64::try_from(count).unwrap_or(u64::MAX).min(most);
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.walk(after, upto).take(most).count() as u64
    }

    /// How long after `tick` its run starts: zero without jitter, and always before the next tick. A function of the job's
    /// name, the schedule and the tick, so that every replica waits for the same instant.
    #[must_use]
    pub(crate) fn delay(&self, tick: Timestamp) -> Duration {
        let Some(jitter) = &self.jitter else {
            return Duration::ZERO;
        };
        let room = self.next_named(tick).map_or(Duration::MAX, |next| {
            Duration::try_from(next.duration_since(tick)).unwrap_or_default()
        });
        jitter.delay(tick, room)
    }

    /// Ticks up to here are due at `now`: all that have passed, but not one whose delay has not.
    #[must_use]
    pub(crate) fn due_upto(&self, now: Timestamp) -> Timestamp {
        let Some(jitter) = &self.jitter else {
            return now;
        };
        let after = now.checked_sub(jitter.most).unwrap_or(Timestamp::MIN);
        match self.latest_upto(after, now) {
            Some(tick) if self.starts(tick) > now => before(tick).unwrap_or(now),
            _ => now,
        }
    }

    /// When the run of `tick` starts: the tick and its delay.
    #[doc(hidden)] // for a bench
    #[must_use]
    pub fn starts(&self, tick: Timestamp) -> Timestamp {
        tick.checked_add(self.delay(tick)).unwrap_or(tick)
    }

    /// The shortest time between two of the first `ticks` ticks after `from`; none with fewer than two.
    #[must_use]
    pub(crate) fn shortest_interval(&self, from: Timestamp, ticks: usize) -> Option<Duration> {
        let ticks = self.between(from, Timestamp::MAX, ticks);
        let pairs = ticks.iter().zip(ticks.iter().skip(1));
        let shortest = pairs.map(|(one, next)| next.duration_since(*one)).min();
        Duration::try_from(shortest?).ok()
    }

    /// What is odd about `tick`, if it is one of a cron expression near a change of the clocks.
    #[doc(hidden)] // for the commands
    #[must_use]
    pub fn oddity(&self, tick: Timestamp) -> Option<Oddity> {
        let civil = self.kinds.iter().filter_map(|kind| match kind {
            Kind::Cron(civil) => Some(civil),
            _ => None,
        });
        let before = before(tick)?;
        let named = civil.filter(|c| self.zone.next_after(before, c) == Some(tick));
        let odd: Vec<_> = named.map(|c| self.zone.oddity(tick, c)).collect();
        // What another expression names as it is is not odd.
        odd.iter().copied().collect::<Option<Vec<_>>>()?.pop()
    }

    /// `t` as it is written in the zone of the schedule: `Mon 2026-11-23 08:00:00 +01:00`.
    #[must_use]
    pub(crate) fn local(&self, t: Timestamp) -> String {
        self.zone.write(t)
    }

    /// Whether the job runs as long as its replica leads, without ticks.
    #[must_use]
    pub(crate) fn is_continuous(&self) -> bool {
        matches!(self.kinds[..], [Kind::Continuous])
    }

    /// Whether there are ticks at all: neither `continuous` nor `manual`.
    #[must_use]
    pub(crate) fn has_ticks(&self) -> bool {
        self.kinds.iter().any(Kind::ticks)
    }

    /// Whether its ticks depend on whose they are.
    #[must_use]
    pub(crate) fn depends_on_name(&self) -> bool {
        self.kinds.iter().any(Kind::depends_on_name)
    }

    /// The zone in which a cron expression is read, by its name in the time zone database.
    #[must_use]
    pub(crate) fn zone(&self) -> Option<&str> {
        let civil = |kind: &Kind| matches!(kind, Kind::Cron(_));
        let counts = self.kinds.iter().any(civil) || !self.except.is_empty();
        counts.then(|| self.zone.name())
    }

    /// Period and offset in nanoseconds when these are all its ticks.
    fn plain_period(&self) -> Option<(i128, i128)> {
        match self.kinds[..] {
            [Kind::Every { period, offset }]
                if self.bounds == Bounds::default()
                    && self.except.is_empty()
                    && self.left_out.is_empty() =>
            {
                Some((period, offset.nanos()))
            }
            _ => None,
        }
    }

    fn walk(&self, after: Timestamp, upto: Timestamp) -> impl Iterator<Item = Timestamp> {
        let next = move |t: &Timestamp| self.next_after(*t);
        std::iter::successors(next(&after), next).take_while(move |tick| *tick <= upto)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.expression)
    }
}
