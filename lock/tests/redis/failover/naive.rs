//! A lock as people write it with any client of Sentinel: `SET NX PX` on the master that one sentinel names, extended and released by
//! scripts that compare. A server that took over is believed at once.
//!
//! It has two holders where ours must have none: what finds none of ours is seen to find them.

use std::time::Duration;

use watchkeeper_lock::{
    chance::Chance,
    clock::{Clock, Moment},
};

use super::{OK, Party, ask};

const KEY: &str = "naive";

/// After a refusal, and after no answer.
const PAUSE: Duration = Duration::from_millis(20);

const EXTEND: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";
const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// A program that locks so.
#[derive(Clone)]
pub(crate) struct Naive {
    party: Party,
    /// The sentinel that it asks, and the name of the master.
    sentinel: String,
    master: &'static str,
    owner: String,
    ttl: Duration,
}

/// What it has got. It minds its own clock as well as one can: counted from before the question left.
pub(crate) struct NaiveLease {
    of: Naive,
    until: Moment,
    /// When it is to be extended.
    due: Moment,
}

// === impl Naive ===

impl Naive {
    pub(crate) fn new(party: Party, sentinel: &str, master: &'static str, ttl: Duration) -> Self {
        Self {
            party,
            sentinel: sentinel.to_owned(),
            master,
            owner: Chance::system().id(),
            ttl,
        }
    }

    pub(super) async fn acquire(&self) -> Option<NaiveLease> {
        let clock = Clock::system();
        let asked = clock.now();
        let said = self
            .on_the_master(&["SET", KEY, &self.owner, "NX", "PX", &self.ttl_ms()])
            .await;
        if said.as_deref() != Some(OK) {
            clock.sleep(PAUSE).await;
            return None;
        }
        Some(NaiveLease {
            of: self.clone(),
            until: asked + self.ttl,
            due: asked + self.ttl / 3,
        })
    }

    fn ttl_ms(&self) -> String {
        self.ttl.as_millis().to_string()
    }

    async fn on_the_master(&self, words: &[&str]) -> Option<String> {
        let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.master];
        let named = ask(self.party, &self.sentinel, &question).await?;
        ask(self.party, named.lines().last()?, words).await
    }
}

// === impl NaiveLease ===

impl NaiveLease {
    pub(super) fn ttl(&self) -> Duration {
        self.of.ttl
    }

    /// Extends it when that is due.
    pub(super) async fn is_held(&mut self) -> bool {
        let clock = Clock::system();
        let now = clock.now();
        if now >= self.due {
            let words = ["EVAL", EXTEND, "1", KEY, &self.of.owner, &self.of.ttl_ms()];
            match self.of.on_the_master(&words).await.as_deref() {
                Some(":1\r\n") => {
                    self.until = now + self.of.ttl;
                    self.due = now + self.of.ttl / 3;
                }
                // It is another one's, or nobody's.
                Some(":0\r\n") => return false,
                // It may still be ours: it is asked again until its time is over.
                _ => self.due = clock.now() + PAUSE,
            }
        }
        clock.now() < self.until
    }

    pub(super) async fn release(self) {
        let words = ["EVAL", RELEASE, "1", KEY, &self.of.owner];
        // What is not released ends.
        self.of.on_the_master(&words).await;
    }
}
