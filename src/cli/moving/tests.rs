use std::{sync::Arc, time::Duration};

use super::{arrival::floor, left::Left, *};
use crate::{
    intent::{self, Intent, Pause, Trigger, TriggerState},
    ledger::Ledger,
    lock::Locks,
    node::{
        Answer, Expiry, GuardSettings, Kind, Node, NodeError, Op, Record, RestartGuard, Take,
        memory::{MemoryNode, NodeState},
    },
    sim_clock::SimTime,
    spawn::Spawn,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A store of three nodes.
struct Store(Vec<MemoryNode>);

impl Store {
    fn new() -> Self {
        let node = |n| MemoryNode::new(format!("n{n}"), Clock::system());
        Self((1..=3).map(node).collect())
    }

    fn nodes(&self) -> Vec<Arc<dyn Node>> {
        let node = |node: &MemoryNode| Arc::new(node.clone()) as Arc<dyn Node>;
        self.0.iter().map(node).collect()
    }

    fn raw(&self) -> RawNodes {
        RawNodes {
            nodes: self.nodes(),
            clock: Clock::system(),
            patience: Duration::from_secs(2),
            guarded: false,
        }
    }

    fn locks(&self) -> Locks {
        Locks::over(self.nodes()).start().unwrap()
    }

    /// What a leader of the job writes, and leaves.
    async fn has(&self, job: &str, body: &str) {
        let locks = self.locks();
        let lease = locks.lock_key(job).acquire().await.unwrap();
        let written = locks.write(lease.view(), body.to_owned(), None);
        written.await.unwrap();
        lease.release().await;
    }

    async fn asks(&self, intent: &Intent) {
        let doc = intent.to_doc(65_536);
        let locks = self.locks();
        let written = locks.put_doc(&doc.name, doc.rev, DAY, doc.body);
        written.await.unwrap();
    }

    async fn ledger(&self, job: &str) -> (Ledger, Record) {
        let seen = self.locks().look(vec![job.to_owned()]).await.unwrap();
        let record = seen[0].record();
        (Ledger::from_body(&record.body).unwrap(), record)
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Seen at 100; the tick of 110 was started, long ago by another store's clock.
fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.first_sight(at(100)).unwrap();
    ledger.start_tick(at(110), Token(1 << 52)).unwrap();
    ledger
}

fn pause(job: &str, paused: bool) -> Intent {
    Intent::Pause(Pause {
        job: job.to_owned(),
        paused,
        ..Pause::default()
    })
}

fn trigger(id: &str, ended: Option<Timestamp>) -> Intent {
    Intent::Trigger(Trigger {
        job: "a".to_owned(),
        id: id.to_owned(),
        asked: Clock::system().wall(),
        state: match ended {
            Some(_) => TriggerState::Ended,
            None => TriggerState::Asked,
        },
        ended,
        ..Trigger::default()
    })
}

fn refusal<T>(done: Result<T, Failure>) -> String {
    match done {
        Ok(_) => panic!("it was not refused"),
        Err(failure) => failure.text(),
    }
}

async fn arrives(locks: &Locks, left: &Left, losses: &[Timestamp]) -> Result<Moved, Failure> {
    arrive(locks, left, losses, Some(ONE_STORE), &Count::default()).await
}

#[tokio::test]
async fn a_fleet_that_runs_is_not_moved() {
    let store = Store::new();
    store.has("job/a", &ledger().to_body()).await;
    let locks = store.locks();
    let lease = locks.lock_key("job/b").acquire().await.unwrap();
    let said = refusal(left_in(&store.raw(), NOTHING).await);
    assert!(
        said.contains("job/b is held: end every worker on the old store"),
        "{said}"
    );
    lease.release().await;
    let told = locks.put_doc("presence/h-1-x", 1, DAY, "{}".to_owned());
    told.await.unwrap();
    let said = refusal(left_in(&store.raw(), NOTHING).await);
    assert!(said.contains("the replica h-1-x was there"), "{said}");
    locks.remove_doc("presence/h-1-x").await.unwrap();
    assert_eq!(
        left_in(&store.raw(), NOTHING)
            .await
            .ok()
            .unwrap()
            .ledgers
            .len(),
        1
    );
}

#[tokio::test]
async fn a_ledger_of_a_newer_version_is_not_moved() {
    let store = Store::new();
    store.has("job/a", r#"{"v":99}"#).await;
    let said = refusal(left_in(&store.raw(), NOTHING).await);
    assert!(
        said.contains("job/a") && said.contains("version 99"),
        "{said}"
    );
}

#[tokio::test]
async fn a_minority_of_the_old_nodes_may_be_away() {
    let store = Store::new();
    store.has("job/a", &ledger().to_body()).await;
    store.0[0]
        .faults()
        .fail_all_with(NodeError::Unfit("its disk is full".to_owned()));
    assert_eq!(
        left_in(&store.raw(), NOTHING)
            .await
            .ok()
            .unwrap()
            .ledgers
            .len(),
        1
    );
    store.0[1]
        .faults()
        .fail_all_with(NodeError::Unfit("its disk is full".to_owned()));
    let said = refusal(left_in(&store.raw(), NOTHING).await);
    assert!(
        said.contains("too few nodes of the old store answer and vote: n1"),
        "{said}"
    );
}

#[tokio::test]
async fn a_move_can_be_given_again() {
    let (old, new) = (Store::new(), Store::new());
    for job in ["job/a", "job/b"] {
        old.has(job, &ledger().to_body()).await;
    }
    old.has("job/unseen", "").await;
    old.asks(&pause("a", true)).await;
    old.asks(&pause("b", false)).await;
    old.asks(&trigger("t1", None)).await;
    old.asks(&trigger("t2", Some(Clock::system().wall()))).await;
    for already in [0, 2] {
        let left = left_in(&old.raw(), NOTHING).await.ok().unwrap();
        let moved = arrives(&new.locks(), &left, &[at(50)]).await.ok().unwrap();
        assert!(moved.least.is_some(), "also of what was there");
        let expected = Moved {
            ledgers: 2,
            already,
            pauses: 1,
            triggers: 1,
            open: 2,
            least: moved.least,
        };
        assert_eq!(moved, expected);
    }
    let docs = new.locks().docs(intent::DIRECTORY).await.unwrap();
    let names: Vec<&str> = docs.iter().map(|doc| doc.name.as_str()).collect();
    assert_eq!(names, ["intent/pause.a", "intent/trigger.a.t1"]);
}

/// Pauses and triggers come first, then the ledgers, one after the other.
#[tokio::test]
async fn a_move_that_was_killed_is_finished_by_the_next_one() {
    let (old, new) = (Store::new(), Store::new());
    for job in ["job/a", "job/b", "job/c"] {
        old.has(job, &ledger().to_body()).await;
    }
    old.asks(&pause("a", true)).await;
    let left = || async { left_in(&old.raw(), NOTHING).await.ok().unwrap() };
    let mut half = left().await;
    half.ledgers.remove("job/c");
    arrives(&new.locks(), &half, &[]).await.ok().unwrap();
    let (count, locks) = (Count::default(), new.locks());
    let whole = left().await;
    let arriving = arrive(&locks, &whole, &[], Some(ONE_STORE), &count);
    let moved = arriving.await.ok().unwrap();
    assert_eq!((moved.ledgers, moved.already, moved.pauses), (3, 2, 1));
    assert_eq!(count.at(), ("carrying over ledgers", 1, 1));
    for job in ["job/a", "job/b", "job/c"] {
        assert_eq!(new.ledger(job).await.0.decided_upto(), Some(at(110)));
    }
}

#[tokio::test]
async fn a_ledger_of_the_new_store_is_left_alone() {
    let (old, new) = (Store::new(), Store::new());
    for job in ["job/a", "job/b"] {
        old.has(job, &ledger().to_body()).await;
    }
    let mut own = Ledger::default();
    own.first_sight(at(500)).unwrap();
    new.has("job/b", &own.to_body()).await;
    let left = left_in(&old.raw(), NOTHING).await.ok().unwrap();
    let said = refusal(arrives(&new.locks(), &left, &[]).await);
    assert!(said.contains("job/b: the new store has a ledger"), "{said}");
    assert_eq!(new.ledger("job/b").await.0, own);
    assert_eq!(
        new.ledger("job/a").await.0,
        Ledger::default(),
        "nothing was moved"
    );
}

#[tokio::test]
async fn what_was_moved_is_not_taken_for_forgotten() {
    let (old, new) = (Store::new(), Store::new());
    old.has("job/a", &ledger().to_body()).await;
    let left = left_in(&old.raw(), NOTHING).await.ok().unwrap();
    arrives(&new.locks(), &left, &[at(200)]).await.ok().unwrap();
    let (moved, _) = new.ledger("job/a").await;
    assert_eq!(moved.memory_losses(), [at(200)]);
    assert_eq!(moved.decided_upto(), Some(at(110)));
}

#[tokio::test]
async fn a_run_that_is_open_goes_on_under_a_token_of_the_new_store() {
    let (old, new) = (Store::new(), Store::new());
    old.has("job/a", &ledger().to_body()).await;
    let left = left_in(&old.raw(), NOTHING).await.ok().unwrap();
    assert!(left.token > Token(0));
    arrives(&new.locks(), &left, &[]).await.ok().unwrap();
    let (moved, record) = new.ledger("job/a").await;
    assert_eq!(moved.open().len(), 1);
    assert_eq!(moved.open()[0].token, record.version.token);
}

/// It would count as a job that was never seen, and its ticks be lost.
#[tokio::test]
async fn a_ledger_that_is_damaged_is_not_left_behind() {
    let store = Store::new();
    store.has("job/a", &ledger().to_body()).await;
    let damage = |node: &MemoryNode| {
        let text = node.faults().snapshot().written().unwrap();
        let torn = text.replace("\"damaged\":false", "\"damaged\":true");
        assert_ne!(torn, text);
        let state = NodeState::read(&torn).unwrap();
        node.faults().restart_with(state);
    };
    damage(&store.0[0]);
    let left = left_in(&store.raw(), NOTHING).await.ok().unwrap();
    assert_eq!(left.ledgers.len(), 1, "two nodes have it whole");
    damage(&store.0[1]);
    let said = refusal(left_in(&store.raw(), NOTHING).await);
    assert!(said.contains("too few nodes of the old store"), "{said}");
}

/// Ticks that fell due in the pause would run.
#[tokio::test]
async fn a_pause_that_cannot_be_read_is_not_left_behind() {
    let store = Store::new();
    let locks = store.locks();
    let written = locks.put_doc("intent/pause.a", 1, DAY, "garbage".to_owned());
    written.await.unwrap();
    let said = refusal(left_in(&store.raw(), NOTHING).await);
    assert!(said.contains("intent/pause.a: it cannot be read"), "{said}");
}

/// It was emptied, or has missed the last that was decided.
#[tokio::test]
async fn what_a_node_without_a_vote_remembers_does_not_count() {
    let store = Store::new();
    store.has("job/a", &ledger().to_body()).await;
    let guard = GuardSettings {
        mode: RestartGuard::Call,
        config: "one".to_owned(),
    };
    let guarded = store
        .0
        .iter()
        .map(|node| node.clone().guarded(guard.clone()));
    let nodes = RawNodes {
        nodes: guarded
            .map(|node| Arc::new(node) as Arc<dyn Node>)
            .collect(),
        guarded: true,
        ..store.raw()
    };
    let said = refusal(left_in(&nodes, NOTHING).await);
    assert!(
        said.contains("too few nodes of the old store answer and vote"),
        "{said}"
    );
}

#[tokio::test]
async fn what_changes_in_the_old_store_meanwhile_is_told() {
    let store = Store::new();
    store.has("job/a", &ledger().to_body()).await;
    store.asks(&pause("a", true)).await;
    let then = left_in(&store.raw(), NOTHING).await.ok().unwrap();
    let same = left_in(&store.raw(), NOTHING).await.ok().unwrap();
    assert!(is_as_it_was(&then, &same, MOVE_AGAIN).is_ok());
    store.has("job/b", &ledger().to_body()).await;
    let now = left_in(&store.raw(), NOTHING).await.ok().unwrap();
    assert!(refusal(is_as_it_was(&then, &now, MOVE_AGAIN)).contains("job/b: it has changed"));
    let doc = pause("a", false).to_doc(131_072);
    let locks = store.locks();
    let written = locks.put_doc(&doc.name, doc.rev, DAY, doc.body);
    written.await.unwrap();
    let later = left_in(&store.raw(), NOTHING).await.ok().unwrap();
    assert!(
        refusal(is_as_it_was(&now, &later, MOVE_AGAIN)).contains("intent/pause.a: it has changed")
    );
}

#[tokio::test]
async fn one_store_under_two_addresses_is_not_moved_to_itself() {
    let store = Store::new();
    store.has("job/a", &ledger().to_body()).await;
    let left = left_in(&store.raw(), NOTHING).await.ok().unwrap();
    let said = refusal(arrives(&store.locks(), &left, &[]).await);
    assert!(
        said.contains("both configurations lead to one store"),
        "{said}"
    );
    // Carried in once more, from a file: the versions may well be the same, where tokens begin anew.
    let (locks, count) = (store.locks(), Count::default());
    let again = arrive(&locks, &left, &[], None, &count);
    assert_eq!(again.await.ok().unwrap().already, 1);
}

/// No later one watches it for longer, so this one must watch it for as long as it may have been held.
#[tokio::test(start_paused = true)]
async fn what_a_move_left_that_was_killed_is_waited_for() {
    let clock = SimTime::new().clock();
    let node = |n| Arc::new(MemoryNode::new(format!("n{n}"), clock.clone())) as Arc<dyn Node>;
    let raw = RawNodes {
        nodes: (1..=3).map(node).collect(),
        clock: clock.clone(),
        patience: Duration::from_secs(2),
        guarded: false,
    };
    let ttl = Duration::from_secs(10);
    for n in 0..3 {
        let held = Op::Acquire {
            key: "job/a".to_owned(),
            owner: "killed".to_owned(),
            kind: Kind::Lock,
            ttl,
            floor: Token(0),
            take: Take::Observed(None),
            clamp: ttl,
            ticket: None,
            waits: Duration::ZERO,
        };
        let granted = raw.ask_one(n, held).await.unwrap();
        assert!(matches!(granted, Answer::Granted { .. }), "{granted:?}");
    }
    clock.sleep(ttl * 2).await;
    assert!(is_idle(&raw, NEW, NOTHING).await.is_ok());
    let locks = Locks::over(raw.nodes.clone())
        .clock(clock.clone())
        .expiry(Expiry::Observed)
        .keeper_here(Spawn::system());
    let locks = locks.start().unwrap();
    let mut left = Left::default();
    let was = (ledger(), Record::default());
    left.ledgers.insert("job/a".to_owned(), was);
    let moved = arrives(&locks, &left, &[]).await.ok().unwrap();
    assert_eq!((moved.ledgers, moved.already), (1, 0));
    let seen = locks.look(vec!["job/a".to_owned()]).await.unwrap();
    assert!(!seen[0].record().body.is_empty());
}

#[test]
fn a_store_in_which_no_job_was_is_most_likely_another_one() {
    let said = refusal(refuse_nothing(&Left::default(), "the file x"));
    assert!(said.contains("no job was ever led in the file x"), "{said}");
}

#[test]
fn tokens_that_begin_anew_are_told() {
    let moved = |least| Moved {
        least,
        ..Moved::default()
    };
    let told = |least, above| begins_anew(&moved(least), Token(above)).unwrap_or_default();
    assert_eq!(told(None, 7), "", "nothing was written");
    assert_eq!(told(Some(Token(8)), 7), "");
    assert!(told(Some(Token(1)), 7).contains("(at 1; the old store had 7)"));
}

#[test]
fn tokens_of_the_new_store_begin_above_those_of_the_old_one() {
    let clock = Clock::system();
    let micros = floor(Token(5), &clock);
    assert!(micros > Token(1 << 50));
    assert_eq!(floor(Token(1 << 52), &clock), Token((1 << 52) + 1));
}

#[test]
fn both_stores_must_be_stores_and_not_the_same_one() {
    let of = |backend, path: &str| {
        let mut config = Config::default();
        config.locks.backend = backend;
        config.locks.embedded.path = path.into();
        config
    };
    let refused = |old: &Config, new: &Config| {
        let refused = refuse_one_store(old, new, "new.toml");
        refused
            .err()
            .map(|failure| failure.text())
            .unwrap_or_default()
    };
    let (file, other) = (of(Backend::Embedded, "a.db"), of(Backend::Embedded, "b.db"));
    assert_eq!(refused(&file, &other), "");
    assert!(refused(&file, &file).contains("new.toml names the store in which the fleet is now"));
    let memory = of(Backend::Memory, "");
    assert!(refused(&file, &memory).contains("private to each process"));
    let mut namesake = file.clone();
    namesake.worker.namespace = "another".to_owned();
    assert_eq!(refused(&file, &namesake), "", "another fleet's place in it");
}
