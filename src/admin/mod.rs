//! Health, metrics and the state of the fleet over HTTP, for probes, scrapers and people, and what they ask of its jobs.
//!
//! | path | answer |
//! | --- | --- |
//! | `/livez` | 200 while the process turns; never asks a store |
//! | `/readyz` | 200 while this replica is able to do its part; a standby is ready |
//! | `/leaderz?job=NAME` | 200 on the leader of that job (without `job`: of any), else 503; 404 for an unknown job |
//! | `/metrics` | OpenMetrics or Prometheus text, as the client accepts |
//! | `/api/v1/fleet`, `jobs`, `nodes`, `locks` | JSON, as in [`crate::fleet::status`]; who leads as the jobs' locks say, unknown where too few nodes answer |
//! | `/api/v1/runs?job=NAME` | the last runs of a job as in [`crate::fleet::history`], newest last; `&limit=N` for another number than 20; 404 for an unknown job |
//! | `/api/v1/triggers` | the triggers that are not done with, and what they wait for; `?job=NAME` for one job |
//! | `/` | the status page |
//! | `/login` | back to the page, for those who say the token |
//! | `POST /api/v1/jobs/NAME/trigger`, `pause`, `resume`, `resign` | as the commands; 200 when it was heard, 202 when it is written
//!   and nobody has heard yet. `pause` takes `{"reason": "…"}`, `resign` takes `{"to": "…"}`, `trigger` takes `{"params": {…}}` |
//! | `POST /api/v1/triggers/ID/withdraw` | as the command; 409 when its run has started |
//!
//! # Invariants
//! - A1 What comes from outside never reaches the page as markup.          (a_hostile_name_stays_text)
//! - A2 Every answer carries the security headers, errors too.             (every_answer_carries_the_security_headers)
//! - A3 A client that is slow or silent costs one of a bounded number of connections for a bounded time, and is the
//!   first to go when they run out.                                        (silent_clients_do_not_keep_others_out)
//! - A8 A request without the right to act is refused before its body is read, and nobody's body is larger than 16 KiB.
//!   (a_request_without_rights_is_refused_before_its_body_is_read, a_body_is_no_larger_than_16_kib)
//!
//! Who may see and ask what stands in `rights`, with A4 to A7.

use std::{fmt, io, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::{
    clock::Clock,
    intent::TriggerParams,
    network::Network,
    secret::Secret,
    status::{FleetStatus, LockStatus, RunRecord},
    telemetry::metrics::Metrics,
};

mod door;
mod html;
mod orders;
mod page;
mod rights;
mod routes;
#[cfg(test)]
mod tests;

pub use door::{DEFAULT_LISTEN, bind};

/// Where the answers come from: the worker.
#[async_trait]
pub trait AdminSource: Send + Sync + 'static {
    /// The id of this replica.
    fn replica(&self) -> String;

    /// What time it is for the fleet: what the others answer here is dated by it. Must not wait.
    fn wall(&self) -> Timestamp;

    /// The fleet, as far as it can be seen now; at least this replica.
    async fn fleet(&self) -> FleetStatus;

    /// Every lock.
    ///
    /// # Errors
    /// Why they cannot be listed now.
    async fn locks(&self) -> Result<Vec<LockStatus>, String>;

    /// The last `limit` runs of `job`, newest last; `None` when nobody knows the job.
    ///
    /// # Errors
    /// Why they cannot be read now.
    async fn runs(&self, job: &str, limit: usize) -> Result<Option<Vec<RunRecord>>, String>;

    /// Whether the process turns: the heartbeats of the runtime and of the keeper are fresh. Must not wait.
    ///
    /// # Errors
    /// What stands still.
    fn live(&self) -> Result<(), String>;

    /// Whether this replica is able to do its part: not draining, fit, and a store was reached once. Must not wait.
    ///
    /// # Errors
    /// What is in the way: `NAME: WHY`, of which the name is shown to everybody, or a sentence for everybody.
    fn ready(&self) -> Result<(), String>;

    /// Whether this replica leads `job` now; `None` when it does not know the job. Must not wait.
    fn leads(&self, job: &str) -> Option<bool>;

    /// Whether this replica leads anything now. Must not wait.
    fn leads_any(&self) -> bool;

    /// Asks something of `job`.
    ///
    /// # Errors
    /// [`OrderError`]; nothing is known to have been written then.
    async fn order(&self, job: &str, order: Order) -> Result<Done, OrderError>;

    /// The triggers that are not done with, of one job or of all.
    ///
    /// # Errors
    /// Why they cannot be read now.
    async fn triggers(&self, job: Option<&str>) -> Result<serde_json::Value, String>;

    /// Wishes that a trigger does not start.
    ///
    /// # Errors
    /// [`OrderError`]; [`OrderError::NotPossible`] when it has started.
    async fn withdraw(&self, id: &str) -> Result<Done, OrderError>;

    /// Asks a replica, by id or name, to drain.
    ///
    /// # Errors
    /// [`OrderError`]; nothing is known to have been written then.
    async fn drain(&self, replica: &str) -> Result<Done, OrderError>;
}

/// What is asked of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Start nothing of it.
    Pause {
        /// Why; may be empty.
        reason: String,
    },
    /// End the pause.
    Resume,
    /// Run once, now.
    Trigger {
        /// Parameters that are laid over the job's own.
        given: TriggerParams,
    },
    /// Its leader hands it over.
    Resign {
        /// The name or id of the replica that is to lead next.
        to: Option<String>,
    },
}

/// It is written on a majority of the lock nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// What is known of it, as the commands print it with `--json`.
    pub answer: serde_json::Value,
    /// Whether those whom it concerns have heard of it.
    pub heard: bool,
}

/// Why something was not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// Nobody knows the job or the replica.
    Unknown(String),
    /// This cannot be asked of it.
    NotPossible(String),
    /// The job cannot take these parameters.
    Misfit(String),
    /// As many are asked for as may be.
    TooMany(String),
    /// The lock nodes do not answer.
    Unavailable(String),
}

/// What the server serves.
#[derive(Clone)]
pub struct Admin {
    /// The worker.
    pub source: Arc<dyn AdminSource>,
    /// Its metrics.
    pub metrics: Metrics,
    /// Its clock.
    pub clock: Clock,
    /// What a request must say that changes something or shows outputs; without it nobody can.
    pub token: Option<Secret>,
    /// Names, besides addresses and `localhost`, under which it may be asked.
    pub hosts: Vec<String>,
    /// Proxies whose word on where a request comes from is believed.
    pub proxies: Vec<Network>,
    /// Nothing can be changed here.
    pub read_only: bool,
}

/// How long answers under way may take when the server stops.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Serves until `shutdown`, then lets answers under way finish for a moment.
///
/// The worker shuts this down last: while it drains, `/readyz` must still say so.
///
/// # Errors
/// When the listener has no address.
pub async fn serve(
    listener: TcpListener,
    admin: Admin,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    info!(%address, "status page listens");
    let clock = admin.clock.clone();
    let door = door::Door::new(listener, clock.clone());
    let guests = door.guests();
    let router = routes::router(admin, address.ip().is_loopback());
    let service = router.into_make_service_with_connect_info::<routes::Peer>();
    let server = axum::serve(door, service)
        .with_graceful_shutdown(shutdown.clone().cancelled_owned())
        .into_future();
    let limit = async {
        shutdown.cancelled().await;
        clock.sleep(LAST_ANSWERS).await;
    };
    let served = tokio::select! {
        biased;
        served = server => served,
        () = limit => Ok(()),
    };
    guests.send_away();
    debug!(%address, "status page closed");
    served
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admin")
    }
}
