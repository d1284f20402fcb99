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
//! | `/login` | back to the page, for a browser that sends the token |
//! | `POST /api/v1/jobs/NAME/trigger`, `pause`, `resume`, `resign` | as the commands; 200 when it was heard, 202 when it is written
//!   and no replica has heard yet. `pause` takes `{"reason": "…"}`, `resign` takes `{"to": "…"}`, `trigger` takes `{"params": {…}}` |
//! | `POST /api/v1/triggers/ID/withdraw` | as the command; 409 when its run has started |
//!
//! # Invariants
//! - A1 What comes from outside never reaches the page as markup.          (a_hostile_name_stays_text)
//! - A2 Every answer carries the security headers, errors too.             (every_answer_carries_the_security_headers)
//! - A3 A client that is slow or silent costs one of a bounded number of connections for a bounded time, and is the
//!   first to go when they run out.                                        (silent_clients_do_not_keep_others_out)
//! - A8 A request without the right to act is refused before its body is read, and no body is larger than 16 KiB.
//!   (a_request_without_rights_is_refused_before_its_body_is_read, a_body_is_no_larger_than_16_kib)
//!
//! Who may see and ask what stands in `rights`, with A4 to A7.

use std::{io, time::Duration};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

mod commands;
mod html;
mod listener;
mod page;
mod rights;
mod routes;
mod shared;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use listener::bind;
pub(crate) use source::{Admin, AdminSource, Done, Order, OrderError};

/// How long answers under way may take when the server stops.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Serves until `shutdown`, then lets answers under way finish for a moment.
///
/// The worker shuts this down last: while it drains, `/readyz` must still say so.
///
/// # Errors
/// When the listener has no address.
pub(crate) async fn serve(
    listener: TcpListener,
    admin: Admin,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    info!(%address, "status page listens");
    let clock = admin.clock.clone();
    let listener = listener::Listener::new(listener, clock.clone());
    let connections = listener.connections();
    let router = routes::router(admin, address.ip().is_loopback());
    let service = router.into_make_service_with_connect_info::<routes::Peer>();
    let server = axum::serve(listener, service)
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
    connections.send_away();
    debug!(%address, "status page closed");
    served
}
