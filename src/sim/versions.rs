//! Replicas of two versions in one fleet: those of today, and those of a later one, which writes ledgers in another form and has
//! more fields in every document.
//!
//! The later version is today's behind a door: what it writes is raised on its way to the nodes, and a ledger is lowered on its way
//! back. So on the nodes stands what today's replicas will find there one day, whatever the code here knows of it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    acts::{Starts, leader, ms, quick},
    unrest::{daily, number, play, seeds},
};
use crate::{
    due::{Misfire, Overlap},
    event::Event,
    job::{Coordination, Spec},
    node::{Announcements, Answer, Call, Expiry, Node, NodeError, Op, Reply, memory::MemoryNode},
    scheduler::intents::INTERVAL,
    testing::{
        cluster::{Cluster, straight},
        members::Member,
    },
};

const SECOND: Duration = Duration::from_secs(1);
/// The version of the later one's ledgers.
const LATER: u64 = 7;
/// WATCHKEEPER_SIM_SCHEDULES asks for more.
const SEEDS: u64 = 12;

/// A connection of the later version.
struct Door(MemoryNode);

fn later(node: MemoryNode) -> Arc<dyn Node> {
    Arc::new(Door(node))
}

#[async_trait]
impl Node for Door {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn call(&self, mut call: Call) -> Result<Reply, NodeError> {
        call.ops.iter_mut().for_each(raise);
        let mut reply = Node::call(&self.0, call).await?;
        reply.answers.iter_mut().for_each(lower);
        Ok(reply)
    }

    fn expiry(&self) -> Expiry {
        self.0.expiry()
    }

    async fn announcements(&self) -> Option<Announcements> {
        Node::announcements(&self.0).await
    }
}

fn raise(op: &mut Op) {
    match op {
        // Of what today's version knows, only the number has its place: who reads the rest all the same sees a job that never ran.
        Op::Write { body, .. } => {
            let ledger: Value = serde_json::from_str(body).unwrap();
            *body = json!({ "v": LATER, "ledger": ledger }).to_string();
        }
        Op::PutDoc { body, .. } => {
            if let Ok(mut told) = serde_json::from_str(body) {
                add_to(&mut told);
                *body = told.to_string();
            }
        }
        _ => {}
    }
}

/// More fields than today's version knows: of a document, or of all that a page lists.
fn add_to(told: &mut Value) {
    match told {
        Value::Object(fields) => {
            fields.insert("later".to_owned(), json!({ "deep": [1, "two"] }));
        }
        Value::Array(several) => several.iter_mut().for_each(add_to),
        _ => {}
    }
}

fn lower(answer: &mut Answer) {
    let record = match answer {
        Answer::Granted { record, .. } => record,
        Answer::View(view) | Answer::Refused(view) | Answer::Broken(view) => &mut view.record,
        _ => return,
    };
    // Empty where it was not asked for, and of today's version as it is.
    if let Ok(body) = serde_json::from_str::<Value>(&record.body)
        && body["v"] == LATER
    {
        record.body = body["ledger"].to_string();
    }
}

/// Runs that it has begun.
fn begun(member: &Member) -> usize {
    let told = member.told.lock().unwrap();
    let begins = |event: &&Event| matches!(event, Event::RunStarted { .. });
    told.iter().filter(begins).count()
}

/// The ledger as it stands on the nodes, read by a replica of today.
async fn ledger(member: &Member) -> String {
    let seen = member.ctx.locks.look(vec!["job/job".to_owned()]).await;
    seen.unwrap()[0].record().body
}

/// Waits until a third of a second after a tick: what it began is written by then.
async fn between_ticks(fleet: &Cluster) {
    let past = fleet.clock().wall().as_millisecond().rem_euclid(1000);
    fleet.sleep(ms(1300 - u64::try_from(past).unwrap())).await;
}

/// Waits until it has begun some runs.
async fn until_it_runs(fleet: &Cluster, member: &Member, case: &str) {
    let some = begun(member) + 2;
    for _ in 0..400 {
        if begun(member) >= some {
            return;
        }
        fleet.sleep(ms(50)).await;
    }
    panic!("{case}: {} runs nothing", member.me.name);
}

/// Up, beside each other, back down, and up again.
async fn changes_of_version(coordination: Coordination, seed: u64) {
    let case = format!("{coordination}, seed {seed}");
    let mut fleet = Cluster::seeded(3, seed);
    let starts = Starts::default();
    let spec = Spec::every(SECOND)
        .misfire(Misfire::All)
        .misfire_limit(60)
        .overlap(Overlap::Queue)
        .coordination(coordination);
    let join = |fleet: &Cluster, name: &str| {
        let member = fleet.join(name, quick(&starts), spec.clone());
        member.publish();
        member
    };

    // The later version reads what today's has written, and goes on.
    let first = join(&fleet, "first");
    until_it_runs(&fleet, &first, &case).await;
    fleet.through = later;
    let second = join(&fleet, "second");
    fleet.sleep(SECOND * 3).await;
    between_ticks(&fleet).await;
    first.drain();
    first.ended().await;
    until_it_runs(&fleet, &second, &case).await;

    // Beside it, and alone: today's starts nothing by a ledger that it cannot read, and leaves it as it is.
    fleet.through = straight;
    let third = join(&fleet, "third");
    fleet.sleep(SECOND * 5).await;
    between_ticks(&fleet).await;
    second.tasks.crash();
    let left = ledger(&third).await;
    assert!(left.contains(r#""v":7"#), "{case}: {left}");
    fleet.sleep(SECOND * 12).await;
    assert_eq!(begun(&third), 0, "{case}");
    assert_eq!(ledger(&third).await, left, "{case}");
    let shown = third.client().lock("job/job").await.unwrap();
    assert_eq!(
        shown.ledger.and_then(|ledger| ledger.error).as_deref(),
        Some("the ledger has version 7, this program knows 2: update this replica"),
        "{case}"
    );

    // Whoever can read it takes over, although the other one is a candidate, too, and makes up for what was missed.
    fleet.through = later;
    let fourth = join(&fleet, "fourth");
    until_it_runs(&fleet, &fourth, &case).await;
    fleet.sleep(SECOND * 5).await;
    assert_eq!(begun(&third), 0, "{case}");
    starts.assert_once();
    let ticks = starts.ticks();
    assert!(ticks.len() > 25, "{case}: {ticks:?}");
    for pair in ticks.windows(2) {
        let gap = pair[1].duration_since(pair[0]).unsigned_abs();
        assert_eq!(gap, SECOND, "{case}: {pair:?}");
    }
}

#[test]
fn replicas_of_two_versions_start_no_tick_twice_and_lose_nothing_of_each_other() {
    for seed in seeds(number("WATCHKEEPER_SIM_SCHEDULES").unwrap_or_else(|| daily(SEEDS))) {
        for coordination in [Coordination::Leader, Coordination::Tick] {
            println!("WATCHKEEPER_SIM_SEED={seed}, {coordination}");
            play(changes_of_version(coordination, seed));
        }
    }
}

/// Presence, pauses and histories have no version: fields that are not known say nothing.
#[tokio::test(start_paused = true)]
async fn what_a_later_version_tells_and_asks_is_understood_by_todays() {
    let mut fleet = Cluster::new(3);
    let starts = Starts::default();
    // Led by the replica of today: of ledgers the other test tells.
    let today = fleet.join("today", quick(&starts), Spec::every(SECOND));
    today.publish();
    leader(&fleet, &[&today]).await;
    fleet.through = later;
    let newer = fleet.join("newer", quick(&starts), Spec::every(SECOND));
    newer.publish();
    fleet.sleep(SECOND * 5).await;
    for of in [&today, &newer] {
        let status = of.client().status().await.unwrap();
        let names: Vec<&str> = status.replicas.iter().map(|r| &*r.name).collect();
        assert_eq!(names, ["newer", "today"]);
    }
    let heard = INTERVAL * 2;
    for (paused, asker, runs) in [
        (true, &newer, false),
        (false, &today, true),
        (true, &newer, false),
    ] {
        let client = asker.client();
        let asked = client.set_paused("job", paused, "", Duration::ZERO);
        asked.await.unwrap();
        fleet.sleep(heard).await;
        let before = starts.len();
        fleet.sleep(SECOND * 10).await;
        assert_eq!(starts.len() > before, runs, "paused: {paused}");
    }
    assert!(today.leads() && begun(&newer) == 0);
    let told = today.client().history("job", 100).await.unwrap();
    assert_eq!(told.len(), starts.len());
    starts.assert_once();
}
