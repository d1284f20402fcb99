//! Clocks that jump: whatever they show, and whenever a ledger is taken back, no tick starts twice.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// Time passes, and the leader decides.
    Pass(i64),
    /// The clock is so far off the true time from now on.
    Jump(i64),
    /// A leader finds that the ledger is ahead of the clock, and has been for long enough.
    TakeBack,
    /// All runs end.
    End,
    /// The leader dies, and another one leads.
    Die,
}

fn step() -> impl Strategy<Value = Step> {
    let jump = prop_oneof![2 => Just(0i64), 2 => -40_000i64..200_000, 1 => 0i64..3_000_000];
    prop_oneof![
        6 => (0i64..12_000).prop_map(Step::Pass),
        3 => jump.prop_map(Step::Jump),
        3 => Just(Step::TakeBack),
        4 => Just(Step::End),
        1 => Just(Step::Die),
    ]
}

struct Fleet {
    body: String,
    schedule: Schedule,
    policy: Policy,
    true_ms: i64,
    clock: i64,
    token: Token,
    alive: Vec<(RunKey, Token)>,
    started: BTreeSet<RunKey>,
}

impl Fleet {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.true_ms + self.clock).unwrap()
    }

    fn ledger(&self) -> Ledger {
        Ledger::from_body(&self.body).unwrap()
    }

    fn decide(&mut self) {
        let (ledger, now) = (self.ledger(), self.now());
        let alive: Vec<RunKey> = self.alive.iter().map(|(key, _)| key.clone()).collect();
        let plan = decide(&Facts {
            ledger: &ledger,
            schedule: &self.schedule,
            policy: &self.policy,
            now,
            token: self.token,
            alive: &alive,
            may_start: true,
            triggers: &[],
            paused_upto: None,
        })
        .unwrap();
        self.body = plan.ledger.to_body();
        for start in plan.starts() {
            let key = super::key_of(start);
            assert!(self.started.insert(key.clone()), "{key:?} is started twice");
            self.alive.push((key, self.token));
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Pass(ms) => {
                self.true_ms += ms;
                self.decide();
            }
            Step::Jump(clock) => {
                self.clock = *clock;
                self.decide();
            }
            Step::TakeBack => self.take_back(),
            Step::End => {
                let mut ledger = self.ledger();
                for (key, token) in self.alive.drain(..) {
                    ledger.finish(&key, token).unwrap();
                }
                self.body = ledger.to_body();
                self.decide();
            }
            Step::Die => {
                self.alive.clear();
                self.token.0 += 1;
                self.decide();
            }
        }
    }

    /// Also those that start in the places of others: what waits is bounded.
    fn end_all(&mut self) {
        while !self.alive.is_empty() {
            self.take(&Step::End);
        }
    }

    fn take_back(&mut self) {
        let (ledger, now) = (self.ledger(), self.now());
        let Some(back) = take_back(&ledger, &self.schedule, now) else {
            return;
        };
        let next = &back.ledger;
        assert_eq!(next.decided_upto(), Some(now));
        for tick in ledger.waiting().iter().chain(ledger.queued()) {
            let kept = next.waiting().contains(tick) || next.queued().contains(tick);
            assert!(kept || *tick > now, "{tick} is lost");
        }
        self.body = back.ledger.to_body();
        self.decide();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_tick_starts_twice_whatever_clocks_show_and_ticks_go_on_once_they_are_right(
        expr in prop::sample::select(vec!["@every 700ms", "@every 7s", "*/3 * * * * *", "* * * * *"]),
        mode in prop::sample::select(vec![Misfire::Skip, Misfire::Once, Misfire::All]),
        limit in 1usize..8,
        jitter in prop_oneof![Just(0u64), 1u64..4_000],
        overlap in prop::sample::select(vec![Overlap::Skip, Overlap::Queue, Overlap::CancelPrevious, Overlap::Allow]),
        concurrency in 1usize..3,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let misfire = MisfirePolicy { mode, limit, window: None };
        let interrupted = Interrupted::Rerun;
        let mut fleet = Fleet {
            body: String::new(),
            schedule: Schedule::parse(expr, None, None)
                .unwrap()
                .of_job("job", Duration::from_millis(jitter)),
            policy: Policy { misfire, interrupted, overlap, concurrency, attempts: 2 },
            true_ms: 1_792_889_900_000,
            clock: 0,
            token: Token(1),
            alive: vec![],
            started: BTreeSet::new(),
        };
        fleet.decide();
        for step in &steps {
            fleet.take(step);
        }
        // The clock is right again, and what went on has ended.
        fleet.take(&Step::Jump(0));
        fleet.take_back();
        fleet.end_all();
        let right = fleet.now();
        let ledger = fleet.ledger();
        for tick in fleet.schedule.between(right, Timestamp::MAX, 4) {
            let starts = fleet.schedule.starts(tick);
            fleet.true_ms = starts.as_millisecond() + 1;
            fleet.decide();
            fleet.end_all();
            let key = RunKey { id: tick.to_string(), attempt: 1 };
            prop_assert!(
                fleet.started.contains(&key) || ledger.has_run_ahead(tick),
                "{tick} did not run: {}", fleet.body
            );
        }
    }
}
