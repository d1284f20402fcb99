//! Events as log lines: one per change of standing and one per run at info, lost bids at debug, trouble at warn.
//!
//! Trouble that repeats with every attempt is said when it begins and when it ends; that of one lease once a second at most,
//! with how often it was not said.

use std::collections::BTreeMap;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Seen, metrics::loss_word};
use crate::{
    clock::Clock,
    event::{Event, Events},
    lease::Loss,
    seldom::Seldom,
    spawn::Spawn,
    status::FleetStatus,
};

/// Writes events to the log.
#[derive(Debug)]
pub struct EventLog {
    clock: Clock,
    /// Resources whose last attempt found no majority.
    in_trouble: BTreeMap<String, &'static str>,
    /// Leases that could not be extended.
    unextended: Seldom,
    /// Resources that could not be acquired.
    unacquired: Seldom,
    /// Receivers of notices that did not get one.
    untold: Seldom,
}

impl Default for EventLog {
    fn default() -> Self {
        Self::timed_by(Clock::system())
    }
}

// === impl EventLog ===

impl EventLog {
    fn timed_by(clock: Clock) -> Self {
        Self {
            clock,
            in_trouble: BTreeMap::new(),
            unextended: Seldom::default(),
            unacquired: Seldom::default(),
            untold: Seldom::default(),
        }
    }

    /// Logs everything that is told from now on, until `stop`.
    pub(crate) fn follow(
        events: &Events,
        spawn: &Spawn,
        stop: CancellationToken,
    ) -> JoinHandle<()> {
        let mut log = Self::default();
        spawn.spawn(super::observe(events, stop, move |seen| match seen {
            Seen::Event(event) => log.on(&event),
            Seen::Missed(count) => warn!(count, "events missed by the log"),
        }))
    }

    /// Logs one event.
    pub fn on(&mut self, event: &Event) {
        match event {
            Event::Acquire {
                resource,
                outcome,
                took,
            } => self.attempted(resource, outcome, ms(*took)),
            Event::Renewed {
                resource,
                took,
                ok: false,
                margin,
            } => {
                if let Some(held_back) = self.unextended.say(resource, self.clock.now()) {
                    warn!(
                        resource,
                        took_ms = ms(*took),
                        margin,
                        held_back,
                        "lease not extended"
                    );
                }
            }
            Event::LeaseEnded {
                resource,
                loss,
                held,
            } => debug!(
                resource,
                reason = loss_word(loss),
                held_ms = ms(*held),
                "lease ended"
            ),
            Event::NodeUp { node, up: true, .. } => info!(node, "node answers"),
            Event::NodeUp { node, cause, .. } => warn!(node, cause, "node does not answer"),
            // The lock says it by itself, to programs without this as well.
            Event::NodeDamaged { .. } => {}
            Event::Leading {
                job,
                token,
                leaderless,
            } => info!(
                job,
                token = token.0,
                leaderless_ms = leaderless.map(ms),
                "leading"
            ),
            Event::StandingBy { job, why } => match why {
                Loss::Released | Loss::MaxTerm => {
                    info!(job, reason = loss_word(why), "standing by")
                }
                _ => warn!(
                    job,
                    reason = loss_word(why),
                    detail = why.to_string(),
                    "standing by"
                ),
            },
            Event::RunStarted {
                job,
                run_id,
                tick,
                attempt,
                token,
                delay,
            } => {
                debug!(job, run_id, %tick, attempt, token = token.0, delay_ms = ms(*delay), "run started")
            }
            Event::RunEnded {
                job,
                run_id,
                tick,
                attempt,
                outcome,
                detail,
                took,
            } => match *outcome {
                "done" | "skipped" => {
                    info!(job, run_id, %tick, attempt, outcome, detail, took_ms = ms(*took), "run ended");
                }
                _ => {
                    warn!(job, run_id, %tick, attempt, outcome, detail, took_ms = ms(*took), "run ended");
                }
            },
            Event::TicksSkipped {
                job,
                first,
                last,
                count,
                why,
            } => warn!(job, %first, %last, count, why, "ticks skipped"),
            Event::BatchClaimed { job, batch, token } => {
                debug!(job, batch, token = token.0, "batch claimed");
            }
            Event::BatchEnded {
                job,
                batch,
                outcome,
                took,
            } => debug!(job, batch, outcome, took_ms = ms(*took), "batch ended"),
            Event::Items {
                job,
                outcome,
                count,
            } => match *outcome {
                "sent" => debug!(job, outcome, count, "items"),
                _ => warn!(job, outcome, count, "items"),
            },
            Event::Fitness {
                job,
                unfit: Some(why),
            } => warn!(job, why, "unfit"),
            Event::Fitness { job, unfit: None } => info!(job, "fit again"),
            Event::Definitions { job, count: 1 } => {
                info!(job, "the replicas agree on the definition of the job again");
            }
            Event::Definitions { job, count } => warn!(
                job,
                definitions = count,
                "the replicas disagree on the definition of the job: `watchkeeper status` shows who has which"
            ),
            Event::Notice {
                notice,
                job,
                about,
                outcome: "sent",
                ..
            } => match *about {
                // One for each run.
                "ended" => debug!(notice, job, about, "notice sent"),
                _ => info!(notice, job, about, "notice sent"),
            },
            Event::Notice {
                notice,
                job,
                about,
                outcome,
                why,
            } => {
                if let Some(held_back) = self.untold.say(notice, self.clock.now()) {
                    warn!(
                        notice,
                        job, about, outcome, why, held_back, "notice not sent"
                    );
                }
            }
            Event::Draining => info!("draining: nothing new starts"),
            _ => {}
        }
    }

    fn attempted(&mut self, resource: &str, outcome: &'static str, took_ms: u64) {
        let trouble = !matches!(outcome, "acquired" | "held");
        if !trouble {
            if self.in_trouble.remove(resource).is_some() {
                info!(resource, outcome, "a majority answers again");
            }
        } else if self.in_trouble.insert(resource.to_owned(), outcome) != Some(outcome)
            && let Some(held_back) = self.unacquired.say(resource, self.clock.now())
        {
            warn!(resource, outcome, took_ms, held_back, "not acquired");
            return;
        }
        debug!(resource, outcome, took_ms, "attempt ended");
    }
}

/// Writes the state of the fleet to the log: a line per job, replica and node.
pub(crate) fn dump(fleet: &FleetStatus) {
    for job in &fleet.jobs {
        let leader = job.leader.as_ref();
        info!(
            job = job.name,
            coordination = job.coordination,
            leader = leader.map(|l| l.shown()),
            leader_known = job.leader_known,
            shards = job.shards,
            shards_led = job.shards.map(|_| job.shards_led),
            shards_failing = job.shards.map(|_| job.shards_failing),
            token = leader.map(|l| l.token.0),
            remaining_ms = leader.and_then(|l| l.remaining_ms),
            last_tick = job.last_tick.map(|t| t.to_string()),
            last_outcome = job.last_outcome,
            paused = job.paused,
            next_tick = job.next_tick.map(|t| t.to_string()),
            running = job.running.len(),
            backlog = job.backlog,
            "job"
        );
    }
    for replica in &fleet.replicas {
        info!(
            replica = replica.id,
            name = replica.name,
            role = ?replica.role,
            draining = replica.draining,
            unfit = replica.unfit,
            seen_ms_ago = replica.seen_ms_ago,
            "replica"
        );
    }
    for node in &fleet.nodes {
        info!(
            node = node.name,
            up = node.up,
            votes = node.votes,
            votes_in_ms = node.votes_in_ms,
            cause = node.cause,
            "node"
        );
    }
}

fn ms(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{sim_clock::SimTime, telemetry::paper::Paper};

    #[tokio::test(start_paused = true)]
    async fn one_lease_in_trouble_is_said_once_a_second() {
        let time = SimTime::new();
        let clock = time.clock();
        let (paper, _reading) = Paper::reading(tracing::Level::INFO);
        let mut log = EventLog::timed_by(clock.clone());
        // Twenty times a second, for ten seconds.
        for _ in 0..200 {
            clock.sleep(Duration::from_millis(50)).await;
            for resource in ["report", "mail"] {
                log.on(&Event::Renewed {
                    resource: resource.to_owned(),
                    took: Duration::from_millis(50),
                    ok: false,
                    margin: -1,
                });
            }
        }
        let text = paper.text();
        let said = |resource: &str| {
            let resource = format!("resource=\"{resource}\"");
            text.lines().filter(|line| line.contains(&resource)).count()
        };
        assert_eq!((said("report"), said("mail")), (10, 10), "{text}");
        assert!(text.contains("held_back=19"), "{text}");
    }
}
