//! Notices: people are told when a job has failed for good, has missed ticks, or is well again.
//!
//! The ledger of a job says what is to be told of it (`Trouble`). Here it becomes a [`Notice`] and goes to the
//! [`Receiver`]s that the job names: webhooks, mails, ping addresses, which the stock jobs bring along ([`Carrier`]).
//!
//! Nothing here is waited for by a run, by a lease or by a hand-over. Each receiver has a short queue and a task of its own, so that one
//! that does not answer keeps no other one waiting.
//!
//! # Invariants
//! - N1 What waits for a receiver has an end: what finds no room is dropped, logged and counted.
//!   (a_full_queue_drops_and_counts)
//! - N2 A receiver that fails is asked again a few times, with growing pauses, and then no more.
//!   (a_receiver_that_fails_is_asked_so_often_and_no_more)
//! - N3 Notices of one job reach a receiver in their order.   (what_is_told_of_one_job_keeps_its_order)
//! - N5 Of a job's ends that wait for a ping the last one is sent, and the last one that failed, though the job was well since.
//!   (a_ping_of_a_failure_is_sent_though_the_job_was_well_since)
//! - N4 A receiver that does not answer keeps no other one waiting.   (a_dead_receiver_delays_no_other_one)
//! # Not promised
//! That a notice arrives: see "What is promised" in `docs/operations/notices.md`.

mod queue;
mod settings;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

pub(crate) use queue::{Notices, Posts, Told};
pub use settings::{NoticeKind, NoticeSettings, NoticeTls, Recipients};

use crate::{
    clock::Clock,
    finding::Findings,
    ledger::{Became, Cause, Trouble},
};

/// Bytes of a reason that are told.
const MOST_DETAIL: usize = 1000;

/// What a receiver is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notice {
    /// The same each time this notice is sent, by whichever replica.
    pub id: String,
    /// The fleet.
    pub namespace: String,
    /// The job.
    pub job: String,
    /// What it is about.
    pub what: What,
    /// When that was decided.
    pub at: Timestamp,
    /// Since when the job is, or was, broken.
    pub since: Timestamp,
    /// The scheduled instant of the run; the first of the ticks that were missed.
    pub tick: Timestamp,
    /// The last tick that was missed.
    pub last: Option<Timestamp>,
    /// How many ticks were missed.
    pub count: u64,
    /// The run's id; empty when it is not known.
    pub run: String,
    /// The run's last attempt; 0 when there was none.
    pub attempt: u32,
    /// How the run ended, or by which rule the ticks were passed over: a bounded word.
    pub outcome: String,
    /// Why; may be empty.
    pub detail: String,
    /// The name of the replica that tells it.
    pub replica: String,
}

/// What a notice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A run has failed, and no attempt follows.
    Failed,
    /// Ticks were missed.
    Missed,
    /// A run went well after one of these.
    Recovered,
    /// A run has ended well; for receivers that are told of every end.
    Ended,
}

/// A notice was not sent, or perhaps not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// In words, without secrets.
    pub why: String,
    /// Whether it makes sense to send it again.
    pub again: bool,
    /// The receiver asks to wait so long.
    pub after: Option<Duration>,
    /// Some of those whom the receiver tells have it all the same.
    pub heard: bool,
}

/// Takes notices one at a time.
#[async_trait]
pub trait Receiver: Send + Sync + 'static {
    /// Whether it is told of the end of every run, well or not, and of nothing else.
    fn wants_every_end(&self) -> bool {
        false
    }

    /// Sends one notice. It is dropped when it takes too long.
    ///
    /// # Errors
    /// [`Unsent`].
    async fn send(&self, notice: &Notice) -> Result<(), Unsent>;
}

/// Makes receivers of settings.
pub trait Carrier: Send + Sync + 'static {
    /// What is wrong with them, beginning with [`NoticeSettings::check`]. Keys are those of the table.
    fn check(&self, settings: &NoticeSettings) -> Findings;

    /// Makes the receiver. Opens no connection.
    ///
    /// # Errors
    /// A sentence without secrets.
    fn open(&self, settings: &NoticeSettings, clock: &Clock) -> Result<Arc<dyn Receiver>, String>;
}

// === impl Notice ===

impl Notice {
    /// What is told of a change.
    pub(crate) fn of_change(
        (namespace, replica): (&str, &str),
        job: &str,
        trouble: &Trouble,
    ) -> Self {
        let what = match trouble.what {
            Became::Failed => What::Failed,
            Became::Missed => What::Missed,
            Became::Recovered => What::Recovered,
        };
        let when = (trouble.at, trouble.since);
        Self::made((namespace, replica), job, what, when, &trouble.by)
    }

    /// What is told of the end of a run.
    pub(crate) fn of_end(
        from: (&str, &str),
        job: &str,
        (well, at): (bool, Timestamp),
        by: &Cause,
    ) -> Self {
        let what = if well { What::Ended } else { What::Failed };
        Self::made(from, job, what, (at, at), by)
    }

    fn made(
        (namespace, replica): (&str, &str),
        job: &str,
        what: What,
        (at, since): (Timestamp, Timestamp),
        by: &Cause,
    ) -> Self {
        let key = format!("{namespace}/{job}/{}/{at}", what.as_str());
        let hash = Sha256::digest(key);
        let digits: String = hash.iter().take(16).map(|b| format!("{b:02x}")).collect();
        Self {
            id: format!("wkn_{digits}"),
            namespace: namespace.to_owned(),
            job: job.to_owned(),
            what,
            at,
            since,
            tick: by.tick,
            last: by.last,
            count: by.count,
            run: plain(&by.run),
            attempt: by.attempt,
            outcome: word(&by.outcome),
            detail: crate::job::cut(plain(&by.detail), MOST_DETAIL),
            replica: replica.to_owned(),
        }
    }

    /// All of it in one line, without the reason.
    #[must_use]
    pub fn title(&self) -> String {
        let Self { job, namespace, .. } = self;
        match self.what {
            What::Failed => format!("{job} ({namespace}) has failed: {}", self.outcome),
            What::Missed => {
                let ticks = if self.count == 1 { "tick" } else { "ticks" };
                format!("{job} ({namespace}) has missed {} {ticks}", self.count)
            }
            What::Recovered => format!("{job} ({namespace}) has recovered"),
            What::Ended => format!("{job} ({namespace}) has ended well"),
        }
    }
}

/// Without what moves a cursor, ends a line of a mail, or turns the text around it.
fn plain(text: &str) -> String {
    let shown = |c| match c {
        '\n' | '\t' => c,
        c if crate::escape::is_obeyed(c) => ' ',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// What a store says is a word, if it is one.
fn word(text: &str) -> String {
    let fits = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    text.chars().filter(fits).take(40).collect()
}

// === impl What ===

impl What {
    /// A bounded word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Missed => "missed",
            Self::Recovered => "recovered",
            Self::Ended => "ended",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Unsent ===

impl Unsent {
    /// Another try may help.
    #[must_use]
    pub fn later(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            again: true,
            after: None,
            heard: false,
        }
    }

    /// No other try helps.
    #[must_use]
    pub fn never(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            again: false,
            after: None,
            heard: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(what: Became) -> Trouble {
        let at = |second| Timestamp::from_second(second).unwrap();
        Trouble {
            what,
            at: at(1_800_000_100),
            since: at(1_800_000_000),
            by: Cause {
                tick: at(1_799_999_940),
                last: None,
                count: 3,
                run: "r".to_owned(),
                attempt: 2,
                outcome: "failed".to_owned(),
                detail: "é".repeat(5000),
            },
            done: Vec::new(),
            told: false,
            unheard: false,
        }
    }

    #[test]
    fn a_notice_has_the_same_id_from_every_replica_and_another_one_for_every_change() {
        let of = |replica, job, what| Notice::of_change(("ns", replica), job, &trouble(what)).id;
        let id = of("a", "report", Became::Failed);
        assert_eq!(id, of("b", "report", Became::Failed));
        assert_ne!(id, of("a", "mail", Became::Failed));
        assert_ne!(id, of("a", "report", Became::Recovered));
        let later = Trouble {
            at: Timestamp::MAX,
            ..trouble(Became::Failed)
        };
        assert_ne!(id, Notice::of_change(("ns", "a"), "report", &later).id);
    }

    #[test]
    fn a_reason_moves_no_cursor_and_ends_no_mail() {
        let mut trouble = trouble(Became::Failed);
        trouble.by.detail = "10 %\r\n.\r\nQUIT\x1b[2J\u{202e}x\0".to_owned();
        let notice = Notice::of_change(("fleet", "r"), "mail", &trouble);
        assert_eq!(notice.detail, "10 % \n. \nQUIT [2J x ");
    }

    #[test]
    fn a_reason_of_any_length_is_told_in_short() {
        let notice = Notice::of_change(("ns", "a"), "report", &trouble(Became::Failed));
        assert!(
            notice.detail.len() <= MOST_DETAIL,
            "{}",
            notice.detail.len()
        );
        assert_eq!(notice.title(), "report (ns) has failed: failed");
        let mut hostile = trouble(Became::Failed);
        hostile.by.outcome = "time\r\nout: x".to_owned();
        let notice = Notice::of_change(("ns", "a"), "report", &hostile);
        assert_eq!(notice.title(), "report (ns) has failed: timeoutx");
    }
}
