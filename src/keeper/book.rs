//! Every lease of the process, and what is due for it: the keeper's decisions, without I/O.
//!
//! # Invariants
//! - K1 A lease whose deadline has passed is never renewed (R8).     (an_expired_lease_is_never_renewed)
//! - K2 One round at a time per lease; a failed one is tried again until the old deadline.  (a_failed_round_is_tried_again_after_its_pause)
//! - K3 Leases that fall due together are renewed together.          (due_leases_share_a_round)

use std::{collections::BTreeMap, time::Duration};

use tokio::sync::oneshot;

use super::ladder::{Facts, Rung, rung};
use crate::{
    clock::Moment,
    lease::{LeaseView, Loss, ReleaseReport},
    lock::Timing,
    node::Record,
};

/// Every lease of the process.
#[derive(Default)]
pub(crate) struct Book {
    next_id: u64,
    held: BTreeMap<u64, Held>,
}

/// One lease in the keeper's care.
pub(crate) struct Held {
    pub(crate) view: LeaseView,
    /// The newest body this holder wrote, to bring lagging nodes up to date.
    pub(crate) record: Record,
    /// Of the last write that was begun, whether it counted or not.
    pub(crate) rev: u64,
    renew_at: Moment,
    in_round: bool,
    noticed: Option<Moment>,
    unfit_since: Option<Moment>,
    handed_back: bool,
    done: Option<oneshot::Sender<ReleaseReport>>,
}

/// What is due now.
#[derive(Default)]
pub(crate) struct Plan {
    /// Leases to renew in one round.
    pub(crate) renew: Vec<(u64, LeaseView)>,
    /// Leases to release on all nodes; they have left the book.
    pub(crate) release: Vec<(LeaseView, Option<oneshot::Sender<ReleaseReport>>)>,
    /// Leases whose work outlives them.
    pub(crate) abort: Vec<LeaseView>,
    /// When to look again.
    pub(crate) wake: Option<Moment>,
}

impl Book {
    /// Takes a fresh lease into care.
    pub(crate) fn adopt(&mut self, view: LeaseView, record: Record, renew_at: Moment) {
        self.next_id += 1;
        let held = Held {
            view,
            record,
            rev: 0,
            renew_at,
            in_round: false,
            noticed: None,
            unfit_since: None,
            handed_back: false,
            done: None,
        };
        self.held.insert(self.next_id, held);
    }

    /// Its holder gives the lease back; its belief has ended already.
    pub(crate) fn hand_back(
        &mut self,
        view: &LeaseView,
        done: Option<oneshot::Sender<ReleaseReport>>,
    ) {
        let held = self.held.values_mut().find(|h| h.view.is_same(view));
        match (held, done) {
            (Some(held), done) => (held.handed_back, held.done) = (true, done),
            // It is over and gone already; there is nothing to release.
            (None, Some(done)) => drop(done.send(ReleaseReport { nodes: 0, of: 0 })),
            (None, None) => {}
        }
    }

    pub(crate) fn find(&mut self, view: &LeaseView) -> Option<&mut Held> {
        self.held.values_mut().find(|h| h.view.is_same(view))
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Held> {
        self.held.get(&id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// A renewal round has ended; the next one is due at `next`.
    pub(crate) fn round_over(&mut self, id: u64, next: Moment) {
        if let Some(held) = self.held.get_mut(&id) {
            held.in_round = false;
            held.renew_at = next;
        }
    }

    /// What is due at `now`, given why the replica is unfit.
    pub(crate) fn plan(
        &mut self,
        now: Moment,
        unfit: Option<&(String, Moment)>,
        timing: &Timing,
    ) -> Plan {
        let mut plan = Plan::default();
        let mut gone = Vec::new();
        // One lease must really be due: a pause after a failed round is shorter than what counts as early below, and
        // would be no pause at all.
        let round = self
            .held
            .values()
            .any(|held| !held.in_round && now >= held.renew_at);
        for (id, held) in &mut self.held {
            let view = &held.view;
            let ttl = view.ttl();
            if let Some((why, _)) = unfit {
                view.cordon(why);
            }
            if held.unfit_since.is_none() && view.cordoned().is_some() {
                held.unfit_since = Some(now);
            }
            if now >= view.deadline() && held.noticed.is_none() {
                // Seen in time it is seen within a timer's delay; later than that we were frozen.
                let late = now.since(view.deadline());
                held.noticed = Some(if late < timing.abort_margin(ttl) / 2 {
                    view.deadline()
                } else {
                    now
                });
                view.end(Loss::Expired);
            }
            let facts = Facts {
                unfit_since: held.unfit_since,
                working: view.work_in_flight() > 0,
                believed: view.loss().is_none(),
                deadline: view.deadline(),
                noticed: held.noticed,
                grace: timing.grace,
                abort_margin: timing.abort_margin(ttl),
            };
            match rung(&facts, now) {
                Rung::Abort => plan.abort.push(view.clone()),
                Rung::LetGo => {
                    let why = view.cordoned().map_or(Loss::Released, Loss::Unfit);
                    view.end(why);
                    plan.release.push((view.clone(), held.done.take()));
                    gone.push(*id);
                    continue;
                }
                Rung::Keep | Rung::CancelAndKeep if !held.in_round => {
                    // A little early is better than a round of its own.
                    if round && now + ttl / 30 >= held.renew_at {
                        held.in_round = true;
                        plan.renew.push((*id, view.clone()));
                    } else {
                        earlier(&mut plan.wake, held.renew_at);
                    }
                }
                Rung::Keep | Rung::CancelAndKeep | Rung::RunDown => {}
            }
            for at in [
                view.deadline(),
                view.deadline().back(facts.abort_margin),
                held.noticed
                    .map_or(Moment::NEVER, |n| n + facts.abort_margin),
                held.unfit_since
                    .map_or(Moment::NEVER, |since| since + timing.grace),
            ] {
                if at > now {
                    earlier(&mut plan.wake, at);
                }
            }
        }
        for id in gone {
            self.held.remove(&id);
        }
        plan
    }
}

fn earlier(wake: &mut Option<Moment>, at: Moment) {
    *wake = Some(wake.map_or(at, |w| w.min(at)));
}

/// When the next renewal is due: a third of the ttl after the last round began, a little early, never late.
pub(crate) fn next_renewal(
    start: Moment,
    ttl: Duration,
    timing: &Timing,
    early: Duration,
) -> Moment {
    (start + timing.renew_every(ttl)).back(early)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Clock,
        lease::NewLease,
        node::{Kind, Token},
    };

    /// Long enough that nothing ends while the test runs.
    const TTL: Duration = Duration::from_secs(300);

    /// A book with leases that are due so long after now.
    fn book(due_in: &[Duration]) -> (Book, Moment) {
        let clock = Clock::system();
        let now = clock.now();
        let mut book = Book::default();
        for (i, due_in) in due_in.iter().enumerate() {
            let grant = NewLease {
                key: format!("job/{i}"),
                owner: i.to_string(),
                token: Token(1),
                kind: Kind::Lock,
                ttl: TTL,
                valid_until: now + TTL,
                margin: 0,
            };
            let view = LeaseView::new(grant, clock.clone());
            book.adopt(view, Record::default(), now + *due_in);
        }
        (book, now)
    }

    fn renewed(book: &mut Book, at: Moment) -> Vec<u64> {
        let plan = book.plan(at, None, &Timing::default());
        plan.renew.into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn an_expired_lease_is_never_renewed() {
        let (mut book, now) = book(&[Duration::ZERO, Duration::ZERO]);
        let _work = book.get(2).unwrap().view.begin_work();
        let plan = book.plan(now + TTL, None, &Timing::default());
        assert!(
            plan.renew.is_empty(),
            "whether anybody works under it or not"
        );
        assert_eq!(plan.release.len(), 1, "the one without work is let go");
        assert!(renewed(&mut book, now + TTL + Duration::from_millis(1)).is_empty());
    }

    #[test]
    fn due_leases_share_a_round() {
        let early = TTL / 30;
        let (mut book, now) = book(&[Duration::ZERO, early, early * 3]);
        assert_eq!(renewed(&mut book, now), [1, 2]);
        assert!(renewed(&mut book, now).is_empty(), "one round at a time");
    }

    #[test]
    fn a_failed_round_is_tried_again_after_its_pause() {
        let pause = Duration::from_millis(40);
        let (mut book, now) = book(&[Duration::ZERO, TTL]);
        assert_eq!(renewed(&mut book, now), [1]);
        book.round_over(1, now + pause);
        assert!(renewed(&mut book, now).is_empty(), "no busy loop");
        assert_eq!(
            book.plan(now, None, &Timing::default()).wake,
            Some(now + pause)
        );
        assert_eq!(renewed(&mut book, now + pause), [1]);
    }
}
