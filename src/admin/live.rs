//! Keeps a page up to date: the rows of one view, as its address chooses them, sent again where they have changed.
//!
//! A stream costs what its page costs, a hundred rows of each table at most, however many jobs there are. It is made from the same
//! rows as the page, so that there is one way to write them. All streams look at the same moments and share what is read then
//! (`readings`), so that what one has found none finds later; while it is the same, a stream does nothing.
//!
//! The page of a job shows also what the store tells of it, which is read again soon after its row has changed, and now and then.
//!
//! | event | data |
//! | --- | --- |
//! | `hello` | the version of this replica: a page of another one loads itself anew |
//! | `parts` | the names of its tables, where they are others: a page with others loads itself anew |
//! | `rows` | a table with the rows of one `data-part` that have changed |
//! | `order` | the keys of each table whose rows come in another order, or are others |
//! | `piece` | an element with `data-piece` |
//!
//! # Invariants
//! - W3 A stream sends a row when something but the time has changed in it, and all rows now and then.
//!   (a_stream_sends_what_has_changed)
//! - W11 A lease that is extended is not counted down to its end: its row is sent again once half of what remained is over.
//!   (what_remains_of_a_lease_is_sent_again_before_it_is_counted_down)
//! - W4 One that comes back is sent what has changed since, or everything.   (one_that_comes_back_is_sent_the_difference)
//! - W14 All who follow look at the same moments, twice a second.   (all_who_follow_look_at_the_same_moments)
//! - W15 What the store tells of a job is read again soon after its row has changed, which is sent at once.
//!   (the_page_of_a_job_is_followed)
//! - W5 No more follow at one time than there are places.   (no_more_follow_a_page_than_there_are_places)

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::Response,
};
use futures_util::stream::unfold;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    html::Html,
    latest::{Got, GotRow},
    listener::Stay,
    page::{
        address::{Address, LONGEST, Takes, job_path},
        batches,
        block::{Block, Page, Piece, digest},
        fleet, job, jobs,
        layout::strip,
        nodes, replicas,
        view::View,
    },
    pattern::values,
    problem::{Kind, Problem},
    readings::Facts,
    rights::Seen,
    shared::Shared,
    snapshot::{MadeOf, Shows, Snapshot, misfit},
    stream::{ClientSlot, frame},
};
use crate::{clock::Moment, fleet::JobFacts};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// What the store tells of a job is read so often; and so soon after a change, of which what was read a moment before does not know.
const FACTS: Duration = Duration::from_secs(5);
const AFTER_A_CHANGE: Duration = Duration::from_secs(1);
/// When everything is sent again: figures that are others at every look.
const WHOLE: Duration = Duration::from_secs(15);
/// When a browser whose stream has ended comes back.
const COME_BACK: &str = "retry: 2000\n\n";

/// What makes a page of a view.
type Make = fn(&View<'_>) -> Page;

/// The views that are followed: what the fleet tells alone, and the page of a job. Others are asked for again.
static FOLLOWED: [(&str, &Takes, Make, Shows<'static>); 4] = [
    ("/", &jobs::TAKES, fleet::page, Shows::Chosen(jobs::chosen)),
    (
        "/batches",
        &batches::TAKES,
        batches::page,
        Shows::Chosen(batches::chosen),
    ),
    ("/replicas", &replicas::TAKES, replicas::page, Shows::Any),
    ("/nodes", &nodes::TAKES, nodes::page, Shows::Any),
];

/// What one stream follows.
enum Followed {
    View(Make, Shows<'static>),
    Job(FollowedJob),
}

/// The page of a job.
struct FollowedJob {
    name: String,
    /// What the store has told of it last, and what its row was then.
    facts: Option<Arc<Facts>>,
    print: Vec<u64>,
    /// When that is read again.
    due: Moment,
}

/// Everything that one stream lives on.
struct Following {
    shared: Shared,
    seen: Seen,
    address: Address,
    followed: Followed,
    /// What its client has got, and its number.
    got: Arc<Got>,
    number: Option<u64>,
    /// When the next look is due, and when everything is sent again.
    look: Moment,
    whole: Moment,
    greeted: bool,
    /// What was looked at last.
    last: MadeOf,
    /// Ends with this replica's events.
    end: CancellationToken,
    _slot: ClientSlot,
}

pub(super) async fn follow(
    State(shared): State<Shared>,
    Extension(seen): Extension<Seen>,
    Extension(stay): Extension<Stay>,
    headers: HeaderMap,
    said: Result<Query<BTreeMap<String, String>>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(said) = said.map_err(|error| Problem::parameter("query", &error.body_text()))?;
    let path = said.get("path").map_or("/", String::as_str);
    let Some((path, takes, followed)) = followed(path) else {
        let wanted = "a page that is followed: /, /jobs/NAME, /batches, /replicas or /nodes";
        return Err(Problem::parameter("path", wanted));
    };
    let address = Address::read(path, takes, &said).map_err(|wrong| misfit(&wrong))?;
    let Some(slot) = shared.slots.take(seen) else {
        let why = "no more clients can follow this replica at one time";
        return Err(Problem::new(Kind::TooManyStreams, why));
    };
    let now = shared.admin.clock.now();
    let last = headers.get("last-event-id");
    let last = last.and_then(|id| id.to_str().ok()).unwrap_or_default();
    let known = shared.latest.back(last, &address.with(&[]), now);
    let (number, got) = known.map_or_else(
        || (None, Arc::default()),
        |(number, got)| (Some(number), got),
    );
    stay.for_a_stream();
    let following = Following {
        seen,
        address,
        followed,
        got,
        number,
        look: now,
        whole: now + WHOLE,
        greeted: false,
        last: MadeOf::default(),
        end: shared.events.over(),
        _slot: slot,
        shared,
    };
    let mut answer = Response::new(Body::from_stream(unfold(following, sent)));
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        // Nginx collects what it passes on unless it is told not to.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        let value = HeaderValue::from_static(value);
        answer.headers_mut().insert(name, value);
    }
    Ok(answer)
}

/// What is followed at this path, what can be chosen there, and its path as it is written.
fn followed(path: &str) -> Option<(String, &'static Takes, Followed)> {
    let mut views = FOLLOWED.iter();
    if let Some((path, takes, make, shows)) = views.find(|(known, ..)| *known == path) {
        return Some(((*path).to_owned(), *takes, Followed::View(*make, *shows)));
    }
    let name = values("/jobs/{job}", path)?.pop()?;
    let path = job_path(&name);
    let job = FollowedJob {
        name,
        facts: None,
        print: Vec::new(),
        due: Moment::ZERO,
    };
    (job.name.len() <= LONGEST).then_some((path, &job::TAKES, Followed::Job(job)))
}

/// When those who follow look next.
fn next_look(now: Moment) -> Moment {
    let looks = now.since_boot().as_millis() / LOOK.as_millis() + 1;
    let looks = u32::try_from(looks).unwrap_or(u32::MAX);
    Moment::from_boot(LOOK.saturating_mul(looks))
}

/// The next text that is sent; the end with this replica's.
async fn sent(mut following: Following) -> Option<(Result<String, Infallible>, Following)> {
    loop {
        let clock = following.shared.admin.clock.clone();
        let due = following.look;
        tokio::select! {
            biased;
            () = following.end.cancelled() => return None,
            () = clock.sleep_until(due) => {}
        }
        following.look = next_look(clock.now());
        let text = following.changes().await;
        if !text.is_empty() {
            return Some((Ok(text), following));
        }
    }
}

// === impl Following ===

impl Following {
    /// What has changed since the last look, as events; nothing where nothing has.
    async fn changes(&mut self) -> String {
        let shared = self.shared.clone();
        let shows = self.followed.shows();
        let snapshot = Snapshot::for_a_stream(&shared, self.seen, &self.address, shows).await;
        let now = shared.admin.clock.now();
        let (whole, made_of) = (now >= self.whole, snapshot.made_of());
        if whole {
            self.whole = now + WHOLE;
        } else if made_of.is(&self.last) && !self.followed.is_due(now) {
            // Nothing was read since: however many jobs there are, there is nothing to compare.
            return String::new();
        }
        self.last = made_of;
        if let Followed::Job(job) = &mut self.followed {
            let print = job::print(&snapshot.view(&self.address), &job.name);
            job.look(&shared, print, now).await;
        }
        let view = snapshot.view(&self.address);
        let page = self.followed.page(&shared, &view);
        let before = if whole {
            Got::default()
        } else {
            Got::clone(&self.got)
        };
        let (mut text, got) = changed(&before, &strip(&view), &page, now);
        if !self.greeted {
            self.greeted = true;
            let me = view.fleet.replica(view.replica);
            let version = me.map_or("", |me| me.version.as_str());
            let hello = json!({ "version": version }).to_string();
            text = format!("{COME_BACK}{}{text}", frame(None, "hello", &hello));
        }
        if text.is_empty() {
            return text;
        }
        self.got = Arc::new(got);
        let address = self.address.with(&[]);
        let number = shared.latest.note(self.number, &address, &self.got, now);
        self.number = Some(number);
        // Without data it is no event: the browser notes the id, and that is all.
        text + &format!("id: {}\n\n", shared.latest.id(number))
    }
}

// === impl Followed ===

impl Followed {
    fn shows(&self) -> Shows<'_> {
        match self {
            Self::View(_, shows) => *shows,
            Self::Job(job) => Shows::Job(&job.name),
        }
    }

    /// Whether the store is to be asked again, although nothing else has changed.
    fn is_due(&self, now: Moment) -> bool {
        match self {
            Self::View(..) => false,
            Self::Job(job) => job.due <= now,
        }
    }

    fn page(&self, shared: &Shared, view: &View<'_>) -> Page {
        match self {
            Self::View(make, _) => make(view),
            Self::Job(job) => {
                let data = job::JobData {
                    name: &job.name,
                    facts: job.facts(),
                    notices: shared.admin.source.told_of(&job.name),
                    rules: shared.admin.source.rules_of(&job.name),
                    run: None,
                    // No run is shown in full.
                    trace_link: None,
                };
                job::page(view, &data)
            }
        }
    }
}

// === impl FollowedJob ===

impl FollowedJob {
    /// Asks what the store tells of it where that is due. Its row is this now.
    async fn look(&mut self, shared: &Shared, print: Vec<u64>, now: Moment) {
        if self.print != print {
            // The row is sent at once, and waits for nothing.
            self.print = print;
            self.due = self.due.min(now + AFTER_A_CHANGE);
        }
        if self.facts.is_some() && now < self.due {
            return;
        }
        self.facts = Some(shared.readings.facts(&self.name).await);
        self.due = now + FACTS;
    }

    fn facts(&self) -> Result<&JobFacts, &str> {
        match self.facts.as_deref() {
            Some(Ok(Some(facts))) => Ok(facts),
            Some(Ok(None)) | None => Err("there is no such job"),
            Some(Err(why)) => Err(why.as_str()),
        }
    }
}

/// What differs from what the client has got, as events, and what it has got then.
fn changed(before: &Got, strip: &Piece, page: &Page, now: Moment) -> (String, Got) {
    let (mut text, mut got) = (String::new(), Got::default());
    let mut orders = BTreeMap::new();
    let parts = page.blocks.iter().filter_map(|block| match block {
        Block::Rows(part) => Some(part.id),
        Block::Piece(_) | Block::Plain(_) => None,
    });
    got.parts = parts.collect();
    if got.parts != before.parts {
        text += &frame(None, "parts", &got.parts.join(" "));
    }
    let pieces = page.blocks.iter().filter_map(|block| match block {
        Block::Piece(piece) => Some(piece),
        Block::Rows(_) | Block::Plain(_) => None,
    });
    for piece in [strip].into_iter().chain(pieces) {
        let digest = digest(piece.html.as_str());
        if before.pieces.get(piece.name) != Some(&digest) {
            text += &frame(None, "piece", piece.html.as_str());
        }
        got.pieces.insert(piece.name, digest);
    }
    for block in &page.blocks {
        let Block::Rows(part) = block else {
            continue;
        };
        let mut rows = Html::default();
        let mut keys = Vec::new();
        for row in part.shown() {
            let (digest, left) = (row.digest(), row.left());
            let name = (part.id, row.key.clone());
            let same = |was: &&GotRow| was.digest == digest && !was.has_more(left, now);
            let has = before.rows.get(&name).filter(same).copied();
            let has = has.unwrap_or_else(|| {
                row.write(&mut rows);
                let left = left.map(|left| (left, now));
                GotRow { digest, left }
            });
            got.rows.insert(name, has);
            keys.push(row.key);
        }
        if !rows.as_str().is_empty() {
            let mut h = Html::default();
            h.markup("<table data-part=\"").markup(part.id);
            h.markup("\"><tbody>").append(&rows);
            h.markup("</tbody></table>");
            text += &frame(None, "rows", h.as_str());
        }
        if before.orders.get(part.id) != Some(&keys) {
            orders.insert(part.id, keys.clone());
        }
        got.orders.insert(part.id, keys);
    }
    if !orders.is_empty() {
        // After the rows, which stand at the end until they are put in order.
        let orders = serde_json::to_string(&orders).unwrap_or_default();
        text += &frame(None, "order", &orders);
    }
    (text, got)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        admin::{
            backlogs::Growth,
            page::{
                all::{Chosen, Looked},
                block::Live,
                times::Times,
            },
        },
        fleet::status::{FleetStatus, JobStatus, LeaderStatus},
    };

    fn fleet_of(names: &[&str]) -> FleetStatus {
        let job = |name: &&str| JobStatus {
            name: (*name).to_owned(),
            coordination: "batch".to_owned(),
            leader_known: true,
            ..JobStatus::default()
        };
        FleetStatus {
            jobs: names.iter().map(job).collect(),
            ..FleetStatus::default()
        }
    }

    fn look(fleet: &FleetStatus, before: &Got) -> (String, Got) {
        look_at(0, fleet, before)
    }

    fn look_at(ms: u64, fleet: &FleetStatus, before: &Got) -> (String, Got) {
        let address = Address::read("/", &jobs::TAKES, &BTreeMap::new()).unwrap();
        let (growth, totals) = (Growth::new(), fleet::totals(&fleet.jobs));
        let chosen = Chosen::of(&fleet.jobs, jobs::chosen, &address);
        let view = View {
            fleet,
            all: fleet,
            looked: Looked::Now,
            is_fresh: false,
            totals: &totals,
            chosen: &chosen,
            growth: &growth,
            spreads: &Vec::new(),
            replica: "h-1-x",
            signed_in: true,
            orders: true,
            ready: Ok(()),
            address: &address,
            times: Times::new("2026-11-26T08:00:00Z".parse().unwrap(), address.zone()),
        };
        let page = fleet::page(&view);
        assert_eq!(page.live, Live::Stream);
        let now = Moment::ZERO + Duration::from_millis(ms);
        changed(before, &strip(&view), &page, now)
    }

    #[test]
    fn a_stream_sends_what_has_changed() {
        let mut fleet = fleet_of(&["a", "b", "c"]);
        let (text, got) = look(&fleet, &Got::default());
        for part in [
            "event: parts\ndata: jobs flying replicas nodes\n\n",
            "event: piece\ndata: <div id=\"strip\"",
            "event: rows\ndata: <table data-part=\"jobs\"><tbody><tr data-key=\"a\">",
            "\"jobs\":[\"a\",\"b\",\"c\"]",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(look(&fleet, &got).0, "", "nothing has changed");
        fleet.jobs[1].schedule = "@daily".to_owned();
        let (text, got) = look(&fleet, &got);
        assert!(text.contains("data-key=\"b\"") && !text.contains("data-key=\"a\""));
        assert!(!text.contains("event: order"), "{text}");
        fleet.jobs.remove(0);
        let (text, got) = look(&fleet, &got);
        let order = "event: order\ndata: {\"jobs\":[\"b\",\"c\"]}\n\n";
        assert!(text.ends_with(order), "{text}");
        assert!(!text.contains("event: rows"), "{text}");
        fleet.jobs.clear();
        let (text, _) = look(&fleet, &got);
        assert!(
            text.contains("\"jobs\":[\"\"]"),
            "the row that says so: {text}"
        );
    }

    #[test]
    fn all_who_follow_look_at_the_same_moments() {
        let at = |ms| Moment::ZERO + Duration::from_millis(ms);
        for (now, next) in [
            (0, 500),
            (1, 500),
            (499, 500),
            (500, 1_000),
            (86_400_123, 86_400_500),
        ] {
            assert_eq!(next_look(at(now)), at(next), "{now}");
        }
    }

    #[test]
    fn what_remains_of_a_lease_is_sent_again_before_it_is_counted_down() {
        let led = |remaining: u64| {
            let mut fleet = fleet_of(&["a"]);
            fleet.jobs[0].leader = Some(LeaderStatus {
                remaining_ms: Some(remaining),
                ..LeaderStatus::default()
            });
            fleet
        };
        let (_, got) = look_at(0, &led(9_000), &Got::default());
        // Extended meanwhile.
        let (text, got) = look_at(4_000, &led(8_000), &got);
        assert_eq!(text, "", "half of it is still there");
        let (text, got) = look_at(5_000, &led(7_000), &got);
        assert!(text.contains("data-left=\"7000\""), "{text}");
        // From then on it counts anew.
        let (text, got) = look_at(8_000, &led(9_000), &got);
        assert_eq!(text, "");
        // Not extended: the browser shows as much by itself.
        let (text, got) = look_at(11_000, &led(1_000), &got);
        assert_eq!(text, "");
        let (text, got) = look_at(12_500, &led(0), &got);
        assert_eq!(text, "");
        let (text, _) = look_at(13_000, &led(9_000), &got);
        assert!(text.contains("data-left=\"9000\""), "{text}");
    }

    #[test]
    fn a_page_of_many_jobs_is_followed_as_one_of_few() {
        let names: Vec<String> = (0..10_000).map(|n| format!("job-{n:05}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (text, got) = look(&fleet_of(&names), &Got::default());
        assert_eq!(text.matches("data-key=\"job-").count(), 50);
        assert!(got.rows.len() < 100, "{}", got.rows.len());
    }
}
