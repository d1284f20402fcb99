//! The documents in which a replica tells of itself: their names, what stands in them, and how they become one [`Presence`].
//!
//! # When things fail
//! What is no document of ours, is damaged or too large counts as not there.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{JobPresence, JobStanding, PRESENCE_PREFIX, Presence, Role, has_lock};
use crate::{hash::fnv1a, node::Doc};

/// What the names of pages begin with.
const DETAIL_PREFIX: &str = "detail/";
/// Jobs on one page, about: pages are twice as many where they would be more.
const PER_PAGE: usize = 64;
/// Pages of one kind and one replica that are read at most: of 100,000 jobs there are 2048.
const MOST_PAGES: u32 = 1 << 13;
/// A larger page is none of ours.
const LARGEST_PAGE: usize = 4 << 20;
/// A summary is no larger: what people have named is cut where it would be.
pub(crate) const LARGEST_SUMMARY: usize = 1024;

/// What a page tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// The replica itself, uncut.
    Head,
    /// What it is to its jobs, where that is not what it is at rest. Told at once.
    Standings,
    /// How its jobs are defined.
    Facts,
    /// Ticks and runs of its jobs.
    Runs,
}

/// Which page of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Page {
    pub(crate) kind: Kind,
    pub(crate) number: u32,
    /// How many there are of its kind: with another number of pages each has other jobs.
    pub(crate) of: u32,
}

/// What `presence/ID` says.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Summary {
    /// Cut where it would be too large, and without what only people ask for.
    #[serde(flatten)]
    pub(crate) head: Presence,
    /// A hash of its jobs' names and definitions: replicas with the same one have the same jobs.
    pub(crate) definitions: String,
    /// How many jobs it has, and how many of them it leads.
    pub(crate) jobs: usize,
    pub(crate) leads: usize,
    /// How many pages there are of each kind.
    pub(crate) pages: u32,
    /// The revisions of its pages of standings added up, and of facts: a page that is older is seen to be.
    pub(crate) standings: u64,
    pub(crate) facts: u64,
    /// For how long each sign of life is good.
    pub(crate) lifetime_ms: u64,
}

/// What the jobs of a replica come to in its summary.
#[derive(Debug, Default)]
pub(crate) struct JobsInAll {
    pub(crate) count: usize,
    /// How many it leads.
    pub(crate) leads: usize,
    /// A hash of how all of them are defined, see [`hash_of`].
    pub(crate) definitions: String,
}

// === impl Kind ===

impl Kind {
    /// Of which there is a page for every so many jobs.
    pub(crate) const PAGED: [Self; 3] = [Self::Facts, Self::Standings, Self::Runs];

    fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Standings => "standings",
            Self::Facts => "facts",
            Self::Runs => "runs",
        }
    }

    /// What a page of this kind tells of a job of a replica in this role; nothing where that is what is expected.
    pub(crate) fn part(self, job: &JobPresence, role: Role) -> Option<JobPresence> {
        let name = job.name.clone();
        // Taken for a moment and given back: the daily business of ticks.
        let by_tick = job.coordination == "tick" && job.standing == JobStanding::Leading;
        let leading = |part: JobPresence| JobPresence {
            standing: job.standing,
            token: job.token,
            since: job.since,
            remaining_ms: job.lasts_ms,
            ..part
        };
        let part = match self {
            Self::Head => return None,
            Self::Facts => {
                return Some(JobPresence {
                    name,
                    coordination: job.coordination.clone(),
                    schedule: job.schedule.clone(),
                    zone: job.zone.clone(),
                    definition: job.definition.clone(),
                    loaded: job.loaded,
                    ..JobPresence::default()
                });
            }
            Self::Standings => {
                let resting = resting(&job.coordination, role);
                let part = JobPresence {
                    name,
                    standing: resting,
                    loaded: job.loaded.filter(|_| job.disputed),
                    stands_back: job.stands_back.clone(),
                    engine_died: job.engine_died.clone(),
                    trouble: job.trouble.clone(),
                    paused: job.paused,
                    ..JobPresence::default()
                };
                let part = if by_tick { part } else { leading(part) };
                let rests = JobPresence {
                    name: part.name.clone(),
                    standing: resting,
                    ..JobPresence::default()
                };
                return (part != rests).then_some(part);
            }
            Self::Runs => JobPresence {
                name,
                last_tick: job.last_tick,
                next_tick: job.next_tick,
                last_outcome: job.last_outcome.clone(),
                last_ended: job.last_ended,
                backlog: job.backlog,
                backlog_since: job.backlog_since,
                held: job.held,
                running: job.running.clone(),
                ..JobPresence::default()
            },
        };
        let part = if by_tick { leading(part) } else { part };
        let nothing = JobPresence {
            name: part.name.clone(),
            ..JobPresence::default()
        };
        (part != nothing).then_some(part)
    }

    /// Adds what a page of this kind has told.
    fn add(self, job: &mut JobPresence, part: &JobPresence) {
        let part = part.clone();
        match self {
            Self::Head => {}
            Self::Facts => *job = part,
            Self::Standings => {
                (job.standing, job.token, job.since) = (part.standing, part.token, part.since);
                (job.remaining_ms, job.paused) = (part.remaining_ms, part.paused);
                (job.stands_back, job.engine_died) = (part.stands_back, part.engine_died);
                job.trouble = part.trouble;
                job.loaded = part.loaded.or(job.loaded);
            }
            Self::Runs => {
                (job.last_tick, job.next_tick) = (part.last_tick, part.next_tick);
                (job.last_outcome, job.last_ended) = (part.last_outcome, part.last_ended);
                (job.backlog, job.backlog_since) = (part.backlog, part.backlog_since);
                (job.held, job.running) = (part.held, part.running);
                if part.token.is_some() {
                    (job.standing, job.token, job.since) = (part.standing, part.token, part.since);
                    job.remaining_ms = part.remaining_ms;
                }
            }
        }
    }
}

/// What a replica in this role is to a job about which it says nothing.
fn resting(coordination: &str, role: Role) -> JobStanding {
    match (has_lock(coordination), role) {
        (false, _) => JobStanding::Working,
        (true, Role::Observer) => JobStanding::Off,
        (true, _) => JobStanding::Standby,
    }
}

/// A job as `facts` define it, with what pages of standings and runs tell of it.
pub(crate) fn job(
    facts: &JobPresence,
    role: Role,
    standing: Option<&JobPresence>,
    runs: Option<&JobPresence>,
) -> JobPresence {
    let mut job = facts.clone();
    job.standing = resting(&job.coordination, role);
    if let Some(part) = standing {
        Kind::Standings.add(&mut job, part);
    }
    if let Some(part) = runs {
        Kind::Runs.add(&mut job, part);
    }
    job
}

// === impl Page ===

impl Page {
    pub(crate) const HEAD: Self = Self {
        kind: Kind::Head,
        number: 0,
        of: 1,
    };

    /// How many pages so many jobs have.
    pub(crate) fn pages_of(jobs: usize) -> u32 {
        let pages = (jobs / PER_PAGE + 1).next_power_of_two();
        u32::try_from(pages).map_or(MOST_PAGES, |pages| pages.min(MOST_PAGES))
    }

    /// On which of so many pages a job is.
    pub(crate) fn number_of(job: &str, of: u32) -> u32 {
        Self::number_by(Self::hash_of(job), of)
    }

    /// The same by the hash of its name.
    pub(crate) fn number_by(hash: u64, of: u32) -> u32 {
        u32::try_from(hash % u64::from(of.max(1))).unwrap_or(0)
    }

    /// By which a job finds its page.
    pub(crate) fn hash_of(job: &str) -> u64 {
        fnv1a(job.bytes())
    }

    /// Every page of a replica with so many of each kind.
    pub(crate) fn all(of: u32) -> impl Iterator<Item = Self> {
        let paged = Kind::PAGED.into_iter();
        let paged =
            paged.flat_map(move |kind| (0..of).map(move |number| Self { kind, number, of }));
        [Self::HEAD].into_iter().chain(paged)
    }

    pub(crate) fn directory(replica: &str) -> String {
        format!("{DETAIL_PREFIX}{replica}/")
    }

    pub(crate) fn document(self, replica: &str) -> String {
        let directory = Self::directory(replica);
        match self.kind {
            Kind::Head => format!("{directory}head"),
            kind => format!("{directory}{}.{}.{}", kind.name(), self.of, self.number),
        }
    }

    /// The replica whose page has this name, if it is one.
    pub(crate) fn replica_of(name: &str) -> Option<&str> {
        let (replica, _) = name.strip_prefix(DETAIL_PREFIX)?.rsplit_once('/')?;
        Some(replica)
    }

    /// Which page of the replica has this name; none where it is none of ours.
    pub(crate) fn named(name: &str, replica: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(&Self::directory(replica))?.split('.');
        let kind = parts.next()?;
        if kind == Kind::Head.name() {
            return parts.next().is_none().then_some(Self::HEAD);
        }
        let kind = Kind::PAGED.into_iter().find(|of| of.name() == kind)?;
        let (of, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let ours = parts.next().is_none() && number < of && of <= MOST_PAGES;
        ours.then_some(Self { kind, number, of })
    }
}

/// What a page says: of jobs, by their names.
pub(crate) type PageJobs = BTreeMap<String, JobPresence>;

/// Reads a page of jobs.
pub(crate) fn read(doc: &Doc) -> Option<PageJobs> {
    if doc.body.len() > LARGEST_PAGE {
        return None;
    }
    let jobs: Vec<JobPresence> = serde_json::from_str(&doc.body).ok()?;
    Some(
        jobs.into_iter()
            .map(|job| (job.name.clone(), job))
            .collect(),
    )
}

/// Reads a head.
pub(crate) fn read_head(doc: &Doc, replica: &str) -> Option<Presence> {
    let head: Presence = serde_json::from_str(&doc.body).ok()?;
    (doc.body.len() <= LARGEST_PAGE && head.id == replica).then_some(head)
}

/// A hash of jobs and their definitions, in the order of their names.
pub(crate) fn hash_of<'a>(definitions: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let all = definitions.into_iter();
    let bytes = all.flat_map(|(name, definition)| {
        let ends = [0xff];
        name.bytes()
            .chain(ends)
            .chain(definition.bytes())
            .chain(ends)
    });
    format!("{:016x}", fnv1a(bytes))
}

// === impl Summary ===

impl Summary {
    /// What a replica with these jobs comes to, whose pages of standings and of facts have these revisions.
    pub(crate) fn of(
        head: &Presence,
        jobs: JobsInAll,
        (standings, facts): (u64, u64),
        lifetime: Duration,
    ) -> Self {
        let mut summary = Self {
            head: head_of(head),
            definitions: jobs.definitions,
            jobs: jobs.count,
            leads: jobs.leads,
            pages: Page::pages_of(jobs.count),
            standings,
            facts,
            lifetime_ms: u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX),
        };
        // When it was written tells nothing: what is the same is not written again.
        (summary.head.rev, summary.head.written_at) = (0, Timestamp::default());
        summary.head.reload = None;
        summary.head.notices.clear();
        summary.head.watches.clear();
        for most in [200, 100, 50, 25, 12] {
            if summary.to_json().len() <= LARGEST_SUMMARY {
                break;
            }
            summary.cut(most);
        }
        summary
    }

    fn cut(&mut self, most: usize) {
        let head = &mut self.head;
        let (unfit, admin) = (head.unfit.iter_mut(), head.admin.iter_mut());
        let named = [&mut head.name, &mut head.host, &mut head.version];
        for text in named.into_iter().chain(unfit).chain(admin) {
            if let Cow::Owned(cut) = cut(text, most) {
                *text = cut;
            }
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn document(&self) -> String {
        document_of(&self.head.id)
    }

    /// Reads a summary; none where the document is another one, or says of another replica than its name does.
    pub(crate) fn from_doc(doc: &Doc) -> Option<Self> {
        if doc.body.len() > LARGEST_PAGE {
            return None;
        }
        let mut summary: Self = serde_json::from_str(&doc.body).ok()?;
        let strange = summary.head.id.is_empty() || summary.document() != doc.name;
        if strange || summary.pages > MOST_PAGES {
            return None;
        }
        summary.head.rev = doc.rev;
        Some(summary)
    }

    /// What the revisions of the pages of a kind come to at least.
    pub(crate) fn revisions(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Standings => self.standings,
            Kind::Facts => self.facts,
            Kind::Head | Kind::Runs => 0,
        }
    }
}

/// The name of a replica's summary.
pub(crate) fn document_of(replica: &str) -> String {
    format!("{PRESENCE_PREFIX}{replica}")
}

/// All that is not told of jobs.
pub(crate) fn head_of(presence: &Presence) -> Presence {
    Presence {
        id: presence.id.clone(),
        tag: presence.tag.clone(),
        name: presence.name.clone(),
        host: presence.host.clone(),
        version: presence.version.clone(),
        mode: presence.mode.clone(),
        unfit: presence.unfit.clone(),
        admin: presence.admin.clone(),
        reload: presence.reload.clone(),
        notices: presence.notices.clone(),
        watches: presence.watches.clone(),
        jobs: Vec::new(),
        ..*presence
    }
}

fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{fleet::presence::LIFETIME, node::Token};

    fn doc(name: &str, body: &serde_json::Value) -> Doc {
        Doc {
            name: name.to_owned(),
            rev: 8,
            body: body.to_string(),
        }
    }

    fn summary_of_replica() -> Summary {
        let jobs = JobsInAll {
            count: 2,
            leads: 1,
            definitions: "hash".to_owned(),
        };
        Summary::of(&replica(), jobs, (3, 4), LIFETIME)
    }

    fn replica() -> Presence {
        Presence {
            id: "h-1-x".to_owned(),
            role: Role::Leader,
            ..Presence::default()
        }
    }

    #[test]
    fn documents_of_a_newer_version_are_understood() {
        let summary = summary_of_replica();
        let mut body = serde_json::to_value(&summary).unwrap();
        body["mood"] = "good".into();
        body["role"] = "archivist".into();
        let read = Summary::from_doc(&doc("presence/h-1-x", &body)).unwrap();
        assert_eq!((read.head.role, read.standings), (Role::Observer, 3));
        assert_eq!(read.head.rev, 8);
        let page = json!([{ "name": "report", "standing": "dreaming", "mood": "good" }]);
        let told = pages_read(&page).unwrap();
        assert_eq!(told["report"].standing, JobStanding::Off);
    }

    fn pages_read(body: &serde_json::Value) -> Option<PageJobs> {
        read(&doc("detail/h-1-x/runs.1.0", body))
    }

    #[test]
    fn a_document_that_makes_no_sense_is_left_out() {
        let body = serde_json::to_value(summary_of_replica()).unwrap();
        assert_eq!(Summary::from_doc(&doc("presence/other", &body)), None);
        assert_eq!(Summary::from_doc(&doc("presence/", &json!({}))), None);
        assert_eq!(Summary::from_doc(&doc("presence/x", &json!(7))), None);
        for body in [json!(7), json!({}), json!([{ "name": 7 }]), json!([7])] {
            assert_eq!(pages_read(&body), None, "{body}");
        }
        let large = json!([{ "name": "x".repeat(LARGEST_PAGE) }]);
        assert_eq!(pages_read(&large), None);
        assert_eq!(read_head(&doc("detail/h-1-x/head", &body), "other"), None);
    }

    #[test]
    fn the_name_of_a_page_says_which_it_is() {
        for of in [1, 2, 2048] {
            for page in Page::all(of).take(100) {
                let name = page.document("h-1-x");
                assert_eq!(Page::named(&name, "h-1-x"), Some(page));
                assert_eq!(Page::named(&name, "h-1"), None);
            }
        }
        for name in [
            "",
            "head.1",
            "runs",
            "runs.1",
            "runs.1.1",
            "runs.1.0.0",
            "runs.9999999999.1",
            "x.1.0",
        ] {
            let name = format!("detail/h-1-x/{name}");
            assert_eq!(Page::named(&name, "h-1-x"), None, "{name}");
        }
        let most = Page::pages_of(100_000);
        assert!(Page::named(&format!("detail/x/runs.{most}.0"), "x").is_some());
        assert!(Page::named(&format!("detail/x/runs.{}.0", MOST_PAGES * 2), "x").is_none());
    }

    #[test]
    fn what_pages_tell_is_what_a_replica_knows() {
        let at = Timestamp::UNIX_EPOCH;
        let led = JobPresence {
            name: "report".to_owned(),
            coordination: "leader".to_owned(),
            schedule: "@hourly".to_owned(),
            zone: Some("Europe/Rome".to_owned()),
            definition: "0f".to_owned(),
            loaded: Some(at),
            standing: JobStanding::Leading,
            token: Some(Token(7)),
            since: Some(at),
            remaining_ms: Some(5_000),
            lasts_ms: Some(5_000),
            paused: true,
            last_tick: Some(at),
            next_tick: Some(at),
            last_outcome: Some("done".to_owned()),
            last_ended: Some(at),
            backlog: Some(5),
            backlog_since: Some(at),
            trouble: Some("no table".to_owned()),
            ..JobPresence::default()
        };
        let rests = JobPresence {
            standing: JobStanding::Standby,
            token: None,
            since: None,
            remaining_ms: None,
            lasts_ms: None,
            paused: false,
            trouble: None,
            ..led.clone()
        };
        let by_tick = JobPresence {
            coordination: "tick".to_owned(),
            ..led.clone()
        };
        let works = JobPresence {
            coordination: "batch".to_owned(),
            standing: JobStanding::Working,
            ..rests.clone()
        };
        for (job, standings) in [(led, true), (by_tick, true), (works, false), (rests, false)] {
            let part = |kind: Kind| kind.part(&job, Role::Leader);
            assert_eq!(part(Kind::Standings).is_some(), standings, "{job:?}");
            let (facts, standing, runs) =
                (part(Kind::Facts), part(Kind::Standings), part(Kind::Runs));
            let read = super::job(
                &facts.unwrap(),
                Role::Leader,
                standing.as_ref(),
                runs.as_ref(),
            );
            let known = JobPresence {
                lasts_ms: None,
                ..job
            };
            assert_eq!(read, known);
        }
    }

    #[test]
    fn what_an_observer_does_not_do_is_not_told_job_by_job() {
        let job = JobPresence {
            name: "report".to_owned(),
            coordination: "leader".to_owned(),
            standing: JobStanding::Off,
            ..JobPresence::default()
        };
        assert_eq!(Kind::Standings.part(&job, Role::Observer), None);
        assert!(Kind::Standings.part(&job, Role::Standby).is_some());
        let read = super::job(&job, Role::Observer, None, None);
        assert_eq!(read.standing, JobStanding::Off);
    }
}
