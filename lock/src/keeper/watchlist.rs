//! Locks that this process may want: looked at all the time, whether a candidate looks at them or not.
//!
//! With observed expiry a dead holder's lock may be taken once its record was watched standing still for its ttl. A candidate
//! watches while it campaigns. A replica that is no candidate just now (the spare one of a failover fleet, one that is unfit or
//! stands back) would begin to watch when it becomes one, and would take over a ttl too late. So everything that may be needed
//! is listed here, and the keeper looks at what no candidate looks at: all of it that is due in one call per node.
//!
//! The list also remembers when the holder of each lock last gave a sign of life. From that its successor reckons for
//! how long there was no leader.
//!
//! # Invariants
//! - W1 What is listed is looked at just after each expected sign of life.   (what_is_listed_is_looked_at_after_each_renewal)
//! - W2 What a candidate looks at is not looked at once more, nor what this process holds.
//!   (what_others_look_at_costs_nothing_more, what_is_held_here_is_not_looked_at)
//! - W3 What is due soon goes along with any look, and what is free with the rest: so all that one process watches of another
//!   costs one call per renewal and node.   (what_is_free_is_looked_at_with_the_rest,
//!   a_failover_standby_asks_no_more_than_a_candidate)
//! - W4 What others watch may be looked at rarely, at a pace that its lister names, while it is free or shows a living holder.
//!   Anything else is looked at as closely as ever.   (what_others_watch_is_looked_at_rarely_while_its_holder_lives)
//! # Not promised  Nothing here makes a lock takable: the nodes compare, as for every other watcher (O1, O2).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    clock::{Clock, Moment},
    expiry::{LockState, together},
    node::tag::tag_of,
};

/// What is due within this part of its ttl goes along: a little more than the list is [`behind`] candidates that look
/// by themselves.
const SOON: u32 = 30;

/// Locks that this process may want.
#[derive(Default)]
pub(crate) struct Watchlist {
    listed: Mutex<Listed>,
    /// Something is due sooner than was known.
    bell: Notify,
}

/// Told of what the nodes show of a lock.
type Shows = Arc<dyn Fn(&LockState) + Send + Sync>;

/// How long a lock that is free, or whose holder lives, is left alone; `None` for as long as the next sign of life takes.
type Pace = Arc<dyn Fn() -> Option<Duration> + Send + Sync>;

/// Keeps a lock on the list as long as it lives.
#[doc(hidden)] // for the worker
pub struct Watching {
    list: Arc<Watchlist>,
    key: Arc<str>,
}

#[derive(Default)]
struct Listed {
    /// What owner values of this process end with.
    tag: Option<String>,
    by_key: BTreeMap<Arc<str>, Entry>,
    due: BTreeSet<(Moment, Arc<str>)>,
    /// The longest ttl there ever was.
    longest: Duration,
}

/// One lock.
struct Entry {
    watchers: usize,
    /// What a lease of ours would have.
    ttl: Duration,
    /// When to look, unless another part of this process has looked by then.
    due: Moment,
    /// It is free, as far as is known.
    free: bool,
    /// The owner value of this process' own lease.
    held_here: Option<String>,
    /// The last holder that a majority showed.
    last: Option<Holder>,
    /// Told of every state that was seen.
    shows: Option<Shows>,
    pace: Option<Pace>,
    /// It is left alone for as long as its pace said.
    rarely: bool,
}

/// A holder, as it was seen.
struct Holder {
    owner: String,
    ttl: Duration,
    /// Its last sign of life: a renewal, by the life that is left of the key.
    alive: Moment,
    /// When it was known to be over: it has released the lock.
    over: Option<Moment>,
}

// === impl Watchlist ===

impl Watchlist {
    /// Of a process whose owner values have this tag.
    pub(crate) fn of(tag: Option<String>) -> Self {
        let listed = Listed {
            tag,
            ..Listed::default()
        };
        Self {
            listed: Mutex::new(listed),
            bell: Notify::new(),
        }
    }

    /// Lists a lock. What is listed twice is on the list until both guards are gone.
    pub(crate) fn watch(self: &Arc<Self>, key: &str, ttl: Duration, now: Moment) -> Watching {
        let key: Arc<str> = key.into();
        self.change(|listed| listed.add(&key, ttl, now));
        let list = self.clone();
        Watching { list, key }
    }

    /// The pace of some locks may be another now: what is to be looked at all the time again is looked at soon.
    pub(crate) fn anew(&self, now: Moment) {
        let rarely = self.listed().rarely();
        // Outside the lock of the list, for which the keeper would have to wait: there may be a hundred thousand of them.
        let closer = rarely.into_iter().filter(|(_, pace)| pace().is_none());
        let closer: Vec<Arc<str>> = closer.map(|(key, _)| key).collect();
        if !closer.is_empty() {
            self.change(|listed| listed.look_closer(&closer, now));
        }
    }

    /// What is due, or nearly: to be looked at with whatever else is.
    pub(super) fn take_due(&self, now: Moment) -> Vec<String> {
        self.listed().take_due(now)
    }

    /// Takes note of what a majority of the nodes shows of these locks, whichever part of the process asked.
    pub(super) fn saw(&self, seen: &[LockState], now: Moment) {
        self.change(|listed| seen.iter().for_each(|seen| listed.saw(seen, now)));
        // Outside the lock of the list: the function that is told may want to list something.
        let told = |seen: &LockState| self.listed().by_key.get(&*seen.key)?.shows.clone();
        for seen in seen {
            if let Some(shows) = told(seen) {
                shows(seen);
            }
        }
    }

    /// A release was announced: where a candidate waits for it, of this process or another. Otherwise the next look shows it.
    pub(super) fn heard(&self, key: &str, owner: &str, now: Moment) {
        self.change(|listed| listed.heard(key, owner, now));
    }

    /// This process has acquired the lock.
    pub(super) fn taken(&self, key: &str, owner: &str) {
        self.change(|listed| listed.taken(key, owner));
    }

    /// A lease of this process has ended.
    pub(super) fn given_back(&self, key: &str, owner: &str, now: Moment) {
        self.change(|listed| listed.given_back(key, owner, now));
    }

    /// Since when the lock has been free, if its last holder is over: since its release, or since the middle between
    /// its last sign of life and the first that did not come. When it died cannot be known better.
    pub(super) fn vacant_since(&self, key: &str) -> Option<Moment> {
        let listed = self.listed();
        listed.by_key.get(key)?.last.as_ref().map(Holder::gone_at)
    }

    /// Waits until something is due.
    pub(super) async fn due(&self, clock: &Clock) {
        loop {
            let next = self.listed().next();
            tokio::select! {
                biased;
                () = self.bell.notified() => {}
                () = clock.sleep_until(next), if next < Moment::NEVER => return,
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Listed)) {
        let mut listed = self.listed();
        let before = listed.next();
        change(&mut listed);
        if listed.next() < before {
            self.bell.notify_one();
        }
    }

    fn listed(&self) -> MutexGuard<'_, Listed> {
        // The list is changed by short, complete steps.
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watching {
    /// Tells `to` of all that the nodes show of the lock, whichever part of the process has looked, as long as it is
    /// listed.
    #[doc(hidden)] // for the worker
    pub fn showing(self, to: impl Fn(&LockState) + Send + Sync + 'static) -> Self {
        if let Some(entry) = self.list.listed().by_key.get_mut(&self.key) {
            entry.shows = Some(Arc::new(to));
        }
        self
    }

    /// Looks at the lock as rarely as `pace` says while it is free, or shows a living holder. Asked with every look, and when
    /// the list is told that it may have changed.
    #[doc(hidden)] // for the worker
    pub fn at_pace(self, pace: impl Fn() -> Option<Duration> + Send + Sync + 'static) -> Self {
        if let Some(entry) = self.list.listed().by_key.get_mut(&self.key) {
            entry.pace = Some(Arc::new(pace));
        }
        self
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.list.listed().remove(&self.key);
    }
}

// === impl Listed ===

impl Listed {
    fn add(&mut self, key: &Arc<str>, ttl: Duration, now: Moment) {
        if let Some(entry) = self.by_key.get_mut(key) {
            entry.watchers += 1;
            return;
        }
        self.longest = self.longest.max(ttl);
        let entry = Entry {
            watchers: 1,
            ttl,
            due: Moment::NEVER,
            free: false,
            held_here: None,
            last: None,
            shows: None,
            pace: None,
            rarely: false,
        };
        self.by_key.insert(key.clone(), entry);
        self.look_at(key, behind(now, ttl));
    }

    fn remove(&mut self, key: &Arc<str>) {
        let Some(entry) = self.by_key.get_mut(key) else {
            return;
        };
        entry.watchers -= 1;
        if entry.watchers == 0 {
            self.due.remove(&(entry.due, key.clone()));
            self.by_key.remove(key);
        }
    }

    fn look_at(&mut self, key: &str, due: Moment) {
        let Some((key, _)) = self.by_key.get_key_value(key) else {
            return;
        };
        let key = key.clone();
        if let Some(entry) = self.by_key.get_mut(&key) {
            self.due.remove(&(entry.due, key.clone()));
            entry.due = due;
            if due < Moment::NEVER {
                self.due.insert((due, key));
            }
        }
    }

    /// When the next look is due.
    fn next(&self) -> Moment {
        self.due.first().map_or(Moment::NEVER, |(at, _)| *at)
    }

    /// What is to be looked at now, or would be in the next call, and with it what is free.
    fn take_due(&mut self, now: Moment) -> Vec<String> {
        if self.next() > now + self.longest / SOON {
            return Vec::new();
        }
        let soon = |entry: &Entry| entry.due <= now + entry.ttl / SOON;
        if !self.by_key.values().any(soon) {
            return Vec::new();
        }
        let idle = |entry: &Entry| entry.free && entry.held_here.is_none() && !entry.rarely;
        let wanted = |entry: &Entry| soon(entry) || idle(entry);
        let due = self.by_key.iter().filter(|(_, entry)| wanted(entry));
        let due: Vec<(Arc<str>, Duration)> = due.map(|(k, entry)| (k.clone(), entry.ttl)).collect();
        for (key, ttl) in &due {
            // Should the look fail.
            self.look_at(key, now + *ttl / 4);
        }
        due.into_iter().map(|(key, _)| (*key).to_owned()).collect()
    }

    fn saw(&mut self, seen: &LockState, now: Moment) {
        let Some(entry) = self.by_key.get_mut(&*seen.key) else {
            return;
        };
        if entry.held_here.is_some() {
            return;
        }
        // Not held here, it is an attempt that was lost, and that a late node has granted all the same: no holder.
        let is_lost = |owner: &str| self.tag.is_some() && tag_of(owner) == self.tag.as_deref();
        match seen.alive(now) {
            Some((owner, ttl, alive)) => match &mut entry.last {
                Some(last) if last.owner == owner => {
                    // One node had forgotten it, and announced that as a release.
                    let lives = |over: &Moment| alive.is_some_and(|alive| alive > *over);
                    last.over = last.over.filter(|over| !lives(over));
                    last.alive = alive.map_or(last.alive, |alive| alive.max(last.alive));
                }
                _ if is_lost(&owner) => {}
                _ => {
                    // Dead for a ttl when it is first seen, at least.
                    let alive = alive.unwrap_or_else(|| now.back(ttl));
                    entry.last = Some(Holder {
                        owner,
                        ttl,
                        alive,
                        over: None,
                    });
                }
            },
            None => {
                if let Some(last) = &mut entry.last
                    && seen.shows_over(&last.owner)
                    // Nothing of it may be left because of such an attempt, which says not when it ended.
                    && (seen.owners().any(|owner| owner == last.owner) || !seen.owners().any(is_lost))
                {
                    last.over.get_or_insert(now);
                }
            }
        }
        entry.free = seen.looks_free();
        let left_alone = match entry.free || seen.shows_life() {
            true => entry.left_alone(),
            false => None,
        };
        entry.rarely = left_alone.is_some();
        let due = match left_alone {
            Some(pause) => together(now + pause, pause),
            None if entry.free => now + entry.ttl / 2,
            None => {
                let poll = entry.ttl / 2;
                let pause = seen.look_in().map_or(poll, |look| look.min(poll));
                behind(now + pause, entry.ttl)
            }
        };
        self.look_at(&seen.key, due);
    }

    /// What is looked at rarely, with its pace.
    fn rarely(&self) -> Vec<(Arc<str>, Pace)> {
        let rarely = self.by_key.iter().filter(|(_, entry)| entry.rarely);
        let paced = rarely.filter_map(|(key, entry)| Some((key.clone(), entry.pace.clone()?)));
        paced.collect()
    }

    fn look_closer(&mut self, keys: &[Arc<str>], now: Moment) {
        for key in keys {
            let Some(entry) = self.by_key.get_mut(key).filter(|entry| entry.rarely) else {
                continue;
            };
            entry.rarely = false;
            let ttl = entry.ttl;
            self.look_at(key, behind(now, ttl));
        }
    }

    fn heard(&mut self, key: &str, owner: &str, now: Moment) {
        let last = self.by_key.get_mut(key).and_then(|e| e.last.as_mut());
        if let Some(last) = last.filter(|last| last.owner == owner) {
            last.over.get_or_insert(now);
        }
    }

    fn taken(&mut self, key: &str, owner: &str) {
        if let Some(entry) = self.by_key.get_mut(key) {
            (entry.held_here, entry.last) = (Some(owner.to_owned()), None);
            self.look_at(key, Moment::NEVER);
        }
    }

    fn given_back(&mut self, key: &str, owner: &str, now: Moment) {
        let of_now = |entry: &&mut Entry| entry.held_here.as_deref() == Some(owner);
        // The one before may be released late.
        if let Some(entry) = self.by_key.get_mut(key).filter(of_now) {
            entry.held_here = None;
            entry.last = Some(Holder {
                owner: owner.to_owned(),
                ttl: entry.ttl,
                alive: now,
                over: Some(now),
            });
            let due = behind(now + entry.ttl / 4, entry.ttl);
            self.look_at(key, due);
        }
    }
}

/// A little later than a candidate looks that wants to look at `at`: its look serves the list, too.
fn behind(at: Moment, ttl: Duration) -> Moment {
    together(at, ttl) + ttl / 40
}

// === impl Entry ===

impl Entry {
    fn left_alone(&self) -> Option<Duration> {
        self.pace.as_ref().and_then(|pace| pace())
    }
}

// === impl Holder ===

impl Holder {
    fn gone_at(&self) -> Moment {
        // Renewals are a third of the ttl apart.
        self.over.unwrap_or(self.alive + self.ttl / 6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Expiry, NodeError, View};

    const TTL: Duration = Duration::from_millis(4_000);

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    /// What three nodes show of a lock that `owner` extended so long ago.
    fn held(key: &str, owner: &str, ago: u64) -> LockState {
        let view = |ttl_ms: u64| View {
            key: key.into(),
            holder: Some(owner.into()),
            remaining_ms: Some(ttl_ms - ago),
            owner: Some(owner.into()),
            ttl_ms,
            named: true,
            ..View::default()
        };
        shown(key, (0..3).map(|_| Ok(view(4_000))).collect(), 4_000)
    }

    /// The same when the keys have run out.
    fn run_out(key: &str, owner: &str) -> LockState {
        let mut seen = held(key, owner, 0);
        for view in seen.nodes.iter_mut().flatten() {
            (view.holder, view.remaining_ms) = (None, None);
        }
        seen
    }

    fn released(key: &str, owner: &str) -> LockState {
        let view = || View {
            key: key.into(),
            owner: Some(owner.into()),
            released: true,
            named: true,
            ..View::default()
        };
        shown(key, (0..3).map(|_| Ok(view())).collect(), 0)
    }

    fn shown(key: &str, nodes: Vec<Result<View, NodeError>>, wait: u64) -> LockState {
        let waits = vec![Some(Duration::from_millis(wait)); nodes.len()];
        LockState::judged(key.into(), nodes, Expiry::Observed, waits)
    }

    fn listing(keys: &[&str]) -> Listed {
        let mut listed = Listed::default();
        for key in keys {
            listed.add(&Arc::from(*key), TTL, at(1));
        }
        listed
    }

    fn vacant(listed: &Listed, key: &str) -> Option<Moment> {
        listed.by_key[key].last.as_ref().map(Holder::gone_at)
    }

    #[test]
    fn what_is_listed_is_looked_at_after_each_renewal() {
        let mut listed = listing(&["a", "b"]);
        // Those that are listed together are looked at together, and soon.
        assert_eq!(listed.next(), at(200));
        assert_eq!(listed.take_due(at(50)), Vec::<String>::new());
        assert_eq!(listed.take_due(at(200)), ["a", "b"]);
        listed.saw(&held("a", "x", 300), at(201));
        listed.saw(&held("b", "x", 300), at(201));
        // Renewed at -99, and next at 1234; for its way, the grid, and for others that look.
        assert_eq!(listed.next(), at(1_400));
        assert_eq!(listed.take_due(at(1_400)), ["a", "b"]);
    }

    #[test]
    fn what_others_look_at_costs_nothing_more() {
        let mut listed = listing(&["a"]);
        for round in 0..10 {
            let now = 50 + round * 1_333;
            assert!(listed.next() > at(now), "round {round}");
            listed.saw(&held("a", "x", 20), at(now));
        }
    }

    #[test]
    fn what_is_due_soon_goes_along_with_a_candidates_look() {
        let mut listed = listing(&["a"]);
        listed.saw(&held("a", "x", 300), at(201));
        assert_eq!(listed.next(), at(1_400));
        // Just after the renewal, when a candidate for another lock of that holder looks.
        assert_eq!(listed.take_due(at(1_300)), ["a"]);
        assert_eq!(listed.take_due(at(1_301)), Vec::<String>::new());
    }

    #[test]
    fn what_is_held_here_is_not_looked_at() {
        let mut listed = listing(&["a"]);
        listed.taken("a", "me");
        assert_eq!(listed.next(), Moment::NEVER);
        listed.given_back("a", "me, before", at(200));
        // Another caller has asked.
        listed.saw(&held("a", "me", 0), at(300));
        assert_eq!(listed.next(), Moment::NEVER);
        listed.given_back("a", "me", at(9_000));
        assert_eq!(listed.next(), at(10_100));
        assert_eq!(vacant(&listed, "a"), Some(at(9_000)));
    }

    #[test]
    fn what_is_free_is_looked_at_with_the_rest() {
        let mut listed = listing(&["free", "held"]);
        listed.saw(&released("free", "x"), at(250));
        listed.saw(&held("held", "x", 700), at(250));
        assert_eq!(listed.next(), at(1_100));
        assert_eq!(listed.take_due(at(1_100)), ["free", "held"]);
        // Alone it is looked at as a candidate would.
        let mut listed = listing(&["free"]);
        listed.saw(&released("free", "x"), at(250));
        assert_eq!(listed.next(), at(2_250));
    }

    #[test]
    fn a_lock_is_vacant_since_its_release_or_about_since_its_holders_death() {
        let mut listed = listing(&["a"]);
        assert_eq!(vacant(&listed, "a"), None, "no holder was seen");
        listed.saw(&held("a", "x", 100), at(5_000));
        let middle = |renewed: u64| Some(at(renewed) + TTL / 6);
        assert_eq!(vacant(&listed, "a"), middle(4_900));
        // An older answer is no news, and a dead holder's later ones say the same, also when its keys have run out.
        listed.saw(&held("a", "x", 1_500), at(6_000));
        listed.saw(&held("a", "x", 3_100), at(8_000));
        listed.saw(&run_out("a", "x"), at(9_000));
        assert_eq!(vacant(&listed, "a"), middle(4_900));

        listed.heard("a", "y", at(9_100));
        assert_eq!(vacant(&listed, "a"), middle(4_900), "another's attempt");
        listed.heard("a", "x", at(9_200));
        listed.saw(&released("a", "x"), at(9_300));
        assert_eq!(vacant(&listed, "a"), Some(at(9_200)));

        listed.saw(&held("a", "y", 0), at(10_000));
        assert_eq!(vacant(&listed, "a"), middle(10_000));
        // One node had forgotten it, and it lives on the others.
        listed.heard("a", "y", at(10_100));
        listed.saw(&held("a", "y", 0), at(10_200));
        assert_eq!(vacant(&listed, "a"), middle(10_200));
        listed.saw(&released("a", "y"), at(10_500));
        listed.saw(&released("a", "y"), at(10_600));
        assert_eq!(vacant(&listed, "a"), Some(at(10_500)));
        listed.taken("a", "me");
        assert_eq!(vacant(&listed, "a"), None);
    }

    /// A node that was asked too late may grant what has been given up.
    #[test]
    fn an_attempt_of_this_process_that_was_lost_is_no_holder() {
        let owner = |n: u64, tag: &str| format!("{n:032x}.{tag}");
        let mut listed = listing(&["a"]);
        listed.tag = Some("me".to_owned());
        listed.saw(&held("a", &owner(1, "other"), 0), at(5_000));
        let since = vacant(&listed, "a");
        assert_eq!(since, Some(at(5_000) + TTL / 6));
        listed.saw(&held("a", &owner(2, "me"), 0), at(9_100));
        listed.saw(&released("a", &owner(2, "me")), at(9_200));
        assert_eq!(vacant(&listed, "a"), since);
        listed.saw(&held("a", &owner(3, "third"), 0), at(9_300));
        assert_eq!(vacant(&listed, "a"), Some(at(9_300) + TTL / 6));
        // What the others show of a release counts, although one node has such an attempt.
        let mut partly = released("a", &owner(3, "third"));
        if let Ok(view) = &mut partly.nodes[0] {
            view.owner = Some(owner(5, "me"));
        }
        listed.saw(&partly, at(9_350));
        assert_eq!(vacant(&listed, "a"), Some(at(9_350)));
        // A lease of this process that was given back is over all the same.
        listed.taken("a", &owner(4, "me"));
        listed.given_back("a", &owner(4, "me"), at(9_400));
        listed.saw(&released("a", &owner(4, "me")), at(9_500));
        assert_eq!(vacant(&listed, "a"), Some(at(9_400)));
    }

    #[test]
    fn what_others_watch_is_looked_at_rarely_while_its_holder_lives() {
        use std::sync::atomic::{AtomicBool, Ordering};

        let list = Arc::new(Watchlist::default());
        let others = Arc::new(AtomicBool::new(true));
        let watch = others.clone();
        let pause = Duration::from_secs(600);
        let pace = move || watch.load(Ordering::SeqCst).then_some(pause);
        let _one = list.watch("a", TTL, at(1)).at_pace(pace);
        let next = || list.listed().next();
        assert_eq!(next(), at(200), "once, to begin with");
        list.saw(&[held("a", "x", 300)], at(250));
        assert_eq!(next(), at(615_000), "a grid of its own");
        list.anew(at(300));
        assert_eq!(next(), at(615_000), "others watch it still");
        // What is free goes along with no other look, either.
        list.saw(&[released("a", "x")], at(300));
        let _other = list.watch("b", TTL, at(400));
        assert_eq!(list.take_due(at(600)), ["b"]);
        list.saw(&[held("b", "x", 300)], at(601));

        // Others watch no more: soon, and from then on as closely as ever.
        list.saw(&[held("a", "x", 300)], at(700));
        others.store(false, Ordering::SeqCst);
        list.anew(at(1_000));
        assert_eq!(next(), at(1_100));
        list.saw(&[held("a", "x", 300)], at(1_001));
        list.saw(&[held("b", "x", 300)], at(1_001));
        assert_eq!(next(), at(2_200));

        // Its holder is gone, most likely: that is looked at whatever watches it.
        others.store(true, Ordering::SeqCst);
        list.saw(&[run_out("a", "x")], at(4_000));
        assert!(next() < at(6_500));
    }

    #[test]
    fn whoever_is_first_seen_dead_has_been_so_for_a_ttl() {
        let mut listed = listing(&["a"]);
        listed.saw(&run_out("a", "x"), at(90_000));
        listed.saw(&run_out("a", "x"), at(91_000));
        assert_eq!(vacant(&listed, "a"), Some(at(86_000) + TTL / 6));
    }

    #[test]
    fn a_lock_is_listed_until_its_last_watcher_has_gone() {
        let list = Arc::new(Watchlist::default());
        let one = list.watch("a", TTL, at(1));
        let other = list.watch("a", TTL, at(1));
        drop(one);
        assert_eq!(list.listed().next(), at(200));
        drop(other);
        assert_eq!(list.listed().next(), Moment::NEVER);
        assert!(list.listed().by_key.is_empty());
    }
}
