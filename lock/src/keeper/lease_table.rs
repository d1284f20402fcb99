//! Every lease of the process, and what is due for it: the keeper's decisions, without I/O.
//!
//! # Invariants
//! - K1 A lease whose deadline has passed is never renewed (R8).     (an_expired_lease_is_never_renewed)
//! - K2 One round at a time per lease; a failed one is tried again until the old deadline.  (a_failed_round_is_tried_again_after_its_pause)
//! - K3 Leases that fall due together are renewed together, and what is left of a call is filled with those that come next:
//!   so many leases cost as few calls as there can be, whenever each was acquired.  (due_leases_share_a_round,
//!   a_round_fills_its_calls_with_what_comes_next)
//! - K4 A look costs what has changed or is due, not what is held.     (a_look_costs_what_is_due)

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    freeze::slack,
    ladder::{Facts, Step, step},
};
use crate::{
    clock::Moment,
    lease::{LeaseView, Loss, ReleaseReport},
    node::Record,
    quorum::link::MOST_OPS,
    settings::Timing,
};

/// With a round under way a lease joins it when it is due within this part of its ttl, and there is room in its call.
const EARLY: u32 = 30;

/// The same where a call has places left: half the time between two rounds.
const FILLS: u32 = 6;

/// Every lease of the process.
#[derive(Default)]
pub(crate) struct LeaseTable {
    next_id: u64,
    held: BTreeMap<u64, Held>,
    /// When each lease is to be looked at by itself.
    due: BTreeSet<(Moment, u64)>,
    /// Leases about which something has changed since the last look.
    touched: BTreeSet<u64>,
    /// Whether the replica was unfit at the last look.
    was_unfit: bool,
    /// How many leases have each ttl: as far ahead as the longest says a round looks for leases to take along.
    ttls: BTreeMap<Duration, usize>,
    /// The keeper has panicked: nothing is taken into care any more.
    orphaned: bool,
    /// When the keeper looks next; `None` while nothing but a bell wakes it.
    looks_at: Option<Moment>,
    /// A lease was taken into care since the keeper looked.
    stirred: bool,
    /// How many extensions one call carries, where that is more than [`MOST_OPS`].
    most: usize,
}

/// One lease in the keeper's care.
pub(crate) struct Held {
    pub(crate) view: LeaseView,
    /// The newest body this holder wrote, to bring lagging nodes up to date.
    pub(crate) record: Record,
    /// Of the last write that was begun, whether it counted or not.
    pub(crate) rev: u64,
    renew_at: Moment,
    /// Its place among those that are due.
    due: Moment,
    in_round: bool,
    noticed: Option<Moment>,
    unfit_since: Option<Moment>,
    /// Whether its holder has said that it gives the lease back.
    returned: bool,
    done: Option<oneshot::Sender<ReleaseReport>>,
}

/// What is due now.
#[derive(Default)]
pub(crate) struct Plan {
    /// Leases to renew in one round.
    pub(crate) renew: Vec<(u64, LeaseView)>,
    /// Leases to release on all nodes; they have left the table.
    pub(crate) release: Vec<(LeaseView, Option<oneshot::Sender<ReleaseReport>>)>,
    /// Leases whose work outlives them.
    pub(crate) abort: Vec<LeaseView>,
    /// Leases, among those to release, whose work goes on without them.
    pub(crate) abandon: Vec<LeaseView>,
    /// When to look again.
    pub(crate) wake: Option<Moment>,
    /// How many leases were judged.
    #[cfg(test)]
    looked_at: usize,
}

impl LeaseTable {
    /// Takes a fresh lease into care. Whether the keeper would not look in time and is to be woken; `None` where there is no
    /// keeper any more.
    pub(crate) fn adopt(
        &mut self,
        view: LeaseView,
        record: Record,
        renew_at: Moment,
    ) -> Option<bool> {
        if self.orphaned {
            return None;
        }
        let since = view.since();
        self.next_id += 1;
        view.enter(self.next_id);
        *self.ttls.entry(view.ttl()).or_default() += 1;
        let held = Held {
            view,
            record,
            rev: 0,
            renew_at,
            due: Moment::NEVER,
            in_round: false,
            noticed: None,
            unfit_since: None,
            returned: false,
            done: None,
        };
        self.held.insert(self.next_id, held);
        self.touched.insert(self.next_id);
        self.stirred = true;
        let wakes = self.looks_at.is_none_or(|at| at > renew_at);
        if wakes {
            // It is expected to look now: when it comes late, it was frozen with a lease in its care.
            self.looks_at = Some(since);
        }
        Some(wakes)
    }

    /// The keeper has panicked.
    pub(super) fn orphan(&mut self) {
        self.orphaned = true;
    }

    /// A lease leaves the table.
    fn remove(&mut self, id: u64) -> Option<Held> {
        let held = self.held.remove(&id)?;
        let ttl = held.view.ttl();
        if let Some(count) = self.ttls.get_mut(&ttl) {
            *count -= 1;
            if *count == 0 {
                self.ttls.remove(&ttl);
            }
        }
        Some(held)
    }

    fn longest(&self) -> Duration {
        let longest = self.ttls.last_key_value();
        longest.map_or(Duration::ZERO, |(ttl, _)| *ttl)
    }

    /// When the keeper is to look; `None` while nothing but a bell wakes it.
    pub(crate) fn looks_at(&self) -> Option<Moment> {
        self.looks_at
    }

    /// When the keeper is to look again that has just looked: what has changed meanwhile is looked at at once. It goes on looking
    /// for a while when the last lease has gone: the next one need not wake it then.
    pub(crate) fn rest(&mut self, now: Moment, look_every: Duration) -> Option<Moment> {
        let stirred = std::mem::take(&mut self.stirred);
        self.looks_at = if !self.touched.is_empty() {
            Some(now)
        } else if self.held.is_empty() && !stirred {
            None
        } else {
            let next = self.due.first().map_or(Moment::NEVER, |(at, _)| *at);
            // With leases in care the replica's fitness is looked at often.
            Some(next.min(now + look_every))
        };
        self.looks_at
    }

    /// A holder lets go of a lease: its belief ends, and where no work is left under it (R11) it leaves the table in the same
    /// step. False where the keeper has to judge, when it is handed back.
    pub(crate) fn let_go(&mut self, view: &LeaseView) -> bool {
        let Some(held) = self.find(view) else {
            return false;
        };
        if held.returned || !view.is_held() {
            return false;
        }
        let (id, due) = (view.id(), held.due);
        // The end first: work that begins in this moment finds it, or is found here.
        view.end_unheard(Loss::Released);
        if view.work_in_flight() > 0 {
            return false;
        }
        self.remove(id);
        self.due.remove(&(due, id));
        self.touched.remove(&id);
        true
    }

    /// Its holder gives the lease back; its belief has ended already.
    pub(crate) fn hand_back(
        &mut self,
        view: &LeaseView,
        done: Option<oneshot::Sender<ReleaseReport>>,
    ) {
        view.end_unheard(Loss::Released);
        self.touch(view.id());
        match (self.find(view), done) {
            (Some(held), done) => (held.returned, held.done) = (true, done),
            // It is over and gone already; there is nothing to release.
            (None, Some(done)) => drop(done.send(ReleaseReport { nodes: 0, of: 0 })),
            (None, None) => {}
        }
    }

    /// Something about this lease has changed: it is judged at the next look.
    pub(crate) fn touch(&mut self, id: u64) {
        if self.held.contains_key(&id) {
            self.touched.insert(id);
        }
    }

    pub(crate) fn find(&mut self, view: &LeaseView) -> Option<&mut Held> {
        self.held
            .get_mut(&view.id())
            .filter(|held| held.view.is_same(view))
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Held> {
        self.held.get(&id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Leases with a holder that believes in them, or with work under them.
    pub(crate) fn at_stake(&self) -> impl Iterator<Item = &LeaseView> {
        let views = self.held.values().map(|held| &held.view);
        views.filter(|view| view.is_held() || view.work_in_flight() > 0)
    }

    /// A renewal round has ended; the next one is due at `next`.
    pub(crate) fn round_over(&mut self, id: u64, next: Moment) {
        if let Some(held) = self.held.get_mut(&id) {
            held.in_round = false;
            held.renew_at = next;
            self.touched.insert(id);
        }
    }

    /// The keeper has woken up `late`: leases for which that is too late are in doubt from here on.
    pub(crate) fn doubt(&mut self, late: Duration, now: Moment, timing: &Timing) -> Vec<LeaseView> {
        // Asked each time the keeper wakes, of ten thousand leases: there are few ttls.
        if !self.ttls.keys().any(|ttl| late >= slack(*ttl, timing)) {
            return Vec::new();
        }
        let views = self.held.values().map(|held| &held.view);
        let doubted = views.filter(|view| late >= slack(view.ttl(), timing) && view.is_held());
        doubted.inspect(|view| view.doubt(now)).cloned().collect()
    }

    /// Takes note of how many extensions every node takes in one call now.
    pub(crate) fn carries(&mut self, most: usize) {
        self.most = most;
    }

    fn most(&self) -> usize {
        self.most.max(MOST_OPS)
    }

    /// What is due at `now`, given why the replica is unfit.
    pub(crate) fn plan(
        &mut self,
        now: Moment,
        unfit: Option<&(String, Moment)>,
        timing: &Timing,
    ) -> Plan {
        let mut plan = Plan::default();
        if unfit.is_some() != self.was_unfit {
            self.was_unfit = unfit.is_some();
            self.touched.extend(self.held.keys());
        }
        let mut looked_at = std::mem::take(&mut self.touched);
        let due_by = |at: Moment| ..=(at, u64::MAX);
        looked_at.extend(self.due.range(due_by(now)).map(|(_, id)| *id));
        // One lease must really be due: a pause after a failed round is shorter than what counts as early below, and
        // would be no pause at all.
        let is_due = |id| {
            let held: Option<&Held> = self.held.get(id);
            held.is_some_and(|held| !held.in_round && now >= held.renew_at)
        };
        let round = looked_at.iter().any(is_due);
        if round {
            // No more than one call carries: thousands at one moment would keep everything else waiting.
            let room = self.most().saturating_sub(looked_at.len());
            let early = self.due.range(due_by(now + self.longest() / EARLY));
            looked_at.extend(early.take(room).map(|(_, id)| *id));
        }
        for id in looked_at {
            self.look(id, (now, unfit, timing), round.then_some(EARLY), &mut plan);
        }
        let room = plan.renew.len().next_multiple_of(self.most()) - plan.renew.len();
        let next: Vec<u64> = self
            .due
            .range(due_by(now + self.longest() / FILLS))
            .take(room)
            .map(|(_, id)| *id)
            .collect();
        for id in next {
            self.look(id, (now, unfit, timing), Some(FILLS), &mut plan);
        }
        plan.wake = self.due.first().map(|(at, _)| *at);
        plan
    }

    /// Judges one lease. With a round under way it takes part when it is due within this part of its ttl.
    fn look(
        &mut self,
        id: u64,
        (now, unfit, timing): (Moment, Option<&(String, Moment)>, &Timing),
        early: Option<u32>,
        plan: &mut Plan,
    ) {
        let Some(held) = self.held.get_mut(&id) else {
            return;
        };
        self.due.remove(&(held.due, id));
        #[cfg(test)]
        {
            plan.looked_at += 1;
        }
        let step = held.judge(now, unfit, timing);
        match step {
            Step::Abort => plan.abort.push(held.view.clone()),
            // Which caller waits for the report is known from the note alone, which a note of another thread may still hold up.
            Step::LetGo if !held.returned && held.view.loss() == Some(Loss::Released) => {}
            Step::LetGo | Step::Abandon => {
                if step == Step::Abandon {
                    plan.abandon.push(held.view.clone());
                }
                let why = held.view.cordoned().map_or(Loss::Released, Loss::Unfit);
                held.view.end(why);
                plan.release.push((held.view.clone(), held.done.take()));
                self.remove(id);
                return;
            }
            // A little early is better than a round of its own.
            Step::Keep | Step::CancelAndKeep if held.joins(now, early) => {
                held.in_round = true;
                plan.renew.push((id, held.view.clone()));
            }
            Step::Keep | Step::CancelAndKeep | Step::RunDown => {}
        }
        let renews = matches!(step, Step::Keep | Step::CancelAndKeep);
        held.due = held.next_look(now, renews, timing);
        if held.due < Moment::NEVER {
            self.due.insert((held.due, id));
        }
    }
}

// === impl Held ===

impl Held {
    /// Whether it takes part in a round that is under way now.
    fn joins(&self, now: Moment, early: Option<u32>) -> bool {
        let due = |early| now + self.view.ttl() / early >= self.renew_at;
        !self.in_round && early.is_some_and(due)
    }

    /// Takes note of what has happened to the lease, and judges it.
    fn judge(&mut self, now: Moment, unfit: Option<&(String, Moment)>, timing: &Timing) -> Step {
        let view = &self.view;
        if let Some((why, _)) = unfit {
            view.cordon(why);
        }
        if self.unfit_since.is_none() && view.cordoned().is_some() {
            self.unfit_since = Some(now);
        }
        let abort_margin = timing.abort_margin(view.ttl());
        if now >= view.deadline() && self.noticed.is_none() {
            // Seen in time it is seen within a timer's delay; later than that we were frozen.
            let late = now.since(view.deadline());
            self.noticed = Some(if late < slack(view.ttl(), timing) {
                view.deadline()
            } else {
                now
            });
            view.end(Loss::Expired);
        }
        let facts = Facts {
            unfit_since: self.unfit_since,
            working: view.work_in_flight() > 0,
            believed: view.loss().is_none(),
            deadline: view.deadline(),
            noticed: self.noticed,
            grace: self.grace(timing),
            abort_margin,
            unstoppable: view.stop_policy().unstoppable,
        };
        step(&facts, now)
    }

    /// When to look at the lease again, if nothing changes before.
    fn next_look(&self, now: Moment, renews: bool, timing: &Timing) -> Moment {
        let abort_margin = timing.abort_margin(self.view.ttl());
        let deadline = self.view.deadline();
        let never = Moment::NEVER;
        let candidates = [
            deadline,
            deadline.back(abort_margin),
            self.noticed.map_or(never, |n| n + abort_margin),
            self.unfit_since
                .map_or(never, |since| since + self.grace(timing)),
            if renews && !self.in_round {
                self.renew_at
            } else {
                never
            },
        ];
        let ahead = candidates.into_iter().filter(|at| *at > now);
        ahead.min().unwrap_or(never)
    }

    fn grace(&self, timing: &Timing) -> Duration {
        self.view.stop_policy().grace.unwrap_or(timing.grace)
    }
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
        lease::{KeeperHandle, NewLease},
        node::{Kind, Token},
    };

    /// Long enough that nothing ends while the test runs.
    const TTL: Duration = Duration::from_secs(300);

    /// A table with leases that are due so long after now.
    fn table(due_in: &[Duration]) -> (LeaseTable, Moment) {
        let clock = Clock::system();
        let now = clock.now();
        let mut table = LeaseTable::default();
        for (i, due_in) in due_in.iter().enumerate() {
            let grant = NewLease {
                key: format!("job/{i}"),
                owner: i.to_string(),
                token: Token(1),
                kind: Kind::Lock,
                ttl: TTL,
                valid_until: now + TTL,
                margin: 0,
                granted_by: Box::default(),
            };
            let view = LeaseView::new(grant, clock.clone(), KeeperHandle::detached());
            table.adopt(view, Record::default(), now + *due_in);
        }
        (table, now)
    }

    fn renewed(table: &mut LeaseTable, at: Moment) -> Vec<u64> {
        let plan = table.plan(at, None, &Timing::default());
        plan.renew.into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn an_expired_lease_is_never_renewed() {
        let (mut table, now) = table(&[Duration::ZERO, Duration::ZERO]);
        let _work = table.get(2).unwrap().view.begin_work();
        let plan = table.plan(now + TTL, None, &Timing::default());
        assert!(plan.renew.is_empty(), "with or without work under it");
        assert_eq!(plan.release.len(), 1, "the one without work is let go");
        assert!(renewed(&mut table, now + TTL + Duration::from_millis(1)).is_empty());
    }

    #[test]
    fn a_lease_that_was_given_back_is_let_go_when_its_note_has_come() {
        let (mut table, now) = table(&[TTL]);
        let view = table.get(1).unwrap().view.clone();
        view.end_unheard(Loss::Released);
        let plan = table.plan(now, None, &Timing::default());
        assert!(
            plan.release.is_empty(),
            "its holder may wait for the report"
        );
        table.hand_back(&view, Some(oneshot::channel().0));
        let plan = table.plan(now, None, &Timing::default());
        assert!(matches!(&plan.release[..], [(_, Some(_))]));
    }

    #[test]
    fn due_leases_share_a_round() {
        let (mut table, now) = table(&[Duration::ZERO, TTL / EARLY, TTL / 4]);
        assert_eq!(renewed(&mut table, now), [1, 2]);
        assert!(renewed(&mut table, now).is_empty(), "one round at a time");
    }

    #[test]
    fn a_round_fills_its_calls_with_what_comes_next() {
        // Acquired one after the other: over a tenth of the ttl, which is a third of the time between two rounds.
        let all = 1_000;
        let due_in: Vec<_> = (0..all).map(|i| TTL / 10 * i / all).collect();
        let (mut table, now) = table(&due_in);
        let timing = Timing::default();
        let (mut at, mut calls) = (now, Vec::new());
        while at.since(now) < TTL * 2 / 3 {
            let plan = table.plan(at, None, &timing);
            if !plan.renew.is_empty() {
                calls.push((at, plan.renew.len()));
            }
            for (id, view) in plan.renew {
                table.round_over(id, next_renewal(at, view.ttl(), &timing, Duration::ZERO));
            }
            at = table.plan(at, None, &timing).wake.unwrap();
        }
        let round = calls.iter().filter(|(at, _)| at.since(now) >= TTL / 3);
        let sizes: Vec<usize> = round.map(|(_, leases)| *leases).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 1_000, "{sizes:?}");
        let calls: usize = sizes.iter().map(|leases| leases.div_ceil(MOST_OPS)).sum();
        assert_eq!(calls, 4, "{sizes:?}");
    }

    /// A round of thousands would keep the writes of everything else waiting.
    #[test]
    fn thousands_of_leases_are_renewed_one_call_at_a_time() {
        let all = 10_000;
        for (told, most, least_rounds) in [(0, MOST_OPS, 25), (2 * MOST_OPS, 2 * MOST_OPS, 12)] {
            let due_in: Vec<_> = (0..all).map(|i| TTL / 3 * i / all).collect();
            let (mut table, now) = table(&due_in);
            table.carries(told);
            let timing = Timing::default();
            let (mut at, mut sizes) = (now, Vec::new());
            while at.since(now) < TTL / 4 {
                let plan = table.plan(at, None, &timing);
                sizes.push(plan.renew.len());
                at = plan.wake.unwrap().max(at + Duration::from_millis(1));
            }
            // The first is of leases that are new.
            let rounds: Vec<usize> = sizes.into_iter().skip(1).filter(|size| *size > 0).collect();
            assert!(rounds.iter().all(|size| *size == most), "{rounds:?}");
            assert!(rounds.len() >= least_rounds, "{}", rounds.len());
        }
    }

    #[test]
    fn a_look_costs_what_is_due() {
        let (mut table, now) = table(&vec![TTL / 3; 10_000]);
        let timing = Timing::default();
        let looked_at = |table: &mut LeaseTable, at| table.plan(at, None, &timing).looked_at;
        assert_eq!(looked_at(&mut table, now), 10_000, "all are new");
        assert_eq!(looked_at(&mut table, now), 0);
        table.touch(77);
        assert_eq!(looked_at(&mut table, now), 1);
        assert_eq!(table.plan(now, None, &timing).wake, Some(now + TTL / 3));
        let view = table.get(5).unwrap().view.clone();
        assert_eq!(table.find(&view).unwrap().view.key(), "job/4");
    }

    #[test]
    fn a_long_lease_that_is_gone_costs_no_look() {
        let (mut table, now) = table(&[TTL / 2; 100]);
        let (timing, short) = (Timing::default(), TTL / 100);
        let lease = |table: &mut LeaseTable, n: u64, ttl, due_in| {
            let grant = NewLease {
                key: n.to_string(),
                owner: n.to_string(),
                token: Token(n),
                kind: Kind::Lock,
                ttl,
                valid_until: now + ttl,
                margin: 0,
                granted_by: Box::default(),
            };
            let view = LeaseView::new(grant, Clock::system(), KeeperHandle::detached());
            table.adopt(view.clone(), Record::default(), now + due_in);
            view
        };
        let long = lease(&mut table, 1_000, TTL * 60, TTL);
        lease(&mut table, 1_001, short, Duration::ZERO);
        table.plan(now, None, &timing);
        assert_eq!(table.longest(), TTL * 60);
        let looked_at = |table: &mut LeaseTable| {
            table.round_over(102, now);
            table.plan(now, None, &timing).looked_at
        };
        assert!(looked_at(&mut table) > 100, "all that are due before long");
        assert!(table.let_go(&long));
        assert_eq!(table.longest(), TTL);
        assert!(
            looked_at(&mut table) < 3,
            "itself, and again to fill a call"
        );
    }

    #[test]
    fn a_keeper_that_looks_soon_is_not_woken_for_a_lease_of_a_moment() {
        let (mut table, now) = table(&[]);
        let (timing, every) = (Timing::default(), Duration::from_millis(100));
        let view = |n: u64| {
            let grant = NewLease {
                key: n.to_string(),
                owner: n.to_string(),
                token: Token(n),
                kind: Kind::Lock,
                ttl: TTL,
                valid_until: now + TTL,
                margin: 0,
                granted_by: Box::default(),
            };
            LeaseView::new(grant, Clock::system(), KeeperHandle::detached())
        };
        let adopt = |table: &mut LeaseTable, view: &LeaseView, renew_at| {
            table.adopt(view.clone(), Record::default(), renew_at)
        };
        let look = |table: &mut LeaseTable, now| {
            table.plan(now, None, &timing);
            table.rest(now, every)
        };
        assert_eq!(look(&mut table, now), None, "there is nothing to look at");
        let first = view(1);
        assert_eq!(adopt(&mut table, &first, now + TTL), Some(true));
        assert_eq!(look(&mut table, now), Some(now + every));
        assert!(table.let_go(&first) && !first.is_held());
        assert!(!table.let_go(&first), "once");
        let second = view(2);
        assert_eq!(adopt(&mut table, &second, now + TTL), Some(false));
        let before = adopt(&mut table, &view(3), now + every / 2);
        assert_eq!(before, Some(true), "due before");
        assert_eq!(table.rest(now, every), Some(now), "both came since");
        let work = second.begin_work();
        assert!(!table.let_go(&second), "the keeper has to judge");
        assert!(!second.is_held() && table.find(&second).is_some());
        drop(work);
    }

    #[test]
    fn a_keeper_that_rests_is_expected_to_look_when_a_lease_comes() {
        let (mut table, now) = table(&[]);
        let every = Duration::from_millis(100);
        assert_eq!(table.rest(now, every), None);
        let grant = NewLease {
            key: "k".into(),
            owner: "me".into(),
            token: Token(1),
            kind: Kind::Lock,
            ttl: TTL,
            valid_until: now + TTL,
            margin: 0,
            granted_by: Box::default(),
        };
        let view = LeaseView::new(grant, Clock::system(), KeeperHandle::detached());
        let wakes = table.adopt(view.clone(), Record::default(), now + TTL / 3);
        assert_eq!(wakes, Some(true));
        assert_eq!(table.looks_at(), Some(view.since()));
        // Stopped before it could look.
        let thawed = view.since() + TTL / 4;
        let late = super::super::freeze::lateness(table.looks_at(), thawed);
        assert_eq!(table.doubt(late, thawed, &Timing::default()).len(), 1);
        assert!(view.in_doubt());
    }

    #[test]
    fn a_failed_round_is_tried_again_after_its_pause() {
        let pause = Duration::from_millis(40);
        let (mut table, now) = table(&[Duration::ZERO, TTL]);
        assert_eq!(renewed(&mut table, now), [1]);
        table.round_over(1, now + pause);
        assert!(renewed(&mut table, now).is_empty(), "no busy loop");
        assert_eq!(
            table.plan(now, None, &Timing::default()).wake,
            Some(now + pause)
        );
        assert_eq!(renewed(&mut table, now + pause), [1]);
    }
}
