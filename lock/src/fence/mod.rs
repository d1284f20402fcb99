//! Fences: what stands where the effect happens, and refuses a holder whose time is over.
//!
//! A lease alone cannot stop a late write: a process can be frozen between its last look at the lease and the write
//! itself, and wake up when the lock has long been another holder's. Every lease carries a [`Token`] larger than
//! those of all leases before it; a fence is the place that compares it. Here are the texts for [`postgres`],
//! [`sqlite`] and [`redis`], to be used with any driver, and the [`Fence`] that holds their parameters and reads
//! their verdict.
//!
//! # The rule
//! A write under token T to a resource is accepted if and only if no larger token was accepted for it before, and the
//! comparison, the note of T and the write are one atomic step. In SQL: `fence <= token`.
//!
//! It is `<=` and not `<`, so that a holder may write as often as it likes, and may repeat a write whose answer was
//! lost. That is how M. Kleppmann describes it ("How to do distributed locking", 2016: a token is rejected when a
//! *higher* one was processed). The `<` that is often made of it allows each token one write: it tells a repeat from a
//! first write, too, but a holder that writes twice is then refused like a stale one.
//!
//! # Two forms
//! - **Column.** The row that is changed remembers the token itself, and the condition stands in the statement that
//!   changes it: `UPDATE account SET balance = $2, fence = $3 WHERE id = $1 AND fence <= $3`. For single rows that are
//!   not deleted: with the row goes the memory.
//! - **Table.** A side table has one row per resource; one statement checks and raises it at the *beginning* of the
//!   transaction that has the effect. For everything else: many rows, rows that come and go, several tables.
//!
//! Both say by the number of affected rows whether the write was accepted: [`Fence::accepted`].
//!
//! # What is the resource
//! Tokens can be compared within one lock only. So a resource belongs to one lock, all that write to it hold that
//! lock, and the name of the lock is a good name for the resource. A lock with another name or on another store is a
//! new lock, and its tokens begin anew. When you change either, stop all writers and remove the resource's row or key
//! (or set its column to 0) before they start again.
//!
//! # When it is refused
//! [`Stale`] means: a later holder has written. Roll back and stop. The same token is refused every time, so a retry
//! is of no use, and the lease is not ours any more.
//!
//! ```
//! use watchkeeper_lock::{fence::{self, Fence}, node::Token};
//! # fn main() -> Result<(), fence::FenceError> {
//! let fence = Fence::new("account:7", Token(34))?; // lease.token()
//! assert_eq!((fence.resource(), fence.token()), ("account:7", 34));
//! // let rows = tx.execute(fence::postgres::CHECK, &[&fence.resource(), &fence.token()]).await?;
//! fence.accepted(1)?;
//! let refused = fence.accepted(0).unwrap_err();
//! assert!(refused.to_string().starts_with("token 34 of account:7 is stale"));
//! # Ok(())
//! # }
//! ```
//!
//! # Not promised
//! - Anything about effects outside of the place that compares: a fence in a database does not guard a mail server.
//! - Order among writes under *one* token: a holder that writes from two tasks orders them itself.
//! - Anything after the fence has forgotten: a restored backup, an evicted or expired Redis key, a deleted row.

pub mod postgres;
pub mod redis;
pub mod sqlite;

use crate::node::Token;

/// Tokens end here: up to this every number is exact, also where a Lua script compares it.
const END: u64 = 1 << 53;

/// One resource and the token under which it is written: the parameters of the texts here, and their verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    resource: String,
    token: i64,
}

/// The write was refused: the resource has seen a later holder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "token {token} of {resource} is stale: a later holder has written (or the guarded row is gone); \
     nothing was changed; roll back and stop, a retry is refused as well"
)]
pub struct Stale {
    /// What was to be written.
    pub resource: String,
    /// The token that came too late.
    pub token: Token,
}

/// Why a write was not let through.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// The resource has seen a later holder.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// Token 0: the work has no lock, and a fence without a token guards nothing.
    #[error(
        "no token to write {resource} with: this work runs without a lock; give it one, \
         or write without a fence"
    )]
    NoToken {
        /// What was to be written.
        resource: String,
    },
    /// No lock gives tokens of 2^53 or more.
    #[error("{} of {resource} is not a token: those of a lock are below 2^53", token.0)]
    NotAToken {
        /// What was to be written.
        resource: String,
        /// What was given for a token.
        token: Token,
    },
    /// The database did not answer; nothing is known, so roll back. Worth a retry as any other database error is.
    #[cfg(feature = "sqlite")]
    #[error("the fence of {resource} was not checked")]
    Sqlite {
        /// What was to be written.
        resource: String,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

// === impl Fence ===

impl Fence {
    /// The fence of `resource` for the holder of `token`.
    ///
    /// # Errors
    /// [`FenceError::NoToken`] for token 0, [`FenceError::NotAToken`] for what no lock has given.
    pub fn new(resource: impl Into<String>, token: Token) -> Result<Self, FenceError> {
        let resource = resource.into();
        match i64::try_from(token.0) {
            Ok(0) => Err(FenceError::NoToken { resource }),
            Ok(number) if token.0 < END => Ok(Self {
                resource,
                token: number,
            }),
            _ => Err(FenceError::NotAToken { resource, token }),
        }
    }

    /// The resource, as the first parameter of a text.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The token, as a parameter: what databases call `BIGINT`. From 1 up to 2^53 - 1.
    #[must_use]
    pub fn token(&self) -> i64 {
        self.token
    }

    /// The verdict of a guarded statement, by the number of rows that it has changed.
    ///
    /// In the column form no row also means that there is no such row; neither may be written.
    ///
    /// # Errors
    /// [`Stale`] when it changed none.
    pub fn accepted(&self, rows: u64) -> Result<(), Stale> {
        if rows == 0 {
            return Err(self.stale());
        }
        Ok(())
    }

    /// The refusal, for verdicts that come in another form: the error [`redis::STALE`] of a script.
    #[must_use]
    pub fn stale(&self) -> Stale {
        Stale {
            resource: self.resource.clone(),
            token: Token(self.token.unsigned_abs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_changed_row_is_a_stale_token() {
        let fence = Fence::new("account:7", Token(34)).unwrap();
        assert_eq!(fence.accepted(1), Ok(()));
        assert_eq!(fence.accepted(3), Ok(()));
        let stale = fence.accepted(0).unwrap_err();
        assert_eq!(
            (stale.resource.as_str(), stale.token),
            ("account:7", Token(34))
        );
        assert_eq!(stale, fence.stale());
    }

    #[test]
    fn a_refusal_says_what_happened_and_what_to_do() {
        let told = Fence::new("account:7", Token(34))
            .unwrap()
            .stale()
            .to_string();
        for part in ["34", "account:7", "a later holder", "roll back and stop"] {
            assert!(told.contains(part), "{part:?} in {told}");
        }
    }

    #[test]
    fn a_job_without_a_lock_has_no_fence() {
        let refused = Fence::new("account:7", Token(0)).unwrap_err();
        assert!(
            matches!(&refused, FenceError::NoToken { resource } if resource == "account:7"),
            "{refused:?}"
        );
        assert!(refused.to_string().contains("without a lock"), "{refused}");
    }

    #[test]
    fn only_what_a_lock_can_give_is_a_token() {
        for token in [END, u64::from(u32::MAX) << 31, u64::MAX] {
            let refused = Fence::new("r", Token(token)).unwrap_err();
            assert!(
                matches!(&refused, FenceError::NotAToken { token: t, .. } if t.0 == token),
                "{refused:?}"
            );
        }
        let largest = Fence::new("r", Token(END - 1)).unwrap();
        assert_eq!(largest.token(), 9_007_199_254_740_991);
    }

    /// Drivers without numbered placeholders take the parameters in the order in which they stand.
    #[test]
    fn each_placeholder_stands_once_and_in_order() {
        for (text, marks) in [
            (postgres::CHECK, ["$1", "$2"]),
            (sqlite::CHECK, ["?1", "?2"]),
        ] {
            let found: Vec<usize> = marks
                .iter()
                .flat_map(|mark| text.match_indices(mark).map(|(at, _)| at))
                .collect();
            assert!(found.len() == 2 && found.is_sorted(), "{text}");
        }
    }
}
