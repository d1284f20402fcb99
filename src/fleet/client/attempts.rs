//! The attempts at a run that was asked for, as the history has them.

use super::{
    super::{
        history::RunRecord,
        intent::{self, Trigger},
    },
    Fleet,
    error::FleetError,
    runs::{Kept, RunFilter},
    triggers::{SeenShards, trigger_in},
};

/// Shards of which each is asked about, and so many at a time.
const FEW: usize = 100;
const AT_ONCE: usize = 8;

impl Fleet {
    /// The attempts at the run of this trigger, oldest first, with how far those in flight are and without what they left to read;
    /// none before the history has the first one, nor of a job with more than a hundred shards. A shard of which nothing is written any
    /// more is known by what was `seen`.
    ///
    /// # Errors
    /// [`FleetError`] while too few nodes answer.
    pub(crate) async fn attempts(
        &self,
        trigger: &Trigger,
        seen: &SeenShards,
    ) -> Result<Vec<Kept>, FleetError> {
        let fleet = self.documents().await?;
        let shards = self.shards_of(&trigger.job, &fleet);
        let asked = match shards.len() {
            0 => vec![trigger.clone()],
            1..=FEW => self.of_each_shard(trigger, &shards, seen.clone()).await?,
            _ => Vec::new(),
        };
        let mut found: Vec<Kept> = Vec::new();
        for some in asked.chunks(AT_ONCE) {
            let read = some.iter().map(|one| self.attempts_of_one(one));
            for kept in futures_util::future::join_all(read).await {
                found.extend(kept?);
            }
        }
        found.sort_by_cached_key(|kept| (kept.run.order(), kept.run.job.clone()));
        RunRecord::add_progress(found.iter_mut().map(|kept| &mut kept.run), &fleet);
        Ok(found)
    }

    /// The same trigger, as it is written for each of these shards.
    async fn of_each_shard(
        &self,
        trigger: &Trigger,
        shards: &[String],
        mut seen: SeenShards,
    ) -> Result<Vec<Trigger>, FleetError> {
        let names = shards.iter();
        let names = names.map(|shard| intent::trigger_document(shard, &trigger.id));
        let names: Vec<String> = names.collect();
        let docs = self.patiently(|| self.locks.docs_of(&names)).await?;
        for read in docs.iter().filter_map(trigger_in) {
            seen.add(read);
        }
        Ok(seen.of(shards))
    }

    async fn attempts_of_one(&self, trigger: &Trigger) -> Result<Vec<Kept>, FleetError> {
        if trigger.run_id.is_empty() {
            return Ok(Vec::new());
        }
        let all = RunFilter::default();
        let mut kept = self.kept(&trigger.job, &all, usize::MAX).await?;
        // A trigger names one of them. All attempts at its run have the same instant in the place of a tick, and no other run has.
        let named = kept.iter().find(|kept| kept.run.run_id == trigger.run_id);
        let tick = named.map(|kept| kept.run.tick);
        kept.retain(|kept| Some(kept.run.tick) == tick);
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use jiff::Timestamp;

    use super::*;
    use crate::{
        clock::Clock,
        fleet::history::Stage,
        job::Spec,
        lock::Locks,
        node::{Node, memory::MemoryNode},
    };

    #[tokio::test]
    async fn the_attempts_of_a_trigger_are_those_at_its_instant() {
        let node = Arc::new(MemoryNode::new("n1", Clock::system())) as Arc<dyn Node>;
        let locks = Locks::over(vec![node]).start().unwrap();
        let day = Duration::from_secs(24 * 3600);
        for (seq, tick, run_id) in [(1, 10, "a"), (2, 20, "b"), (3, 20, "c"), (4, 30, "d")] {
            let record = RunRecord {
                job: "report".to_owned(),
                run_id: run_id.to_owned(),
                tick: Timestamp::from_second(tick).unwrap(),
                seq,
                ..RunRecord::default()
            };
            let (name, _) = RunRecord::documents("report", None, seq);
            let rev = RunRecord::revision(seq, Stage::Ended);
            let body = record.to_body();
            locks.put_doc(&name, rev, day, body).await.unwrap();
        }
        let client = Fleet::over(&locks, "ann");
        let attempts = async |run_id: &str| {
            let trigger = Trigger {
                job: "report".to_owned(),
                run_id: run_id.to_owned(),
                ..Trigger::default()
            };
            let none = SeenShards::default();
            let found = client.attempts(&trigger, &none).await.unwrap();
            found.iter().map(|kept| kept.run.seq).collect::<Vec<_>>()
        };
        assert_eq!(attempts("b").await, [2, 3]);
        assert_eq!(attempts("").await, [0; 0], "it has not started");
        assert_eq!(attempts("x").await, [0; 0], "not written yet");
    }

    /// Another shard of it runs for much longer than the end of this one is told of.
    #[tokio::test]
    async fn the_attempts_of_a_shard_are_known_when_its_trigger_is_not_written_any_more() {
        let node = Arc::new(MemoryNode::new("n1", Clock::system())) as Arc<dyn Node>;
        let locks = Locks::over(vec![node]).start().unwrap();
        let record = RunRecord {
            job: "mail.0".to_owned(),
            run_id: "a".to_owned(),
            seq: 1,
            ..RunRecord::default()
        };
        let (name, _) = RunRecord::documents("mail.0", None, 1);
        let (rev, day) = (
            RunRecord::revision(1, Stage::Ended),
            Duration::from_secs(86_400),
        );
        let body = record.to_body();
        locks.put_doc(&name, rev, day, body).await.unwrap();
        let spec = Spec::on("@hourly").shards(2);
        let client = Fleet::over(&locks, "ann").configured([("mail".to_owned(), spec)]);
        let trigger = |job: &str, run_id: &str| Trigger {
            job: job.to_owned(),
            run_id: run_id.to_owned(),
            ..Trigger::default()
        };
        let mut seen = SeenShards::default();
        seen.add(trigger("mail.0", "a"));
        let found = client.attempts(&trigger("mail", "b"), &seen).await.unwrap();
        let found: Vec<&str> = found.iter().map(|kept| kept.run.run_id.as_str()).collect();
        assert_eq!(found, ["a"]);
    }
}
