//! Runs that are asked for: one trigger, what became of it, those that are outstanding, and how they are withdrawn.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::Serialize;

use super::{
    super::{
        intent::{self, Intent, Outstanding, Trigger, TriggerState},
        status::FleetStatus,
    },
    Fleet,
    error::FleetError,
};
use crate::{
    clock::Moment,
    job::shard::{is_of, shard_of},
    ledger::{ids::sortable_id, params::TriggerParams},
    node::Doc,
};

/// Documents that are written at a time.
const AT_ONCE: usize = 64;

/// A trigger that is not done with, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingTrigger {
    /// Its id.
    pub id: String,
    /// The job.
    pub job: String,
    /// Who asked for it.
    pub by: String,
    /// When that was, by the asker's clock.
    pub asked: Timestamp,
    /// How far it has come.
    pub state: TriggerState,
    /// What it waits for, or where it runs.
    pub why: String,
    /// Names of its parameters.
    pub params: Vec<String>,
    /// The id of its run; empty before it has started.
    pub run_id: String,
}

/// What was read of a trigger of all shards of a job, of each as far as it was seen. The document of a shard that has ended goes long
/// before the last of them ends, and how it ended is not forgotten with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenShards {
    shards: BTreeMap<String, Trigger>,
    /// When the document of a shard was last named.
    named: BTreeMap<String, Moment>,
}

impl Fleet {
    /// Asks for one run of the job, as soon as nothing else of it runs, with these parameters laid over its own. Returns when
    /// the trigger is written; [`Fleet::follow`] says what becomes of it. Of a job with shards each shard runs once, under one
    /// trigger, which is as far as the last of them.
    ///
    /// # Cancellation
    /// A dropped call may have written its trigger, of a job with shards for some of them, which then stands.
    ///
    /// # Errors
    /// On an error nothing was written, as far as this client knows; after [`FleetError::Doubtful`] the trigger may stand.
    pub async fn trigger(&self, job: &str, params: TriggerParams) -> Result<Trigger, FleetError> {
        let fleet = self.led(job).await?;
        match self.shards_of(job, &fleet) {
            shards if shards.is_empty() => self.ask_for_run(job, params).await,
            shards => self.ask_for_all(job, shards, params).await,
        }
    }

    /// One trigger for all these shards of the job: a document each, with one id.
    pub(crate) async fn ask_for_all(
        &self,
        job: &str,
        shards: Vec<String>,
        given: TriggerParams,
    ) -> Result<Trigger, FleetError> {
        let read = self.names().await?;
        let names = read.iter().map(|doc| (doc.name.as_str(), doc.rev));
        let outstanding = Outstanding::of(names);
        outstanding
            .room_for(&shards)
            .map_err(|many| FleetError::too_many(job, &many))?;
        let whole = self.new_trigger(job, given);
        let mut begun = false;
        for shards in shards.chunks(AT_ONCE) {
            let writes = shards.iter().map(|shard| async {
                let mut trigger = whole.clone();
                trigger.job.clone_from(shard);
                self.write(trigger.revision(), &Intent::Trigger(trigger))
                    .await
            });
            let written = futures_util::future::join_all(writes).await;
            begun |= written
                .iter()
                .any(|written| !matches!(written, Err(FleetError::Late)));
            let failed = written.into_iter().find_map(Result::err);
            match failed {
                None => {}
                Some(late @ FleetError::Late) if !begun => return Err(late),
                // Of some it is known that they are written.
                Some(error) => {
                    let (id, why) = (whole.id.clone(), error.of_a_part());
                    return Err(FleetError::Doubtful { id, why });
                }
            }
        }
        Ok(whole)
    }

    fn new_trigger(&self, job: &str, given: TriggerParams) -> Trigger {
        Trigger {
            job: job.to_owned(),
            id: sortable_id(self.locks.wall(), &self.chance),
            by: self.by.clone(),
            given,
            asked: self.locks.wall(),
            state: TriggerState::Asked,
            ..Trigger::default()
        }
    }

    /// The same for a job of which it is not asked whether there is one.
    pub(crate) async fn ask_for_run(
        &self,
        job: &str,
        given: TriggerParams,
    ) -> Result<Trigger, FleetError> {
        let read = self.names().await?;
        let names = read.iter().map(|doc| (doc.name.as_str(), doc.rev));
        Outstanding::of(names)
            .room(job)
            .map_err(|many| FleetError::too_many(job, &many))?;
        let trigger = self.new_trigger(job, given);
        let rev = trigger.revision();
        let written = self.write(rev, &Intent::Trigger(trigger.clone())).await;
        written.map_err(|error| match error.passes() {
            true => FleetError::Doubtful {
                id: trigger.id.clone(),
                why: error.to_string(),
            },
            false => error,
        })?;
        Ok(trigger)
    }

    /// The same without parameters.
    #[cfg(test)]
    pub(crate) async fn ask_for_one(&self, job: &str) -> Result<Trigger, FleetError> {
        self.ask_for_run(job, TriggerParams::default()).await
    }

    /// Waits until the trigger has come so far, for `patience` at most; answers with what is known then. Nodes may come and
    /// go meanwhile.
    ///
    /// # Cancellation
    /// A dropped call has changed nothing: it only reads.
    pub async fn follow(
        &self,
        trigger: Trigger,
        state: TriggerState,
        patience: Duration,
    ) -> Trigger {
        let mut seen = SeenShards::default();
        self.follow_on(trigger, &mut seen, state, patience).await
    }

    /// The same for a caller that follows it again and again, and keeps what was seen of its shards.
    pub(crate) async fn follow_on(
        &self,
        trigger: Trigger,
        seen: &mut SeenShards,
        state: TriggerState,
        patience: Duration,
    ) -> Trigger {
        let until = self.patience(patience);
        let mut known = trigger;
        loop {
            if let Some(read) = self.read_trigger(&known, seen).await
                && read.state > known.state
            {
                known = read;
            }
            if known.state >= state || !self.again(until).await {
                return known;
            }
        }
    }

    /// What is written of it now; of a trigger of all shards what is written of them together, and was before.
    async fn read_trigger(&self, known: &Trigger, seen: &mut SeenShards) -> Option<Trigger> {
        let name = intent::trigger_document(&known.job, &known.id);
        if let Ok(Some(doc)) = self.locks.doc(&name).await {
            return trigger_in(&doc);
        }
        let names = self.names_now().await.ok()?;
        let of_shard = |name: &str| {
            let (job, id) = intent::trigger_of(name)?;
            let (whole, _) = shard_of(job)?;
            (id == known.id && whole == known.job).then_some(())
        };
        let names = names.into_iter().map(|doc| doc.name);
        let names: Vec<String> = names.filter(|name| of_shard(name).is_some()).collect();
        let now = self.locks.clock().now();
        for (shard, _) in names.iter().filter_map(|name| intent::trigger_of(name)) {
            seen.named.insert(shard.to_owned(), now);
        }
        let docs = self.locks.docs_of(&names).await.ok()?;
        let shards: Vec<Trigger> = docs.iter().filter_map(trigger_in).collect();
        let whole = shards.len() == names.len();
        for shard in shards {
            seen.add(shard);
        }
        whole.then(|| together(known, seen.all(now)))?
    }

    /// The triggers that are not done with, of one job or of all, in the order in which they were asked for, and what each
    /// waits for.
    ///
    /// # Errors
    /// [`FleetError`] while too few nodes answer.
    pub async fn triggers(&self, job: Option<&str>) -> Result<Vec<WaitingTrigger>, FleetError> {
        let found = self.outstanding(job).await?;
        let fleet = self.each().await?;
        Ok(self.waiting(found, &fleet))
    }

    /// What these wait for in a fleet that looks like this.
    pub(crate) fn waiting(&self, found: Vec<Trigger>, fleet: &FleetStatus) -> Vec<WaitingTrigger> {
        let shown = found.into_iter().map(|trigger| {
            let enabled = self.spec(&trigger.job).map(|spec| spec.enabled);
            WaitingTrigger::of(trigger, fleet, enabled)
        });
        shown.collect()
    }

    /// The triggers that are not done with, as they are written.
    pub(crate) async fn outstanding(&self, job: Option<&str>) -> Result<Vec<Trigger>, FleetError> {
        let names = self.names().await?;
        let open = names.into_iter().filter(|doc| {
            let of = intent::trigger_of(&doc.name).map(|(of, _)| of);
            of.is_some_and(|of| job.is_none_or(|job| is_of(of, job)))
                && doc.rev < TriggerState::Ended as u64
        });
        let open: Vec<String> = open.map(|doc| doc.name).collect();
        let docs = self.patiently(|| self.locks.docs_of(&open)).await?;
        let read = docs.iter().filter_map(Intent::from_doc);
        let mut found: Vec<Trigger> = read
            .filter_map(|intent| match intent {
                Intent::Trigger(trigger) => Some(trigger),
                _ => None,
            })
            .filter(|trigger| trigger.state < TriggerState::Ended)
            .collect();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(found)
    }

    /// Asks that this trigger does not start, and waits until it has ended or is known to have started, for `patience` at
    /// most; answers with what is known then. Whether it has started the ledger of its job knows: a leader that has written
    /// the start there says so whatever is wished, and one that has not drops the trigger, as does every later one. `None`
    /// when no trigger of this id is outstanding. A trigger of all shards of a job is withdrawn from all of them; where some have
    /// started, the answer is the trigger of one of these, in the name of the job, and how many they are.
    ///
    /// # Cancellation
    /// A dropped call may have written its intent, of a job with shards for some of them, which then stands.
    ///
    /// # Errors
    /// [`FleetError`] while too few nodes answer; the intent may stand then, as after a dropped call.
    pub async fn withdraw(
        &self,
        id: &str,
        patience: Duration,
    ) -> Result<Option<Trigger>, FleetError> {
        let found = self.each_of(id).await?;
        // Where others are outstanding, shards that have ended are told of.
        if found.iter().all(|one| one.state == TriggerState::Ended) {
            return Ok(None);
        }
        let mut found = self.withdraw_these(found, patience).await?;
        match (found.len(), found.first().and_then(|t| shard_of(&t.job))) {
            (2.., Some((job, _))) => {
                let whole = Trigger {
                    job: job.to_owned(),
                    ..found[0].clone()
                };
                Ok(first_begun(&whole, &found).or_else(|| together(&whole, found)))
            }
            _ => Ok(found.pop()),
        }
    }

    /// What is written of this trigger; of one of all shards what is written of each.
    async fn each_of(&self, id: &str) -> Result<Vec<Trigger>, FleetError> {
        let names = self.names().await?.into_iter().map(|doc| doc.name);
        let of_it = |name: &String| intent::trigger_of(name).is_some_and(|(_, of)| of == id);
        let names: Vec<String> = names.filter(of_it).collect();
        let docs = self.patiently(|| self.locks.docs_of(&names)).await?;
        Ok(docs.iter().filter_map(trigger_in).collect())
    }

    /// The same for every trigger of the job that has not started.
    ///
    /// # Cancellation
    /// A dropped call may have withdrawn some of them.
    ///
    /// # Errors
    /// [`FleetError`] while too few nodes answer; some of them may be withdrawn then.
    pub async fn withdraw_all(
        &self,
        job: &str,
        patience: Duration,
    ) -> Result<Vec<Trigger>, FleetError> {
        let mut found = self.outstanding(Some(job)).await?;
        // What runs is not meant.
        found.retain(|trigger| trigger.state < TriggerState::Started);
        self.withdraw_these(found, patience).await
    }

    pub(crate) async fn withdraw_these(
        &self,
        mut asked: Vec<Trigger>,
        patience: Duration,
    ) -> Result<Vec<Trigger>, FleetError> {
        let mut others = false;
        for trigger in asked.iter_mut().filter(|t| t.state < TriggerState::Started) {
            if trigger.state < TriggerState::Withdrawing {
                trigger.state = TriggerState::Withdrawing;
                trigger.withdrawn_by.clone_from(&self.by);
            }
            let rev = trigger.revision();
            let written = self.write(rev, &Intent::Trigger(trigger.clone())).await;
            written.map_err(|error| error.after(others))?;
            others = true;
        }
        let until = self.patience(patience);
        loop {
            self.follow_up(&mut asked).await;
            let settled = asked.iter().all(|t| t.state > TriggerState::Withdrawing);
            if settled || !self.again(until).await {
                return Ok(asked);
            }
        }
    }

    /// Looks what became of these.
    async fn follow_up(&self, asked: &mut [Trigger]) {
        // For as long as it takes, nodes may come and go.
        let Ok(names) = self.names_now().await else {
            return;
        };
        let revs: BTreeMap<&str, u64> = names.iter().map(|d| (d.name.as_str(), d.rev)).collect();
        let news = asked.iter().filter_map(|trigger| {
            let name = intent::trigger_document(&trigger.job, &trigger.id);
            let rev = revs.get(name.as_str())?;
            (*rev > trigger.revision()).then_some(name)
        });
        let news: Vec<String> = news.collect();
        let docs = self.locks.docs_of(&news).await.unwrap_or_default();
        for read in docs.iter().filter_map(Intent::from_doc) {
            if let Intent::Trigger(read) = read
                // Shards have one id.
                && let Some(known) = asked
                    .iter_mut()
                    .find(|known| known.id == read.id && known.job == read.job)
                && read.state > known.state
            {
                *known = read;
            }
        }
    }
}

pub(super) fn trigger_in(doc: &Doc) -> Option<Trigger> {
    match Intent::from_doc(doc)? {
        Intent::Trigger(trigger) => Some(trigger),
        _ => None,
    }
}

/// One trigger of all these shards: as far as the last of them; when all have ended, as the first that has not ended well.
fn together(whole: &Trigger, shards: Vec<Trigger>) -> Option<Trigger> {
    let well = |trigger: &Trigger| matches!(trigger.outcome.as_str(), "done" | "skipped");
    let state = shards.iter().map(|trigger| trigger.state).min()?;
    let furthest = shards.iter().filter(|trigger| trigger.state == state);
    let shown = furthest.min_by_key(|trigger| well(trigger))?;
    let bad = shards.iter().filter(|trigger| !well(trigger)).count();
    let detail = match state {
        TriggerState::Ended if bad > 0 => {
            let detail = match shown.detail.as_str() {
                "" => String::new(),
                detail => format!(": {detail}"),
            };
            format!(
                "{bad} of {} shards, first {}{detail}",
                shards.len(),
                shown.job
            )
        }
        _ => shown.detail.clone(),
    };
    Some(Trigger {
        state,
        replica: shown.replica.clone(),
        run_id: shown.run_id.clone(),
        outcome: shown.outcome.clone(),
        withdrawn_by: shown.withdrawn_by.clone(),
        detail,
        ..whole.clone()
    })
}

/// Of shards that are withdrawn together: one that has started all the same, and how many have. None where none has.
fn first_begun(whole: &Trigger, shards: &[Trigger]) -> Option<Trigger> {
    let has_begun = |trigger: &&Trigger| match trigger.state {
        TriggerState::Ended => !matches!(trigger.outcome.as_str(), "withdrawn" | "expired"),
        state => state == TriggerState::Started,
    };
    let begun: Vec<&Trigger> = shards.iter().filter(has_begun).collect();
    // What still runs comes before what has ended.
    let first = begun.iter().min_by_key(|trigger| trigger.state)?;
    let has_ended = |trigger: &Trigger| trigger.state == TriggerState::Ended;
    let others = match begun.len() < shards.len() {
        true if shards.iter().filter(|one| !has_begun(one)).all(has_ended) => {
            ", the others are withdrawn"
        }
        true => ", the others are to be withdrawn",
        false => "",
    };
    Some(Trigger {
        job: whole.job.clone(),
        detail: format!(
            "{} of {} shards have started{others}",
            begun.len(),
            shards.len()
        ),
        ..Trigger::clone(first)
    })
}

// === impl SeenShards ===

impl SeenShards {
    /// Takes what was read of a shard, unless more is known of it.
    pub(crate) fn add(&mut self, read: Trigger) {
        match self.shards.get_mut(&read.job) {
            Some(known) if known.state >= read.state => {}
            Some(known) => *known = read,
            None => drop(self.shards.insert(read.job.clone(), read)),
        }
    }

    /// What counts of them: one that had not ended when it was read last, and whose document has gone for so long, has ended since,
    /// and nothing says how.
    fn all(&self, now: Moment) -> Vec<Trigger> {
        let counts = |shard: &&Trigger| {
            let named = self.named.get(&shard.job);
            let lately = named.is_some_and(|named| now.since(*named) < intent::NEWS_LIFETIME);
            shard.state == TriggerState::Ended || lately
        };
        self.shards.values().filter(counts).cloned().collect()
    }

    /// What is known of these shards, in their order.
    #[cfg(feature = "cli")]
    pub(super) fn of(mut self, shards: &[String]) -> Vec<Trigger> {
        let known = shards.iter().filter_map(|shard| self.shards.remove(shard));
        known.collect()
    }
}

// === impl WaitingTrigger ===

impl WaitingTrigger {
    /// `enabled`: as the client's configuration says of the job; nothing where it does not know it.
    pub(crate) fn of(trigger: Trigger, fleet: &FleetStatus, enabled: Option<bool>) -> Self {
        Self {
            why: why(&trigger, fleet, enabled),
            id: trigger.id,
            job: trigger.job,
            by: trigger.by,
            asked: trigger.asked,
            state: trigger.state,
            params: trigger.given.names(),
            run_id: trigger.run_id,
        }
    }
}

/// What a trigger waits for.
fn why(trigger: &Trigger, fleet: &FleetStatus, enabled: Option<bool>) -> String {
    let runs = fleet.job(&trigger.job);
    let unled = runs.is_some_and(|job| job.coordination == "leader" && job.leader.is_none());
    let (state, by) = (trigger.state, &trigger.withdrawn_by);
    match (runs, enabled) {
        _ if state >= TriggerState::Started => {
            let replica = fleet.replica(&trigger.replica).map(|replica| &replica.name);
            format!("runs on {}", replica.unwrap_or(&trigger.replica))
        }
        _ if state == TriggerState::Withdrawing => {
            format!("withdrawn by {by}: the next leader of the job drops it")
        }
        (None, Some(false)) => "the job is disabled, and no replica runs it".to_owned(),
        (None, _) => "no replica runs the job".to_owned(),
        _ if unled => "no replica leads the job".to_owned(),
        _ if state == TriggerState::Accepted => {
            "waits until nothing else of the job runs".to_owned()
        }
        _ => "not heard of yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::status::{JobPresence, Presence};

    #[test]
    fn a_trigger_says_what_it_waits_for() {
        let trigger = |state| Trigger {
            job: "report".to_owned(),
            state,
            withdrawn_by: "ann".to_owned(),
            ..Trigger::default()
        };
        let of = |coordination: &str| {
            let runs = Presence {
                jobs: vec![JobPresence {
                    name: "report".to_owned(),
                    coordination: coordination.to_owned(),
                    ..Default::default()
                }],
                ..Presence::default()
            };
            FleetStatus::from_presences([runs], Vec::new(), Timestamp::UNIX_EPOCH)
        };
        let (nobody, asked) = (FleetStatus::default(), trigger(TriggerState::Asked));
        assert!(why(&asked, &nobody, Some(false)).contains("disabled"));
        assert_eq!(why(&asked, &nobody, None), "no replica runs the job");
        assert_eq!(why(&asked, &of("leader"), None), "no replica leads the job");
        assert_eq!(why(&asked, &of("tick"), None), "not heard of yet");
        let accepted = trigger(TriggerState::Accepted);
        assert!(why(&accepted, &of("tick"), None).contains("nothing else of the job runs"));
        let withdrawn = trigger(TriggerState::Withdrawing);
        assert!(why(&withdrawn, &nobody, None).starts_with("withdrawn by ann"));
    }
}
