//! The receivers of one sink, and who of them may be sent to: a pace and a number of permits for each.
//!
//! A sink with one receiver has one host, under the empty name; one with an address in each row has as many as there are.
//!
//! # Invariants
//! - H1 No more items of one host are under way in this replica than it gives permits.  (`a_host_gives_so_many_permits`)
//! - H2 Hosts of which nothing is worth remembering are forgotten, so that rows cannot fill the memory.
//!   (`plain_hosts_are_forgotten`)

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::watch;
use tracing::warn;
use watchkeeper::clock::Moment;

use super::pace::{Heard, May, Pace};

/// All hosts of a sink; clones are the same.
#[derive(Clone, Debug)]
pub struct Hosts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Items of one host under way at a time.
    permits: usize,
    /// The name of the one host to which all items go.
    single: Option<String>,
    hosts: Mutex<BTreeMap<String, Host>>,
    /// Changes when something may go that could not before.
    news: watch::Sender<u64>,
}

#[derive(Clone, Debug, Default)]
struct Host {
    pace: Pace,
    under_way: usize,
    /// Why it is paused.
    why: String,
}

/// Whether an item may go to a host.
#[derive(Debug)]
pub(crate) enum Admission {
    /// Now, with this permit.
    Go(Option<Permit>),
    /// Not before; soon.
    At(Moment),
    /// When another has been answered.
    Full,
    /// Not before a pause is over.
    Paused {
        /// When that is.
        until: Moment,
        /// Why it is paused.
        why: String,
    },
}

/// The permit to send one item to a host; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    hosts: Arc<Shared>,
    host: String,
}

/// Hosts that are remembered, at most, as far as they can be forgotten.
const MOST: usize = 10_000;

// === impl Hosts ===

impl Hosts {
    /// The one receiver of all items, so many at a time.
    #[must_use]
    pub(crate) fn single(name: &str, permits: usize) -> Self {
        Self::new(permits, Some(name.to_owned()))
    }

    /// Receivers of so many items at a time each.
    #[must_use]
    pub(crate) fn many(permits: usize) -> Self {
        Self::new(permits, None)
    }

    fn new(permits: usize, single: Option<String>) -> Self {
        Self(Arc::new(Shared {
            permits: permits.max(1),
            single,
            hosts: Mutex::default(),
            news: watch::Sender::new(0),
        }))
    }

    /// Whether an item may go to this host now. A permit that is given is taken.
    pub(crate) fn admit(&self, host: &str, now: Moment) -> Admission {
        self.0.host(host, now, |state| {
            match state.pace.may_go(state.under_way, now) {
                May::Paused(until) => Admission::Paused {
                    until,
                    why: state.why.clone(),
                },
                May::Wait => Admission::Full,
                _ if state.under_way >= self.0.permits => Admission::Full,
                May::At(at) => Admission::At(at),
                May::Go => {
                    state.pace.went(now);
                    state.under_way += 1;
                    Admission::Go(Some(Permit {
                        hosts: Arc::clone(&self.0),
                        host: host.to_owned(),
                    }))
                }
            }
        })
    }

    /// Until when nothing at all may go, and why.
    pub(crate) fn rest(&self, now: Moment) -> Option<(Moment, String)> {
        if !self.is_single() {
            return None;
        }
        self.0.host("", now, |state| {
            match state.pace.may_go(state.under_way, now) {
                May::Paused(until) => Some((until, state.why.clone())),
                _ => None,
            }
        })
    }

    /// Whether all items go to one receiver.
    pub(crate) fn is_single(&self) -> bool {
        self.0.single.is_some()
    }

    /// Changes when something may go that could not before.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.0.news.subscribe()
    }

    /// An item that went to `host` at `left` has its answer, or never will; `why` in words, without secrets.
    pub(crate) fn heard(&self, host: &str, left: Moment, heard: Heard, why: &str, now: Moment) {
        self.0.host(host, now, |state| {
            if let Some(pause) = state.pace.heard(left, heard, now) {
                let pause_ms = pause.as_millis();
                let host = self.0.single.as_deref().unwrap_or(host);
                warn!(
                    host,
                    pause_ms, why, "nothing is sent to this receiver for a while"
                );
                state.why = why.to_owned();
            }
        });
    }

    /// Nothing goes to `host` for so long.
    pub(crate) fn pause(&self, host: &str, pause: Duration, why: &str, now: Moment) {
        self.heard(host, now, Heard::Busy(Some(pause)), why, now);
    }
}

// === impl Admission ===

impl Admission {
    /// To a sink that keeps no count.
    pub(crate) fn free() -> Self {
        Self::Go(None)
    }
}

// === impl Shared ===

impl Shared {
    fn host<T>(&self, name: &str, now: Moment, work: impl FnOnce(&mut Host) -> T) -> T {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if !hosts.contains_key(name) {
            if hosts.len() >= MOST {
                hosts.retain(|_, host| host.under_way > 0 || !host.pace.is_plain(now));
            }
            // Pauses of so many hosts are made up by somebody; what is under way is counted all the same.
            if hosts.len() >= 10 * MOST {
                hosts.retain(|_, host| host.under_way > 0);
            }
            hosts.insert(name.to_owned(), Host::default());
        }
        work(hosts.entry(name.to_owned()).or_default())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut hosts = self
            .hosts
            .hosts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = hosts.get_mut(&self.host) {
            host.under_way = host.under_way.saturating_sub(1);
        }
        drop(hosts);
        self.hosts.news.send_modify(|n| *n = n.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(1000) + Duration::from_millis(ms))
    }

    fn go(hosts: &Hosts, host: &str, ms: u64) -> Permit {
        match hosts.admit(host, at(ms)) {
            Admission::Go(Some(permit)) => permit,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_host_gives_so_many_permits() {
        let hosts = Hosts::many(2);
        let news = hosts.news();
        let (first, _second) = (go(&hosts, "a", 0), go(&hosts, "a", 0));
        assert!(matches!(hosts.admit("a", at(0)), Admission::Full));
        let _other = go(&hosts, "b", 0);
        assert!(!news.has_changed().unwrap());
        drop(first);
        assert!(news.has_changed().unwrap());
        let _third = go(&hosts, "a", 1);
    }

    #[test]
    fn a_pause_is_of_one_host_and_has_a_reason() {
        let hosts = Hosts::many(4);
        hosts.heard(
            "a",
            at(0),
            Heard::Busy(Some(Duration::from_secs(9))),
            "answered 429",
            at(1),
        );
        let Admission::Paused { until, why } = hosts.admit("a", at(2)) else {
            panic!("not paused");
        };
        assert_eq!((until, why.as_str()), (at(9001), "answered 429"));
        let _other = go(&hosts, "b", 2);
        assert_eq!(hosts.rest(at(2)), None, "of many hosts one rests alone");
    }

    #[test]
    fn a_single_receiver_rests_as_a_whole() {
        let hosts = Hosts::single("https://h.example", 4);
        assert_eq!(hosts.rest(at(0)), None);
        hosts.pause("", Duration::from_secs(9), "answered 503", at(0));
        assert_eq!(hosts.rest(at(1)).map(|(until, _)| until), Some(at(9000)));
        assert_eq!(hosts.rest(at(9000)), None);
    }

    #[test]
    fn plain_hosts_are_forgotten() {
        let hosts = Hosts::many(4);
        hosts.heard(
            "busy",
            at(0),
            Heard::Busy(Some(Duration::from_secs(3600))),
            "",
            at(0),
        );
        for i in 0..3 * MOST {
            drop(go(&hosts, &format!("host {i}"), u64::try_from(i).unwrap()));
        }
        let kept = hosts.0.hosts.lock().unwrap();
        assert!(
            kept.len() <= 2 * MOST && kept.contains_key("busy"),
            "{}",
            kept.len()
        );
    }
}
