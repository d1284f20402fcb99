//! Tells the other replicas which receivers have asked to be left alone, and hears it from them.
//!
//! Each pause is a document of the job, under the receiver's name, that lives as long as the pause. What is new is written and
//! read a second after the last time at the earliest.
//!
//! # Invariants
//! - F1 A pause that one replica was asked for is kept by all that reach the lock nodes, a second and a look later at the latest.
//!   (`a_pause_is_told_to_the_others`)
//! - F2 What other replicas say is bounded: no pause is longer than one that a receiver may ask for.
//!   (`what_is_read_is_bounded`)
//!
//! # When things fail
//! Without an answer of the lock nodes each replica learns by itself, as it does before it has heard of a pause.

use std::{collections::BTreeMap, sync::OnceLock, time::Duration};

use serde::{Deserialize, Serialize};
use watchkeeper::{
    Locks,
    clock::{Clock, Moment},
    node::Doc,
};

use super::{delivery::MAX_ASKED, limits::hashed, sink::Hosts};

/// What one job has told and heard.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    /// The job's directory of documents.
    shared: OnceLock<(String, Locks)>,
    state: tokio::sync::Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: Moment,
    /// The last revision of each document that was written or read.
    known: BTreeMap<String, u64>,
}

/// A receiver that asked to be left alone.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pause {
    host: String,
    /// By the lock nodes' clocks; the document's revision as well, so that the longest counts.
    until_ms: i64,
    why: String,
}

/// How often is written and read.
const EVERY: Duration = Duration::from_secs(1);
/// Shorter ones are over before they are heard of.
const LEAST: Duration = Duration::from_secs(1);
/// Pauses written at a time. The others are learnt by each replica.
const AT_A_TIME: usize = 100;
/// Bytes of a receiver's name or a reason.
const MOST_TEXT: usize = 300;

// === impl Pauses ===

impl Pauses {
    /// From now on they are told. The first call counts.
    pub(crate) fn share(&self, job: &str, locks: &Locks) {
        self.shared
            .get_or_init(|| (format!("pause/{job}/"), locks.clone()));
    }

    /// Tells and hears what is new, if it is time.
    pub(crate) async fn exchange(&self, hosts: &Hosts, clock: &Clock) {
        let Some((dir, locks)) = self.shared.get() else {
            return;
        };
        // One of the job's tasks at a time, and the others need not wait for it.
        let Ok(mut state) = self.state.try_lock() else {
            return;
        };
        let now = clock.now();
        if now < state.next {
            return;
        }
        state.next = now + EVERY;
        let wall_ms = locks.wall().as_millisecond();
        for (host, until, why) in hosts.take_fresh().into_iter().take(AT_A_TIME) {
            let rest = until.since(now);
            if rest < LEAST {
                continue;
            }
            let pause = Pause {
                until_ms: wall_ms.saturating_add(millis(rest)),
                host,
                why,
            };
            let (name, rev) = (format!("{dir}{}", hashed(&pause.host)), pause.rev());
            if let Ok(body) = serde_json::to_string(&pause)
                && locks.put_doc(&name, rev, rest, body).await.is_ok()
            {
                state.known.insert(name, rev);
            }
        }
        let Ok(found) = locks.doc_names(dir).await else {
            return;
        };
        let found: Vec<(String, u64)> = found
            .docs
            .into_iter()
            .map(|(doc, _)| (doc.name, doc.rev))
            .collect();
        let is_new =
            |(name, rev): &&(String, u64)| state.known.get(name).is_none_or(|known| known < rev);
        let new: Vec<String> = found
            .iter()
            .filter(is_new)
            .map(|(name, _)| name.clone())
            .collect();
        state.known = found.into_iter().collect();
        let Ok(read) = locks.docs_of(&new).await else {
            // They are read with the next ones.
            new.iter().for_each(|name| _ = state.known.remove(name));
            return;
        };
        for (pause, rest) in read.iter().filter_map(|doc| heard(doc, wall_ms)) {
            hosts.told(&pause.host, now + rest, &pause.why, now);
        }
    }
}

impl Pause {
    fn rev(&self) -> u64 {
        u64::try_from(self.until_ms).unwrap_or(0)
    }
}

/// What a document says, and for how long from now.
fn heard(doc: &Doc, wall_ms: i64) -> Option<(Pause, Duration)> {
    let pause: Pause = serde_json::from_str(&doc.body).ok()?;
    let rest = u64::try_from(pause.until_ms.saturating_sub(wall_ms)).ok()?;
    let sound = pause.host.len() <= MOST_TEXT && pause.why.len() <= MOST_TEXT;
    sound.then_some((pause, Duration::from_millis(rest).min(MAX_ASKED)))
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use watchkeeper::node::{Node, memory::MemoryNode};

    use super::*;
    use crate::kinds::notifications::sink::{Admission, Heard};

    fn locks(node: &MemoryNode, clock: &Clock) -> Locks {
        let nodes = vec![Arc::new(node.clone()) as Arc<dyn Node>];
        Locks::over(nodes).clock(clock.clone()).start().unwrap()
    }

    #[tokio::test]
    async fn a_pause_is_told_to_the_others() {
        let clock = Clock::system();
        let node = MemoryNode::new("one", clock.clone());
        let replicas = [(); 2].map(|()| {
            let pauses = Pauses::default();
            pauses.share("mail", &locks(&node, &clock));
            (pauses, Hosts::many(4))
        });
        let [(first, its), (second, others)] = &replicas;
        let now = clock.now();
        let busy = Heard::Busy(Some(Duration::from_secs(60)));
        its.heard("h.example", now, busy, "answered 429", now);
        first.exchange(its, &clock).await;
        assert!(matches!(others.admit("h.example", now), Admission::Go(_)));
        second.exchange(others, &clock).await;
        let Admission::Paused { until, why } = others.admit("h.example", clock.now()) else {
            panic!("not paused");
        };
        assert_eq!(why, "answered 429");
        let rest = until.since(now);
        assert!((58..=61).contains(&rest.as_secs()), "{rest:?}");
        assert!(matches!(others.admit("other", now), Admission::Go(_)));
        assert!(
            others.take_fresh().is_empty(),
            "what is heard is not told on"
        );
    }

    #[test]
    fn what_is_read_is_bounded() {
        let doc = |body: &str| Doc {
            name: "pause/mail/h".to_owned(),
            rev: 1,
            body: body.to_owned(),
        };
        let body = |until: i64, host: &str| {
            let pause = Pause {
                host: host.to_owned(),
                until_ms: until,
                why: String::new(),
            };
            serde_json::to_string(&pause).unwrap()
        };
        let rest = |body: &str| heard(&doc(body), 1000).map(|(_, rest)| rest);
        assert_eq!(rest(&body(3000, "h")), Some(Duration::from_secs(2)));
        assert_eq!(rest(&body(i64::MAX, "h")), Some(MAX_ASKED));
        assert_eq!(rest(&body(i64::MIN, "h")), None);
        assert_eq!(rest(&body(3000, &"h".repeat(301))), None);
        assert_eq!(rest("nonsense"), None);
    }
}
