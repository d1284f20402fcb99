//! What an answer means for an item: plain decisions, without I/O or clock.
//!
//! # States            (none) -> sent | retry | in doubt | parked | dead;  retry -> any;  in doubt -> sent | in doubt | parked.
//! An order of a person leads from any of them to retry, in doubt, parked or discarded: `operator.rs`.
//!
//! # Invariants
//! - D1 What may have been received is in doubt, never just retried.        (no_answer_is_doubt_not_retry)
//! - D2 A doubt stays listed until the item is sent: one that is given up is parked, and not dead.
//!   (a_doubt_outlives_a_refusal, what_may_have_been_received_is_parked_when_it_is_given_up)
//! - D3 The end of a sender uses up no attempt of its items: a crash loop kills no item.
//!   (a_dead_sender_costs_no_attempt)
//! - D4 Waiting for a receiver uses up no attempt.                          (waiting_costs_no_attempt)
//! - D5 What was accepted and cannot be marked uses up an attempt, whatever keeps it from being marked.
//!   (what_was_accepted_and_is_not_marked_is_in_doubt_as_if_it_had_not_been_answered)

use std::{collections::BTreeMap, time::Duration};

use watchkeeper::{hash::fnv1a, node::Token};

use super::{
    cell::ItemId,
    params::{Backoff, InDoubt},
};

/// What the sink said to one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has it.
    Accepted,
    /// It does not have it and may take it later, not before the pause it asked for.
    Later {
        /// Without secrets.
        why: String,
        /// A pause asked for.
        after: Option<Duration>,
    },
    /// It has the same message already: this one is not sent, and counts as sent.
    Duplicate,
    /// It was not asked: it wants to be left alone for now, or we could not ask. Costs the item no attempt.
    Waits {
        /// Without secrets.
        why: String,
        /// For how long.
        after: Duration,
    },
    /// It does not have it and will never take it.
    Refused {
        /// Without secrets.
        why: String,
    },
    /// It may have it: the request has left, no answer came.
    Unknown {
        /// Without secrets.
        why: String,
    },
    /// It may have it: we were stopped while the request was under way.
    CutOff {
        /// Why we were stopped.
        why: String,
    },
}

/// The state of an item that is neither sent nor simply unsent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// To be sent again when its time has come.
    Retry,
    /// Given up, and surely not received.
    Dead,
    /// May have been received; to be repeated with the same key.
    InDoubt,
    /// May have been received; left for a person to decide.
    Parked,
    /// A person has decided that it is not sent.
    Discarded,
}

/// An item's row in the side table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Where it stands.
    pub state: State,
    /// Sendings so far.
    pub attempts: u32,
    /// Not to be sent before this time, in Unix milliseconds.
    pub not_before_ms: i64,
    /// Why, without secrets.
    pub reason: String,
    /// Whether this is a new doubt, which allows one repeat.
    pub doubted: bool,
}

/// What becomes of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Sent: `sent_at` is set.
    Sent,
    /// Not sent, because the same message was: `sent_at` is set.
    Duplicate,
    /// Not, or perhaps not.
    Except(Exception),
}

/// The rules of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// What to do in doubt.
    pub in_doubt: InDoubt,
    /// Sendings before an item is dead.
    pub attempts: u32,
    /// Pauses between them.
    pub backoff: Backoff,
}

/// The longest pause that grows by itself.
pub(crate) const MAX_BACKOFF: Duration = Duration::from_secs(3600);
/// The longest pause a receiver may ask for.
pub(crate) const MAX_ASKED: Duration = Duration::from_secs(24 * 3600);

// === impl Exception ===

impl Exception {
    /// Given up before it was ever sent.
    #[must_use]
    pub(crate) const fn dead(reason: String) -> Self {
        Self {
            state: State::Dead,
            attempts: 0,
            not_before_ms: 0,
            reason,
            doubted: false,
        }
    }
}

// === impl Policy ===

impl Policy {
    /// What becomes of an item with this history after this answer.
    #[must_use]
    pub(crate) fn judge(
        &self,
        prior: Option<&Exception>,
        answer: Answer,
        now_ms: i64,
        key: &str,
    ) -> Mark {
        let attempts = prior.map_or(0, |p| p.attempts).saturating_add(1);
        let doubtful = prior.is_some_and(|p| p.state == State::InDoubt);
        let mut after = Exception {
            state: State::Retry,
            attempts,
            not_before_ms: now_ms,
            reason: String::new(),
            doubted: false,
        };
        match answer {
            Answer::Accepted => return Mark::Sent,
            Answer::Duplicate => return Mark::Duplicate,
            Answer::CutOff { why } => return Mark::Except(self.doubt(prior, &why)),
            Answer::Waits { why, after: pause } => {
                if doubtful {
                    after.state = State::InDoubt;
                }
                after.attempts = attempts - 1;
                after.not_before_ms = now_ms.saturating_add(millis(pause.min(MAX_ASKED)));
                after.reason = why;
            }
            Answer::Refused { why } => {
                after.state = given_up(doubtful);
                after.reason = why;
            }
            Answer::Unknown { why } => {
                return Mark::Except(self.unknown(attempts, why, now_ms, key));
            }
            Answer::Later { why, .. } if attempts >= self.attempts => {
                after.state = given_up(doubtful);
                after.reason = last_of(attempts, &why);
            }
            Answer::Later { why, after: asked } => {
                let asked = asked.unwrap_or_default().min(MAX_ASKED);
                let pause = self.pause(attempts, key).max(asked);
                if doubtful {
                    after.state = State::InDoubt;
                }
                after.not_before_ms = now_ms.saturating_add(millis(pause));
                after.reason = why;
            }
        }
        Mark::Except(after)
    }

    /// What becomes of each of the rows of a message after this answer; `message` and `rows` are what happened to it and to them before.
    /// What may have been received is one thing. Else each row has attempts of its own, and those that are to be sent again wait for
    /// one time, so that they go together.
    #[must_use]
    pub(crate) fn judge_rows<'p>(
        &self,
        message: Option<&Exception>,
        rows: impl Iterator<Item = Option<&'p Exception>>,
        answer: &Answer,
        now_ms: i64,
        key: &str,
    ) -> Vec<Mark> {
        let in_doubt = message.is_some_and(|prior| prior.state == State::InDoubt);
        let is_one = in_doubt || matches!(answer, Answer::Unknown { .. } | Answer::CutOff { .. });
        let of = |row| {
            let prior = if is_one { message } else { row };
            self.judge(prior, answer.clone(), now_ms, key)
        };
        let mut marks: Vec<Mark> = rows.map(of).collect();
        let latest = marks.iter_mut().filter_map(Mark::time_of_retry).max();
        let latest = latest.copied();
        for time in marks.iter_mut().filter_map(Mark::time_of_retry) {
            *time = latest.unwrap_or(*time);
        }
        marks
    }

    /// What becomes of an item that was accepted and is not marked: another program holds its row, or the database refuses the
    /// mark, with this reason.
    #[must_use]
    pub(crate) fn unmarked(
        &self,
        prior: Option<&Exception>,
        refusal: Option<&str>,
        now_ms: i64,
        key: &str,
    ) -> Exception {
        let attempts = prior.map_or(0, |p| p.attempts).saturating_add(1);
        let held =
            "another program holds it, or a trigger or policy of the table keeps it as it is";
        let why = format!(
            "it was accepted, and its row could not be marked: {}",
            refusal.unwrap_or(held)
        );
        let mut rules = *self;
        if refusal.is_some() {
            // It would be refused again after each sending.
            rules.in_doubt = InDoubt::Park;
        }
        rules.unknown(attempts, why, now_ms, key)
    }

    /// The same where the end of its whole batch could not be written, for this reason.
    #[must_use]
    pub(crate) fn unwritten(
        &self,
        prior: Option<&Exception>,
        why: &str,
        now_ms: i64,
        key: &str,
    ) -> Exception {
        let attempts = prior.map_or(0, |p| p.attempts).saturating_add(1);
        let why = format!("it was accepted, and that could not be written: {why}");
        self.unknown(attempts, why, now_ms, key)
    }

    /// The same for several, each with what happened to it before, the database's reason if it gave one, and the key that its pause goes
    /// by. Those with one key are of one message, and stay one: it was sent as often as that of them which was sent most often.
    #[must_use]
    pub(crate) fn all_unmarked<'i>(
        &self,
        rows: Vec<(&'i ItemId, Option<Exception>, Option<String>, &str)>,
        now_ms: i64,
    ) -> Vec<(&'i ItemId, Exception)> {
        let mut most: BTreeMap<&str, Option<Exception>> = BTreeMap::new();
        for (_, prior, _, key) in &rows {
            let of_message = most.entry(key).or_default();
            let attempts = |prior: &Option<Exception>| prior.as_ref().map_or(0, |p| p.attempts);
            if attempts(prior) > attempts(of_message) {
                of_message.clone_from(prior);
            }
        }
        let of = |(id, _, refusal, key): (&'i ItemId, _, Option<String>, &str)| {
            let prior = most.get(key).and_then(Option::as_ref);
            (id, self.unmarked(prior, refusal.as_deref(), now_ms, key))
        };
        rows.into_iter().map(of).collect()
    }

    fn unknown(&self, attempts: u32, why: String, now_ms: i64, key: &str) -> Exception {
        let (state, pause, reason) = match self.in_doubt {
            InDoubt::Park => (State::Parked, Duration::ZERO, why),
            InDoubt::Repeat if attempts >= self.attempts => {
                (State::Parked, Duration::ZERO, last_of(attempts, &why))
            }
            InDoubt::Repeat => (State::InDoubt, self.pause(attempts, key), why),
        };
        Exception {
            state,
            attempts,
            not_before_ms: now_ms.saturating_add(millis(pause)),
            reason,
            doubted: true,
        }
    }

    /// What becomes of an item whose sender ended between sending and marking. It may go again at once.
    #[must_use]
    pub(crate) fn doubt(&self, prior: Option<&Exception>, why: &str) -> Exception {
        Exception {
            state: match self.in_doubt {
                InDoubt::Repeat => State::InDoubt,
                InDoubt::Park => State::Parked,
            },
            attempts: prior.map_or(0, |p| p.attempts),
            not_before_ms: 0,
            reason: why.to_owned(),
            doubted: true,
        }
    }

    /// What becomes of an item that stands in the intent of a sender that has ended. None when there is nothing to doubt: it
    /// is marked or gone, or it waits for a person as it is.
    #[must_use]
    pub(crate) fn left_behind(
        &self,
        unsent: bool,
        prior: Option<&Exception>,
        holder: Token,
    ) -> Option<Exception> {
        let settled = prior.is_some_and(|p| p.state.is_at_rest());
        let why = || format!("its sender (token {}) ended before it was marked", holder.0);
        (unsent && !settled).then(|| self.doubt(prior, &why()))
    }

    /// The pause after this many sendings, with up to a quarter more, which depends on the item, so that
    /// items refused together do not come back together.
    #[must_use]
    pub(crate) fn pause(&self, attempts: u32, key: &str) -> Duration {
        let pause = self.backoff.pause(attempts, MAX_BACKOFF);
        let share = u32::try_from(fnv1a(key.bytes()) % 256).unwrap_or(0);
        pause + pause / 1024 * share
    }
}

/// Where an item stands that is sent no more.
const fn given_up(doubtful: bool) -> State {
    if doubtful { State::Parked } else { State::Dead }
}

fn last_of(attempts: u32, why: &str) -> String {
    format!("given up after {attempts} attempts; the last: {why}")
}

fn millis(d: Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX)
}

// === impl State ===

impl State {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [
        Self::Retry,
        Self::Dead,
        Self::InDoubt,
        Self::Parked,
        Self::Discarded,
    ];

    /// Those in which no sender begins an item, for a list in SQL.
    pub(crate) const AT_REST: &str = "'dead', 'parked', 'discarded'";

    /// The word for it in the side table, in events and in listings.
    #[must_use]
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Dead => "dead",
            Self::InDoubt => "in_doubt",
            Self::Parked => "parked",
            Self::Discarded => "discarded",
        }
    }

    /// Whether no sender begins it until a person asks for that.
    #[must_use]
    pub(crate) const fn is_at_rest(self) -> bool {
        matches!(self, Self::Dead | Self::Parked | Self::Discarded)
    }

    /// The state of a word.
    #[must_use]
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

// === impl Mark ===

impl Mark {
    /// When it is to be sent again, where it was not received.
    const fn time_of_retry(&mut self) -> Option<&mut i64> {
        match self {
            Self::Except(e) if matches!(e.state, State::Retry) => Some(&mut e.not_before_ms),
            _ => None,
        }
    }

    /// Whether the row is marked.
    #[cfg(feature = "postgres")]
    #[must_use]
    pub(crate) const fn is_done(&self) -> bool {
        matches!(self, Self::Sent | Self::Duplicate)
    }

    /// The word under which events count it: an old doubt that has to wait counts as a retry.
    #[must_use]
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Duplicate => "duplicate",
            Self::Except(e) if matches!(e.state, State::InDoubt) && !e.doubted => "retry",
            Self::Except(e) => e.state.word(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Policy = Policy {
        in_doubt: InDoubt::Repeat,
        attempts: 3,
        backoff: Backoff::Doubling(Duration::from_secs(2)),
    };

    fn except(mark: Mark) -> Exception {
        match mark {
            Mark::Except(e) => e,
            Mark::Sent | Mark::Duplicate => panic!("sent"),
        }
    }

    fn later() -> Answer {
        Answer::Later {
            why: "answered 503".to_owned(),
            after: None,
        }
    }

    fn unknown() -> Answer {
        Answer::Unknown {
            why: "no answer".to_owned(),
        }
    }

    #[test]
    fn no_answer_is_doubt_not_retry() {
        let e = except(RULES.judge(None, unknown(), 1000, "k"));
        assert_eq!((e.state, e.doubted, e.attempts), (State::InDoubt, true, 1));
        assert!(e.not_before_ms >= 3000);
        let park = Policy {
            in_doubt: InDoubt::Park,
            ..RULES
        };
        let e = except(park.judge(None, unknown(), 1000, "k"));
        assert_eq!((e.state, e.doubted), (State::Parked, true));
    }

    #[test]
    fn a_doubt_outlives_a_refusal() {
        let first = except(RULES.judge(None, unknown(), 0, "k"));
        let mark = RULES.judge(Some(&first), later(), 0, "k");
        assert_eq!(mark.word(), "retry");
        let e = except(mark);
        assert_eq!((e.state, e.doubted), (State::InDoubt, false));
        assert_eq!(RULES.judge(Some(&e), Answer::Accepted, 0, "k"), Mark::Sent);
    }

    #[test]
    fn a_dead_sender_costs_no_attempt() {
        let first = except(RULES.judge(None, later(), 0, "k"));
        assert_eq!(RULES.doubt(Some(&first), "gone").attempts, 1);
        let cut = Answer::CutOff {
            why: "stopped".to_owned(),
        };
        assert_eq!(except(RULES.judge(Some(&first), cut, 0, "k")).attempts, 1);
    }

    #[test]
    fn what_a_dead_sender_left_is_doubted_unless_it_is_settled() {
        let left =
            |unsent: bool, prior: Option<&Exception>| RULES.left_behind(unsent, prior, Token(7));
        let doubt = left(true, None).unwrap();
        assert_eq!((doubt.state, doubt.doubted), (State::InDoubt, true));
        assert!(doubt.reason.contains("token 7"), "{}", doubt.reason);
        assert_eq!(left(false, None), None);
        for state in State::ALL {
            let prior = Exception {
                state,
                ..doubt.clone()
            };
            assert_eq!(
                left(true, Some(&prior)).is_none(),
                state.is_at_rest(),
                "{state:?}"
            );
        }
    }

    #[test]
    fn waiting_costs_no_attempt() {
        let waits = || Answer::Waits {
            why: "paused".to_owned(),
            after: Duration::from_secs(9),
        };
        let first = except(RULES.judge(None, waits(), 1000, "k"));
        assert_eq!((first.state, first.attempts), (State::Retry, 0));
        assert_eq!(first.not_before_ms, 10_000);
        let mut item = except(RULES.judge(None, unknown(), 0, "k"));
        for _ in 0..99 {
            item = except(RULES.judge(Some(&item), waits(), 0, "k"));
        }
        assert_eq!(
            (item.state, item.attempts, item.doubted),
            (State::InDoubt, 1, false)
        );
    }

    #[test]
    fn pauses_double_and_have_an_end() {
        let pause = |n| RULES.pause(n, "k");
        assert!(pause(1) >= Duration::from_secs(2) && pause(1) <= Duration::from_millis(2500));
        assert!(pause(2) >= Duration::from_secs(4));
        assert!(pause(u32::MAX) <= MAX_BACKOFF + MAX_BACKOFF / 4);
    }

    #[test]
    fn a_pause_asked_for_is_kept_up_to_a_day() {
        let asked = |secs| Answer::Later {
            why: String::new(),
            after: Some(Duration::from_secs(secs)),
        };
        assert_eq!(
            except(RULES.judge(None, asked(60), 0, "k")).not_before_ms,
            60_000
        );
        let e = except(RULES.judge(None, asked(u64::MAX), 0, "k"));
        assert_eq!(e.not_before_ms, 24 * 3_600_000);
    }

    #[test]
    fn the_last_attempt_leaves_a_dead_item_with_its_reason() {
        let mut e = except(RULES.judge(None, later(), 0, "k"));
        e = except(RULES.judge(Some(&e), later(), 0, "k"));
        e = except(RULES.judge(Some(&e), later(), 0, "k"));
        assert_eq!(e.state, State::Dead);
        assert!(
            e.reason.contains("after 3 attempts") && e.reason.contains("503"),
            "{}",
            e.reason
        );
    }

    #[test]
    fn what_may_have_been_received_is_parked_when_it_is_given_up() {
        let refused = || Answer::Refused {
            why: "answered 400".to_owned(),
        };
        let doubt = except(RULES.judge(None, unknown(), 0, "k"));
        let end = except(RULES.judge(Some(&doubt), refused(), 0, "k"));
        assert_eq!((end.state, end.doubted), (State::Parked, false));
        let plain = except(RULES.judge(None, refused(), 0, "k"));
        assert_eq!(plain.state, State::Dead);

        let twice = except(RULES.judge(Some(&doubt), later(), 0, "k"));
        let end = except(RULES.judge(Some(&twice), later(), 0, "k"));
        assert_eq!((end.state, end.doubted), (State::Parked, false));
        let end = except(RULES.judge(Some(&twice), unknown(), 0, "k"));
        assert_eq!((end.state, end.doubted), (State::Parked, true));
        assert!(end.reason.contains("after 3 attempts"), "{}", end.reason);
    }

    #[test]
    fn rows_of_a_message_that_is_refused_have_attempts_of_their_own() {
        let old = RULES.judge(None, later(), 0, "k");
        let old = except(RULES.judge(Some(&except(old)), later(), 0, "k"));
        let rows = || [None, Some(&old)].into_iter();
        let judge = |answer: &Answer| -> Vec<Exception> {
            let marks = RULES.judge_rows(Some(&old), rows(), answer, 0, "k");
            marks.into_iter().map(except).collect()
        };
        let states = |of: &[Exception]| -> Vec<(State, u32)> {
            of.iter().map(|e| (e.state, e.attempts)).collect()
        };
        // The one has tried for the last time, the other for the first.
        let after = judge(&later());
        assert_eq!(states(&after), [(State::Retry, 1), (State::Dead, 3)]);
        // Before that they wait for one time.
        let first = except(RULES.judge(None, later(), 0, "k"));
        let priors = [None, Some(&first)].into_iter();
        let after = RULES.judge_rows(Some(&first), priors, &later(), 0, "k");
        let after: Vec<Exception> = after.into_iter().map(except).collect();
        assert_eq!(states(&after), [(State::Retry, 1), (State::Retry, 2)]);
        let pause = i64::try_from(RULES.pause(2, "k").as_millis()).unwrap();
        assert!(after.iter().all(|e| e.not_before_ms == pause), "{after:?}");
        let waits = Answer::Waits {
            why: String::new(),
            after: Duration::from_secs(1),
        };
        let after = judge(&waits);
        assert_eq!(states(&after), [(State::Retry, 0), (State::Retry, 2)]);
        // What may have been received is one thing, now and later.
        let after = judge(&unknown());
        assert_eq!(states(&after), [(State::Parked, 3); 2]);
        let doubt = except(RULES.judge(Some(&first), unknown(), 0, "k"));
        let priors = [None, Some(&doubt)].into_iter();
        let after = RULES.judge_rows(Some(&doubt), priors, &later(), 0, "k");
        assert_eq!(after[0], after[1]);
        assert_eq!(after[0], RULES.judge(Some(&doubt), later(), 0, "k"));
    }

    #[test]
    fn rows_of_a_message_that_are_not_marked_stay_one() {
        let first = except(RULES.judge(None, later(), 0, "k"));
        let ids = [1, 2, 3].map(ItemId::Int);
        let rows = vec![
            (&ids[0], None, None, "message"),
            (&ids[1], Some(first.clone()), None, "message"),
            (&ids[2], None, None, "other"),
        ];
        let after = RULES.all_unmarked(rows, 0);
        let of = |prior, key| RULES.unmarked(prior, None, 0, key);
        let (message, other) = (of(Some(&first), "message"), of(None, "other"));
        assert_eq!(
            after,
            [
                (&ids[0], message.clone()),
                (&ids[1], message),
                (&ids[2], other)
            ]
        );
    }

    #[test]
    fn what_was_accepted_and_is_not_marked_is_in_doubt_as_if_it_had_not_been_answered() {
        let once = RULES.unmarked(None, None, 1000, "k");
        assert_eq!(
            once,
            except(RULES.judge(None, unknown_as(&once), 1000, "k"))
        );
        assert_eq!((once.state, once.attempts), (State::InDoubt, 1));
        let park = Policy {
            in_doubt: InDoubt::Park,
            ..RULES
        };
        assert_eq!(park.unmarked(None, None, 0, "k").state, State::Parked);
        let twice = RULES.unmarked(Some(&once), None, 0, "k");
        let end = RULES.unmarked(Some(&twice), None, 0, "k");
        assert_eq!((end.state, end.attempts), (State::Parked, 3));
        let whole = RULES.unwritten(Some(&once), "cancelled", 1000, "k");
        assert_eq!((whole.state, whole.attempts), (State::InDoubt, 2));
        assert!(
            whole.doubted && whole.not_before_ms >= 5_000 && whole.reason.ends_with("cancelled")
        );
        let refused = RULES.unmarked(None, Some("too long"), 0, "k");
        assert_eq!((refused.state, refused.doubted), (State::Parked, true));
        assert!(refused.reason.ends_with("too long"), "{}", refused.reason);
    }

    fn unknown_as(e: &Exception) -> Answer {
        Answer::Unknown {
            why: e.reason.clone(),
        }
    }

    #[test]
    fn words_are_read_back() {
        for state in State::ALL {
            assert_eq!(State::parse(state.word()), Some(state));
        }
    }

    #[test]
    fn the_database_is_told_of_each_state_that_no_sender_begins() {
        let at_rest = State::ALL.into_iter().filter(|state| state.is_at_rest());
        let words: Vec<String> = at_rest.map(|state| format!("'{}'", state.word())).collect();
        assert_eq!(State::AT_REST, words.join(", "));
    }
}
