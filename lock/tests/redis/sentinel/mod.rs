//! A master that sentinels name: what its failover does to locks, with real servers and real sentinels.
//!
//! A client asks a server only while most of all sentinels have named it a moment ago, and a server that took over is watched for
//! as long as leases of the one before may last. So there is one holder at a time, whatever the servers believe of themselves.
//!
//! # In reading order
//! `deployment` (servers and sentinels), `named` (who is in charge), `replaced` (another one takes over), `parted` (the network is
//! cut in two), `storm` (many failovers of every kind).

pub(crate) mod deployment;
mod named;
mod parted;
mod replaced;
mod storm;

use std::time::Duration;

pub(crate) use self::{named::*, parted::*, replaced::*, storm::*};

/// How long those who name a master are believed: `TRUST` in `lock/src/node/redis/route.rs`.
const TRUST: Duration = Duration::from_secs(5);

/// For how much longer than the longest lease a server that took over is watched: `LATE` in `lock/src/node/guard.rs`.
const LATE: Duration = Duration::from_secs(6);
