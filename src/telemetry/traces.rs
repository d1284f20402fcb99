//! Spans on their way to a receiver of OTLP.
//!
//! They are sent from a thread of their own: neither the keeper of the leases nor a job waits for a receiver. What a receiver does not
//! take in time is counted and gone; nothing is kept on disk.
//!
//! # Invariants
//! - Y6 A receiver that does not answer holds up nothing, and what it misses is counted. (`a_receiver_that_hangs_delays_nothing`)
//! - Y7 The end of the process waits for a receiver no longer than [`LAST`]. (`the_end_waits_for_a_receiver_that_hangs_no_longer_than_it_may`)

mod fate;
#[cfg(feature = "otel")]
mod otlp;

use std::io;

use super::TelemetrySettings;
use crate::{clock::Clock, trace::Tracer};

pub(crate) use fate::DROPPED;
pub use fate::{Became, Count, LAST, Origin};

/// The traces of one process. Dropped, it sends what was told until then, for [`LAST`] at most.
#[derive(Debug)]
pub struct Traces {
    tracer: Tracer,
    #[cfg(feature = "otel")]
    sending: otlp::Sending,
}

// === impl Traces ===

impl Traces {
    /// Sends spans from now on; `None` where no receiver is configured.
    ///
    /// # Errors
    /// What is wrong with the receiver's address, or with the system; nothing is sent then.
    #[cfg(feature = "otel")]
    pub fn begin(
        settings: &TelemetrySettings,
        origin: &Origin,
        count: Count,
    ) -> io::Result<Option<Self>> {
        let Some(endpoint) = &settings.otlp_endpoint else {
            return Ok(None);
        };
        // Another service is another fleet, whatever its namespace is called.
        let fleet = format!("{} {}", settings.otlp_service, origin.namespace);
        let ratio = settings.otlp_ratio;
        let (tracer, recorded) = Tracer::new(&fleet, &origin.replica, ratio, otlp::ROOM);
        let sending = otlp::Sending::begin(endpoint, settings, origin, recorded, count)?;
        Ok(Some(Self { tracer, sending }))
    }

    /// Nothing is sent: that is not part of this build.
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "otel"))]
    pub fn begin(_: &TelemetrySettings, _: &Origin, _: Count) -> io::Result<Option<Self>> {
        Ok(None)
    }

    /// Where spans are told.
    #[must_use]
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Sends what was told until now, and no more. Returns when that is done, and after [`LAST`] in any case.
    pub async fn finish(self, clock: &Clock) {
        #[cfg(feature = "otel")]
        self.sending.finish(clock).await;
        #[cfg(not(feature = "otel"))]
        let _ = clock;
    }
}
