//! Reloads of whole replicas: jobs of every coordination are changed, added and removed under way.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    acts::ms,
    fleet::{Act, Fleet, Member, Ran, ready},
    intents::publish,
    world::TTL,
};
use crate::{
    batch::BatchJob,
    clock::Clock,
    config::Config,
    event::Event,
    job::{Coordination, Job, JobError, Outcome, Run, Spec},
    worker::{
        crew::JobChanges,
        registry::Body,
        reload::{Reload, plan},
    },
};

const SECOND: Duration = Duration::from_secs(1);

/// What runs have noted, in order.
#[derive(Clone, Default)]
pub(super) struct Diary(Arc<Mutex<Vec<Line>>>);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    /// `began`, `ended` or `stopped`.
    pub(super) what: &'static str,
    pub(super) replica: String,
    pub(super) job: String,
    run: String,
    batch: Option<String>,
    /// In seconds since the first one of the fleet.
    pub(super) second: i64,
    pub(super) params: Value,
    ttl: Option<Duration>,
}

/// Batches that are pending until they are done.
struct Cells {
    left: Arc<Mutex<BTreeSet<String>>>,
    act: Act<Box<dyn Fn(Run) -> Ran + Send + Sync>>,
}

type Jobs<'a> = Vec<(&'a str, Body, Spec)>;

// === impl Member ===

impl Member {
    /// As if it read these jobs from its file; says what has changed.
    pub(super) async fn reload(&self, jobs: Jobs<'_>) -> Reload {
        let new: BTreeMap<String, Spec> = jobs
            .iter()
            .map(|(name, _, spec)| ((*name).to_owned(), spec.clone()))
            .collect();
        let old = std::mem::replace(&mut *self.jobs.lock().unwrap(), new.clone());
        let config = |jobs| Config {
            jobs,
            ..Config::default()
        };
        let reload = plan(&config(old), &config(new));
        let begins = |name: &str| {
            let mut names = reload.added.iter().chain(&reload.changed);
            names.any(|begins| begins == name)
        };
        let begin = jobs.into_iter().filter(|(name, ..)| begins(name));
        let orders = JobChanges {
            begin: begin.map(ready).collect(),
            end: reload.removed.clone(),
        };
        assert!(self.orders.send(orders).await.is_ok(), "it has ended");
        reload
    }

    /// Tokens of the terms that it has begun, of jobs or of the whole replica.
    fn terms(&self, of: &str) -> Vec<u64> {
        let told = self.told.lock().unwrap();
        let terms = told.iter().filter_map(|event| match event {
            Event::Leading { job, token, .. } if job == of => Some(token.0),
            _ => None,
        });
        terms.collect()
    }
}

// === impl Diary ===

impl Diary {
    fn note(&self, what: &'static str, run: &Run) {
        let facts = run.facts();
        let line = Line {
            what,
            replica: facts.replica.clone(),
            job: run.job().to_owned(),
            run: run.id().to_owned(),
            batch: run.batch().map(str::to_owned),
            second: run.tick().as_second(),
            params: facts.params.clone(),
            ttl: run.lease().map(|lease| lease.ttl()),
        };
        self.0.lock().unwrap().push(line);
    }

    pub(super) fn all(&self) -> Vec<Line> {
        self.0.lock().unwrap().clone()
    }

    /// The lines of one job.
    pub(super) fn of(&self, job: &str) -> Vec<Line> {
        let mut all = self.all();
        all.retain(|line| line.job == job);
        all
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Works for so long, and stops when it is told to.
    fn act(&self, clock: Clock, takes: Duration) -> Act<Box<dyn Fn(Run) -> Ran + Send + Sync>> {
        let diary = self.clone();
        Act(Box::new(move |run: Run| {
            let (diary, clock) = (diary.clone(), clock.clone());
            diary.note("began", &run);
            Box::pin(async move {
                tokio::select! {
                    biased;
                    () = run.cancelled() => {
                        diary.note("stopped", &run);
                        Err(JobError::from("stopped"))
                    }
                    () = clock.sleep(takes) => {
                        diary.note("ended", &run);
                        Ok(Outcome::Done)
                    }
                }
            })
        }))
    }

    pub(super) fn job(&self, clock: Clock, takes: Duration) -> Body {
        Body::Job(Arc::new(self.act(clock, takes)))
    }

    /// Runs of one job in one replica follow each other, and each of them is over when the next one begins.
    pub(super) fn assert_one_at_a_time(&self, job: &str) {
        let mut open: BTreeMap<String, String> = BTreeMap::new();
        for line in self.of(job) {
            if line.what == "began" {
                let other = open.insert(line.replica.clone(), line.run.clone());
                assert_eq!(other, None, "{line:?} beside another run");
            } else {
                open.remove(&line.replica);
            }
        }
    }
}

#[async_trait]
impl BatchJob for Cells {
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError> {
        let left = self.left.lock().unwrap();
        Ok(left.iter().take(limit).cloned().collect())
    }

    async fn process(&self, batch: &str, run: Run) -> Result<Outcome, JobError> {
        // As any batch job does: what was pending may be done by now.
        if !self.left.lock().unwrap().contains(batch) {
            return Ok(Outcome::Skip("done meanwhile".to_owned()));
        }
        let outcome = self.act.run(run).await?;
        self.left.lock().unwrap().remove(batch);
        Ok(outcome)
    }
}

pub(super) async fn until(fleet: &Fleet, what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        fleet.sleep(ms(10)).await;
    }
    panic!("no {what} within a minute");
}

// === batches ===

/// A source is replaced by another one with longer claims, one replica after the other, while all of them work.
#[tokio::test(start_paused = true)]
async fn batches_in_flight_end_as_they_began_and_none_is_lost_or_done_twice() {
    let (fleet, diary) = (Fleet::new(3), Diary::default());
    let cells = |from: usize| {
        Arc::new(Mutex::new(
            (from..from + 60)
                .map(|n| n.to_string())
                .collect::<BTreeSet<_>>(),
        ))
    };
    let (old, new) = (cells(100), cells(200));
    let jobs = |word: &str| {
        let (left, ttl) = match word {
            "old" => (&old, TTL),
            _ => (&new, TTL * 2),
        };
        let cells = Cells {
            left: left.clone(),
            act: diary.act(fleet.clock(), ms(700)),
        };
        let spec = Spec::continuous().coordination(Coordination::Batch);
        let spec = spec.params(json!(word)).ttl(ttl);
        vec![("mail", Body::Batch(Arc::new(cells)), spec)]
    };
    let members = ["a", "b", "c"].map(|name| {
        let member = fleet.join_with(name, jobs("old"), false);
        publish(&member);
        member
    });
    let mut before = BTreeMap::new();
    for member in &members {
        // In the middle of its work.
        fleet.sleep(ms(1200)).await;
        let me = &member.ctx.replica;
        let begun = |line: &Line| line.replica == *me && line.what == "began";
        let open = || {
            let ends = diary
                .all()
                .iter()
                .filter(|l| l.replica == *me && l.what != "began")
                .count();
            diary.all().iter().filter(|l| begun(l)).count() > ends
        };
        until(&fleet, "batch in flight", open).await;
        let reload = member.reload(jobs("new")).await;
        assert_eq!(reload.changed, ["mail"]);
        before.insert(me.clone(), diary.all().iter().filter(|l| begun(l)).count());
    }
    until(&fleet, "end of the new batches", || {
        new.lock().unwrap().is_empty()
    })
    .await;
    fleet.sleep(SECOND * 5).await;
    let lines = diary.all();
    assert!(
        !lines.iter().any(|line| line.what == "stopped"),
        "all end by themselves"
    );
    // What the old source had left is nobody's any more; everything that was begun was ended, once.
    let mut ended = BTreeSet::new();
    for line in lines.iter().filter(|line| line.what == "ended") {
        assert!(ended.insert(line.batch.clone()), "{line:?} again");
    }
    assert_eq!(lines.len(), ended.len() * 2, "begun and not ended");
    assert_eq!(60 * 2 - old.lock().unwrap().len(), ended.len());
    assert!(
        old.lock().unwrap().len() > 5,
        "or nothing was changed under way"
    );
    for member in &members {
        let mine = lines
            .iter()
            .filter(|l| l.replica == member.ctx.replica && l.what == "began");
        let mine: Vec<&Line> = mine.collect();
        let (first, then) = mine.split_at(before[&member.ctx.replica]);
        assert!(!first.is_empty() && !then.is_empty());
        let defined =
            |line: &&Line, word: &str, ttl| line.params == json!(word) && line.ttl == Some(ttl);
        assert!(
            first.iter().all(|l| defined(&&**l, "old", TTL)),
            "{first:?}"
        );
        assert!(
            then.iter().all(|l| defined(&&**l, "new", TTL * 2)),
            "{then:?}"
        );
    }
    for line in lines.iter().filter(|line| line.what == "ended") {
        let began = lines.iter().find(|l| l.run == line.run).unwrap();
        assert_eq!(
            (&began.params, began.ttl),
            (&line.params, line.ttl),
            "it ends as it began"
        );
    }
}

/// One that outlives the drain timeout is told to stop, comes back, and is done under the new definition.
#[tokio::test(start_paused = true)]
async fn a_batch_that_outlives_the_drain_timeout_is_done_again_under_the_new_definition() {
    let (fleet, diary) = (Fleet::new(3), Diary::default());
    let left = Arc::new(Mutex::new(BTreeSet::from(["one".to_owned()])));
    let jobs = |takes: Duration| {
        let cells = Cells {
            left: left.clone(),
            act: diary.act(fleet.clock(), takes),
        };
        let spec = Spec::continuous().coordination(Coordination::Batch);
        let spec = spec.params(json!(takes.as_secs()));
        vec![("mail", Body::Batch(Arc::new(cells)), spec)]
    };
    let a = fleet.join_with("a", jobs(SECOND * 600), false);
    until(&fleet, "batch", || diary.len() > 0).await;
    a.reload(jobs(SECOND)).await;
    fleet.sleep(a.ctx.drain_timeout - SECOND).await;
    assert_eq!(diary.len(), 1, "it is given its time");
    until(&fleet, "end of the batch", || {
        left.lock().unwrap().is_empty()
    })
    .await;
    let said: Vec<(&str, Value)> = diary
        .all()
        .into_iter()
        .map(|l| (l.what, l.params))
        .collect();
    let (long, short) = (json!(600), json!(1));
    let wanted = [
        ("began", long.clone()),
        ("stopped", long),
        ("began", short.clone()),
        ("ended", short),
    ];
    assert_eq!(said, wanted);
}

// === continuous ===

#[tokio::test(start_paused = true)]
async fn a_changed_service_starts_anew_once_and_an_unchanged_one_is_not_touched() {
    let (fleet, diary) = (Fleet::new(3), Diary::default());
    let jobs = |word: &str| {
        let job = |params: &str| {
            (
                diary.job(fleet.clock(), SECOND * 9999),
                Spec::continuous().params(json!(params)),
            )
        };
        let ((changed, changed_spec), (same, same_spec)) = (job(word), job("same"));
        vec![
            ("changed", changed, changed_spec),
            ("same", same, same_spec),
        ]
    };
    let members = ["a", "b"].map(|name| {
        let member = fleet.join_with(name, jobs("old"), false);
        publish(&member);
        member
    });
    until(&fleet, "both services", || diary.len() == 2).await;
    fleet.sleep(SECOND * 20).await;
    let at = |job: &str| diary.of(job).last().unwrap().replica.clone();
    let leader = members
        .iter()
        .find(|m| m.ctx.replica == at("changed"))
        .unwrap();
    let other = members
        .iter()
        .find(|m| m.ctx.replica != at("changed"))
        .unwrap();
    // Nothing more happens when the standby follows.
    for member in [leader, other] {
        member.reload(jobs("new")).await;
        fleet.sleep(SECOND * 30).await;
        let lines = diary.of("changed");
        let said: Vec<(&str, &Value)> = lines.iter().map(|l| (l.what, &l.params)).collect();
        let (old, new) = (json!("old"), json!("new"));
        assert_eq!(said, [("began", &old), ("stopped", &old), ("began", &new)]);
        assert_eq!(lines[2].replica, leader.ctx.replica, "in the same term");
    }
    assert_eq!(leader.terms("changed").len(), 1);
    assert_eq!(diary.of("same").len(), 1);
    // Taken over by whoever has the newest definition, and it stays there.
    other.reload(jobs("newest")).await;
    fleet.sleep(SECOND * 30).await;
    leader.reload(jobs("newest")).await;
    fleet.sleep(SECOND * 30).await;
    let lines = diary.of("changed");
    let last: Vec<(&str, &Value)> = lines[3..].iter().map(|l| (l.what, &l.params)).collect();
    assert_eq!(
        last,
        [("stopped", &json!("new")), ("began", &json!("newest"))]
    );
    assert_eq!(lines[4].replica, other.ctx.replica);
    assert_eq!(diary.of("same").len(), 1);
    diary.assert_one_at_a_time("changed");
}

// === failover ===

/// Jobs of every coordination, as this word says.
fn of_every_kind(
    fleet: &Fleet,
    diary: &Diary,
    word: &str,
    left: &Arc<Mutex<BTreeSet<String>>>,
) -> Vec<(&'static str, Body, Spec)> {
    let job = |takes| diary.job(fleet.clock(), takes);
    let every = || Spec::every(SECOND * 2).params(json!(word));
    let cells = Cells {
        left: left.clone(),
        act: diary.act(fleet.clock(), ms(300)),
    };
    let mail = Spec::continuous()
        .coordination(Coordination::Batch)
        .params(json!(word));
    let mut jobs = vec![
        ("led", job(ms(300)), every()),
        (
            "each",
            job(ms(300)),
            every().coordination(Coordination::Everywhere),
        ),
        (
            "tick",
            job(ms(300)),
            every().coordination(Coordination::Tick),
        ),
        ("mail", Body::Batch(Arc::new(cells)), mail),
        (
            "service",
            job(SECOND * 9999),
            Spec::continuous().params(json!(word)),
        ),
        ("same", job(SECOND * 9999), Spec::continuous()),
    ];
    if word == "new" {
        jobs.push(("added", job(ms(300)), every()));
    }
    jobs
}

/// Whichever of both replicas reloads first.
#[tokio::test(start_paused = true)]
async fn in_failover_mode_both_replicas_reload_and_the_active_one_stays_active() {
    for active_first in [true, false] {
        let (fleet, diary) = (Fleet::new(3), Diary::default());
        let left = Arc::new(Mutex::new((1000..3000).map(|n| n.to_string()).collect()));
        let jobs = |word| of_every_kind(&fleet, &diary, word, &left);
        let a = fleet.join_with("a", jobs("old"), true);
        publish(&a);
        until(&fleet, "all kinds of work", || {
            ["led", "each", "tick", "mail", "service", "same"]
                .iter()
                .all(|job| !diary.of(job).is_empty())
        })
        .await;
        let b = fleet.join_with("b", jobs("old"), true);
        publish(&b);
        fleet.sleep(SECOND * 5).await;
        let order = if active_first { [&a, &b] } else { [&b, &a] };
        let mut mark = 0;
        for member in order {
            let reload = member.reload(jobs("new")).await;
            assert_eq!(
                (
                    reload.added.len(),
                    reload.changed.len(),
                    reload.unchanged.len()
                ),
                (1, 5, 1)
            );
            if member.ctx.replica == "a" {
                // What was begun may still begin to end.
                fleet.sleep(SECOND).await;
                mark = diary.len();
            }
            fleet.sleep(SECOND * 10).await;
        }
        assert_eq!((a.terms("replica").len(), b.terms("replica").len()), (1, 0));
        let lines = diary.all();
        assert!(
            lines.iter().all(|line| line.replica == "a"),
            "the standby worked"
        );
        for job in ["led", "each", "tick", "mail", "service", "added"] {
            let began = |l: &&Line| l.job == job && l.what == "began";
            let since: Vec<&Line> = lines[mark..].iter().filter(began).collect();
            assert!(
                since.iter().all(|l| l.params == json!("new")),
                "{job}: {since:?}"
            );
            let news = lines
                .iter()
                .filter(|l| began(l) && l.params == json!("new"))
                .count();
            match job {
                "service" => assert_eq!(news, 1, "started anew once"),
                _ => assert!(news >= 4, "{job}: {news} runs"),
            }
        }
        for job in ["led", "tick", "service"] {
            assert_eq!(
                a.terms(job).len(),
                usize::from(job != "tick"),
                "{job} keeps its term"
            );
        }
        assert_eq!(diary.of("same").len(), 1);
        // The standby takes over what it has read, the job that was added too.
        a.cage.crash();
        let mark = diary.len();
        fleet.sleep(SECOND * 10).await;
        assert_eq!(b.terms("replica").len(), 1);
        let lines = &diary.all()[mark..];
        for job in ["led", "each", "tick", "mail", "service", "same", "added"] {
            let defined = |l: &Line| job == "same" || l.params == json!("new");
            let mut began = lines.iter().filter(|l| l.job == job && l.what == "began");
            assert!(began.all(|l| l.replica == "b" && defined(l)), "{job}");
            assert!(lines.iter().any(|l| l.job == job), "{job} runs");
        }
        for job in ["led", "each", "tick", "service", "added"] {
            diary.assert_one_at_a_time(job);
        }
    }
}

// === everywhere ===

#[tokio::test(start_paused = true)]
async fn a_job_that_runs_everywhere_follows_the_file_of_each_replica() {
    let (fleet, diary) = (Fleet::new(3), Diary::default());
    let jobs = |word: &str| {
        let spec = Spec::every(SECOND * if word == "new" { 3 } else { 2 })
            .coordination(Coordination::Everywhere);
        let same = Spec::every(SECOND).coordination(Coordination::Everywhere);
        let job = |takes| diary.job(fleet.clock(), takes);
        vec![
            ("each", job(ms(1500)), spec.params(json!(word))),
            ("same", job(ms(100)), same),
        ]
    };
    let members = ["a", "b"].map(|name| fleet.join_with(name, jobs("old"), false));
    fleet.sleep(ms(10_500)).await;
    // In the middle of a run.
    members[0].reload(jobs("new")).await;
    fleet.sleep(SECOND * 20).await;
    let began = |replica: &str, word: &str| -> Vec<i64> {
        let lines = diary.of("each").into_iter();
        let lines =
            lines.filter(|l| l.replica == replica && l.what == "began" && l.params == json!(word));
        lines.map(|l| l.second).collect()
    };
    assert!(began("b", "new").is_empty());
    let old = began("a", "old");
    let new = began("a", "new");
    assert!(old.len() >= 4 && new.len() >= 5, "{old:?}, {new:?}");
    assert!(new.iter().all(|second| second % 3 == 0), "{new:?}");
    assert!(
        new[0] - old.last().unwrap() <= 4,
        "it goes on at once: {old:?}, {new:?}"
    );
    assert!(began("b", "old").len() > old.len() + 5);
    assert!(
        !diary.all().iter().any(|l| l.what == "stopped"),
        "runs end as they began"
    );
    let same: Vec<i64> = diary
        .of("same")
        .into_iter()
        .filter(|l| l.what == "began" && l.replica == "a")
        .map(|l| l.second)
        .collect();
    assert!(
        same.windows(2).all(|pair| pair[1] - pair[0] == 1),
        "{same:?}"
    );
    diary.assert_one_at_a_time("each");
}

// === tick ===

/// Each of three replicas reloads between two ticks of the old schedule, the new one being rarer, or having other parameters.
#[tokio::test(start_paused = true)]
async fn a_job_whose_lock_is_taken_for_each_tick_loses_none_by_a_reload() {
    for (every, rarer) in [(2, 10), (2, 2), (10, 2)] {
        let (fleet, diary) = (Fleet::new(3), Diary::default());
        let jobs = |word: &str| {
            let seconds = if word == "new" { rarer } else { every };
            let spec = Spec::every(SECOND * seconds).coordination(Coordination::Tick);
            let same = Spec::every(SECOND).coordination(Coordination::Tick);
            let job = |takes| diary.job(fleet.clock(), takes);
            vec![
                ("tick", job(ms(300)), spec.params(json!(word))),
                ("same", job(ms(100)), same),
            ]
        };
        let members = ["a", "b", "c"].map(|name| {
            let member = fleet.join_with(name, jobs("old"), false);
            publish(&member);
            member
        });
        fleet.sleep(ms(23_200)).await;
        let reloaded = diary.all().last().unwrap().second + 1;
        for member in &members {
            member.reload(jobs("new")).await;
        }
        fleet.sleep(SECOND * 40).await;
        let began = |job: &str, word: Value| -> Vec<i64> {
            let lines = diary.of(job).into_iter();
            let lines = lines.filter(|l| l.what == "began" && l.params == word);
            lines.map(|l| l.second).collect()
        };
        let (old, new) = (began("tick", json!("old")), began("tick", json!("new")));
        let case = format!("{every} s to {rarer} s, reloaded at {reloaded}: {old:?}, {new:?}");
        let period = i64::from(rarer);
        let first = reloaded.div_euclid(period) * period + period;
        assert!(new[0] <= first, "the first new tick is lost: {case}");
        assert!(
            new.windows(2).all(|pair| pair[1] - pair[0] == period),
            "{case}"
        );
        assert!(old.iter().all(|second| *second <= reloaded), "{case}");
        let same = began("same", Value::Null);
        assert!(
            same.windows(2).all(|pair| pair[1] - pair[0] == 1),
            "{same:?}"
        );
    }
}
