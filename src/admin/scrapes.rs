//! The metrics as text, rendered once for all who ask within a moment.
//!
//! `/metrics` is open to all, and thousands of jobs make megabytes of text. So it is rendered by a thread for such work, and one copy
//! of it serves every client, however slowly that reads.
//!
//! # Invariants
//! - W10 One text of metrics is rendered at a time, and all who ask within a moment share it; none is older than that when it is
//!   given.   (one_rendering_serves_all_who_scrape, answers_that_are_not_read_share_one_text)

use std::{future::pending, panic::resume_unwind, sync::Arc, time::Duration};

use axum::body::Bytes;
use futures_util::FutureExt;
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::shared_reading::{Reader, SharedReading};
use crate::{
    clock::{Clock, Moment},
    spawn::Spawn,
    telemetry::metrics::{Exposition, Metrics},
};

/// For so long a text serves.
const SERVES: Duration = Duration::from_millis(900);

/// What was rendered last, in each format.
pub(super) struct Scrapes {
    metrics: Metrics,
    reader: Reader,
    open_metrics: SharedReading<Rendered>,
    prometheus: SharedReading<Rendered>,
}

struct Rendered {
    text: Bytes,
    at: Moment,
}

// === impl Scrapes ===

impl Scrapes {
    pub(super) fn new(metrics: Metrics, clock: Clock, spawn: Spawn) -> Self {
        Self {
            metrics,
            reader: Reader {
                clock,
                spawn,
                // Both formats share it, and nothing that reads the store keeps a scrape waiting.
                turns: Arc::new(Semaphore::new(1)),
            },
            open_metrics: SharedReading::default(),
            prometheus: SharedReading::default(),
        }
    }

    /// The text of a moment ago, or of now.
    pub(super) async fn text(&self, exposition: Exposition) -> Bytes {
        let last = match exposition {
            Exposition::OpenMetrics => &self.open_metrics,
            Exposition::Prometheus => &self.prometheus,
        };
        let clock = &self.reader.clock;
        let serves = |last: &Rendered, _| clock.now().since(last.at) < SERVES;
        let render = || {
            let (metrics, clock) = (self.metrics.clone(), clock.clone());
            async move {
                let text = spawn_blocking(move || metrics.render(exposition).into());
                match text.await.map_err(tokio::task::JoinError::try_into_panic) {
                    Ok(text) => Rendered {
                        text,
                        at: clock.now(),
                    },
                    Err(Ok(panic)) => resume_unwind(panic),
                    // The process ends.
                    Err(Err(_)) => pending().await,
                }
            }
            .boxed()
        };
        last.get(&self.reader, serves, render).await.text.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;
    use crate::sim_clock::SimTime;

    #[tokio::test(start_paused = true)]
    async fn one_rendering_serves_all_who_scrape() {
        let (metrics, renderings) = (Metrics::new("1.2.3"), Arc::new(AtomicUsize::new(0)));
        metrics.asks().paused.of({
            let renderings = renderings.clone();
            move || {
                renderings.fetch_add(1, Ordering::SeqCst);
                Vec::new()
            }
        });
        let clock = SimTime::new().clock();
        let scrapes = Scrapes::new(metrics.clone(), clock.clone(), Spawn::system());
        let all_ask = || join_all((0..128).map(|_| scrapes.text(Exposition::Prometheus)));
        let first = all_ask().await;
        let again = all_ask().await;
        let is_one = |text: &Bytes| text.as_ptr() == first[0].as_ptr();
        assert!(first.iter().chain(&again).all(is_one));
        assert_eq!(renderings.load(Ordering::SeqCst), 1);
        // The other format is another text.
        let open = scrapes.text(Exposition::OpenMetrics).await;
        assert!(open.ends_with(b"# EOF\n"));
        assert_eq!(renderings.load(Ordering::SeqCst), 2);
        // What happens is shown a moment later.
        metrics.declare_node("n1", true);
        clock.sleep(SERVES).await;
        let text = scrapes.text(Exposition::Prometheus).await;
        assert!(String::from_utf8_lossy(&text).contains("node=\"n1\""));
        assert_eq!(renderings.load(Ordering::SeqCst), 3);
    }
}
