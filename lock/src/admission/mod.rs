//! The client's side of the restart guard: brings nodes that are new, or have lost their memory, back to their vote.
//!
//! A node that has forgotten a vote could give it a second time. So it has none until everything that was granted
//! before is over. A nomination is put on it and watched for the longest lease on our own clock. Only then the node
//! is told what the others know, and admitted (`node::guard` has the node's side). Every process does this
//! for every node: any of them may finish it, several at once harmlessly, and the death of one costs nothing.
//!
//! What to do next is decided in `candidate`, which nodes the fleet has in `roster`, what a node must be told in
//! `knowledge`. Here the calls are made.
//!
//! # When things fail    A node that does not answer is asked again, as long as the process lives. Nothing here votes.
//! # Not promised        Ticks and tokens of a majority that lost its memory at once: see the memory loss in `knowledge`.

mod at_once;
pub(crate) mod candidate;
mod guard;
pub(crate) mod knowledge;
mod log_state;
mod looks;
pub(crate) mod one_node;
mod report;
pub(crate) mod roster;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures_util::{
    StreamExt,
    future::{BoxFuture, join_all, select_all},
    stream::FuturesUnordered,
};

#[doc(hidden)] // for the command `doctor` and tests
pub use at_once::{Membership, NotAdmitted, admit_at_once, memberships};
#[doc(hidden)] // for the commands
pub use report::whole_seconds;
pub use report::{AdmissionReport, AdmissionState};

pub(crate) use guard::{Guard, TokenFloor};

use self::{
    candidate::{Candidate, Next, Part, patience},
    log_state::{FleetLogState, NodeLogState},
    looks::{Look, Looks},
    one_node::OneNode,
    roster::{List, Picture, Step},
};
use crate::{
    backoff::Backoff,
    clock::Moment,
    node::{Admission, Answer, Eligibility, NodeError, Op, Reply, guard::closed_for},
    panics::caught_later,
    quorum::{
        cluster::Cluster,
        link::Link,
        members::{Members, others},
    },
    settings::FleetConfig,
};

/// A node whose fleet waits for others is looked at so often.
const LATER: Duration = Duration::from_secs(1);

/// Tends all nodes, for ever: at the start of the process, and whenever the replies of one say that it has no vote, or has come
/// to be of another roster.
pub(crate) async fn tend(cluster: Cluster, guard: Guard) {
    loop {
        let tending = caught_later(|| tend_all(cluster.clone(), guard.clone())).await;
        if let Err(panic) = tending {
            tracing::error!(
                panic,
                "what tends the lock nodes has panicked, and begins again: this is a fault of watchkeeper"
            );
        }
        cluster.clock.sleep(LATER).await;
    }
}

async fn tend_all(cluster: Cluster, guard: Guard) {
    let names = cluster.links.iter().map(Link::name);
    let list = List::of(names);
    let nodes = cluster.links.len();
    let mut tending = Tending {
        list,
        tended: (0..nodes).map(|_| Tended::default()).collect(),
        last: vec![None; nodes],
        answered: vec![false; nodes],
        changed: [None; 2],
        begins: false,
        waits: None,
        log_state: FleetLogState::default(),
        cluster,
        guard,
    };
    loop {
        tending.until_all_vote().await;
        tending.pause().await;
        tokio::select! {
            biased;
            () = tending.changed() => {}
            () = tending.is_back() => {}
        }
    }
}

/// Whether a node of this eligibility votes.
pub(crate) fn votes(eligibility: &Eligibility) -> bool {
    match eligibility {
        Eligibility::Unguarded | Eligibility::Admitted(_) => true,
        Eligibility::Unadmitted | Eligibility::Configured(_) => false,
    }
}

/// What is kept of one node.
#[derive(Default)]
struct Tended {
    candidate: Candidate,
    log_state: NodeLogState,
    /// The end of its watch.
    watch: Option<Moment>,
    lost_before: i64,
}

struct Tending {
    cluster: Cluster,
    guard: Guard,
    list: List,
    tended: Vec<Tended>,
    /// What each node has shown last.
    last: Vec<Option<Admission>>,
    /// Which of them have answered when they were asked last.
    answered: Vec<bool>,
    /// When this program began to change the fleet's roster last: not more often than that in the time of a watch. Where an address
    /// leads two programs to two servers they undo each other's changes, and each costs all programs their votes for a moment.
    changed: [Option<Moment>; 2],
    /// What is to be done begins such a change.
    begins: bool,
    /// Without the guard: until when a fleet that was seen on a node may say that the others are its own, too.
    waits: Option<Moment>,
    log_state: FleetLogState,
}

/// What is to be done about one node, now.
enum Todo {
    Ask(Op),
    Admit(String, Admission),
}

// === impl Todo ===

impl Todo {
    /// Whether it was decided by what all nodes show, which must have been true at one time. A nomination is not: it is made at
    /// once, before a program without the guard takes a node that has forgotten its fleet.
    fn rests_on_all(&self) -> bool {
        !matches!(self, Self::Ask(Op::Nominate { .. }))
    }
}

// === impl Tending ===

impl Tending {
    fn is_guarded(&self) -> bool {
        self.guard.fleet.is_guarded()
    }

    /// Until all nodes that answer vote.
    async fn until_all_vote(&mut self) {
        let timing = self.cluster.timing.clone();
        let clock = self.cluster.clock.clone();
        // Another fleet's watch must not pass while we rest.
        let longest = (timing.max_ttl / 10).min(Duration::from_secs(1));
        let mut backoff = Backoff::new(timing.node_timeout, longest.max(timing.node_timeout));
        // Reading what the others know may take long, and meanwhile the others are looked at.
        let mut admitting = FuturesUnordered::new();
        let mut rests: Vec<Option<Moment>> = vec![Some(Moment::ZERO); self.tended.len()];
        loop {
            let mut looks = self.look().await;
            let (mut todo, mut next) = self.decide(&looks);
            if self.is_guarded() && todo.iter().any(|(_, todo)| todo.rests_on_all()) {
                let again = self.look().await;
                let alike = looks.are_like(&again);
                looks = again;
                (todo, next) = self.decide(&looks);
                if !alike {
                    todo.retain(|(_, todo)| !todo.rests_on_all());
                    next = Some(clock.now() + backoff.next(&self.cluster.chance));
                }
            }
            if self.guard.bystander {
                return;
            }
            let rests_on_all = todo
                .iter()
                .any(|(_, todo)| matches!(todo, Todo::Ask(_)) && todo.rests_on_all());
            if rests_on_all && self.begins {
                self.changed = [Some(clock.now()), self.changed[0]];
            }
            let mut asks = Vec::new();
            for (node, todo) in todo {
                match todo {
                    Todo::Ask(op) => asks.push(self.ask(node, op)),
                    Todo::Admit(nonce, shown) => match rests[node] {
                        // It is under way.
                        None => {}
                        Some(until) if clock.now() < until => {
                            next = Some(next.map_or(until, |next| next.min(until)));
                        }
                        Some(_) => {
                            rests[node] = None;
                            admitting.push(self.admit(node, nonce, shown));
                        }
                    },
                }
            }
            if !asks.is_empty() {
                if join_all(asks).await.contains(&false) {
                    clock.sleep(backoff.next(&self.cluster.chance)).await;
                } else {
                    backoff.reset();
                }
                continue;
            }
            if let Some(until) = self.waits {
                next = Some(next.map_or(until, |at| at.min(until)));
            }
            if !admitting.is_empty() {
                let soon = clock.now() + longest;
                next = Some(next.map_or(soon, |at| at.min(soon)));
            }
            let silent =
                |(node, link): (usize, &Link)| looks.nodes[node].is_none() && !link.is_down();
            if self.cluster.links.iter().enumerate().any(silent) {
                let soon = clock.now() + backoff.next(&self.cluster.chance);
                next = Some(next.map_or(soon, |at| at.min(soon)));
            }
            let Some(at) = next else { return };
            // Where others have admitted a node, its votes count at once.
            tokio::select! {
                biased;
                Some((node, done)) = admitting.next() => {
                    let pause = match done {
                        true => Duration::ZERO,
                        false => backoff.next(&self.cluster.chance),
                    };
                    rests[node] = Some(clock.now() + pause);
                }
                () = clock.sleep_until(at) => {}
                () = self.changed() => self.pause().await,
            }
        }
    }

    /// Replies that were under way must not keep us busy.
    async fn pause(&self) {
        let cluster = &self.cluster;
        cluster.clock.sleep(cluster.timing.node_timeout).await;
    }

    /// Until a reply says that a node does not vote as it was shown.
    async fn changed(&self) {
        let members = self.cluster.members.borrow().clone();
        let links = self.cluster.links.iter().enumerate();
        let waiting = links.map(|(node, link)| -> BoxFuture<'_, ()> {
            let marker = members.markers.get(node).cloned().flatten();
            let all = members.all;
            let mut eligibility = link.eligibility();
            let before = eligibility.borrow_and_update().clone();
            Box::pin(async move {
                let as_before = |now: &Eligibility| match (now, &marker) {
                    _ if all => votes(now),
                    (Eligibility::Admitted(now), Some(marker)) => now == marker,
                    (_, Some(_)) => false,
                    (now, None) => *now == before,
                };
                if eligibility.wait_for(|now| !as_before(now)).await.is_err() {
                    std::future::pending().await
                }
            })
        });
        let _ = select_all(waiting).await;
    }

    /// Until a node that has not answered is not known to be down.
    async fn is_back(&self) {
        let links = self.cluster.links.iter().zip(&self.answered);
        let silent = links.filter(|(_, answered)| !**answered);
        let back: Vec<BoxFuture<'_, ()>> = silent
            .map(|(link, _)| -> BoxFuture<'_, ()> { Box::pin(link.up()) })
            .collect();
        match back.is_empty() {
            true => std::future::pending().await,
            false => drop(select_all(back).await),
        }
    }

    /// Asks all nodes, and tells the others of this process whose votes count together.
    async fn look(&mut self) -> Looks {
        let clock = self.cluster.clock.clone();
        let began = clock.now();
        let links = self.cluster.links.clone();
        let mut asked: FuturesUnordered<_> =
            links
                .iter()
                .enumerate()
                .map(|(node, link)| async move {
                    (node, admission(link.ask(vec![Op::Admission]).await))
                })
                .collect();
        let mut nodes = vec![None; links.len()];
        while let Some((node, answer)) = asked.next().await {
            if let Some((shown, node_ms)) = answer {
                self.last[node] = Some(shown.clone());
                nodes[node] = Some(Look { shown, node_ms });
            }
            if !self.cluster.members.borrow().known {
                self.publish(asked.is_empty());
            }
        }
        if let Some(until) = self.others_until(clock.now()) {
            self.waits = Some(until);
        }
        self.waits = self.waits.filter(|until| clock.now() < *until);
        self.publish(true);
        self.answered = nodes.iter().map(Option::is_some).collect();
        Looks {
            nodes,
            began,
            ended: clock.now(),
        }
    }

    /// Without the guard: how long another fleet that keeps one of the nodes, or is about to, is waited for where it may have lost
    /// the others.
    fn others_until(&self, now: Moment) -> Option<Moment> {
        let ours = &self.guard.fleet;
        let others = others(&self.last, ours).filter(|_| !self.is_guarded());
        let waits = others.map(|theirs| now + patience(theirs, (ours, &self.cluster.timing)));
        waits.max()
    }

    /// What of a node counts that does not answer just now is what it has shown last: each vote is compared with it.
    fn publish(&self, all_asked: bool) {
        let members = match self.is_guarded() {
            false => {
                let waits = self.waits.is_some();
                Members::unguarded(&self.last, &self.guard.fleet, all_asked, waits)
            }
            true => {
                let picture = Picture::of(&self.last, &self.list, &self.guard.fleet);
                let markers = picture.markers();
                Members {
                    known: all_asked || markers.is_some(),
                    markers: markers.unwrap_or_default(),
                    all: self.compares_nothing(),
                    barred: false,
                }
            }
        };
        self.cluster.members.send_if_modified(|now| {
            let changed = **now != members;
            if changed {
                *now = Arc::new(members);
            }
            changed
        });
    }

    /// Its nodes have no guard, although the program was told of one.
    fn compares_nothing(&self) -> bool {
        let mut shown = self.last.iter().flatten().peekable();
        shown.peek().is_some() && shown.all(|shown| shown.incarnation.is_empty())
    }

    /// What is to be done now, and when it is to be looked at again; nothing if never.
    fn decide(&mut self, looks: &Looks) -> (Vec<(usize, Todo)>, Option<Moment>) {
        let shown = looks.shown();
        let (cluster, fleet) = (&self.cluster, &self.guard.fleet);
        let picture = self
            .is_guarded()
            .then(|| Picture::of(&shown, &self.list, fleet));
        self.begins = picture.as_ref().is_some_and(Picture::begins);
        let pause = cluster.timing.watch_time(fleet.watched());
        let lately = |at: &Option<Moment>| at.is_some_and(|at| looks.ended < at + pause);
        let is_held = self.begins && self.changed.iter().all(lately);
        let (mut todo, mut next): (_, Option<Moment>) = (Vec::new(), None);
        for (node, look) in looks.nodes.iter().enumerate() {
            let Some(Look { shown, node_ms }) = look else {
                continue;
            };
            let (link, tended) = (&cluster.links[node], &mut self.tended[node]);
            if link.take_vote() {
                tended.candidate.has_vote();
            }
            tended
                .candidate
                .hears(stranger_elsewhere(cluster, fleet, node));
            let step = picture.as_ref().map(|picture| picture.step(node));
            let part = Part {
                stands: step.is_none() || step == Some(Step::Stands),
                is_complete: picture.as_ref().is_some_and(Picture::is_complete),
                is_known: picture.as_ref().is_some_and(Picture::is_known),
            };
            let on = tended.candidate.on(
                (looks.began, looks.ended),
                shown,
                (fleet, &cluster.timing),
                part,
            );
            link.set_watched(tended.candidate.watched());
            let other = picture.as_ref().and_then(|picture| picture.differs(node));
            link.set_other(other.clone());
            link.set_rival(match &on {
                Next::Other(theirs, _) => Some(theirs.clone()),
                _ => None,
            });
            if tended.watch != tended.candidate.until() {
                tended.watch = tended.candidate.until();
                // What is lost was decided before: no vote of this node counts while it is watched.
                let skew = i64::try_from(cluster.timing.skew.as_millis()).unwrap_or(i64::MAX);
                let wall = cluster.clock.wall().as_millisecond().max(*node_ms);
                tended.lost_before = wall.saturating_add(skew);
            }
            let left = tended.watch.map(|at| at.since(looks.ended));
            tended.log_state.tell(
                (link.name(), cluster.links.len(), fleet),
                shown,
                (&on, other.as_deref()),
                left,
            );
            let mut look_at = |at: Moment| next = Some(next.map_or(at, |next| next.min(at)));
            match on {
                Next::Nominate(over) => {
                    let nonce = cluster.chance.nonce();
                    todo.push((node, Todo::Ask(Op::Nominate { nonce, over })));
                }
                Next::Admit(nonce) => todo.push((node, Todo::Admit(nonce, shown.clone()))),
                Next::Look(at) => look_at(at + spread(cluster)),
                Next::Other(_, at) => {
                    look_at(at + spread(cluster));
                    continue;
                }
                Next::Rest => {}
            }
            match step {
                Some(Step::Enrol(..) | Step::Close(..)) if is_held => look_at(looks.ended + LATER),
                Some(Step::Enrol(was, roster)) => {
                    todo.push((node, Todo::Ask(Op::Enrol { was, roster })));
                }
                Some(Step::Close(was, forgets)) => {
                    // That of a fleet that had it before is waited for as well.
                    let theirs = shown.config.as_deref().and_then(FleetConfig::max_ttl_in);
                    let limit = cluster.timing.max_ttl.max(fleet.watched());
                    let limit = limit.max(theirs.unwrap_or_default());
                    let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                    let config = closed_for(limit, &fleet.to_string());
                    let nonce = cluster.chance.nonce();
                    let close = Op::Close {
                        was,
                        nonce,
                        config,
                        forgets,
                    };
                    todo.push((node, Todo::Ask(close)));
                }
                // A member of another list's, or one that waits for others.
                Some(Step::Wait) if !is_of_no_fleet(shown) => look_at(looks.ended + LATER),
                _ => {}
            }
        }
        if let Some(picture) = &picture {
            self.log_state.tell(picture, cluster, &shown);
        }
        (todo, next)
    }

    /// Whether it was done.
    async fn ask(&self, node: usize, op: Op) -> bool {
        let Some(link) = self.cluster.links.get(node) else {
            return false;
        };
        let asked = link.ask(vec![op]).await;
        asked.is_ok_and(|reply| reply.answers != [Answer::Unadmitted])
    }

    /// Which node, and whether it is admitted.
    fn admit(
        &self,
        node: usize,
        nonce: String,
        shown: Admission,
    ) -> BoxFuture<'static, (usize, bool)> {
        let lost_before = self.tended.get(node).map_or(0, |tended| tended.lost_before);
        let (cluster, guard) = (self.cluster.clone(), self.guard.clone());
        Box::pin(async move {
            let Some(link) = cluster.links.get(node) else {
                return (node, false);
            };
            let of = OneNode {
                cluster: &cluster,
                guard: &guard,
                node,
                link,
            };
            (node, of.admit(nonce, &shown, lost_before).await)
        })
    }
}

/// Nodes that compare nothing have no roster.
fn is_of_no_fleet(shown: &Admission) -> bool {
    shown.incarnation.is_empty()
}

/// The configuration of another fleet that another node keeps locks for, by its latest reply.
fn stranger_elsewhere(cluster: &Cluster, fleet: &FleetConfig, node: usize) -> Option<String> {
    let links = cluster.links.iter().enumerate();
    let mut others = links.filter(|(other, _)| *other != node);
    others.find_map(|(_, link)| match &*link.eligibility().borrow() {
        Eligibility::Configured(marker) => fleet.other(marker).map(str::to_owned),
        _ => None,
    })
}

/// Processes that have watched equally long need not all read everything: the first one's marker ends it.
fn spread(cluster: &Cluster) -> Duration {
    let most = cluster.timing.max_ttl / 50;
    cluster.chance.up_to(most.min(Duration::from_secs(1)))
}

/// With the node's wall clock.
fn admission(read: Result<Reply, NodeError>) -> Option<(Admission, i64)> {
    let mut reply = read.ok()?;
    match reply.answers.pop() {
        Some(Answer::Admission(shown)) => Some((shown, reply.wall_ms)),
        _ => None,
    }
}
