//! When a holder is over. `watch` keeps what this process has seen of records; `lock_state` says what follows for one
//! lock.

mod lock_state;
pub(crate) mod watch;

pub use lock_state::LockState;
pub(crate) use lock_state::together;
