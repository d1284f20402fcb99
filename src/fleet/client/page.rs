//! The fleet for a page that many look at: however many ask, the store is read for one of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    super::{
        intent::Pause,
        presence::replicas::Replicas,
        status::{FleetStatus, LastSeen, Presence, merge::Seen},
    },
    Fleet,
};
use crate::lock::{LockError, Locks};

impl Fleet {
    /// A client of which all clones share what they read, for all who look at the page of one replica.
    pub(crate) fn of_page(locks: &Locks, by: impl Into<String>) -> Self {
        Self {
            replicas: Arc::new(tokio::sync::Mutex::new(Replicas::noting_jobs())),
            ..Self::over(locks, by)
        }
    }

    /// The fleet as the store tells it, and the replica `me` as it is now, which knows of these pauses and remembers who led: at
    /// least that. Of a [client for a page](Self::of_page).
    pub(crate) async fn status_around(
        &self,
        me: Presence,
        pauses: Vec<Pause>,
        remembered: BTreeMap<String, LastSeen>,
    ) -> Result<FleetStatus, LockError> {
        let (locks, replicas) = (&self.locks, &self.replicas);
        let seen = self.shared.fleet(locks, replicas, me, pauses, remembered);
        Ok(seen.await?.gathered())
    }

    /// The replicas and the nodes as they are now, and of the jobs these alone, by their names or those of their shards: what that
    /// costs does not depend on how many others there are. `me` tells of these jobs. A job with shards is told where all of them
    /// are named. Of a [client for a page](Self::of_page).
    pub(crate) async fn some_around(
        &self,
        me: Presence,
        names: &BTreeSet<String>,
        pauses: Vec<Pause>,
        remembered: BTreeMap<String, LastSeen>,
    ) -> Result<FleetStatus, LockError> {
        let seen = self.shared.some(&self.locks, me, names, pauses, remembered);
        Ok(seen.await?.gathered())
    }

    /// What the replica `me` knows by itself, without a question to the store. Which other replicas lead is not known.
    pub(crate) fn known_to(
        &self,
        me: Presence,
        remembered: BTreeMap<String, LastSeen>,
    ) -> FleetStatus {
        let id = me.id.clone();
        let seen = Seen {
            me: Some(&id),
            remembered,
            ..Seen::default()
        };
        FleetStatus::merged([me], Vec::new(), self.locks.wall(), &seen).gathered()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use super::*;
    use crate::{
        clock::Clock,
        fleet::{presence::teller::write_all, status::JobPresence},
        node::{Node, Op, memory::MemoryNode},
    };

    const JOBS: usize = 2_000;

    /// A page of a fleet in which one other replica has so many jobs.
    struct Scene {
        locks: Locks,
        page: Fleet,
        me: Presence,
        /// The names of some of its jobs.
        names: BTreeSet<String>,
        /// How many locks were read, and how often documents were asked for, of one node.
        counts: [Arc<AtomicUsize>; 2],
    }

    /// However many others there are.
    #[tokio::test]
    async fn a_page_of_many_jobs_looks_at_the_locks_of_its_rows() {
        let scene = Scene::new().await;
        let _lease = scene
            .locks
            .lock_key("job/job-00007")
            .acquire()
            .await
            .unwrap();
        let some = scene.look().await;
        assert_eq!(
            (some.jobs.len(), some.replicas.len(), some.nodes.len()),
            (50, 2, 3)
        );
        let leader = |n: usize| some.job(&job(n).name).unwrap().leader.clone();
        assert_eq!(leader(7).unwrap().name, "w0");
        assert_eq!(leader(8), None);
        assert!(some.jobs.iter().all(|job| job.leader_known));
        // Again at once: the locks, and nothing is asked of documents.
        scene.took();
        assert_eq!(scene.look().await.jobs.len(), 50);
        assert_eq!(scene.took(), [50, 0]);
        // All of them.
        let whole = scene
            .page
            .status_around(scene.me.clone(), Vec::new(), BTreeMap::new());
        assert_eq!(whole.await.unwrap().jobs.len(), JOBS);
        let [locks_read, documents_asked] = scene.took();
        assert_eq!((locks_read, documents_asked > 0), (JOBS, true));
    }

    /// Of ten thousand jobs that takes the better part of a second.
    #[tokio::test]
    async fn some_jobs_do_not_wait_for_a_reading_of_all() {
        let scene = Scene::new().await;
        // As if all were being read, and that did not end.
        let reading = scene.page.replicas.lock().await;
        let look = async || {
            let clock = scene.locks.clock();
            let some = clock.timeout(Duration::from_secs(60), scene.look());
            let some = some.await.expect("it waits for nothing");
            assert_eq!((some.jobs.len(), some.replicas.len()), (50, 2));
        };
        look().await;
        drop(reading);
        let whole = scene
            .page
            .status_around(scene.me.clone(), Vec::new(), BTreeMap::new());
        assert_eq!(whole.await.unwrap().jobs.len(), JOBS);
        let _reading = scene.page.replicas.lock().await;
        look().await;
    }

    fn job(n: usize) -> JobPresence {
        JobPresence {
            name: format!("job-{n:05}"),
            coordination: "leader".to_owned(),
            ..JobPresence::default()
        }
    }

    impl Scene {
        async fn new() -> Self {
            let node = |n| MemoryNode::new(format!("n{n}"), Clock::system());
            let nodes: Vec<MemoryNode> = (1..=3).map(node).collect();
            let counts: [Arc<AtomicUsize>; 2] = Default::default();
            let [locks_read, documents_asked] = counts.clone();
            nodes[0].observe(move |executed| {
                for op in &executed.call.ops {
                    match op {
                        Op::Read { .. } => _ = locks_read.fetch_add(1, Ordering::SeqCst),
                        Op::Doc { .. } | Op::Living { .. } => {
                            documents_asked.fetch_add(1, Ordering::SeqCst);
                        }
                        _ => {}
                    }
                }
            });
            let nodes = nodes
                .into_iter()
                .map(|node| Arc::new(node) as Arc<dyn Node>);
            let locks = Locks::over(nodes.collect()).tag("aa").start().unwrap();
            let other = Presence {
                id: "h-1-x".to_owned(),
                tag: "aa".to_owned(),
                name: "w0".to_owned(),
                jobs: (0..JOBS).map(job).collect(),
                rev: 1,
                ..Presence::default()
            };
            write_all(&locks, &other, Duration::from_secs(3600)).await;
            Self {
                page: Fleet::of_page(&locks, "page"),
                locks,
                me: Presence {
                    id: "h-2-y".to_owned(),
                    tag: "bb".to_owned(),
                    name: "w1".to_owned(),
                    ..Presence::default()
                },
                names: (0..50).map(|n| job(n).name).collect(),
                counts,
            }
        }

        async fn look(&self) -> FleetStatus {
            let me = self.me.clone();
            let some = self
                .page
                .some_around(me, &self.names, Vec::new(), BTreeMap::new());
            some.await.unwrap()
        }

        /// What was counted since this was asked last.
        fn took(&self) -> [usize; 2] {
            let counts = self.counts.each_ref();
            counts.map(|count| count.swap(0, Ordering::SeqCst))
        }
    }
}
