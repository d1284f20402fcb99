//! Reads the store that the replicas share: who holds the leader's lock, and what they tell of themselves.

use std::time::Duration;

use anyhow::bail;
use watchkeeper::{
    Ledger, Locks,
    clock::Clock,
    config::Config,
    fleet::Fleet,
    fleet::status::FleetStatus,
    lock::{LockError, LockState},
    worker::store,
};

use super::scene::BEAT;

/// Looks, and changes nothing.
#[derive(Debug)]
pub(crate) struct Scout {
    locks: Locks,
    key: String,
}

/// The leader's lock at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// The token of its holder; `None` when it is free.
    pub(crate) held_under: Option<u64>,
    /// What its holders have decided, as they wrote it.
    pub(crate) ledger: String,
}

/// A store that does not answer is asked again for so long.
const PATIENCE: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(100);

/// Under which token it holds the lock. A minority of the nodes may show a larger one, of a bid that was lost.
fn token_of(holder: &str, seen: &LockState) -> Option<u64> {
    let views = seen.nodes.iter().filter_map(|node| node.as_ref().ok());
    let its = views.filter(|view| view.owner.as_deref() == Some(holder));
    its.map(|view| view.token.0).max()
}

impl Scout {
    pub(crate) fn new(config: &Config, clock: &Clock) -> anyhow::Result<Self> {
        let namespace = &config.worker.namespace;
        let locks = store::open(&config.locks, namespace, clock, Duration::ZERO)?;
        Ok(Self {
            locks: locks.start()?,
            key: format!("job/{BEAT}"),
        })
    }

    /// The leader's lock; `None` when the store did not answer just now.
    pub(crate) async fn look(&self) -> Result<Option<Look>, LockError> {
        let seen = self.locks.look(vec![self.key.clone()]).await?;
        let seen = seen.into_iter().next();
        let answered = seen.filter(|seen| seen.nodes.iter().any(Result::is_ok));
        Ok(answered.map(|seen| Look {
            held_under: seen.holder().and_then(|holder| token_of(&holder, &seen)),
            ledger: seen.record().body,
        }))
    }

    /// The fleet, and who leads; `None` when the store did not answer just now.
    pub(crate) async fn fleet(&self) -> Option<FleetStatus> {
        Fleet::over(&self.locks, "demo").status().await.ok()
    }

    /// What was decided of the ticks.
    pub(crate) async fn ledger(&self) -> anyhow::Result<Ledger> {
        let clock = Clock::system();
        let until = clock.now() + PATIENCE;
        let look = loop {
            match self.look().await? {
                Some(look) => break look,
                // A single node may be late just now.
                None if clock.now() < until => clock.sleep(AGAIN).await,
                None => bail!("the store does not answer"),
            }
        };
        Ok(Ledger::from_body(&look.ledger)?)
    }
}
