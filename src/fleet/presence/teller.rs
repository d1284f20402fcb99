//! What a replica writes of itself, and when: each page when it has changed, and the summary after them.
//!
//! # Invariants
//! - A page that has not changed is not written again.   (what_has_not_changed_is_not_written_again)
//! - What others act by is told at once. A page of runs is written so often that it costs [`PAGE_BYTES_PER_SECOND`], and once in
//!   [`INTERVAL`] at least.   (a_page_of_runs_is_written_in_its_turn)
//! - A summary that says of a revision is written after the pages that have it.   (the_summary_comes_after_its_pages)
//! # When things fail
//! What no node has taken counts as not written.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    time::Duration,
};

use super::{
    INTERVAL, JobPresence, Presence,
    pages::{Kind, Page, Summary, head_of},
};
use crate::clock::Moment;

/// Bytes in a second of one page of ticks and runs, on each node: that of one job follows its runs, a full one is told every
/// other second.
const PAGE_BYTES_PER_SECOND: usize = 3_000;
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

#[derive(Debug)]
struct Written {
    /// A hash of what it said; none where it has to be written anew.
    print: Option<u64>,
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
        presence: &Presence,
        lifetime: Duration,
        now: Moment,
    ) -> Changes {
        let of = Page::pages_of(presence.jobs.len());
        if self.of != of {
            // Those of before are touched no more, and end by themselves.
            self.of = of;
            self.pages.clear();
        }
        let mut numbered: Vec<Vec<&JobPresence>> = Vec::new();
        numbered.resize_with(usize::try_from(of).unwrap_or(0), Vec::new);
        for job in &presence.jobs {
            let number = usize::try_from(Page::number_of(&job.name, of)).unwrap_or(0);
            if let Some(jobs) = numbered.get_mut(number) {
                jobs.push(job);
            }
        }
        let mut changes = Changes::default();
        for page in Page::all(of) {
            let body = match page.kind {
                Kind::Head => serde_json::to_string(&head_of(presence)),
                kind => {
                    let jobs = usize::try_from(page.number)
                        .ok()
                        .and_then(|n| numbered.get(n));
                    let parts = jobs.into_iter().flatten();
                    let parts = parts.filter_map(|job| kind.part(job, presence.role));
                    serde_json::to_string(&parts.collect::<Vec<_>>())
                }
            };
            if let Ok(body) = body {
                changes.bytes += body.len();
                self.page(page, body, &presence.id, now, &mut changes);
            }
        }
        self.summary(presence, lifetime, &mut changes);
        changes
    }

    fn page(&mut self, page: Page, body: String, id: &str, now: Moment, changes: &mut Changes) {
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        let print = hasher.finish();
        let written = self.pages.get_mut(&page);
        if let Some(written) = written
            && written.print == Some(print)
        {
            if std::mem::take(&mut written.lost) {
                // Under the revision that it has: to those that have read it, nothing has changed.
                let (name, rev) = (page.document(id), written.rev);
                changes.pages.push((page, Put { name, rev, body }));
            }
            return;
        }
        let written = self.pages.get(&page);
        if let Some(written) = written
            && page.kind == Kind::Runs
            && now < written.due
        {
            changes.due = Some(changes.due.map_or(written.due, |due| due.min(written.due)));
            return;
        }
        self.rev += 1;
        let written = Written {
            print: Some(print),
            lost: false,
            rev: self.rev,
            due: now + turn(body.len()),
        };
        self.pages.insert(page, written);
        let put = Put {
            name: page.document(id),
            rev: self.rev,
            body,
        };
        changes.pages.push((page, put));
    }

    fn summary(&mut self, presence: &Presence, lifetime: Duration, changes: &mut Changes) {
        let reached = |kind| {
            let pages = self.pages.iter().filter(|(page, _)| page.kind == kind);
            pages.map(|(_, written)| written.rev).sum::<u64>()
        };
        let (standings, facts) = (reached(Kind::Standings), reached(Kind::Facts));
        let summary = Summary::of(presence, standings, facts, lifetime);
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
    let changes = teller.changes(presence, lifetime, locks.clock().now());
    let pages = changes.pages.into_iter().map(|(_, put)| put);
    for Put { name, rev, body } in pages.chain(changes.summary) {
        locks.put_doc(&name, rev, lifetime, body).await.unwrap();
    }
}

/// How long a page of runs of this size is as it is.
fn turn(bytes: usize) -> Duration {
    let fair = Duration::from_secs(1) * u32::try_from(bytes).unwrap_or(u32::MAX)
        / u32::try_from(PAGE_BYTES_PER_SECOND).unwrap_or(u32::MAX);
    (COLLECT + fair).min(INTERVAL)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::fleet::presence::{LIFETIME, Standing};

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
        let first = teller.changes(&me, LIFETIME, at(0));
        let mut pages = first.pages.into_iter();
        let (page, put) = pages
            .find(|(page, _)| page.kind == Kind::Standings)
            .unwrap();
        teller.lacks(page);
        let again = teller.changes(&me, LIFETIME, at(60_000));
        assert_eq!(
            (again.pages, again.summary),
            (vec![(page, put.clone())], None)
        );
        assert!(teller.changes(&me, LIFETIME, at(61_000)).pages.is_empty());
        // What has changed meanwhile is news, and so is what no node has taken.
        teller.lacks(page);
        me.jobs
            .iter_mut()
            .for_each(|job| job.standing = Standing::Leading);
        let changed = teller.changes(&me, LIFETIME, at(120_000));
        assert!(changed.pages.iter().all(|(_, new)| new.rev > put.rev));
        teller.unsaid(page);
        let anew = teller.changes(&me, LIFETIME, at(180_000));
        assert!(anew.pages[0].1.rev > put.rev && anew.summary.is_some());
    }

    #[test]
    fn what_has_not_changed_is_not_written_again() {
        let (mut teller, mut me) = (Teller::new(7), replica(200));
        let first = teller.changes(&me, LIFETIME, at(0));
        assert_eq!(kinds(&first).len(), 1 + 3 * 4);
        assert!(first.summary.is_some());
        me.written_at = Timestamp::from_second(60).unwrap();
        let at_rest = teller.changes(&me, LIFETIME, at(60_000));
        assert_eq!((kinds(&at_rest), at_rest.summary), (vec![], None));
        me.jobs[7].standing = Standing::Leading;
        let led = teller.changes(&me, LIFETIME, at(60_100));
        assert_eq!(kinds(&led), [Kind::Standings]);
        assert!(led.pages[0].1.body.len() < 100, "one job is told");
        teller.unsaid(led.pages[0].0);
        let again = teller.changes(&me, LIFETIME, at(60_200));
        assert_eq!(again.pages[0].1.body, led.pages[0].1.body);
        assert!(again.pages[0].1.rev > led.pages[0].1.rev);
    }

    #[test]
    fn a_page_of_runs_is_written_in_its_turn() {
        let (mut teller, mut me) = (Teller::new(7), replica(63));
        teller.changes(&me, LIFETIME, at(0));
        let (mut written, mut bytes) = (0, 0);
        for ms in (10_000..70_000).step_by(100) {
            let second = i64::try_from(ms / 1000).unwrap();
            for job in &mut me.jobs {
                job.last_tick = Timestamp::from_second(second).ok();
                job.next_tick = Timestamp::from_second(second + 1).ok();
            }
            let changes = teller.changes(&me, LIFETIME, at(ms));
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

    #[test]
    fn the_first_run_after_a_calm_is_told_at_once() {
        let (mut teller, mut me) = (Teller::new(7), replica(1));
        teller.changes(&me, LIFETIME, at(0));
        me.jobs[0].last_outcome = Some("done".to_owned());
        let told = teller.changes(&me, LIFETIME, at(10_000));
        assert_eq!(kinds(&told), [Kind::Runs]);
        me.jobs[0].last_outcome = Some("failed".to_owned());
        let soon = teller.changes(&me, LIFETIME, at(10_050));
        let due = soon.due.unwrap();
        assert!(kinds(&soon).is_empty() && due < at(10_150), "{due:?}");
        assert_eq!(kinds(&teller.changes(&me, LIFETIME, due)), [Kind::Runs]);
    }

    #[test]
    fn the_summary_comes_after_its_pages() {
        let (mut teller, mut me) = (Teller::new(7), replica(200));
        teller.changes(&me, LIFETIME, at(0));
        me.jobs[7].standing = Standing::Leading;
        let led = teller.changes(&me, LIFETIME, at(100));
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
        let changes = Teller::new(7).changes(&me, LIFETIME, at(0));
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
