//! What people ask of a fleet: pauses, triggers, resignations.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{
    acts::{Act, Starts, leader, ms, quick, slow},
    unrest::{Fault, Unrest, play, play_all},
    world::TTL,
};
use crate::{
    chance::Chance,
    clock::Moment,
    due::Misfire,
    event::Event,
    fleet::{
        FleetError, Until,
        presence::teller::write_all,
        status::{JobPresence, Presence},
    },
    intent::{self, Intent, MOST_TRIGGERS_OF_JOB, Pause, Trigger, TriggerParams, TriggerState},
    job::{Job, JobError, Outcome, Run, Spec, shard::shard},
    node::{Answer, Doc, Page, memory::Cut},
    scheduler::intents::INTERVAL,
    testing::{cluster::Cluster, members::Member},
    worker::ready::Body,
};

const SECOND: Duration = Duration::from_secs(1);
/// When all have heard of something.
const HEARD: Duration = INTERVAL.saturating_mul(2);

/// No presence documents are published here: no replica is waited for.
async fn pause(member: &Member, paused: bool) {
    let client = member.client();
    client
        .set_paused("job", paused, "", Duration::ZERO)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_paused_job_starts_nothing_and_its_ticks_are_reported() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let spec = || Spec::every(SECOND).misfire(Misfire::All);
    let a = fleet.join("a", quick(&starts), spec());
    leader(&fleet, &[&a]).await;
    fleet.sleep(SECOND * 3).await;
    pause(&a, true).await;
    fleet.sleep(HEARD).await;
    let before = starts.len();
    assert!(before > 0);
    fleet.sleep(SECOND * 30).await;
    assert_eq!(starts.len(), before);
    assert!(a.leads(), "the leader leads on");
    assert!(a.heard(|e| matches!(e, Event::TicksSkipped { why: "paused", .. })));
    pause(&a, false).await;
    fleet.sleep(SECOND * 5).await;
    let after = starts.len() - before;
    assert!(
        (2..=6).contains(&after),
        "{after} of the ticks since, none from the pause"
    );
}

#[tokio::test(start_paused = true)]
async fn all_jobs_are_paused_in_one_go_and_one_that_comes_later_is_not() {
    let fleet = Cluster::new(3);
    let job = |name: &'static str| {
        let body = Body::Job(Arc::new(quick(&Starts::default())));
        (name, body, Spec::every(SECOND))
    };
    let a = fleet.join_with("a", vec![job("job"), job("mail.0"), job("mail.1")], false);
    a.publish();
    leader(&fleet, &[&a]).await;
    fleet.sleep(HEARD).await;
    let client = a.client();
    client.pause("mail.1", "its own", SECOND * 5).await.unwrap();
    let all = client.pause_all("all move", SECOND * 5).await.unwrap();
    assert_eq!((all.changed, all.unchanged, all.left), (2, 0, 0), "{all:?}");
    assert_eq!(
        (all.heard_by.as_slice(), all.known),
        (&["a".to_owned()][..], true)
    );
    let again = client.pause_all("once more", SECOND * 5).await.unwrap();
    assert_eq!((again.changed, again.unchanged), (0, 2), "{again:?}");
    // A replica with another job joins.
    let b = fleet.join_with("b", vec![job("later")], false);
    b.publish();
    fleet.sleep(HEARD + SECOND * 5).await;
    let paused = async || {
        let shown = client.each().await.unwrap();
        let paused = shown.jobs.into_iter().filter(|job| job.paused);
        paused.map(|job| job.name).collect::<Vec<_>>()
    };
    assert_eq!(paused().await, ["job", "mail.0", "mail.1"]);
    // With that of the shard alone.
    let none = client.resume_all(SECOND * 5).await.unwrap();
    assert_eq!((none.changed, none.left), (3, 0), "{none:?}");
    assert_eq!(none.heard_by, ["a"]);
    assert_eq!(paused().await, [""; 0]);
    let none = client.resume_all(SECOND * 5).await.unwrap();
    assert_eq!(none.in_words(), "nothing was paused");
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_knows_of_a_pause_at_once() {
    for nodes in [1, 3, 5] {
        let fleet = Cluster::new(nodes);
        let starts = Starts::default();
        let a = fleet.join("a", quick(&starts), Spec::every(SECOND));
        leader(&fleet, &[&a]).await;
        pause(&a, true).await;
        fleet.sleep(HEARD).await;
        a.tasks.crash();
        let before = starts.len();
        let b = fleet.join("b", quick(&starts), Spec::every(SECOND));
        leader(&fleet, &[&b]).await;
        fleet.sleep(SECOND * 10).await;
        assert_eq!(starts.len(), before, "{nodes} nodes");
    }
}

/// Replicas write again what nodes have lost; the guard of real masters is exercised by the fleets.
#[tokio::test(start_paused = true)]
async fn a_pause_outlives_the_memory_of_every_node_one_after_the_other() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let a = fleet.join("a", quick(&starts), Spec::every(SECOND));
    leader(&fleet, &[&a]).await;
    pause(&a, true).await;
    fleet.sleep(HEARD).await;
    for node in &fleet.nodes {
        node.faults().flush();
        fleet.sleep(HEARD).await;
    }
    a.tasks.crash();
    let before = starts.len();
    let b = fleet.join("b", quick(&starts), Spec::every(SECOND));
    fleet.sleep(TTL * 3 + SECOND * 5).await;
    assert!(b.leads());
    assert_eq!(starts.len(), before);
}

#[tokio::test(start_paused = true)]
async fn a_wish_needs_a_majority() {
    let fleet = Cluster::new(3);
    let a = fleet.join("a", quick(&Starts::default()), Spec::every(SECOND));
    leader(&fleet, &[&a]).await;
    for node in &fleet.nodes[..2] {
        node.faults().partition(Cut::Refuse);
    }
    let asked = a.client().set_paused("job", true, "", Duration::ZERO).await;
    assert!(
        matches!(
            asked,
            Err(FleetError::TooFewNodes {
                answered: 1,
                nodes: 3
            })
        ),
        "{asked:?}"
    );
    let asked = a.client().ask_for_one("job").await;
    assert!(
        matches!(asked, Err(FleetError::TooFewNodes { .. })),
        "{asked:?}"
    );
}

/// As a file does that another process writes to, or two masters that are started again.
#[tokio::test(start_paused = true)]
async fn a_wish_waits_for_a_store_that_is_busy() {
    let fleet = Cluster::new(3);
    let a = fleet.join("a", quick(&Starts::default()), Spec::every(SECOND));
    leader(&fleet, &[&a]).await;
    a.publish();
    fleet.sleep(SECOND * 3).await;
    for cut in [Cut::Refuse, Cut::Hang] {
        for wish in ["pause", "trigger", "resume"] {
            for node in &fleet.nodes {
                node.faults().partition(cut);
            }
            let (client, clock) = (a.client(), fleet.clock().clone());
            let nodes = fleet.nodes.clone();
            let heals = async move {
                clock.sleep(ms(700)).await;
                nodes.iter().for_each(|node| node.faults().heal());
            };
            let asks = async {
                match wish {
                    "trigger" => client.ask_for_one("job").await.map(drop),
                    _ => client
                        .set_paused("job", wish == "pause", "", SECOND)
                        .await
                        .map(drop),
                }
            };
            let ((), asked) = futures_util::future::join(heals, asks).await;
            asked.unwrap_or_else(|error| panic!("{wish}, {cut:?}: {error}"));
            fleet.sleep(SECOND).await;
        }
    }
}

/// The store goes away as soon as an intent stands on all of its nodes.
#[tokio::test(start_paused = true)]
async fn what_is_written_is_never_said_to_have_failed() {
    for order in ["pause", "trigger", "resign", "drain"] {
        let fleet = Cluster::new(3);
        let a = fleet.join("a", quick(&Starts::default()), Spec::every(SECOND));
        leader(&fleet, &[&a]).await;
        a.publish();
        fleet.sleep(SECOND * 3).await;
        let spec = Spec::every(SECOND).enabled(false);
        let person = fleet.join("person", quick(&Starts::default()), spec);
        let client = person.client();
        // It hears of nothing.
        a.tasks.freeze();
        let cuts = async {
            let kind = format!("{}{order}.", intent::DIRECTORY);
            loop {
                let read = person.ctx.locks.doc_names(intent::DIRECTORY).await.unwrap();
                let written =
                    |(doc, nodes): &(Doc, usize)| doc.name.starts_with(&kind) && *nodes == 3;
                if read.docs.iter().any(written) {
                    break;
                }
                fleet.sleep(ms(1)).await;
            }
            for node in &fleet.nodes {
                node.faults().partition(Cut::Hang);
            }
        };
        let asks = async {
            match order {
                "pause" => client
                    .set_paused("job", true, "", SECOND)
                    .await
                    .map(|a| a.known),
                "trigger" => {
                    let asked = client.ask_for_one("job").await.unwrap();
                    let found = client.follow(asked, TriggerState::Accepted, SECOND).await;
                    Ok(found.state > TriggerState::Asked)
                }
                "resign" => client
                    .hand_over("job", None, SECOND)
                    .await
                    .map(|a| a.leader.is_some()),
                _ => client
                    .drain("a", Until::Heard, SECOND)
                    .await
                    .map(|a| a.heard),
            }
        };
        let ((), asked) = futures_util::future::join(cuts, asks).await;
        let heard = asked.unwrap_or_else(|error| panic!("{order}: {error}"));
        assert!(!heard || order == "pause", "{order}");
    }
}

/// A command that must be answered in time writes nothing once that is over.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_after_the_time_of_an_order() {
    let fleet = Cluster::new(3);
    let a = fleet.join("a", quick(&Starts::default()), Spec::every(SECOND));
    leader(&fleet, &[&a]).await;
    let late = a.client().no_later_than(fleet.clock().now(), Moment::NEVER);
    let asked = late.ask_for_one("job").await;
    assert!(matches!(asked, Err(FleetError::Late)), "{asked:?}");
    assert_eq!(a.client().outstanding(None).await.unwrap(), []);
}

/// Some of it may stand by then.
#[tokio::test(start_paused = true)]
async fn of_an_order_that_ran_out_of_time_it_is_said_whether_a_part_of_it_stands() {
    let fleet = Cluster::new(3);
    let off = Spec::every(SECOND).enabled(false);
    let person = fleet.join("person", quick(&Starts::default()), off);
    for node in &fleet.nodes {
        node.faults().delay_requests(ms(10), ms(10));
    }
    let (client, shards) = (person.client(), vec![shard("mail", 0), shard("mail", 1)]);
    let within = |time| {
        let last = fleet.clock().now() + time;
        client.clone().no_later_than(last, Moment::NEVER)
    };
    let given = TriggerParams::default();
    let hasty = within(ms(5));
    let late = hasty.ask_for_all("mail", shards.clone(), given.clone());
    let late = late.await;
    assert!(matches!(late, Err(FleetError::Late)), "{late:?}");
    assert_eq!(client.outstanding(None).await.unwrap(), []);
    let mut said = BTreeMap::<_, BTreeSet<_>>::new();
    for time in (0..120).step_by(5).map(ms) {
        for shard in &shards {
            let paused = client.set_paused(shard, true, "", Duration::ZERO);
            paused.await.unwrap();
        }
        let hasty = within(time);
        let resumed = hasty.set_paused("mail", false, "", Duration::ZERO);
        let resumed = resumed.await.map(drop);
        let names: Vec<String> = shards.iter().map(|of| intent::pause_document(of)).collect();
        let read = person.ctx.locks.docs_of(&names).await.unwrap();
        let over = |doc: &&Doc| {
            let read = Intent::from_doc(doc);
            matches!(read, Some(Intent::Pause(Pause { paused: false, .. })))
        };
        let over = read.iter().filter(over).count();
        said.entry("resume")
            .or_default()
            .insert(told(&resumed, over));

        let asked = client.ask_for_all("mail", shards.clone(), given.clone());
        let id = asked.await.unwrap().id;
        let withdrawn = within(time).withdraw(&id, Duration::ZERO).await.map(drop);
        let mut left = client.outstanding(None).await.unwrap();
        left.retain(|trigger| trigger.id == id && trigger.state == TriggerState::Withdrawing);
        let told = told(&withdrawn, left.len());
        said.entry("withdraw").or_default().insert(told);
    }
    for (order, said) in said {
        assert_eq!(
            said,
            BTreeSet::from([(0, "late"), (1, "partly"), (2, "done")]),
            "{order}"
        );
    }
}

/// How much of an order stands, and what is said of it.
fn told(given: &Result<(), FleetError>, stands: usize) -> (usize, &'static str) {
    match given {
        Ok(()) => (stands, "done"),
        Err(FleetError::Late) => (stands, "late"),
        Err(FleetError::Partly) => (stands, "partly"),
        Err(error) => panic!("{error}"),
    }
}

/// Those that are paused come last: an order that is given again gets further.
#[tokio::test(start_paused = true)]
async fn very_many_jobs_are_all_paused_in_the_end_however_little_time_an_order_has() {
    let fleet = Cluster::new(3);
    let off = Spec::every(SECOND).enabled(false);
    let person = fleet.join("person", quick(&Starts::default()), off);
    let (client, locks) = (person.client(), &person.ctx.locks);
    for node in &fleet.nodes {
        node.faults().delay_requests(ms(10), ms(10));
    }
    let jobs: Vec<String> = (0..400).map(|n| format!("j{n:03}")).collect();
    let pauses: Vec<String> = jobs.iter().map(|job| intent::pause_document(job)).collect();
    for round in 1.. {
        // What a replica says that has heard of the pauses so far.
        let read = locks.docs_of(&pauses).await.unwrap();
        let heard = |job: &String| {
            let pause = intent::pause_document(job);
            read.iter().any(|doc| doc.name == pause)
        };
        let told = jobs.iter().map(|job| JobPresence {
            name: job.clone(),
            paused: heard(job),
            ..JobPresence::default()
        });
        let presence = Presence {
            id: "h-1-x".to_owned(),
            name: "w0".to_owned(),
            jobs: told.collect(),
            rev: round,
            ..Presence::default()
        };
        write_all(locks, &presence, SECOND * 3600).await;
        let last = fleet.clock().now() + ms(200);
        let client = client.clone().no_later_than(last, last);
        let given = client.pause_all("all move", SECOND).await.unwrap();
        if given.left == 0 {
            assert_eq!(given.changed + given.unchanged, jobs.len(), "{given:?}");
            break;
        }
        assert!(given.changed > 0 && round < 100, "{round}: {given:?}");
        assert_eq!(given.unchanged, read.len(), "{given:?}");
        let why = given.why.unwrap();
        assert!(!why.contains("nothing"), "{why}");
    }
    let stand = client.pause_all("all move", SECOND).await.unwrap();
    assert_eq!((stand.changed, stand.unchanged), (0, jobs.len()));
}

#[tokio::test(start_paused = true)]
async fn a_trigger_runs_beside_no_other_run_and_in_a_pause() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let slow = slow(&starts, SECOND * 3);
    let a = fleet.join("a", slow, Spec::every(SECOND * 1000));
    leader(&fleet, &[&a]).await;
    pause(&a, true).await;
    let client = a.client();
    let first = client.ask_for_one("job").await.unwrap();
    let second = client.ask_for_one("job").await.unwrap();
    fleet.sleep(HEARD).await;
    assert_eq!(starts.len(), 1, "one after the other");
    let first = client.follow(first, TriggerState::Ended, SECOND * 10).await;
    assert_eq!(
        (first.outcome.as_str(), first.replica.as_str()),
        ("done", "a")
    );
    let second = client
        .follow(second, TriggerState::Ended, SECOND * 10)
        .await;
    assert_eq!(second.outcome, "done");
    assert_ne!(first.run_id, second.run_id);
    assert_eq!(starts.len(), 2);
}

/// Every start of a run, by the id that the ledger knows it under, as the events tell.
type Counted = Arc<Mutex<BTreeMap<(jiff::Timestamp, u32), Vec<String>>>>;

fn counted(starts: &Counted, chance: &Chance) -> impl Job + use<> {
    let (starts, chance) = (starts.clone(), chance.clone());
    Act(move |run: Run| {
        let key = (run.tick(), run.attempt());
        let who = run.facts().replica.clone();
        starts.lock().unwrap().entry(key).or_default().push(who);
        // Never nothing: two runs are told apart by their ticks.
        let work = ms(5) + chance.up_to(ms(400));
        Box::pin(async move {
            let clock = run.lease().ok_or("no lease")?.clock().clone();
            tokio::select! {
                biased;
                () = run.cancelled() => Err(JobError::from("stopped")),
                () = clock.sleep(work) => Ok(Outcome::Done),
            }
        }) as _
    })
}

/// Triggers while leaders die, freeze and drain: each is started once per attempt, and none is lost.
fn triggers(seed: u64, nodes: usize) {
    play(async move {
        let fleet = Cluster::seeded(nodes, seed);
        let (starts, chance) = (Counted::default(), Chance::seeded(seed));
        // No tick falls due meanwhile: whatever starts was triggered. The memory nodes keep their memory.
        let spec = || Spec::every(SECOND * 1_000_000).retry(20);
        let person = fleet.join("person", quick(&Starts::default()), spec().enabled(false));
        let client = person.client();
        let mut unrest = Unrest::begin(&fleet, &chance, |name| {
            fleet.join(name, counted(&starts, &chance), spec())
        });
        fleet.sleep(SECOND).await;
        let (mut asked, mut perhaps) = (Vec::<Trigger>::new(), 0);
        while fleet.time.elapsed() < SECOND * 40 {
            fleet.sleep(chance.up_to(SECOND * 2)).await;
            if chance.hits(0.6) {
                match client.ask_for_one("job").await {
                    Ok(trigger) => asked.push(trigger),
                    // It may stand on a minority.
                    Err(_) => perhaps += 1,
                }
                // Often the leader has just heard of it, or has just begun.
                fleet.sleep(chance.up_to(ms(1300))).await;
            }
            let leader = (0..3).find(|n| unrest.members[*n].leads());
            let victim = match leader {
                Some(leader) if chance.hits(0.7) => leader,
                _ => unrest.any(),
            };
            let fault = match chance.below(7) {
                0..=2 => Fault::Crash,
                3 => Fault::Freeze,
                4 => Fault::Drain,
                5 => Fault::Partition,
                _ => Fault::Calm,
            };
            unrest.hit(victim, fault);
        }
        unrest.recover(SECOND * 30).await;
        let starts = starts.lock().unwrap().clone();
        for ((tick, attempt), who) in &starts {
            assert_eq!(who.len(), 1, "{tick}, attempt {attempt}: {who:?}");
        }
        // A first attempt that was written and whose leader died at once is started as the second one.
        let runs: BTreeSet<_> = starts.keys().map(|(tick, _)| *tick).collect();
        let range = asked.len()..=asked.len() + perhaps;
        assert!(
            range.contains(&runs.len()),
            "{} runs, asked for {range:?}",
            runs.len()
        );
        for trigger in asked {
            let known = client.follow(trigger, TriggerState::Ended, SECOND).await;
            assert_eq!(known.state, TriggerState::Ended, "{known:?}");
        }
    });
}

#[test]
fn a_trigger_runs_exactly_once_also_when_the_leader_dies_at_once() {
    play_all(25, triggers);
}

/// The leader stops a second before the tick, and its successor is elected a second after it.
#[tokio::test(start_paused = true)]
async fn a_tick_between_two_leaders_fires_once() {
    for misfire in [Misfire::Once, Misfire::All] {
        let fleet = Cluster::new(3);
        let starts = Starts::default();
        let spec = || Spec::every(SECOND * 60).misfire(misfire);
        let a = fleet.join("a", quick(&starts), spec());
        leader(&fleet, &[&a]).await;
        let next = |fleet: &Cluster| {
            let now = fleet.clock().wall().as_millisecond();
            u64::try_from(60_000 - now.rem_euclid(60_000)).unwrap()
        };
        fleet.sleep(ms(next(&fleet) + 1)).await;
        let before = starts.len();
        fleet.sleep(ms(next(&fleet) - 1000)).await;
        a.drain();
        a.ended().await;
        assert_eq!(starts.len(), before);
        fleet.sleep(ms(next(&fleet)) + SECOND).await;
        let b = fleet.join("b", quick(&starts), spec());
        leader(&fleet, &[&b]).await;
        fleet.sleep(SECOND * 20).await;
        assert_eq!(starts.len(), before + 1, "{misfire:?}");
        starts.assert_once();
        let minute = |tick: &jiff::Timestamp| tick.as_second() % 60 == 0;
        assert!(starts.ticks().iter().all(minute));
    }
}

#[tokio::test(start_paused = true)]
async fn triggers_are_refused_from_the_limit_on() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    // No replica runs the job: what is asked for stays asked for.
    let person = fleet.join("person", quick(&starts), Spec::every(SECOND).enabled(false));
    let client = person.client();
    let mut asked = Vec::new();
    for n in 0..400 {
        match client.ask_for_one("job").await {
            Ok(trigger) => asked.push(trigger),
            Err(FleetError::TooManyTriggers(why)) => {
                assert_eq!(asked.len(), MOST_TRIGGERS_OF_JOB, "{n}");
                assert!(why.starts_with("job has 100 outstanding triggers"), "{why}");
                assert!(why.contains("triggers withdraw job --all"), "{why}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(
        client.outstanding(Some("job")).await.unwrap().len(),
        asked.len()
    );
    assert!(client.outstanding(Some("jo")).await.unwrap().is_empty());
    // For other jobs there is room, to the limit of all.
    for job in 0..10 {
        for _ in 0..100 {
            let asked = client.ask_for_one(&format!("j{job}")).await;
            assert_eq!(asked.is_ok(), job < 9, "{asked:?}");
        }
    }
    let why = client.ask_for_one("other").await.unwrap_err().to_string();
    assert!(
        why.starts_with("the fleet has 1000 outstanding triggers"),
        "{why}"
    );
    // Withdrawn, they make room, although no replica has heard of it.
    let withdrawn = client.withdraw_these(asked, ms(0)).await.unwrap();
    assert!(
        withdrawn
            .iter()
            .all(|t| t.state == TriggerState::Withdrawing)
    );
    client.ask_for_one("job").await.unwrap();
    // The next leader runs what was not withdrawn, once.
    let a = fleet.join("a", quick(&starts), Spec::every(SECOND * 1_000_000));
    leader(&fleet, &[&a]).await;
    fleet.sleep(SECOND * 30).await;
    assert_eq!(starts.len(), 1);
    let left = client.outstanding(Some("job")).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_trigger_is_withdrawn_before_its_start_stands_in_the_ledger_and_not_after_it() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let slow = slow(&starts, SECOND * 20);
    let a = fleet.join("a", slow, Spec::every(SECOND * 1_000_000));
    leader(&fleet, &[&a]).await;
    let client = a.client();
    for _ in 0..2 {
        client.ask_for_one("job").await.unwrap();
    }
    fleet.sleep(HEARD).await;
    assert_eq!(starts.len(), 1);
    let asked = client.outstanding(Some("job")).await.unwrap();
    let states: Vec<_> = asked.iter().map(|t| t.state).collect();
    assert_eq!(states, [TriggerState::Started, TriggerState::Accepted]);
    // As if it had not been heard yet that one of them runs.
    let unheard = asked.into_iter().map(|trigger| Trigger {
        state: TriggerState::Asked,
        ..trigger
    });
    let found = client
        .withdraw_these(unheard.collect(), SECOND * 5)
        .await
        .unwrap();
    assert_eq!(found[0].state, TriggerState::Started, "it runs");
    let second = (found[1].state, found[1].outcome.as_str());
    assert_eq!(second, (TriggerState::Ended, "withdrawn"));
    assert_eq!(found[1].detail, "by test");
    fleet.sleep(SECOND * 60).await;
    assert_eq!(starts.len(), 1);
    let first = client.follow(found[0].clone(), TriggerState::Ended, SECOND);
    assert_eq!(first.await.outcome, "done");
}

/// Leaders die, freeze and drain while triggers are withdrawn: what is said to be withdrawn never runs.
#[test]
fn what_is_said_to_be_withdrawn_never_runs() {
    for seed in 0..12 {
        play(async move {
            let fleet = Cluster::seeded(3, seed);
            let (starts, chance) = (Counted::default(), Chance::seeded(seed));
            let spec = || Spec::every(SECOND * 1_000_000).retry(20);
            let person = fleet.join("person", quick(&Starts::default()), spec().enabled(false));
            let client = person.client();
            let mut member = fleet.join("m0", counted(&starts, &chance), spec());
            let (mut withdrawn, mut rest) = (0, 0);
            for n in 1..=20 {
                fleet.sleep(chance.up_to(SECOND * 2)).await;
                let trigger = client.ask_for_one("job").await.unwrap();
                fleet.sleep(chance.up_to(ms(2500))).await;
                if chance.hits(0.4) {
                    member.tasks.crash();
                    member = fleet.join(&format!("m{n}"), counted(&starts, &chance), spec());
                }
                let found = client.withdraw_these(vec![trigger], TTL * 4).await.unwrap();
                match (found[0].state, found[0].outcome.as_str()) {
                    (TriggerState::Ended, "withdrawn") => withdrawn += 1,
                    (TriggerState::Started | TriggerState::Ended, _) => rest += 1,
                    (state, _) => panic!("seed {seed}: {state:?}"),
                }
            }
            fleet.sleep(SECOND * 60).await;
            let runs: BTreeSet<_> = starts
                .lock()
                .unwrap()
                .keys()
                .map(|(tick, _)| *tick)
                .collect();
            assert_eq!(runs.len(), rest, "seed {seed}, {withdrawn} withdrawn");
        });
    }
}

/// A node or a replica that was away for longer than the withdrawal is told still has the intent.
#[tokio::test(start_paused = true)]
async fn a_withdrawn_trigger_that_comes_back_does_not_run() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let a = fleet.join("a", quick(&starts), Spec::every(SECOND * 1_000_000));
    leader(&fleet, &[&a]).await;
    let client = a.client();
    let copy = Trigger {
        state: TriggerState::Accepted,
        ..Trigger::default()
    };
    // Withdrawn before its leader has looked.
    let trigger = client.ask_for_one("job").await.unwrap();
    let withdrawn = client.withdraw_these(vec![trigger.clone()], SECOND * 5);
    assert_eq!(withdrawn.await.unwrap()[0].outcome, "withdrawn");
    fleet.sleep(intent::NEWS_LIFETIME + SECOND * 60).await;
    let copy = Trigger {
        job: trigger.job,
        id: trigger.id,
        by: trigger.by,
        asked: trigger.asked,
        ..copy
    };
    let doc = Intent::Trigger(copy.clone()).to_doc(copy.revision());
    let left = intent::TRIGGER_LIFETIME;
    a.ctx
        .locks
        .put_doc(&doc.name, doc.rev, left, doc.body)
        .await
        .unwrap();
    fleet.sleep(SECOND * 5).await;
    assert_eq!(starts.len(), 0);
    let found = client.follow(copy, TriggerState::Ended, SECOND).await;
    assert_eq!(found.outcome, "withdrawn");
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_read_once() {
    let fleet = Cluster::new(3);
    let person = fleet.join(
        "person",
        quick(&Starts::default()),
        Spec::every(SECOND).enabled(false),
    );
    let client = person.client();
    let given =
        crate::intent::TriggerParams::read(None, &[format!("text={}", "x".repeat(4000))]).unwrap();
    for _ in 0..100 {
        client.ask_for_run("job", given.clone()).await.unwrap();
    }
    fleet.sleep(HEARD).await;
    let bytes = Arc::new(Mutex::new(0));
    for node in &fleet.nodes {
        let bytes = bytes.clone();
        node.observe(move |executed| {
            let answers = executed.result.iter().flat_map(|reply| &reply.answers);
            for answer in answers {
                if let Answer::Docs(docs) | Answer::Page(Page { docs, .. }) = answer {
                    let intents = docs.iter().filter(|doc| doc.name.starts_with("intent/"));
                    *bytes.lock().unwrap() += intents.map(|doc| doc.body.len()).sum::<usize>();
                }
            }
        });
    }
    fleet.sleep(SECOND * 60).await;
    // What it presents of itself is small, and read by others.
    assert_eq!(*bytes.lock().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn many_pauses_hide_neither_pauses_nor_triggers() {
    let fleet = Cluster::new(1);
    let starts = Starts::default();
    let spec = Spec::every(SECOND).enabled(false);
    let person = fleet.join("person", quick(&Starts::default()), spec);
    let locks = &person.ctx.locks;
    let mut jobs: Vec<String> = (0..4_100).map(|n| format!("a{n}")).collect();
    jobs.push("job".to_owned());
    for job in jobs {
        let pause = Pause {
            job,
            paused: true,
            at: fleet.clock().wall(),
            ..Pause::default()
        };
        let Doc { name, rev, body } = Intent::Pause(pause).to_doc(1 << 16);
        let put = locks.put_doc(&name, rev, intent::LIFETIME, body);
        put.await.unwrap();
    }
    let a = fleet.join("a", quick(&starts), Spec::every(SECOND));
    leader(&fleet, &[&a]).await;
    fleet.sleep(SECOND * 5).await;
    assert_eq!(starts.len(), 0, "it is paused");
    let client = person.client();
    let asked = client.ask_for_one("job").await.unwrap();
    assert_eq!(client.outstanding(None).await.unwrap().len(), 1);
    let found = client.follow(asked, TriggerState::Ended, SECOND * 5).await;
    assert_eq!(found.outcome, "done");
    // A page reads none of them: the replica knows them.
    assert_eq!(a.ctx.intents.pauses().len(), 4_101);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_told_to_resign_ends_its_run_and_another_one_leads() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let join = |name: &str| fleet.join(name, quick(&starts), Spec::every(SECOND));
    let (a, b, c) = (join("a"), join("b"), join("c"));
    let all = [&a, &b, &c];
    for member in all {
        member.publish();
    }
    for _ in 0..4 {
        let old = leader(&fleet, &all).await;
        fleet.sleep(SECOND).await;
        let answer = a
            .client()
            .hand_over("job", None, SECOND * 10)
            .await
            .unwrap();
        assert_eq!(answer.from, old.ctx.replica);
        let new = answer.leader.unwrap();
        assert_ne!(new, answer.from);
        assert!(answer.leader_token.unwrap() > answer.token);
    }
    assert!(!all.iter().any(|m| m.ended_as("cancelled")));
    starts.assert_once();
}

#[tokio::test(start_paused = true)]
async fn a_job_goes_to_the_replica_that_was_named() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let join = |name: &str| fleet.join(name, quick(&starts), Spec::every(SECOND));
    let all = [join("a"), join("b"), join("c"), join("d")];
    all.iter().for_each(Member::publish);
    let all: Vec<&Member> = all.iter().collect();
    for to in ["b", "d", "a", "c", "b"] {
        let old = leader(&fleet, &all).await.ctx.replica.clone();
        fleet.sleep(SECOND).await;
        if old == to {
            continue;
        }
        let answer = all[0]
            .client()
            .hand_over("job", Some(to), SECOND * 20)
            .await
            .unwrap();
        assert_eq!(answer.leader.as_deref(), Some(to), "{answer:?}");
    }
    starts.assert_once();
}

#[tokio::test(start_paused = true)]
async fn a_job_handed_to_a_dead_replica_goes_to_another_one() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let join = |name: &str| fleet.join(name, quick(&starts), Spec::every(SECOND));
    let a = join("a");
    leader(&fleet, &[&a]).await;
    let (b, c) = (join("b"), join("c"));
    for member in [&a, &b, &c] {
        member.publish();
    }
    fleet.sleep(SECOND).await;
    b.tasks.crash();
    let answer = c
        .client()
        .hand_over("job", Some("b"), SECOND * 30)
        .await
        .unwrap();
    assert!(
        matches!(answer.leader.as_deref(), Some("a" | "c")),
        "{answer:?}"
    );
}
