//! What a replica writes of itself, and when: each page when it has changed, and the summary after them.
//!
//! # Invariants
//! - A page that has not changed is not written again.   (what_has_not_changed_is_not_written_again)
//! - What is told of a job is put together when something of its page has changed, however many jobs there are.
//!   (what_has_not_changed_is_not_put_together)
//! - What others act by is told at once. A page of runs is written so often that it costs [`PAGE_BYTES_PER_SECOND`], once in
//!   [`INTERVAL`] at least, and later only where all of them together would cost more than [`RUNS_BYTES_PER_SECOND`].
//!   (a_page_of_runs_is_written_in_its_turn, the_runs_of_many_jobs_cost_no_more_than_those_of_some)
//! - A summary that says of a revision is written after the pages that have it.   (the_summary_comes_after_its_pages)
//! # When things fail
//! What no node has taken counts as not written.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    time::Duration,
};

use super::{
    INTERVAL, JobPresence, Presence,
    pages::{JobsInAll, Kind, Page, Summary, head_of},
};
use crate::clock::Moment;

/// Bytes in a second of one page of ticks and runs, on each node: that of one job follows its runs, a full one is told every
/// other second.
const PAGE_BYTES_PER_SECOND: usize = 3_000;
/// The same of all pages of ticks and runs together: two thousand jobs are told as often as those of one page.
const RUNS_BYTES_PER_SECOND: usize = 300_000;
/// What it costs to look whether a job has changed, beside the bytes that are told of it.
const LOOKED_AT: usize = 20;
/// Changes are collected for so long before they are told.
pub(crate) const COLLECT: Duration = Duration::from_millis(100);

/// What was written last.
#[derive(Debug, Default)]
pub(crate) struct Teller {
    /// Of the last document.
    rev: u64,
    /// How many pages there are of each kind.
    of: u32,
    pages: BTreeMap<Page, Written>,
    summary: Option<(Summary, u64)>,
}

/// The jobs of a replica, of which those are put together that are told.
pub(crate) trait TellsJobs {
    /// Names what each job comes to.
    fn marks(&self, each: &mut dyn FnMut(Mark));

    /// The jobs on these of so many pages, in the order of their names.
    fn on_pages(&self, pages: &BTreeSet<u32>, of: u32) -> Vec<(u32, JobPresence)>;

    fn count(&self) -> usize;

    fn in_all(&self) -> JobsInAll;
}

/// What a job comes to: where a number is what it was, so is what is told by it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// As [`Page::hash_of`] has it.
    pub(crate) name: u64,
    /// How it is defined, and what the replica is to it.
    pub(crate) standing: u64,
    /// That, and its ticks and runs.
    pub(crate) runs: u64,
}

#[derive(Debug)]
struct Written {
    /// A hash of what it said; none where it has to be written anew.
    print: Option<u64>,
    /// What its jobs came to then.
    marks: u64,
    bytes: usize,
    /// A node lacks it that had it, or was elsewhere.
    lost: bool,
    rev: u64,
    /// When it may be written again for the sake of runs.
    due: Moment,
}

/// A document to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Put {
    pub(crate) name: String,
    pub(crate) rev: u64,
    pub(crate) body: String,
}

/// What is to be written now.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) pages: Vec<(Page, Put)>,
    /// After the pages; none while it says what it said.
    pub(crate) summary: Option<Put>,
    /// When a page is due that has changed.
    pub(crate) due: Option<Moment>,
    /// How much all of it is, changed or not.
    pub(crate) bytes: usize,
}

impl Teller {
    /// Of a process that begins at this time, in milliseconds: revisions of different replicas begin at different numbers.
    pub(crate) fn new(from: i64) -> Self {
        Self {
            rev: u64::try_from(from).unwrap_or(0),
            ..Self::default()
        }
    }

    /// What has changed in what this replica has to tell.
    pub(crate) fn changes(
        &mut self,
        head: &Presence,
        jobs: &dyn TellsJobs,
        lifetime: Duration,
        now: Moment,
    ) -> Changes {
        let count = jobs.count();
        let of = Page::pages_of(count);
        if self.of != of {
            // Those of before are touched no more, and end by themselves.
            self.of = of;
            self.pages.clear();
        }
        let [standings, runs] = sums(jobs, of);
        let marks = |page: &Page| {
            let number = usize::try_from(page.number).unwrap_or(0);
            let sums = match page.kind {
                Kind::Head => return 0,
                Kind::Facts | Kind::Standings => &standings,
                Kind::Runs => &runs,
            };
            sums.get(number).copied().unwrap_or(0)
        };
        let mut changes = Changes {
            bytes: count * LOOKED_AT,
            ..Changes::default()
        };
        let told = |page: &Page| {
            let written = self.pages.get(page)?;
            let stands = written.print.is_some() && !written.lost;
            Some((stands, written))
        };
        let mut wanted: Vec<(Page, u64)> = Vec::new();
        for page in Page::all(of) {
            let marks = marks(&page);
            match told(&page) {
                Some((true, written)) if written.marks == marks && page.kind != Kind::Head => {}
                Some((true, written)) if page.kind == Kind::Runs && now < written.due => {
                    let due = changes.due.map_or(written.due, |due| due.min(written.due));
                    changes.due = Some(due);
                }
                _ => wanted.push((page, marks)),
            }
        }
        let numbers = wanted.iter().filter(|(page, _)| page.kind != Kind::Head);
        let numbers: BTreeSet<u32> = numbers.map(|(page, _)| page.number).collect();
        let mut numbered: BTreeMap<u32, Vec<JobPresence>> = BTreeMap::new();
        if !numbers.is_empty() {
            for (number, job) in jobs.on_pages(&numbers, of) {
                numbered.entry(number).or_default().push(job);
            }
        }
        for (page, marks) in wanted {
            let body = match page.kind {
                Kind::Head => serde_json::to_string(&head_of(head)),
                kind => {
                    let jobs = numbered.get(&page.number).into_iter().flatten();
                    let parts = jobs.filter_map(|job| kind.part(job, head.role));
                    serde_json::to_string(&parts.collect::<Vec<_>>())
                }
            };
            if let Ok(body) = body {
                changes.bytes += body.len();
                self.page((page, marks), body, &head.id, now, &mut changes);
            }
        }
        self.summary(head, jobs, lifetime, &mut changes);
        changes
    }

    fn page(
        &mut self,
        (page, marks): (Page, u64),
        body: String,
        id: &str,
        now: Moment,
        changes: &mut Changes,
    ) {
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        let print = hasher.finish();
        let written = self.pages.get_mut(&page);
        if let Some(written) = written
            && written.print == Some(print)
        {
            written.marks = marks;
            if std::mem::take(&mut written.lost) {
                // Under the revision that it has: to those that have read it, nothing has changed.
                let (name, rev) = (page.document(id), written.rev);
                changes.pages.push((page, Put { name, rev, body }));
            }
            return;
        }
        let runs = self
            .pages
            .iter()
            .filter(|(page, _)| page.kind == Kind::Runs);
        let all = runs.map(|(_, written)| written.bytes).sum();
        self.rev += 1;
        let written = Written {
            print: Some(print),
            marks,
            bytes: body.len(),
            lost: false,
            rev: self.rev,
            due: now + turn(body.len(), all),
        };
        self.pages.insert(page, written);
        let put = Put {
            name: page.document(id),
            rev: self.rev,
            body,
        };
        changes.pages.push((page, put));
    }

    fn summary(
        &mut self,
        head: &Presence,
        jobs: &dyn TellsJobs,
        lifetime: Duration,
        changes: &mut Changes,
    ) {
        let reached = |kind| {
            let pages = self.pages.iter().filter(|(page, _)| page.kind == kind);
            pages.map(|(_, written)| written.rev).sum::<u64>()
        };
        let (standings, facts) = (reached(Kind::Standings), reached(Kind::Facts));
        let summary = Summary::of(head, jobs.in_all(), (standings, facts), lifetime);
        if self
            .summary
            .as_ref()
            .is_some_and(|(said, _)| *said == summary)
        {
            return;
        }
        self.rev += 1;
        changes.summary = Some(Put {
            name: summary.document(),
            rev: self.rev,
            body: summary.to_json(),
        });
        self.summary = Some((summary, self.rev));
    }

    /// Whether all of it stands as it was told last: what has not changed since need not be looked at again.
    pub(crate) fn is_told(&self) -> bool {
        let stands = |page: &Written| page.print.is_some() && !page.lost;
        self.summary.is_some() && self.pages.values().all(stands)
    }

    /// The summary as it was written last, to be touched or written anew.
    pub(crate) fn summary_now(&self) -> Option<Put> {
        let (summary, rev) = self.summary.as_ref()?;
        Some(Put {
            name: summary.document(),
            rev: *rev,
            body: summary.to_json(),
        })
    }

    /// The pages as they were written last.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (Page, u64)> {
        self.pages
            .iter()
            .map(|(page, written)| (*page, written.rev))
    }

    /// No node has the page: it is written anew.
    pub(crate) fn unsaid(&mut self, page: Page) {
        if let Some(written) = self.pages.get_mut(&page) {
            written.print = None;
        }
    }

    /// A node lacks the page: it is written there, too, with the next changes.
    pub(crate) fn lacks(&mut self, page: Page) {
        if let Some(written) = self.pages.get_mut(&page) {
            written.lost = true;
        }
    }

    /// No node has taken the summary.
    pub(crate) fn summary_unsaid(&mut self) {
        self.summary = None;
    }
}

/// Writes all that a replica tells, as it does itself, for a test that has no replica: a larger `rev` comes after a smaller one.
#[cfg(test)]
pub(crate) async fn write_all(locks: &crate::lock::Locks, presence: &Presence, lifetime: Duration) {
    let from = i64::try_from(presence.rev * 1_000_000).unwrap();
    let mut teller = Teller::new(from);
    let changes = teller.changes_of(presence, lifetime, locks.clock().now());
    let pages = changes.pages.into_iter().map(|(_, put)| put);
    for Put { name, rev, body } in pages.chain(changes.summary) {
        locks.put_doc(&name, rev, lifetime, body).await.unwrap();
    }
}

/// How long a page of runs of this size is as it is, where all of them are so large.
fn turn(bytes: usize, all: usize) -> Duration {
    let fair = |bytes: usize, a_second: usize| {
        Duration::from_secs(1) * u32::try_from(bytes).unwrap_or(u32::MAX)
            / u32::try_from(a_second).unwrap_or(u32::MAX)
    };
    let own = (COLLECT + fair(bytes, PAGE_BYTES_PER_SECOND)).min(INTERVAL);
    own.max(fair(all, RUNS_BYTES_PER_SECOND))
}

/// What the jobs of each page come to together: standings, and runs.
fn sums(jobs: &dyn TellsJobs, of: u32) -> [Vec<u64>; 2] {
    let mut sums = [0, 1].map(|_| vec![0_u64; usize::try_from(of).unwrap_or(0)]);
    jobs.marks(&mut |mark| {
        let number = usize::try_from(Page::number_by(mark.name, of)).unwrap_or(0);
        for (sums, what) in sums.iter_mut().zip([mark.standing, mark.runs]) {
            if let Some(sum) = sums.get_mut(number) {
                let mut hasher = DefaultHasher::new();
                (mark.name, what).hash(&mut hasher);
                // In no order: jobs are added up as they come.
                *sum = sum.wrapping_add(hasher.finish());
            }
        }
    });
    sums
}

/// For tests, which have no replica.
#[cfg(test)]
impl TellsJobs for Vec<JobPresence> {
    fn marks(&self, each: &mut dyn FnMut(Mark)) {
        let print = |parts: &[&JobPresence]| {
            let mut hasher = DefaultHasher::new();
            serde_json::to_string(parts).unwrap().hash(&mut hasher);
            hasher.finish()
        };
        for job in self {
            let parts =
                [Kind::Facts, Kind::Standings].map(|kind| kind.part(job, super::Role::Standby));
            each(Mark {
                name: Page::hash_of(&job.name),
                standing: print(&parts.iter().flatten().collect::<Vec<_>>()),
                runs: print(&[job]),
            });
        }
    }

    fn on_pages(&self, pages: &BTreeSet<u32>, of: u32) -> Vec<(u32, JobPresence)> {
        let mut jobs = self.to_vec();
        jobs.sort_by(|a, b| a.name.cmp(&b.name));
        let numbered = jobs.into_iter();
        let numbered = numbered.map(|job| (Page::number_of(&job.name, of), job));
        numbered
            .filter(|(number, _)| pages.contains(number))
            .collect()
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn in_all(&self) -> JobsInAll {
        let of: BTreeMap<_, _> = self
            .iter()
            .map(|job| (&*job.name, &*job.definition))
            .collect();
        JobsInAll {
            count: self.len(),
            leads: self.iter().filter(|job| job.is_led()).count(),
            definitions: super::pages::hash_of(of),
        }
    }
}

#[cfg(test)]
impl Teller {
    /// The same of what a replica tells in one piece.
    pub(crate) fn changes_of(
        &mut self,
        presence: &Presence,
        lifetime: Duration,
        now: Moment,
    ) -> Changes {
        self.changes(presence, &presence.jobs, lifetime, now)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::fleet::presence::{JobStanding, LIFETIME};

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    fn replica(jobs: usize) -> Presence {
        let job = |n| JobPresence {
            name: format!("job-{n}"),
            coordination: "leader".to_owned(),
            schedule: "@every 1s".to_owned(),
            definition: "0123456789abcdef".to_owned(),
            ..JobPresence::default()
        };
        Presence {
            id: "h-1-x".to_owned(),
            jobs: (0..jobs).map(job).collect(),
            ..Presence::default()
        }
    }

    fn kinds(changes: &Changes) -> Vec<Kind> {
        changes.pages.iter().map(|(page, _)| page.kind).collect()
    }

    #[test]
    fn what_a_node_lacks_is_written_under_the_revision_that_it_has() {
        let (mut teller, mut me) = (Teller::new(7), replica(200));
        let first = teller.changes_of(&me, LIFETIME, at(0));
        let mut pages = first.pages.into_iter();
        let (page, put) = pages
            .find(|(page, _)| page.kind == Kind::Standings)
            .unwrap();
        teller.lacks(page);
        let again = teller.changes_of(&me, LIFETIME, at(60_000));
        assert_eq!(
            (again.pages, again.summary),
            (vec![(page, put.clone())], None)
        );
        assert!(
            teller
                .changes_of(&me, LIFETIME, at(61_000))
                .pages
                .is_empty()
        );
        // What has changed meanwhile is news, and so is what no node has taken.
        teller.lacks(page);
        me.jobs
            .iter_mut()
            .for_each(|job| job.standing = JobStanding::Leading);
        let changed = teller.changes_of(&me, LIFETIME, at(120_000));
        assert!(changed.pages.iter().all(|(_, new)| new.rev > put.rev));
        teller.unsaid(page);
        let anew = teller.changes_of(&me, LIFETIME, at(180_000));
        assert!(anew.pages[0].1.rev > put.rev && anew.summary.is_some());
    }

    #[test]
    fn what_has_not_changed_is_not_written_again() {
        let (mut teller, mut me) = (Teller::new(7), replica(200));
        let first = teller.changes_of(&me, LIFETIME, at(0));
        assert_eq!(kinds(&first).len(), 1 + 3 * 4);
        assert!(first.summary.is_some());
        me.written_at = Timestamp::from_second(60).unwrap();
        let at_rest = teller.changes_of(&me, LIFETIME, at(60_000));
        assert_eq!((kinds(&at_rest), at_rest.summary), (vec![], None));
        me.jobs[7].standing = JobStanding::Leading;
        let led = teller.changes_of(&me, LIFETIME, at(60_100));
        assert_eq!(kinds(&led), [Kind::Standings]);
        assert!(led.pages[0].1.body.len() < 100, "one job is told");
        teller.unsaid(led.pages[0].0);
        let again = teller.changes_of(&me, LIFETIME, at(60_200));
        assert_eq!(again.pages[0].1.body, led.pages[0].1.body);
        assert!(again.pages[0].1.rev > led.pages[0].1.rev);
    }

    #[test]
    fn a_page_of_runs_is_written_in_its_turn() {
        let (mut teller, mut me) = (Teller::new(7), replica(63));
        teller.changes_of(&me, LIFETIME, at(0));
        let (mut written, mut bytes) = (0, 0);
        for ms in (10_000..70_000).step_by(100) {
            let second = i64::try_from(ms / 1000).unwrap();
            for job in &mut me.jobs {
                job.last_tick = Timestamp::from_second(second).ok();
                job.next_tick = Timestamp::from_second(second + 1).ok();
            }
            let changes = teller.changes_of(&me, LIFETIME, at(ms));
            assert!(changes.summary.is_none(), "ticks are nothing for others");
            written += changes.pages.len();
            bytes += changes
                .pages
                .iter()
                .map(|(_, put)| put.body.len())
                .sum::<usize>();
            assert!(changes.due.is_none_or(|due| due <= at(ms) + INTERVAL));
        }
        assert!((28..=36).contains(&written), "{written} times in a minute");
        assert!(bytes / 60 < 3_500, "{} bytes a second", bytes / 60);
    }

    /// Jobs that all run all the time.
    struct Runs<'a>(&'a Vec<JobPresence>, u64);

    impl TellsJobs for Runs<'_> {
        fn marks(&self, each: &mut dyn FnMut(Mark)) {
            for job in self.0 {
                each(Mark {
                    name: Page::hash_of(&job.name),
                    standing: 0,
                    runs: self.1,
                });
            }
        }
        fn on_pages(&self, pages: &BTreeSet<u32>, of: u32) -> Vec<(u32, JobPresence)> {
            let mut jobs = self.0.on_pages(pages, of);
            let at = i64::try_from(self.1).ok();
            let at = at.and_then(|at| Timestamp::from_second(at).ok());
            jobs.iter_mut()
                .for_each(|(_, job)| (job.last_tick, job.next_tick) = (at, at));
            jobs
        }
        fn count(&self) -> usize {
            self.0.len()
        }
        fn in_all(&self) -> JobsInAll {
            JobsInAll::default()
        }
    }

    #[test]
    fn the_runs_of_many_jobs_cost_no_more_than_those_of_some() {
        let bytes_a_second = |jobs: usize| {
            let (mut teller, me) = (Teller::new(7), replica(jobs));
            let mut bytes = 0;
            for second in 0..60_u64 {
                let runs = Runs(&me.jobs, second);
                let changes = teller.changes(&me, &runs, LIFETIME, at(second * 1_000));
                let told = changes.pages.iter().map(|(_, put)| put.body.len());
                bytes += if second < 20 { 0 } else { told.sum::<usize>() };
            }
            bytes / 40
        };
        let (some, many) = (bytes_a_second(500), bytes_a_second(8_000));
        assert!(some < RUNS_BYTES_PER_SECOND, "{some}");
        let limits = RUNS_BYTES_PER_SECOND / 2..RUNS_BYTES_PER_SECOND * 3 / 2;
        assert!(limits.contains(&many), "{many}");
    }

    #[test]
    fn what_has_not_changed_is_not_put_together() {
        struct Counts<'a>(&'a Vec<JobPresence>, std::cell::Cell<usize>);
        impl TellsJobs for Counts<'_> {
            fn marks(&self, each: &mut dyn FnMut(Mark)) {
                self.0.marks(each);
            }
            fn on_pages(&self, pages: &BTreeSet<u32>, of: u32) -> Vec<(u32, JobPresence)> {
                let jobs = self.0.on_pages(pages, of);
                self.1.set(self.1.get() + jobs.len());
                jobs
            }
            fn count(&self) -> usize {
                self.0.len()
            }
            fn in_all(&self) -> JobsInAll {
                self.0.in_all()
            }
        }
        let (mut teller, mut me) = (Teller::new(7), replica(2_000));
        let mut asked = |me: &Presence, ms| {
            let counts = Counts(&me.jobs, std::cell::Cell::new(0));
            teller.changes(me, &counts, LIFETIME, at(ms));
            counts.1.get()
        };
        assert_eq!(asked(&me, 0), 2_000);
        assert_eq!(asked(&me, 60_000), 0);
        me.jobs[7].standing = JobStanding::Leading;
        let few = asked(&me, 60_100);
        assert!((1..200).contains(&few), "{few}");
    }

    #[test]
    fn the_first_run_after_a_calm_is_told_at_once() {
        let (mut teller, mut me) = (Teller::new(7), replica(1));
        teller.changes_of(&me, LIFETIME, at(0));
        me.jobs[0].last_outcome = Some("done".to_owned());
        let told = teller.changes_of(&me, LIFETIME, at(10_000));
        assert_eq!(kinds(&told), [Kind::Runs]);
        me.jobs[0].last_outcome = Some("failed".to_owned());
        let soon = teller.changes_of(&me, LIFETIME, at(10_050));
        let due = soon.due.unwrap();
        assert!(kinds(&soon).is_empty() && due < at(10_150), "{due:?}");
        assert_eq!(kinds(&teller.changes_of(&me, LIFETIME, due)), [Kind::Runs]);
    }

    #[test]
    fn the_summary_comes_after_its_pages() {
        let (mut teller, mut me) = (Teller::new(7), replica(200));
        teller.changes_of(&me, LIFETIME, at(0));
        me.jobs[7].standing = JobStanding::Leading;
        let led = teller.changes_of(&me, LIFETIME, at(100));
        let (page, summary) = (&led.pages[0].1, led.summary.unwrap());
        let said: Summary = serde_json::from_str(&summary.body).unwrap();
        let pages = teller
            .pages()
            .filter(|(page, _)| page.kind == Kind::Standings);
        assert_eq!(said.standings, pages.map(|(_, rev)| rev).sum::<u64>());
        assert!(summary.rev > page.rev);
        assert_eq!((said.jobs, said.leads, said.pages), (200, 1, 4));
    }

    #[test]
    fn a_summary_is_small_whatever_people_have_named() {
        let mut me = replica(100_000);
        let long = "\u{1}ä".repeat(5_000);
        for text in [&mut me.name, &mut me.host, &mut me.version] {
            text.clone_from(&long);
        }
        (me.unfit, me.admin) = (Some(long.clone()), Some(long));
        let changes = Teller::new(7).changes_of(&me, LIFETIME, at(0));
        let summary = changes.summary.unwrap();
        let size = summary.body.len();
        assert!(size <= super::super::pages::LARGEST_SUMMARY, "{size}");
        let said: Summary = serde_json::from_str(&summary.body).unwrap();
        assert_eq!((said.head.id.as_str(), said.pages), ("h-1-x", 2048));
        let pages = changes
            .pages
            .iter()
            .filter(|(page, _)| page.kind != Kind::Head);
        let largest = pages.map(|(_, put)| put.body.len()).max();
        assert!(largest.unwrap() < 100_000, "{largest:?}");
        assert!(me.name.starts_with('\u{1}') && said.head.name.ends_with('…'));
    }
}
