//! How a command asks the fleet: on a small runtime of its own, and for so long at most.

use std::{fmt::Display, future::Future, time::Duration};

use super::{
    failure::Failure,
    output::{note, print_json},
};
use crate::{
    Worker,
    clock::Clock,
    config::{Backend, Config, Loaded, shown_store_file},
    fleet::Fleet,
    worker::connect::unreachable,
};

/// A view of the store takes at most this long, and a command waits so long for the replicas that it concerns.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How long a question may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// A majority of the nodes is waited for so long before the question.
    connecting: Duration,
    /// For the whole of it; `None` for a question that has limits of its own.
    whole: Option<Duration>,
}

// === impl Limits ===

impl Limits {
    /// What a majority of the nodes tells.
    pub(super) const VIEW: Self = Self {
        connecting: Duration::from_secs(1),
        whole: Some(PATIENCE),
    };

    /// What each node shows, also where no majority answers.
    pub(super) const fn nodes(whole: Duration) -> Self {
        Self {
            connecting: Duration::ZERO,
            whole: Some(whole),
        }
    }

    /// The same of a store that may take so long to be reached.
    pub(super) const fn reached(connecting: Duration, whole: Duration) -> Self {
        Self {
            connecting,
            whole: Some(connecting.saturating_add(whole)),
        }
    }

    /// As long as the command takes; nodes that do not answer are waited for no longer than it wants to wait.
    pub(super) fn command(patience: Duration) -> Self {
        Self {
            connecting: patience.min(PATIENCE),
            whole: None,
        }
    }
}

/// Asks the fleet that is configured.
pub(super) fn ask<T, E, F>(
    config: &Config,
    limits: Limits,
    question: impl FnOnce(Fleet) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, E>>,
    E: Display,
{
    on_a_runtime(async {
        let fleet = Fleet::open(config)?;
        let asked = async {
            fleet.reached(limits.connecting).await;
            question(fleet).await.map_err(Failure::of)
        };
        let Some(limit) = limits.whole else {
            return asked.await;
        };
        let answer = Clock::system().timeout(limit, asked).await;
        answer.unwrap_or_else(|_| Err(Failure::Failed(no_answer(config, limit))))
    })
}

/// What there is to say of a store that has not answered within this time.
pub(super) fn no_answer(config: &Config, limit: Duration) -> String {
    let (place, secs) = (place(config), limit.as_secs());
    format!("no answer from {place} within {secs} s")
}

/// The same for something that is asked of a fleet which must be there.
pub(super) fn command<T, E, F>(
    config: &Config,
    patience: Duration,
    question: impl FnOnce(Fleet) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, E>>,
    E: Display,
{
    match nobody_was_here(config) {
        true => Err(no_store(config)),
        false => ask(config, Limits::command(patience), question),
    }
}

/// On a runtime that ends with it, and waits for nothing that is left.
pub(super) fn on_a_runtime<T>(
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::of)?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

/// The configuration of a command that asks the store. Which one is taken where none was named is said.
pub(super) fn load(worker: &Worker) -> Result<Loaded, Failure> {
    let loaded = worker.load_to_ask()?;
    note_default(&loaded);
    Ok(loaded)
}

pub(super) fn note_default(loaded: &Loaded) {
    if let Some(why) = loaded.store_by_default() {
        note(&why);
    }
}

/// Whether no worker can have been here, so that asking would only leave an empty store behind.
pub(super) fn nobody_was_here(config: &Config) -> bool {
    unreachable(config).is_some()
}

/// Where no process has been, a view is empty in JSON, and fails with the reason.
pub(super) fn refuse_nowhere(
    config: &Config,
    json: bool,
    empty: &impl serde::Serialize,
) -> Result<(), Failure> {
    if !nobody_was_here(config) {
        return Ok(());
    }
    if json {
        print_json(empty)?;
    }
    Err(no_store(config))
}

/// Why nothing can be shown: the store is not there, and a question does not make one.
pub(super) fn no_store(config: &Config) -> Failure {
    Failure::Failed(match config.locks.backend {
        Backend::Memory => {
            "the store is in memory, private to each process: ask its status page".to_owned()
        }
        _ => format!(
            "there is no store {}: no worker was ever here; name the one that is meant with --config FILE or \
             WATCHKEEPER_CONFIG, or ask where the worker was started",
            shown_store_file(&config.locks)
        ),
    })
}

/// Where the fleet would be found.
pub(super) fn place(config: &Config) -> String {
    let namespace = &config.worker.namespace;
    match config.locks.backend {
        Backend::Embedded => format!("{}, namespace {namespace}", shown_store_file(&config.locks)),
        Backend::Memory => "memory (private to each process; ask its status page)".to_owned(),
        Backend::Redis => format!(
            "{} Redis nodes, namespace {namespace}",
            config.locks.redis.nodes.len()
        ),
        Backend::Postgres => format!("PostgreSQL, namespace {namespace}"),
        Backend::Etcd => format!("etcd, namespace {namespace}"),
    }
}
