//! Orders that are written down, and what was asked for and still stands.

use std::{cmp::Reverse, future::Future};

use jiff::Timestamp;

use super::{
    super::{
        audit::{AuditEntry, DIRECTORY, InForce, KEPT, LIFETIME, MOST, YOUNG},
        intent::{self, Intent},
    },
    Fleet,
    error::FleetError,
};
use crate::ledger::ids::{sortable_id, trigger_floor};

/// Old orders that are removed after each new one, at most.
const PRUNED: usize = 20;
/// Things that still stand and are shown, at most.
const SHOWN: usize = 200;

impl Fleet {
    /// Writes down that something is asked for, then gives the order, and writes down what came of it, as `told` says it.
    ///
    /// # Errors
    /// [`FleetError`]: the order was not given. Once it was, what came of it is the answer, whether that could be written or not.
    pub(crate) async fn in_writing<T>(
        &self,
        entry: AuditEntry,
        order: impl Future<Output = T>,
        told: impl FnOnce(&T) -> String,
    ) -> Result<T, FleetError> {
        let mut entry = AuditEntry {
            id: sortable_id(self.locks.wall(), &self.chance),
            at: self.locks.wall(),
            by: self.by.clone(),
            result: String::new(),
            ..entry
        };
        self.write_entry(&entry).await?;
        let given = order.await;
        entry.result = told(&given);
        let _ = self.write_entry(&entry).await;
        Ok(given)
    }

    async fn write_entry(&self, entry: &AuditEntry) -> Result<(), FleetError> {
        self.patiently(|| async {
            let doc = entry.to_doc();
            let spread = self
                .locks
                .spread_doc(&doc.name, doc.rev, LIFETIME, doc.body);
            self.enough(spread.await?).await
        })
        .await
    }

    /// Forgets the oldest orders beyond those that are kept. What cannot be removed now goes with its lifetime. No caller that
    /// has given an order need wait for it.
    pub(crate) async fn prune_orders(&self) {
        let Ok(read) = self.locks.doc_names(DIRECTORY).await else {
            return;
        };
        let mut names: Vec<String> = read.docs.into_iter().map(|(doc, _)| doc.name).collect();
        names.sort_unstable();
        let too_many = too_many(&names, self.locks.wall());
        for name in names.iter().take(too_many.min(PRUNED)) {
            let _ = self.locks.remove_doc(name).await;
        }
    }

    /// Refuses an order about a job that neither a replica nor the configuration knows, before anything of it is written down.
    ///
    /// # Errors
    /// [`FleetError::UnknownJob`], and while too few nodes answer.
    pub(crate) async fn refuse_order_for_no_job(&self, job: &str) -> Result<(), FleetError> {
        self.known(job).await.map(drop)
    }

    /// The orders that are remembered, the latest first.
    ///
    /// # Errors
    /// [`FleetError`] while no node answers.
    pub(crate) async fn orders(&self) -> Result<Vec<AuditEntry>, FleetError> {
        let docs = self.patiently(|| self.locks.docs(DIRECTORY)).await?;
        let mut entries: Vec<AuditEntry> = docs.iter().filter_map(AuditEntry::from_doc).collect();
        entries.sort_by(|a, b| b.id.cmp(&a.id));
        Ok(entries)
    }

    /// What was asked for, by whichever way, and still stands: pauses, triggers that have not ended, and what was asked of leaders
    /// and replicas lately. The latest first.
    ///
    /// # Errors
    /// [`FleetError`] while too few nodes answer.
    pub(crate) async fn in_force(&self) -> Result<Vec<InForce>, FleetError> {
        let names = self.names().await?.into_iter().map(|doc| doc.name);
        let others = names.filter(|name| intent::trigger_of(name).is_none());
        let others: Vec<String> = others.collect();
        let mut found = Vec::new();
        // What is over is remembered as well: some at a time, until enough stand.
        for some in others.chunks(SHOWN) {
            let docs = self.patiently(|| self.locks.docs_of(some)).await?;
            let said = docs.iter().filter_map(Intent::from_doc);
            found.extend(said.filter_map(stands));
            if found.len() >= SHOWN {
                break;
            }
        }
        found.truncate(SHOWN);
        let triggers = self.outstanding(None).await?.into_iter().rev();
        found.extend(triggers.take(SHOWN).map(|trigger| InForce {
            at: trigger.asked,
            by: trigger.by,
            order: "trigger",
            of: trigger.job,
            reason: String::new(),
            id: trigger.id,
        }));
        found.sort_by_key(|one| Reverse(one.at));
        Ok(found)
    }
}

/// How many of these orders, the oldest first, are forgotten: beyond [`KEPT`] those that are no longer young, and beyond [`MOST`] all.
/// Pure.
fn too_many(names: &[String], now: Timestamp) -> usize {
    let young = now.checked_sub(YOUNG).map_or_else(
        |_| String::new(),
        |since| format!("{DIRECTORY}{}", trigger_floor(since)),
    );
    let old = names.partition_point(|name| *name < young);
    let beyond = |kept: usize| names.len().saturating_sub(kept);
    beyond(KEPT).min(old).max(beyond(MOST))
}

/// What an intent that is no trigger asks for; nothing where it is over.
fn stands(intent: Intent) -> Option<InForce> {
    match intent {
        Intent::Pause(pause) if pause.paused => Some(InForce {
            at: pause.at,
            by: pause.by,
            order: "pause",
            of: pause.job,
            reason: pause.reason,
            id: String::new(),
        }),
        Intent::Resign(resign) => Some(InForce {
            at: resign.at,
            by: resign.by,
            order: "resign",
            of: resign.job,
            reason: String::new(),
            id: String::new(),
        }),
        Intent::Drain(drain) => Some(InForce {
            at: drain.at,
            by: drain.by,
            order: "drain",
            of: drain.replica,
            reason: String::new(),
            id: String::new(),
        }),
        Intent::Pause(_) | Intent::Trigger(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::Arc, time::Duration};

    use jiff::SignedDuration;

    use super::*;
    use crate::{
        chance::Chance,
        clock::Clock,
        fleet::intent::Pause,
        job::Spec,
        lock::Locks,
        node::{
            Node,
            memory::{Cut, MemoryNode},
        },
    };

    fn entry(order: &str, reason: &str) -> AuditEntry {
        AuditEntry {
            who: "ann".to_owned(),
            order: order.to_owned(),
            of: "report".to_owned(),
            reason: reason.to_owned(),
            ..AuditEntry::default()
        }
    }

    #[tokio::test]
    async fn an_order_is_written_down_before_it_is_given() {
        let nodes: Vec<Arc<MemoryNode>> = (1..=3)
            .map(|n| Arc::new(MemoryNode::new(format!("n{n}"), Clock::system())))
            .collect();
        let voters = nodes.iter().map(|node| node.clone() as Arc<dyn Node>);
        let locks = Locks::over(voters.collect()).start().unwrap();
        let fleet = Fleet::over(&locks, "page of w0");
        let given = Cell::new(0);
        let order = async {
            // It stands there already, without its result.
            let stands = fleet.orders().await.unwrap();
            assert_eq!((stands.len(), stands[0].result.as_str()), (1, ""));
            given.set(given.get() + 1);
            "heard"
        };
        let told = |word: &&str| (*word).to_owned();
        let answer = fleet
            .in_writing(entry("pause", "it moves"), order, told)
            .await;
        assert_eq!((answer.unwrap(), given.get()), ("heard", 1));
        let stands = fleet.orders().await.unwrap();
        assert_eq!(
            (stands[0].result.as_str(), stands[0].by.as_str()),
            ("heard", "page of w0")
        );

        for node in &nodes[..2] {
            node.faults().partition(Cut::Refuse);
        }
        let now = locks.clock().now();
        let hasty = fleet.clone().no_later_than(now, now);
        let order = async { given.set(given.get() + 1) };
        let refused = hasty
            .in_writing(entry("resume", ""), order, |()| String::new())
            .await;
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(given.get(), 1, "it was not given");
    }

    /// Names of so many orders, each a second older than the next, of which the last was given at this time.
    fn names(count: i64, last: Timestamp) -> Vec<String> {
        let chance = Chance::seeded(7);
        let names = (0..count).map(|n| {
            let at = last - SignedDuration::from_secs(count - 1 - n);
            format!("{DIRECTORY}{}", sortable_id(at, &chance))
        });
        names.collect()
    }

    #[test]
    fn no_young_order_is_forgotten_for_another_one() {
        let now: Timestamp = "2026-11-26T08:00:00Z".parse().unwrap();
        let long_ago = now - SignedDuration::from_hours(48);
        let (kept, most) = (KEPT as i64, MOST as i64);
        for (count, last, expected) in [
            (kept, long_ago, 0),
            (kept + 3, long_ago, 3),
            // However many are given in a day, those before them in that day stay.
            (kept + 3, now, 0),
            (most, now, 0),
            (most + 5, now, 5),
        ] {
            assert_eq!(too_many(&names(count, last), now), expected, "{count}");
        }
        let mixed = [names(10, long_ago), names(kept, now)].concat();
        assert_eq!(too_many(&mixed, now), 10);
    }

    #[tokio::test]
    async fn the_oldest_orders_are_forgotten_and_the_latest_come_first() {
        let node = Arc::new(MemoryNode::new("n", Clock::system()));
        let locks = Locks::over(vec![node]).start().unwrap();
        let fleet = Fleet::over(&locks, "page");
        for n in 0..KEPT as i64 + 2 {
            let at = locks.wall() - SignedDuration::from_hours(48) + SignedDuration::from_secs(n);
            let old = AuditEntry {
                id: sortable_id(at, locks.chance()),
                at,
                ..entry("pause", &n.to_string())
            };
            fleet.write_entry(&old).await.unwrap();
        }
        let told = |(): &()| "done".to_owned();
        let order = std::future::ready(());
        fleet
            .in_writing(entry("drain", "it is old"), order, told)
            .await
            .unwrap();
        fleet.prune_orders().await;
        let kept = fleet.orders().await.unwrap();
        assert_eq!(kept.len(), KEPT);
        assert_eq!(kept[0].order, "drain");
        assert_eq!(kept[KEPT - 1].reason, "3", "the first that is kept");
        assert!(kept.windows(2).all(|pair| pair[0].id > pair[1].id));
    }

    /// What is over and still remembered hides nothing that stands.
    #[tokio::test]
    async fn what_stands_is_found_among_much_that_is_over() {
        let node = Arc::new(MemoryNode::new("n", Clock::system()));
        let locks = Locks::over(vec![node]).start().unwrap();
        let fleet = Fleet::over(&locks, "ann");
        let pause = |job: String, paused| Pause {
            job,
            paused,
            ..Pause::default()
        };
        for n in 0..SHOWN + 5 {
            let over = pause(format!("job-{n:04}"), false);
            fleet.write(1, &Intent::Pause(over)).await.unwrap();
        }
        let stands = pause("zeta".to_owned(), true);
        fleet.write(1, &Intent::Pause(stands)).await.unwrap();
        let found = fleet.in_force().await.unwrap();
        assert_eq!((found.len(), found[0].of.as_str()), (1, "zeta"));
    }

    #[tokio::test]
    async fn an_order_for_no_job_is_refused_before_it_is_written_down() {
        let node = Arc::new(MemoryNode::new("n", Clock::system()));
        let locks = Locks::over(vec![node]).start().unwrap();
        let known = [("report".to_owned(), Spec::on("@hourly"))];
        let fleet = Fleet::over(&locks, "page").configured(known);
        assert!(fleet.refuse_order_for_no_job("report").await.is_ok());
        let refused = fleet.refuse_order_for_no_job("reprot").await;
        assert!(matches!(refused, Err(FleetError::UnknownJob { .. })));
        assert!(fleet.orders().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_still_stands_is_told_whoever_asked_for_it() {
        let node = Arc::new(MemoryNode::new("n", Clock::system()));
        let locks = Locks::over(vec![node]).start().unwrap();
        let fleet = Fleet::over(&locks, "ann");
        let at_once = Duration::ZERO;
        fleet
            .set_paused("report", true, "it moves", at_once)
            .await
            .unwrap();
        fleet.ask_for_one("mail").await.unwrap();
        let stands = fleet.in_force().await.unwrap();
        let told: Vec<_> = stands
            .iter()
            .map(|one| (one.order, one.of.as_str(), one.by.as_str()))
            .collect();
        assert!(told.contains(&("pause", "report", "ann")), "{told:?}");
        assert!(told.contains(&("trigger", "mail", "ann")), "{told:?}");
        fleet
            .set_paused("report", false, "", at_once)
            .await
            .unwrap();
        let stands = fleet.in_force().await.unwrap();
        assert!(stands.iter().all(|one| one.order != "pause"));
    }
}
