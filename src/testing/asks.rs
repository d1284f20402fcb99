//! What people ask of a simulated fleet: as the commands `trigger`, `pause`, `resume` and `resign` do.

use std::time::Duration;

use super::{Fleet, Replica};
use crate::{
    fleet::{Fleet as Client, FleetError},
    intent::{Trigger, TriggerParams, TriggerState},
    job::shard::is_of,
};

/// How long an answer waits for the replicas that it concerns.
const HEARD: Duration = Duration::from_secs(10);
/// How often replicas look for what was asked while the test waits for them.
const LOOK: Duration = Duration::from_millis(500);

impl Fleet {
    /// Asks for one run of the job now, of one with shards for one of each. [`Fleet::triggered`] says what became of it.
    ///
    /// # Panics
    /// When no majority of the lock nodes takes it.
    pub async fn trigger(&self, job: &str) -> Trigger {
        self.recorder().did(format!("trigger({job:?})"));
        let client = self.client();
        let all = self.zones().into_iter().map(|(name, _)| name);
        let shards: Vec<String> = all.filter(|name| name != job && is_of(name, job)).collect();
        let given = TriggerParams::default();
        let trigger = done(match shards.is_empty() {
            true => client.ask_for_run(job, given).await,
            false => client.ask_for_all(job, shards, given).await,
        });
        self.look();
        trigger
    }

    /// What is known of a trigger as soon as no attempt at it follows, or after `limit`; its `run_id` and `outcome` say what
    /// became of it.
    pub async fn triggered(&self, trigger: &Trigger, limit: Duration) -> Trigger {
        let client = self.client();
        client
            .follow(trigger.clone(), TriggerState::Ended, limit)
            .await
    }

    /// Pauses the job: nothing of it starts. Waits until every replica that can hear has heard, for ten seconds at most.
    ///
    /// # Panics
    /// When no majority of the lock nodes takes it.
    pub async fn pause(&self, job: &str) {
        self.recorder().did(format!("pause({job:?})"));
        self.ask(async |client| client.set_paused(job, true, "", HEARD).await)
            .await;
    }

    /// Ends [`Fleet::pause`].
    ///
    /// # Panics
    /// When no majority of the lock nodes takes it.
    pub async fn resume(&self, job: &str) {
        self.recorder().did(format!("resume({job:?})"));
        self.ask(async |client| client.set_paused(job, false, "", HEARD).await)
            .await;
    }

    /// Asks the leader of the job to hand over, to this replica or to any, and waits for its successor, for ten seconds
    /// at most.
    ///
    /// # Panics
    /// When no replica leads it, `to` cannot, or no majority of the lock nodes takes it.
    pub async fn resign(&self, job: &str, to: Option<Replica>) -> Option<Replica> {
        self.recorder().did(format!("resign({job:?})"));
        let to = to.map(|to| to.to_string());
        self.ask(async |client| client.hand_over(job, to.as_deref(), HEARD).await)
            .await;
        self.leader(job)
    }

    /// Asks something that is heard by replicas and answered by what they tell of themselves.
    async fn ask<T>(&self, ask: impl AsyncFnOnce(Client) -> Result<T, FleetError>) -> T {
        let mut asked = std::pin::pin!(ask(self.client()));
        loop {
            self.look();
            let clock = self.clock();
            tokio::select! {
                biased;
                answer = &mut asked => return done(answer),
                () = clock.sleep(LOOK) => {}
            }
        }
    }

    fn client(&self) -> Client {
        Client::over(self.operator(), "the test")
    }
}

fn done<T>(asked: Result<T, FleetError>) -> T {
    match asked {
        Ok(answer) => answer,
        Err(error) => panic!("{error}"),
    }
}
