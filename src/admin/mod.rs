//! Health, metrics and the state of the fleet over HTTP, for probes, scrapers and people, and what they ask of its jobs.
//!
//! | path | answer |
//! | --- | --- |
//! | `/livez` | 200 while the process turns; never asks a store |
//! | `/readyz` | 200 while this replica is able to do its part; a standby is ready |
//! | `/leaderz?job=NAME` | 200 on the leader of that job (without `job`: of any), else 503; 404 for an unknown job |
//! | `/metrics` | OpenMetrics or Prometheus text, as the client accepts |
//! | `/api/v1/…` | the API: lists, orders, events; `/api/v1/openapi.json` describes it, and `api` has the table of it |
//! | `/`, `/jobs/NAME`, `/runs`, `/batches`, `/replicas`, `/nodes`, `/locks`, `/audit` | pages, complete without a script |
//! | `/orders/ORDER` | a form for an order, and what becomes of it |
//! | `/events` | what changes on a page, for its script |
//! | `/login` | back to the page, for a browser that sends the token |
//!
//! # Invariants
//! - A1 What comes from outside never reaches the page as markup.          (a_hostile_name_stays_text)
//! - A2 Every answer carries the security headers, errors too.             (every_answer_carries_the_security_headers)
//! - A3 A client that is slow or silent costs one of a bounded number of connections for a bounded time, and is the
//!   first to go when they run out; a stream goes last.
//!   (silent_clients_do_not_keep_others_out, silent_clients_end_no_stream)
//! - A8 A request without the right to act is refused before its body is read, and no body is larger than 16 KiB.
//!   (a_request_without_rights_is_refused_before_its_body_is_read, a_body_is_no_larger_than_16_kib)
//!
//! Who may see and ask what stands in `rights`, with A4 to A7; what is refused in `problem`, and what is followed in
//! `stream`. Pages are made in `page`; how they are kept up to date stands in `live`, what they read of the store in `readings`, and
//! what makes a form ours in `seal`.

use std::{io, time::Duration};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::telemetry::observe;

mod api;
mod ask;
mod assets;
mod backlogs;
mod event_documents;
mod html;
mod latest;
mod listener;
mod live;
mod openapi;
mod orders;
mod page;
mod parameter;
mod pattern;
mod problem;
mod readings;
mod rights;
mod round_trips;
mod route;
mod routes;
mod schema;
mod scrapes;
mod seal;
mod shared;
mod shared_reading;
mod snapshot;
mod source;
mod stream;
mod tag;
#[cfg(test)]
mod tests;
mod views;
mod withhold;

pub(crate) use listener::bind;
pub(crate) use source::{Admin, AdminSource, Asked, Done, Order, OrderError, RecentAsked, What};

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
    let shared = routes::shared(admin.clone(), address.ip().is_loopback());
    let listener = listener::Listener::new(listener, clock.clone());
    let connections = listener.connections();
    let seen = observe(&admin.events, shutdown.clone(), {
        let (ring, source) = (shared.events.clone(), admin.source.clone());
        move |seen| event_documents::tell(&ring, seen, source.wall())
    });
    let ring = shared.events.clone();
    // Whoever follows is let go when nothing more is told: a stream does not keep the server from its end.
    let telling = async {
        seen.await;
        ring.close();
        std::future::pending::<io::Result<()>>().await
    };
    let router = routes::router(shared);
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
        never = telling => never,
    };
    connections.send_away();
    debug!(%address, "status page closed");
    served
}
