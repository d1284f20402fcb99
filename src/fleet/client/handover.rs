//! Handing over: one job to another replica, or everything that a replica does.

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;

use super::{
    super::{
        intent::{self, Drain, Intent, Resign},
        status::{FleetStatus, JobStanding, LeaderStatus, Presence, Role},
    },
    Fleet,
    error::FleetError,
    refusals::some,
};
use crate::node::Token;

/// How long a replica that has something to tell of itself may take to tell it.
const PRESENCE: Duration = Duration::from_secs(2);

/// What became of a resignation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResignAnswer {
    /// The job.
    pub job: String,
    /// Name of the replica that was asked to resign.
    pub from: String,
    /// Its term.
    pub token: Token,
    /// Name of the replica that leads in a later term; `null` when there is none yet.
    pub leader: Option<String>,
    /// Its term.
    pub leader_token: Option<Token>,
}

/// What became of a drain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DrainAnswer {
    /// The id of the replica.
    pub replica: String,
    /// Its name.
    pub name: String,
    /// It has said that it drains, or has gone.
    pub heard: bool,
    /// It is not heard of any more.
    pub gone: bool,
}

/// What is waited for after a drain was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The replica says that it drains.
    Heard,
    /// It has gone.
    Gone,
}

impl Fleet {
    /// Asks the job's leader to give up its term after its run, to the replica of this name or id if one is named, and waits
    /// until a replica leads in a later term, for `patience` at most.
    ///
    /// # Cancellation
    /// A dropped call may have written its intent, which then stands.
    ///
    /// # Errors
    /// On an error nothing was written, as far as this client knows; an error of the nodes ([`FleetError::TooFewNodes`],
    /// [`FleetError::Locks`]) may have left the intent on some. [`FleetError::NotPossible`] where nothing leads the job, or the
    /// named replica cannot, and for all shards of a job at once.
    pub async fn resign(
        &self,
        job: &str,
        to: Option<&str>,
        patience: Duration,
    ) -> Result<ResignAnswer, FleetError> {
        let fleet = self.led(job).await?;
        if let [first, ..] = &self.shards_of(job, &fleet)[..] {
            return Err(FleetError::NotPossible(format!(
                "{job} has a leader for each of its shards: name one of them, such as {first}, or drain a replica"
            )));
        }
        self.hand_over(job, to, patience).await
    }

    /// The same for a job of which it is not asked whether there is one.
    pub(crate) async fn hand_over(
        &self,
        job: &str,
        to: Option<&str>,
        patience: Duration,
    ) -> Result<ResignAnswer, FleetError> {
        let settle = (self.locks.clock().now() + PRESENCE).min(self.last);
        // A replica that has just started, or was just elected, has not told it yet.
        let (leader, to) = loop {
            let fleet = self.patiently(|| self.fleet_of(job)).await?;
            match successor(&fleet, &self.presences().await?, job, to) {
                Ok(found) => break found,
                Err(why) if !self.again(settle).await => return Err(FleetError::NotPossible(why)),
                Err(_) => {}
            }
        };
        let read = self.read(&intent::resign_document(job)).await?;
        let resign = Resign {
            job: job.to_owned(),
            token: leader.token,
            to,
            by: self.by.clone(),
            at: self.locks.wall(),
            between_runs: false,
        };
        self.write_after(read, &Intent::Resign(resign)).await?;
        let until = self.patience(patience);
        loop {
            // It is written: while no node can be asked, no replica is known to lead.
            let fleet = self.fleet_of(job).await.unwrap_or_default();
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

    /// Asks a replica, by its id or by the name of one that lives, to end its work, to hand over what it leads and to go:
    /// as SIGTERM does. Waits for `patience` at most.
    ///
    /// # Cancellation
    /// A dropped call may have written its intent, which then stands.
    ///
    /// # Errors
    /// On an error nothing was written, as far as this client knows; an error of the nodes ([`FleetError::TooFewNodes`],
    /// [`FleetError::Locks`]) may have left the intent on some.
    pub async fn drain(
        &self,
        replica: &str,
        until: Until,
        patience: Duration,
    ) -> Result<DrainAnswer, FleetError> {
        let end = self.patience(patience);
        let settle = (self.locks.clock().now() + PRESENCE)
            .min(end)
            .min(self.last);
        // A replica that has just started has not told it yet.
        let (id, name) = loop {
            match named(replica, &self.presences().await?) {
                Err(FleetError::UnknownReplica { .. }) if self.again(settle).await => {}
                found => break found?,
            }
        };
        let read = self.read(&intent::drain_document(&id)).await?;
        let drain = Drain {
            replica: id.clone(),
            by: self.by.clone(),
            at: self.locks.wall(),
        };
        self.write_after(read, &Intent::Drain(drain)).await?;
        loop {
            // It is written: while no node can be asked, the replica has neither said so nor gone.
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
                Until::Gone => answer.gone,
            };
            if enough || !self.again(end).await {
                return Ok(answer);
            }
        }
    }

    /// The name of a replica, by its id; the id while the name is not known.
    #[cfg(feature = "cli")]
    pub(crate) async fn name_of(&self, id: &str) -> String {
        let fleet = self.told_now().await.unwrap_or_default();
        let name = fleet.replica(id).map(|replica| replica.name.clone());
        name.unwrap_or_else(|| id.to_owned())
    }
}

/// Which leader is to hand the job over, and the id of the replica that is to get it; else why that cannot be. Pure.
fn successor(
    fleet: &FleetStatus,
    presences: &[Presence],
    job: &str,
    to: Option<&str>,
) -> Result<(LeaderStatus, Option<String>), String> {
    let Some(leader) = fleet.job(job).and_then(|job| job.leader.clone()) else {
        let known = fleet.job(job).is_none_or(|job| job.leader_known);
        return Err(match known {
            true => format!("no replica leads {job}: there is no leader to resign"),
            false => format!("it is not known who leads {job}: too few lock nodes answer"),
        });
    };
    if presences
        .iter()
        .any(|p| p.id == leader.replica && p.mode == "failover")
    {
        return Err(format!(
            "{} leads every job of a failover pair: drain it (SIGTERM) to hand all of them over",
            leader.name
        ));
    }
    let Some(to) = to else {
        return Ok((leader, None));
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
        return Err(format!(
            "no replica {to:?} runs {job}; those that do: {}",
            names.join(", ")
        ));
    };
    let name = &found.name;
    let off = |p: &Presence| {
        let mut jobs = p.jobs.iter();
        jobs.any(|j| j.name == job && j.standing == JobStanding::Off)
    };
    if found.id == leader.replica {
        Err(format!("{name} leads {job} already"))
    } else if found.draining || found.unfit.is_some() {
        Err(format!("{name} is draining or unfit: it cannot lead"))
    } else if found.role == Role::Observer {
        Err(format!(
            "{name} is no candidate (worker.candidate): it cannot lead"
        ))
    } else if off(found) {
        Err(format!("{name} is not fit for {job} now: it cannot lead"))
    } else {
        Ok((leader, Some(found.id.clone())))
    }
}

/// The id and the name of the replica that is meant by an id or a name; those that drain already are meant by ids alone
/// where another one has their name. Pure.
fn named(replica: &str, presences: &[Presence]) -> Result<(String, String), FleetError> {
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
            let known = match alive.is_empty() {
                true => "no replica is alive".to_owned(),
                false => format!("alive: {}", some(&alive)),
            };
            let replica = replica.to_owned();
            Err(FleetError::UnknownReplica { replica, known })
        }
        _ => {
            let ids: Vec<&str> = found.iter().map(|p| p.id.as_str()).collect();
            Err(FleetError::NotPossible(format!(
                "{} replicas have the name {replica:?}, or had it some seconds ago: give the id of one: {}",
                ids.len(),
                ids.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_named_by_its_id_or_by_a_name_that_one_has() {
        let presence = |id: &str, name: &str, draining: bool| Presence {
            id: id.to_owned(),
            name: name.to_owned(),
            draining,
            ..Presence::default()
        };
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
}
