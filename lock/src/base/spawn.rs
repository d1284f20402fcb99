//! Where tasks come to life, handed in: a simulation can freeze or crash all tasks of one replica.
//!
//! ```
//! use watchkeeper_lock::spawn::Spawn;
//!
//! // On tokio's runtime, which is to be there when it is used.
//! let spawn = Spawn::system();
//! # let _ = spawn;
//! ```

use std::{fmt, future::Future, sync::Arc};

use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;

/// Starts tasks: on the ambient tokio runtime, or through a simulation's wrapper.
#[derive(Clone)]
pub struct Spawn(Arc<dyn Spawner>);

/// What a [`Spawn`] handle calls.
#[doc(hidden)] // for the testing kit
pub trait Spawner: Send + Sync + 'static {
    /// Starts a task; it goes on when the handle is dropped.
    fn spawn(&self, task: BoxFuture<'static, ()>) -> JoinHandle<()>;
}

impl Spawn {
    /// Starts tasks on the tokio runtime of the caller.
    #[must_use]
    pub fn system() -> Self {
        Self::new(Ambient)
    }

    /// Starts tasks on this runtime, from wherever it is used.
    pub(crate) fn onto(runtime: tokio::runtime::Handle) -> Self {
        Self::new(On(runtime))
    }

    /// Starts tasks through `spawner`.
    #[doc(hidden)] // for the worker and the testing kit
    #[must_use]
    pub fn new(spawner: impl Spawner) -> Self {
        Self(Arc::new(spawner))
    }

    /// Starts a task; it goes on when the handle is dropped.
    ///
    /// # Panics
    /// Outside a tokio runtime, as [`tokio::spawn`] does.
    #[doc(hidden)] // for the worker and the testing kit
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.0.spawn(Box::pin(task))
    }
}

impl fmt::Debug for Spawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spawn")
    }
}

struct Ambient;

impl Spawner for Ambient {
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place where tasks are started"
    )]
    fn spawn(&self, task: BoxFuture<'static, ()>) -> JoinHandle<()> {
        tokio::spawn(task)
    }
}

struct On(tokio::runtime::Handle);

impl Spawner for On {
    #[allow(
        clippy::disallowed_methods,
        reason = "tasks of the keeper, started by others"
    )]
    fn spawn(&self, task: BoxFuture<'static, ()>) -> JoinHandle<()> {
        self.0.spawn(task)
    }
}
