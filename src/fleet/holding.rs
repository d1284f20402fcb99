//! Who holds a lock, told beside it: by a program that runs something under one, to the candidate or person that finds it held.
//!
//! The values of its locks end with the process's tag ([`LocksBuilder::tag`](crate::lock::LocksBuilder::tag)); under that tag
//! it keeps a small document ([`HolderStatus`]). All of it is a courtesy: the lock does not wait for it, and is held or lost
//! without it.
//!
//! ```
//! use watchkeeper::{Locks, fleet::{holding, status::HolderStatus}, lock::{LockError, spawn::Spawn}};
//!
//! # async fn deploy(locks: &Locks) -> Result<(), LockError> {
//! let lease = locks.lock("deploy").acquire().await?;
//! let holder = HolderStatus {
//!     id: "build-7:4711:x7".to_owned(), // what follows the last `/` in the locks' tag
//!     name: "deploy".to_owned(),
//!     host: "build-7".to_owned(),
//!     pid: std::process::id(),
//!     command: Some("ansible-playbook".to_owned()),
//!     since: None,
//! };
//! let told = holding::tell(locks, &Spawn::system(), &holder);
//! // … the work …
//! told.over().await;
//! lease.release().await;
//! # Ok(())
//! # }
//! ```

use std::{sync::Arc, sync::atomic::AtomicBool, sync::atomic::Ordering, time::Duration};

use tokio::task::JoinHandle;

use crate::{
    fleet::presence::replicas::{Replicas, Wanted},
    lock::Locks,
    node::tag::tag_of,
    spawn::Spawn,
    status::{HolderStatus, Holders},
};

/// A lock that is held more briefly than this is not worth a word.
const SOON: Duration = Duration::from_millis(200);
/// Between two writings.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long it is remembered of a process that was killed.
const LIFETIME: Duration = Duration::from_secs(30);

/// Tells who holds a lock until it is dropped, or [`Holding::over`].
#[derive(Debug)]
pub struct Holding {
    locks: Locks,
    task: JoinHandle<()>,
    /// There is, or may be, a document to be removed.
    told: Arc<AtomicBool>,
}

/// Tells who holds a lock, from a moment from now on. Nothing is told by a process without a tag.
#[must_use]
pub fn tell(locks: &Locks, spawn: &Spawn, holder: &HolderStatus) -> Holding {
    let told = Arc::new(AtomicBool::new(false));
    let (body, of, begun) = (holder.to_json(), locks.clone(), told.clone());
    let task = spawn.spawn(async move {
        let Some(name) = of.tag().map(HolderStatus::document_name) else {
            return;
        };
        of.clock().sleep(SOON).await;
        // Later terms of this process are newer.
        let mut rev = u64::try_from(of.wall().as_millisecond()).unwrap_or(0);
        loop {
            begun.store(true, Ordering::SeqCst);
            rev += 1;
            // Nodes that do not answer are told next time.
            let _ = of.put_doc(&name, rev, LIFETIME, body.clone()).await;
            of.clock().sleep(INTERVAL).await;
        }
    });
    Holding {
        locks: locks.clone(),
        task,
        told,
    }
}

/// Who holds the lock with this value, where its process tells: a program, or a replica. Cancel-safe.
#[doc(hidden)] // for the command
pub async fn holder(locks: &Locks, owner: &str) -> Option<HolderStatus> {
    let name = HolderStatus::document_name(tag_of(owner)?);
    if let Ok(Some(doc)) = locks.doc(&name).await {
        return Holders::of(&[], [&doc]).holder(owner).cloned();
    }
    let mut replicas = Replicas::default();
    replicas.look(locks, Wanted::Replicas).await.ok()?;
    let replicas = replicas.presences(locks.wall());
    Holders::of(&replicas, []).holder(owner).cloned()
}

impl Holding {
    /// Takes back what was told, if anything was; waits for two answers' time at most.
    pub async fn over(self) {
        self.task.abort();
        let Some(tag) = self
            .locks
            .tag()
            .filter(|_| self.told.load(Ordering::SeqCst))
        else {
            return;
        };
        let name = HolderStatus::document_name(tag);
        let limit = self.locks.timing().node_timeout * 2;
        let removed = self.locks.remove_doc(&name);
        // Otherwise it ends by itself.
        let _ = self.locks.clock().timeout(limit, removed).await;
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Clock, node::memory::MemoryNode};

    #[tokio::test]
    async fn whoever_holds_a_lock_for_a_while_can_be_found_and_is_forgotten_with_it() {
        let node = Arc::new(MemoryNode::new("node", Clock::system()));
        let locks = Locks::over(vec![node]).tag("aa").start().unwrap();
        let lease = locks.lock("k").acquire().await.unwrap();
        let owner = lease.view().owner().to_owned();
        let me = HolderStatus {
            pid: 7,
            command: Some("backup.sh".to_owned()),
            ..HolderStatus::default()
        };
        let holding = tell(&locks, &Spawn::system(), &me);
        assert_eq!(holder(&locks, &owner).await, None, "no word at once");
        while holder(&locks, &owner).await != Some(me.clone()) {
            locks.clock().sleep(SOON / 10).await;
        }
        holding.over().await;
        assert_eq!(holder(&locks, &owner).await, None);
    }
}
