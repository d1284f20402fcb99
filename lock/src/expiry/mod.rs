//! When a holder is over: what this process has watched of it, and what is known of a lock.

mod lock_state;
pub(crate) mod watch;

pub use lock_state::LockState;
pub(crate) use lock_state::together;
