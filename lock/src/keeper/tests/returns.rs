//! What is on its way back while a caller waits for it: leases, and attempts that were lost.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake},
    time::Duration,
};

use tokio::sync::mpsc;

use crate::{
    acquire::Locks,
    chance::Chance,
    clock::Moment,
    keeper::lease_table::LeaseTable,
    lease::{KeeperHandle, Lease, LeaseView, Loss, NewLease, Note, Pulse, Work},
    node::{
        Kind, Node, Op, Record, Token,
        memory::{Cut, MemoryNode},
    },
    quorum::LockError,
    sim_clock::SimTime,
    spawn::Spawn,
};

const MS: Duration = Duration::from_millis(1);

/// A lease, and what its keeper hears of it.
fn lease(time: &SimTime) -> (Lease, mpsc::UnboundedReceiver<Note>) {
    let (to, notes) = mpsc::unbounded_channel();
    let handle = KeeperHandle {
        to,
        pulse: Pulse::default(),
        late_after: Duration::MAX,
        takes_back: None,
    };
    let clock = time.clock();
    let new = NewLease {
        key: "k".into(),
        owner: "me".into(),
        token: Token(1),
        kind: Kind::Lock,
        ttl: MS * 1_000,
        valid_until: clock.now() + MS * 1_000,
        margin: 0,
        granted_by: Box::default(),
    };
    let view = LeaseView::new(new, clock, handle);
    (Lease::new(view, Record::default()), notes)
}

/// Looks, in the very step in which a lease ends, whether its keeper has been told of the return.
struct Witness {
    notes: Mutex<mpsc::UnboundedReceiver<Note>>,
    returned: AtomicBool,
}

impl Wake for Witness {
    fn wake(self: Arc<Self>) {
        if let Ok(Note::Back(_)) = self.notes.lock().unwrap().try_recv() {
            self.returned.store(true, Ordering::SeqCst);
        }
    }
}

/// A keeper that saw it ended before would release it without knowing who waits for the report, which said 0 of 0 nodes.
#[tokio::test(start_paused = true)]
async fn the_keeper_hears_of_a_return_before_the_lease_ends() {
    let time = SimTime::new();
    let (lease, notes) = lease(&time);
    let witness = Arc::new(Witness {
        notes: Mutex::new(notes),
        returned: AtomicBool::new(false),
    });
    let view = lease.view().clone();
    let mut lost = pin!(view.lost());
    let waker = Arc::clone(&witness).into();
    let polled = lost.as_mut().poll(&mut Context::from_waker(&waker));
    assert_eq!(polled, Poll::Pending);
    drop(lease);
    assert_eq!(lost.await, Loss::Released);
    assert!(witness.returned.load(Ordering::SeqCst));
}

/// Begins work in the very step in which its lease ends, as another thread may that has just found it held.
struct Beginner {
    view: LeaseView,
    work: Mutex<Option<Work>>,
}

impl Wake for Beginner {
    fn wake(self: Arc<Self>) {
        *self.work.lock().unwrap() = Some(self.view.begin_work());
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_begins_while_its_lease_is_let_go_is_not_released_beside_r11() {
    let time = SimTime::new();
    let (lease, _notes) = lease(&time);
    let mut table = LeaseTable::default();
    table.adopt(lease.view().clone(), Record::default(), Moment::NEVER);
    let view = lease.view().clone();
    let beginner = Arc::new(Beginner {
        view: view.clone(),
        work: Mutex::default(),
    });
    let mut lost = pin!(view.lost());
    let waker = Arc::clone(&beginner).into();
    let polled = lost.as_mut().poll(&mut Context::from_waker(&waker));
    assert_eq!(polled, Poll::Pending);
    assert!(!table.let_go(&view), "the keeper has to judge");
    assert_eq!(view.loss(), Some(Loss::Released));
    assert!(table.find(&view).is_some());
}

/// The keeper may read the return before its sender has ended the lease: no lease is released while its holder
/// believes in it.
#[tokio::test(start_paused = true)]
async fn what_was_returned_is_believed_by_nobody_when_the_keeper_has_read_it() {
    let time = SimTime::new();
    let (lease, _notes) = lease(&time);
    let mut table = LeaseTable::default();
    table.adopt(lease.view().clone(), Record::default(), Moment::NEVER);
    table.hand_back(lease.view(), None);
    assert_eq!(lease.loss(), Some(Loss::Released));
}

/// Three nodes, and a client of them.
fn three(time: &SimTime) -> (Vec<MemoryNode>, Locks) {
    let node = |n| MemoryNode::new(format!("n{n}"), time.clock());
    let nodes: Vec<_> = (0..3).map(node).collect();
    let lines = nodes.iter().map(|n| Arc::new(n.clone()) as Arc<dyn Node>);
    let locks = Locks::over(lines.collect())
        .clock(time.clock())
        .chance(Chance::seeded(7))
        .keeper_here(Spawn::system());
    (nodes, locks.start().unwrap())
}

/// Whether one of these nodes has executed a release from now on.
fn is_told_of_a_release(nodes: &[MemoryNode]) -> Arc<AtomicBool> {
    let told = Arc::new(AtomicBool::new(false));
    for node in nodes {
        let told = told.clone();
        node.observe(move |executed| {
            let mut ops = executed.call.ops.iter();
            if ops.any(|op| matches!(op, Op::Release { .. })) {
                told.store(true, Ordering::SeqCst);
            }
        });
    }
    told
}

#[tokio::test(start_paused = true)]
async fn whoever_ends_the_process_waits_until_lost_attempts_are_undone() {
    let time = SimTime::new();
    let (nodes, locks) = three(&time);
    for node in &nodes[1..] {
        node.faults().plant("lock/a", "theirs", Some(MS * 10_000));
    }
    // The grant of this one comes when the attempt is lost already.
    nodes[0].faults().delay_requests(MS * 20, MS * 20);
    let undone = is_told_of_a_release(&nodes[..1]);
    let lost = locks.lock("a").acquire().await;
    assert!(matches!(lost, Err(LockError::Held { .. })), "{lost:?}");
    assert!(!undone.load(Ordering::SeqCst), "it is not waited for");
    locks.settle().await;
    assert!(undone.load(Ordering::SeqCst));
    assert_eq!(nodes[0].inspect(|state| state.held().count()), 0);
}

/// A program that tries again and again while its nodes are away would have as many releases to tell them when they are back, all
/// at once, and they would stay away.
#[tokio::test(start_paused = true)]
async fn attempts_that_never_left_are_not_undone() {
    let time = SimTime::new();
    let (nodes, locks) = three(&time);
    for node in &nodes {
        node.faults().partition(Cut::Refuse);
    }
    for _ in 0..100 {
        let away = locks.lock("a").acquire().await;
        assert!(matches!(away, Err(LockError::NoQuorum(_))), "{away:?}");
    }
    let told = is_told_of_a_release(&nodes);
    for node in &nodes {
        node.faults().heal();
    }
    time.clock().sleep(MS * 60_000).await;
    assert!(!told.load(Ordering::SeqCst), "nothing of them stands there");
    locks.lock("a").acquire().await.unwrap();
}
