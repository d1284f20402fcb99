//! Sends the items of one batch, a few at a time.
//!
//! # Invariants
//! - L1 Nothing is begun that the run may no longer do, or that its receiver may not be sent.
//!   (`a_receiver_that_asks_to_wait_is_left_alone_and_its_items_lose_no_attempt`)
//! - L2 What was begun has an answer, or is cut off: it is never taken for unsent.
//!   (`a_stopped_batch_marks_what_was_sent_and_lists_what_was_under_way`)
//! - L3 A batch holds its lock no longer than its receivers let it work. Where they are many, or rows have limits of their own, what
//!   cannot go soon waits in the side table, and is no work meanwhile.
//!   (`the_endpoint_of_one_customer_holds_up_no_other`, `a_tenant_at_its_limit_holds_up_no_other_however_many_rows_it_has`,
//!   `rows_of_a_slow_receiver_are_put_aside_and_the_replica_is_not_slowed_down`)
//! - L4 Items of one recipient keep their order, where that is wanted.  (`rows_of_one_recipient_go_in_order_whatever_fails`)

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use serde_json::Value;
use tokio::sync::watch;
use watchkeeper::{
    clock::{Clock, Moment},
    job::Run,
    node::Token,
    trace::{self, Piece},
};

use super::{
    delivery::Answer,
    limits::{Keys, Limits, Places, Turn},
    params::{Behind, Lanes},
    queue::{Next, Queue},
    sink::{Admission, Sink},
    source::Item,
    times::Times,
};

/// What sending needs.
pub(crate) struct Sending<'a> {
    pub(crate) sink: &'a dyn Sink,
    pub(crate) limits: &'a Limits,
    pub(crate) times: &'a Times,
    pub(crate) clock: &'a Clock,
    /// Which rows go one after the other.
    pub(crate) lanes: Option<Lanes>,
    /// The column whose values tell one message from another.
    pub(crate) dedupe: Option<&'a str>,
}

/// What became of the items of a batch.
pub(crate) struct Sent {
    /// By position; what was not begun is not in it, what was begun and not answered is cut off.
    pub(crate) answers: BTreeMap<usize, Answer>,
    /// Some were not begun, because their receiver wants to be left alone for so long.
    pub(crate) rest: Option<Duration>,
    /// Some were not begun, because of their limits, for so long.
    pub(crate) limited: Option<Duration>,
}

/// Items that may go or not together: of one receiver, under the same limits.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    host: String,
    keys: Keys,
}

/// How the rows of a group wait.
struct Waits {
    group: Vec<String>,
    /// The place of the first, and how much later the next ones are.
    from: Moment,
    step: Duration,
    /// Those with a place no later than this wait where they are.
    here_until: Moment,
    why: &'static str,
}

/// Items of one batch that are under way at the same time.
const PARALLEL: usize = 8;
/// A stopped batch waits for answers under way, if its lease allows: each that comes is one doubt less.
const LINGER: Duration = Duration::from_secs(1);
/// A batch whose items all wait for their receivers gives its lock back after this time, and rests.
const PATIENCE: Duration = Duration::from_secs(2);
const REST: Duration = Duration::from_secs(1);
/// Rows that found no place at their receiver come back after this time, one so much later than the other.
const CROWDED: Duration = Duration::from_secs(3);
const SPACING: Duration = Duration::from_millis(50);
const FOR_LIMIT: &str = "waits for its limit";
const FOR_RECEIVER: &str = "waits for its receiver";
/// Items that wait for their limits are looked at again after this time at most.
const LIMITED: Duration = Duration::from_secs(30);

// === impl Sending ===

impl Sending<'_> {
    /// Sends until all are answered, the run is told to stop, or what is left must wait for its receivers.
    pub(crate) async fn all(&self, items: &[Item], token: Token, run: &Run) -> Sent {
        let (mut answers, mut answered) = (BTreeMap::new(), 0);
        let (mut rest, mut limited) = (None, None);
        let mut under_way = FuturesUnordered::new();
        let hosts = self.sink.hosts();
        let mut news = hosts.map(|hosts| hosts.news());
        let mut turns = self.limits.news();
        let kept = |item: &Item| self.times.keep(&item.columns, self.clock.wall());
        let recipients: Vec<Option<String>> = items.iter().map(|i| self.recipient(i)).collect();
        let groups = items.iter().map(|item| {
            let host = self.sink.host_of(item);
            let keys = self.limits.keys(item, &host);
            Group { host, keys }
        });
        let mut queue = Queue::new(groups.zip(recipients.iter().map(Option::as_deref)));
        let mut sent: BTreeSet<(String, String)> = BTreeSet::new();
        let mut last_begun = self.clock.now();
        loop {
            let now = self.clock.now();
            let mut wake = Moment::NEVER;
            if !queue.is_empty() && under_way.len() < PARALLEL {
                // A process that was frozen in a wait learns of it here, before it sends.
                if run.check().is_err() {
                    break;
                }
                // Before the question: a permit that is given back after it is news.
                if let Some(news) = &mut news {
                    news.mark_unchanged();
                }
                turns.mark_unchanged();
                // Not before its turn among those of its recipient has come.
                let settled = |i: usize| {
                    let item = items.get(i)?;
                    let message = self.message(item);
                    let is_repeat =
                        item.is_repeat || message.is_some_and(|message| sent.contains(&message));
                    match is_repeat {
                        true => Some(Answer::Duplicate),
                        false => kept(item),
                    }
                };
                let mut for_limits = false;
                let next = queue.next(settled, |Group { host, keys }| {
                    let mut asked = false;
                    let admission = self.limits.admit(keys, now, || {
                        asked = true;
                        match hosts {
                            Some(hosts) => hosts.admit(host, now),
                            None => Admission::free(),
                        }
                    });
                    for_limits |= !asked;
                    admission
                });
                for (i, until, why) in queue.take_aside() {
                    let pause = until.since(now);
                    if hosts.is_some_and(|hosts| hosts.is_single()) {
                        // Nothing of the batch can go: it needs no word about each item.
                        rest = Some(pause);
                    } else {
                        let why = format!("waits for its receiver: {why}");
                        answers.insert(i, Answer::Waits { why, after: pause });
                    }
                }
                match next {
                    Next::Settled(settled) => {
                        for (i, answer) in settled {
                            if self.lets_pass(&answer) {
                                queue.follow(i);
                            }
                            answers.insert(i, answer);
                        }
                        continue;
                    }
                    Next::Begin(i, permit) => {
                        let Some(item) = items.get(i) else { continue };
                        let piece = run.piece("send").map(Piece::asking);
                        under_way.push(async move {
                            let answer = self.send(item, token, piece).await;
                            drop(permit);
                            (i, answer)
                        });
                        // What becomes of it is not known before it is answered or we are stopped.
                        let why = String::new();
                        answers.insert(i, Answer::CutOff { why });
                        last_begun = now;
                        continue;
                    }
                    Next::Wait(at) => {
                        let enough = last_begun + PATIENCE;
                        let patient = !under_way.is_empty() || now < enough;
                        let waits = |group: &Group| self.waits(group, patient, now);
                        for (i, (at, why)) in queue.take_out(waits, |waits, before| {
                            waits.elsewhere(before, self.limits.places(), now)
                        }) {
                            let (why, after) = (why.to_owned(), at.since(now));
                            answers.insert(i, Answer::Waits { why, after });
                        }
                        let idle = under_way.is_empty() && !queue.is_empty();
                        if idle && for_limits && at > enough && at != Moment::NEVER {
                            limited = Some(at.since(now).min(LIMITED));
                            queue.clear();
                        } else if idle && now >= enough {
                            let pause = if for_limits { &mut limited } else { &mut rest };
                            *pause = Some(REST);
                            queue.clear();
                        }
                        wake = at.min(if under_way.is_empty() {
                            enough
                        } else {
                            Moment::NEVER
                        });
                    }
                }
            }
            if queue.is_empty() && under_way.is_empty() {
                break;
            }
            let may_begin = !queue.is_empty() && under_way.len() < PARALLEL;
            tokio::select! {
                // The end is heard first, then answers: they make room.
                biased;
                () = run.cancelled() => break,
                Some((i, answer)) = under_way.next(), if !under_way.is_empty() => {
                    if self.lets_pass(&answer) {
                        queue.follow(i);
                    }
                    if answer == Answer::Accepted {
                        sent.extend(items.get(i).and_then(|item| self.message(item)));
                    }
                    answers.insert(i, answer);
                    answered += 1;
                    run.progress(answered, items.len() as u64);
                }
                () = changed(&mut news), if may_begin => {}
                _ = turns.changed(), if may_begin => {}
                () = self.clock.sleep_until(wake), if may_begin && wake != Moment::NEVER => {}
            }
        }
        let linger = run
            .lease()
            .map_or(Duration::ZERO, |l| l.remaining() / 2)
            .min(LINGER);
        let until = self.clock.now() + linger;
        // Without a lease left not even one more poll: it could be what lets a request go.
        while !linger.is_zero()
            && let Ok(Some((i, answer))) = self.clock.timeout_at(until, under_way.next()).await
        {
            answers.insert(i, answer);
        }
        for answer in answers.values_mut() {
            if let Answer::CutOff { why } = answer {
                *why = format!("stopped before it was answered: {}", run.why());
            }
        }
        Sent {
            answers,
            rest,
            limited,
        }
    }

    /// Sends one item as a piece of the run's trace, which ends with the answer.
    async fn send(&self, item: &Item, token: Token, mut piece: Option<Piece>) -> Answer {
        let context = piece.as_ref().map(Piece::context);
        if let Some(piece) = &mut piece {
            piece.say("watchkeeper.item", item.key.as_str());
            // Where it is dropped before it has one.
            piece.fail("no answer");
        }
        let answer = trace::within(context, self.sink.send(item, token)).await;
        if let Some(piece) = &mut piece {
            match answer {
                Answer::Accepted => piece.well(),
                _ => piece.fail("not accepted"),
            }
        }
        answer
    }

    /// How the rows of a group wait that cannot go now; none where they wait here, or in their batch.
    fn waits(&self, group: &Group, patient: bool, now: Moment) -> Option<Waits> {
        let waits = |from, step, here_until, why| Waits {
            group: group.name(),
            from,
            step,
            here_until: if patient { here_until } else { Moment::ZERO },
            why,
        };
        let many = || self.sink.hosts().is_some_and(|hosts| !hosts.is_single());
        Some(match self.limits.turn(&group.keys, now) {
            Turn::Apart(Moment::NEVER, step) => {
                waits(now + CROWDED, step, Moment::NEVER, FOR_LIMIT)
            }
            Turn::Apart(at, step) => waits(at, step, now + PATIENCE, FOR_LIMIT),
            Turn::Now if many() => {
                let mut waits = waits(now + CROWDED, SPACING, Moment::NEVER, FOR_RECEIVER);
                if self.limits.places().next(&waits.group, now, Duration::ZERO) > now {
                    // Others of them have waited in vain.
                    waits.here_until = Moment::ZERO;
                }
                waits
            }
            Turn::Now | Turn::Common => return None,
        })
    }

    /// Whom an item is for, where that keeps an order.
    fn recipient(&self, item: &Item) -> Option<String> {
        text_of(item, &self.lanes.as_ref()?.column)
    }

    /// Which message an item is, among those of its recipient.
    fn message(&self, item: &Item) -> Option<(String, String)> {
        Some((self.recipient(item)?, text_of(item, self.dedupe?)?))
    }

    /// Whether the next of its recipient may go after this answer.
    fn lets_pass(&self, answer: &Answer) -> bool {
        let held = |lanes: &Lanes| lanes.behind == Behind::Held;
        match answer {
            Answer::Accepted | Answer::Duplicate => true,
            Answer::Refused { .. } => !self.lanes.as_ref().is_some_and(held),
            _ => false,
        }
    }
}

fn text_of(item: &Item, column: &str) -> Option<String> {
    match item.columns.get(column)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

// === impl Waits ===

impl Waits {
    /// Until when a row waits elsewhere, and why; of its group so many are before it.
    fn elsewhere(
        &self,
        before: u32,
        places: &Places,
        now: Moment,
    ) -> Option<(Moment, &'static str)> {
        let from = self.from + self.step.saturating_mul(before);
        let place = places.next(&self.group, from, self.step);
        (place > self.here_until).then(|| {
            let place = places.take(&self.group, from, self.step, now);
            (place, self.why)
        })
    }
}

// === impl Group ===

impl Group {
    fn name(&self) -> Vec<String> {
        std::iter::once(&self.host)
            .chain(&self.keys)
            .cloned()
            .collect()
    }
}

/// A receiver may give a permit that it could not give before.
async fn changed(news: &mut Option<watch::Receiver<u64>>) {
    let told = match news {
        Some(news) => news.changed().await.is_ok(),
        None => false,
    };
    if !told {
        std::future::pending().await
    }
}
