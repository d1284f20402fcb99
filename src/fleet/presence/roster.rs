//! What is known of the replicas of a fleet, read from their documents: each document once per revision.
//!
//! A look costs a number for each node while no summary changes ([`Locks::living`]); after a change the summaries that moved, and
//! of their pages those that are [`Wanted`] and moved.
//!
//! # Invariants
//! - A document is read once per revision.   (each_document_is_read_once_per_revision)
//! - A replica is there while a node says that its summary was touched of late, however long clocks that were set back let it
//!   stand.   (whoever_touches_nothing_any_more_counts_as_gone)
//! - Of a replica whose pages are not all there, or are older than its summary says, nothing is made up: its jobs count as not
//!   known, or as they were known before.   (pages_that_are_missing_old_or_damaged_are_not_known)
//! # When things fail
//! A document that makes no sense is left out until it has another revision. What is missing is looked for at each look.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use super::{
    JobPresence, PRESENCE_PREFIX, Presence, Standing,
    pages::{self, Kind, Page, Summary, Told},
};
use crate::{
    lock::{Lives, LockError, Locks},
    node::{Doc, Token},
};

/// Every summary that stands, whenever it was touched.
const ANY: Range<Duration> = Duration::from_millis(1)..Duration::from_secs(365 * 24 * 3600);
/// Replicas whose pages are asked for at one time.
const AT_ONCE: usize = 8;

/// What is to be known of each replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted<'a> {
    /// Who it is.
    Replicas,
    /// What it is to its jobs; what they are, where it has other definitions than those of this hash.
    Standings(&'a str),
    /// All there is.
    Jobs,
}

/// What replicas tell of each job, by the job and the id of the replica: kept up to date by the pages that move.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) jobs: BTreeMap<String, BTreeMap<String, JobPresence>>,
    /// Jobs of which something else is told than when this was emptied last.
    pub(crate) moved: BTreeSet<String>,
}

/// The replicas of a fleet, as far as they were read.
#[derive(Debug)]
pub(crate) struct Roster {
    /// For how much longer a summary must live to count, and may.
    life: Range<Duration>,
    lives: Lives,
    replicas: BTreeMap<String, Replica>,
    /// Summaries that make no sense, by their revision.
    in_vain: BTreeMap<String, u64>,
    /// For a reader that looks again and again at all there is.
    index: Option<Index>,
}

/// One replica.
#[derive(Debug, Default)]
struct Replica {
    summary: Summary,
    /// All that it says of itself, where that was read.
    head: Option<Presence>,
    /// Of each page the revision that was read last, and what it says; nothing where it is none of ours.
    pages: BTreeMap<Page, (u64, Option<Told>)>,
    /// For which revisions in the summary a kind was read in full.
    complete: BTreeMap<Kind, u64>,
    /// What is missing has been told for this revision.
    told: u64,
    /// How much longer its summary lived when it was asked for.
    left: Duration,
}

impl Default for Roster {
    /// Of all replicas whose summaries stand, with the age of each.
    fn default() -> Self {
        Self::within(ANY)
    }
}

impl Roster {
    /// Of replicas whose summaries live for `life`: of late, where that begins a little before their whole lifetime.
    pub(crate) fn within(life: Range<Duration>) -> Self {
        Self {
            life,
            lives: Lives::default(),
            replicas: BTreeMap::new(),
            in_vain: BTreeMap::new(),
            index: None,
        }
    }

    /// Of all replicas whose summaries stand, with an index of what they tell.
    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
    pub(crate) fn indexed() -> Self {
        Self {
            index: Some(Index::default()),
            ..Self::default()
        }
    }

    /// Reads what has moved; says whether anything has.
    ///
    /// # Errors
    /// [`LockError`] while no node answers: what is known stays as it is.
    pub(crate) async fn look(
        &mut self,
        locks: &Locks,
        wanted: Wanted<'_>,
    ) -> Result<bool, LockError> {
        if self.life == ANY {
            // Their age is asked for as well.
            self.lives.forget();
        }
        let life = self.life.clone();
        let known = std::mem::take(&mut self.lives);
        self.lives = locks.living(PRESENCE_PREFIX, life, known).await?;
        let mut changed = self.summaries(locks).await?;
        changed |= self.details(locks, wanted).await?;
        Ok(changed)
    }

    async fn summaries(&mut self, locks: &Locks) -> Result<bool, LockError> {
        let living: BTreeMap<String, (u64, Duration)> = self
            .lives
            .newest()
            .into_iter()
            .filter_map(|(name, told)| Some((name.strip_prefix(PRESENCE_PREFIX)?.to_owned(), told)))
            .collect();
        let before = self.replicas.len();
        let gone = self.replicas.keys().filter(|id| !living.contains_key(*id));
        let gone: Vec<String> = gone.cloned().collect();
        for id in gone {
            self.replicas.remove(&id);
            if let Some(index) = &mut self.index {
                index.forget(&id);
            }
        }
        self.in_vain.retain(|id, _| living.contains_key(id));
        let mut changed = before != self.replicas.len();
        let is_news = |id: &str, rev: u64| {
            let known = self.replicas.get(id).map(|known| known.summary.head.rev);
            known.max(self.in_vain.get(id).copied()) < Some(rev)
        };
        let news = living.iter().filter(|(id, (rev, _))| is_news(id, *rev));
        let news: Vec<String> = news.map(|(id, _)| pages::document_of(id)).collect();
        for doc in locks.docs_of(&news).await? {
            let Some(summary) = Summary::from_doc(&doc) else {
                let id = doc.name.strip_prefix(PRESENCE_PREFIX).unwrap_or_default();
                tracing::debug!(replica = id, "its summary makes no sense");
                self.in_vain.insert(id.to_owned(), doc.rev);
                continue;
            };
            changed = true;
            let replica = self.replicas.entry(summary.head.id.clone()).or_default();
            if replica.summary.pages != summary.pages
                && let Some(index) = &mut self.index
            {
                // The pages are others now: all of them are read anew.
                index.forget(&summary.head.id);
            }
            let of = summary.pages;
            replica
                .pages
                .retain(|page, _| page.of == of || page.kind == Kind::Head);
            replica.summary = summary;
        }
        for (id, (_, left)) in &living {
            if let Some(replica) = self.replicas.get_mut(id) {
                replica.left = *left;
            }
        }
        Ok(changed)
    }

    async fn details(&mut self, locks: &Locks, wanted: Wanted<'_>) -> Result<bool, LockError> {
        if let Wanted::Standings(hash) = wanted {
            let agree = |replica: &&mut Replica| replica.summary.definitions == hash;
            // They say what this replica knows by itself.
            self.replicas
                .values_mut()
                .filter(agree)
                .for_each(Replica::forget_facts);
        }
        let moved = |replica: &Replica| {
            let mut kinds = wanted.kinds(replica).iter();
            wanted == Wanted::Jobs || kinds.any(|kind| !replica.has(*kind))
        };
        let ids = self.replicas.iter().filter(|(_, replica)| moved(replica));
        let ids: Vec<String> = ids.map(|(id, _)| id.clone()).collect();
        let mut changed = false;
        for some in ids.chunks(AT_ONCE) {
            let listed = some
                .iter()
                .map(async |id| locks.doc_names(&Page::directory(id)).await);
            let listed = futures_util::future::join_all(listed).await;
            for (id, listed) in some.iter().zip(listed) {
                let Some(replica) = self.replicas.get_mut(id) else {
                    continue;
                };
                let kinds = wanted.kinds(replica);
                let there = listed?.docs.into_iter();
                let there: BTreeMap<Page, u64> = there
                    .filter_map(|(doc, _)| Some((Page::named(&doc.name, id)?, doc.rev)))
                    .collect();
                let news = replica.news(&there, kinds);
                let names: Vec<String> = news.iter().map(|page| page.document(id)).collect();
                let docs = locks.docs_of(&names).await?;
                changed |= !docs.is_empty();
                let moved: BTreeSet<String> =
                    docs.iter().flat_map(|doc| replica.read(doc, id)).collect();
                replica.judge(id, kinds);
                if let Some(index) = &mut self.index {
                    for job in moved {
                        index.note(id, replica.job(&job), job);
                    }
                }
            }
        }
        Ok(changed)
    }

    /// Whether any replica has other jobs, or others' definitions of them, than this hash stands for.
    pub(crate) fn differs_from(&self, definitions: &str) -> bool {
        let mut all = self.replicas.values();
        all.any(|replica| replica.summary.definitions != definitions)
    }

    /// Every replica with all that was read of it, at `now`.
    pub(crate) fn presences(&self, now: Timestamp) -> Vec<Presence> {
        let all = self.replicas.values();
        all.map(|replica| replica.presence(now, None)).collect()
    }

    /// Every replica without its jobs, but those whose engines have died.
    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
    pub(crate) fn heads(&self, now: Timestamp) -> Vec<Presence> {
        let all = self.replicas.values();
        all.map(|replica| replica.head(now)).collect()
    }

    /// What they tell of each job; nothing where no index is kept.
    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
    pub(crate) fn index(&mut self) -> &mut Index {
        self.index.get_or_insert_default()
    }

    /// Every replica, one after the other, for a reader that has the jobs `own` itself: of replicas with other definitions
    /// than this hash only what they say of them.
    pub(crate) fn peers<'a>(
        &'a self,
        now: Timestamp,
        definitions: &'a str,
        own: &'a [JobPresence],
    ) -> impl Iterator<Item = Presence> + 'a {
        self.replicas.values().map(move |replica| {
            let same = replica.summary.definitions == definitions;
            replica.presence(now, same.then_some(own))
        })
    }

    /// The ids of all replicas that are there.
    pub(crate) fn ids(&self) -> BTreeSet<&str> {
        self.replicas.keys().map(String::as_str).collect()
    }

    /// The largest token under which a replica says to lead the job.
    pub(crate) fn leader(&self, job: &str) -> Option<Token> {
        let told = self.replicas.values().filter_map(|replica| {
            let page = replica.page(Kind::Standings, job)?;
            page.get(job)
                .filter(|told| told.standing == Standing::Leading)
        });
        told.filter_map(|told| told.token).max()
    }
}

// === impl Index ===

impl Index {
    pub(crate) fn note(&mut self, replica: &str, told: Option<JobPresence>, job: String) {
        match told {
            Some(told) => {
                let of_it = self.jobs.entry(job.clone()).or_default();
                of_it.insert(replica.to_owned(), told);
            }
            None => {
                if let Some(of_it) = self.jobs.get_mut(&job) {
                    of_it.remove(replica);
                }
            }
        }
        self.moved.insert(job);
    }

    fn forget(&mut self, replica: &str) {
        for (job, of_it) in &mut self.jobs {
            if of_it.remove(replica).is_some() {
                self.moved.insert(job.clone());
            }
        }
        self.jobs.retain(|_, of_it| !of_it.is_empty());
    }
}

// === impl Wanted ===

impl Wanted<'_> {
    /// What is read of this replica.
    fn kinds(self, replica: &Replica) -> &'static [Kind] {
        match self {
            Wanted::Replicas => &[],
            Wanted::Standings(hash) if replica.summary.definitions != hash => {
                &[Kind::Standings, Kind::Facts]
            }
            Wanted::Standings(_) => &[Kind::Standings],
            Wanted::Jobs => &[Kind::Head, Kind::Standings, Kind::Facts, Kind::Runs],
        }
    }
}

// === impl Replica ===

impl Replica {
    fn forget_facts(&mut self) {
        if self.complete.remove(&Kind::Facts).is_some() {
            self.pages.retain(|page, _| page.kind != Kind::Facts);
        }
    }

    /// Whether all of this kind was read that the summary speaks of.
    fn has(&self, kind: Kind) -> bool {
        self.complete.get(&kind) == Some(&self.summary.revisions(kind))
    }

    /// Which pages are to be read.
    fn news(&self, there: &BTreeMap<Page, u64>, kinds: &[Kind]) -> Vec<Page> {
        let wanted = |page: &Page| {
            kinds.contains(&page.kind) && (page.kind == Kind::Head || page.of == self.summary.pages)
        };
        let is_news = |page: &Page, rev: u64| {
            let known = self.pages.get(page).map(|(known, _)| *known);
            known < Some(rev)
        };
        let news = there
            .iter()
            .filter(|(page, rev)| wanted(page) && is_news(page, **rev));
        news.map(|(page, _)| *page).collect()
    }

    /// Takes a page in; of which jobs it tells something else than before.
    fn read(&mut self, doc: &Doc, id: &str) -> Vec<String> {
        let Some(page) = Page::named(&doc.name, id) else {
            return Vec::new();
        };
        if page.kind == Kind::Head {
            self.head = pages::read_head(doc, id);
            self.pages.insert(page, (doc.rev, None));
            return Vec::new();
        }
        let told = pages::read(doc);
        let before = self.pages.insert(page, (doc.rev, told.clone()));
        let (now, before) = (told.unwrap_or_default(), before.and_then(|(_, told)| told));
        let before = before.unwrap_or_default();
        let names = now.keys().chain(before.keys());
        let moved = names.filter(|name| now.get(*name) != before.get(*name));
        moved.cloned().collect()
    }

    /// Takes note of which kinds are read in full, and tells of what is not.
    fn judge(&mut self, id: &str, kinds: &[Kind]) {
        let summary = &self.summary;
        let mut lacking = 0_u64;
        for kind in kinds.iter().filter(|kind| **kind != Kind::Head) {
            let all = (0..summary.pages).map(|number| Page {
                kind: *kind,
                number,
                of: summary.pages,
            });
            let (mut read, mut reached) = (0, 0_u64);
            for (rev, told) in all.filter_map(|page| self.pages.get(&page)) {
                read += u32::from(told.is_some());
                reached = reached.saturating_add(*rev);
            }
            if read == summary.pages && reached >= summary.revisions(*kind) {
                self.complete.insert(*kind, summary.revisions(*kind));
            } else {
                self.complete.remove(kind);
                lacking += u64::from(summary.pages - read).max(1);
            }
        }
        if lacking > 0 && self.told != summary.head.rev {
            self.told = summary.head.rev;
            tracing::warn!(
                replica = id,
                pages = lacking,
                "not all that it tells of its jobs is there, or can be read: what is missing is not shown"
            );
        }
    }

    fn page(&self, kind: Kind, job: &str) -> Option<&Told> {
        let of = self.summary.pages;
        let number = Page::number_of(job, of);
        let (_, told) = self.pages.get(&Page { kind, number, of })?;
        told.as_ref()
    }

    /// What it tells of the job, where it has told how that is defined.
    fn job(&self, name: &str) -> Option<JobPresence> {
        let part = |kind| self.page(kind, name)?.get(name);
        let (standing, runs) = (part(Kind::Standings), part(Kind::Runs));
        Some(pages::job(
            part(Kind::Facts)?,
            self.summary.head.role,
            standing,
            runs,
        ))
    }

    /// What it tells of itself; no more than the summary says where it is known `briefly`.
    fn itself(&self, now: Timestamp, briefly: bool) -> Presence {
        let head = self.head.as_ref().filter(|_| !briefly);
        // What people have named is uncut in the head; the summary is newer.
        let mut presence = match head {
            Some(head) => Presence {
                role: self.summary.head.role,
                draining: self.summary.head.draining,
                rev: self.summary.head.rev,
                ..pages::head_of(head)
            },
            None => pages::head_of(&self.summary.head),
        };
        let age = self.summary.lifetime_ms.saturating_sub(millis(self.left));
        let age = SignedDuration::from_millis(i64::try_from(age).unwrap_or(0));
        presence.written_at = now.checked_sub(age).unwrap_or(now);
        presence
    }

    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
    fn head(&self, now: Timestamp) -> Presence {
        let mut presence = self.itself(now, false);
        let told = self
            .pages
            .iter()
            .filter(|(page, _)| page.kind == Kind::Standings);
        let jobs = told
            .filter_map(|(_, (_, told))| told.as_ref())
            .flat_map(Told::values);
        let died = jobs.filter(|job| job.engine_died.is_some());
        presence.jobs = died.cloned().collect();
        presence
    }

    /// What it tells, put together; of these jobs where it has the same.
    fn presence(&self, now: Timestamp, own: Option<&[JobPresence]>) -> Presence {
        let mut presence = self.itself(now, own.is_some());
        let role = presence.role;
        let told = |facts: &JobPresence| {
            let part = |kind| self.page(kind, &facts.name)?.get(&facts.name);
            pages::job(facts, role, part(Kind::Standings), part(Kind::Runs))
        };
        presence.jobs = match own {
            // Nothing of it was read yet, or not all: it may lead any of them.
            Some(_) if !self.complete.contains_key(&Kind::Standings) && self.summary.leads > 0 => {
                Vec::new()
            }
            Some(own) => own.iter().map(told).collect(),
            None => {
                let facts = self
                    .pages
                    .iter()
                    .filter(|(page, _)| page.kind == Kind::Facts);
                let facts = facts.filter_map(|(_, (_, told))| told.as_ref());
                facts.flat_map(Told::values).map(told).collect()
            }
        };
        presence
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
