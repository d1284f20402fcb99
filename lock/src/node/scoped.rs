//! One fleet's part of a store that several fleets share: every name carries the namespace, and other fleets do not
//! see it.

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::{
    Announcement, Announcements, Answer, Call, Expiry, Node, NodeError, NodeFacts, Op, Reply,
    Servers, View,
};
use crate::spawn::Spawn;

/// Announcements that a slow reader may leave unread.
const UNREAD: usize = 64;

/// A node whose keys and documents belong to one namespace.
#[derive(Debug)]
pub struct Scoped<N> {
    node: N,
    /// Of keys.
    prefix: String,
    /// Of documents: a directory, so that those whose names have none lie in one of their own.
    dir: String,
    spawn: Spawn,
}

impl<N: Node> Scoped<N> {
    /// The part of `node` that belongs to `namespace`.
    #[must_use]
    pub fn new(node: N, namespace: &str, spawn: Spawn) -> Self {
        let prefix = format!("{{{namespace}}}:");
        Self {
            node,
            prefix,
            dir: format!("{{{namespace}}}/"),
            spawn,
        }
    }

    fn outward(&self, op: &mut Op) {
        let (name, prefix) = match op {
            Op::Acquire { key, .. }
            | Op::Leave { key, .. }
            | Op::Confirm { key, .. }
            | Op::Extend { key, .. }
            | Op::Release { key, .. }
            | Op::Break { key, .. }
            | Op::Write { key, .. }
            | Op::Read { key }
            | Op::Merge { key, .. }
            | Op::Forget { key, .. }
            | Op::List { prefix: key, .. } => (key, &self.prefix),
            Op::PutDoc { name, .. }
            | Op::RemoveDoc { name }
            | Op::TouchDoc { name, .. }
            | Op::Living { dir: name, .. }
            | Op::Doc { name }
            | Op::Docs { dir: name, .. }
            | Op::DocNames { dir: name, .. } => (name, &self.dir),
            // All namespaces of a store live and die with it, and are walked together.
            Op::Admission
            | Op::Nominate { .. }
            | Op::Enrol { .. }
            | Op::Close { .. }
            | Op::Admit { .. }
            | Op::Records { .. }
            | Op::Sweep { .. } => return,
        };
        name.insert_str(0, prefix);
    }

    fn inward(&self, answer: &mut Answer) {
        let strip_from = |name: &mut String, prefix: &str| {
            if let Some(rest) = name.strip_prefix(prefix) {
                *name = rest.to_owned();
            }
        };
        let strip = |key: &mut String| strip_from(key, &self.prefix);
        match answer {
            Answer::Refused(View { key, .. })
            | Answer::Broken(View { key, .. })
            | Answer::View(View { key, .. }) => strip(key),
            Answer::Page(page) => {
                let ours = |key: &str| key.starts_with(&self.prefix);
                page.views.retain(|view| ours(&view.key));
                page.bodies.retain(|(key, _)| ours(key));
                page.views.iter_mut().for_each(|view| strip(&mut view.key));
                page.bodies.iter_mut().for_each(|(key, _)| strip(key));
                let in_dir = |name: &str| name.starts_with(&self.dir);
                page.docs.retain(|doc| in_dir(&doc.name));
                let docs = page.docs.iter_mut();
                docs.for_each(|doc| strip_from(&mut doc.name, &self.dir));
                page.large.retain(|name| ours(name) || in_dir(name));
                page.large.iter_mut().for_each(|name| {
                    let prefix = if ours(name) { &self.prefix } else { &self.dir };
                    strip_from(name, prefix);
                });
            }
            Answer::Docs(docs) => docs
                .iter_mut()
                .for_each(|doc| strip_from(&mut doc.name, &self.dir)),
            Answer::Lives { docs, .. } => docs
                .iter_mut()
                .for_each(|doc| strip_from(&mut doc.name, &self.dir)),
            Answer::Granted { .. }
            | Answer::Kept { .. }
            | Answer::Healed { .. }
            | Answer::Larger(_)
            | Answer::TooEarly { .. }
            | Answer::Unadmitted
            | Answer::Admission(_)
            | Answer::Failed(_)
            | Answer::Done => {}
        }
    }
}

#[async_trait]
impl<N: Node> Node for Scoped<N> {
    fn name(&self) -> &str {
        self.node.name()
    }

    async fn call(&self, mut call: Call) -> Result<Reply, NodeError> {
        call.ops.iter_mut().for_each(|op| self.outward(op));
        let mut reply = self.node.call(call).await?;
        reply
            .answers
            .iter_mut()
            .for_each(|answer| self.inward(answer));
        Ok(reply)
    }

    async fn identity(&self) -> Option<String> {
        self.node.identity().await
    }

    fn join(&self, servers: &Servers, place: usize) {
        self.node.join(servers, place);
    }

    fn expiry(&self) -> Expiry {
        self.node.expiry()
    }

    fn is_approximate(&self) -> bool {
        self.node.is_approximate()
    }

    async fn inspect(&self) -> Result<NodeFacts, NodeError> {
        self.node.inspect().await
    }

    async fn endless(&self) -> Result<Vec<String>, NodeError> {
        let keys = self.node.endless().await?.into_iter();
        let ours = keys.filter_map(|key| key.strip_prefix(&self.prefix).map(str::to_owned));
        Ok(ours.collect())
    }

    async fn announcements(&self) -> Option<Announcements> {
        let mut all = self.node.announcements().await?;
        let (tell, ours) = mpsc::channel(UNREAD);
        let prefix = self.prefix.clone();
        self.spawn.spawn(async move {
            while let Some(news) = all.recv().await {
                let Some(key) = news.key.strip_prefix(&prefix).map(str::to_owned) else {
                    continue;
                };
                if tell.send(Announcement { key, ..news }).await.is_err() {
                    return;
                }
            }
        });
        Some(ours)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{acquire::Locks, chance::Chance, node::memory::MemoryNode, sim_clock::SimTime};

    #[tokio::test(start_paused = true)]
    async fn two_fleets_on_one_store_do_not_meet() {
        let time = SimTime::new();
        let node = MemoryNode::new("shared", time.clock());
        let fleet = |namespace: &str, seed: u64| {
            let scoped = Scoped::new(node.clone(), namespace, Spawn::system());
            let nodes: Vec<Arc<dyn Node>> = vec![Arc::new(scoped)];
            let locks = Locks::over(nodes)
                .clock(time.clock())
                .chance(Chance::seeded(seed));
            locks.keeper_here(Spawn::system()).start().unwrap()
        };
        let (red, blue, blue_too) = (fleet("red", 1), fleet("blue", 2), fleet("blue", 3));
        let mine = red.lock("x").acquire().await.unwrap();
        let theirs = blue.lock("x").acquire().await.unwrap();
        assert!(mine.is_held() && theirs.is_held());
        assert!(
            blue_too.lock("x").acquire().await.is_err(),
            "one namespace is one fleet"
        );

        let listed = red.list("").await.unwrap();
        let keys: Vec<_> = listed
            .iter()
            .flatten()
            .map(|view| view.key.as_str())
            .collect();
        assert_eq!(keys, ["lock/x"]);
        red.put_doc("presence/a", 1, Duration::from_secs(1), "{}".into())
            .await
            .unwrap();
        assert_eq!(red.docs("presence/").await.unwrap()[0].name, "presence/a");
        assert!(blue.docs("presence/").await.unwrap().is_empty());
        red.put_doc("note", 1, Duration::from_secs(1), "{}".into())
            .await
            .unwrap();
        assert_eq!(red.docs("").await.unwrap()[0].name, "note");
        assert_eq!(red.doc("note").await.unwrap().unwrap().name, "note");
        assert!(blue.docs("").await.unwrap().is_empty());
        assert_eq!(blue.doc("note").await.unwrap(), None);

        // The release is announced to the fleet that waits, by its own name for the lock.
        let mut releases = blue_too.releases_of("lock/x");
        let waits = blue_too.lock("x").wait(Duration::from_secs(1)).acquire();
        let lets_go = async {
            time.clock().sleep(Duration::from_millis(10)).await;
            theirs.release().await
        };
        let (waited, _) = tokio::join!(waits, lets_go);
        assert!(waited.is_ok(), "{waited:?}");
        assert_eq!(releases.recv().await.key, "lock/x");
    }
}
