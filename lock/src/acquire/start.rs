//! Starts a lock service: over which nodes, with which times, and where its keeper lives.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{Handle, Locks, Until};
#[cfg(any(test, feature = "testing"))]
use crate::quorum::mutant;
use crate::{
    admission,
    chance::Chance,
    clock::Clock,
    event::Events,
    keeper::{self, Fitness, Keeper, ReleaseListeners, Watchlist},
    lease::LeaseView,
    node::{Expiry, Node, Servers, tag::is_tag},
    panics::caught,
    quorum::{FleetClock, Votes, link::MOST_OPS},
    settings::{FleetConfig, Timing},
    spawn::Spawn,
};

/// Starts a [`Locks`].
pub struct LocksBuilder {
    pub(super) nodes: Vec<Arc<dyn Node>>,
    pub(super) timing: Timing,
    pub(super) expiry: Option<Expiry>,
    pub(super) clock: Clock,
    pub(super) chance: Chance,
    pub(super) events: Events,
    pub(super) seat: keeper::Seat,
    pub(super) on_unstoppable: Option<keeper::OnUnstoppable>,
    pub(super) fleet: Option<FleetConfig>,
    pub(super) token_floor: Option<admission::TokenFloor>,
    pub(super) bystander: bool,
    pub(super) look_every: Option<Duration>,
    pub(super) tag: Option<String>,
    #[cfg(any(test, feature = "testing"))]
    pub(super) mutant: mutant::Mutant,
}

impl LocksBuilder {
    /// Sets the times.
    #[must_use]
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Sets what decides that the holder of a named lock is over. Unless set: what the fleet has agreed on
    /// ([`LocksBuilder::guarded`]), else [`Expiry::Observed`] if the clock of any node may jump ([`Node::expiry`]), as those of
    /// Redis servers may, else [`Expiry::Server`]. All clients of a lock must agree: one that trusts the nodes' clocks takes
    /// what one that does not still holds.
    #[must_use]
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.expiry = Some(expiry);
        self
    }

    /// Sets the clock.
    #[doc(hidden)] // for the worker and the tests
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the source of randomness.
    #[doc(hidden)] // for the worker and the tests
    #[must_use]
    pub fn chance(mut self, chance: Chance) -> Self {
        self.chance = chance;
        self
    }

    /// Sets the event stream.
    #[must_use]
    pub fn events(mut self, events: Events) -> Self {
        self.events = events;
        self
    }

    /// Runs the keeper as tasks of the caller instead of on a thread of its own: for simulations.
    #[doc(hidden)] // for the worker and the tests
    #[must_use]
    pub fn keeper_here(mut self, spawn: Spawn) -> Self {
        self.seat = keeper::Seat::Here(spawn);
        self
    }

    /// What to do when work outlives its lease; the default logs and aborts the process. Called on the keeper's thread, which
    /// it must not keep. A panic in it aborts the process, too: the keeper's thread would not survive it.
    #[must_use]
    pub fn on_unstoppable(mut self, act: impl Fn(&LeaseView) + Send + Sync + 'static) -> Self {
        self.on_unstoppable = Some(Arc::new(act));
        self
    }

    /// A name that every lease of this process carries at the end of its owner value, behind a dot. The record of a
    /// lock then tells which process holds it. It must be of this process alone, such as the nonce of its replica id.
    /// Anything but 1 to 32 letters, digits, hyphens and underscores is left out.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into()).filter(|tag| is_tag(tag));
        self
    }

    /// Brings nodes that are new, or have lost their memory, back to their vote: each is watched for the longest lease,
    /// told what the others know, and admitted for this fleet. The nodes must be guarded with the same configuration
    /// ([`crate::node::GuardSettings`]); guarded nodes without this never vote. Redis nodes of a program that names no fleet are
    /// not guarded, and vote only for programs with the same times (and the same number of nodes) that do not guard theirs either.
    #[must_use]
    pub fn guarded(mut self, fleet: FleetConfig) -> Self {
        self.fleet = Some(fleet);
        self
    }

    /// Leaves it to others to bring nodes back to their vote, and to sweep them: for programs that only look.
    #[doc(hidden)] // for the worker and the tests
    #[must_use]
    pub fn bystander(mut self) -> Self {
        self.bystander = true;
        self
    }

    /// Where fencing tokens go on after a majority of guarded nodes has lost its memory: above the largest that any
    /// receiver has seen. Asked on the keeper's thread, which it must not keep. The default is the wall clock in
    /// microseconds.
    #[must_use]
    pub fn token_floor(
        mut self,
        floor: impl Fn() -> crate::node::Token + Send + Sync + 'static,
    ) -> Self {
        self.token_floor = Some(Arc::new(floor));
        self
    }

    /// How often the keeper looks at its leases at least: for simulations, in which a day of looks costs. A freeze that is
    /// shorter may go unnoticed.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)] // for the tests
    pub fn look_every(mut self, pause: Option<Duration>) -> Self {
        self.look_every = pause;
        self
    }

    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)] // for the tests
    pub fn mutant(mut self, mutant: mutant::Mutant) -> Self {
        self.mutant = mutant;
        self
    }

    /// Starts the keeper.
    ///
    /// # Errors
    /// When its thread cannot be started, or the caller is on a tokio runtime without timers.
    pub fn start(self) -> std::io::Result<Locks> {
        if !has_timers() {
            return Err(std::io::Error::other(
                "this tokio runtime has no timers, without which no attempt ends: build it with enable_time or enable_all",
            ));
        }
        let (commands, inbox) = mpsc::channel(1024);
        let (notes, noted) = mpsc::unbounded_channel();
        let releases = ReleaseListeners::default();
        let fitness = Fitness::new(self.clock.clone());
        let watchlist = Arc::new(Watchlist::of(self.tag.clone()));
        let votes = Arc::new(Votes::of(self.nodes.len()));
        let agreed = self
            .expiry
            .or(self.fleet.as_ref().map(|fleet| fleet.expiry));
        let expiry = agreed.unwrap_or_else(|| Expiry::over(&self.nodes));
        let servers = Servers::default();
        for (place, node) in self.nodes.iter().enumerate() {
            node.join(&servers, place);
        }
        let fleet = self
            .fleet
            .or_else(|| implied(&self.nodes, &self.timing, expiry));
        let wall = FleetClock::new(self.clock.clone(), self.timing.skew, self.nodes.len());
        let shown = (self.timing.clone(), self.clock.clone(), self.chance.clone());
        let guarded = fleet.is_some_and(|fleet| fleet.is_guarded());
        let (events, tag) = (self.events.clone(), self.tag.clone());
        let keeper = Keeper {
            nodes: self.nodes,
            timing: self.timing,
            expiry,
            clock: self.clock,
            chance: self.chance,
            events: self.events,
            notes: (notes.clone(), noted),
            releases: releases.clone(),
            fitness: fitness.clone(),
            watchlist: watchlist.clone(),
            votes: votes.clone(),
            wall: wall.clone(),
            on_unstoppable: self.on_unstoppable.unwrap_or_else(keeper::abort_process),
            guard: fleet.map(|fleet| admission::Guard {
                fleet,
                token_floor: self.token_floor,
                bystander: self.bystander,
                memory_loss_said: Arc::default(),
            }),
            sweeps: !self.bystander,
            look_every: self.look_every,
            tag: self.tag,
            #[cfg(any(test, feature = "testing"))]
            mutant: self.mutant,
        };
        let front = keeper.start(self.seat, inbox)?;
        let (timing, clock, chance) = shown;
        Ok(Locks(Arc::new(Handle {
            commands,
            front,
            notes,
            releases,
            timing,
            clock,
            chance,
            events,
            fitness,
            watchlist,
            votes,
            wall,
            guarded,
            tag,
            contended: Until::default(),
            told: Until::default(),
            bids: tokio::sync::Semaphore::new(MOST_OPS),
        })))
    }
}

/// Whether callers on this runtime can wait for a while. Tokio tells it by a panic alone.
#[allow(clippy::disallowed_methods, reason = "nothing waits for it")]
fn has_timers() -> bool {
    let sleeps = || drop(tokio::time::sleep(std::time::Duration::ZERO));
    tokio::runtime::Handle::try_current().is_err() || caught(sleeps).is_ok()
}

/// What a program has in common with others that names no fleet; `None` where its nodes compare nothing.
fn implied(nodes: &[Arc<dyn Node>], timing: &Timing, expiry: Expiry) -> Option<FleetConfig> {
    let raw_keys = nodes.iter().any(|node| node.raw_keys());
    let fleet = FleetConfig::unguarded(nodes.len(), timing, expiry, raw_keys);
    let text = fleet.to_string();
    let compare = nodes.iter().filter(|node| node.agree(&text)).count();
    (compare > 0).then_some(fleet)
}
