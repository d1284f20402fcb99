//! The configuration is changed under running workers: SIGHUP, and replicas that disagree on a job.

use std::collections::BTreeSet;

use serde_json::Value;
use watchkeeper_jobs::demo_table::{create_demo_table, unsent};

use crate::{
    beats::{Beat, starts},
    fleet::{Fleet, TTL, beat},
    log::Line,
    store::Store,
    wait::{SOON, pause, soon},
};

fn before() -> String {
    [
        beat("long", "5s", ""),
        beat("other", "300ms", ""),
        beat("each", "700ms", ""),
        beat("gone", "", ""),
    ]
    .concat()
}

fn after() -> String {
    [
        beat("long", "5s", ""),
        beat("other", "200ms", "schedule = \"@every 2s\""),
        beat("each", "700ms", "coordination = \"everywhere\""),
        beat("fresh", "", ""),
    ]
    .concat()
}

const ROWS: usize = 600;

const TABLE: &str = r#"
[worker]
mode = "failover"
[jobs.mail]
kind = "notifications"
schedule = "continuous"
coordination = "batch"
ttl = "$TTL"
params = { source = "sqlite://$FOLDER/app.db", table = "notifications", sink = "file://$FOLDER/sent", batch_size = $SIZE, rate = 40.0 }
"#;

fn one(rule: &str, work: &str) -> String {
    beat("tick", work, &format!("definition = \"{rule}\""))
}

/// A job ends, one begins, one is changed; a fourth one's run goes on meanwhile, in the same term.
pub(crate) fn a_reload_leaves_alone_what_it_does_not_change(store: Store) {
    let fleet = Fleet::of(1, store, &before());
    let beats = fleet.beats();
    let started = |job: &'static str| move |b: &Beat| b.event == "started" && b.job == job;
    let run = beats.wait(SOON, "long run", started("long"));
    beats.wait(SOON, "run of other", started("other"));
    beats.wait(SOON, "run of gone", started("gone"));
    beats.wait(SOON, "run of each", started("each"));
    let token = fleet.leader("other").token;
    fleet.configure(&after());
    let mark = fleet.log.mark();
    fleet.reload(0);
    let line = fleet.log.wait(mark, SOON, "reload", |l| {
        l.says() == "configuration reloaded"
    });
    let lists = ["added", "removed", "changed"].map(|list| line.text(list).to_owned());
    assert_eq!(lists, ["fresh", "gone", "each, other"]);
    fleet.log.wait(mark, SOON, "end of a job", |l| {
        l.is("the job has left this replica", "gone")
    });
    let gone = beats.of("gone").len();
    beats.wait(SOON, "run of fresh", started("fresh"));
    fleet.log.wait(mark, SOON, "new definition", |l| {
        l.is("goes on under its new definition", "other")
    });
    let seen = beats.of("other").len();
    soon("three runs under the new definition", || {
        beats.of("other").len() >= seen + 6
    });
    for beat in &beats.of("other")[seen + 1..] {
        assert_eq!(
            beat.tick.as_second() % 2,
            0,
            "a tick of the old schedule: {beat:?}"
        );
        assert_eq!(beat.token, token, "it keeps its term");
    }
    // Another nature: it ends, then it begins anew without a lock; never two of it at a time.
    beats.wait(SOON, "run of each without a lock", |b| {
        b.job == "each" && b.token == 0
    });
    for (n, beat) in beats.of("each").iter().enumerate() {
        assert_eq!(beat.event, ["started", "ended"][n % 2], "{beat:?}");
    }
    let same = |b: &Beat| b.event == "ended" && b.run_id == run.run_id;
    assert_eq!(
        beats.wait(SOON, "end of the long run", same).token,
        run.token
    );
    assert_eq!(beats.of("gone").len(), gone);
    // What has left is not shown as a job without a leader; nor is one that needs none.
    soon("metrics without what has left", || {
        let (_, text) = fleet.says(&fleet.page(0), "GET", "/metrics", "");
        let shows = |name: &str, job: &str| text.contains(&format!("{name}{{job=\"{job}\"}}"));
        let names = [
            "watchkeeper_leader",
            "watchkeeper_job_paused",
            "watchkeeper_fencing_token",
        ];
        shows(names[0], "fresh")
            && !shows(names[0], "each")
            && !names.iter().any(|name| shows(name, "gone"))
            && !shows("watchkeeper_job_last_success_timestamp_seconds", "gone")
    });
    for line in fleet.log.since(mark) {
        let unhurt = ["long", "other"]
            .iter()
            .all(|job| !line.is("standing by", job) && !line.is("leading", job));
        assert!(unhurt, "{line:?}");
    }
    for ((tick, attempt), times) in starts(&beats.of("other")) {
        assert_eq!(times, 1, "attempt {attempt} of tick {tick}");
    }
}

/// Every fault is said with its place and its remedy, and the worker goes on as before.
pub(crate) fn a_faulty_file_changes_nothing_and_says_why(store: Store) {
    let fleet = Fleet::of(1, store, &before());
    let beats = fleet.beats();
    let token = fleet.leader("other").token;
    let faulty = after()
        .replace("@every 2s", "@evry 2s")
        .replacen("work", "wrok", 1);
    let lines = fleet.configure(&faulty);
    let place = |word: &str| {
        let line = lines.lines().position(|line| line.contains(word)).unwrap() + 1;
        format!("fleet.toml:{line}:")
    };
    let mark = fleet.log.mark();
    fleet.reload(0);
    for word in ["@evry", "wrok"] {
        let at = place(word);
        fleet.log.wait(mark, SOON, word, |l| {
            l.text("level") == "ERROR" && l.says().contains(&at)
        });
    }
    let failed = |l: &Line| l.says().starts_with("the configuration was not reloaded");
    fleet.log.wait(mark, SOON, "failure", failed);
    let seen = beats.of("gone").len();
    soon("another run of every job", || {
        beats.of("gone").len() > seen + 2
    });
    assert_eq!(beats.of("fresh"), []);
    assert_eq!(fleet.leader("other").token, token);
    // One that is empty, as while it is being written, ends no job.
    fleet.configure("");
    let mark = fleet.log.mark();
    fleet.reload(0);
    fleet
        .log
        .wait(mark, SOON, "failure of the empty one", failed);
    assert_eq!(fleet.leader("other").token, token);
    // The same file is what the command reads.
    fleet.configure(&before());
    let reload = |fleet: &Fleet| fleet.status()["replicas"][0]["reload"].clone();
    soon("failure in the status", || reload(&fleet)["ok"] == false);
    assert!(
        reload(&fleet)["error"]
            .as_str()
            .unwrap()
            .contains("fleet.toml")
    );
    fleet.reload(0);
    soon("success in the status", || reload(&fleet)["ok"] == true);
}

/// A rolling change, the first one on a standby: it takes the job over, and keeps it while the others follow.
pub(crate) fn the_newest_definition_of_a_job_counts_during_a_rolling_change(store: Store) {
    let fleet = Fleet::of(3, store, &one("newest", "300ms"));
    let beats = fleet.beats();
    let old = fleet.leader("tick");
    beats.wait(SOON, "run", |b| b.event == "started");
    let new = (old.worker + 1) % 3;
    fleet.configure(&one("newest", "200ms"));
    let mark = fleet.log.mark();
    fleet.reload(new);
    let by_new = |l: &Line| l.is("leading", "tick") && l.worker == new;
    let led = fleet
        .log
        .wait(mark, SOON, "leader with the newest definition", by_new);
    soon("disagreement in the status", || {
        fleet.status()["jobs"][0]["definitions"]
            .as_array()
            .unwrap()
            .len()
            == 2
    });
    // Long enough for whoever would take it back.
    pause(TTL * 2);
    assert_eq!(fleet.leader("tick").worker, new);
    for worker in (0..3).filter(|worker| *worker != new) {
        fleet.reload(worker);
    }
    soon("agreement in the status", || {
        fleet.status()["jobs"][0]["definitions"]
            .as_array()
            .unwrap()
            .is_empty()
    });
    pause(TTL);
    assert_eq!(
        fleet.leader("tick").token,
        led.number("token"),
        "its term goes on"
    );
    for ((tick, attempt), times) in starts(&beats.all()) {
        assert_eq!((times, attempt), (1, 1), "tick {tick}");
    }
}

/// With `refuse` a new definition waits until all have it, also when the leader dies.
pub(crate) fn a_refused_definition_waits_until_all_replicas_have_it(store: Store) {
    let mut fleet = Fleet::of(3, store, &one("refuse", "300ms"));
    let beats = fleet.beats();
    let old = fleet.leader("tick");
    beats.wait(SOON, "run", |b| b.event == "started");
    let (new, third) = ((old.worker + 1) % 3, (old.worker + 2) % 3);
    fleet.configure(&one("refuse", "200ms"));
    let mark = fleet.log.mark();
    fleet.reload(new);
    let stands_back = |l: &Line| l.is("stands back: another definition of the job counts", "tick");
    let line = fleet
        .log
        .wait(mark, SOON, "a candidate that stands back", stands_back);
    assert_eq!(line.worker, new);
    assert!(
        line.text("why")
            .contains("bring all replicas to one definition"),
        "{line:?}"
    );
    assert_eq!(fleet.leader("tick").token, old.token, "the leader goes on");
    fleet.kill(old.worker);
    assert_eq!(fleet.next_leader(mark, "tick").worker, third);
    // The third one follows: now all that live agree, in its term.
    let mark = fleet.log.mark();
    fleet.reload(third);
    let goes_on = |l: &Line| l.is("goes on under its new definition", "tick") && l.worker == third;
    fleet.log.wait(mark, SOON, "the new definition", goes_on);
    fleet.kill(third);
    assert_eq!(
        fleet.next_leader(mark, "tick").worker,
        new,
        "it stands by again"
    );
    let last = fleet.replica(new);
    beats.wait(SOON, "run of the last one", |b| {
        b.event == "started" && b.replica == last
    });
}

/// Both replicas of a failover fleet reload while a table is sent: other cells, another lease, a job more. The active one
/// stays active and sends all rows once; the spare one has read it, too.
pub(crate) fn a_failover_fleet_reloads_under_way_and_sends_every_row_once(store: Store) {
    let mut fleet = Fleet::new(store, &table(2, false));
    let rows = fleet.file("app.db");
    create_demo_table(&rows, ROWS).unwrap();
    for _ in 0..2 {
        fleet.join();
    }
    let active = fleet.leader("replica");
    let spare = 1 - active.worker;
    let claims = |l: &Line| l.is("batch claimed", "mail") && l.worker == active.worker;
    fleet.log.wait(0, SOON, "batch", claims);
    let mut mark = 0;
    // Several times, so that some of it falls into the middle of a batch; the spare one first, then the active one.
    for size in [5, 3, 7] {
        fleet.configure(&table(size, true));
        for worker in [spare, active.worker] {
            mark = fleet.log.mark();
            fleet.reload(worker);
            let line = fleet.log.wait(mark, SOON, "reload", |l| {
                l.says() == "configuration reloaded" && l.worker == worker
            });
            assert!(line.text("changed").contains("mail"), "{line:?}");
        }
        let cells = format!("notifications/{size}/");
        fleet.log.wait(mark, SOON, "batch of the new size", |l| {
            claims(l) && l.text("batch").starts_with(&cells)
        });
    }
    assert!(
        unsent(&rows).unwrap() > 0,
        "all was sent before the last reload"
    );
    soon("end of the table", || unsent(&rows).unwrap() == 0);
    let beats = fleet.beats();
    let runs = |b: &Beat| b.event == "started" && b.job == "added";
    beats.wait(SOON, "run of the added job", runs);
    let idle = |l: &&Line| l.worker == spare && l.says() == "batch claimed";
    let lines = fleet.log.since(0);
    assert!(
        !lines.iter().any(|line| idle(&line)),
        "the spare one worked"
    );
    let by = fleet.replica(active.worker);
    assert!(beats.all().iter().all(|beat| beat.replica == by));
    let stepped_down: Vec<&Line> = lines
        .iter()
        .filter(|l| l.is("standing by", "replica") && l.worker == active.worker)
        .collect();
    assert_eq!(
        fleet.leader("replica").token,
        active.token,
        "it stays active: {stepped_down:?}"
    );
    let sent = std::fs::read_to_string(fleet.file("sent")).unwrap();
    let ids: BTreeSet<u64> = sent
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["id"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert_eq!(
        (ids.len(), sent.lines().count()),
        (ROWS, ROWS),
        "lost, or sent twice"
    );
    fleet.terminate(active.worker);
    assert!(
        fleet.wait_until_gone(active.worker),
        "a drained worker ends well"
    );
    let by = fleet.replica(spare);
    beats.wait(SOON, "run of the added job on the spare one", |b| {
        runs(b) && b.replica == by
    });
}

/// A table sent in cells of this size, or that with a longer lease and another job.
fn table(size: usize, changed: bool) -> String {
    let (ttl, more) = match changed {
        true => ("3s", beat("added", "", "")),
        false => ("2s", String::new()),
    };
    let table = TABLE.replace("$SIZE", &size.to_string());
    table.replace("$TTL", ttl) + &more
}
