//! What runs where the caller is: attempts, and the release of a lease that its holder gives back.
//!
//! Both go over links of their own, so that no thread of ours stands between a caller and the nodes. The keeper hears of them
//! through the lease table alone: a lease is in its care before its holder has it, and leaves it in the step in which the
//! belief ends. What is left to do when a caller has gone or a node has not answered, is the keeper's, on its own connections:
//! undoing, late answers, repeats.
//!
//! # Invariants
//! - R11 as in `shared`: no work is left, the belief has ended, then the nodes are told.
//! - N4' A release leaves on the connection of its acquire, behind it; on another only when the acquire can act no more.

use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::sync::watch;

use super::{
    freeze::{look_every, slack},
    lease_table::next_renewal,
    shared::Shared,
};
use crate::{
    clock::Moment,
    event::Event,
    expiry::LockState,
    hash::fnv1a,
    lease::{KeeperHandle, Lease, LeaseView, Loss, NewLease, ReleaseReport, TakesBack},
    node::{NodeError, Op},
    quorum::{
        Claim, Claimed, PendingAnswers,
        claim::{Attempt, AttemptMode, QueuePosition, Tried, Win},
        cluster::{Busy, LONGEST_CALL, Progress, is_on_a_runtime},
        link::{Link, MOST_OPS},
    },
};

/// An attempt ends within so many node timeouts, or the runtime stands still on which the links of callers live.
const LONGEST_ATTEMPT: u32 = 20;

/// The part of the lock service that callers run.
pub(crate) struct Front(pub(super) Shared);

// === impl Front ===

impl Front {
    /// One attempt at many claims at once.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        claims: &[Claim],
        mode: &AttemptMode,
    ) -> Vec<Claimed> {
        let cluster = &self.0.cluster;
        // A lease that is not taken any more is released: the end of the process waits for that as well.
        let _busy = cluster.busy();
        let start = cluster.clock.now();
        if are_apart(claims) {
            return self.acquire_each(claims, mode, start).await;
        }
        // A lock that is named twice is held by its first claim: one attempt has one owner value, so that the nodes
        // would grant it to both.
        let mut named = BTreeSet::new();
        let (mut once, mut first) = (Vec::new(), Vec::new());
        for claim in claims {
            first.push(named.insert(&claim.key));
            if first.last() == Some(&true) {
                once.push(claim.clone());
            }
        }
        let mut claimed = self.acquire_each(&once, mode, start).await.into_iter();
        let each = first.into_iter().map(|first| {
            let claimed = if first { claimed.next() } else { None };
            claimed.unwrap_or(Claimed::Held {
                by: None,
                for_at_most: None,
            })
        });
        each.collect()
    }

    /// One attempt at claims that name each lock once.
    async fn acquire_each(
        self: &Arc<Self>,
        claims: &[Claim],
        mode: &AttemptMode,
        start: Moment,
    ) -> Vec<Claimed> {
        match claims.len() {
            0 => return Vec::new(),
            1..=MOST_OPS => return self.acquire_part(claims, mode, start).await,
            _ => {}
        }
        // An owner value and a call for as many as fit into one: a node remembers one grant per owner of claims, and what
        // came with a later call would be held under a number that others have passed by then.
        let parts = claims.chunks(MOST_OPS);
        let parts = parts.map(|part| self.acquire_part(part, mode, start));
        let parts = futures_util::future::join_all(parts).await;
        parts.into_iter().flatten().collect()
    }

    async fn acquire_part(
        self: &Arc<Self>,
        claims: &[Claim],
        mode: &AttemptMode,
        start: Moment,
    ) -> Vec<Claimed> {
        let tried = self.attempt(claims, mode).await;
        // In the keeper's care at once: the caller may go before the other parts have ended.
        let mut wakes = false;
        let claimed = claims.iter().zip(tried);
        let claimed = claimed.map(|(claim, tried)| {
            let (claimed, rings) = self.claimed(claim, tried.attempt, start);
            wakes |= rings;
            claimed
        });
        let claimed = claimed.collect();
        // When all of them are there: it would look at each by itself.
        if wakes {
            self.0.ring();
        }
        claimed
    }

    /// One attempt at a single named lock.
    pub(crate) async fn try_once(
        self: &Arc<Self>,
        claim: &Claim,
        mode: &AttemptMode,
    ) -> (Claimed, LockState, QueuePosition) {
        let cluster = &self.0.cluster;
        let _busy = cluster.busy();
        let start = cluster.clock.now();
        let tried = self.attempt(std::slice::from_ref(claim), mode).await;
        match tried.into_iter().next() {
            Some(Tried {
                attempt,
                mut seen,
                position,
            }) => {
                seen.vacant_since = self.0.watchlist.vacant_since(&claim.key);
                let (claimed, rings) = self.claimed(claim, attempt, start);
                if rings {
                    self.0.ring();
                }
                if let (Claimed::Acquired(lease), true) = (&claimed, mode.ticket.is_some()) {
                    lease.view().came_from_queue();
                }
                (claimed, seen, position)
            }
            None => (
                Claimed::TooSlow,
                LockState::new(claim.key.clone(), Vec::new()),
                QueuePosition::default(),
            ),
        }
    }

    /// One attempt. Where the links of callers fail it, because they live on a runtime that has ended or stands still, it is
    /// made anew over the keeper's. So is one during which this process was frozen: what it asked came too late, and that says
    /// nothing of the nodes.
    async fn attempt(&self, claims: &[Claim], mode: &AttemptMode) -> Vec<Tried> {
        let cluster = &self.0.cluster;
        if !is_on_a_runtime() {
            // It goes over the keeper's.
            return cluster.attempt(claims, mode).await;
        }
        let slow = cluster.timing.node_timeout;
        let limit = slow * LONGEST_ATTEMPT;
        let failed = |tried: &Tried| matches!(tried.attempt, Attempt::NoQuorum(_));
        let too_late = |tried: &Tried| failed(tried) || matches!(tried.attempt, Attempt::TooSlow);
        {
            let (clock, mut late) = (&cluster.clock, false);
            let begun = clock.now();
            let mut attempt = pin!(cluster.attempt(claims, mode));
            loop {
                let end = clock.now() + limit;
                match clock.timeout_at(end, &mut attempt).await {
                    // Awake we would not have waited for so long.
                    Ok(tried) if tried.iter().all(too_late) && clock.now().since(begun) > limit => {
                        break;
                    }
                    Ok(tried) if tried.iter().all(failed) && cluster.has_other_lanes() => break,
                    Ok(tried) => return tried,
                    // We were late ourselves, frozen or starved: the answers may have been waiting for us all the time.
                    Err(_) if !late && clock.now().since(end) > slow / 2 => late = true,
                    Err(_) => {
                        // Before it is undone: that goes over the keeper's as well, before what is asked next.
                        cluster.of_callers.iter().for_each(Link::distrust);
                        break;
                    }
                }
            }
        }
        cluster.attempt(claims, mode).await
    }

    /// How an attempt has ended for a claim. Whether the keeper is to be woken for it.
    fn claimed(
        self: &Arc<Self>,
        claim: &Claim,
        attempt: Attempt,
        start: Moment,
    ) -> (Claimed, bool) {
        let cluster = &self.0.cluster;
        if cluster.events.are_heard() {
            let outcome = match &attempt {
                Attempt::Won(_) => "acquired",
                Attempt::Held { .. } => "held",
                Attempt::NoQuorum(_) => "no_quorum",
                Attempt::TooSlow => "too_slow",
            };
            let took = cluster.clock.now().since(start);
            let resource = cluster.events.resource(&claim.key);
            cluster.events.tell(Event::Acquire {
                resource,
                outcome,
                took,
            });
        }
        let lost = match attempt {
            Attempt::Won(win) => return self.won(claim, win, start),
            Attempt::Held { by, for_at_most } => Claimed::Held { by, for_at_most },
            Attempt::NoQuorum(nodes) => Claimed::NoQuorum(self.0.troubles(nodes)),
            Attempt::TooSlow => Claimed::TooSlow,
        };
        (lost, false)
    }

    /// A lease, in the keeper's care. Whether the keeper is to be woken for it.
    fn won(self: &Arc<Self>, claim: &Claim, win: Win, start: Moment) -> (Claimed, bool) {
        let shared = &self.0;
        let cluster = &shared.cluster;
        let ttl = claim.ttl_or(&cluster.timing);
        let new = NewLease {
            key: claim.key.clone(),
            owner: win.owner,
            token: win.token,
            kind: claim.kind,
            ttl,
            valid_until: win.valid_until,
            margin: cluster.margin(win.kept),
            granted_by: win.granted_by.into(),
        };
        let view = LeaseView::new(new, cluster.clock.clone(), self.handle(ttl));
        let early = cluster.chance.up_to(cluster.timing.renew_early(ttl));
        let renew_at = next_renewal(start, ttl, &cluster.timing, early);
        // Before the keeper has it, who may find it over at once and say so.
        shared.watchlist.taken(&claim.key, view.owner());
        let adopted = shared
            .table()
            .adopt(view.clone(), win.record.clone(), renew_at);
        let Some(wakes) = adopted else {
            // The keeper would not extend it. Its nodes forget it by themselves.
            view.end(Loss::Released);
            let ended = || NodeError::Unreachable("the lock keeper has panicked".to_owned());
            let nodes = cluster.links.iter();
            let nodes = nodes.map(|link| (link.name().to_owned(), ended()));
            return (Claimed::NoQuorum(shared.troubles(nodes.collect())), false);
        };
        (Claimed::Acquired(Lease::new(view, win.record)), wakes)
    }

    /// What connects a lease of this ttl with its keeper.
    fn handle(self: &Arc<Self>, ttl: Duration) -> KeeperHandle {
        let timing = &self.0.cluster.timing;
        let here: Weak<Self> = Arc::downgrade(self);
        KeeperHandle {
            to: self.0.notes.clone(),
            pulse: self.0.pulse.clone(),
            late_after: look_every(timing) + slack(ttl, timing),
            takes_back: Some(here),
        }
    }
}

impl TakesBack for Front {
    fn take_back(&self, view: &LeaseView) -> Option<BoxFuture<'static, ReleaseReport>> {
        let shared = &self.0;
        let cluster = &shared.cluster;
        // The queue's order of telling, and what has no runtime, are the keeper's.
        if view.is_from_queue() || !is_on_a_runtime() {
            return None;
        }
        let busy = cluster.busy();
        if !shared.table().let_go(view) {
            return None;
        }
        shared.has_ended(view);
        let mut telling = Telling {
            shared: shared.clone(),
            pending: PendingAnswers::default(),
            told: 0,
            sure: 0,
            view: view.clone(),
            busy: Some(busy),
        };
        let lanes = cluster.lanes();
        for (node, link) in lanes.iter().enumerate() {
            telling.pending.ask_shortly(node, link, vec![telling.op()]);
        }
        telling.pending.want(lanes.len());
        Some(telling.all().boxed())
    }
}

/// Whether these claims surely name each lock once.
fn are_apart(claims: &[Claim]) -> bool {
    let mut seen: Vec<u64> = claims.iter().map(|c| fnv1a(c.key.bytes())).collect();
    seen.sort_unstable();
    seen.is_sorted_by(|one, next| one < next)
}

/// Nodes are being told of a release. What is left of that when it is dropped is the keeper's.
struct Telling {
    shared: Shared,
    pending: PendingAnswers,
    told: usize,
    /// Nodes that surely know, each a bit.
    sure: u64,
    /// What is released.
    view: LeaseView,
    busy: Option<Busy>,
}

impl Telling {
    /// Waits for each node's answer, but not for a node that is known to give none.
    async fn all(mut self) -> ReleaseReport {
        let cluster = self.shared.cluster.clone();
        let late = cluster.timing.node_timeout * LONGEST_CALL;
        let mut late = pin!(cluster.clock.sleep(late));
        let timed = is_on_a_runtime();
        loop {
            tokio::select! {
                biased;
                answer = self.pending.next() => match answer {
                    Some((node, result)) => self.heard(node, result.is_ok()),
                    None => break,
                },
                () = &mut late, if timed => break,
            }
        }
        while let Some((node, result)) = self.pending.by_now() {
            self.heard(node, result.is_ok());
        }
        ReleaseReport {
            nodes: self.told,
            of: self.shared.cluster.links.len(),
        }
    }

    fn heard(&mut self, node: usize, done: bool) {
        self.told += usize::from(done);
        if done && self.shared.cluster.is_in_order(node, self.quiet()) {
            self.sure |= bit(node);
        }
    }

    fn op(&self) -> Op {
        self.shared.cluster.release_of(&self.view)
    }

    /// From when on nothing of its attempt acts any more.
    fn quiet(&self) -> Moment {
        self.shared.cluster.quiet_after(self.view.since())
    }
}

/// A node among those that surely know. One that has no bit is told again.
fn bit(node: usize) -> u64 {
    let node = u32::try_from(node).unwrap_or(u32::MAX);
    1_u64.checked_shl(node).unwrap_or(0)
}

impl Drop for Telling {
    fn drop(&mut self) {
        let of = self.shared.cluster.links.len();
        if (0..of).all(|node| self.sure & bit(node) != 0) {
            return;
        }
        let mut sure = self.sure;
        let mut pending = std::mem::take(&mut self.pending);
        pending.want(1);
        let (op, quiet, busy) = (self.op(), self.quiet(), self.busy.take());
        let (told, mut progress) = watch::channel(Progress {
            nodes: self.told,
            asked: false,
        });
        let cluster = self.shared.cluster.clone();
        let clock = cluster.clock.clone();
        let slow = cluster.timing.node_timeout;
        let (limit, late) = (clock.now() + slow * 2, clock.now() + slow * LONGEST_CALL);
        self.shared.cluster.spawn.spawn(async move {
            // The end of the process waits a little: a node that missed the release may hear the second one.
            let all = progress.wait_for(|told| told.nodes >= of);
            let _ = clock.timeout_at(limit, all).await;
            drop(busy);
        });
        self.shared.cluster.spawn.spawn(async move {
            let clock = cluster.clock.clone();
            while let Ok(Some((node, result))) = clock.timeout_at(late, pending.next()).await {
                if result.is_ok() {
                    told.send_modify(|told| told.nodes += 1);
                    if cluster.is_in_order(node, quiet) {
                        sure |= bit(node);
                    }
                }
            }
            let missing = (0..of).filter(|node| sure & bit(*node) == 0).collect();
            cluster.repeat(missing, vec![op], told, quiet).await;
        });
    }
}
