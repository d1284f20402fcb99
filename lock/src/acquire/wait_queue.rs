//! The queue for one lock: its waiters are woken in order.
//!
//! The queue lies on the lock's primary and is a courtesy. A waiter that is called comes at once, and the others
//! stay. A waiter that does not come is passed by after a while, and its place ends by itself. Safety does not depend on
//! the queue.
//!
//! A node announces a release only where a client waits for it. So every attempt of a waiter says that it waits, for as long as
//! its place is kept, and the lock's record remembers that on every node that refuses it, also under the next holder.
//! - W2 The first attempt goes to all nodes, and so does whatever renews the place: with N - q + 1 refusals the waiter is told
//!   wherever a majority releases. Until then it looks more often.      (w2_a_waiter_that_told_too_few_nodes_looks_more_often)
//! - W5 The stream of announcements is opened before the first attempt, and what comes while an attempt is under way stays in it
//!   until the waiter listens again.             (w5_what_is_announced_while_an_attempt_is_under_way_is_remembered)
//!   A waiter that came before its process listened to the node that keeps the queue, or while that was interrupted, looks as soon as
//!   it listens.                                 (w5_a_waiter_that_came_before_its_process_listened_looks_then)

use std::{collections::VecDeque, future::Future, time::Duration};

use super::{
    Locks,
    foreign::{ForeignValues, beside_foreign},
};
use crate::{
    clock::Moment,
    expiry::LockState,
    keeper::Releases,
    node::Ticket,
    quorum::claim::{AttemptMode, QueuePosition},
};

/// How long a node keeps the place of a waiter that is gone without giving it up, in node timeouts.
const KEPT: u32 = 160;

/// After how many node timeouts a place is asked for again, and the nodes are told again that we wait. A waiter notices it with
/// its next look, at the latest 50 later.
const FADES: u32 = 60;

/// How often a waiter looks that has not told enough nodes, in node timeouts.
const UNTOLD: u32 = 10;

/// Lost attempts that are remembered: their undoing is announced within a few node timeouts.
const MOST_LOST: usize = 16;

/// For how long a lock that was waited for is known to be contended, in node timeouts.
const CONTENDED: u32 = 4;

/// Behind so many others patience grows no more: a place has to be asked for again.
const MOST_PATIENT: u32 = 8 * FADES;

/// How often a called waiter tries again at once before it waits like the others.
const IN_VAIN: u32 = 4;

/// A waiter's place in the queue of a lock, given up when it is dropped.
pub(super) struct QueueTicket {
    locks: Locks,
    key: String,
    id: String,
    /// How many are before us, once a node has told.
    ahead: Option<u32>,
    queued: bool,
    /// When it was last asked for.
    asked: Moment,
    /// Since when enough nodes know that we wait (W2).
    told: Option<Moment>,
    /// The last attempt went to all nodes only to tell them: the one that keeps the queue may not have been heard.
    renewed: bool,
    /// Attempts of ours that were lost, the latest ones.
    lost: VecDeque<String>,
    /// Whose release woke us last, and how often we may still find that owner on some node: not all nodes hear of a
    /// release at once.
    over: Option<(String, u32)>,
    /// What foreign clients wrote in our way.
    foreign: ForeignValues,
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// The lock was released, and it is our turn.
    Called,
    /// It was released, and no waiter is called.
    Released,
    /// It may have been released unheard.
    Gap,
    /// Time passed.
    Time,
}

// === impl QueueTicket ===

impl QueueTicket {
    pub(super) fn new(locks: &Locks, key: &str) -> Self {
        Self {
            locks: locks.clone(),
            key: key.to_owned(),
            id: locks.chance().id(),
            ahead: None,
            queued: false,
            asked: Moment::ZERO,
            told: None,
            renewed: false,
            lost: VecDeque::new(),
            over: None,
            foreign: ForeignValues::default(),
        }
    }

    /// The first attempt: all nodes at once and without a place, unless the lock is known to have a queue.
    pub(super) fn first(&mut self) -> AttemptMode {
        if self.locks.is_contended(&self.key) {
            return self.queue();
        }
        self.asked = self.locks.clock().now();
        AttemptMode {
            waits: self.life(),
            ..AttemptMode::default()
        }
    }

    /// Takes the lock if it is free and our turn; otherwise takes or keeps a place in the queue.
    pub(super) fn queue(&mut self) -> AttemptMode {
        self.mode(true, true)
    }

    /// As [`QueueTicket::queue`], but tells all nodes that show a holder that we wait for its end.
    pub(super) fn renew(&mut self, seen: &LockState) -> AttemptMode {
        let mode = self.mode(false, true);
        self.renewed = true;
        AttemptMode {
            only: Some(seen.held_on()),
            ..mode
        }
    }

    /// It is our turn: all nodes at once.
    pub(super) fn called(&mut self) -> AttemptMode {
        self.mode(false, false)
    }

    /// The waiter that was called has not come.
    pub(super) fn impatient(&mut self) -> AttemptMode {
        self.mode(true, false)
    }

    fn mode(&mut self, one_first: bool, polite: bool) -> AttemptMode {
        (self.queued, self.renewed) = (true, false);
        self.asked = self.locks.clock().now();
        let life = self.life();
        let id = self.id.clone();
        AttemptMode {
            one_first,
            ticket: Some(Ticket { id, life, polite }),
            waits: life,
            only: None,
        }
    }

    /// How long a place is kept, and how long the nodes announce for us.
    fn life(&self) -> Duration {
        self.locks.timing().node_timeout * KEPT
    }

    /// How long it may sleep at most: W2.
    pub(super) fn longest_sleep(&self) -> Duration {
        let now = self.locks.clock().now();
        match self.told {
            Some(told) if now.since(told) < self.life() => Duration::MAX,
            _ => self.locks.timing().node_timeout * UNTOLD,
        }
    }

    /// Whether it is time to ask for the place again, or it would be lost.
    pub(super) fn fades(&self) -> bool {
        let kept = self.locks.timing().node_timeout * FADES;
        self.locks.clock().now().since(self.asked) >= kept
    }

    /// Whether a node has told that we are the first: the other waiters leave the lock to us.
    pub(super) fn leads(&self) -> bool {
        self.ahead == Some(0)
    }

    /// Whether no waiter is known to be before us.
    pub(super) fn is_first(&self) -> bool {
        self.ahead.is_none_or(|n| n == 0)
    }

    /// Whether a place has been asked for.
    pub(super) fn is_queued(&self) -> bool {
        self.queued
    }

    /// Refused only because some nodes have not heard yet of the release that woke us: soon again.
    pub(super) fn was_called_in_vain(&mut self, holder: Option<&str>) -> bool {
        match &mut self.over {
            Some((over, tries)) if *tries > 0 && holder.is_none_or(|holder| holder == over) => {
                *tries -= 1;
                true
            }
            _ => {
                self.over = None;
                false
            }
        }
    }

    pub(super) fn refused(&mut self, position: QueuePosition) {
        if position.told {
            self.told = Some(self.asked);
        }
        if position.ahead.is_some() || !self.renewed {
            self.ahead = position.ahead;
        }
        self.lost.push_back(position.owner);
        if self.lost.len() > MOST_LOST {
            self.lost.pop_front();
        }
    }

    /// The lock is ours, and the place went with it if the node that keeps the queue granted. The next client of this
    /// process that wants the lock does well to queue at once.
    pub(super) fn taken(&mut self, position: &QueuePosition) {
        if self.queued {
            let span = self.locks.timing().node_timeout * CONTENDED;
            self.locks.contend(&self.key, span);
        }
        self.queued &= !position.left;
    }

    /// How long those before us are given to take a lock that is free. The first ones need not be patient for long; behind them
    /// few lose theirs at a time, or a thousand waiters would all ask when the one that was called is late, and make it later.
    pub(super) fn patience(&self) -> Duration {
        let slow = self.locks.timing().node_timeout;
        let ahead = self.ahead.unwrap_or(0);
        let (turns, more) = (ahead.min(8), ahead.saturating_sub(8).min(MOST_PATIENT));
        slow / 2 + slow / 4 * turns + slow / 8 * more + self.locks.chance().up_to(slow / 10)
    }

    /// How long it sleeps where what bars the lock is a foreign client's, which calls no waiter: W7.
    pub(super) fn beside_foreign(&mut self, seen: &LockState) -> Option<Duration> {
        let stood = self.foreign.stood(seen, self.locks.clock().now())?;
        let slow = self.locks.timing().node_timeout;
        let ahead = self.ahead.unwrap_or(0);
        Some(beside_foreign(stood, ahead, slow, self.locks.chance()))
    }

    /// Waits for a release that concerns us, or for `timer`. While others are called one after the other there is no
    /// need to ask: only when the calls stop for longer than a called waiter has to come.
    pub(super) async fn wait(
        &mut self,
        releases: &mut Releases,
        holder: Option<&str>,
        timer: impl Future<Output = ()>,
    ) -> Woken {
        let clock = self.locks.clock().clone();
        let mut timer = Box::pin(timer);
        let mut passed_by = None;
        let mut over = false;
        loop {
            let quiet = async {
                match passed_by {
                    Some(at) => clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                news = releases.next_or_gap(&self.key) => {
                    let Some(news) = news else {
                        return Woken::Gap;
                    };
                    match news.next.clone() {
                        // Our own lost attempt: nothing was released, and to try again would only repeat it.
                        _ if self.lost.contains(&news.owner) => {}
                        Some(next) if next == self.id => {
                            self.over = Some((news.owner, IN_VAIN));
                            return Woken::Called;
                        }
                        Some(_) => {
                            // With the holder's end one less is before us. Attempts of others that are undone are
                            // announced as well, and the holder's end may be told twice: a waiter that counted those
                            // would soon think that it is the first.
                            if holder == Some(&news.owner) && !std::mem::replace(&mut over, true) {
                                self.ahead = self.ahead.map(|n| n.saturating_sub(1));
                            }
                            passed_by = Some(clock.now() + self.patience());
                        }
                        // An attempt that was undone is announced, too.
                        None if holder == Some(&news.owner) => {
                            self.over = Some((news.owner, IN_VAIN));
                            return Woken::Released;
                        }
                        None => {}
                    }
                }
                () = quiet => return Woken::Time,
                () = &mut timer => return Woken::Time,
            }
        }
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        if self.queued {
            self.locks.leave(&self.key, &self.id);
        }
    }
}

#[cfg(test)]
mod tests;
