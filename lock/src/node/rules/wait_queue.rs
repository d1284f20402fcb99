//! The queue for one lock: in what order its waiters are woken. It has no say in who may take the lock.
//!
//! # Invariants
//! - W9 A waiter that is gone is called in vain for a part of its life only, and not with each release until its place ends.
//!   (w9_a_waiter_that_is_gone_is_passed_by_and_forgotten)

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Rows, Turn, ceil_ms, later};
use crate::node::{NodeMs, Ticket};

/// Of its life, the part in which a waiter that was passed by has to show that it lives.
const PASSED_BY: u64 = 16;

/// A waiter in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waiter {
    pub(crate) ticket: String,
    /// Until when the place is kept without a sign of life.
    pub(crate) until: NodeMs,
}

impl<R: Rows> Turn<'_, R> {
    /// Takes a place at the end, or keeps the one there is; how many are before it.
    pub(super) fn queue(&mut self, key: &str, ticket: &Ticket) -> Result<u32, R::Error> {
        let mut waiters = self.waiters(key)?;
        let until = later(self.now, ticket.life);
        let place = waiters.iter().position(|w| w.ticket == ticket.id);
        let place = place.unwrap_or_else(|| {
            waiters.push(Waiter {
                ticket: ticket.id.clone(),
                until,
            });
            waiters.len() - 1
        });
        waiters[place].until = until;
        self.rows.put_waiters(key, &waiters)?;
        Ok(u32::try_from(place).unwrap_or(u32::MAX))
    }

    /// The lock goes to this waiter, and its place with it. The first one, if that is another, was called and has not come: it keeps
    /// its place only if it shows soon that it lives (W9).
    pub(super) fn take_turn(&mut self, key: &str, ticket: &Ticket) -> Result<(), R::Error> {
        let mut waiters = self.waiters(key)?;
        let soon = Duration::from_millis(ceil_ms(ticket.life) / PASSED_BY);
        if let Some(first) = waiters.first_mut().filter(|w| w.ticket != ticket.id) {
            first.until = first.until.min(later(self.now, soon));
        }
        waiters.retain(|w| w.ticket != ticket.id);
        self.rows.put_waiters(key, &waiters)
    }

    /// Gives a place up.
    pub(super) fn leave(&mut self, key: &str, ticket: &str) -> Result<(), R::Error> {
        let mut waiters = self.waiters(key)?;
        waiters.retain(|w| w.ticket != ticket);
        self.rows.put_waiters(key, &waiters)
    }

    /// Whose turn it is.
    pub(super) fn head(&mut self, key: &str) -> Result<Option<String>, R::Error> {
        Ok(self.waiters(key)?.into_iter().next().map(|w| w.ticket))
    }

    /// Until when the last of them waits.
    pub(super) fn last_waiter(&mut self, key: &str) -> Result<NodeMs, R::Error> {
        let ends = self.waiters(key)?.into_iter().map(|w| w.until);
        Ok(ends.max().unwrap_or_default())
    }

    fn waiters(&mut self, key: &str) -> Result<Vec<Waiter>, R::Error> {
        let mut waiters = self.rows.waiters(key)?;
        waiters.retain(|w| self.now < w.until);
        Ok(waiters)
    }
}
