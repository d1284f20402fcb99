//! What replicas cost the nodes by telling of themselves: counted in bytes of documents, by node and second.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;

use crate::{
    chance::Chance,
    event::Events,
    fleet::Fleet,
    job::{Job, JobError, Outcome, Run, Spec},
    lock::{Lives, Locks},
    node::{
        Announcements, Answer, Call, Expiry, Node, NodeError, NodeFacts, Op, Page, Reply, Servers,
        memory::MemoryNode,
    },
    scheduler::Context,
    sim_clock::SimTime,
    spawn::Spawn,
    status::FleetStatus,
    testing::members::ready,
    worker::{assemble::Setup, presence::Pace, ready::Body, supervisor::no_changes},
};

const SECOND: Duration = Duration::from_secs(1);

/// A job that is done at once.
struct Nothing;

#[async_trait]
impl Job for Nothing {
    async fn run(&self, _: Run) -> Result<Outcome, JobError> {
        Ok(Outcome::Done)
    }
}

/// Bytes that came to a node and went from it.
#[derive(Debug, Default)]
struct Tally {
    /// In documents that were written.
    written: AtomicU64,
    /// In documents that were read, and what is asked of them.
    read: AtomicU64,
    /// In answers to those who renew their leases, about.
    renewed: AtomicU64,
    /// Which documents were written or asked for, and how often, for a test that fails.
    names: Mutex<BTreeMap<String, u32>>,
}

/// A node that counts.
#[derive(Clone, Debug)]
struct Counted {
    node: MemoryNode,
    tally: Arc<Tally>,
}

#[async_trait]
impl Node for Counted {
    fn name(&self) -> &str {
        self.node.name()
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        let ops = call.ops.clone();
        let reply = Node::call(&self.node, call).await?;
        for (op, answer) in ops.iter().zip(&reply.answers) {
            let add = |to: &AtomicU64, bytes: usize| {
                to.fetch_add(u64::try_from(bytes).unwrap(), Ordering::Relaxed);
            };
            self.note(op);
            match op {
                Op::PutDoc { name, body, .. } => {
                    add(&self.tally.written, name.len() + body.len() + 40);
                    add(&self.tally.read, 4);
                }
                Op::TouchDoc { name, .. } => {
                    add(&self.tally.written, name.len() + 40);
                    add(&self.tally.read, 4);
                }
                Op::Extend { .. } => add(&self.tally.renewed, 40),
                _ => add(&self.tally.read, size_of(answer)),
            }
        }
        Ok(reply)
    }

    async fn identity(&self) -> Option<String> {
        Node::identity(&self.node).await
    }

    fn join(&self, servers: &Servers, place: usize) {
        self.node.join(servers, place);
    }

    fn expiry(&self) -> Expiry {
        self.node.expiry()
    }

    async fn inspect(&self) -> Result<NodeFacts, NodeError> {
        Node::inspect(&self.node).await
    }

    async fn announcements(&self) -> Option<Announcements> {
        Node::announcements(&self.node).await
    }
}

impl Counted {
    fn note(&self, op: &Op) {
        let name = match op {
            Op::PutDoc { name, .. } => format!("put {name}"),
            Op::Doc { name } => format!("read {name}"),
            Op::DocNames { dir, .. } => format!("list {dir}"),
            Op::Docs { dir, .. } => format!("read all of {dir}"),
            _ => return,
        };
        *self.tally.names.lock().unwrap().entry(name).or_default() += 1;
    }
}

/// About what it is on the wire; nothing where it is no document's.
fn size_of(answer: &Answer) -> usize {
    match answer {
        Answer::Lives { docs, .. } => {
            let lives = docs.iter();
            40 + lives.map(|life| life.name.len() + 50).sum::<usize>()
        }
        Answer::Docs(docs) | Answer::Page(Page { docs, .. }) => {
            let docs = docs.iter();
            40 + docs
                .map(|doc| doc.name.len() + doc.body.len() + 30)
                .sum::<usize>()
        }
        _ => 0,
    }
}

/// Replicas with the same jobs over three nodes that count.
struct Crowd {
    time: SimTime,
    nodes: Vec<Counted>,
    replicas: Vec<Context>,
}

impl Crowd {
    fn of(replicas: usize, jobs: usize, spec: &Spec) -> Self {
        let time = SimTime::new();
        let node = |n| Counted {
            node: MemoryNode::new(format!("n{n}"), time.sibling().clock()),
            tally: Arc::default(),
        };
        let mut crowd = Self {
            nodes: (1..=3).map(node).collect(),
            time,
            replicas: Vec::new(),
        };
        for n in 0..replicas {
            let (locks, spawn) = (crowd.locks(n as u64), Spawn::system());
            let body = || Body::Job(Arc::new(Nothing));
            let jobs = (0..jobs)
                .map(|job| format!("job-{job}"))
                .collect::<Vec<_>>();
            let jobs = jobs.iter().map(|name| ready((name, body(), spec.clone())));
            let setup = Setup::of(
                &format!("host-{n}-nonce"),
                &format!("r{n}"),
                &crowd.time,
                jobs.collect(),
            );
            let replica = setup.assemble(locks, Events::default(), spawn.clone());
            crowd.replicas.push(replica.ctx.clone());
            spawn.spawn(async move {
                let _ = replica.live(no_changes(), Some(Pace::default())).await;
            });
        }
        crowd
    }

    fn locks(&self, seed: u64) -> Locks {
        let nodes = self.nodes.iter();
        let nodes = nodes.map(|node| Arc::new(node.clone()) as Arc<dyn Node>);
        let locks = Locks::over(nodes.collect())
            .expiry(Expiry::Observed)
            .clock(self.time.clock())
            .chance(Chance::seeded(seed))
            .tag(format!("{seed}"))
            .keeper_here(Spawn::system());
        locks.start().unwrap()
    }

    async fn sleep(&self, pause: Duration) {
        self.time.clock().sleep(pause).await;
    }

    async fn settle(&self, jobs: usize) {
        let led = || {
            self.replicas
                .iter()
                .map(|replica| replica.local_status.leases().len())
        };
        for _ in 0..600 {
            if led().sum::<usize>() == jobs {
                return self.sleep(SECOND * 5).await;
            }
            self.sleep(SECOND / 10).await;
        }
        panic!("only {} are led", led().sum::<usize>());
    }

    /// Bytes of documents written and read, and of renewals, by node and second.
    async fn rates(&self, seconds: u32) -> [u64; 3] {
        let count = || {
            let tallies = self.nodes.iter().map(|node| &*node.tally);
            let all = tallies.map(|of| [&of.written, &of.read, &of.renewed]);
            let all = all.map(|of| of.map(|count| count.load(Ordering::Relaxed)));
            all.fold([0; 3], |sum, of| [0, 1, 2].map(|n: usize| sum[n] + of[n]))
        };
        let before = count();
        self.nodes[0].tally.names.lock().unwrap().clear();
        self.sleep(SECOND * seconds).await;
        let after = count();
        [0, 1, 2].map(|n: usize| (after[n] - before[n]) / 3 / u64::from(seconds))
    }

    async fn status(&self, client: &Fleet) -> FleetStatus {
        client.status().await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn at_rest_twelve_replicas_cost_little_more_than_four() {
    let mut sent = Vec::new();
    // Nothing is handed over meanwhile.
    let spec = Spec::every(SECOND * 3600).min_term(SECOND * 3600);
    for replicas in [4, 12] {
        let crowd = Crowd::of(replicas, 100, &spec);
        crowd.settle(100).await;
        let [written, read, renewed] = crowd.rates(20).await;
        println!(
            "{replicas} replicas at rest: written {written}, read {read}, renewed {renewed} bytes a second and node"
        );
        // A sign of life every other second, and a look at the others.
        let names = || crowd.nodes[0].tally.names.lock().unwrap().clone();
        assert!(
            read < 100 * replicas as u64,
            "{read} bytes a second: {:#?}",
            names()
        );
        assert!(written < 200 * replicas as u64, "{written} bytes a second");
        sent.push(read + renewed);
    }
    assert!(sent[1] <= 2 * sent[0], "{sent:?} bytes a second");
    assert!(sent[1] < 100_000, "{sent:?} bytes a second");
}

#[tokio::test(start_paused = true)]
async fn ticks_are_told_in_turn_and_read_by_those_who_show_them() {
    let crowd = Crowd::of(2, 40, &Spec::every(SECOND));
    crowd.settle(40).await;
    let [written, read, _] = crowd.rates(20).await;
    println!("40 ticks a second: written {written}, read {read} bytes a second and node");
    let history = 40 * 2 * 1_000;
    assert!(
        written < history,
        "{written} bytes a second, with the history of runs"
    );
    let client = Fleet::over(&crowd.locks(99), "test");
    crowd.status(&client).await;
    let before = crowd.rates(1).await[1];
    println!("a second without a look: {before}");
    for _ in 0..3 {
        let fleet = crowd.status(&client).await;
        let now = crowd.time.clock().wall();
        for job in &fleet.jobs {
            let last = job.last_tick.expect("a tick that was decided");
            let age = now.duration_since(last).as_secs_f64();
            assert!(age < 5.0, "what is shown of {} is {age} s old", job.name);
        }
        crowd.sleep(SECOND * 3).await;
    }
}

/// Names are read of those parts of the directory alone in which something has changed: what comes of it is what a newcomer
/// reads who knows nothing.
#[tokio::test(start_paused = true)]
async fn what_is_known_of_who_lives_is_what_is_there_whatever_changes() {
    let crowd = Crowd::of(0, 0, &Spec::every(SECOND));
    let (locks, chance) = (crowd.locks(1), Chance::seeded(7));
    let life = || SECOND * 2..SECOND * 7;
    let read = || crowd.nodes[0].tally.read.load(Ordering::Relaxed);
    let told = |lives: &Lives| -> BTreeMap<String, u64> {
        let all = lives.newest().into_iter();
        all.map(|(name, (rev, _))| (name.to_owned(), rev)).collect()
    };
    let (mut known, mut revs, mut costs) = (Lives::default(), [0_u64; 120], [0, 0]);
    for step in 0..200 {
        let changes = if step == 0 { 0 } else { chance.below(3) };
        for n in (0..120).filter(|_| step % 20 == 0) {
            // Signs of life, of most of them.
            let name = format!("presence/{n}");
            let n = usize::try_from(n).unwrap();
            if revs[n] == 0 {
                revs[n] = 997 * (n as u64 + 1);
                let put = locks.put_doc(&name, revs[n], SECOND * 7, String::new());
                put.await.unwrap();
            } else if chance.hits(0.9) {
                let touch = locks.touch_docs(vec![(name, revs[n])], SECOND * 7);
                touch.await.unwrap();
            }
        }
        for _ in 0..changes {
            let n = usize::try_from(chance.below(120)).unwrap();
            let name = format!("presence/{n}");
            if chance.hits(0.3) {
                locks.remove_doc(&name).await.unwrap();
            } else {
                revs[n] += 1;
                let put = locks.put_doc(&name, revs[n], SECOND * 7, String::new());
                put.await.unwrap();
            }
        }
        crowd.sleep(SECOND / 5).await;
        let before = read();
        known = locks.living("presence/", life(), known).await.unwrap();
        let between = read();
        let anew = locks.living("presence/", life(), Lives::default());
        let anew = anew.await.unwrap();
        assert_eq!(told(&known), told(&anew), "step {step}");
        costs = [costs[0] + between - before, costs[1] + read() - between];
    }
    assert!(costs[0] * 3 < costs[1], "{costs:?} bytes");
}
