//! Sends the items of one batch, a few at a time.
//!
//! # Invariants
//! - L1 Nothing is begun that the run may no longer do, or that its receiver may not be sent.
//!   (`a_receiver_that_asks_to_wait_is_left_alone_and_its_items_lose_no_attempt`)
//! - L2 What was begun has an answer, or is cut off: it is never taken for unsent.
//!   (`a_stopped_batch_marks_what_was_sent_and_lists_what_was_under_way`)
//! - L3 A batch holds its lock no longer than its receivers let it work.  (`the_endpoint_of_one_customer_holds_up_no_other`)

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::watch;
use watchkeeper::{
    clock::{Clock, Moment},
    job::Run,
    node::Token,
};

use super::{
    delivery::Answer,
    queue::{Next, Queue},
    rate::Rate,
    sink::{Admission, Sink},
    source::Item,
};

/// What sending needs.
pub(super) struct Sending<'a> {
    pub(super) sink: &'a dyn Sink,
    pub(super) rate: &'a Rate,
    pub(super) clock: &'a Clock,
}

/// What became of the items of a batch.
pub(super) struct Sent {
    /// By position; what was not begun is not in it, what was begun and not answered is cut off.
    pub(super) answers: BTreeMap<usize, Answer>,
    /// Some were not begun, because their receiver wants to be left alone for so long.
    pub(super) rest: Option<Duration>,
}

/// Items of one batch that are under way at the same time.
const PARALLEL: usize = 8;
/// A stopped batch waits for answers under way, if its lease allows: each that comes is one doubt less.
const LINGER: Duration = Duration::from_secs(1);
/// A batch whose items all wait for their receivers gives its lock back after this time, and rests.
const PATIENCE: Duration = Duration::from_secs(2);
const REST: Duration = Duration::from_secs(1);

// === impl Sending ===

impl Sending<'_> {
    /// Sends until all are answered, the run is told to stop, or what is left must wait for its receivers.
    pub(super) async fn all(&self, items: &[Item], token: Token, run: &Run) -> Sent {
        let (mut answers, mut answered, mut rest) = (BTreeMap::new(), 0, None);
        let mut under_way = FuturesUnordered::new();
        let hosts = self.sink.hosts();
        let mut news = hosts.map(|hosts| hosts.news());
        let mut queue = Queue::new(items.iter().map(|item| self.sink.host_of(item)));
        let mut turn = self.rate.reserve(self.clock.now());
        let mut last_begun = self.clock.now();
        loop {
            let now = self.clock.now();
            let mut wake = turn;
            if !queue.is_empty() && under_way.len() < PARALLEL && now >= turn {
                // A process that was frozen in a wait learns of it here, before it sends.
                if run.check().is_err() {
                    break;
                }
                // Before the question: a permit that is given back after it is news.
                if let Some(news) = &mut news {
                    news.mark_unchanged();
                }
                let next = queue.next(|host| match hosts {
                    Some(hosts) => hosts.admit(host, now),
                    None => Admission::free(),
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
                    Next::Begin(i, permit) => {
                        let Some(item) = items.get(i) else { continue };
                        under_way.push(async move {
                            let answer = self.sink.send(item, token).await;
                            drop(permit);
                            (i, answer)
                        });
                        // What becomes of it is not known before it is answered or we are stopped.
                        let why = String::new();
                        answers.insert(i, Answer::CutOff { why });
                        last_begun = now;
                        if !queue.is_empty() {
                            turn = self.rate.reserve(now);
                        }
                        continue;
                    }
                    Next::Wait(at) => {
                        let enough = last_begun + PATIENCE;
                        if under_way.is_empty() && now >= enough && !queue.is_empty() {
                            rest = Some(REST);
                            queue = Queue::default();
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
                    answers.insert(i, answer);
                    answered += 1;
                    run.progress(answered, items.len() as u64);
                }
                () = changed(&mut news), if may_begin => {}
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
        Sent { answers, rest }
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
