//! What this replica knows of itself: standings, runs in flight, last outcomes. The status and the presence document
//! are made from it.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use tokio::sync::Notify;

use crate::{
    clock::Moment,
    fleet::presence::{
        pages::{Kind, Page},
        replicas::Own,
        teller::Mark,
    },
    job::Run,
    lease::LeaseView,
    node::Token,
    status::{
        HeldItems, JobPresence, JobStanding, LastSeen, Presence, ReloadStatus, Role, RunStatus,
    },
};

/// Shared by the engines of all jobs; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalStatus(Arc<Mutex<Notes>>);

#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Boxed: a map has room for more than it holds.
    jobs: BTreeMap<String, Box<JobNotes>>,
    /// How they are defined; none where that has changed since it was asked last.
    own: Option<Arc<Own>>,
    /// Counts what was noted of them.
    noted: u64,
    /// How many of them are led here.
    led: usize,
    /// The jobs that have left this replica.
    left: BTreeSet<String>,
    reload: Option<ReloadStatus>,
    /// Which replica was last heard to lead which job: for when no node can be asked.
    last_seen: BTreeMap<String, LastSeen>,
    /// This replica, as it has told the others.
    itself: Option<LastSeen>,
    /// Asks for a fresh presence document soon: a client waits for this, or sees a wrong leader.
    dirty: Arc<Notify>,
    /// Asks for one in its turn: the daily business of ticks and runs.
    busy: Arc<Notify>,
}

/// What is known of one job.
#[derive(Debug, Default)]
pub(crate) struct JobNotes {
    facts: JobPresence,
    lease: Option<LeaseView>,
    /// How far its ledger is ahead of the clock.
    ahead: Option<Duration>,
    runs: BTreeMap<String, (Run, Timestamp)>,
    /// It looks for no work: what it knows of what waits is of the past.
    rests: bool,
    /// By which it finds its page.
    page: u64,
    /// Counts what was changed of it, and its ticks and runs.
    changed: u64,
    noted: u64,
}

/// A term of this replica.
#[derive(Debug)]
pub(super) struct LocalTerm {
    pub(super) job: String,
    pub(super) since: Moment,
    /// Whether nothing runs.
    pub(super) idle: bool,
    pub(super) next_tick: Option<Timestamp>,
}

impl LocalStatus {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        // Every change is complete before the lock is given back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, job: &str, f: impl FnOnce(&mut JobNotes)) {
        let mut notes = self.notes();
        let known = notes.job(job);
        let was = known.leads();
        f(known);
        known.changed += 1;
        let is = known.leads();
        notes.count(was, is);
        notes.noted += 1;
        notes.dirty.notify_one();
    }

    /// The same for what happens all the time, to a job that this replica has: a run may outlive the engine of one that it has no more.
    fn note(&self, job: &str, f: impl FnOnce(&mut JobNotes)) {
        let mut notes = self.notes();
        let Some(known) = notes.jobs.get_mut(job) else {
            return;
        };
        f(known);
        known.noted += 1;
        notes.noted += 1;
        notes.busy.notify_one();
    }

    /// This replica has something to tell that is not kept here.
    pub(crate) fn told(&self) {
        self.notes().dirty.notify_one();
    }

    /// Completes at the next change that others should soon know of.
    pub(crate) async fn changed(&self) {
        let dirty = self.notes().dirty.clone();
        dirty.notified().await;
    }

    /// Completes at the next tick, start or end of a run.
    pub(crate) async fn worked(&self) {
        let busy = self.notes().busy.clone();
        busy.notified().await;
    }

    pub(crate) fn add_job(&self, facts: JobPresence) {
        let name = facts.name.clone();
        self.change(&name, |job| job.facts = facts);
        let mut notes = self.notes();
        notes.own = None;
        notes.left.remove(&name);
    }

    /// A job is about to begin here: it is none that has left.
    pub(crate) fn expect(&self, job: &str) {
        self.notes().left.remove(job);
    }

    /// All jobs that are or were this replica's, and whether they have left it.
    pub(crate) fn left(&self) -> Vec<(String, bool)> {
        let notes = self.notes();
        let here = notes.jobs.keys().map(|job| (job, false));
        let left = notes.left.iter().map(|job| (job, true));
        let all = here.chain(left);
        all.map(|(job, left)| (job.clone(), left)).collect()
    }

    /// The job is defined anew; what this replica is to it stays.
    pub(crate) fn redefine(&self, new: JobPresence) {
        self.change(&new.name.clone(), |job| {
            let facts = &mut job.facts;
            (facts.coordination, facts.schedule, facts.zone) =
                (new.coordination, new.schedule, new.zone);
            (facts.definition, facts.loaded) = (new.definition, new.loaded);
        });
        self.notes().own = None;
    }

    /// This replica has the job no more.
    pub(crate) fn forget(&self, job: &str) {
        let mut notes = self.notes();
        let was = notes.jobs.remove(job).is_some_and(|job| job.leads());
        notes.count(was, false);
        notes.left.insert(job.to_owned());
        notes.last_seen.remove(job);
        notes.own = None;
        notes.noted += 1;
        notes.dirty.notify_one();
    }

    /// Takes note of which replica says that it leads which job, of those that this one has.
    pub(super) fn heard(&self, presence: &Presence) {
        let mut notes = self.notes();
        let Notes {
            jobs, last_seen, ..
        } = &mut *notes;
        for job in presence
            .jobs
            .iter()
            .filter(|job| jobs.contains_key(&job.name))
        {
            let Some(said) = LastSeen::said(presence, job) else {
                continue;
            };
            let known = last_seen.get(&job.name);
            if known.is_none_or(|known| known.token <= said.token) {
                last_seen.insert(job.name.clone(), said);
            }
        }
    }

    /// The others hear of this replica.
    pub(super) fn heard_of_itself(&self, presence: &Presence) {
        self.notes().itself = Some(LastSeen::of(presence));
    }

    /// These replicas are there, and have nothing new to tell: they said at `now` what they said.
    pub(super) fn heard_again(&self, replicas: &BTreeSet<&str>, now: Timestamp) {
        let mut notes = self.notes();
        let Notes {
            last_seen, itself, ..
        } = &mut *notes;
        let said = last_seen.values_mut().chain(itself);
        let again = said.filter(|said| replicas.contains(said.replica.as_str()));
        again.for_each(|said| said.at = said.at.max(now));
    }

    /// Which replica was last heard to lead which job.
    #[cfg(feature = "admin")]
    pub(crate) fn last_seen(&self) -> BTreeMap<String, LastSeen> {
        self.notes().last_seen.clone()
    }

    /// The same of these jobs alone.
    #[cfg(feature = "admin")]
    pub(crate) fn last_seen_of(&self, jobs: &BTreeSet<String>) -> BTreeMap<String, LastSeen> {
        let notes = self.notes();
        let seen = jobs
            .iter()
            .filter_map(|job| notes.last_seen.get_key_value(job));
        seen.map(|(job, last)| (job.clone(), last.clone()))
            .collect()
    }

    /// What became of the last reload.
    pub(crate) fn reloaded(&self, reload: ReloadStatus) {
        let mut notes = self.notes();
        notes.reload = Some(reload);
        notes.noted += 1;
        notes.dirty.notify_one();
    }

    pub(crate) fn reload(&self) -> Option<ReloadStatus> {
        self.notes().reload.clone()
    }

    /// This replica stands back from the job because another definition of it counts: why; nothing when that is over.
    pub(crate) fn stands_back(&self, job: &str, why: Option<String>) {
        self.change(job, |job| {
            if why.is_some() {
                job.facts.standing = JobStanding::Off;
            }
            job.facts.stands_back = why;
        });
    }

    /// The job's engine here has died of a panic, which said this; nothing when it lives again.
    pub(crate) fn engine_died(&self, job: &str, why: Option<String>) {
        self.change(job, |job| job.facts.engine_died = why);
    }

    /// A job whose engine here has died, and why.
    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "asked by probes"))]
    pub(crate) fn dead_engine(&self) -> Option<(String, String)> {
        let notes = self.notes();
        let mut jobs = notes.jobs.iter();
        jobs.find_map(|(name, job)| Some((name.clone(), job.facts.engine_died.clone()?)))
    }

    pub(crate) fn leads(&self, job: &str, lease: LeaseView, since: Timestamp) {
        self.change(job, |job| {
            job.facts.standing = JobStanding::Leading;
            job.facts.token = Some(lease.token());
            job.facts.since = Some(since);
            job.lease = Some(lease);
        });
    }

    pub(crate) fn stands(&self, job: &str, standing: JobStanding) {
        self.note_last_term(job);
        self.change(job, |job| {
            job.facts.standing = standing;
            (job.facts.token, job.facts.since, job.lease) = (None, None, None);
            if job.facts.coordination != "tick" {
                // Its leader's business.
                job.ahead = None;
            }
        });
    }

    /// This replica was the leader, if it was: until it hears of another one.
    fn note_last_term(&self, job: &str) {
        let mut notes = self.notes();
        let Notes {
            jobs,
            last_seen,
            itself,
            ..
        } = &mut *notes;
        let led = jobs.get(job).filter(|job| job.facts.is_led());
        let token = led.and_then(|job| job.facts.token);
        if let (Some(token), Some(itself)) = (token, itself) {
            let said = LastSeen {
                token,
                ..itself.clone()
            };
            last_seen.insert(job.to_owned(), said);
        }
    }

    /// The terms of this replica, for who may hand one over.
    pub(super) fn terms(&self) -> Vec<LocalTerm> {
        let notes = self.notes();
        let led = notes.jobs.iter().filter_map(|(name, job)| {
            let lease = job.lease.as_ref()?;
            (job.facts.standing == JobStanding::Leading && lease.is_held()).then(|| LocalTerm {
                job: name.clone(),
                since: lease.since(),
                idle: job.runs.is_empty(),
                next_tick: job.facts.next_tick,
            })
        });
        led.collect()
    }

    pub(crate) fn ticks(&self, job: &str, last: Option<Timestamp>, next: Option<Timestamp>) {
        self.note(job, |job| {
            (job.facts.last_tick, job.facts.next_tick) = (last, next)
        });
    }

    /// The jobs whose ticks are decided here, as far as this replica knows, and how long the next one has been due.
    pub(crate) fn overdue(&self, now: Timestamp) -> Vec<(String, Duration)> {
        let notes = self.notes();
        let jobs = notes.jobs.iter().filter_map(|(name, job)| {
            let JobPresence {
                standing,
                coordination,
                next_tick,
                ..
            } = &job.facts;
            let decides = match standing {
                JobStanding::Leading | JobStanding::Working => true,
                JobStanding::Standby => coordination == "tick",
                JobStanding::Off => false,
            };
            let late = now.duration_since((*next_tick)?);
            decides.then(|| (name.clone(), Duration::try_from(late).unwrap_or_default()))
        });
        jobs.collect()
    }

    /// The job's ledger is so far ahead of the clock; nothing when it is not.
    pub(crate) fn ahead(&self, job: &str, ahead: Option<Duration>) {
        if let Some(known) = self.notes().jobs.get_mut(job) {
            known.ahead = ahead;
        }
    }

    /// The jobs whose ledgers are ahead of the clock, as far as this replica knows, and by how much.
    pub(crate) fn ahead_of_clock(&self) -> Vec<(String, Duration)> {
        let notes = self.notes();
        let jobs = notes.jobs.iter();
        jobs.filter_map(|(name, job)| Some((name.clone(), job.ahead?)))
            .collect()
    }

    pub(crate) fn started(&self, run: &Run, at: Timestamp) {
        self.note(run.job(), |job| {
            job.runs.insert(run.id().to_owned(), (run.clone(), at));
        });
    }

    pub(crate) fn ended(&self, run: &Run, outcome: &str, at: Timestamp) {
        self.note(run.job(), |job| {
            job.runs.remove(run.id());
            job.facts.last_outcome = Some(outcome.to_owned());
            job.facts.last_ended = Some(at);
        });
    }

    /// Why the job's work cannot be looked for; `None` when it can.
    pub(crate) fn trouble(&self, job: &str, why: Option<String>) {
        let told = self
            .notes()
            .jobs
            .get(job)
            .and_then(|job| job.facts.trouble.clone());
        // A line that changes with every look would be written with every look.
        if told.is_some() != why.is_some() {
            self.change(job, |job| job.facts.trouble = why);
        }
    }

    /// This replica looks for no work of the job: another one knows what waits.
    pub(crate) fn rests(&self, job: &str) {
        if self.is_at_work(job) {
            self.change(job, |job| {
                job.rests = true;
                let facts = &mut job.facts;
                (facts.backlog, facts.backlog_since) = (None, None);
                (facts.held, facts.trouble) = (None, None);
            });
        }
    }

    /// It looks for work of the job again.
    pub(crate) fn works(&self, job: &str) {
        if let Some(job) = self.notes().jobs.get_mut(job) {
            job.rests = false;
        }
    }

    /// Every job, and whether this replica looks for no work of it.
    pub(crate) fn resting(&self) -> Vec<(String, bool)> {
        let notes = self.notes();
        let jobs = notes.jobs.iter();
        jobs.map(|(name, job)| (name.clone(), job.rests)).collect()
    }

    /// What is told of a job comes late: it may rest meanwhile, or be none any more.
    fn is_at_work(&self, job: &str) -> bool {
        self.notes().jobs.get(job).is_some_and(|job| !job.rests)
    }

    pub(crate) fn backlog(&self, job: &str, items: u64, since: Option<Timestamp>) {
        if self.is_at_work(job) {
            self.note(job, |job| {
                (job.facts.backlog, job.facts.backlog_since) = (Some(items), since);
            });
        }
    }

    /// The jobs with items that wait, and for how long the oldest of them could have gone, where that is known.
    pub(crate) fn waiting(&self, now: Timestamp) -> Vec<(String, Duration)> {
        let notes = self.notes();
        let jobs = notes.jobs.iter().filter_map(|(name, job)| {
            let waits = now.duration_since(job.facts.backlog_since?);
            Some((name.clone(), Duration::try_from(waits).unwrap_or_default()))
        });
        jobs.collect()
    }

    pub(crate) fn held(&self, job: &str, items: HeldItems) {
        if self.is_at_work(job) {
            self.note(job, |job| {
                job.facts.held = (!items.is_none()).then_some(items);
            });
        }
    }

    /// The jobs that this replica has, as they are defined: the same as last time while they are.
    pub(crate) fn own(&self) -> Arc<Own> {
        let mut notes = self.notes();
        let Notes { jobs, own, .. } = &mut *notes;
        let facts = || {
            let facts = jobs
                .values()
                .filter_map(|job| Kind::Facts.part(&job.facts, Role::Standby));
            facts.map(|facts| JobPresence {
                // When others loaded them is asked of others alone.
                loaded: None,
                ..facts
            })
        };
        own.get_or_insert_with(|| Arc::new(Own::of(facts())))
            .clone()
    }

    /// Others have other definitions of these jobs: when this replica has loaded its own is told.
    pub(super) fn disputed(&self, disputed: &BTreeSet<String>) {
        let mut notes = self.notes();
        let Notes {
            jobs, noted, dirty, ..
        } = &mut *notes;
        for (name, job) in jobs {
            let now = disputed.contains(name);
            if std::mem::replace(&mut job.facts.disputed, now) != now {
                job.changed += 1;
                *noted += 1;
                dirty.notify_one();
            }
        }
    }

    /// The jobs that this replica has.
    pub(crate) fn names(&self) -> Vec<String> {
        self.notes().jobs.keys().cloned().collect()
    }

    /// Whether this replica leads the job now, by the clock; `None` for a job it does not know.
    #[cfg(feature = "admin")]
    pub(crate) fn is_leading(&self, job: &str) -> Option<bool> {
        let notes = self.notes();
        let job = notes.jobs.get(job)?;
        Some(job.lease.as_ref().is_some_and(LeaseView::is_held))
    }

    /// Every job as this replica sees it now.
    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
    pub(crate) fn jobs(&self) -> Vec<JobPresence> {
        let notes = self.notes();
        notes.jobs.values().map(|job| job.presence()).collect()
    }

    /// These of them, and those whose engines have died.
    #[cfg(feature = "admin")]
    pub(crate) fn jobs_of(&self, names: &BTreeSet<String>) -> Vec<JobPresence> {
        let notes = self.notes();
        let jobs = notes.jobs.iter();
        let some = jobs
            .filter(|(name, job)| job.facts.engine_died.is_some() || names.contains(name.as_str()));
        some.map(|(_, job)| job.presence()).collect()
    }

    /// What [`LocalStatus::jobs`] comes to, in a few numbers: where they are what they were, so are the jobs. None while
    /// anything runs: its progress is noted nowhere.
    pub(crate) fn print(&self) -> Option<(u64, u64)> {
        let notes = self.notes();
        let mut hasher = DefaultHasher::new();
        for job in notes.jobs.values() {
            if !job.runs.is_empty() {
                return None;
            }
            let Some(lease) = &job.lease else { continue };
            let remaining = lease.remaining();
            let lasts = lasts(millis(remaining), millis(lease.ttl()));
            (!remaining.is_zero(), lasts, lease.margin()).hash(&mut hasher);
        }
        Some((notes.noted, hasher.finish()))
    }

    /// What each job comes to; `with` whatever else is told of all of them.
    pub(crate) fn marks(&self, with: u64, each: &mut dyn FnMut(Mark)) {
        let notes = self.notes();
        for job in notes.jobs.values() {
            let held = job.lease.as_ref().map(|lease| {
                let remaining = lease.remaining();
                let lasts = lasts(millis(remaining), millis(lease.ttl()));
                (!remaining.is_zero(), lasts)
            });
            let mut standing = DefaultHasher::new();
            (with, job.changed, held).hash(&mut standing);
            let mut runs = standing.clone();
            job.noted.hash(&mut runs);
            for (run, _) in job.runs.values() {
                let far = run.how_far();
                let pace = far.per_second.map(|rate| rate.per_second().to_bits());
                (far.done, far.total, pace, far.left_ms, far.message).hash(&mut runs);
            }
            each(Mark {
                name: job.page,
                standing: standing.finish(),
                runs: runs.finish(),
            });
        }
    }

    /// The jobs on these of so many pages.
    pub(crate) fn on_pages(&self, pages: &BTreeSet<u32>, of: u32) -> Vec<(u32, JobPresence)> {
        let notes = self.notes();
        let numbered = notes.jobs.values();
        let numbered = numbered.map(|job| (Page::number_by(job.page, of), job));
        let wanted = numbered.filter(|(number, _)| pages.contains(number));
        wanted
            .map(|(number, job)| (number, job.presence()))
            .collect()
    }

    /// How many jobs this replica has.
    pub(crate) fn count(&self) -> usize {
        self.notes().jobs.len()
    }

    /// The jobs that this replica leads, without those whose lock is taken for a tick. Asked before every bid.
    pub(super) fn led(&self) -> BTreeMap<String, bool> {
        let notes = self.notes();
        let led = notes.jobs.iter().filter(|(_, job)| job.is_led());
        led.map(|(name, _)| (name.clone(), true)).collect()
    }

    /// How many terms it has, with those whose leases have just ended. Asked before every bid, of which there may be ten thousand at once.
    pub(super) fn terms_now(&self) -> usize {
        self.notes().led
    }

    /// How many these are.
    pub(crate) fn leads_now(&self) -> usize {
        let notes = self.notes();
        notes.jobs.values().filter(|job| job.is_led()).count()
    }

    /// The token of this replica's term.
    pub(crate) fn token(&self, job: &str) -> Option<Token> {
        let notes = self.notes();
        let lease = notes.jobs.get(job)?.lease.as_ref()?;
        lease.is_held().then(|| lease.token())
    }

    /// Remaining life of each leadership in seconds, for the metrics.
    pub(crate) fn leases(&self) -> Vec<(String, LeaseView)> {
        let notes = self.notes();
        let held = notes
            .jobs
            .iter()
            .filter_map(|(name, job)| Some((name, job.lease.as_ref()?)));
        held.map(|(name, lease)| (name.clone(), lease.clone()))
            .collect()
    }
}

impl Notes {
    fn job(&mut self, name: &str) -> &mut JobNotes {
        let new = || {
            Box::new(JobNotes {
                page: Page::hash_of(name),
                ..JobNotes::default()
            })
        };
        self.jobs.entry(name.to_owned()).or_insert_with(new)
    }

    /// One of them was led here, or not, and is now.
    fn count(&mut self, was: bool, is: bool) {
        self.led = self.led.saturating_sub(usize::from(was)) + usize::from(is);
    }
}

impl JobNotes {
    fn leads(&self) -> bool {
        self.facts.standing == JobStanding::Leading
    }

    fn is_led(&self) -> bool {
        let held = self.lease.as_ref().is_none_or(LeaseView::is_held);
        held && self.facts.is_led()
    }

    fn presence(&self) -> JobPresence {
        let mut facts = self.facts.clone();
        match &self.lease {
            Some(lease) if lease.is_held() => {
                let remaining = millis(lease.remaining());
                facts.remaining_ms = Some(remaining);
                facts.margin = i64::try_from(lease.margin()).ok();
                facts.lasts_ms = Some(lasts(remaining, millis(lease.ttl())));
            }
            Some(_) => facts.standing = JobStanding::Standby,
            None => {}
        }
        facts.running = self
            .runs
            .values()
            .map(|(run, started)| {
                let far = run.how_far();
                RunStatus {
                    run_id: run.id().to_owned(),
                    replica: String::new(),
                    tick: run.tick(),
                    attempt: run.attempt(),
                    token: run.lease().map(LeaseView::token),
                    started: *started,
                    batch: run.batch().map(str::to_owned),
                    done: far.done,
                    total: far.total,
                    per_second: far.per_second,
                    left_ms: far.left_ms,
                    message: far.message,
                }
            })
            .collect();
        facts
    }
}

/// What is left of a lease at least, in steps: a lease that is renewed in time has half its ttl left all the time, and what does
/// not change is not written.
fn lasts(remaining_ms: u64, ttl_ms: u64) -> u64 {
    match remaining_ms >= ttl_ms / 2 {
        true => ttl_ms / 2,
        false => remaining_ms / 500 * 500,
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        job::{RunFacts, RunSetup},
        sim_clock::SimTime,
    };

    fn job(name: &str) -> JobPresence {
        JobPresence {
            name: name.to_owned(),
            ..JobPresence::default()
        }
    }

    #[test]
    fn a_run_that_outlives_its_job_brings_it_not_back() {
        let clock = SimTime::new().clock();
        let facts = RunFacts {
            job: "report".to_owned(),
            id: "run-1".to_owned(),
            tick: Timestamp::UNIX_EPOCH,
            attempt: 1,
            replica: "a".to_owned(),
            batch: None,
            shard: 0,
            shards: 1,
            params: serde_json::Value::Null,
            checkpoint: None,
        };
        let run = Run::of(RunSetup::new(facts, clock));
        let status = LocalStatus::default();
        status.add_job(job("report"));
        status.started(&run, Timestamp::UNIX_EPOCH);
        status.forget("report");
        status.ended(&run, "done", Timestamp::UNIX_EPOCH);
        assert_eq!(status.left(), [("report".to_owned(), true)]);
    }

    #[test]
    fn terms_are_counted_as_they_begin_and_end() {
        let status = LocalStatus::default();
        for name in ["a", "b", "c"] {
            status.add_job(job(name));
            status.stands(name, JobStanding::Leading);
        }
        status.stands("a", JobStanding::Leading);
        assert_eq!(status.terms_now(), 3);
        status.stands("a", JobStanding::Standby);
        status.forget("b");
        status.forget("d");
        assert_eq!(status.terms_now(), 1);
    }
}
