//! How a worker runs: until a signal, or until its program has had enough of it.

use std::future::Future;

use super::{Worker, process, start};
use crate::{
    config::Loaded,
    error::{Error, Result},
    signals::Signals,
};

impl Worker {
    /// Runs until SIGTERM or SIGINT, then drains. A second signal ends the process at once. [`Worker::handle`] stops it,
    /// too.
    ///
    /// This is for a program that is the worker: it takes the signals of the process. Several workers of one process hear
    /// the same signals; when the last of them has ended, the next SIGTERM ends the process. [`Worker::run_until`] leaves
    /// signals alone.
    ///
    /// Sets up the log of `[telemetry]` where the program has installed no subscriber of `tracing` (feature `log`, on by
    /// default), and says what it starts with: version, store, the first jobs with their next ticks, the address of the
    /// page. Jobs run on the caller's runtime, so that `worker.threads` has no effect: the runtime says how many there are.
    ///
    /// A service manager that wants to be told (`NOTIFY_SOCKET`, as systemd sets it for `Type=notify`) hears when the worker
    /// serves, that it turns, and when it drains. Several workers of one process would speak for each other there: run them
    /// by [`Worker::run_until`].
    ///
    /// # Cancellation
    /// When the future is dropped the worker drains by itself, as on SIGTERM, for as long as the runtime lives: nothing new
    /// starts, runs may end within `worker.drain_timeout`, leases are handed over. Its end is not told to the program then. A runtime
    /// that ends takes the runs with it; what they held expires by itself, after one ttl at most.
    ///
    /// # Errors
    /// [`enum@Error`]; nothing was started then, except for errors of the lock service itself.
    pub async fn run(self) -> Result<()> {
        let loaded = self.load_to_run()?;
        let _log = self.begin(&loaded)?;
        self.run_loaded(loaded).await
    }

    /// The same until `stop` is ready, then drains. Signals are left to the program, so that it can stand beside anything else
    /// that handles them: [`Handle::reload`](super::Handle::reload) does what SIGHUP would.
    ///
    /// ```no_run
    /// # use watchkeeper::Worker;
    /// # async fn serve() {}
    /// # async fn both(worker: Worker) -> watchkeeper::Result<()> {
    /// worker.run_until(async { serve().await }).await
    /// # }
    /// ```
    ///
    /// # Cancellation
    /// As with [`Worker::run`]. `stop` is dropped with it.
    ///
    /// # Errors
    /// As with [`Worker::run`].
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<()> {
        let loaded = self.load_to_run()?;
        let _log = self.begin(&loaded)?;
        let told = self.handle.stop.child_token();
        let running = process::run(self, loaded, None, told.clone());
        let asked = async {
            stop.await;
            told.cancel();
            std::future::pending().await
        };
        tokio::select! {
            biased;
            ended = running => ended,
            never = asked => never,
        }
    }

    /// Reads and checks the configuration of a worker that is to run.
    pub(crate) fn load_to_run(&self) -> Result<Loaded> {
        self.load()?.runnable().map_err(Error::Config)
    }

    /// Sets up the log for a worker on a runtime that is not ours, and says what has no effect there.
    pub(crate) fn begin(&self, loaded: &Loaded) -> Result<start::Log> {
        let log = start::log(&loaded.config.telemetry).map_err(Error::Process)?;
        if loaded.config.worker.threads.is_some() {
            tracing::warn!(
                "{}: worker.threads has no effect: jobs run on the runtime of the program, which has as many threads as it says",
                loaded.provenance.of("worker.threads")
            );
        }
        Ok(log)
    }

    /// Runs with a configuration that was read; the log is set up.
    pub(crate) async fn run_loaded(self, loaded: Loaded) -> Result<()> {
        // Signals first: one that comes while the store is opened must drain, too.
        let signals = Signals::listen().map_err(Error::Process)?;
        let stop = self.handle.stop.child_token();
        process::run(self, loaded, Some(signals), stop).await
    }
}
