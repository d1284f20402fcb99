//! Sends what is queued on a link, and watches the time of all that is under way.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::Duration,
};

use futures_util::{Future, future::BoxFuture};

use super::{
    IN_FLIGHT, Lane, Link,
    alone::{Adopted, Carried},
    complete, ended,
    queue::{Queued, next_window, refused_in_all, share_out},
    repeat::{is_about_an_operation, of_a_repeat},
};
use crate::{
    clock::Moment,
    node::{Call, NodeError, Op, Reply},
};

/// A call that the pump carries.
struct PumpedCall {
    call: Pin<Box<dyn Future<Output = Done> + Send>>,
    ops: usize,
    /// It is looked at then, whether it has moved or not.
    deadline: Moment,
}

/// How a call went.
struct Done {
    took: Duration,
    /// How many senders go on with their answers.
    senders: usize,
}

/// The pump is at work, until this is dropped.
struct AtWork<'a>(&'a Link);

// === impl Link ===

impl Link {
    /// Sends what is queued, until the link is closed.
    pub(crate) async fn pump(self) {
        let at_work = AtWork(&self);
        let mut pumped: Vec<PumpedCall> = Vec::with_capacity(IN_FLIGHT + 1);
        let mut timer: Option<(Moment, BoxFuture<'static, ()>)> = None;
        let mut bell = pin!(self.0.bell.notified());
        loop {
            if !self.load(&mut pumped, &mut timer) {
                break;
            }
            let mut senders = 0;
            poll_fn(|cx| {
                let now = self.0.clock.now();
                let before = pumped.len();
                // In the order in which they were queued, and so is the first look at each.
                pumped.retain_mut(|one| match one.call.as_mut().poll(cx) {
                    Poll::Ready(done) => {
                        senders += done.senders;
                        self.unload(one.ops, done.took);
                        false
                    }
                    Poll::Pending => {
                        if now >= one.deadline {
                            // It has more time, or a time of its own.
                            one.deadline = now + self.0.timeout;
                        }
                        true
                    }
                });
                let mut woken = pumped.len() < before;
                if let Some((_, timed)) = &mut timer
                    && timed.as_mut().poll(cx).is_ready()
                {
                    timer = None;
                    woken = true;
                }
                if bell.as_mut().poll(cx).is_ready() {
                    bell.set(self.0.bell.notified());
                    woken = true;
                }
                if woken {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            if let Some(callers) = self.0.callers.as_ref().filter(|_| senders > 1) {
                // All of them run before any of what they ask is sent.
                let _waking = callers.links.wake();
                tokio::task::yield_now().await;
            }
        }
        drop(at_work);
    }

    /// Takes on what may leave, and sets the timer; whether the link is open.
    fn load(
        &self,
        pumped: &mut Vec<PumpedCall>,
        timer: &mut Option<(Moment, BoxFuture<'static, ()>)>,
    ) -> bool {
        let now = self.0.clock.now();
        let mut lane = self.lane();
        if lane.closed {
            return false;
        }
        if self.0.callers.is_some() && self.is_down() {
            // The keeper may have found that.
            lane.queue.refuse_all(&self.known_trouble());
        }
        if let Some(alone) = lane.alone.clone() {
            let left = alone.left.load(Ordering::SeqCst);
            if left || !lane.queue.is_empty() || now >= alone.deadline {
                lane.alone = None;
                if let Some(call) = alone.take() {
                    let (link, ops, deadline) = (self.clone(), alone.ops, alone.deadline);
                    let adopted = Adopted(alone);
                    let call = Box::pin(async move {
                        let alone = &adopted.0;
                        let result = link.in_time(deadline, call).await;
                        let result = complete(result, ops);
                        let took = link.0.clock.now().since(alone.sent);
                        link.learn(alone.sent, &result);
                        alone.keep(refused_in_all(result));
                        Done { took, senders: 1 }
                    });
                    pumped.push(PumpedCall {
                        call,
                        ops,
                        deadline,
                    });
                }
            }
        }
        let met = std::mem::take(&mut lane.met);
        // Learned before anything is sent that must not act too late (N2).
        let meets = !lane.meets && lane.queue.is_bound() && !self.0.health.has_a_clock();
        if meets && met {
            lane.queue.refuse_bound(&self.known_trouble());
        } else if meets {
            lane.meets = true;
            lane.begin(0);
            pumped.push(PumpedCall {
                call: Box::pin(self.clone().meet(now)),
                ops: 0,
                deadline: now + self.0.timeout,
            });
        }
        while !lane.meets && self.may_send(&lane) {
            // One call may always be under way, whatever its size.
            let room = match lane.ops {
                0 => self.0.extensions.max(lane.window()),
                some => usize::saturating_sub(lane.window(), some),
            };
            let Some(batch) =
                lane.queue
                    .next_batch((room, self.0.extensions), self.together(), now)
            else {
                break;
            };
            let ops = batch.iter().map(|queued| queued.ops.len()).sum();
            lane.begin(ops);
            pumped.push(PumpedCall {
                call: Box::pin(self.clone().carry(batch, now)),
                ops,
                deadline: now + self.0.timeout,
            });
        }
        self.set(&mut lane, pumped, timer);
        true
    }

    /// One timer for all: set anew when it has fired, unless something else is to end before.
    fn set(
        &self,
        lane: &mut Lane,
        pumped: &[PumpedCall],
        timer: &mut Option<(Moment, BoxFuture<'static, ()>)>,
    ) {
        let alone = lane.alone.as_ref().map(|alone| alone.deadline);
        let next = pumped.iter().map(|one| one.deadline).chain(alone).min();
        let next = next.or_else(|| lane.stirred.then(|| self.0.clock.now() + self.0.timeout));
        let later = |next: Moment| timer.as_ref().is_none_or(|(at, _)| next < *at);
        if let Some(next) = next.filter(|next| later(*next)) {
            let clock = self.0.clock.clone();
            lane.stirred = false;
            *timer = Some((next, Box::pin(async move { clock.sleep_until(next).await })));
        }
        lane.watched = timer.is_some();
    }

    fn unload(&self, ops: usize, took: Duration) {
        let waited = took.saturating_sub(self.0.health.round_trip());
        let mut lane = self.lane();
        lane.end(ops);
        lane.window = Some(next_window(lane.window(), waited, self.0.timeout));
    }

    /// Asks for the node's clock.
    async fn meet(self, sent: Moment) -> Done {
        let give_up = sent + self.0.timeout;
        let call = self.node_call(Vec::new(), give_up, None);
        let result = complete(self.in_time(give_up, call).await, 0);
        self.learn(sent, &result);
        let mut lane = self.lane();
        (lane.meets, lane.met) = (false, true);
        Done {
            took: self.0.clock.now().since(sent),
            senders: 0,
        }
    }

    /// The call itself, which acts no more from `ends` on.
    pub(super) fn node_call(&self, ops: Vec<Op>, give_up: Moment, ends: Option<Moment>) -> Carried {
        self.carried(&Arc::new(self.in_a_call(ops, give_up, ends)))
    }

    fn in_a_call(&self, ops: Vec<Op>, give_up: Moment, ends: Option<Moment>) -> Call {
        let not_after = self.0.health.not_after(give_up, ends);
        Call { not_after, ops }
    }

    fn carried(&self, call: &Arc<Call>) -> Carried {
        self.0.node.clone().carry(call.clone())
    }

    /// Until `deadline`, at which it is to be looked at.
    async fn in_time(&self, mut deadline: Moment, mut call: Carried) -> Result<Reply, NodeError> {
        let mut late = false;
        poll_fn(|cx| {
            if let Poll::Ready(result) = call.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            let now = self.0.clock.now();
            if now < deadline {
                return Poll::Pending;
            }
            if !late && now.since(deadline) > self.0.timeout / 2 {
                // We were late ourselves, frozen or starved: the answer may have been waiting for us all the time, and
                // giving up every node's connection now would look like the loss of a majority.
                late = true;
                deadline = now + self.0.timeout;
                return Poll::Pending;
            }
            Poll::Ready(Err(NodeError::Timeout(self.0.timeout)))
        })
        .await
    }

    /// Sends what is in the batch as one call, and gives each sender its answer. How long the call took; of several,
    /// the slowest.
    async fn carry(self, mut batch: Vec<Queued>, sent: Moment) -> Done {
        let senders = batch.len();
        let ends = batch.iter().filter_map(|queued| queued.ends).min();
        let taken = |queued: &mut Queued| std::mem::take(&mut queued.ops);
        let ops: Vec<Op> = match &mut batch[..] {
            [only] => taken(only),
            all => {
                let mut ops = Vec::with_capacity(all.iter().map(|queued| queued.count).sum());
                all.iter_mut()
                    .for_each(|queued| ops.append(&mut taken(queued)));
                ops
            }
        };
        let (expected, give_up) = (ops.len(), sent + self.0.timeout);
        let call = Arc::new(self.in_a_call(ops, give_up, ends));
        let carried = self.carried(&call);
        let result = complete(self.in_time(give_up, carried).await, expected);
        let took = self.0.clock.now().since(sent);
        let (took, senders) = match result {
            Err(refused) if senders > 1 && is_about_an_operation(&refused) => (
                took.max(self.each_alone(batch, &call.ops, &refused).await),
                senders,
            ),
            result => {
                self.learn(sent, &result);
                (took, share_out(batch, result))
            }
        };
        Done { took, senders }
    }

    /// After a call that was refused for one of its operations: the batch once more, one sender after the other, as far as
    /// their time allows. What is sent again may have been executed: a script that a server ends midway is not rolled back.
    /// That does no harm, because every operation is compared with what stands there:
    /// - an attempt of this owner finds its own grant; it is refused where its owner has been released since (N4);
    /// - releasing, confirming, breaking, leaving, removing twice is the same as once;
    /// - what has a version, a revision or a nonce is stored once; behind a newer one it is refused or ignored;
    /// - of an extension's round nothing is done a second time, see [`of_a_repeat`].
    async fn each_alone(&self, batch: Vec<Queued>, ops: &[Op], refused: &NodeError) -> Duration {
        let (mut slowest, mut down, mut rest) = (Duration::ZERO, None, ops);
        // A release that is asked for meanwhile passes by what is sent again (N4').
        self.pass_by();
        for queued in batch {
            let (ops, others) = rest.split_at(queued.count.min(rest.len()));
            rest = others;
            let sent = self.0.clock.now();
            let result = match &down {
                Some(trouble) => Err(NodeError::clone(trouble)),
                // Its sender waits for one timeout more, and no longer.
                None if sent >= queued.give_up => Err(refused.clone()),
                None => {
                    let give_up = sent + self.0.timeout;
                    let call = self.node_call(ops.to_vec(), give_up, queued.ends);
                    let answered = self.0.clock.timeout_at(give_up, call).await;
                    let timeout = NodeError::Timeout(self.0.timeout);
                    let result = answered.unwrap_or(Err(timeout));
                    let result = complete(result, ops.len());
                    slowest = slowest.max(self.0.clock.now().since(sent));
                    self.learn(sent, &result);
                    down = result.as_ref().err().filter(|e| e.is_down()).cloned();
                    result.map(|reply| of_a_repeat(ops, reply))
                }
            };
            // It may stand there since the first time, whatever kept it from being repeated.
            let unknown = |trouble: NodeError| match trouble.left_nothing() {
                true => NodeError::Timeout(self.0.timeout),
                false => trouble,
            };
            share_out(vec![queued], result.map_err(unknown));
        }
        slowest
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        // What was under way here is over with it, and no pump is left to send what waits.
        self.0.distrust();
        let mut lane = self.0.lane();
        // The keeper's is not begun anew: what is asked from now on would wait for ever.
        lane.closed |= self.0.0.callers.is_none();
        lane.queue.refuse_all(&ended());
        let alone = lane.alone.as_ref().map(|alone| alone.ops);
        (lane.calls, lane.ops) = alone.map_or((0, 0), |ops| (1, ops));
        (lane.pumped, lane.watched, lane.meets) = (false, false, false);
    }
}
