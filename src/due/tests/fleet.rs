//! A fleet with bad luck: holders die at the worst moment, clocks are set, answers are lost.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::{super::table::later, *};
use crate::schedule::before;

#[derive(Clone, Debug)]
enum Fault {
    /// Time passes; the holder asks.
    Pass(i64),
    /// Its clock is set to this offset from the true one.
    StepClock(i64),
    /// The holder dies: before it writes, between writing and acting, or at rest.
    Die { write: bool, clock: i64 },
    /// It writes, does not learn that it did, and reads the ledger again.
    LoseAnswer,
    /// One of the runs ends for good, or for a retry after a pause.
    End(Option<i64>, usize),
    /// The run leaves a checkpoint.
    Save(u8),
    /// An operator asks for a run.
    Trigger(u8),
    /// An operator pauses the job, or resumes it.
    Pause(bool),
}

fn fault() -> impl Strategy<Value = Fault> {
    let clock = || prop_oneof![3 => Just(0i64), 1 => -20_000i64..20_000];
    prop_oneof![
        10 => prop_oneof![0i64..1500, 0i64..30_000].prop_map(Fault::Pass),
        1 => clock().prop_map(Fault::StepClock),
        2 => (any::<bool>(), clock()).prop_map(|(write, clock)| Fault::Die { write, clock }),
        1 => Just(Fault::LoseAnswer),
        6 => (prop::option::weighted(0.3, 0i64..20_000), 0usize..4).prop_map(|(retry, which)| Fault::End(retry, which)),
        1 => any::<u8>().prop_map(Fault::Save),
        2 => (0u8..5).prop_map(Fault::Trigger),
        1 => any::<bool>().prop_map(Fault::Pause),
    ]
}

/// The ledger as the store keeps it, the holder of the day, and everything that was ever decided.
struct Fleet {
    body: String,
    schedule: Schedule,
    policy: Policy,
    true_ms: i64,
    clock: i64,
    token: Token,
    alive: Vec<RunKey>,
    alive_tokens: BTreeMap<RunKey, Token>,
    /// Attempts that were told to stop for a newer tick.
    replaced: Vec<String>,
    triggers: Vec<String>,
    paused_upto: Option<Timestamp>,
    executed: Vec<RunKey>,
    first: Option<Timestamp>,
    fates: BTreeMap<Timestamp, &'static str>,
}

impl Fleet {
    fn plan(&self) -> Plan {
        self.plan_at(Timestamp::from_millisecond(self.true_ms + self.clock).unwrap())
    }

    fn plan_at(&self, now: Timestamp) -> Plan {
        let ledger = Ledger::from_body(&self.body).unwrap();
        let Self {
            schedule,
            policy,
            token,
            alive,
            triggers,
            ..
        } = self;
        let facts = Facts {
            ledger: &ledger,
            schedule,
            policy,
            now,
            token: *token,
            alive,
            may_start: true,
            triggers,
            paused_upto: self.paused_upto,
        };
        let plan = decide(&facts).unwrap();
        let still = decide(&Facts {
            may_start: false,
            ..facts
        });
        assert_eq!(
            still.unwrap().starts().count(),
            0,
            "nothing starts any more"
        );
        assert!(plan.wake.is_none_or(|wake| wake > now), "{plan:?} at {now}");
        assert!(plan.ledger.decided_upto() >= ledger.decided_upto());
        assert!(plan.ledger.waiting().len() <= policy.misfire.places());
        assert!(plan.ledger.waiting().is_sorted());
        assert!(plan.ledger.queued().is_sorted());
        if policy.overlap == Overlap::CancelPrevious {
            assert!(plan.ledger.queued().len() <= policy.concurrency);
        }
        if plan.decisions.is_empty() {
            assert_eq!(plan.ledger, ledger);
        }
        plan
    }

    fn write(&mut self, plan: &Plan) {
        self.body = plan.ledger.to_body();
        for decision in &plan.decisions {
            match decision {
                Decision::FirstSight { upto } => self.first = Some(*upto),
                Decision::Start {
                    id,
                    tick,
                    attempt: 1,
                    ..
                } if *id == tick.to_string() => {
                    self.fate(*tick, "started");
                }
                Decision::Missed { ticks, .. } => self.fates(*ticks, "missed"),
                Decision::Overlap { ticks } => self.fates(*ticks, "overlap"),
                Decision::Replaced { key, by } => {
                    assert_eq!(self.policy.overlap, Overlap::CancelPrevious);
                    assert!(plan.ledger.queued().contains(by));
                    self.replaced.push(key.id.clone());
                }
                Decision::Start { .. } | Decision::Interrupted { .. } | Decision::Queued { .. } => {
                }
            }
        }
    }

    fn act(&mut self, plan: &Plan) {
        for start in plan.starts() {
            let key = super::key_of(start);
            assert!(
                self.alive.len() < self.policy.concurrency,
                "more runs at a time than may be"
            );
            assert!(key.attempt <= self.policy.attempts);
            assert!(!self.replaced.contains(&key.id), "{key:?} was replaced");
            self.alive_tokens.insert(key.clone(), self.token);
            self.alive.push(key.clone());
            self.executed.push(key);
        }
    }

    fn fates(&mut self, ticks: Ticks, fate: &'static str) {
        let all = self
            .schedule
            .between(before(ticks.from).unwrap(), ticks.to, usize::MAX);
        assert_eq!((all.len() as u64).min(COUNT_LIMIT), ticks.count);
        assert_eq!((all[0], all[all.len() - 1]), (ticks.from, ticks.to));
        for tick in all {
            self.fate(tick, fate);
        }
    }

    fn fate(&mut self, tick: Timestamp, fate: &'static str) {
        let before = self.fates.insert(tick, fate);
        assert_eq!(before, None, "{tick} is {fate} as well");
    }

    fn go_on(&mut self) {
        let plan = self.plan();
        self.write(&plan);
        self.act(&plan);
        assert_eq!(
            self.plan().decisions,
            [],
            "the same facts decide nothing more than {:?}; now {}, alive {:?}",
            plan.decisions,
            self.body,
            self.alive
        );
        // A leader that sleeps until `wake` misses nothing; ticks of overlap and of a pause may be collected.
        let now = Timestamp::from_millisecond(self.true_ms + self.clock).unwrap();
        let paused = self.paused_upto.is_some_and(|upto| upto > now);
        let collects = paused || self.alive.len() >= self.policy.concurrency;
        let just_before = plan.wake.and_then(before).filter(|_| !collects);
        assert!(
            just_before.is_none_or(|t| self.plan_at(t).decisions.is_empty()),
            "{plan:?}"
        );
    }

    fn suffer(&mut self, fault: &Fault) {
        match fault {
            Fault::Pass(ms) => {
                self.true_ms += ms;
                self.go_on();
            }
            Fault::StepClock(clock) => {
                self.clock = *clock;
                self.go_on();
            }
            Fault::Die { write, clock } => {
                let plan = self.plan();
                if *write {
                    self.write(&plan);
                }
                self.alive.clear();
                self.token.0 += 1;
                self.clock = *clock;
            }
            Fault::LoseAnswer => {
                let plan = self.plan();
                self.write(&plan);
            }
            Fault::End(retry, which) => {
                self.go_on();
                if self.alive.is_empty() {
                    return;
                }
                let key = self.alive.remove(which % self.alive.len());
                let token = self.alive_tokens[&key];
                let mut ledger = Ledger::from_body(&self.body).unwrap();
                let at = Timestamp::from_millisecond(self.true_ms + self.clock).unwrap();
                match retry {
                    Some(pause)
                        if self.policy.may_follow(key.attempt)
                            && !self.replaced.contains(&key.id) =>
                    {
                        let not_before = later(at, Duration::from_millis(*pause as u64));
                        ledger.retry_later(&key, token, not_before).unwrap();
                    }
                    _ => ledger.finish(&key, token).unwrap(),
                }
                self.body = ledger.to_body();
                self.go_on();
            }
            Fault::Save(n) => {
                let Some(key) = self.alive.last() else { return };
                let mut ledger = Ledger::from_body(&self.body).unwrap();
                ledger
                    .save_checkpoint(key, self.alive_tokens[key], json!(n))
                    .unwrap();
                self.body = ledger.to_body();
            }
            Fault::Trigger(n) => {
                // Asked for at any time of the last seconds.
                let asked = self.true_ms - i64::from(*n) * 700;
                let asked =
                    crate::ledger::ids::trigger_floor(Timestamp::from_millisecond(asked).unwrap());
                self.triggers = vec![format!("{}-{n}", asked.trim_end_matches('~'))];
                self.go_on();
            }
            Fault::Pause(on) => {
                let now = Timestamp::from_millisecond(self.true_ms + self.clock).unwrap();
                self.paused_upto = Some(if *on { Timestamp::MAX } else { now });
                self.go_on();
            }
        }
    }

    fn account(&self) {
        let ledger = Ledger::from_body(&self.body).unwrap();
        let (Some(first), Some(upto)) = (self.first, ledger.decided_upto()) else {
            return;
        };
        for tick in self.schedule.between(first, upto, usize::MAX) {
            let waits = ledger.waiting().contains(&tick) || ledger.queued().contains(&tick);
            assert_eq!(
                self.fates.contains_key(&tick),
                !waits,
                "{tick} has no fate, or two"
            );
        }
        assert!(self.fates.keys().all(|tick| first < *tick && *tick <= upto));
        let mut executed = self.executed.clone();
        executed.sort();
        executed.dedup();
        assert_eq!(
            executed.len(),
            self.executed.len(),
            "an attempt was started twice"
        );
    }
}

fn cases() -> u32 {
    let said = std::env::var("WATCHKEEPER_DUE_CASES").ok();
    let long = std::env::var_os("WATCHKEEPER_LONG").is_some();
    said.and_then(|cases| cases.parse().ok())
        .unwrap_or(if long { 300 } else { 60 })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn every_tick_is_accounted_for_and_no_attempt_starts_twice(
        expr in prop::sample::select(vec!["@every 300ms", "@every 1700ms", "@every 7s", "*/3 * * * * *", "* * * * *"]),
        mode in prop::sample::select(vec![Misfire::Skip, Misfire::Once, Misfire::All]),
        limit in 1usize..6,
        window in prop::option::of(0u64..20),
        jitter in prop_oneof![Just(0u64), 1u64..9_000],
        interrupted in prop::sample::select(vec![Interrupted::Rerun, Interrupted::Skip]),
        overlap in prop::sample::select(vec![Overlap::Skip, Overlap::Queue, Overlap::CancelPrevious, Overlap::Allow]),
        concurrency in 1usize..4,
        attempts in 1u32..4,
        faults in prop::collection::vec(fault(), 1..80),
    ) {
        let misfire = MisfirePolicy { mode, limit, window: window.map(Duration::from_secs) };
        let mut fleet = Fleet {
            body: String::new(),
            schedule: Schedule::parse(expr, None, Some("Europe/Berlin"))
                .unwrap()
                .of_job("job", Duration::from_millis(jitter)),
            policy: Policy { misfire, interrupted, overlap, concurrency, attempts },
            // Shortly before the clocks go back in Berlin.
            true_ms: 1_792_889_900_000,
            clock: 0,
            token: Token(1),
            alive: vec![],
            alive_tokens: BTreeMap::new(),
            replaced: vec![],
            triggers: vec![],
            paused_upto: None,
            executed: vec![],
            first: None,
            fates: BTreeMap::new(),
        };
        for fault in &faults {
            fleet.suffer(fault);
            fleet.account();
        }
    }
}
