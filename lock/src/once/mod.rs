//! Handles each message once, although every consumer reads all of them.
//!
//! A service of N consumers that all read the same messages claims each message before it handles it. A claim is a lock with
//! the message's id as its name. When the message was handled, a *final record* is written beside the lock, on a majority of the
//! nodes and under the token of the claim, and any other consumer that comes to the message finds it. A consumer that dies
//! leaves no final record, and another one handles the message when the lease of the dead one is over.
//!
//! # States            unclaimed -> ours -> done;  ours -> failed -> (after its pause) ours;  ours -> (lease over) unclaimed
//! # Invariants
//! - U1 A message is handled only under a claim, and one claim of it is held at a time.
//!   (one_of_many_consumers_handles_a_message)
//! - U2 A final record is written only while the claim is ours; a claim that is lost cancels its work.
//!   (a_claim_that_was_lost_writes_no_final_record, a_lost_claim_cancels_its_work)
//! - U3 What has failed is handled again by any consumer, not before its pause is over.
//!   (what_has_failed_is_handled_again_by_another_consumer_after_its_pause)
//! - U4 **A message whose final record may have been forgotten is refused.**
//!   (a_message_whose_final_record_may_be_forgotten_is_refused_as_too_old,
//!   a_message_from_before_a_loss_of_memory_is_refused)
//!
//! # Why U4 holds
//! A message is dated `t`. A consumer accepts it only while the fleet's time is at most `t + retention`, looked at *after* the
//! nodes have granted the claim and shown no final record. A final record is kept until `t + retention +` a minute. So
//! while a message is accepted, the record of its handling is there: as long as what two consumers take for the fleet's time
//! differs by less than the margin. Both count from `t`, so the clock that has dated the message does not matter. The fleet's time
//! is the median of the nodes' clocks.
//!
//! Nodes that lose their memory come back with what the others know. When too few others were left, they say since when they may
//! have forgotten something, and a message dated before that (or within `locks.skew` after it) is refused. Nodes that are new
//! cannot be told from nodes that have forgotten all, so what is older than they are is refused, too.
//!
//! # When things fail  Unsure means not done: the message is handled again, by whichever consumer claims it next.
//! # Not promised
//! - One handling where a consumer dies between the effect and the final record, or cannot write it. Give the receiver the id
//!   as its idempotency key, or have it compare the token.
//! - Anything once a store has lost its memory and does not say so: Redis without the restart guard, an embedded file that was
//!   removed.
//! - Anything if consumers of one name are given different retentions, or programs of one namespace a different `locks.retention`
//!   (a program sweeps what a dead consumer leaves, and tells a node without memory what it knew, by its own), or the fleet's time
//!   is set back by more than the margin; after a loss of memory, of messages whose date is ahead of the fleet's time by more than
//!   `locks.skew`.
//! - One handling where a node has missed the final record, another one's clock jumps ahead by the retention, so that it forgets the
//!   record, and the last that has it is silent.
//!
//! # Example
//! ```
//! # use std::sync::Arc;
//! # use watchkeeper_lock::{Locks, clock::Clock, node::memory::MemoryNode};
//! use std::time::Duration;
//! use watchkeeper_lock::once::{Claim, Once};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let node = MemoryNode::new("one", Clock::system());
//! # let locks = Locks::over(vec![Arc::new(node)]).start()?;
//! # let (id, produced_at) = ("1700000000000-0", Clock::system().wall());
//! let orders = Once::new(&locks, "orders", Duration::from_secs(3600));
//! match orders.claim(id, produced_at).await? {
//!     Claim::Ours(work) => {
//!         let key = work.token();
//!         work.run(ship(id, key)).await??;
//!     }
//!     Claim::Done => {}
//!     Claim::TooOld => println!("{id} may have been handled: nothing knows any more"),
//!     // Another consumer has it, or has died with it.
//!     _ => println!("{id} is to be asked for again"),
//! }
//! assert!(matches!(orders.claim(id, produced_at).await?, Claim::Done));
//! # async fn ship(_: &str, _: watchkeeper_lock::node::Token) -> Result<(), std::io::Error> { Ok(()) }
//! # Ok(())
//! # }
//! ```

mod record;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    acquire::Locks,
    admission::{AdmissionReport, AdmissionState},
    expiry::LockState,
    human::Brief,
    lease::{Lease, LeaseView, Loss},
    node::{Kind, majority},
    quorum::{self, Claimed, LockError, WriteError},
};
use record::Progress;

/// How far apart the times may be that two consumers take for the fleet's: final records are kept for so much longer.
pub(crate) const MARGIN: Duration = Duration::from_secs(60);

/// Records of messages that are released together are kept to the same minute: their releases then travel together.
const GRAIN_MS: i64 = 60_000;

/// Nodes are asked so often for what they have forgotten: one may be slow once.
const TELLS: u32 = 3;

/// Where the locks of messages lie.
const FAMILY: &str = "once/";

/// Consumers that handle each message of a name once. Cheap to clone.
#[derive(Clone)]
pub struct Once {
    locks: Locks,
    name: Arc<str>,
    retention_ms: i64,
    ttl: Option<Duration>,
    shorter: Arc<Mutex<Option<Shorter>>>,
    claims_too_old: bool,
}

/// Another consumer keeps final records for a shorter time than this one.
#[derive(Clone, Copy, Debug)]
struct Shorter {
    retention_ms: i64,
    /// Until then it counts: whatever such a consumer had handled when a record of it was seen last is too old then.
    until_ms: i64,
}

/// What came of a claim.
#[must_use]
#[derive(Debug)]
#[non_exhaustive]
pub enum Claim {
    /// The message is ours to handle.
    Ours(Work),
    /// It was handled.
    Done,
    /// Not now: another consumer handles it, or has died doing so, or has failed and the pause before its next attempt is not over;
    /// or it is dated further ahead of the fleet's time than a record is kept. Ask again.
    Held {
        /// The time after which it is free, unless a lease is extended; `None` where that is not known.
        for_at_most: Option<Duration>,
    },
    /// It is older than the retention, or than what the nodes remember: it may have been handled.
    TooOld,
}

/// A claimed message. Dropping it gives the message back to all consumers, in the background.
pub struct Work {
    lease: Lease,
    once: Once,
    produced_ms: i64,
    failed: u32,
    too_old: bool,
}

// === impl Once ===

impl Once {
    /// Consumers of this name. Final records are kept for `retention`, which all of them must give alike; a message that is older
    /// is refused. It may be at most `locks.retention` less a minute.
    #[must_use]
    pub fn new(locks: &Locks, name: &str, retention: Duration) -> Self {
        let retention_ms = millis(retention);
        Self {
            locks: locks.clone(),
            // A slash ends it in the keys of its messages.
            name: name.replace('%', "%25").replace('/', "%2F").into(),
            retention_ms,
            ttl: None,
            shorter: Arc::default(),
            claims_too_old: false,
        }
    }

    /// Sets the ttl of the lease of a claim; the default is the lock service's.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Claims what is too old and not known to be done, too, so that one consumer puts it where a person finds it:
    /// [`Work::is_too_old`] tells it.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn claiming_what_is_too_old(mut self) -> Self {
        self.claims_too_old = true;
        self
    }

    /// Claims one message. `id` is the same for the same message in every consumer; `produced_at` as well: a date that the message
    /// carries, and not the time at which it was read.
    ///
    /// Cancel-safe: what a cancelled call has claimed is given back.
    ///
    /// # Errors
    /// [`LockError::NoQuorum`] and [`LockError::TooSlow`] when too few nodes answered, or too late: ask again.
    /// [`LockError::RetentionTooLong`], [`LockError::TtlTooLong`], [`LockError::Closed`]: asking again does not help.
    pub async fn claim(&self, id: &str, produced_at: Timestamp) -> Result<Claim, LockError> {
        let claims = self.claim_many(&[(id, produced_at)], 1).await?;
        // One message is one claim, and one that is free was tried.
        claims
            .into_iter()
            .next()
            .flatten()
            .ok_or(LockError::TooSlow)
    }

    /// Claims at most `most` of these messages, the first that are free, and says of the others what they are: `None` is one that
    /// looked free and was not claimed. At most two calls per node, or three where nodes can lose their memory.
    ///
    /// # Errors
    /// As [`Once::claim`]. A failure of one message is an error only if no other was claimed.
    #[doc(hidden)] // for the worker
    pub async fn claim_many(
        &self,
        messages: &[(&str, Timestamp)],
        most: usize,
    ) -> Result<Vec<Option<Claim>>, LockError> {
        self.check_retention()?;
        let dated = |n: usize| {
            let date = messages.get(n).map(|(_, at)| at.as_millisecond());
            date.unwrap_or(i64::MIN)
        };
        let refused = |n| {
            self.by_age(dated(n))
                .filter(|claim| !self.claims_anyway(claim))
        };
        let mut claims: Vec<Option<Claim>> = (0..messages.len()).map(refused).collect();
        let open: Vec<usize> = (0..claims.len()).filter(|n| claims[*n].is_none()).collect();
        if open.is_empty() {
            return Ok(claims);
        }
        let keys = open.iter().map(|n| self.key(messages[*n].0)).collect();
        // Most messages were handled, or are with another consumer: a look costs the nodes less than an attempt.
        let seen = self.locks.look(keys).await?;
        let mut free = Vec::new();
        for (n, seen) in open.into_iter().zip(&seen) {
            match self.by_look(seen, dated(n)) {
                None if free.len() < most => free.push(n),
                claim => claims[n] = claim,
            }
        }
        let wanted = free.iter().map(|n| quorum::Claim {
            key: self.key(messages[*n].0),
            kind: Kind::Lock,
            ttl: self.ttl,
        });
        let claimed = self.locks.claim(wanted.collect()).await?;
        let (mut ours, mut trouble) = (Vec::new(), None);
        for (n, claimed) in free.into_iter().zip(claimed) {
            match claimed {
                Claimed::Acquired(lease) => ours.push((n, lease)),
                Claimed::Held { for_at_most, .. } => {
                    claims[n] = Some(Claim::Held { for_at_most });
                }
                other => trouble = other.into_lease().err(),
            }
        }
        if ours.is_empty() {
            return trouble.map_or(Ok(claims), Err);
        }
        // Order matters: a node that has forgotten something says so before it grants again, so this is asked after the grants.
        let leases = ours.iter().map(|(_, lease)| lease.view());
        let granted_by: BTreeSet<usize> = leases.flat_map(|l| l.granted_by()).copied().collect();
        let forgotten_ms = self.forgotten_ms(&granted_by).await?;
        for (n, lease) in ours {
            claims[n] = Some(self.granted(lease, dated(n), forgotten_ms));
        }
        Ok(claims)
    }

    fn key(&self, id: &str) -> String {
        format!("{FAMILY}{}/{id}", self.name)
    }

    fn check_retention(&self) -> Result<(), LockError> {
        let longest = self.locks.timing().retention.saturating_sub(MARGIN);
        match self.retention_ms > millis(longest) {
            true => Err(LockError::RetentionTooLong { longest }),
            false => Ok(()),
        }
    }

    fn now_ms(&self) -> i64 {
        self.locks.wall().as_millisecond()
    }

    /// What its age says of a message; `None` for one that may be claimed.
    fn by_age(&self, produced_ms: i64) -> Option<Claim> {
        let age_ms = self.now_ms().saturating_sub(produced_ms);
        if age_ms > self.accepted_ms() {
            return Some(Claim::TooOld);
        }
        let for_at_most = Some(self.ahead(age_ms)?);
        Some(Claim::Held { for_at_most })
    }

    /// Whether a message of this date is dated further ahead of the fleet's time than its record would be kept: it is left alone
    /// until it is not.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn is_too_far_ahead(&self, produced_at: Timestamp) -> bool {
        let age_ms = self.now_ms().saturating_sub(produced_at.as_millisecond());
        self.ahead(age_ms).is_some()
    }

    /// How much too far ahead a message is dated.
    fn ahead(&self, age_ms: i64) -> Option<Duration> {
        // A record whose holder dies before the release is kept no longer than `locks.retention`.
        let room_ms = millis(self.locks.timing().retention.saturating_sub(MARGIN));
        let beyond_ms = age_ms
            .saturating_neg()
            .saturating_sub(room_ms.saturating_sub(self.retention_ms));
        let beyond_ms = u64::try_from(beyond_ms).ok().filter(|ms| *ms > 0)?;
        Some(Duration::from_millis(beyond_ms))
    }

    /// What is refused, and yet to be claimed.
    fn claims_anyway(&self, claim: &Claim) -> bool {
        self.claims_too_old && matches!(claim, Claim::TooOld)
    }

    /// What its record says of a message; `None` for one that may be claimed.
    fn by_record(&self, progress: Progress, produced_ms: i64) -> Option<Claim> {
        if let Some(retention_ms) = progress.done {
            self.others_keep(retention_ms);
            return Some(Claim::Done);
        }
        let refused = self.by_age(produced_ms);
        if refused.is_some_and(|claim| self.claims_anyway(&claim)) {
            // There is no next attempt to wait for.
            return None;
        }
        let pause_ms = progress.not_before_ms.saturating_sub(self.now_ms());
        let pause_ms = u64::try_from(pause_ms).ok().filter(|ms| *ms > 0)?;
        Some(Claim::Held {
            for_at_most: Some(Duration::from_millis(pause_ms)),
        })
    }

    fn by_look(&self, seen: &LockState, produced_ms: i64) -> Option<Claim> {
        let answered = seen.nodes.iter().filter(|shown| shown.is_ok()).count();
        if answered < majority(seen.nodes.len()) {
            // The attempt says which nodes are silent, and why.
            return None;
        }
        let written = seen
            .newest()
            .map(|record| Progress::read(&record.body))
            .unwrap_or_default();
        if let Some(claim) = self.by_record(written, produced_ms) {
            return Some(claim);
        }
        let for_at_most = seen.free_in();
        (!seen.looks_free()).then_some(Claim::Held { for_at_most })
    }

    /// What becomes of a message whose lock we hold. Everything is looked at again: what was known before is older than the lease.
    fn granted(&self, lease: Lease, produced_ms: i64, forgotten_ms: Option<i64>) -> Claim {
        let progress = Progress::read(&lease.record().body);
        let unknown = forgotten_ms.is_some_and(|before| {
            let skew = self.locks.timing().skew;
            produced_ms <= before.saturating_add(millis(skew)) && progress.done.is_none()
        });
        let refused = match unknown {
            true => Some(Claim::TooOld),
            false => self
                .by_record(progress, produced_ms)
                .or_else(|| self.by_age(produced_ms)),
        };
        let work = Work {
            lease,
            once: self.clone(),
            produced_ms,
            failed: progress.failed,
            too_old: matches!(refused, Some(Claim::TooOld)),
        };
        work.lease.keep_record(self.kept(produced_ms));
        // What is refused is released in the background.
        let refused = refused.filter(|claim| !self.claims_anyway(claim));
        refused.unwrap_or(Claim::Ours(work))
    }

    /// How long the record of a message is to be kept from now on: until nothing accepts the message any more.
    fn kept(&self, produced_ms: i64) -> Duration {
        let until_ms = produced_ms
            .saturating_add(self.retention_ms)
            .saturating_add(millis(MARGIN));
        let left_ms = until_ms.saturating_sub(self.now_ms()).max(0);
        let grains = left_ms / GRAIN_MS + 1;
        let left_ms = grains.saturating_mul(GRAIN_MS);
        Duration::from_millis(u64::try_from(left_ms).unwrap_or(0))
    }

    /// How old a message may be: the shortest retention that counts.
    fn accepted_ms(&self) -> i64 {
        let now_ms = self.now_ms();
        let shorter = self.shorter.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = shorter.filter(|known| now_ms < known.until_ms);
        counts.map_or(self.retention_ms, |known| known.retention_ms)
    }

    /// A consumer has left a final record under this retention. The shortest counts: what is older may be forgotten.
    fn others_keep(&self, theirs_ms: i64) {
        let before_ms = self.accepted_ms();
        if theirs_ms >= self.retention_ms || theirs_ms > before_ms {
            return;
        }
        let until_ms = self.now_ms().saturating_add(self.retention_ms);
        *self.shorter.lock().unwrap_or_else(PoisonError::into_inner) = Some(Shorter {
            retention_ms: theirs_ms,
            until_ms,
        });
        if theirs_ms < before_ms {
            tracing::warn!(
                once = &*self.name,
                theirs = %shown(theirs_ms),
                ours = %shown(self.retention_ms),
                "another consumer keeps final records for a shorter time: older messages are refused; give all the same retention"
            );
        }
    }

    /// Until when, in Unix milliseconds, the nodes may have forgotten final records that these nodes, which have granted, did not show.
    async fn forgotten_ms(&self, granted_by: &BTreeSet<usize>) -> Result<Option<i64>, LockError> {
        if !self.locks.is_guarded() {
            return Ok(None);
        }
        for _ in 0..TELLS {
            let nodes = self.locks.admissions().await?;
            if let Some(latest) = latest_loss(&nodes, granted_by) {
                return Ok(latest);
            }
            let clock = self.locks.clock();
            clock.sleep(self.locks.timing().node_timeout).await;
        }
        Err(LockError::TooSlow)
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("name", &self.name)
            .field("retention", &shown(self.retention_ms))
            .finish_non_exhaustive()
    }
}

// === impl Work ===

impl Work {
    /// Handles the message: runs `work`, and writes the final record when it has succeeded. What has failed is given back at once, to
    /// be claimed by any consumer. When the claim is lost, `work` is dropped.
    ///
    /// Cancel-safe: dropping it drops `work`, and gives the message back.
    ///
    /// # Errors
    /// [`Loss`]: the claim was lost, or its final record could not be written before it was. The message comes again. Inside, the
    /// error of `work`.
    pub async fn run<T, E>(
        self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, Loss> {
        let ended = tokio::select! {
            // A process that was frozen past its lease must hear of that before it goes on.
            biased;
            loss = self.lease.lost() => return Err(loss),
            ended = work => ended,
        };
        if ended.is_ok() {
            self.done().await?;
        } else {
            self.lease.release().await;
        }
        Ok(ended)
    }

    /// The message was handled: writes the final record, then releases. Tried again as long as the lease is held.
    ///
    /// # Cancellation
    /// A dropped call gives the message back in the background. Whether its final record was written is not known: the message
    /// may come again.
    ///
    /// # Errors
    /// [`Loss`]: the lease ended before a majority of the nodes had the record. Whether it counts is not known.
    pub async fn done(self) -> Result<(), Loss> {
        let done = Progress::done(self.once.retention_ms);
        self.leave(done).await
    }

    /// Handling it has failed: any consumer may try again after this pause. `counts` says whether that was an attempt of its own.
    ///
    /// # Errors
    /// As [`Work::done`].
    #[doc(hidden)] // for the worker
    pub async fn failed(self, pause: Duration, counts: bool) -> Result<(), Loss> {
        let failed = Progress {
            done: None,
            failed: self.failed.saturating_add(u32::from(counts)),
            not_before_ms: self.once.now_ms().saturating_add(millis(pause)),
        };
        self.leave(failed).await
    }

    /// Attempts that have failed.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failed
    }

    /// It is too old to know whether it was done, and is not to be handled.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn is_too_old(&self) -> bool {
        self.too_old
    }

    /// Gives the message back as it is.
    #[doc(hidden)] // for the worker
    pub async fn give_back(self) {
        self.lease.release().await;
    }

    async fn leave(self, progress: Progress) -> Result<(), Loss> {
        let Self {
            lease,
            once,
            produced_ms,
            ..
        } = self;
        // In this order: the next holder must find the record.
        let written = once
            .locks
            .write(lease.view(), progress.to_string(), None)
            .await;
        lease.keep_record(once.kept(produced_ms));
        let loss = lease.loss();
        lease.release().await;
        written.map_err(|error| match error {
            WriteError::Lost(loss) => loss,
            _ => loss.unwrap_or(Loss::Expired),
        })
    }
}

impl std::ops::Deref for Work {
    type Target = LeaseView;
    fn deref(&self) -> &LeaseView {
        self.lease.view()
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(f)
    }
}

// === decisions ===

/// The latest loss of memory that these nodes tell of; `None` before a majority has, and each node that has granted: it may be the one
/// that has forgotten what the others would have shown.
fn latest_loss(nodes: &[AdmissionReport], granted_by: &BTreeSet<usize>) -> Option<Option<i64>> {
    let votes = |node: &AdmissionReport| {
        matches!(
            node.state,
            AdmissionState::Admitted | AdmissionState::Elsewhere
        )
    };
    let told = nodes.iter().filter(|node| votes(node)).count();
    let all = granted_by
        .iter()
        .all(|place| nodes.get(*place).is_some_and(votes));
    let losses = nodes.iter().filter_map(|node| node.memory_loss);
    (told >= majority(nodes.len()) && all).then(|| losses.max())
}

fn millis(d: Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX)
}

fn shown(ms: i64) -> Brief {
    Brief(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}
