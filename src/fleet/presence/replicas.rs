//! What is known of the replicas of a fleet, read from their documents: each document once per revision.
//!
//! A look costs a number for each node while no summary changes ([`Locks::living`]); after a change the summaries that moved, and
//! of their pages those that are [`Wanted`] and moved. One at all there is costs a number more for each replica.
//!
//! # Invariants
//! - A document is read once per revision.   (each_document_is_read_once_per_revision)
//! - The pages of a replica are listed when they have moved.   (only_pages_that_have_moved_are_listed)
//! - For some jobs alone the pages are read that tell of them, and of what is not at rest.   (some_jobs_are_read_without_the_pages_of_others)
//! - A replica is there while a node says that its summary was touched of late, however long clocks that were set back let it
//!   stand.   (whoever_touches_nothing_any_more_counts_as_gone)
//! - Of a replica whose pages are not all there, or are older than its summary says, nothing is made up: its jobs count as not
//!   known, or as they were known before.   (pages_that_are_missing_old_or_damaged_are_not_known)
//! # When things fail
//! A document that makes no sense is left out until it has another revision. What is missing is looked for at each look.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use super::{
    JobPresence, JobStanding, PRESENCE_PREFIX, Presence, has_lock,
    pages::{self, Kind, Page, PageJobs, Summary},
};
use crate::{
    lock::{Lives, LockError, Locks},
    node::{Doc, MOST_LIVING, Token},
};

/// Every summary that stands, whenever it was touched.
const ANY: Range<Duration> = Duration::from_millis(1)..Duration::from_secs(365 * 24 * 3600);
/// Replicas whose pages are asked for at one time: so many that not many more than [`PAGES`] are named, within these bounds.
const AT_ONCE: (usize, usize) = (8, 64);
const PAGES: usize = 512;
/// Pages that are read at one time.
const DOCS: usize = 64;

/// What is to be known of each replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted<'a> {
    /// Who it is.
    Replicas,
    /// What it is to its jobs; what they are, where it has other definitions than those of this hash. Of the reader itself no
    /// more than who it is: it knows the rest.
    Standings {
        /// Of the definitions that the reader has.
        hash: &'a str,
        /// The id of the reader.
        but: &'a str,
    },
    /// All there is.
    Jobs,
    /// The same of these jobs alone: the pages that tell of them, and the standings of all, wherever others have moved as well.
    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
    Some(&'a BTreeSet<&'a str>),
}

/// The jobs of a reader that has jobs itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Own {
    /// A hash of them, as each replica tells it of its own.
    pub(crate) hash: String,
    /// How each is defined.
    defined: BTreeMap<String, Defined>,
    /// The names of those with a lock.
    pub(crate) locked: Arc<BTreeSet<String>>,
}

/// How a job is defined: there may be ten thousand, of which the rest of a presence would be empty.
#[derive(Debug, PartialEq, Eq)]
struct Defined {
    coordination: String,
    schedule: String,
    zone: Option<String>,
    definition: String,
}

/// What a replica tells a reader that has jobs itself.
#[derive(Clone, Debug)]
pub(crate) struct Telling {
    pub(crate) presence: Presence,
    /// It has the same jobs, and is to all but these what it is at rest.
    pub(crate) others_rest: bool,
}

/// The replicas of a fleet, as far as they were read. A clone shares the pages.
#[derive(Clone, Debug)]
pub(crate) struct Replicas {
    /// For how much longer a summary must live to count, and may.
    life: Range<Duration>,
    lives: Lives,
    by_id: BTreeMap<String, Replica>,
    /// Summaries that make no sense, by their revision.
    in_vain: BTreeMap<String, u64>,
    /// How often a replica was found to tell something new.
    news: u64,
    /// For a reader that looks again and again at all there is.
    noted: Option<Noted>,
}

/// Of which jobs replicas tell.
#[derive(Clone, Debug, Default)]
struct Noted {
    names: Arc<BTreeSet<String>>,
    /// Something else than when this was taken last.
    moved: BTreeSet<String>,
}

/// One replica.
#[derive(Clone, Debug, Default)]
struct Replica {
    summary: Summary,
    /// All that it says of itself, where that was read.
    head: Option<Presence>,
    /// Of each page the revision that was read last, and what it says; nothing where it is none of ours.
    pages: BTreeMap<Page, (u64, Option<Arc<PageJobs>>)>,
    /// For which revisions in the summary a kind was read in full.
    complete: BTreeMap<Kind, u64>,
    /// What is missing has been told for this revision.
    told: u64,
    /// How much longer its summary lived when it was asked for.
    left: Duration,
    /// What its pages came to at the last look at all of them.
    lives: Lives,
    /// Which news of the replicas was the last of this replica.
    news: u64,
}

impl Default for Replicas {
    /// Of all replicas whose summaries stand, with the age of each.
    fn default() -> Self {
        Self::within(ANY)
    }
}

impl Replicas {
    /// Of replicas whose summaries live for `life`: of late, where that begins a little before their whole lifetime.
    pub(crate) fn within(life: Range<Duration>) -> Self {
        Self {
            life,
            lives: Lives::default(),
            by_id: BTreeMap::new(),
            in_vain: BTreeMap::new(),
            news: 0,
            noted: None,
        }
    }

    /// Of all replicas whose summaries stand, for a reader that is told of which jobs they tell something else.
    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
    pub(crate) fn noting_jobs() -> Self {
        Self {
            noted: Some(Noted::default()),
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
        if let Some(Noted { names, moved }) = &mut self.noted {
            for job in moved.iter() {
                match self.by_id.values().any(|of| of.facts(job).is_some()) {
                    true if names.contains(job) => {}
                    true => _ = Arc::make_mut(names).insert(job.clone()),
                    false if names.contains(job) => _ = Arc::make_mut(names).remove(job),
                    false => {}
                }
            }
        }
        Ok(changed)
    }

    async fn summaries(&mut self, locks: &Locks) -> Result<bool, LockError> {
        let living: BTreeMap<String, (u64, Duration)> = self
            .lives
            .newest()
            .into_iter()
            .filter_map(|(name, told)| Some((name.strip_prefix(PRESENCE_PREFIX)?.to_owned(), told)))
            .collect();
        let before = self.by_id.len();
        let gone = self.by_id.keys().filter(|id| !living.contains_key(*id));
        let gone: Vec<String> = gone.cloned().collect();
        for id in gone {
            if let Some(replica) = self.by_id.remove(&id)
                && let Some(noted) = &mut self.noted
            {
                noted.moved.extend(replica.names());
            }
        }
        self.in_vain.retain(|id, _| living.contains_key(id));
        let mut changed = before != self.by_id.len();
        let is_news = |id: &str, rev: u64| {
            let known = self.by_id.get(id).map(|known| known.summary.head.rev);
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
            self.news += 1;
            let replica = self.by_id.entry(summary.head.id.clone()).or_default();
            replica.news = self.news;
            if replica.summary.pages != summary.pages {
                // The pages are others now: all of them are read anew.
                replica.lives = Lives::default();
                if let Some(noted) = &mut self.noted {
                    noted.moved.extend(replica.names());
                }
            }
            let of = summary.pages;
            replica
                .pages
                .retain(|page, _| page.of == of || page.kind == Kind::Head);
            replica.summary = summary;
        }
        for (id, (_, left)) in &living {
            if let Some(replica) = self.by_id.get_mut(id) {
                replica.left = *left;
            }
        }
        Ok(changed)
    }

    async fn details(&mut self, locks: &Locks, wanted: Wanted<'_>) -> Result<bool, LockError> {
        if let Wanted::Standings { hash, .. } = wanted {
            let agree = |replica: &&mut Replica| replica.summary.definitions == hash;
            // They say what this replica knows by itself.
            self.by_id
                .values_mut()
                .filter(agree)
                .for_each(Replica::forget_facts);
        }
        let all = matches!(wanted, Wanted::Jobs | Wanted::Some(_));
        let lacks = |replica: &Replica| {
            let mut kinds = wanted.kinds(replica).iter();
            all || kinds.any(|kind| !replica.has(*kind))
        };
        let itself = match wanted {
            Wanted::Standings { but, .. } => but,
            _ => "",
        };
        let ids = self.by_id.iter_mut();
        let ids = ids.filter(|(id, replica)| *id != itself && lacks(replica));
        let ids: Vec<(String, Option<Lives>)> = ids
            .map(|(id, replica)| {
                let known = std::mem::take(&mut replica.lives);
                let known = (all && replica.has_few_pages()).then_some(known);
                (id.clone(), known)
            })
            .collect();
        let mut changed = false;
        let pages = self.by_id.values().map(|replica| replica.summary.pages);
        let pages = pages.max().and_then(|most| usize::try_from(most).ok());
        let (least, most) = AT_ONCE;
        let at_once = PAGES / (pages.unwrap_or(1) * Kind::PAGED.len() + 1);
        for some in ids.chunks(at_once.clamp(least, most)) {
            let listed = some.iter().map(async |(id, known)| {
                let known = known.clone();
                listed(locks, id, known).await
            });
            let listed = futures_util::future::join_all(listed).await;
            let (mut asked, mut trouble) = (Vec::new(), None);
            let mut names = Vec::new();
            for ((id, _), listed) in some.iter().zip(listed) {
                let Some(replica) = self.by_id.get_mut(id) else {
                    continue;
                };
                let (there, lives) = match listed {
                    Ok(listed) => listed,
                    Err(e) => {
                        trouble = Some(e);
                        continue;
                    }
                };
                let mut news = replica.news(&there, wanted.kinds(replica));
                let moved = news.len();
                if let Wanted::Some(jobs) = wanted {
                    let numbers = replica.pages_of(jobs);
                    // Standings tell as well whether the replica is fit.
                    let of_all = |page: &Page| matches!(page.kind, Kind::Head | Kind::Standings);
                    news.retain(|page| of_all(page) || numbers.contains(&page.number));
                }
                names.extend(news.iter().map(|page| page.document(id)));
                asked.push((id, moved, lives));
            }
            // Of all of them together: where many have changed, calls cost more than what they carry.
            let mut docs: BTreeMap<String, Vec<Doc>> = BTreeMap::new();
            for some in names.chunks(DOCS) {
                let read = match locks.docs_of(some).await {
                    Ok(read) => read,
                    Err(e) => {
                        // What was read so far counts.
                        trouble = Some(e);
                        break;
                    }
                };
                for doc in read {
                    if let Some(id) = Page::replica_of(&doc.name) {
                        docs.entry(id.to_owned()).or_default().push(doc);
                    }
                }
            }
            for (id, moved, lives) in asked {
                let Some(replica) = self.by_id.get_mut(id) else {
                    continue;
                };
                let docs = docs.remove(id).unwrap_or_default();
                if !docs.is_empty() {
                    changed = true;
                    self.news += 1;
                    replica.news = self.news;
                }
                let told: BTreeSet<String> =
                    docs.iter().flat_map(|doc| replica.read(doc, id)).collect();
                if let Some(noted) = &mut self.noted {
                    noted.moved.extend(told);
                }
                if !matches!(wanted, Wanted::Some(_)) {
                    let kinds = wanted.kinds(replica);
                    replica.judge(id, kinds);
                }
                if docs.len() == moved {
                    // Else all are listed again, as when this is dropped or fails.
                    replica.lives = lives;
                }
            }
            if let Some(trouble) = trouble {
                return Err(trouble);
            }
        }
        Ok(changed)
    }

    /// Every replica with all that was read of it, at `now`.
    pub(crate) fn presences(&self, now: Timestamp) -> Vec<Presence> {
        self.presences_with(now, |_| true)
    }

    /// The same with what they tell of these jobs alone.
    pub(crate) fn presences_with(
        &self,
        now: Timestamp,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<Presence> {
        let all = self.by_id.values();
        all.map(|replica| replica.presence_with(now, &wanted))
            .collect()
    }

    /// Every replica without its jobs, but those whose engines have died.
    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
    pub(crate) fn heads(&self, now: Timestamp) -> Vec<Presence> {
        let all = self.by_id.values();
        all.map(|replica| replica.head(now)).collect()
    }

    /// Takes over what the `other` has read of pages that moved later. Which jobs that concerns is not noted.
    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
    pub(crate) fn take_later(&mut self, other: &Self) {
        for (id, replica) in &mut self.by_id {
            if let Some(other) = other.by_id.get(id) {
                replica.take_later(other);
            }
        }
    }

    /// The jobs of which replicas tell, where that is noted.
    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.noted.iter().flat_map(|noted| &*noted.names);
        names.map(String::as_str)
    }

    /// Those of which they tell something else than when this was asked last.
    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
    pub(crate) fn take_moved(&mut self) -> BTreeSet<String> {
        let noted = self.noted.as_mut();
        noted.map_or_else(BTreeSet::new, |noted| std::mem::take(&mut noted.moved))
    }

    /// What each of them tells of a job.
    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
    pub(crate) fn told_of(&self, job: &str) -> Vec<(&str, JobPresence)> {
        let all = self.by_id.iter();
        all.filter_map(|(id, replica)| Some((id.as_str(), replica.job(job)?)))
            .collect()
    }

    /// Whether a job of which they tell has a lock that one replica holds.
    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
    pub(crate) fn is_locked(&self, job: &str) -> bool {
        let mut told = self.by_id.values().filter_map(|of| of.facts(job));
        told.any(|facts| has_lock(&facts.coordination))
    }

    /// The replicas that are there, and a number that grows with what each tells.
    pub(crate) fn news(&self) -> impl Iterator<Item = (&str, u64)> {
        let all = self.by_id.iter();
        all.map(|(id, replica)| (id.as_str(), replica.news))
    }

    /// What a replica tells a reader with these jobs.
    pub(crate) fn telling(&self, id: &str, now: Timestamp, own: &Own) -> Option<Telling> {
        Some(self.by_id.get(id)?.telling(now, own))
    }

    /// The same of all of them, and of these jobs alone.
    pub(crate) fn about(
        &self,
        jobs: &BTreeSet<String>,
        now: Timestamp,
        own: &Own,
    ) -> impl Iterator<Item = Presence> {
        let all = self.by_id.values();
        all.map(move |replica| replica.about(jobs, now, own))
    }

    /// The largest token under which a replica says to lead the job.
    pub(crate) fn leader(&self, job: &str) -> Option<Token> {
        let told = self.by_id.values().filter_map(|replica| {
            let page = replica.page(Kind::Standings, job)?;
            page.get(job)
                .filter(|told| told.standing == JobStanding::Leading)
        });
        told.filter_map(|told| told.token).max()
    }
}

// === impl Own ===

impl Own {
    pub(crate) fn of(facts: impl IntoIterator<Item = JobPresence>) -> Self {
        let defined = facts.into_iter().map(|job| {
            let JobPresence {
                name,
                coordination,
                schedule,
                zone,
                definition,
                ..
            } = job;
            let defined = Defined {
                coordination,
                schedule,
                zone,
                definition,
            };
            (name, defined)
        });
        let defined: BTreeMap<String, Defined> = defined.collect();
        let definitions = defined
            .iter()
            .map(|(name, job)| (&**name, &*job.definition));
        let locked = defined
            .iter()
            .filter(|(_, job)| has_lock(&job.coordination));
        Self {
            hash: pages::hash_of(definitions),
            locked: Arc::new(locked.map(|(name, _)| name.clone()).collect()),
            defined,
        }
    }

    /// What the definition of a job is known by.
    pub(crate) fn definition(&self, job: &str) -> Option<&str> {
        Some(&self.defined.get(job)?.definition)
    }

    /// The job as it is defined.
    fn facts(&self, job: &str) -> Option<JobPresence> {
        let Defined {
            coordination,
            schedule,
            zone,
            definition,
        } = self.defined.get(job)?;
        Some(JobPresence {
            name: job.to_owned(),
            coordination: coordination.clone(),
            schedule: schedule.clone(),
            zone: zone.clone(),
            definition: definition.clone(),
            ..JobPresence::default()
        })
    }
}

// === impl Telling ===

impl Telling {
    /// Of a replica that names each of its jobs.
    pub(crate) fn all(presence: Presence) -> Self {
        Self {
            presence,
            others_rest: false,
        }
    }
}

// === impl Wanted ===

impl Wanted<'_> {
    /// What is read of this replica.
    fn kinds(self, replica: &Replica) -> &'static [Kind] {
        match self {
            Wanted::Replicas => &[],
            Wanted::Standings { hash, .. } if replica.summary.definitions != hash => {
                &[Kind::Standings, Kind::Facts]
            }
            Wanted::Standings { .. } => &[Kind::Standings],
            Wanted::Jobs | Wanted::Some(_) => {
                &[Kind::Head, Kind::Standings, Kind::Facts, Kind::Runs]
            }
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

    /// The numbers of the pages that tell of these jobs.
    fn pages_of(&self, jobs: &BTreeSet<&str>) -> BTreeSet<u32> {
        let of = self.summary.pages;
        jobs.iter().map(|job| Page::number_of(job, of)).collect()
    }

    /// Takes over what the `other` has read of later pages of the same division.
    fn take_later(&mut self, other: &Self) {
        for (page, (rev, told)) in &other.pages {
            let known = self.pages.get(page).map(|(known, _)| *known);
            let counts = page.kind != Kind::Head && page.of == self.summary.pages;
            if counts && known < Some(*rev) {
                self.pages.insert(*page, (*rev, told.clone()));
            }
        }
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
        let told = pages::read(doc).map(Arc::new);
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

    fn page(&self, kind: Kind, job: &str) -> Option<&PageJobs> {
        let of = self.summary.pages;
        let number = Page::number_of(job, of);
        let (_, told) = self.pages.get(&Page { kind, number, of })?;
        told.as_deref()
    }

    /// How it defines the job, where it has told that.
    fn facts(&self, job: &str) -> Option<&JobPresence> {
        self.page(Kind::Facts, job)?.get(job)
    }

    /// What it tells of the job, where it has told how that is defined.
    fn job(&self, name: &str) -> Option<JobPresence> {
        Some(self.defined(self.facts(name)?))
    }

    /// What it tells of a job that is defined so.
    fn defined(&self, facts: &JobPresence) -> JobPresence {
        let part = |kind| self.page(kind, &facts.name)?.get(&facts.name);
        let role = self.summary.head.role;
        pages::job(facts, role, part(Kind::Standings), part(Kind::Runs))
    }

    /// The names of the jobs that it has defined.
    fn names(&self) -> impl Iterator<Item = String> {
        self.parts(Kind::Facts).flat_map(PageJobs::keys).cloned()
    }

    fn parts(&self, kind: Kind) -> impl Iterator<Item = &PageJobs> {
        let pages = self.pages.iter().filter(move |(page, _)| page.kind == kind);
        pages.filter_map(|(_, (_, told))| told.as_deref())
    }

    /// Whether a node names all of them where it is asked which of them live, also while their number changes.
    fn has_few_pages(&self) -> bool {
        usize::try_from(self.summary.pages).is_ok_and(|pages| pages * 6 < MOST_LIVING)
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
        let jobs = self.parts(Kind::Standings).flat_map(PageJobs::values);
        let died = jobs.filter(|job| job.engine_died.is_some());
        presence.jobs = died.cloned().collect();
        presence
    }

    /// All that it tells, put together.
    fn presence(&self, now: Timestamp) -> Presence {
        self.presence_with(now, &|_: &str| true)
    }

    /// The same with these jobs alone.
    fn presence_with(&self, now: Timestamp, wanted: &impl Fn(&str) -> bool) -> Presence {
        let facts = self.parts(Kind::Facts).flat_map(PageJobs::values);
        let wanted = facts.filter(|facts| wanted(&facts.name));
        Presence {
            jobs: wanted.map(|facts| self.defined(facts)).collect(),
            ..self.itself(now, false)
        }
    }

    /// Nothing of what it is to its jobs was read yet, or not all: it may lead any of them.
    fn may_lead_any(&self) -> bool {
        !self.complete.contains_key(&Kind::Standings) && self.summary.leads > 0
    }

    fn telling(&self, now: Timestamp, own: &Own) -> Telling {
        if self.summary.definitions != own.hash {
            return Telling::all(self.presence(now));
        }
        let names = self.parts(Kind::Standings).flat_map(PageJobs::keys);
        let named = names.filter_map(|name| own.facts(name));
        let named = named.filter(|_| !self.may_lead_any());
        Telling {
            presence: Presence {
                jobs: named.map(|facts| self.defined(&facts)).collect(),
                ..self.itself(now, true)
            },
            others_rest: !self.may_lead_any(),
        }
    }

    fn about(&self, jobs: &BTreeSet<String>, now: Timestamp, own: &Own) -> Presence {
        let same = self.summary.definitions == own.hash;
        let facts = |job: &String| match same {
            true if self.may_lead_any() => None,
            true => own.facts(job),
            false => self.facts(job).cloned(),
        };
        let told = jobs.iter().filter_map(facts);
        Presence {
            jobs: told.map(|facts| self.defined(&facts)).collect(),
            ..self.itself(now, same)
        }
    }
}

/// Which pages of a replica are there: of each node all where anything has changed since they were `known`, and else none.
async fn listed(
    locks: &Locks,
    id: &str,
    known: Option<Lives>,
) -> Result<(BTreeMap<Page, u64>, Lives), LockError> {
    let directory = Page::directory(id);
    let page = |name: &str, rev| Some((Page::named(name, id)?, rev));
    let Some(known) = known else {
        let there = locks.doc_names(&directory).await?.docs.into_iter();
        let there = there.filter_map(|(doc, _)| page(&doc.name, doc.rev));
        return Ok((there.collect(), Lives::default()));
    };
    let mut lives = locks.living(&directory, ANY, known).await?;
    let there = lives.newest().into_iter();
    let there = there.filter_map(|(name, (rev, _))| page(name, rev));
    let there = there.collect();
    lives.forget_names();
    Ok((there, lives))
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
