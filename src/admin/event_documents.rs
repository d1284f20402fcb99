//! What has happened in this replica, as the API tells it: a document for each event, with a number of its own.
//!
//! Figures are no news. Attempts at locks, renewals and ends of leases come many times a second, and `/metrics` counts them; what
//! follows from them is told: a leader, a node that does not answer.
//!
//! What runs, panics and checks say is cut before it is kept: 2,048 events are some megabytes at most, whatever they say.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::stream::Ring;
use crate::{
    event::Event,
    lease::Loss,
    telemetry::{Seen, metrics::loss_word},
};

/// Events that are kept for those who come back: some minutes of a busy replica, a day of another one.
pub(super) const KEPT: usize = 2048;

/// Bytes of one text in an event. A longer one is cut before it is kept, as the history cuts it.
const LONGEST: usize = 1024;

/// One thing that has happened. Put into words when a client follows, and not before.
#[derive(Clone, Debug)]
pub(super) struct RecordedEvent(Arc<Happened>);

#[derive(Debug)]
struct Happened {
    at: Timestamp,
    seen: Seen,
}

/// The document of one event.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    id: Option<&'a str>,
    r#type: &'static str,
    time: Timestamp,
    replica: &'a str,
    job: Option<&'a str>,
    data: Value,
}

/// Puts whatever is seen into the ring, if it is told at all.
pub(super) fn tell(ring: &Ring<RecordedEvent>, mut seen: Seen, at: Timestamp) {
    if let Seen::Event(event) = &mut seen {
        if let Event::Acquire { .. } | Event::Renewed { .. } | Event::LeaseEnded { .. } = event {
            return;
        }
        shorten(event);
    }
    ring.tell(RecordedEvent(Arc::new(Happened { at, seen })));
}

/// Cuts what others than we have written in it.
fn shorten(event: &mut Event) {
    match event {
        Event::NodeDamaged { what: text, .. }
        | Event::RunEnded { detail: text, .. }
        | Event::BatchClaimed { batch: text, .. }
        | Event::BatchEnded { batch: text, .. }
        | Event::EngineDied { why: text, .. }
        | Event::Notice { why: text, .. }
        | Event::Fitness {
            unfit: Some(text), ..
        }
        | Event::StandingBy {
            why: Loss::Unfit(text),
            ..
        } => cut(text),
        _ => {}
    }
}

/// The document that tells a client of events that it has not got; how many is not known where it comes back too late.
pub(super) fn gap(replica: &str, at: Timestamp) -> Document<'_> {
    Document {
        id: None,
        r#type: GAP,
        time: at,
        replica,
        job: None,
        data: json!({"missed": null}),
    }
}

/// The type of an event that stands for those that are missing.
pub(super) const GAP: &str = "gap";

// === impl RecordedEvent ===

impl RecordedEvent {
    pub(super) fn kind(&self) -> &'static str {
        match &self.0.seen {
            Seen::Missed(_) => GAP,
            Seen::Event(event) => kind(event),
        }
    }

    pub(super) fn job(&self) -> Option<&str> {
        match &self.0.seen {
            Seen::Missed(_) => None,
            Seen::Event(event) => job(event),
        }
    }

    /// Under this id, of this replica.
    pub(super) fn document<'a>(&'a self, id: &'a str, replica: &'a str) -> Document<'a> {
        Document {
            id: Some(id),
            r#type: self.kind(),
            time: self.0.at,
            replica,
            job: self.job(),
            data: match &self.0.seen {
                Seen::Missed(count) => json!({"missed": count}),
                Seen::Event(event) => data(event),
            },
        }
    }
}

// === impl Document ===

impl Document<'_> {
    pub(super) fn kind(&self) -> &'static str {
        self.r#type
    }

    pub(super) fn to_json(&self) -> String {
        // Texts, numbers and string keys: always serializable.
        serde_json::to_string(self).unwrap_or_default()
    }
}

// === events in words ===

fn kind(event: &Event) -> &'static str {
    match event {
        // These three are not told: see `tell`.
        Event::Acquire { .. } => "acquire",
        Event::Renewed { .. } => "renewed",
        Event::LeaseEnded { .. } => "lease_ended",
        Event::NodeUp { .. } => "node",
        Event::NodeDamaged { .. } => "node_damaged",
        Event::Leading { .. } => "leading",
        Event::StandingBy { .. } => "standing_by",
        Event::RunStarted { .. } => "run_started",
        Event::RunEnded { .. } => "run_ended",
        Event::TicksSkipped { .. } => "ticks_skipped",
        Event::BatchClaimed { .. } => "batch_claimed",
        Event::BatchEnded { .. } => "batch_ended",
        Event::Items { .. } => "items",
        Event::EngineDied { .. } => "engine_died",
        Event::Backlog { .. } => "backlog",
        Event::HeldItems { .. } => "held_items",
        Event::Fitness { .. } => "fitness",
        Event::Definitions { .. } => "definitions",
        Event::Notice { .. } => "notice",
        Event::Reloaded { .. } => "reloaded",
        Event::Draining => "draining",
    }
}

fn job(event: &Event) -> Option<&str> {
    match event {
        Event::Leading { job, .. }
        | Event::StandingBy { job, .. }
        | Event::RunStarted { job, .. }
        | Event::RunEnded { job, .. }
        | Event::TicksSkipped { job, .. }
        | Event::BatchClaimed { job, .. }
        | Event::BatchEnded { job, .. }
        | Event::Items { job, .. }
        | Event::EngineDied { job, .. }
        | Event::Backlog { job, .. }
        | Event::HeldItems { job, .. }
        | Event::Notice { job, .. }
        | Event::Fitness { job, .. }
        | Event::Definitions { job, .. } => Some(job),
        Event::Acquire { .. }
        | Event::Renewed { .. }
        | Event::LeaseEnded { .. }
        | Event::NodeUp { .. }
        | Event::NodeDamaged { .. }
        | Event::Reloaded { .. }
        | Event::Draining => None,
    }
}

/// What the event says beside its type and its job.
fn data(event: &Event) -> Value {
    match event {
        Event::Acquire { .. }
        | Event::Renewed { .. }
        | Event::LeaseEnded { .. }
        | Event::Draining => json!({}),
        Event::NodeUp { node, up, cause } => json!({"node": node, "up": up, "cause": cause}),
        Event::NodeDamaged { node, what } => json!({"node": node, "what": what}),
        Event::Leading {
            token, leaderless, ..
        } => json!({"token": token, "leaderless_ms": leaderless.map(ms)}),
        Event::StandingBy { why, .. } => {
            json!({"why": loss_word(why), "detail": why.to_string()})
        }
        Event::RunStarted {
            run_id,
            tick,
            attempt,
            token,
            delay,
            ..
        } => json!({
            "run_id": run_id,
            "tick": tick,
            "attempt": attempt,
            "token": token,
            "delay_ms": ms(*delay),
        }),
        Event::RunEnded {
            run_id,
            tick,
            attempt,
            outcome,
            detail,
            took,
            ..
        } => json!({
            "run_id": run_id,
            "tick": tick,
            "attempt": attempt,
            "outcome": outcome,
            "detail": detail,
            "took_ms": ms(*took),
        }),
        Event::TicksSkipped {
            first,
            last,
            count,
            why,
            ..
        } => json!({"first": first, "last": last, "count": count, "why": why}),
        Event::BatchClaimed { batch, token, .. } => json!({"batch": batch, "token": token}),
        Event::BatchEnded {
            batch,
            outcome,
            took,
            ..
        } => json!({"batch": batch, "outcome": outcome, "took_ms": ms(*took)}),
        Event::Items { outcome, count, .. } => json!({"outcome": outcome, "count": count}),
        Event::EngineDied { why, pause, .. } => json!({"why": why, "pause_ms": ms(*pause)}),
        Event::Backlog { items, since, .. } => json!({"items": items, "since": since}),
        Event::HeldItems {
            retry,
            dead,
            in_doubt,
            parked,
            ..
        } => json!({"retry": retry, "dead": dead, "in_doubt": in_doubt, "parked": parked}),
        Event::Fitness { unfit, .. } => json!({"unfit": unfit}),
        Event::Definitions { count, .. } => json!({"count": count}),
        Event::Notice {
            notice,
            about,
            outcome,
            why,
            ..
        } => json!({"notice": notice, "about": about, "outcome": outcome, "why": why}),
        Event::Reloaded { ok, at } => json!({"ok": ok, "at": at}),
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// As much of the text as an event may have, and no more memory than that.
fn cut(text: &mut String) {
    if text.len() > LONGEST {
        let mut ends = (0..=LONGEST).rev();
        let end = ends.find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::admin::stream::Next;

    #[test]
    fn figures_are_no_news() {
        let ring = Ring::new("r", 8);
        let (mut follower, _) = ring.follow(None);
        let at = Timestamp::UNIX_EPOCH;
        let renewed = Event::Renewed {
            resource: "report".to_owned(),
            took: Duration::ZERO,
            ok: false,
            margin: 0,
        };
        tell(&ring, Seen::Event(renewed), at);
        assert!(follower.next(8).now_or_never().is_none());
        tell(&ring, Seen::Event(Event::Draining), at);
        tell(&ring, Seen::Missed(3), at);
        let Some(Next::Entries(told)) = follower.next(8).now_or_never() else {
            panic!("both are told");
        };
        let kinds: Vec<&str> = told.iter().map(|(_, told)| told.kind()).collect();
        assert_eq!(kinds, ["draining", GAP]);
    }

    #[test]
    fn a_long_text_is_cut_between_two_letters_before_it_is_kept() {
        let mut short = "short".to_owned();
        cut(&mut short);
        assert_eq!(short, "short");
        // The middle of a letter stands where it would be cut.
        let long = || format!("a{}", "é".repeat(LONGEST));
        let ring = Ring::new("r", 8);
        let (mut follower, _) = ring.follow(None);
        let job = || "report".to_owned();
        for event in [
            Event::EngineDied {
                job: job(),
                why: long(),
                pause: Duration::ZERO,
            },
            Event::StandingBy {
                job: job(),
                why: Loss::Unfit(long()),
            },
            Event::Fitness {
                job: job(),
                unfit: Some(long()),
            },
            Event::RunEnded {
                job: job(),
                run_id: String::new(),
                tick: Timestamp::UNIX_EPOCH,
                attempt: 1,
                outcome: "failed",
                detail: long(),
                took: Duration::ZERO,
            },
        ] {
            tell(&ring, Seen::Event(event), Timestamp::UNIX_EPOCH);
            let Some(Next::Entries(told)) = follower.next(1).now_or_never() else {
                panic!("it is told");
            };
            let kept = match &told[0].1.0.seen {
                Seen::Event(
                    Event::EngineDied { why: text, .. }
                    | Event::StandingBy {
                        why: Loss::Unfit(text),
                        ..
                    }
                    | Event::Fitness {
                        unfit: Some(text), ..
                    }
                    | Event::RunEnded { detail: text, .. },
                ) => text,
                other => panic!("{other:?}"),
            };
            assert_eq!(kept.len(), LONGEST - 1, "{}", told[0].1.kind());
            assert!(kept.capacity() < 2 * LONGEST);
        }
    }
}
