//! Asks something of a fleet, and waits until somebody has heard: for the commands and for the admin server.
//!
//! # Invariants
//! - A wish is written on a majority of the nodes, or said to have failed.   (a_wish_needs_a_majority)
//! - What is written is never said to have failed, whatever happens to the store after it.
//!   (what_is_written_is_never_said_to_have_failed)
//! - A store that is busy, or out of reach, for a moment costs nobody an answer.   (a_wish_waits_for_a_store_that_is_busy)
//! # When things fail
//! What was written and not heard stays asked for: replicas that start later find it.

#[cfg(any(test, feature = "cli", feature = "admin"))]
pub(crate) mod runs;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;

use super::view as seeing;
use crate::{
    chance::Chance,
    clock::Moment,
    intent::{
        self, Drain, Given, Intent, Outstanding, Pause, Resign, TooMany, Trigger, TriggerState,
    },
    job::Spec,
    ledger::ids::sortable_id,
    lock::{LockError, Locks},
    node::{Doc, Token},
    status::{FleetStatus, LeaderStatus, PRESENCE_PREFIX, Presence, Role, Standing},
};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// How long whoever has something to tell of himself may take to tell it.
const PRESENCE: Duration = Duration::from_secs(2);

/// How long trouble of the store is waited out, each time it is asked: a file that others write to, a master that comes back.
pub(crate) const PASSING: Duration = Duration::from_millis(1_500);

/// Somebody who asks.
pub(crate) struct Asker {
    locks: Locks,
    chance: Chance,
    by: String,
    /// Nothing is tried again, and nothing written, after this.
    last: Moment,
}

/// Why nothing was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// No such job.
    #[error("there is no job {job:?}; {known}")]
    Unknown {
        /// As it was named.
        job: String,
        /// What to say instead.
        known: String,
    },
    /// No such replica.
    #[error("there is no replica {replica:?}; {known}")]
    UnknownReplica {
        /// As it was named.
        replica: String,
        /// What to say instead.
        known: String,
    },
    /// Nothing that can be asked of this job or replica.
    #[error("{0}")]
    NotPossible(String),
    /// As many are asked for as may be.
    #[error("{0}")]
    TooMany(String),
    /// Parameters that the job cannot take.
    #[error("{0}")]
    Misfit(String),
    /// Too few nodes.
    #[error("only {answered} of {nodes} lock nodes answered: do it again when a majority answers")]
    TooFew {
        /// That answered.
        answered: usize,
        /// Configured.
        nodes: usize,
    },
    /// It took so long to read what there is that nothing was written any more.
    #[error("the lock nodes took too long to answer: nothing was asked for, do it again")]
    Late,
    /// A trigger that may stand on a few nodes.
    #[error("{why}; trigger {id} may stand on some of them all the same: see `triggers` first")]
    Doubtful {
        /// The id of the trigger.
        id: String,
        /// Why it is not known.
        why: String,
    },
    /// The nodes cannot be asked.
    #[error(transparent)]
    Locks(#[from] LockError),
}

/// What became of a pause or of its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PauseAnswer {
    pub(crate) job: String,
    pub(crate) paused: bool,
    /// It was not so before.
    pub(crate) changed: bool,
    pub(crate) reason: String,
    /// Names of the replicas that have said that they know.
    pub(crate) heard_by: Vec<String>,
    /// Names of those that have not, yet.
    pub(crate) unheard_by: Vec<String>,
    /// Whether the store could be asked for them.
    #[serde(skip)]
    pub(crate) known: bool,
}

/// What became of a resignation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ResignAnswer {
    pub(crate) job: String,
    /// Name of the replica that was asked to resign.
    pub(crate) from: String,
    /// Its term.
    pub(crate) token: Token,
    /// Name of the replica that leads in a later term; `null` when nobody does, yet.
    pub(crate) leader: Option<String>,
    /// Its term.
    pub(crate) leader_token: Option<Token>,
}

/// Bytes of a reason.
const MOST_REASON: usize = 1024;

/// What became of a drain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DrainAnswer {
    /// The id of the replica.
    pub(crate) replica: String,
    pub(crate) name: String,
    /// It has said that it drains, or has gone.
    pub(crate) heard: bool,
    /// It is not heard of any more.
    pub(crate) gone: bool,
}

/// What is waited for after a drain was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// It says that it drains.
    Heard,
    /// It has gone.
    #[cfg(feature = "cli")]
    Gone,
}

impl Asker {
    pub(crate) fn new(locks: &Locks, by: String) -> Self {
        Self {
            locks: locks.clone(),
            chance: locks.chance().clone(),
            by,
            last: Moment::NEVER,
        }
    }

    /// For whoever must have an answer in time: nothing is tried again after `last`, and nothing written.
    #[cfg(any(test, feature = "admin"))]
    pub(crate) fn no_later_than(self, last: Moment) -> Self {
        Self { last, ..self }
    }

    #[cfg(feature = "cli")]
    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Pauses or resumes the job, and waits until every replica that has it says so, for `patience` at most.
    pub(crate) async fn pause(
        &self,
        job: &str,
        paused: bool,
        reason: &str,
        patience: Duration,
    ) -> Result<PauseAnswer, AskError> {
        if reason.len() > MOST_REASON {
            let length = reason.len();
            return Err(AskError::NotPossible(format!(
                "the reason is {length} bytes long, and every replica reads it again and again: {MOST_REASON} at most"
            )));
        }
        let read = self.read(&intent::pause_document(job)).await?;
        let last = read.as_ref().and_then(|doc| match Intent::from_doc(doc)? {
            Intent::Pause(pause) => Some(pause),
            _ => None,
        });
        let was_paused = last.as_ref().is_some_and(|pause| pause.paused);
        let mut reason = reason.to_owned();
        let changed = was_paused != paused;
        if !changed && reason.is_empty() {
            reason = last.map(|pause| pause.reason).unwrap_or_default();
        } else if changed || paused {
            let chance = u16::try_from(self.chance.below(1 << 16)).unwrap_or(0);
            let pause = Pause {
                job: job.to_owned(),
                paused,
                reason: reason.clone(),
                by: self.by.clone(),
                at: self.locks.wall(),
            };
            let rev = intent::next_revision(read.map(|doc| doc.rev), chance);
            self.write(rev, &Intent::Pause(pause)).await?;
        }
        let mut answer = PauseAnswer {
            job: job.to_owned(),
            paused,
            changed,
            reason,
            heard_by: Vec::new(),
            unheard_by: Vec::new(),
            known: false,
        };
        let until = self.locks.clock().now() + patience;
        loop {
            // It is written: whoever cannot be asked has not been heard of, and that is all.
            let Ok(presences) = self.presences_now().await else {
                match self.again(until).await {
                    true => continue,
                    false => return Ok(answer),
                }
            };
            answer.known = true;
            let names = |of: bool| {
                let words = presences
                    .iter()
                    .flat_map(|p| p.jobs.iter().map(move |j| (p, j)));
                let said = words.filter(|(_, j)| j.name == job && (j.paused == paused) == of);
                said.map(|(p, _)| p.name.clone()).collect::<BTreeSet<_>>()
            };
            answer.heard_by = names(true).into_iter().collect();
            answer.unheard_by = names(false).into_iter().collect();
            if answer.unheard_by.is_empty() || !self.again(until).await {
                return Ok(answer);
            }
        }
    }

    /// Asks for one run of the job.
    #[cfg(test)]
    pub(crate) async fn trigger(&self, job: &str) -> Result<Trigger, AskError> {
        self.trigger_with(job, Given::default()).await
    }

    /// Asks for one run of the job, with these parameters laid over its own, if not too many are asked for already.
    pub(crate) async fn trigger_with(&self, job: &str, given: Given) -> Result<Trigger, AskError> {
        let read = self.names().await?;
        let names = read.iter().map(|doc| (doc.name.as_str(), doc.rev));
        Outstanding::of(names)
            .room(job)
            .map_err(|many| AskError::TooMany(too_many(job, &many)))?;
        let trigger = Trigger {
            job: job.to_owned(),
            id: sortable_id(self.locks.wall(), &self.chance),
            by: self.by.clone(),
            given,
            asked: self.locks.wall(),
            state: TriggerState::Asked,
            ..Trigger::default()
        };
        let rev = trigger.revision();
        let written = self.write(rev, &Intent::Trigger(trigger.clone())).await;
        written.map_err(|error| match error.passes() {
            true => AskError::Doubtful {
                id: trigger.id.clone(),
                why: error.to_string(),
            },
            false => error,
        })?;
        Ok(trigger)
    }

    /// Waits until the trigger has come so far, for `patience` at most; answers with what is known then.
    pub(crate) async fn until(
        &self,
        trigger: Trigger,
        state: TriggerState,
        patience: Duration,
    ) -> Result<Trigger, AskError> {
        let until = self.locks.clock().now() + patience;
        let name = intent::trigger_document(&trigger.job, &trigger.id);
        let mut known = trigger;
        loop {
            // For as long as it takes, nodes may come and go.
            if let Ok(Some(doc)) = self.locks.doc(&name).await
                && let Some(Intent::Trigger(read)) = Intent::from_doc(&doc)
                && read.state > known.state
            {
                known = read;
            }
            if known.state >= state || !self.again(until).await {
                return Ok(known);
            }
        }
    }

    /// The triggers that are not done with, of one job or of all, in the order in which they were asked for.
    pub(crate) async fn outstanding(&self, job: Option<&str>) -> Result<Vec<Trigger>, AskError> {
        let names = self.names().await?;
        let open = names.into_iter().filter(|doc| {
            let of = intent::trigger_of(&doc.name).map(|(of, _)| of);
            of.is_some_and(|of| job.is_none_or(|job| job == of))
                && doc.rev < TriggerState::Ended as u64
        });
        let open: Vec<String> = open.map(|doc| doc.name).collect();
        let docs = self.docs_of(&open).await?;
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

    /// Wishes that these do not start, and waits until each has ended or is known to have started, for `patience` at most;
    /// answers with what is known then. Whether one has started the ledger of its job knows: a leader that has written a
    /// start there says so whatever is wished, and one that has not drops the trigger, as does every later one.
    pub(crate) async fn withdraw(
        &self,
        triggers: Vec<Trigger>,
        patience: Duration,
    ) -> Result<Vec<Trigger>, AskError> {
        let mut asked: Vec<Trigger> = triggers;
        for trigger in asked.iter_mut().filter(|t| t.state < TriggerState::Started) {
            if trigger.state < TriggerState::Withdrawing {
                trigger.state = TriggerState::Withdrawing;
                trigger.withdrawn_by.clone_from(&self.by);
            }
            let rev = trigger.revision();
            self.write(rev, &Intent::Trigger(trigger.clone())).await?;
        }
        let until = self.locks.clock().now() + patience;
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
                && let Some(known) = asked.iter_mut().find(|known| known.id == read.id)
                && read.state > known.state
            {
                *known = read;
            }
        }
    }

    /// Asks the job's leader to give up its term, and waits until somebody leads in a later one, for `patience` at most.
    pub(crate) async fn resign(
        &self,
        job: &str,
        to: Option<&str>,
        patience: Duration,
    ) -> Result<ResignAnswer, AskError> {
        let clock = self.locks.clock();
        let settle = (clock.now() + PRESENCE).min(self.last);
        // Whoever has just started, or just been elected, has not told it yet.
        let (leader, to) = loop {
            match self.hand_over(job, to).await? {
                Ok(found) => break found,
                Err(why) if !self.again(settle).await => return Err(AskError::NotPossible(why)),
                Err(_) => {}
            }
        };
        let read = self.read(&intent::resign_document(job)).await?;
        let chance = u16::try_from(self.chance.below(1 << 16)).unwrap_or(0);
        let rev = intent::next_revision(read.map(|doc| doc.rev), chance);
        let resign = Resign {
            job: job.to_owned(),
            token: leader.token,
            to,
            by: self.by.clone(),
            at: self.locks.wall(),
            between_runs: false,
        };
        self.write(rev, &Intent::Resign(resign)).await?;
        let until = clock.now() + patience;
        loop {
            // It is written: while nobody can be asked, nobody is known to lead.
            let fleet = seeing::fleet_of(&self.locks, job).await.unwrap_or_default();
            let next = fleet.job(job).and_then(|job| job.leader.clone());
            // Its lock names it before it tells of itself.
            let next = next.filter(|next| next.token > leader.token && !next.replica.is_empty());
            if next.is_some() || !self.again(until).await {
                return Ok(ResignAnswer {
                    job: job.to_owned(),
                    from: leader.name,
                    token: leader.token,
                    leader_token: next.as_ref().map(|next| next.token),
                    leader: next.map(|next| next.name),
                });
            }
        }
    }

    /// Asks a replica, by its id or by the name of one that lives, to drain; waits for `patience` at most.
    pub(crate) async fn drain(
        &self,
        replica: &str,
        until: Until,
        patience: Duration,
    ) -> Result<DrainAnswer, AskError> {
        let clock = self.locks.clock();
        let end = clock.now() + patience;
        let settle = (clock.now() + PRESENCE).min(end).min(self.last);
        // Whoever has just started has not told it yet.
        let (id, name) = loop {
            match named(replica, &self.presences().await?) {
                Err(AskError::UnknownReplica { .. }) if self.again(settle).await => {}
                found => break found?,
            }
        };
        let read = self.read(&intent::drain_document(&id)).await?;
        let chance = u16::try_from(self.chance.below(1 << 16)).unwrap_or(0);
        let rev = intent::next_revision(read.map(|doc| doc.rev), chance);
        let drain = Drain {
            replica: id.clone(),
            by: self.by.clone(),
            at: self.locks.wall(),
        };
        self.write(rev, &Intent::Drain(drain)).await?;
        loop {
            // It is written: while nobody can be asked, it has neither said so nor gone.
            let presences = self.presences_now().await.ok();
            let found = presences
                .as_ref()
                .map(|all| all.iter().find(|p| p.id == id));
            let answer = DrainAnswer {
                replica: id.clone(),
                name: name.clone(),
                heard: found.is_some_and(|found| found.is_none_or(|p| p.draining)),
                gone: found.is_some_and(|found| found.is_none()),
            };
            let enough = match until {
                Until::Heard => answer.heard,
                #[cfg(feature = "cli")]
                Until::Gone => answer.gone,
            };
            if enough || !self.again(end).await {
                return Ok(answer);
            }
        }
    }

    /// Who is to hand the job over, and the id of whoever is to get it; else why that cannot be.
    async fn hand_over(
        &self,
        job: &str,
        to: Option<&str>,
    ) -> Result<Result<(LeaderStatus, Option<String>), String>, AskError> {
        let fleet = self.fleet_of(job).await?;
        let presences = self.presences().await?;
        let Some(leader) = fleet.job(job).and_then(|job| job.leader.clone()) else {
            let known = fleet.job(job).is_none_or(|job| job.leader_known);
            return Ok(Err(match known {
                true => format!("nobody leads {job}: there is nobody to resign"),
                false => format!("it is not known who leads {job}: too few lock nodes answer"),
            }));
        };
        if presences
            .iter()
            .any(|p| p.id == leader.replica && p.mode == "failover")
        {
            return Ok(Err(format!(
                "{} leads every job of a failover pair: drain it (SIGTERM) to hand all of them over",
                leader.name
            )));
        }
        let Some(to) = to else {
            return Ok(Ok((leader, None)));
        };
        let runs = |p: &&Presence| p.jobs.iter().any(|j| j.name == job);
        let mut named = presences.iter().filter(runs);
        let Some(found) = named.find(|p| p.id == to || p.name == to) else {
            let names: BTreeSet<&str> = presences
                .iter()
                .filter(runs)
                .map(|p| p.name.as_str())
                .collect();
            let names: Vec<&str> = names.into_iter().collect();
            return Ok(Err(format!(
                "no replica {to:?} runs {job}; those that do: {}",
                names.join(", ")
            )));
        };
        Ok(if found.id == leader.replica {
            Err(format!("{} leads {job} already", found.name))
        } else if found.draining || found.unfit.is_some() {
            Err(format!(
                "{} is draining or unfit: it cannot lead",
                found.name
            ))
        } else if found.role == Role::Observer {
            Err(format!(
                "{} is no candidate (worker.candidate): it cannot lead",
                found.name
            ))
        } else if found
            .jobs
            .iter()
            .any(|j| j.name == job && j.standing == Standing::Off)
        {
            Err(format!(
                "{} is not fit for {job} now: it cannot lead",
                found.name
            ))
        } else {
            Ok((leader, Some(found.id.clone())))
        })
    }

    /// The name of a replica, by its id.
    #[cfg(feature = "cli")]
    pub(crate) async fn name_of(&self, id: &str) -> String {
        let fleet = seeing::told(&self.locks).await.unwrap_or_default();
        let name = fleet.replica(id).map(|replica| replica.name.clone());
        name.unwrap_or_else(|| id.to_owned())
    }

    /// Whether there is time for another look.
    async fn again(&self, until: Moment) -> bool {
        let clock = self.locks.clock();
        clock.sleep(LOOK).await;
        clock.now() < until
    }

    /// The newest revision, of a majority of nodes.
    async fn read(&self, name: &str) -> Result<Option<Doc>, AskError> {
        let until = self.patience();
        loop {
            match self.read_now(name).await {
                Err(error) if error.passes() && self.again(until).await => {}
                found => return found,
            }
        }
    }

    async fn read_now(&self, name: &str) -> Result<Option<Doc>, AskError> {
        let read = self.locks.read_doc(name).await?;
        self.enough(read.answered).await?;
        Ok(read.docs.into_iter().next().map(|(doc, _)| doc))
    }

    /// Names and revisions of what is asked of the fleet, of a majority of nodes.
    async fn names(&self) -> Result<Vec<Doc>, AskError> {
        let until = self.patience();
        loop {
            match self.names_now().await {
                Err(error) if error.passes() && self.again(until).await => {}
                found => return found,
            }
        }
    }

    async fn names_now(&self) -> Result<Vec<Doc>, AskError> {
        let read = self.locks.all_doc_names(intent::DIRECTORY).await?;
        self.enough(read.answered).await?;
        Ok(read.docs.into_iter().map(|(doc, _)| doc).collect())
    }

    /// The documents of these names, as far as they live.
    async fn docs_of(&self, names: &[String]) -> Result<Vec<Doc>, AskError> {
        let until = self.patience();
        loop {
            match self.locks.docs_of(names).await {
                Err(error) if error.passes() && self.again(until).await => {}
                found => return Ok(found?),
            }
        }
    }

    /// What stands on a few nodes after an attempt is the same when it is written again.
    async fn write(&self, rev: u64, intent: &Intent) -> Result<(), AskError> {
        if self.locks.clock().now() >= self.last {
            return Err(AskError::Late);
        }
        let until = self.patience();
        loop {
            match self.write_now(rev, intent).await {
                Err(error) if error.passes() && self.again(until).await => {}
                written => return written,
            }
        }
    }

    async fn write_now(&self, rev: u64, intent: &Intent) -> Result<(), AskError> {
        let Doc { name, rev, body } = intent.to_doc(rev);
        let left = intent.remaining(self.locks.wall()).unwrap_or_default();
        let answered = self.locks.spread_doc(&name, rev, left, body).await?;
        self.enough(answered).await
    }

    async fn enough(&self, answered: usize) -> Result<(), AskError> {
        let nodes = self.locks.nodes().await?.len();
        match answered > nodes / 2 {
            true => Ok(()),
            false => Err(AskError::TooFew { answered, nodes }),
        }
    }

    /// The fleet, as its documents tell of it.
    pub(crate) async fn fleet(&self) -> Result<FleetStatus, AskError> {
        let until = self.patience();
        loop {
            match seeing::told(&self.locks).await {
                Err(error) if error.passes() && self.again(until).await => {}
                found => return Ok(found?),
            }
        }
    }

    /// The same, and who leads this job.
    async fn fleet_of(&self, job: &str) -> Result<FleetStatus, AskError> {
        let until = self.patience();
        loop {
            match seeing::fleet_of(&self.locks, job).await {
                Err(error) if error.passes() && self.again(until).await => {}
                found => return Ok(found?),
            }
        }
    }

    async fn presences(&self) -> Result<Vec<Presence>, AskError> {
        let until = self.patience();
        loop {
            match self.presences_now().await {
                Err(error) if error.passes() && self.again(until).await => {}
                found => return found,
            }
        }
    }

    async fn presences_now(&self) -> Result<Vec<Presence>, AskError> {
        let docs = self.locks.docs(PRESENCE_PREFIX).await?;
        Ok(Presence::from_docs(&docs))
    }

    fn patience(&self) -> Moment {
        (self.locks.clock().now() + PASSING).min(self.last)
    }
}

impl AskError {
    /// Whether the same question may be answered a moment later.
    fn passes(&self) -> bool {
        match self {
            Self::TooFew { .. } => true,
            Self::Locks(error) => error.passes(),
            _ => false,
        }
    }
}

/// The id and the name of the replica that is meant by an id or a name; those that drain already are meant by ids alone
/// where another one has their name.
fn named(replica: &str, presences: &[Presence]) -> Result<(String, String), AskError> {
    let mut found: Vec<&Presence> = presences.iter().filter(|p| p.id == replica).collect();
    if found.is_empty() {
        found = presences.iter().filter(|p| p.name == replica).collect();
    }
    if found.iter().any(|p| !p.draining) {
        found.retain(|p| !p.draining);
    }
    match found[..] {
        [one] => Ok((one.id.clone(), one.name.clone())),
        [] => {
            let alive: BTreeSet<&str> = presences.iter().map(|p| p.name.as_str()).collect();
            let alive: Vec<&str> = alive.into_iter().collect();
            let known = match alive.is_empty() {
                true => "no replica is alive".to_owned(),
                false => format!("alive: {}", alive.join(", ")),
            };
            let replica = replica.to_owned();
            Err(AskError::UnknownReplica { replica, known })
        }
        _ => {
            let ids: Vec<&str> = found.iter().map(|p| p.id.as_str()).collect();
            Err(AskError::NotPossible(format!(
                "{} replicas have the name {replica:?}, or had it some seconds ago: give the id of one: {}",
                ids.len(),
                ids.join(", ")
            )))
        }
    }
}

/// Refuses a job that neither the fleet nor the asker's configuration knows; it is most likely a misspelt one.
pub(crate) fn refuse_unknown<'a>(
    job: &str,
    fleet: &'a FleetStatus,
    configured: impl IntoIterator<Item = &'a String>,
) -> Result<(), AskError> {
    let running = fleet.jobs.iter().map(|job| &job.name);
    let known: BTreeSet<&String> = running.chain(configured).collect();
    if known.iter().any(|name| *name == job) {
        return Ok(());
    }
    let known: Vec<&str> = known.into_iter().map(String::as_str).collect();
    let known = match known.is_empty() {
        true => "no job is configured, and no replica runs one".to_owned(),
        false => format!("known jobs: {}", known.join(", ")),
    };
    Err(AskError::Unknown {
        job: job.to_owned(),
        known,
    })
}

/// Refuses a run of a job that is disabled where it was asked for, and that no replica runs.
pub(crate) fn refuse_disabled(
    job: &str,
    fleet: &FleetStatus,
    spec: Option<&Spec>,
) -> Result<(), AskError> {
    if spec.is_none_or(|spec| spec.enabled) || fleet.job(job).is_some() {
        return Ok(());
    }
    Err(AskError::NotPossible(format!(
        "{job} is disabled (jobs.{job}.enabled = false) and no replica runs it: enable it first"
    )))
}

fn too_many(job: &str, many: &TooMany) -> String {
    match many {
        TooMany::OfJob(count) => format!(
            "{job} has {count} outstanding triggers, and no more are taken: wait, or withdraw some: \
             `watchkeeper triggers withdraw ID`, or all with `watchkeeper triggers withdraw {job} --all`"
        ),
        TooMany::OfFleet(count) => format!(
            "the fleet has {count} outstanding triggers, and no more are taken: wait, or withdraw some: \
             `watchkeeper triggers` lists them, `watchkeeper triggers withdraw ID` withdraws one"
        ),
    }
}

/// A trigger that is not done with, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct WaitingTrigger {
    pub(crate) id: String,
    pub(crate) job: String,
    pub(crate) by: String,
    pub(crate) asked: Timestamp,
    pub(crate) state: TriggerState,
    /// What it waits for, or where it runs.
    pub(crate) why: String,
    /// Names of its parameters.
    pub(crate) params: Vec<String>,
    /// The id of its run; empty before it has started.
    pub(crate) run_id: String,
}

impl WaitingTrigger {
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

/// What a trigger waits for. `enabled`: as the asker's configuration says of its job; nothing where it does not know it.
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
            format!("withdrawn by {by}: whoever leads the job next drops it")
        }
        (None, Some(false)) => "the job is disabled, and no replica runs it".to_owned(),
        (None, _) => "no replica runs the job".to_owned(),
        _ if unled => "nobody leads the job".to_owned(),
        _ if state == TriggerState::Accepted => {
            "waits until nothing else of the job runs".to_owned()
        }
        _ => "not heard of yet".to_owned(),
    }
}

/// Refuses a run of its own, or a leader, for a job that has neither.
pub(crate) fn refuse_unled(job: &str, coordination: &str) -> Result<(), AskError> {
    let why = match coordination {
        "batch" => "works in batches on every replica: what is pending is done without being asked",
        "everywhere" => "runs on every replica: nobody leads it",
        _ => return Ok(()),
    };
    Err(AskError::NotPossible(format!("{job} {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presence(id: &str, name: &str, draining: bool) -> Presence {
        Presence {
            id: id.to_owned(),
            name: name.to_owned(),
            draining,
            ..Presence::default()
        }
    }

    #[test]
    fn a_replica_is_named_by_its_id_or_by_a_name_that_one_has() {
        let fleet = [
            presence("h-1-x", "w0", false),
            presence("h-2-y", "w1", false),
            presence("h-3-z", "w1", true),
        ];
        assert_eq!(named("w0", &fleet).unwrap().0, "h-1-x");
        assert_eq!(named("h-3-z", &fleet).unwrap().0, "h-3-z");
        assert_eq!(
            named("w1", &fleet).unwrap().0,
            "h-2-y",
            "the other one goes"
        );
        let error = named("w2", &fleet).unwrap_err().to_string();
        assert_eq!(error, "there is no replica \"w2\"; alive: w0, w1");
        let twins = [fleet[1].clone(), presence("h-4-u", "w1", false)];
        let error = named("w1", &twins).unwrap_err().to_string();
        assert!(error.contains("h-2-y, h-4-u"), "{error}");
        let error = named("w0", &[]).unwrap_err().to_string();
        assert!(error.contains("no replica is alive"), "{error}");
    }

    #[test]
    fn a_run_of_a_disabled_job_that_nobody_runs_is_refused() {
        let disabled = Spec::every(Duration::from_secs(60)).enabled(false);
        let nobody = FleetStatus::default();
        let why = refuse_disabled("report", &nobody, Some(&disabled)).unwrap_err();
        assert!(
            why.to_string().contains("jobs.report.enabled = false"),
            "{why}"
        );
        // Others may have another configuration.
        let runs = Presence {
            jobs: vec![crate::fleet::status::JobPresence {
                name: "report".to_owned(),
                ..Default::default()
            }],
            ..presence("h-1-x", "w0", false)
        };
        let fleet = FleetStatus::from_presences([runs], Vec::new(), Timestamp::UNIX_EPOCH);
        assert!(refuse_disabled("report", &fleet, Some(&disabled)).is_ok());
        let enabled = Spec::every(Duration::from_secs(60));
        assert!(refuse_disabled("report", &nobody, Some(&enabled)).is_ok());
    }

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
                jobs: vec![crate::fleet::status::JobPresence {
                    name: "report".to_owned(),
                    coordination: coordination.to_owned(),
                    ..Default::default()
                }],
                ..presence("h-1-x", "w0", false)
            };
            FleetStatus::from_presences([runs], Vec::new(), Timestamp::UNIX_EPOCH)
        };
        let (nobody, asked) = (FleetStatus::default(), trigger(TriggerState::Asked));
        assert!(why(&asked, &nobody, Some(false)).contains("disabled"));
        assert_eq!(why(&asked, &nobody, None), "no replica runs the job");
        assert_eq!(why(&asked, &of("leader"), None), "nobody leads the job");
        assert_eq!(why(&asked, &of("tick"), None), "not heard of yet");
        let accepted = trigger(TriggerState::Accepted);
        assert!(why(&accepted, &of("tick"), None).contains("nothing else of the job runs"));
        let withdrawn = trigger(TriggerState::Withdrawing);
        assert!(why(&withdrawn, &nobody, None).starts_with("withdrawn by ann"));
    }
}
