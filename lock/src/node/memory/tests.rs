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
        waits: Duration::ZERO,
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
            Op::Nominate {
                nonce: nonce(),
                over: None,
            },
            Op::Admit {
                nonce: nonce(),
                config: "one".into(),
                roster: String::new(),
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
        assert!(eligibility(admit()).await.is_admitted());
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
    let granted = node.inspect(|state| state.row("k").and_then(Row::entry).map(|e| e.grant));
    assert_eq!((node.executed(), granted), (2, Some(Token(1))));
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

/// What a foreign client wrote, and what it would have read.
mod foreign {
    use super::*;
    use crate::node::{Seen, View};

    fn ask(node: &mut NodeState, ms: u64, op: Op) -> Answer {
        let call = Call {
            not_after: None,
            ops: vec![op],
        };
        let mut reply = node.apply(NodeMs(ms), 0, &call).unwrap();
        reply.answers.remove(0)
    }

    fn attempt(owner: &str, take: Take) -> Op {
        let mut op = acquire("k", owner).ops.remove(0);
        if let Op::Acquire { take: by, .. } = &mut op {
            *by = take;
        }
        op
    }

    fn extend(owner: &str, seq: u64, take: Take) -> Op {
        Op::Extend {
            key: "k".into(),
            owner: owner.into(),
            kind: Kind::Lock,
            seq,
            ttl: TTL,
            token: Token(9),
            take,
        }
    }

    fn confirm(owner: &str, expiry: Expiry) -> Op {
        Op::Confirm {
            key: "k".into(),
            owner: owner.into(),
            kind: Kind::Lock,
            token: Token(9),
            expiry,
        }
    }

    fn release(owner: &str) -> Op {
        Op::Release {
            key: "k".into(),
            owner: owner.into(),
            kind: Kind::Lock,
            marked: TTL,
            retention: TTL,
        }
    }

    fn force(owner: &str, now: bool) -> Op {
        Op::Break {
            key: "k".into(),
            owner: owner.into(),
            token: Token(5),
            ttl: TTL,
            marked: TTL,
            retention: TTL,
            now,
        }
    }

    fn plant(node: &mut NodeState, value: &str, until: Option<u64>) {
        let value = value.to_owned();
        let until = until.map(NodeMs);
        node.plant("k", Key { value, until });
    }

    fn view(node: &mut NodeState, ms: u64) -> View {
        match ask(node, ms, Op::Read { key: "k".into() }) {
            Answer::View(view) => view,
            other => panic!("{other:?}"),
        }
    }

    fn holder(node: &mut NodeState, ms: u64) -> Option<String> {
        view(node, ms).holder
    }

    fn a_seen() -> Take {
        Take::Observed(Some(Seen {
            inc: String::new(),
            owner: "a".into(),
            seq: 0,
        }))
    }

    #[test]
    fn o6_a_value_that_is_not_the_records_is_never_taken() {
        let mut node = NodeState::default();
        ask(&mut node, 0, attempt("a", Take::Server));
        plant(&mut node, "theirs", Some(30_000));
        let ops = [
            attempt("b", a_seen()),
            attempt("b", Take::Server),
            extend("b", 3, a_seen()),
            // Nor does the record's owner count while it stands there.
            attempt("a", Take::Observed(None)),
            extend("a", 1, Take::Observed(None)),
            confirm("a", Expiry::Observed),
            force("a", true),
        ];
        for op in ops.clone() {
            let answer = ask(&mut node, 20_000, op);
            let Answer::Refused(seen) = answer else {
                panic!("{answer:?}")
            };
            assert!(seen.foreign && seen.holder.as_deref() == Some("theirs"));
        }
        // It has gone, and the record is there as before.
        let kept = ask(&mut node, 30_000, extend("a", 1, Take::Observed(None)));
        assert!(matches!(kept, Answer::Kept { .. }), "{kept:?}");
    }

    #[test]
    fn raw_keys_show_every_lease_and_go_with_it() {
        let mut node = NodeState::raw();
        ask(&mut node, 0, attempt("a", Take::Server));
        let seen = view(&mut node, 4_000);
        assert_eq!((seen.holder.as_deref(), seen.foreign), (Some("a"), false));
        assert_eq!(seen.remaining_ms, Some(6_000));
        ask(&mut node, 4_000, extend("a", 1, Take::Server));
        assert_eq!(view(&mut node, 4_000).remaining_ms, Some(10_000));
        ask(&mut node, 4_000, release("a"));
        assert_eq!(holder(&mut node, 4_000), None);
        // Also where nothing but the key is left.
        plant(&mut node, "a", None);
        ask(&mut node, 4_000, release("b"));
        assert_eq!(holder(&mut node, 4_000).as_deref(), Some("a"));
        ask(&mut node, 4_000, release("a"));
        assert_eq!(holder(&mut node, 4_000), None);
    }

    /// A stranger may have come and left while it was gone.
    #[test]
    fn a_raw_key_that_vanished_is_no_vote_by_the_servers_clock() {
        let healed = |take: Take, expiry: Expiry| {
            let mut node = NodeState::raw();
            ask(&mut node, 0, attempt("a", Take::Server));
            ask(&mut node, 0, extend("a", 1, Take::Server));
            plant(&mut node, "a", Some(0));
            let counts = ask(&mut node, 1, confirm("a", expiry)) == Answer::Done;
            let answer = ask(&mut node, 1, extend("a", 2, take));
            assert_eq!(holder(&mut node, 1).as_deref(), Some("a"));
            (counts, matches!(answer, Answer::Healed { .. }))
        };
        assert_eq!(healed(Take::Server, Expiry::Server), (false, true));
        let observed = healed(Take::Observed(None), Expiry::Observed);
        assert_eq!(observed, (true, false));
    }

    #[test]
    fn n7_a_break_leaves_the_raw_key_to_run_out() {
        let mut node = NodeState::raw();
        ask(&mut node, 0, attempt("a", Take::Server));
        ask(&mut node, 1, force("a", false));
        assert_eq!(holder(&mut node, 9_999).as_deref(), Some("a"));
        assert_eq!(holder(&mut node, 10_000), None);
        ask(&mut node, 10_000, attempt("b", Take::Server));
        ask(&mut node, 10_000, force("b", true));
        assert_eq!(holder(&mut node, 10_000), None);
        // One that would never end is given an end; what a stranger wrote is not broken.
        ask(&mut node, 10_000, attempt("c", Take::Server));
        for (value, left) in [("c", Some(10_000)), ("theirs", None)] {
            plant(&mut node, value, None);
            ask(&mut node, 10_000, force(value, false));
            assert_eq!(view(&mut node, 10_000).remaining_ms, left);
        }
    }

    #[test]
    fn n10_only_raw_keys_of_ours_are_cut() {
        let mut node = NodeState::raw();
        ask(&mut node, 0, attempt("a", Take::Server));
        for (value, left) in [("a", Some(10_000)), ("theirs", None)] {
            plant(&mut node, value, None);
            ask(&mut node, 0, attempt("b", Take::Observed(None)));
            assert_eq!(view(&mut node, 0).remaining_ms, left);
        }
    }

    /// The clock was set back: a holder that has died would be shown for as long.
    #[test]
    fn n10_what_is_watched_is_cut_for_those_who_try_once() {
        let mut node = NodeState::default();
        ask(&mut node, 50_000, attempt("a", Take::Server));
        assert_eq!(view(&mut node, 0).remaining_ms, Some(60_000));
        ask(&mut node, 0, attempt("b", Take::Observed(None)));
        assert_eq!(view(&mut node, 0).remaining_ms, Some(10_000));
    }

    #[test]
    fn a_lease_whose_raw_key_stands_is_not_forgotten() {
        let mut node = NodeState::raw();
        ask(&mut node, 0, attempt("a", Take::Server));
        let forget = |node: &mut NodeState, ms| {
            let seen = Seen {
                inc: String::new(),
                owner: "a".into(),
                seq: 0,
            };
            let key = "k".to_owned();
            let retention = TTL;
            ask(
                node,
                ms,
                Op::Forget {
                    key,
                    seen,
                    retention,
                },
            );
            view(node, ms).owner
        };
        assert_eq!(forget(&mut node, 9_999).as_deref(), Some("a"));
        assert_eq!(forget(&mut node, 10_000), None);
    }
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

#[test]
fn a_state_is_read_as_it_was_written() {
    use crate::node::{Refusal, Ticket, Version};

    assert_eq!(NodeState::read(""), Ok(NodeState::default()));
    let op = |key: &str, owner: &str| acquire(key, owner).ops.remove(0);
    let (mut queued, mut claim) = (op("k", "b"), op("c", "a"));
    if let Op::Acquire { ticket, waits, .. } = &mut queued {
        let id = "place".to_owned();
        let (life, polite) = (TTL, false);
        (*ticket, *waits) = (Some(Ticket { id, life, polite }), TTL);
    }
    if let Op::Acquire { kind, .. } = &mut claim {
        *kind = Kind::Claim;
    }
    let write = Op::Write {
        key: "k".to_owned(),
        owner: "a".to_owned(),
        version: Version {
            token: Token(1),
            rev: 1,
        },
        body: "nul\0 and \"quotes\"".to_owned(),
        not_before: None,
        expiry: Expiry::Server,
    };
    let doc = Op::PutDoc {
        name: "d/ö".to_owned(),
        rev: 1,
        ttl: TTL,
        body: "text".to_owned(),
    };
    let all = |ops| Call {
        not_after: None,
        ops,
    };
    let mut state = NodeState::default();
    let call = all(vec![op("k", "a"), write, queued, claim, doc]);
    let reply = state.apply(NodeMs(1), 1, &call).unwrap();
    assert!(matches!(reply.answers[1], Answer::Done), "{reply:?}");
    let text = state.written().unwrap();
    let mut again = NodeState::read(&text).unwrap();
    assert_eq!(again.written().unwrap(), text);
    // It answers like the one that was written, and tells the same.
    let over = Op::Release {
        key: "k".to_owned(),
        owner: "a".to_owned(),
        kind: Kind::Lock,
        marked: TTL,
        retention: TTL,
    };
    let look = Op::Read {
        key: "k".to_owned(),
    };
    let call = all(vec![look, over, op("k", "c"), op("c", "b")]);
    assert_eq!(
        again.apply(NodeMs(5), 5, &call),
        state.apply(NodeMs(5), 5, &call)
    );
    let told = state.take_announced();
    assert_eq!((told.len(), again.take_announced()), (1, told));
    assert_eq!(again.written().unwrap(), state.written().unwrap());

    let newer = NodeState::read(&text.replacen("\"layout\":1", "\"layout\":2", 1));
    assert!(matches!(newer, Err(NodeError::Unfit(_))), "{newer:?}");
    for nonsense in ["[]", "{}", "nonsense", "{\"layout\":1}"] {
        let none = NodeState::read(nonsense);
        let refusal = Refusal::WrongType;
        assert!(
            matches!(&none, Err(NodeError::Refused { refusal: why, .. }) if *why == refusal),
            "{none:?}"
        );
    }
}

/// Its memory moves to another server, which is watched, and back again before the watch is over.
#[test]
fn what_was_nominated_elsewhere_has_no_vote_where_it_comes_back_to() {
    let (first, second) = ("aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb");
    let mut state = NodeState::default();
    let mut on = |incarnation: &str, ops: Vec<Op>| {
        let config = "one";
        let guarded = Some(Guarded {
            incarnation,
            config,
        });
        let not_after = None;
        let call = Call { not_after, ops };
        state.apply_guarded(guarded, NodeMs(1), 1, &call).unwrap()
    };
    let nominate = |nonce: &str| Op::Nominate {
        nonce: nonce.to_owned(),
        over: None,
    };
    let admit = |nonce: &str| Op::Admit {
        nonce: nonce.to_owned(),
        config: "one".to_owned(),
        roster: String::new(),
        counter: Token(1),
        memory_loss: None,
    };
    on("one", vec![nominate(first), admit(first)]);
    let granted = on("one", acquire("k", "a").ops);
    assert!(matches!(granted.answers[0], Answer::Granted { .. }));
    on("other", vec![nominate(second)]);
    let back = on("one", acquire("l", "b").ops);
    assert_eq!(back.answers, [Answer::Unadmitted]);
    on("one", vec![nominate(first), admit(first)]);
    let granted = on("one", acquire("l", "b").ops);
    assert!(matches!(granted.answers[0], Answer::Granted { .. }));
}
