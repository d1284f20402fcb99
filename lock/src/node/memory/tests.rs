use std::sync::Mutex as StdMutex;

use super::*;
use crate::{
    node::{Answer, Eligibility, Kind, Op, Take, Token},
    sim_clock::SimTime,
};

type Answering = oneshot::Receiver<Result<Reply, NodeError>>;

const TTL: Duration = Duration::from_secs(10);

fn node() -> (MemoryNode, SimTime) {
    let time = SimTime::new();
    let node = MemoryNode::simulated("m", time.clock(), Spawn::system(), Chance::seeded(1));
    (node, time)
}

fn acquire(key: &str, owner: &str) -> Call {
    let (key, owner) = (key.to_owned(), owner.to_owned());
    let op = Op::Acquire {
        key,
        owner,
        kind: Kind::Lock,
        ttl: TTL,
        floor: Token(0),
        take: Take::Server,
        clamp: TTL,
        ticket: None,
    };
    Call {
        not_after: None,
        ops: vec![op],
    }
}

fn in_background(node: &MemoryNode, call: Call) -> Answering {
    let node = node.clone();
    let (answer, answered) = oneshot::channel();
    let _runs = Spawn::system().spawn(async move {
        let _gone = answer.send(node.call(call).await);
    });
    answered
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn holder(node: &MemoryNode, key: &str) -> Option<String> {
    let now = node.time();
    node.inspect(|state| state.holder(key, now).map(str::to_owned))
}

#[tokio::test(start_paused = true)]
async fn a_request_arrives_after_its_delay_although_the_caller_has_gone() {
    let (node, time) = node();
    node.faults()
        .delay_requests(Duration::from_secs(3), Duration::from_secs(3));
    let gone = time
        .clock()
        .timeout(Duration::from_secs(1), node.call(acquire("k", "a")))
        .await;
    assert!(gone.is_err());
    assert_eq!((node.executed(), holder(&node, "k")), (0, None));
    time.clock().sleep(Duration::from_secs(3)).await;
    settle().await;
    assert_eq!(
        (node.executed(), holder(&node, "k")),
        (1, Some("a".to_owned()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_frozen_node_executes_in_order_after_the_thaw_what_nobody_waits_for() {
    let (node, time) = node();
    let seen = Arc::new(StdMutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    node.observe(move |done| {
        log.lock()
            .unwrap()
            .push((done.call.clone(), done.result.is_ok()))
    });
    node.faults().freeze();
    for owner in ["a", "b"] {
        let call = node.call(acquire("k", owner));
        assert!(
            time.clock()
                .timeout(Duration::from_secs(1), call)
                .await
                .is_err()
        );
    }
    assert_eq!(node.executed(), 0);
    node.faults().thaw();
    assert_eq!(holder(&node, "k"), Some("a".to_owned()));
    let seen = seen.lock().unwrap();
    assert_eq!(
        *seen,
        [(acquire("k", "a"), true), (acquire("k", "b"), true)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_stuck_in_a_frozen_node_past_its_time_does_nothing() {
    let (node, time) = node();
    node.faults().freeze();
    let not_after = Some(NodeMs(node.time().0 + 500));
    let stuck = in_background(
        &node,
        Call {
            not_after,
            ..acquire("k", "a")
        },
    );
    settle().await;
    time.clock().sleep(Duration::from_millis(501)).await;
    node.faults().thaw();
    assert_eq!(
        stuck.await.unwrap(),
        Err(NodeError::Late { at: node.time() })
    );
    assert_eq!(holder(&node, "k"), None);
}

#[tokio::test(start_paused = true)]
async fn a_connection_keeps_its_order_whatever_the_delays() {
    for seed in 0..50 {
        let time = SimTime::new();
        let chance = Chance::seeded(seed);
        let node = MemoryNode::simulated("m", time.clock(), Spawn::system(), chance);
        node.faults()
            .delay_requests(Duration::ZERO, Duration::from_millis(50));
        let (first, second) = (node.call(acquire("k", "a")), node.call(acquire("k", "b")));
        let (first, second) = tokio::join!(first, second);
        let granted =
            |reply: Result<Reply, _>| matches!(reply.unwrap().answers[0], Answer::Granted { .. });
        assert_eq!(
            (granted(first), granted(second)),
            (true, false),
            "seed {seed}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_executed_and_a_lost_request_is_not() {
    let (node, time) = node();
    let second = Duration::from_secs(1);
    node.faults().lose_requests(1.0);
    assert!(
        time.clock()
            .timeout(second, node.call(acquire("k", "a")))
            .await
            .is_err()
    );
    assert_eq!(node.executed(), 0);
    node.faults().clear();
    node.faults().lose_replies(1.0);
    assert!(
        time.clock()
            .timeout(second, node.call(acquire("k", "a")))
            .await
            .is_err()
    );
    assert_eq!(
        (node.executed(), holder(&node, "k")),
        (1, Some("a".to_owned()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_partition_refuses_or_hangs_and_one_cut_connection_hurts_nobody_else() {
    let (node, time) = node();
    let other = node.clone();
    node.faults().partition(Cut::Refuse);
    let refused = node.call(acquire("k", "a")).await;
    assert!(
        matches!(refused, Err(NodeError::Unreachable(_))),
        "{refused:?}"
    );
    node.faults().partition(Cut::Hang);
    let hung = time
        .clock()
        .timeout(TTL, node.call(acquire("k", "a")))
        .await;
    assert!(hung.is_err());
    node.faults().heal();
    node.link().cut(Cut::Refuse);
    assert!(node.call(acquire("k", "a")).await.is_err());
    assert!(other.call(acquire("k", "b")).await.is_ok());
    node.link().mend();
    assert!(node.call(acquire("k", "a")).await.is_ok());
    assert_eq!(node.executed(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_crash_forgets_and_a_restart_remembers() {
    let (node, _) = node();
    node.call(acquire("k", "a")).await.unwrap();
    let mut news = node.announcements().await.unwrap();
    node.faults().restart_keeping_data();
    assert_eq!(holder(&node, "k"), Some("a".to_owned()));
    assert_eq!(news.recv().await, None);
    node.faults().freeze();
    let stuck = in_background(&node, acquire("k", "b"));
    settle().await;
    node.faults().crash();
    assert!(matches!(
        stuck.await.unwrap(),
        Err(NodeError::Unreachable(_))
    ));
    assert_eq!(node.inspect(NodeState::clone), NodeState::default());
}

#[tokio::test(start_paused = true)]
async fn a_guarded_node_votes_until_it_may_have_forgotten() {
    let guard = GuardSettings {
        mode: RestartGuard::Call,
        config: "one".into(),
    };
    let node = node().0.guarded(guard);
    let eligibility = async |ops: Vec<Op>| {
        let not_after = None;
        node.call(Call { not_after, ops })
            .await
            .unwrap()
            .eligibility
    };
    let nonce = || "n".to_owned();
    let admit = || {
        vec![
            Op::Nominate { nonce: nonce() },
            Op::Admit {
                nonce: nonce(),
                config: "one".into(),
                counter: Token(0),
                memory_loss: None,
            },
        ]
    };
    let copy = node.faults().snapshot();
    for fault in 0..4 {
        assert_eq!(
            eligibility(vec![]).await,
            Eligibility::Unadmitted,
            "{fault}"
        );
        assert_eq!(eligibility(admit()).await, Eligibility::Admitted);
        node.call(acquire("k", "a")).await.unwrap();
        match fault {
            0 => node.faults().crash(),
            1 => node.faults().flush(),
            2 => node.faults().restart_keeping_data(),
            _ => node.faults().restart_with(copy.clone()),
        }
    }
    assert_eq!(eligibility(vec![]).await, Eligibility::Unadmitted);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_ahead_drops_a_live_lease() {
    let (node, _) = node();
    let before = node.call(acquire("k", "a")).await.unwrap();
    node.faults().clock_offset(10_000);
    assert_eq!(holder(&node, "k"), None);
    let after = node.call(acquire("k", "b")).await.unwrap();
    assert_eq!(after.at.0 - before.at.0, 10_000);
    assert_eq!(after.wall_ms - before.wall_ms, 10_000);
    assert!(matches!(
        after.answers[0],
        Answer::Granted {
            grant: Token(2),
            ..
        }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_arrives_later_and_a_failing_node_executes_nothing() {
    let (node, time) = node();
    node.faults().duplicate(1.0);
    node.faults()
        .delay_requests(Duration::from_millis(1), Duration::from_millis(9));
    node.call(acquire("k", "a")).await.unwrap();
    time.clock().sleep(Duration::from_millis(20)).await;
    settle().await;
    assert_eq!(
        (node.executed(), node.inspect(NodeState::counter)),
        (2, Token(1))
    );
    node.faults().clear();
    node.faults().fail_all();
    assert!(matches!(
        node.call(acquire("j", "a")).await,
        Err(NodeError::Unfit(_))
    ));
    node.faults().fail_none();
    assert_eq!(holder(&node, "j"), None);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_key_is_waited_for_and_never_taken() {
    let (node, _) = node();
    node.faults().plant("k", "stranger", None);
    let reply = node.call(acquire("k", "a")).await.unwrap();
    let Answer::Refused(view) = &reply.answers[0] else {
        panic!("{reply:?}")
    };
    assert_eq!(
        (view.holder.as_deref(), view.remaining_ms),
        (Some("stranger"), None)
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_shows_the_same_node() {
    async fn story(seed: u64) -> (Vec<(u64, NodeMs, bool)>, u64) {
        let time = SimTime::new();
        let clock = time.clock();
        let chance = Chance::seeded(seed);
        let node = MemoryNode::simulated("m", time.clock(), Spawn::system(), chance);
        let seen = Arc::new(StdMutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        node.observe(move |done| {
            log.lock()
                .unwrap()
                .push((done.link, done.at, done.result.is_ok()));
        });
        node.faults()
            .delay_requests(Duration::ZERO, Duration::from_millis(40));
        node.faults()
            .delay_replies(Duration::ZERO, Duration::from_millis(40));
        node.faults().lose_replies(0.2);
        node.faults().duplicate(0.2);
        let clients: Vec<_> = (0..4).map(|_| node.clone()).collect();
        for round in 0..20 {
            let calls = clients.iter().map(|client| {
                let call = client.call(acquire("k", &format!("{round}")));
                clock.timeout(Duration::from_millis(60), call)
            });
            futures_util::future::join_all(calls).await;
        }
        let seen = seen.lock().unwrap().clone();
        (seen, node.executed())
    }
    assert_eq!(story(7).await, story(7).await);
    assert_ne!(story(7).await, story(8).await);
}

#[test]
fn the_record_remembers_a_release_longer_than_anything_else() {
    let mut state = NodeState::default();
    let (key, owner, kind) = ("k".to_owned(), "a".to_owned(), Kind::Lock);
    let retention = Duration::from_secs(3600);
    let over = Op::Release {
        key,
        owner,
        kind,
        retention,
    };
    let mut at = |ms, call: &Call| state.apply(NodeMs(ms), 0, call).unwrap().answers.remove(0);
    at(0, &acquire("k", "a"));
    at(
        0,
        &Call {
            not_after: None,
            ops: vec![over],
        },
    );
    let last = at(3_599_999, &acquire("k", "a"));
    assert!(matches!(last, Answer::Refused(_)), "{last:?}");
    let later = at(3_600_000, &acquire("k", "a"));
    assert!(matches!(later, Answer::Granted { .. }), "{later:?}");
}

#[test]
fn numbers_that_a_store_cannot_count_with_are_refused() {
    let mut state = NodeState::default();
    let mut call = acquire("k", "a");
    if let Op::Acquire { floor, .. } = &mut call.ops[0] {
        *floor = Token(1 << 53);
    }
    let refused = state.apply(NodeMs(0), 0, &call);
    assert!(
        matches!(refused, Err(NodeError::Protocol(_))),
        "{refused:?}"
    );
    assert_eq!(state, NodeState::default());
}
