//! The locks of a fleet: who holds which, what was left behind, and how a lease is ended by force.

use std::{collections::BTreeSet, time::Duration};

use super::{
    super::{
        status::{
            LockDetail, LockStatus,
            leaks::{Leak, leaks, wants_second_look},
        },
        view,
    },
    Fleet,
    error::FleetError,
};
use crate::lock::BreakReport;

/// Between two looks for leaks: longer than a replica takes to tell what it holds.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(2_500);

/// What was left behind, as far as the nodes could be searched.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Leaks {
    /// Locks that nothing will release, or may not.
    pub found: Vec<Leak>,
    /// Nodes of which not every key was looked at, and why.
    pub unsearched: Vec<(String, String)>,
}

impl Fleet {
    /// Every lock whose key begins with `prefix`, as the nodes show it, and which process holds it.
    ///
    /// # Errors
    /// [`FleetError`] while no node answers.
    pub async fn locks(&self, prefix: &str) -> Result<Vec<LockStatus>, FleetError> {
        self.patiently(|| view::locks(&self.locks, prefix)).await
    }

    /// Everything about one lock, node by node: a node that does not answer has its trouble there.
    ///
    /// # Errors
    /// [`FleetError`] when the lock service has ended.
    pub async fn lock(&self, key: &str) -> Result<LockDetail, FleetError> {
        let found = self.details(vec![key.to_owned()]).await?;
        Ok(found.into_iter().next().unwrap_or_default())
    }

    /// The same of several.
    pub(crate) async fn details(&self, keys: Vec<String>) -> Result<Vec<LockDetail>, FleetError> {
        Ok(view::details(&self.locks, keys).await?)
    }

    /// What nothing will release, or may not: found by two looks, some seconds apart where that tells more.
    ///
    /// # Errors
    /// [`FleetError`] while no node answers.
    pub async fn leaks(&self, prefix: &str) -> Result<Leaks, FleetError> {
        let views = self.locks.list(prefix).await?;
        let keys = views.iter().filter_map(|views| views.first());
        let mut keys: BTreeSet<String> = keys.map(|view| view.key.clone()).collect();
        // What no list shows: a key that another program wrote, or whose record has gone.
        let endless = self.locks.endless().await?.into_iter();
        let mut unsearched = Vec::new();
        for (found, node) in endless.zip(self.locks.nodes().await?) {
            match found {
                Ok(found) => keys.extend(found),
                Err(why) => unsearched.push((node.name, why.to_string())),
            }
        }
        // Raw keys stand among those of others: only what is known by name is looked at.
        let told = self.told_now().await.unwrap_or_default();
        let running = told.jobs.iter().map(|job| &job.name);
        keys.extend(
            self.jobs
                .keys()
                .chain(running)
                .map(|job| format!("job/{job}")),
        );
        let keys: Vec<String> = keys
            .into_iter()
            .filter(|key| key.starts_with(prefix))
            .collect();
        let then = view::details(&self.locks, keys.clone()).await?;
        let found = if then.iter().any(wants_second_look) {
            self.locks.clock().sleep(LOOK_AGAIN).await;
            leaks(&then, &view::details(&self.locks, keys).await?)
        } else {
            leaks(&then, &then)
        };
        Ok(Leaks { found, unsearched })
    }

    /// Ends `owner`'s lease of a lock by force: its holder is refused at its next renewal and stops. The lock is free for
    /// others when that holder has released it, or its key has run out. With `now` it is also released when nothing of that lease
    /// can act any more: this waits for it, a ttl of the lease. Nothing of another owner or of a foreign client is
    /// touched.
    ///
    /// # Cancellation
    /// A dropped call may have broken the lease.
    ///
    /// # Errors
    /// [`FleetError`] when the lock service has ended; the trouble of a node stands in the report.
    pub async fn break_lock(
        &self,
        key: &str,
        owner: &str,
        now: bool,
    ) -> Result<BreakReport, FleetError> {
        Ok(self.locks.break_lease(key, owner, now).await?)
    }
}

/// Whose lease of this lock can be ended by force: that of `owner`, or by default of the owner on most nodes. Pure.
///
/// # Errors
/// Why that cannot be: it is not held, has changed hands, is a short claim, a foreign client holds it, or too few nodes answer.
#[cfg(any(test, feature = "cli", feature = "admin"))]
pub(crate) fn breakable(lock: &LockDetail, owner: Option<&str>) -> Result<String, FleetError> {
    let refused = |why: String| Err(FleetError::NotPossible(why));
    let key = &lock.key;
    if !lock.has_quorum() {
        let rows = lock.by_node.iter();
        let down = rows.filter_map(|n| Some(format!("{}: {}", n.node, n.error.as_ref()?)));
        let down: Vec<String> = down.collect();
        return refused(format!(
            "a break needs {} of {} nodes: {}",
            lock.needed,
            lock.configured,
            down.join("; ")
        ));
    }
    let Some(meant) = owner.or(lock.owner.as_deref()) else {
        return refused(format!("{key} is not held"));
    };
    let rows = lock.by_node.iter();
    let shown: Vec<_> = rows.filter(|n| n.stands() == Some(meant)).collect();
    if shown.is_empty() {
        return refused(match (owner, &lock.owner) {
            (Some(_), Some(other)) if lock.nodes > 0 => {
                format!("{key} has changed hands: {other} stands there, not {meant}")
            }
            _ => format!("{key} is not held"),
        });
    }
    if shown.iter().all(|n| n.foreign) {
        return refused(format!(
            "{key} shows {meant}, a value of another Redlock client: such are never broken, because nothing tells us \
             what its program does; stop that program, or remove the key by hand when it has gone"
        ));
    }
    if shown.iter().all(|n| n.owner.is_none()) {
        return refused(format!(
            "{key} is the short claim of a batch: nothing could refuse its holder. It ends by itself within its ttl when \
             its replica stops: pause the job, or drain or stop that replica"
        ));
    }
    Ok(meant.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::status::{LockState, locks::NodeLock};

    fn lock(nodes: [NodeLock; 3]) -> LockDetail {
        LockDetail {
            key: "job/report".to_owned(),
            state: LockState::Held,
            owner: Some("a".to_owned()),
            nodes: 2,
            needed: 2,
            configured: 3,
            by_node: nodes.into(),
            ..LockDetail::default()
        }
    }

    fn shows(holder: &str) -> NodeLock {
        NodeLock {
            holder: Some(holder.to_owned()),
            owner: Some(holder.to_owned()),
            ..NodeLock::default()
        }
    }

    fn silent() -> NodeLock {
        NodeLock {
            node: "n".to_owned(),
            error: Some("no answer".to_owned()),
            ..NodeLock::default()
        }
    }

    #[test]
    fn only_a_lease_of_ours_that_stands_there_can_be_ended_by_force() {
        let held = lock([shows("a"), shows("a"), silent()]);
        assert_eq!(breakable(&held, None).unwrap(), "a");
        assert_eq!(breakable(&held, Some("a")).unwrap(), "a");
        let refused = |lock: &LockDetail, owner| breakable(lock, owner).unwrap_err().to_string();
        assert!(refused(&held, Some("b")).contains("has changed hands: a stands there, not b"));
        let down = lock([shows("a"), silent(), silent()]);
        assert!(refused(&down, None).starts_with("a break needs 2 of 3 nodes"));
        let claim = NodeLock {
            owner: None,
            ..shows("a")
        };
        let claimed = lock([claim.clone(), claim.clone(), silent()]);
        assert!(refused(&claimed, None).contains("is the short claim of a batch"));
        let foreign = NodeLock {
            foreign: true,
            ..claim
        };
        let foreign = lock([foreign.clone(), foreign.clone(), foreign]);
        assert!(refused(&foreign, None).contains("another Redlock client"));
        let free = lock(std::array::from_fn(|_| NodeLock::default()));
        assert!(refused(&free, None).contains("is not held"));
    }
}
