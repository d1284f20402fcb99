//! What a call may carry, and what a refusal costs whom.

use super::{
    queue::{LEAST_UNDER_WAY, next_window},
    *,
};
use crate::{
    base::paper::Paper,
    node::{Call, Kind, Refusal, Take, Token, memory::MemoryNode},
    sim_clock::SimTime,
    spawn::Spawn,
};

const TIMEOUT: Duration = Duration::from_millis(50);
const CALL: Duration = Duration::from_millis(20);

/// One call at a time, and each takes its time.
struct Slow {
    node: MemoryNode,
    clock: Clock,
    turn: tokio::sync::Mutex<()>,
}

#[async_trait::async_trait]
impl Node for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        let _turn = self.turn.lock().await;
        self.clock.sleep(CALL).await;
        self.node.call(call).await
    }

    async fn announcements(&self) -> Option<crate::node::Announcements> {
        None
    }
}

/// What stands before a forbidden key in a call is executed, and the whole call refused: as by a server whose script
/// ends midway.
struct Strict {
    node: MemoryNode,
    calls: Arc<Mutex<Vec<Vec<Op>>>>,
}

const FORBIDDEN: &str = "theirs";

fn forbidden() -> NodeError {
    NodeError::Refused {
        refusal: Refusal::NoKey,
        said: "NOPERM".into(),
    }
}

#[async_trait::async_trait]
impl Node for Strict {
    fn name(&self) -> &str {
        "strict"
    }

    async fn call(&self, mut call: Call) -> Result<Reply, NodeError> {
        // Under way when the next one comes.
        tokio::task::yield_now().await;
        // With an empty one the client learns the node's clock.
        if !call.ops.is_empty() {
            self.calls.lock().unwrap().push(call.ops.clone());
        }
        let stops = call.ops.iter().position(
            |op| matches!(op, Op::Acquire { key, .. } | Op::Extend { key, .. } if key == FORBIDDEN),
        );
        let Some(stops) = stops else {
            return self.node.call(call).await;
        };
        call.ops.truncate(stops);
        self.node.call(call).await.and(Err(forbidden()))
    }

    async fn announcements(&self) -> Option<crate::node::Announcements> {
        None
    }
}

fn strict() -> (Link, Arc<Mutex<Vec<Vec<Op>>>>) {
    let time = SimTime::new();
    let calls = Arc::default();
    let node = Strict {
        node: MemoryNode::new("strict", time.clock()),
        calls: Arc::clone(&calls),
    };
    (link(Arc::new(node), time.clock()), calls)
}

fn acquire(key: &str) -> Op {
    Op::Acquire {
        key: key.into(),
        owner: format!("owner of {key}"),
        kind: Kind::Lock,
        ttl: TIMEOUT * 20,
        floor: Token(0),
        take: Take::Server,
        clamp: TIMEOUT * 20,
        ticket: None,
        waits: Duration::ZERO,
    }
}

fn extend(key: &str, seq: u64) -> Op {
    Op::Extend {
        key: key.into(),
        owner: format!("owner of {key}"),
        kind: Kind::Lock,
        seq,
        ttl: TIMEOUT * 20,
        token: Token(1),
        take: Take::Server,
    }
}

fn release(key: &str) -> Op {
    Op::Release {
        key: key.into(),
        owner: format!("owner of {key}"),
        kind: Kind::Lock,
        marked: TIMEOUT * 20,
        retention: TIMEOUT * 20,
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_that_of_its_sender_alone() {
    let (link, _) = strict();
    let ready = link.send(vec![acquire("a"), acquire("b")]).await;
    assert!(ready.is_ok(), "{ready:?}");
    // Queued together: one call.
    let first = link.send(vec![acquire("c")]);
    let refused = link.send(vec![acquire(FORBIDDEN)]);
    let released = link.send(vec![release("b")]);
    let read = link.send(vec![Op::Read { key: "b".into() }]);
    assert!(matches!(
        first.await.as_deref(),
        Ok([Answer::Granted { .. }])
    ));
    assert_eq!(refused.await, Err(forbidden()));
    assert_eq!(released.await, Ok(vec![Answer::Done]));
    let read = read.await.unwrap();
    assert!(
        matches!(&read[..], [Answer::View(view)] if view.holder.is_none()),
        "{read:?}"
    );
    // Alone it is no trouble of the node either.
    assert!(link.send(vec![acquire(FORBIDDEN)]).await.is_err());
    assert!(!link.is_down() && link.trouble().is_none());
}

/// A release that comes in a call of its own may have gone before.
#[tokio::test(start_paused = true)]
async fn n4_what_is_sent_again_is_known_to_be_out_of_order() {
    let (link, _) = strict();
    let link = of_callers(&link);
    assert!(link.send(full_call()).await.is_ok(), "its clock is known");
    let began = link.0.clock.now();
    // The first leaves alone, the others in one call.
    let sent = ["a", "b", FORBIDDEN].map(|key| link.send(vec![acquire(key)]));
    assert!(link.in_order_since() < began);
    let answers = futures_util::future::join_all(sent).await;
    assert!(answers[0].is_ok() && answers[1].is_ok() && answers[2].is_err());
    assert!(link.in_order_since() >= began && link.is_sound());
}

#[tokio::test(start_paused = true)]
async fn what_is_held_shares_no_call_with_what_is_wanted() {
    let (link, calls) = strict();
    let ready = link.send(vec![acquire("a")]).await;
    assert!(ready.is_ok(), "{ready:?}");
    for seq in 1..4 {
        let refused = link.send(vec![acquire(FORBIDDEN)]);
        let kept = link.send(vec![extend("a", seq)]).await;
        assert!(
            matches!(kept.as_deref(), Ok([Answer::Kept { .. }])),
            "{kept:?}"
        );
        assert_eq!(refused.await, Err(forbidden()));
    }
    let calls = calls.lock().unwrap();
    let extends = |op: &Op| matches!(op, Op::Extend { .. });
    assert!(
        calls
            .iter()
            .all(|ops| ops.iter().all(extends) || !ops.iter().any(extends))
    );
    assert_eq!(calls.len(), 1 + 3 * 2, "and nothing is sent twice");
}

#[tokio::test(start_paused = true)]
async fn a_release_shares_no_call_with_a_later_attempt_at_its_lock() {
    let (link, calls) = strict();
    let ready = link.send(vec![acquire("a"), acquire("b")]).await;
    assert!(ready.is_ok(), "{ready:?}");
    let released = [link.send(vec![release("a")]), link.send(vec![release("b")])];
    // Of another lock: it goes with them, among those of its kind.
    let other = link.send(vec![acquire("c")]).await;
    let Ok([Answer::Granted { .. }]) = other.as_deref() else {
        panic!("{other:?}")
    };
    for released in released {
        assert_eq!(released.await, Ok(vec![Answer::Done]));
    }
    let again = [
        link.send(vec![release("c")]),
        link.send(vec![acquire("d")]),
        link.send(vec![acquire("c")]),
        link.send(vec![acquire("e")]),
    ];
    for answer in again {
        assert!(answer.await.is_ok());
    }
    let shown = |ops: &Vec<Op>| {
        let shown = ops.iter().map(|op| match op {
            Op::Acquire { key, .. } => format!("+{key}"),
            Op::Release { key, .. } => format!("-{key}"),
            other => panic!("{other:?}"),
        });
        shown.collect::<Vec<_>>().join(" ")
    };
    let calls: Vec<_> = calls.lock().unwrap().iter().map(shown).collect();
    assert_eq!(calls, ["+a +b", "+c -a -b", "+d -c", "+c +e"]);
}

/// A majority of refusals would end a lease that is in the best of health.
#[tokio::test(start_paused = true)]
async fn a_round_that_had_come_through_is_no_vote_against_the_lease() {
    let (link, calls) = strict();
    let ready = link.send(vec![acquire("a")]).await;
    assert!(ready.is_ok(), "{ready:?}");
    let (ours, refused) = (
        link.send(vec![extend("a", 1)]),
        link.send(vec![extend(FORBIDDEN, 1)]),
    );
    assert_eq!(ours.await, Ok(vec![Answer::Done]), "neither for it");
    assert_eq!(refused.await, Err(forbidden()));
    assert_eq!(calls.lock().unwrap()[1].len(), 2, "one call at first");
    let next = link.send(vec![extend("a", 2)]).await;
    assert!(
        matches!(next.as_deref(), Ok([Answer::Kept { .. }])),
        "{next:?}"
    );
    // What another owner holds by now is refused, however often it is sent.
    assert_eq!(link.send(vec![release("a")]).await, Ok(vec![Answer::Done]));
    let (ours, refused) = (
        link.send(vec![extend("a", 3)]),
        link.send(vec![extend(FORBIDDEN, 2)]),
    );
    assert!(matches!(ours.await.as_deref(), Ok([Answer::Refused(_)])));
    assert_eq!(refused.await, Err(forbidden()));
}

#[test]
fn what_is_wanted_takes_no_room_that_what_is_held_waits_for() {
    let extend = Op::Extend {
        key: "k".into(),
        owner: "a".into(),
        kind: Kind::Lock,
        seq: 1,
        ttl: TIMEOUT,
        token: Token(1),
        take: Take::Server,
    };
    let mut queue = Queue::default();
    for ops in [
        vec![Op::Leave {
            key: "k".into(),
            ticket: "t".into(),
        }],
        vec![extend; MOST_OPS],
    ] {
        let reply = oneshot::channel().0;
        assert!(
            queue
                .push(ops, (Moment::ZERO, Moment::NEVER), reply)
                .is_ok()
        );
    }
    let mut sizes = |room| {
        let batch = queue.next_batch((room, MOST_OPS), MOST_OPS, Moment::ZERO);
        batch.map(|batch| Vec::from_iter(batch.iter().map(|queued| queued.ops.len())))
    };
    assert_eq!(
        sizes(MOST_OPS / 2),
        None,
        "what is held does not fit in yet"
    );
    assert_eq!(sizes(MOST_OPS), Some(vec![MOST_OPS]));
    assert_eq!(sizes(MOST_OPS / 2), Some(vec![1]));
}

#[test]
fn what_no_call_has_room_for_is_refused_and_keeps_nothing_waiting() {
    let leave = Op::Leave {
        key: "k".into(),
        ticket: "t".into(),
    };
    let mut queue = Queue::default();
    let mut push = |ops: Vec<Op>| {
        let reply = oneshot::channel().0;
        queue
            .push(ops, (Moment::ZERO, Moment::NEVER), reply)
            .is_ok()
    };
    assert!(!push(vec![leave.clone(); MOST_OPS + 1]));
    assert!(push(vec![leave.clone(); MOST_OPS]));
    assert!(push(vec![leave]));
    for size in [MOST_OPS, 1] {
        let batch = queue.next_batch((MOST_OPS, MOST_OPS), MOST_OPS, Moment::ZERO);
        let batch = batch.unwrap();
        assert_eq!(
            batch.iter().map(|queued| queued.ops.len()).sum::<usize>(),
            size
        );
    }
    assert_eq!(queue.len(), 0);
}

fn slow(time: &SimTime) -> Link {
    let clock = time.clock();
    let node = Slow {
        node: MemoryNode::new("slow", clock.clone()),
        clock: clock.clone(),
        turn: tokio::sync::Mutex::default(),
    };
    link(Arc::new(node), clock)
}

fn link(node: Arc<dyn Node>, clock: Clock) -> Link {
    let (chance, events) = (Chance::seeded(1), Events::default());
    let wall = FleetClock::new(clock.clone(), TIMEOUT, 1);
    let link = Link::new(
        (0, node, wall),
        TIMEOUT,
        clock,
        chance,
        events,
        Arc::new(Votes::of(1)),
    );
    drop(Spawn::system().spawn(link.clone().pump()));
    link
}

fn full_call() -> Vec<Op> {
    let read = |n| Op::Read {
        key: format!("lock/{n}"),
    };
    (0..MOST_OPS).map(read).collect()
}

#[test]
fn a_node_that_is_slow_with_much_is_asked_for_less_at_a_time() {
    let next = |window, waited| next_window(window, Duration::from_millis(waited), TIMEOUT);
    assert_eq!(next(MOST_UNDER_WAY, 13), MOST_UNDER_WAY / 2);
    assert_eq!(next(LEAST_UNDER_WAY, 50), LEAST_UNDER_WAY);
    assert_eq!(next(100, 10), 100);
    assert_eq!(next(100, 1), 116);
    assert_eq!(next(MOST_UNDER_WAY, 0), MOST_UNDER_WAY);
}

/// As many extensions in a call as are under way anywhere.
struct Roomy(MemoryNode);

#[async_trait::async_trait]
impl Node for Roomy {
    fn name(&self) -> &str {
        "roomy"
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        self.0.call(call).await
    }

    fn most_extensions(&self) -> usize {
        10 * MOST_UNDER_WAY
    }

    async fn announcements(&self) -> Option<crate::node::Announcements> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_node_that_is_quick_with_much_is_asked_for_more_than_others() {
    let time = SimTime::new();
    let extend = |n| Op::Extend {
        key: format!("lock/{n}"),
        owner: "a".into(),
        kind: Kind::Lock,
        seq: 1,
        ttl: Duration::from_secs(10),
        token: Token(1),
        take: Take::Server,
    };
    let many: Vec<Op> = (0..MOST_UNDER_WAY).map(extend).collect();
    let mixed: Vec<Op> = many.iter().cloned().chain(full_call()).collect();
    let usual = link(
        Arc::new(MemoryNode::new("usual", time.clock())),
        time.clock(),
    );
    assert_eq!(usual.most_of(&many), MOST_OPS);
    let roomy = link(
        Arc::new(Roomy(MemoryNode::new("roomy", time.clock()))),
        time.clock(),
    );
    assert_eq!(roomy.most_of(&many), MOST_UNDER_WAY);
    assert_eq!(roomy.most_of(&mixed), MOST_OPS, "nothing else goes along");
    // What was made ready before it was found slow leaves all the same.
    roomy.lane().window = Some(MOST_UNDER_WAY - 1);
    assert_eq!(roomy.most_of(&many), MOST_OPS);
    assert_eq!(roomy.send(many).await.unwrap().len(), MOST_UNDER_WAY);
}

#[tokio::test(start_paused = true)]
async fn our_own_queue_is_not_held_against_the_node() {
    let link = slow(&SimTime::new());
    // More than three timeouts' worth of work.
    let sent: Vec<_> = (0..8).map(|_| link.send(full_call())).collect();
    for answer in sent {
        assert_eq!(answer.await.unwrap().len(), MOST_OPS);
    }
    assert!(!link.is_down());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_in_time_is_not_sent_and_the_node_stays_up() {
    let link = slow(&SimTime::new());
    let sent: Vec<_> = (0..40).map(|_| link.send(full_call())).collect();
    let mut overload = 0;
    for answer in sent {
        match answer.await {
            Ok(answers) => assert_eq!(answers.len(), MOST_OPS),
            Err(why) => {
                assert_eq!(why, NodeError::Overload);
                overload += 1;
            }
        }
    }
    assert!((28..=32).contains(&overload), "{overload}");
    assert!(!link.is_down());
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_extended_before_others_are_served() {
    let time = SimTime::new();
    let (link, clock) = (slow(&time), time.clock());
    let began = clock.now();
    let others: Vec<_> = (0..8).map(|_| link.send(full_call())).collect();
    let extension = Op::Extend {
        key: "lock/held".into(),
        owner: "me".into(),
        kind: crate::node::Kind::Lock,
        seq: 1,
        ttl: TIMEOUT * 20,
        token: crate::node::Token(1),
        take: crate::node::Take::Server,
    };
    let extended = link.send(vec![extension]).await;
    assert!(extended.is_ok());
    assert!(clock.now().since(began) <= CALL * 4);
    drop(others);
}

#[tokio::test(start_paused = true)]
async fn n4_a_release_goes_out_behind_its_acquire() {
    for acquires in [1, 40] {
        let (link, calls) = strict();
        // More than fit into one call, so that several are under way.
        let sent: Vec<_> = (0..acquires)
            .map(|n| link.send((0..20).map(|m| acquire(&format!("{n}/{m}"))).collect()))
            .collect();
        // Also one that nobody waits for any more.
        drop(sent);
        let undone = link.send(vec![release("0/0")]);
        assert_eq!(undone.await, Ok(vec![Answer::Done]));
        let calls = calls.lock().unwrap();
        let ops: Vec<&Op> = calls.iter().flatten().collect();
        let at = |is: fn(&Op) -> bool| ops.iter().position(|op| is(op));
        let acquired = at(|op| matches!(op, Op::Acquire { key, .. } if key == "0/0"));
        let released = at(|op| matches!(op, Op::Release { .. }));
        assert!(acquired.is_some() && acquired < released, "{released:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn n2_no_call_acts_a_ttl_after_it_was_asked_for() {
    let time = SimTime::new();
    let clock = time.clock();
    let limits = Arc::<Mutex<Vec<_>>>::default();
    let node = MemoryNode::new("n", clock.clone());
    let to = limits.clone();
    node.observe(move |executed| {
        let left = executed.call.not_after.map(|end| end.0 - executed.at.0);
        to.lock().unwrap().push(left);
    });
    let link = link(Arc::new(node), clock);
    // With this it learns the node's clock.
    link.send(Vec::new()).await.unwrap();
    let ttl = |ms| {
        let ttl = Duration::from_millis(ms);
        let mut op = acquire("k");
        if let Op::Acquire { ttl: place, .. } = &mut op {
            *place = ttl;
        }
        op
    };
    // Shorter than the node's own time to answer, and longer.
    for (ms, at_most) in [(10, 10), (10_000, 60)] {
        let (long, short) = (link.send(vec![ttl(20_000)]), link.send(vec![ttl(ms)]));
        assert!(long.await.is_ok() && short.await.is_ok());
        let left = limits.lock().unwrap().last().copied().flatten();
        assert!(left.is_some_and(|left| left <= at_most), "{left:?}");
    }
}

/// The link of callers to the node of this one.
fn of_callers(link: &Link) -> Link {
    let links = Link::of_callers(std::slice::from_ref(link), &Spawn::system());
    links.into_iter().next().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_while_a_call_is_under_way_leaves_in_one() {
    let (link, calls) = strict();
    let link = of_callers(&link);
    assert!(link.send(full_call()).await.is_ok(), "its clock is known");
    calls.lock().unwrap().clear();
    let sent = ["a", "b", "c"].map(|key| link.send(vec![acquire(key)]));
    for answer in sent {
        assert!(matches!(
            answer.await.as_deref(),
            Ok([Answer::Granted { .. }])
        ));
    }
    let sizes = |calls: &[Vec<Op>]| Vec::from_iter(calls.iter().map(Vec::len));
    assert_eq!(sizes(&calls.lock().unwrap()), [1, 2]);
    // One after the other each is a call of its own, which its sender carries.
    for key in ["a", "b"] {
        assert_eq!(link.send(vec![release(key)]).await, Ok(vec![Answer::Done]));
    }
    assert_eq!(sizes(&calls.lock().unwrap()), [1, 2, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn what_many_ask_of_a_near_node_leaves_in_calls_of_some() {
    let (link, calls) = strict();
    let link = of_callers(&link);
    assert!(link.send(full_call()).await.is_ok(), "its clock is known");
    calls.lock().unwrap().clear();
    let keys: Vec<_> = (0..=2 * TOGETHER).map(|n| format!("k{n}")).collect();
    let sent: Vec<_> = keys.iter().map(|k| link.send(vec![acquire(k)])).collect();
    let whole = link.send(full_call());
    for answer in sent {
        assert!(answer.await.is_ok());
    }
    assert!(whole.await.is_ok());
    let sizes: Vec<_> = calls.lock().unwrap().iter().map(Vec::len).collect();
    assert_eq!(
        sizes,
        [1, TOGETHER, TOGETHER, MOST_OPS],
        "one sender's is not divided"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_sender_does_not_look_holds_up_nobody() {
    let (link, _) = strict();
    let link = of_callers(&link);
    assert!(link.send(full_call()).await.is_ok(), "its clock is known");
    let forgotten = link.send(vec![acquire("a")]);
    assert!(link.send(vec![acquire("b")]).await.is_ok());
    assert!(forgotten.await.is_ok(), "and has its answer");
    let gone = link.send(vec![release("a")]);
    drop(gone);
    assert!(link.send(vec![release("b")]).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_costs_its_time_whoever_carries_it() {
    let time = SimTime::new();
    let node = MemoryNode::new("frozen", time.clock());
    let faults = node.faults();
    let (link, clock) = (link(Arc::new(node), time.clock()), time.clock());
    drop(Spawn::system().spawn(link.clone().probe()));
    let link = of_callers(&link);
    assert!(link.send(full_call()).await.is_ok(), "its clock is known");
    faults.freeze();
    let began = clock.now();
    let alone = link.send(vec![acquire("a")]).await;
    assert_eq!(alone, Err(NodeError::Timeout(TIMEOUT)));
    assert_eq!(clock.now().since(began), TIMEOUT);
    // The keeper asks whether it is the node.
    clock.sleep(TIMEOUT * 2).await;
    assert!(link.is_down(), "and the next ones nothing");
    assert!(link.send(vec![acquire("a")]).await.is_err());
    assert_eq!(clock.now().since(began), TIMEOUT * 3);
}

/// Does not answer what asks nothing, with which a client learns its clock.
struct Mute(Strict);

#[async_trait::async_trait]
impl Node for Mute {
    fn name(&self) -> &str {
        "mute"
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        match call.ops.is_empty() {
            true => Err(NodeError::Protocol("nothing is asked".into())),
            false => self.0.call(call).await,
        }
    }

    async fn announcements(&self) -> Option<crate::node::Announcements> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn n2_nothing_leaves_that_might_act_at_any_time() {
    let time = SimTime::new();
    let calls = Arc::<Mutex<Vec<Vec<Op>>>>::default();
    let strict = Strict {
        node: MemoryNode::new("mute", time.clock()),
        calls: Arc::clone(&calls),
    };
    let link = link(Arc::new(Mute(strict)), time.clock());
    for link in [link.clone(), of_callers(&link)] {
        for op in [acquire("a"), extend("a", 1)] {
            assert!(link.send(vec![op]).await.is_err());
        }
    }
    assert!(calls.lock().unwrap().is_empty());
    // What may act at any time leaves, and with its answer comes the clock.
    assert!(link.send(vec![release("a")]).await.is_ok());
    assert!(link.send(vec![acquire("a")]).await.is_ok());
}

/// Its second connection cannot be made, or leads nowhere.
struct Single(MemoryNode, crate::node::memory::Cut);

#[async_trait::async_trait]
impl Node for Single {
    fn name(&self) -> &str {
        "single"
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        self.0.call(call).await
    }

    fn another(&self) -> Option<Arc<dyn Node>> {
        let lost = self.0.clone();
        lost.link().cut(self.1);
        Some(Arc::new(lost))
    }

    async fn announcements(&self) -> Option<crate::node::Announcements> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_callers_that_is_lost_is_no_lost_node() {
    use crate::node::memory::Cut;
    for how in [Cut::Refuse, Cut::Hang] {
        let time = SimTime::new();
        let node = Single(MemoryNode::new("single", time.clock()), how);
        let keepers = link(Arc::new(node), time.clock());
        drop(Spawn::system().spawn(keepers.clone().probe()));
        let callers = of_callers(&keepers);
        assert!(
            keepers.send(full_call()).await.is_ok(),
            "its clock is known"
        );
        let lost = callers.send(vec![acquire("a")]).await;
        assert!(lost.is_err(), "{lost:?}");
        // What is held is extended all the while.
        assert!(!keepers.is_down());
        assert!(keepers.send(vec![acquire("a")]).await.is_ok());
        time.clock().sleep(TIMEOUT).await;
        assert!(!keepers.is_down() && !callers.is_sound());
    }
}

fn lines_with(paper: &Paper, words: &str) -> Vec<String> {
    let text = paper.text();
    let lines = text.lines().filter(|line| line.contains(words));
    lines.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_that_refuses_access_is_told_of_once() {
    let (paper, _reading) = Paper::reading(tracing::Level::INFO);
    let told = || lines_with(&paper, "refuses access");
    let clock = SimTime::new().clock();
    let node = MemoryNode::new("n", clock.clone());
    let link = link(Arc::new(node.clone()), clock.clone());
    let refused = |member: &str| {
        let why = format!("{member}: the login was refused; see locks.etcd.password");
        node.faults().fail_all_with(NodeError::Auth(why));
    };
    // Each member says it, and in between a look is answered: that is one thing.
    for member in ["a", "b", "a"] {
        refused(member);
        assert!(link.send(vec![acquire("k")]).await.is_err());
        node.faults().fail_none();
        assert!(link.send(Vec::new()).await.is_ok());
        assert!(!link.is_down());
    }
    let lines = told();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("WARN")
            && lines[0].contains("a: the login was refused; see locks.etcd.password"),
        "{lines:?}"
    );
    // A person has mended it, and it begins again.
    clock.sleep(Duration::from_secs(600)).await;
    refused("a");
    for _ in 0..3 {
        assert!(link.send(vec![acquire("k")]).await.is_err());
    }
    assert_eq!(told().len(), 2);
}

/// In between it does what needs no room; another fault is told all the same.
#[tokio::test(start_paused = true)]
async fn a_full_node_is_told_of_once() {
    let (paper, _reading) = Paper::reading(tracing::Level::INFO);
    let told = || lines_with(&paper, "node refuses to write");
    let clock = SimTime::new().clock();
    let node = MemoryNode::new("n", clock.clone());
    let link = link(Arc::new(node.clone()), clock.clone());
    let refuse = async |refusal, said: &str| {
        let said = said.to_owned();
        node.faults()
            .fail_all_with(NodeError::Refused { refusal, said });
        assert!(link.send(vec![acquire("k")]).await.is_err());
        node.faults().fail_none();
        assert!(link.send(Vec::new()).await.is_ok());
        assert!(!link.is_down());
    };
    for n in 0..5 {
        let full = format!("could not extend file {n}: No space left on device");
        refuse(Refusal::OutOfMemory, &full).await;
    }
    let lines = told();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for words in [
        "WARN",
        "oom",
        "could not extend file 0",
        "make room on its disk",
    ] {
        assert!(lines[0].contains(words), "{words}: {lines:?}");
    }
    refuse(Refusal::Misconf, "MISCONF").await;
    assert_eq!(told().len(), 2);
    // It had room meanwhile, and is full again.
    clock.sleep(Duration::from_secs(600)).await;
    refuse(Refusal::OutOfMemory, "OOM").await;
    assert_eq!(told().len(), 3);
    // What is no matter for a person, or was said elsewhere.
    refuse(Refusal::NoScript, "NOSCRIPT").await;
    refuse(Refusal::NoKey, "NOPERM").await;
    assert_eq!(told().len(), 3);
}
