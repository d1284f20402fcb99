//! The queue of writings, on a store that does not always answer.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::{live::EVERY, live_runs::AT_ONCE, write::TOGETHER, *};
use crate::{
    chance::Chance,
    fleet::{
        client::runs,
        terms::{self as fleet_terms, TermRecord},
    },
    job::RunFacts,
    node::{
        Node, Op, Token,
        memory::{Cut, MemoryNode},
    },
    sim_clock::SimTime,
    status::runs::{LIVE_LIFETIME, LiveText},
};

fn history() -> (History, MemoryNode, SimTime) {
    let time = SimTime::new();
    let node = MemoryNode::simulated("m", time.clock(), Spawn::system(), Chance::seeded(1));
    let nodes: Vec<Arc<dyn Node>> = vec![Arc::new(node.clone())];
    let locks = Locks::over(nodes)
        .clock(time.clock())
        .chance(Chance::seeded(2))
        .keeper_here(Spawn::system());
    let author = Author {
        id: "a-1".to_owned(),
        name: "a".to_owned(),
        ring: "a".to_owned(),
    };
    let locks = locks.start().unwrap();
    let history = History::new(locks, time.clock(), Spawn::system(), author);
    (history, node, time)
}

fn run(clock: &Clock) -> Run {
    let facts = RunFacts {
        job: "job".to_owned(),
        id: "id".to_owned(),
        tick: clock.wall(),
        attempt: 1,
        replica: "a-1".to_owned(),
        batch: None,
        shard: 0,
        shards: 1,
        params: serde_json::Value::Null,
        checkpoint: None,
    };
    Run::new(facts, clock.clone(), None, Duration::ZERO, Moment::NEVER)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_costs_a_bounded_queue_and_the_newest_wins() {
    let (history, node, time) = history();
    node.faults().partition(Cut::Hang);
    let run = run(&time.clock());
    let now = (time.clock().now(), time.clock().wall());
    for seq in 1..=5000 {
        history.started(&run, seq, now).ended(&run, &Ended::Done);
    }
    assert!(history.waiting().writings.len() <= MAX_WAITING);
    let began = time.clock().now();
    history.flush(Duration::from_secs(1)).await;
    let waited = time.clock().now().since(began);
    assert!(waited <= Duration::from_millis(1100), "{waited:?}");

    node.faults().heal();
    history.flush(Duration::from_secs(60)).await;
    let locks = &history.0.locks;
    let docs = locks.docs("history/job/").await.unwrap();
    let mut seqs: Vec<u64> = docs.iter().map(|d| RunRecord::attempt_of(d.rev)).collect();
    seqs.sort_unstable();
    assert!(seqs.len() <= MAX_WAITING + TOGETHER, "{seqs:?}");
    assert_eq!(seqs.last(), Some(&5000));
    // Written once for both states: the later one was known before the first was sent.
    let last = docs.iter().find(|d| d.rev / 4 == 5000).unwrap();
    assert!(last.body.contains("\"done\""), "{}", last.body);
}

/// Otherwise a replica that dies a moment later takes with it what it has done in a whole second.
#[tokio::test(start_paused = true)]
async fn what_a_late_store_did_not_take_is_told_soon_after() {
    let (history, node, time) = history();
    node.faults().partition(Cut::Hang);
    let run = run(&time.clock());
    history.started(&run, 1, (time.clock().now(), time.clock().wall()));
    time.clock().sleep(Duration::from_millis(100)).await;
    node.faults().heal();
    history.flush(Duration::from_millis(400)).await;
    let docs = history.0.locks.docs("history/job/").await.unwrap();
    assert_eq!(docs.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_has_to_be_tried_again_keeps_no_other_writing_waiting() {
    let (history, node, time) = history();
    let clock = time.clock();
    let run = run(&clock);
    let start = |seq| history.started(&run, seq, (clock.now(), clock.wall()));
    node.faults().partition(Cut::Hang);
    start(1);
    // Long enough for it to pause for a whole second.
    clock.sleep(Duration::from_millis(1_800)).await;
    node.faults().heal();
    while history.0.locks.docs("history/job/").await.is_err() {
        clock.sleep(Duration::from_millis(10)).await;
    }
    for seq in 2..=10 {
        start(seq);
        clock.sleep(Duration::from_millis(70)).await;
        let docs = history.0.locks.docs("history/job/").await.unwrap();
        let told = |seq| docs.iter().any(|d| RunRecord::attempt_of(d.rev) == seq);
        assert!(told(seq), "{seq}");
        if seq == 2 {
            assert!(!told(1), "it pauses");
        }
    }
    history.flush(Duration::from_secs(2)).await;
    let docs = history.0.locks.docs("history/job/").await.unwrap();
    assert_eq!(docs.len(), 10);
}

/// The texts of runs in flight that the store has.
async fn live(history: &History) -> Vec<String> {
    let docs = history.0.locks.docs("live/job/").await.unwrap();
    let texts = docs.iter().filter_map(|doc| LiveText::of_run("id", doc));
    texts.collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_run_leaves_is_shown_while_it_goes_on() {
    let (history, _node, time) = history();
    let clock = time.clock();
    let run = run(&clock);
    let entry = history.started(&run, 7, (clock.now(), clock.wall()));
    let shown = async || {
        let runs = runs::last(&history.0.locks, "job", 9).await.unwrap();
        (runs[0].outcome.clone(), runs[0].output.clone())
    };
    clock.sleep(EVERY * 3).await;
    assert!(live(&history).await.is_empty(), "it has left nothing");
    for text in ["one\n", "one\ntwo\n"] {
        run.keep_output(text);
        clock.sleep(EVERY + Duration::from_millis(100)).await;
        assert_eq!(shown().await, (RUNNING.to_owned(), Some(text.to_owned())));
    }
    // It says no more for longer than what was told stays.
    clock.sleep(LIVE_LIFETIME * 3).await;
    assert_eq!(live(&history).await, ["one\ntwo\n"]);
    run.keep_output("all");
    entry.ended(&run, &Ended::Done);
    history.flush(Duration::from_secs(1)).await;
    assert_eq!(shown().await, ("done".to_owned(), Some("all".to_owned())));
    // Nothing is told of it any more.
    clock.sleep(LIVE_LIFETIME * 2).await;
    assert!(live(&history).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn however_many_runs_leave_text_few_of_it_is_told_at_a_time() {
    let (history, _node, time) = history();
    let clock = time.clock();
    let many: Vec<(Run, Entry)> = (1..=40)
        .map(|seq| {
            let run = run(&clock);
            let entry = history.started(&run, seq, (clock.now(), clock.wall()));
            (run, entry)
        })
        .collect();
    let leave = |text: &str| many.iter().for_each(|(run, _)| run.keep_output(text));
    leave("one");
    clock.sleep(Duration::from_millis(100)).await;
    for told in [AT_ONCE, AT_ONCE * 2, 40] {
        clock.sleep(EVERY).await;
        assert_eq!(live(&history).await.len(), told);
        // Those that have been told have something new, and wait for their turn.
        leave("two");
    }
    let told = live(&history).await;
    assert!(told.contains(&"two".to_owned()), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn records_of_batches_go_on_behind_those_of_an_earlier_process() {
    let (history, node, time) = history();
    let batches = |done| RunRecord {
        job: "job".to_owned(),
        token: Some(Token(7)),
        batches: Some(crate::status::runs::BatchCounts {
            done,
            ..Default::default()
        }),
        ..RunRecord::default()
    };
    for done in 1..=3 {
        history.batch(batches(done));
    }
    history.flush(Duration::from_secs(1)).await;
    let successor = History::new(
        history.0.locks.clone(),
        time.clock(),
        Spawn::system(),
        history.0.author.clone(),
    );
    // The store does not answer at first: the number is asked for again, and given once.
    node.faults().partition(Cut::Hang);
    successor.batch(batches(4));
    successor.flush(Duration::from_secs(2)).await;
    node.faults().heal();
    successor.flush(Duration::from_secs(60)).await;
    let docs = successor.0.locks.docs("history/job/").await.unwrap();
    let mut found: Vec<(u64, u64)> = docs
        .iter()
        .filter_map(|doc| RunRecord::from_doc("job", doc))
        .map(|record| (record.seq, record.batches.unwrap().done))
        .collect();
    found.sort_unstable();
    assert_eq!(found, [(1, 1), (2, 2), (3, 3), (4, 4)]);
}

#[tokio::test(start_paused = true)]
async fn two_replicas_without_names_on_one_machine_lose_no_record_of_batches() {
    let (first, _node, time) = history();
    let author = Author {
        id: "a-2".to_owned(),
        name: "a-2".to_owned(),
        ..first.0.author.clone()
    };
    let second = History::new(first.0.locks.clone(), time.clock(), Spawn::system(), author);
    for n in 0..20 {
        for history in [&first, &second] {
            // Some at a time, and the second is ahead or behind.
            for _ in 0..=n % 3 {
                history.batch(RunRecord {
                    job: "job".to_owned(),
                    token: Some(Token(7)),
                    batch: Some(format!("{n}")),
                    ..RunRecord::default()
                });
            }
        }
        first.flush(Duration::from_secs(60)).await;
        second.flush(Duration::from_secs(60)).await;
    }
    let docs = first.0.locks.docs("history/job/").await.unwrap();
    let count = |id: &str| {
        let found = docs
            .iter()
            .filter_map(|doc| RunRecord::from_doc("job", doc));
        found.filter(|record| record.replica == id).count()
    };
    assert_eq!((count("a-1"), count("a-2")), (39, 39));
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_it_is_written_again() {
    let (history, _node, time) = history();
    let run = run(&time.clock());
    let now = (time.clock().now(), time.clock().wall());
    for seq in 1..=3 {
        let entry = history.started(&run, seq, now);
        history.flush(Duration::from_secs(1)).await;
        run.keep_output(format!("run {seq}"));
        entry.ended(&run, &Ended::Skipped("why".repeat(1000)));
        history.flush(Duration::from_secs(1)).await;
        let name = format!("history/job/a-{seq:02}");
        let doc = history.0.locks.doc(&name);
        let record = RunRecord::from_doc("job", &doc.await.unwrap().unwrap()).unwrap();
        assert_eq!((record.outcome.as_str(), record.seq), ("skipped", seq));
        assert!(record.detail.len() <= MAX_DETAIL, "{}", record.detail);
        let name = format!("output/job/a-{seq:02}");
        let output = history.0.locks.doc(&name);
        assert_eq!(output.await.unwrap().unwrap().body, format!("run {seq}"));
    }
}

/// The terms that are told of the job, and how often any was told since the last call.
async fn terms_of(history: &History, tellings: &AtomicUsize) -> (Vec<TermRecord>, usize) {
    let doc = history.0.locks.doc("terms/job").await.unwrap();
    let terms = doc.as_ref().and_then(fleet_terms::read).unwrap_or_default();
    (terms, tellings.swap(0, Ordering::SeqCst))
}

/// Counts how often terms are told.
fn tellings(node: &MemoryNode) -> Arc<AtomicUsize> {
    let tellings = Arc::new(AtomicUsize::new(0));
    let seen = tellings.clone();
    node.observe(move |executed| {
        let ops = executed.call.ops.iter();
        let told = ops.filter(|op| matches!(op, Op::PutDoc { name, .. } if name == "terms/job"));
        seen.fetch_add(told.count(), Ordering::SeqCst);
    });
    tellings
}

#[tokio::test(start_paused = true)]
async fn a_term_is_told_twice_however_long_it_lasts() {
    let (history, node, time) = history();
    let tellings = tellings(&node);
    let gap = Some(Duration::from_secs(3));
    let term = history.term_began("job", Token(7), gap);
    time.clock().sleep(Duration::from_secs(3600)).await;
    let (terms, told) = terms_of(&history, &tellings).await;
    assert_eq!((terms.len(), told), (1, 1));
    assert_eq!(
        (terms[0].leaderless_ms, terms[0].ended),
        (Some(3_000), None)
    );
    term.ended("unfit", "the disk is full".to_owned());
    history.flush(Duration::from_secs(60)).await;
    let (terms, told) = terms_of(&history, &tellings).await;
    assert_eq!((terms.len(), told), (1, 1));
    let lasted = terms[0].ended.unwrap().duration_since(terms[0].began);
    assert!((3599..=3601).contains(&lasted.as_secs()), "{lasted}");
    assert_eq!(
        (terms[0].why.as_str(), terms[0].detail.as_str()),
        ("unfit", "the disk is full")
    );
    // One that is over at once is told once.
    history
        .term_began("job", Token(8), None)
        .ended("drained", String::new());
    history.flush(Duration::from_secs(60)).await;
    time.clock().sleep(Duration::from_secs(60)).await;
    let (terms, told) = terms_of(&history, &tellings).await;
    assert_eq!((terms.len(), told), (2, 1));
}

/// Ten thousand of them would else keep a worker busy for a quarter of a minute.
#[tokio::test(start_paused = true)]
async fn terms_that_begin_together_share_their_calls() {
    let (history, node, time) = history();
    // Else all answers would come at the same instants, and so would the next questions.
    node.faults()
        .delay_replies(Duration::ZERO, Duration::from_millis(5));
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = calls.clone();
    node.observe(move |executed| {
        let of_terms = |op: &Op| match op {
            Op::Doc { name } | Op::PutDoc { name, .. } => name.starts_with("terms/"),
            _ => false,
        };
        let counts = executed.call.ops.iter().any(of_terms);
        seen.fetch_add(usize::from(counts), Ordering::SeqCst);
    });
    let job = |n: usize| format!("job-{}", n % 900);
    // Of some jobs two terms: what one tells must not be lost to the other.
    let begin = |n| history.term_began(&job(n), Token(1 + n as u64), None);
    let terms: Vec<_> = (0..1000).map(begin).collect();
    time.clock().sleep(Duration::from_secs(60)).await;
    let told = calls.swap(0, Ordering::SeqCst);
    assert!(told < 200, "{told} calls");
    for n in 0..900 {
        let name = fleet_terms::document(&job(n));
        let doc = history.0.locks.doc(&name).await.unwrap().unwrap();
        let known = fleet_terms::read(&doc).unwrap();
        assert_eq!(known.len(), if n < 100 { 2 } else { 1 }, "{n}");
    }
    drop(terms);
}

#[tokio::test(start_paused = true)]
async fn a_successor_keeps_what_its_predecessor_told() {
    let (first, node, time) = history();
    let tellings = tellings(&node);
    let author = Author {
        id: "b-2".to_owned(),
        name: "b".to_owned(),
        ..first.0.author.clone()
    };
    let second = History::new(first.0.locks.clone(), time.clock(), Spawn::system(), author);
    let settled = async || time.clock().sleep(Duration::from_secs(10)).await;
    let term = first.term_began("job", Token(7), None);
    settled().await;
    // Handed over: the end and the next beginning are one instant.
    term.ended("resigned", String::new());
    let next = second.term_began("job", Token(9), None);
    settled().await;
    let words = |terms: &[TermRecord]| -> Vec<(u64, String, String)> {
        let words = terms.iter();
        words
            .map(|term| (term.token.0, term.name.clone(), term.why.clone()))
            .collect()
    };
    let word = |token, name: &str, why: &str| (token, name.to_owned(), why.to_owned());
    let (terms, _) = terms_of(&first, &tellings).await;
    assert_eq!(words(&terms), [word(7, "a", "resigned"), word(9, "b", "")]);
    // What is told too late is told all the same, and takes nothing away.
    let last = first.term_began("job", Token(11), None);
    settled().await;
    next.ended("expired", String::new());
    settled().await;
    last.ended("drained", String::new());
    settled().await;
    let (terms, _) = terms_of(&first, &tellings).await;
    assert_eq!(
        words(&terms),
        [
            word(7, "a", "resigned"),
            word(9, "b", "expired"),
            word(11, "a", "drained"),
        ]
    );
    // A store that does not answer for a while loses no end.
    let term = first.term_began("job", Token(13), None);
    settled().await;
    node.faults().partition(Cut::Refuse);
    term.ended("expired", String::new());
    time.clock().sleep(Duration::from_secs(1)).await;
    node.faults().heal();
    first.flush(Duration::from_secs(60)).await;
    let (terms, _) = terms_of(&first, &tellings).await;
    assert_eq!(terms.last().unwrap().why, "expired");
}
