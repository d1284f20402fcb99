//! Fences in Redis: a script to put before your own, and a ready one that sets a key.
//!
//! The fence of a resource is a plain string key that holds the largest token accepted, as decimal digits. A refused
//! script changes nothing and ends with the error [`STALE`], which no client takes for success.
//!
//! ```
//! use watchkeeper_lock::fence;
//!
//! // KEYS[1] and ARGV[1] are the fence's; the rest is yours.
//! let withdraw = format!("{} return redis.call('DECRBY', KEYS[2], ARGV[2])", fence::redis::CHECK);
//! // EVAL withdraw 2 {account:7}:fence {account:7}:balance 34 10
//! # assert!(withdraw.starts_with(fence::redis::CHECK));
//! ```
//!
//! With the crate redis: `script.key(..).key(..).arg(fence.token()).arg(10).invoke_async(&mut connection)`, and in its
//! error `e.code() == Some(fence::redis::STALE)` becomes [`Fence::stale`](super::Fence::stale).
//!
//! # Scripts, not MULTI
//! What is guarded stands in the same script, after the check. In `MULTI` ... `EXEC` a failed command does not hold back
//! those after it, so a check there guards nothing. Clients without scripts `WATCH` the key of the fence, `GET` it,
//! stop if it is larger, and `SET` it within the transaction beside their effect: `EXEC` does nothing if another writer
//! was quicker.
//!
//! # The key must stay
//! Give it no time to live, and see that the server does not evict it (`maxmemory-policy noeviction`, or
//! `volatile-...`) and writes it to disk. A replica that takes over may lack the last token; then a stale write can
//! pass. In a cluster the key needs the hash tag of what it guards: `{account:7}:fence`.

/// The check, to be put before the text of your own script: `KEYS[1]` is the fence's key, `ARGV[1]` the token. It goes on
/// when the token is accepted; else it ends the script with an error before anything was written: [`STALE`],
/// `NOTOKEN` (token 0, or no token at all), or `NOFENCE` (the key holds something else). It defines no names.
pub const CHECK: &str = include_str!("check.lua");

/// Sets a key if the token is not stale, and answers `OK`: `KEYS[1]` the fence, `KEYS[2]` the key; `ARGV[1]` the token,
/// `ARGV[2]` the value. A time to live of the key ends, as with `SET`.
pub const SET: &str = concat!(
    include_str!("check.lua"),
    "return redis.call('SET', KEYS[2], ARGV[2])\n"
);

/// The first word of the error that refuses a stale token, which clients show as the error's code.
pub const STALE: &str = "STALE";
