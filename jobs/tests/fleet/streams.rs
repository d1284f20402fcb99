//! Streams handled by several workers, some of which die: each message once. Costs about 20 seconds, two cases at a time, and 5 on each
//! further store of locks.

use std::{collections::BTreeMap, time::Duration};

use tokio::runtime::Runtime;
use watchkeeper::{clock::Clock, spawn::Spawn};
use watchkeeper_jobs::receiver::{Faults, Receiver, Tally};

use crate::{
    fleet::Fleet,
    log::Line,
    mail::still_growing,
    server::RedisServer,
    store::Store,
    wait::{SOON, pause, soon},
};

/// Messages that a worker handles at once.
const AT_ONCE: u64 = 16;

/// A stream on a server of its own, a receiver, and a fleet without workers yet.
struct Scene {
    fleet: Fleet,
    server: RedisServer,
    receiver: Receiver,
    runtime: Runtime,
}

impl Scene {
    /// `more` are further parameters; `$SINK` stands for the receiver.
    fn new(store: Store, more: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let receiver = runtime.block_on(Receiver::start(&Spawn::system())).unwrap();
        let server = RedisServer::start();
        let more = more.replace("$SINK", &format!("sink = \"{}\"", receiver.url()));
        let config = format!(
            r#"
[jobs.orders]
kind = "stream"
schedule = "continuous"
coordination = "batch"
retry = {{ backoff = "100ms" }}
params = {{ url = "{}", stream = "orders", retention = "1h", {more} }}
"#,
            server.url()
        );
        let fleet = Fleet::new(store, &config);
        Self {
            fleet,
            server,
            receiver,
            runtime,
        }
    }

    fn start(&mut self, workers: usize) {
        for _ in 0..workers {
            self.fleet.start();
        }
    }

    /// Adds so many messages with different ids.
    fn add(&self, messages: u64) {
        const ADD: &str =
            "for i = 1, tonumber(ARGV[1]) do redis.call('XADD', KEYS[1], '*', 'order', i) end";
        let count = messages.to_string();
        self.server.raw(&["EVAL", ADD, "1", "orders", &count]);
    }

    /// Waits until this is so of what was received.
    fn wait_for(&self, wanted: impl FnMut(&Tally) -> bool) -> Tally {
        let mut tally = self.receiver.watch();
        self.runtime.block_on(async {
            let limit = SOON * 2;
            let seen = Clock::system().timeout(limit, tally.wait_for(wanted)).await;
            match seen {
                Ok(seen) => seen.unwrap().clone(),
                Err(_) => panic!("not within {limit:?}: {:?}", self.counts()),
            }
        })
    }

    /// Requests, items that were accepted, repeats.
    fn counts(&self) -> [u64; 3] {
        let tally = self.receiver.tally();
        [tally.requests, tally.accepted, tally.repeats_recognised]
    }

    /// So many messages came twice: what was under way in workers that were killed, or in one whose claim was lost, which a busy
    /// machine does.
    fn explains(&self, repeats: u64, killed: u64) {
        let lost = |l: &Line| l.is("batch ended", "orders") && l.text("outcome") != "done";
        let lost = self.fleet.log.since(0).iter().filter(|l| lost(l)).count();
        let most = killed * AT_ONCE + u64::try_from(lost).unwrap();
        assert!(repeats <= most, "{repeats} repeats, {lost} claims lost");
    }

    /// Kills the worker that was started first, and starts another.
    fn replace_one(&mut self) {
        let first = self.fleet.workers()[0];
        self.fleet.kill(first);
        self.fleet.start();
    }

    /// How many messages the group waits for.
    fn pending(&self) -> u64 {
        let said = self.server.raw(&["XPENDING", "orders", "shop"]);
        let count = said.lines().nth(1).and_then(|line| line.strip_prefix(':'));
        count
            .and_then(|count| count.parse().ok())
            .expect("a number")
    }

    /// Waits for a worker that cannot read the stream, and says why.
    fn trouble(&self, mark: usize, why: &str) {
        let told = |line: &Line| {
            line.is("cannot look for batches", "orders") && line.text("why").contains(why)
        };
        self.fleet.log.wait(mark, SOON, why, told);
    }
}

/// All readers read all of it; four of them die meanwhile. A reader that comes late finds everything done.
pub(crate) fn readers_that_are_killed_lose_and_double_nothing(store: Store) {
    const MESSAGES: u64 = 2_000;
    const KILLED: u64 = 4;
    let mut scene = Scene::new(store, "$SINK");
    scene.add(MESSAGES);
    scene.start(5);
    for n in 1..=KILLED {
        scene.wait_for(|t| t.requests >= MESSAGES * n / (KILLED + 1));
        scene.replace_one();
    }
    let tally = scene.wait_for(|t| t.accepted == MESSAGES);
    assert_eq!(tally.accepted_twice, 0);
    let repeats = tally.repeats_recognised;
    scene.fleet.measured("repeats after kills", &repeats);
    scene.explains(repeats, KILLED);
    for worker in scene.fleet.workers() {
        scene.fleet.wait_until_ready(worker);
        scene.fleet.terminate(worker);
        assert!(scene.fleet.wait_until_gone(worker), "it ends well");
    }
    let before = scene.receiver.tally().requests;
    scene.add(1);
    scene.start(1);
    let tally = scene.wait_for(|t| t.accepted == MESSAGES + 1);
    // It has read the others first, or beside it: whatever is left to do would be asked for by now.
    assert_eq!(tally.requests, before + 1, "all others were done");
}

/// One of three stands still for longer than its leases last, with messages under way; the others handle them, and it harms nothing
/// when it goes on.
pub(crate) fn a_reader_that_is_frozen_past_its_leases_doubles_nothing(store: Store) {
    const MESSAGES: u64 = 600;
    let mut scene = Scene::new(store, "$SINK");
    // No answer comes: each reader has messages under way.
    scene.receiver.behave(Faults {
        hang_next: MESSAGES,
        ..Faults::default()
    });
    scene.add(MESSAGES);
    scene.start(3);
    let under_way = |worker: usize| {
        let lines = scene.fleet.log.since(0);
        let count = |says| {
            let of_it = |l: &&Line| l.worker == worker && l.is(says, "orders");
            lines.iter().filter(of_it).count()
        };
        count("batch claimed") > count("batch ended")
    };
    let workers = scene.fleet.workers();
    let all_are_busy = || workers.iter().all(|worker| under_way(*worker));
    soon("message claimed by each", all_are_busy);
    // All that was claimed is sent before one stands still.
    while still_growing(|| scene.receiver.tally().requests) {}
    let frozen = workers[0];
    scene.fleet.freeze(frozen);
    scene.receiver.behave(Faults::default());
    scene.receiver.release();
    scene.wait_for(|t| t.accepted == MESSAGES);
    // What the frozen one had under way is handled by another.
    scene.wait_for(|t| t.repeats_recognised > 0);
    scene.fleet.thaw(frozen);
    scene.add(30);
    scene.wait_for(|t| t.accepted == MESSAGES + 30);
    for worker in scene.fleet.workers() {
        scene.fleet.terminate(worker);
        let ends_well = scene.fleet.wait_until_gone(worker);
        // One that cannot end what it had under way before its lease would be over aborts, as it should.
        assert!(ends_well || worker == frozen, "it ends well");
    }
    let tally = scene.receiver.tally();
    let repeats = tally.repeats_recognised;
    scene.fleet.measured("repeats after a freeze", &repeats);
    assert_eq!(tally.accepted_twice, 0);
    scene.explains(repeats, 1);
}

/// For figures: a long stream, into a file. What is there twice was under way in a worker that was killed.
pub(crate) fn fifty_thousand_messages_are_handled_once_by_five_readers(store: Store) {
    const MESSAGES: usize = 50_000;
    const KILLED: usize = 10;
    let mut scene = Scene::new(store, "sink = \"file://$FOLDER/handled\"");
    scene.add(u64::try_from(MESSAGES).unwrap());
    scene.start(5);
    let file = scene.fleet.file("handled");
    let handled = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let mut keys: BTreeMap<String, usize> = BTreeMap::new();
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let key = line["idempotency_key"].as_str().unwrap().to_owned();
            *keys.entry(key).or_default() += 1;
        }
        keys
    };
    let clock = Clock::system();
    let mut done = 0;
    for n in 1..=KILLED + 1 {
        let wanted = MESSAGES * n / (KILLED + 1);
        let limit = clock.now() + SOON * 5;
        while done < wanted {
            assert!(clock.now() < limit, "{done} of {wanted}");
            pause(Duration::from_millis(500));
            done = handled().len();
        }
        scene.fleet.measured("messages", &done);
        if n <= KILLED {
            scene.replace_one();
        }
    }
    let keys = handled();
    let repeats: usize = keys.values().map(|times| times - 1).sum();
    scene
        .fleet
        .measured("messages, repeats", &(keys.len(), repeats));
    assert_eq!(keys.len(), MESSAGES);
    scene.explains(
        u64::try_from(repeats).unwrap(),
        u64::try_from(KILLED).unwrap(),
    );
}

/// Members that die leave what they were dealt to the others, also what they had not begun.
pub(crate) fn messages_of_dead_members_are_taken_over(store: Store) {
    const MESSAGES: u64 = 300;
    let more = "$SINK, mode = \"group\", group = \"shop\", take_over_after = \"1s\"";
    let mut scene = Scene::new(store, more);
    // No answer comes: each member holds what it was dealt.
    scene.receiver.behave(Faults {
        hang_next: MESSAGES,
        ..Faults::default()
    });
    scene.start(3);
    scene.add(MESSAGES);
    scene.wait_for(|t| t.requests >= AT_ONCE * 2);
    scene.replace_one();
    scene.receiver.behave(Faults::default());
    scene.receiver.release();
    let tally = scene.wait_for(|t| t.accepted == MESSAGES);
    assert_eq!(tally.accepted_twice, 0);
    soon("group without pending messages", || scene.pending() == 0);
    let repeats = scene.receiver.tally().repeats_recognised;
    scene.explains(repeats, 1);
}

/// Messages are taken over while their members are slow; the claim keeps the successors waiting.
pub(crate) fn a_slow_member_and_its_successor_do_not_both_handle_a_message(store: Store) {
    const MESSAGES: u64 = 90;
    let more = "$SINK, mode = \"group\", group = \"shop\", take_over_after = \"200ms\"";
    let mut scene = Scene::new(store, more);
    scene.receiver.behave(Faults {
        delay: Duration::from_secs(1),
        ..Faults::default()
    });
    scene.start(3);
    scene.add(MESSAGES);
    scene.wait_for(|t| t.accepted == MESSAGES);
    soon("group without pending messages", || scene.pending() == 0);
    let taken_over = |l: &Line| l.is("messages taken over", "orders");
    scene
        .fleet
        .log
        .wait(0, SOON, "messages that are taken over", taken_over);
    let repeats = scene.receiver.tally().requests - MESSAGES;
    scene.explains(repeats, 0);
}

/// What fails again and again goes aside, with its reason; the others are done.
pub(crate) fn a_poison_message_goes_to_the_dead_list_and_holds_up_no_other(store: Store) {
    const MESSAGES: u64 = 20;
    const SHELL: &str = r#"case "$WATCHKEEPER_MESSAGE" in *poison*) echo no such order; exit 1;; esac; echo "$WATCHKEEPER_MESSAGE_ID" >> done"#;
    let more = format!("attempts = 3, exec = {{ command = [\"sh\", \"-c\", '''{SHELL}'''] }}");
    let mut scene = Scene::new(store, &more);
    scene.server.raw(&["XADD", "orders", "*", "kind", "poison"]);
    scene.add(MESSAGES);
    scene.start(2);
    soon("dead message", || {
        scene.server.raw(&["XLEN", "orders:dead"]).starts_with(":1")
    });
    let dead = scene.server.raw(&["XRANGE", "orders:dead", "-", "+"]);
    for part in [
        "exit status 1: no such order",
        "attempts\r\n$1\r\n3",
        "poison",
    ] {
        assert!(dead.contains(part), "{part}: {dead}");
    }
    let file = scene.fleet.file("done");
    let lines = || std::fs::read_to_string(&file).unwrap_or_default();
    soon("other messages", || {
        u64::try_from(lines().lines().count()) == Ok(MESSAGES)
    });
}

/// A server that is flushed, holds something else, is away, or comes back empty ends nothing. In both modes.
pub(crate) fn a_stream_that_is_lost_and_comes_back_is_read_on(store: Store) {
    let another = store.another();
    // Members look for messages of others all the time, also while the server is away.
    let group = "$SINK, mode = \"group\", group = \"shop\", take_over_after = \"200ms\"";
    for (store, more) in [(store, "$SINK"), (another, group)] {
        let mut scene = Scene::new(store, more);
        scene.start(1);
        scene.add(10);
        scene.wait_for(|t| t.accepted == 10);
        scene.server.raw(&["FLUSHALL"]);
        scene.add(10);
        scene.wait_for(|t| t.accepted == 20);
        let mark = scene.fleet.log.mark();
        scene.server.raw(&["SET", "orders", "seven"]);
        scene.trouble(mark, "holds something else");
        soon("trouble in the status", || {
            let status = scene.fleet.status().to_string();
            status.contains("holds something else")
        });
        scene.server.raw(&["DEL", "orders"]);
        scene.add(10);
        scene.wait_for(|t| t.accepted == 30);
        let mark = scene.fleet.log.mark();
        scene.server.kill();
        scene.trouble(mark, "");
        scene.server.restart();
        scene.add(10);
        let tally = scene.wait_for(|t| t.accepted == 40);
        scene.explains(tally.requests - 40, 0);
    }
}

/// What is left of a stream is shown where that of a table is: in the status, and as a metric. In both modes.
pub(crate) fn what_is_left_of_a_stream_is_shown_as_its_backlog(store: Store) {
    const MESSAGES: u64 = 300;
    const READ: u64 = 100;
    let another = store.another();
    let group = "$SINK, read_ahead = 100, mode = \"group\", group = \"shop\"";
    for (store, more) in [(store, "$SINK, read_ahead = 100"), (another, group)] {
        let mut scene = Scene::new(store, more);
        // No answer comes, so that nothing is done.
        scene.receiver.behave(Faults {
            hang_next: MESSAGES,
            ..Faults::default()
        });
        scene.add(MESSAGES);
        let said = scene.server.raw(&["XINFO", "STREAM", "orders"]);
        // A server before 7.0 counts what was dealt out, and says no more than that there is more.
        let counts = said.contains("entries-added");
        let is_all = |left: u64| match counts {
            true => left == MESSAGES,
            false => left > READ,
        };
        scene.start(1);
        scene.fleet.wait_until_ready(0);
        let left = || scene.fleet.status()["jobs"][0]["backlog"].as_u64();
        soon("backlog", || left().is_some_and(is_all));
        let page = scene.fleet.page(0);
        let (_, metrics) = scene.fleet.says(&page, "GET", "/metrics", "");
        let metric = "watchkeeper_notification_backlog{job=\"orders\"} ";
        let told = metrics.lines().find_map(|line| line.strip_prefix(metric));
        let told = told.and_then(|number| number.trim().parse::<u64>().ok());
        assert!(told.is_some_and(is_all), "{metrics}");
        scene.receiver.behave(Faults::default());
        scene.receiver.release();
        scene.wait_for(|t| t.accepted == MESSAGES);
        soon("end of the backlog", || left() == Some(0));
    }
}
