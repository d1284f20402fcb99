//! Looks at locks whose records are long, over a way that is slow.

use std::{sync::Arc, time::Duration};

use crate::{
    acquire::Locks,
    chance::Chance,
    clock::Clock,
    node::{Announcements, Call, Node, NodeError, Op, Reply, memory::MemoryNode},
    sim_clock::SimTime,
    spawn::Spawn,
};

/// A node over a way on which every record takes some time.
struct Far {
    node: MemoryNode,
    clock: Clock,
    each: Duration,
}

#[async_trait::async_trait]
impl Node for Far {
    fn name(&self) -> &str {
        self.node.name()
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        let ops = call.ops.iter();
        let records = ops.filter(|op| matches!(op, Op::Read { .. })).count();
        let reply = self.node.call(call).await;
        let records = u32::try_from(records).unwrap();
        self.clock.sleep(self.each * records).await;
        reply
    }

    async fn announcements(&self) -> Option<Announcements> {
        self.node.announcements().await
    }
}

#[tokio::test(start_paused = true)]
async fn records_that_together_come_too_late_are_asked_for_in_parts() {
    let time = SimTime::new();
    let clock = time.clock();
    // Of 50 ms for a call: fifty of them together would do.
    let each = Duration::from_millis(1);
    let far = |n| Far {
        node: MemoryNode::new(format!("n{n}"), clock.clone()),
        clock: clock.clone(),
        each,
    };
    let nodes = (0..3).map(|n| Arc::new(far(n)) as Arc<dyn Node>);
    let locks = Locks::over(nodes.collect())
        .clock(clock.clone())
        .chance(Chance::seeded(7))
        .keeper_here(Spawn::system())
        .start()
        .unwrap();
    let keys: Vec<String> = (0..1_000).map(|n| format!("lock/{n:04}")).collect();
    let mut answered = 0;
    // A look that comes too late has the nodes count as down until they are heard of again: so each shows one step.
    for _ in 0..4 {
        let seen = locks.look(keys.clone()).await.unwrap();
        assert_eq!(seen.len(), keys.len());
        let answers = |node: &Result<_, NodeError>| node.is_ok();
        answered = seen
            .iter()
            .filter(|seen| seen.nodes.iter().all(answers))
            .count();
        clock.sleep(Duration::from_millis(500)).await;
        // What a candidate asks for meanwhile is little, and shows nothing of much.
        for _ in 0..10 {
            locks.look(vec![keys[0].clone()]).await.unwrap();
        }
    }
    assert_eq!(answered, keys.len());
}
