//! How a rate is cut into shares, when each of them may be used, and how many a program needs: plain functions.

use std::time::Duration;

use crate::clock::Moment;

/// How often the demand is looked at while there is some.
const LOOK: Duration = Duration::from_millis(250);
/// How long a program without a share waits for one in a call.
const WAIT: Duration = Duration::from_secs(5);
/// Shares of a rate at most: each is a lease that is renewed.
const MOST: u32 = 16;
/// A share has so many acts a second at least, unless the whole rate is lower: rounding costs a twentieth at most.
const LEAST: f64 = 20.0;
/// So late an act may be without the next one being late, too: timers are not exact.
const LATE: Duration = Duration::from_millis(10);
/// Without demand for so long, or for so many turns of a share, a program gives all back.
const IDLE: (Duration, u32) = (Duration::from_secs(1), 3);
/// A program gives back each share that others may want in this time, or after so many turns of it: the next holder begins with
/// a pause.
const TURNOVER: (Duration, u32) = (Duration::from_secs(8), 40);

/// A rate in equal shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    pub(super) shares: usize,
    /// Without demand for so long a program gives all back.
    idle: Duration,
    /// From one act of a share to the next.
    pub(super) step: Duration,
    late: Duration,
    /// A busy share goes round in this time.
    turnover: Duration,
}

impl Cut {
    /// Whole acts a second for each share, so that their sum is never above the rate. `None` for what is no rate, or one so
    /// low that no act ever comes.
    pub(super) fn of(per_second: f64) -> Option<Self> {
        if !per_second.is_finite() || per_second <= 0.0 {
            return None;
        }
        let mut shares = 1;
        while shares < MOST && per_second / f64::from(shares * 2) >= LEAST {
            shares *= 2;
        }
        let share = per_second / f64::from(shares);
        let share = if shares > 1 { share.floor() } else { share };
        let step = Duration::try_from_secs_f64(1.0 / share).ok()?;
        let late = LATE.min(step / 2);
        // Acts that are late by that at most, one of them more and another less, lie in a second like exact ones in a
        // second and `late`: so many more than a second has would be too many.
        let step = step + step.mul_f64(late.as_secs_f64());
        Some(Self {
            shares: shares as usize,
            idle: IDLE.0.max(step.saturating_mul(IDLE.1)),
            step,
            late,
            turnover: TURNOVER.0.max(step.saturating_mul(TURNOVER.1)),
        })
    }

    /// After this time a task that waits asks again, to stay demand.
    pub(super) fn ask_again(&self) -> Duration {
        self.idle / 2
    }
}

/// One share that this program has.
#[derive(Debug)]
pub(super) struct Share<T> {
    slot: T,
    /// When its next act begins if all are on time.
    next: Moment,
}

impl<T> Share<T> {
    /// Its last holder may have begun an act just now (L2).
    pub(super) fn begun(slot: T, cut: &Cut, now: Moment) -> Self {
        #[cfg(any(test, feature = "testing"))]
        if crate::quorum::mutant::SHARES_WITHOUT_PAUSE.get() {
            return Self { slot, next: now };
        }
        Self {
            slot,
            next: now + cut.step + cut.late,
        }
    }

    pub(super) fn slot(&self) -> &T {
        &self.slot
    }

    pub(super) fn into_slot(self) -> T {
        self.slot
    }
}

/// Whether the turn of the share that comes first has come; otherwise when it comes. Uses it with `take`.
pub(super) fn turn<T>(
    shares: &mut [Share<T>],
    cut: &Cut,
    open: impl Fn(&T) -> bool,
    now: Moment,
    take: bool,
) -> Result<(), Moment> {
    let usable = shares.iter_mut().filter(|share| open(&share.slot));
    let first = usable.min_by_key(|share| share.next).ok_or(Moment::NEVER)?;
    if now < first.next {
        return Err(first.next);
    }
    if take {
        // Time that was not used is not saved up.
        first.next = first.next.max(now.back(cut.late)) + cut.step;
    }
    Ok(())
}

/// What was asked of a program's shares.
#[derive(Debug, Default)]
pub(super) struct Demand {
    /// Acts since `since`.
    pub(super) taken: u32,
    since: Moment,
    last_asked: Option<Moment>,
    /// All its shares were used when that was looked at last.
    busy: bool,
    /// When it gave a share up for others to have their turn.
    turned_over: Moment,
}

/// What to do about the shares of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing until then, or until there is demand.
    Rest(Moment),
    /// Acquire so many, and wait for one until then.
    More(usize, Moment),
    /// Release so many.
    Fewer(usize),
    /// Release one, so that a program that waits gets it, and try to get one again.
    TurnOver,
}

impl Demand {
    /// A task wants to act; says whether this comes after a time without demand.
    pub(super) fn asked(&mut self, cut: &Cut, now: Moment) -> bool {
        let last = self.last_asked.replace(now);
        last.is_none_or(|last| now.since(last) >= cut.idle)
    }

    /// What to do with `held` shares; `scarce` when none was free at the last attempt.
    pub(super) fn next(&mut self, held: usize, cut: &Cut, scarce: bool, now: Moment) -> Next {
        let wanted = self
            .last_asked
            .is_some_and(|last| now.since(last) < cut.idle);
        match (held, wanted) {
            (0, false) => return Next::Rest(Moment::NEVER),
            (0, true) => {
                (self.taken, self.since, self.busy) = (0, now, false);
                // What it gets now stays for a while.
                self.turned_over = now;
                return Next::More(1, now + WAIT);
            }
            (_, false) => return Next::Fewer(held),
            (_, true) => {}
        }
        let span = now.since(self.since);
        if span >= LOOK {
            let of_one = span.as_secs_f64() / cut.step.as_secs_f64();
            let used = f64::from(self.taken) / of_one;
            // Of slow shares one act more or less says nothing.
            self.busy = self.taken > 0 && used + 1.0 / of_one >= held as f64 * 0.9;
            (self.taken, self.since) = (0, now);
            let needed = (used * 1.5).ceil().max(1.0) as usize;
            if needed * 2 <= held {
                return Next::Fewer(held - needed);
            }
        }
        let look = self.since + LOOK;
        if !self.busy {
            return Next::Rest(look);
        }
        let all = held == cut.shares;
        // The only share, too: as many busy programs as there are shares would keep the next one out.
        let turn = self.turned_over + cut.turnover / u32::try_from(held).unwrap_or(u32::MAX);
        match (scarce || all, all) {
            (true, _) if now >= turn => {
                self.turned_over = now;
                Next::TurnOver
            }
            (true, false) => Next::More(1, turn.min(now + WAIT / 5)),
            (_, true) => Next::Rest(look.min(turn)),
            (false, false) => Next::More(held.min(cut.shares - held), now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Moment {
        Moment::from_boot(Duration::from_micros(micros))
    }

    /// The most acts in any half-open second.
    fn most_in_a_second(acts: &[Moment]) -> usize {
        let second = Duration::from_secs(1);
        let in_second = |first: &Moment| {
            let inside = acts
                .iter()
                .filter(|at| *at >= first && at.since(*first) < second);
            inside.count()
        };
        acts.iter().map(in_second).max().unwrap_or(0)
    }

    #[test]
    fn a_rate_is_cut_into_shares_whose_sum_is_not_above_it() {
        for rate in [
            0.01, 0.5, 1.0, 14.0, 39.9, 40.0, 200.0, 333.0, 1000.0, 50_000.0,
        ] {
            let cut = Cut::of(rate).unwrap();
            let sum = cut.shares as f64 / cut.step.as_secs_f64();
            assert!(sum <= rate, "{rate}: {sum}");
            let least = if rate < 20.0 { 0.97 } else { 0.93 };
            assert!(sum >= rate * least, "{rate}: {sum}");
        }
        assert_eq!(Cut::of(14.0).unwrap().shares, 1);
        assert_eq!(Cut::of(1000.0).unwrap().shares, 16);
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300] {
            assert_eq!(Cut::of(rate), None, "{rate}");
        }
    }

    #[test]
    fn a_share_keeps_its_pace_also_when_it_is_late() {
        let chance = crate::chance::Chance::seeded(7);
        for rate in [1.0, 3.0, 14.0, 25.0, 62.0, 1000.0] {
            let cut = Cut {
                shares: 1,
                ..Cut::of(rate).unwrap()
            };
            let mut shares = [Share::begun((), &cut, at(0))];
            let (mut now, mut acts) = (0, Vec::new());
            while acts.len() < (rate * 3.0) as usize + 3 {
                match turn(&mut shares, &cut, |()| true, at(now), true) {
                    Ok(()) => acts.push(at(now)),
                    // Timers are late, now and then very late.
                    Err(next) => {
                        let late = if chance.hits(0.1) { 300_000 } else { 20_000 };
                        now = next.since_boot().as_micros() as u64 + chance.below(late);
                    }
                }
            }
            let most = most_in_a_second(&acts);
            assert!(most as f64 <= rate * cut.shares as f64, "{rate}: {most}");
        }
    }

    #[test]
    fn a_share_begins_with_a_pause() {
        let cut = Cut::of(10.0).unwrap();
        let mut shares = [Share::begun((), &cut, at(0))];
        let first = turn(&mut shares, &cut, |()| true, at(0), true).unwrap_err();
        assert!(first.since(at(0)) >= cut.step, "{first:?}");
        assert_eq!(turn(&mut shares, &cut, |()| true, first, true), Ok(()));
    }

    #[test]
    fn shares_follow_the_demand() {
        let cut = Cut::of(1000.0).unwrap();
        let mut demand = Demand::default();
        let first = demand.next(0, &cut, false, at(0));
        assert_eq!(first, Next::Rest(Moment::NEVER));
        assert!(demand.asked(&cut, at(0)));
        let first = demand.next(0, &cut, false, at(0));
        assert_eq!(first, Next::More(1, at(5_000_000)));
        let mut look = |n: u64, held, taken, scarce| {
            let now = at(n * 250_000);
            demand.asked(&cut, now);
            demand.taken = taken;
            (demand.next(held, &cut, scarce, now), now)
        };
        let (next, now) = look(1, 1, 15, false);
        assert_eq!(next, Next::More(1, now));
        let (next, now) = look(2, 2, 30, false);
        assert_eq!(next, Next::More(2, now));
        let (next, now) = look(3, 12, 180, false);
        assert_eq!(next, Next::More(4, now));
        let (next, now) = look(4, 4, 40, false);
        assert_eq!(next, Next::Rest(now + LOOK), "neither full nor empty");
        assert_eq!(look(5, 16, 30, false).0, Next::Fewer(13));
        // What all want goes round.
        assert_eq!(look(40, 4, 10_000, true).0, Next::TurnOver);
        let (next, now) = look(41, 4, 10_000, true);
        assert_eq!(next, Next::More(1, now + WAIT / 5));
        assert_eq!(look(49, 4, 10_000, true).0, Next::TurnOver);
        assert_eq!(look(57, 16, 10_000, false).0, Next::TurnOver);
        // Without demand all are given back.
        let last = demand.next(4, &cut, true, at(16_000_000));
        assert_eq!(last, Next::Fewer(4));
    }
}
