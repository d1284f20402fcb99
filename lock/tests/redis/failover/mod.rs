//! What the cases of Sentinel and Cluster share: servers that take each other's place, and programs that use them.
//!
//! # In reading order
//! `servers` (a server, and where it is), `programs` (clients of ours), `contest` (programs that contend for a lock, and how often
//! two held it), `naive` (those that believe one sentinel), `network` (it can be cut in two).

mod contest;
mod naive;
mod network;
pub(crate) mod programs;
mod servers;

use std::{
    future::Future,
    pin::{Pin, pin},
    time::Duration,
};

use watchkeeper_lock::clock::Clock;

pub(crate) use self::{
    contest::{Contest, overlaps, tokens_rise},
    naive::Naive,
    network::{Network, Party, ask},
    programs::{
        answer, client, found, founded, is_refused, leads_to, locks, next_after, rivals, taken,
        through, trouble, unguarded, without_the_guard,
    },
    servers::{Endpoint, OK, PROMPT, Server, quiet_port, tell, values},
};

/// How long a lease lasts, and the longest one.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// The same where many of them follow each other.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// A call may take so long where a case looks at a node itself.
const BRISK: Duration = Duration::from_millis(500);

/// A server that a case waits for anyway is asked for so long.
const PATIENT: Duration = Duration::from_secs(10);

/// Waiting longer than this is a failure: sentinels rest for half a minute after a stall of the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The lock that is wanted.
pub(crate) const NAME: &str = "k";

/// Waits until `done`, by polling; neither servers nor sentinels give another event.
pub(crate) async fn in_time(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let clock = Clock::system();
    let end = clock.now() + PATIENCE;
    while !done().await {
        assert!(clock.now() < end, "waited in vain for {what}");
        clock.sleep(Duration::from_millis(20)).await;
    }
}

/// Runs a case beside which tasks go on while it waits for servers.
pub(crate) fn beside<T>(case: impl Future<Output = T>) -> T {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.worker_threads(2).enable_all().build().unwrap();
    // One kind of future for all cases, or the runtime would be built once for each.
    let case: Pin<&mut dyn Future<Output = T>> = pin!(case);
    runtime.block_on(case)
}

/// Which of these is named by more than half of so many.
pub(crate) fn named_by_most<'a>(
    named: &[String],
    of: usize,
    mut all: impl Iterator<Item = &'a str>,
) -> Option<usize> {
    all.position(|one| {
        let votes = named.iter().filter(|named| named.as_str() == one);
        votes.count() > of / 2
    })
}

/// Waits until another one than `before` is in charge.
pub(crate) async fn another_than(before: usize, in_charge: impl Fn() -> Option<usize>) -> usize {
    let mut found = None;
    in_time("another master", async || {
        found = in_charge().filter(|now| *now != before);
        found.is_some()
    })
    .await;
    found.unwrap()
}
