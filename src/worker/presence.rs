//! What this replica tells the others about itself.

use std::{
    collections::{BTreeSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp, Unit};

use crate::{
    clock::Moment,
    fleet::presence::{
        INTERVAL, LIFETIME,
        pages::{self, JobsInAll, Page},
        teller::{COLLECT, Changes, Mark, Put, Teller, TellsJobs},
    },
    lock::NodeReport,
    scheduler::{Context, reach_enough},
    status::{JobPresence, NodeWatch, NoticeStatus, Presence, Role, replica_id},
};

/// Facts of this replica that do not change.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) started: Timestamp,
    pub(crate) admin: Option<String>,
}

/// Bytes in a second that are put together to find what has changed: what changes with every tick of a thousand jobs is told
/// with what changes meanwhile.
const BYTES_PER_SECOND: usize = 100_000;
/// The same for what others should soon know of: who leads what.
const URGENT_BYTES_PER_SECOND: usize = 1_000_000;
/// Pages live so many times as long as a summary, and are touched every so many intervals: what a dead process has left may
/// stand for a while, since it is found by its summary alone.
const PAGES_LIVE: u32 = 9;
const PAGES_TOUCHED: u32 = 7;
/// Documents that are written at one time.
const AT_ONCE: usize = 16;

/// How often a replica tells of itself when nothing changes, and for how long that counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) interval: Duration,
    pub(crate) lifetime: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            interval: INTERVAL,
            lifetime: LIFETIME,
        }
    }
}

impl Identity {
    /// Of this process.
    pub(super) fn here(name: Option<&str>, nonce: &str, started: Timestamp) -> Self {
        let system = rustix::system::uname();
        let (host, pid) = (system.nodename().to_string_lossy(), std::process::id());
        Self {
            id: replica_id(&host, pid, nonce),
            name: name.map_or_else(|| format!("{host}-{pid}"), str::to_owned),
            host: host.into_owned(),
            pid,
            started,
            admin: None,
        }
    }
}

/// The jobs of this replica, of which those are put together that are told.
struct JobsNow<'a> {
    ctx: &'a Context,
    role: Role,
}

impl TellsJobs for JobsNow<'_> {
    fn marks(&self, each: &mut dyn FnMut(Mark)) {
        // Pauses are told of each job, and what is expected of it depends on the role.
        let mut with = DefaultHasher::new();
        (self.ctx.intents.seen(), self.role == Role::Observer).hash(&mut with);
        self.ctx.local_status.marks(with.finish(), each);
    }

    fn on_pages(&self, pages: &BTreeSet<u32>, of: u32) -> Vec<(u32, JobPresence)> {
        let mut jobs = self.ctx.local_status.on_pages(pages, of);
        for (_, job) in &mut jobs {
            job.paused = self.ctx.intents.is_paused(&job.name);
        }
        jobs
    }

    fn count(&self) -> usize {
        self.ctx.local_status.count()
    }

    fn in_all(&self) -> JobsInAll {
        let local_status = &self.ctx.local_status;
        JobsInAll {
            count: local_status.count(),
            leads: local_status.leads_now(),
            definitions: local_status.own().hash.clone(),
        }
    }
}

/// All that may change in what a replica tells of itself.
#[derive(PartialEq)]
struct State {
    /// None where they have to be looked at.
    jobs: Option<(u64, u64)>,
    /// What is asked of the fleet: pauses.
    asked: u64,
    unfit: Option<String>,
    draining: bool,
    /// Whether what is held in front of the gate is held: in failover mode it is the role.
    passes: bool,
    watches: Vec<NodeWatch>,
    cut_off: bool,
    notices: Vec<NoticeStatus>,
}

impl State {
    async fn of(ctx: &Context) -> Self {
        let nodes = ctx.locks.nodes().await.unwrap_or_default();
        let cut_off = !reach_enough(&nodes);
        let watches = watches(nodes, ctx);
        // Before it is told: what changes meanwhile is told again.
        Self {
            jobs: ctx.local_status.print(),
            asked: ctx.intents.seen(),
            unfit: ctx.locks.fitness().unfit().map(|(why, _)| why),
            draining: ctx.gate.drain().is_cancelled(),
            passes: ctx.gate.is_held(),
            watches,
            cut_off,
            notices: notices(ctx),
        }
    }
}

/// Tells of this replica until the task is dropped.
pub(crate) async fn publish(me: Identity, ctx: Context, pace: Pace) {
    let mut teller = Teller::new(ctx.locks.wall().as_millisecond());
    let mut touch_at = ctx.clock.now() + pace.interval * PAGES_TOUCHED;
    let mut sign_at = ctx.clock.now();
    let (mut bytes, mut due, mut told) = (0, None, None);
    loop {
        // First of all, so that it leaves with what else is asked at this beat.
        sign(&mut teller, &mut sign_at, &ctx, pace).await;
        let state = State::of(&ctx).await;
        let begun = ctx.clock.now();
        // What ten thousand jobs have to tell takes a while to be put together.
        let is_told = due.is_none() && teller.is_told() && state.jobs.is_some();
        let changes = if is_told && told.as_ref() == Some(&state) {
            Changes::default()
        } else {
            let mut head = head(&me, &ctx, ctx.local_status.leads_now() > 0);
            head.watches.clone_from(&state.watches);
            head.cut_off = state.cut_off;
            head.notices.clone_from(&state.notices);
            let jobs = JobsNow {
                ctx: &ctx,
                role: head.role,
            };
            let changes = teller.changes(&head, &jobs, pace.lifetime, begun);
            bytes = changes.bytes;
            // Pages are due one after the other, and those of many jobs are looked at together.
            let fair = begun + pause_after(bytes, BYTES_PER_SECOND, pace.interval);
            due = changes.due.map(|due| due.max(fair));
            changes
        };
        told = Some(state);
        tell(&mut teller, changes, &mut sign_at, &ctx, pace).await;
        if touch_at <= begun {
            touch_at = begun + pace.interval * PAGES_TOUCHED;
            touch(&mut teller, &me, &ctx, pace).await;
        }
        let in_turn = async {
            let told = ctx.clock.now();
            ctx.local_status.worked().await;
            let pause = pause_after(bytes, BYTES_PER_SECOND, pace.interval);
            // The pause counts from the last documents on: the first tick after a calm is told at once.
            let collected = ctx.clock.now() + COLLECT;
            ctx.clock.sleep_until(collected.max(told + pause)).await;
        };
        let next = sign_at.max(ctx.clock.now() + COLLECT);
        tokio::select! {
            biased;
            () = ctx.local_status.changed() => {
                let pause = pause_after(bytes, URGENT_BYTES_PER_SECOND, pace.interval);
                ctx.clock.sleep(pause).await;
            }
            () = in_turn => {}
            () = ctx.clock.sleep_until(due.map_or(next, |due| due.min(next))) => {}
        }
    }
}

/// Writes what has changed, and gives a sign of life at `sign_at` and once in each interval from then on, also between many pages.
async fn tell(
    teller: &mut Teller,
    changes: Changes,
    sign_at: &mut Moment,
    ctx: &Context,
    pace: Pace,
) {
    let locks = &ctx.locks;
    for some in changes.pages.chunks(AT_ONCE) {
        sign(teller, sign_at, ctx, pace).await;
        let lifetime = pace.lifetime * PAGES_LIVE;
        let written = some.iter().map(async |(page, put)| {
            let Put { name, rev, body } = put.clone();
            let taken = locks.put_doc(&name, rev, lifetime, body).await;
            (*page, taken.is_ok())
        });
        for (page, taken) in futures_util::future::join_all(written).await {
            if !taken {
                teller.unsaid(page);
            }
        }
    }
    match changes.summary {
        Some(put) => {
            *sign_at = ctx.beat(pace.interval);
            put_summary(teller, put, ctx, pace).await;
        }
        None => sign(teller, sign_at, ctx, pace).await,
    }
}

/// Lets the summary as it was written last live on, when that is due.
async fn sign(teller: &mut Teller, sign_at: &mut Moment, ctx: &Context, pace: Pace) {
    let now = ctx.clock.now();
    let Some(put) = teller.summary_now().filter(|_| *sign_at <= now) else {
        return;
    };
    *sign_at = ctx.beat(pace.interval);
    let touched = vec![(put.name.clone(), put.rev)];
    match ctx.locks.touch_docs(touched, pace.lifetime).await {
        Ok(missing) if missing.is_empty() => {}
        _ => put_summary(teller, put, ctx, pace).await,
    }
}

async fn put_summary(teller: &mut Teller, put: Put, ctx: &Context, pace: Pace) {
    let Put { name, rev, body } = put;
    let taken = ctx.locks.put_doc(&name, rev, pace.lifetime, body).await;
    if taken.is_err() {
        teller.summary_unsaid();
    }
}

/// Lets the pages live on; what a node lacks is written again with the next changes.
async fn touch(teller: &mut Teller, me: &Identity, ctx: &Context, pace: Pace) {
    let pages: Vec<(Page, u64)> = teller.pages().collect();
    let named = pages
        .iter()
        .map(|(page, rev)| (page.document(&me.id), *rev));
    let touched = ctx
        .locks
        .touch_docs(named.collect(), pace.lifetime * PAGES_LIVE);
    for missing in touched.await.unwrap_or_default() {
        if let Some((page, _)) = pages.get(missing) {
            teller.lacks(*page);
        }
    }
}

/// After the last run: the documents go. The summary first, since without it the others are not looked for.
pub(super) async fn withdraw(me: &Identity, ctx: &Context) {
    let pages = Page::all(Page::pages_of(ctx.local_status.names().len()));
    let names = pages.map(|page| page.document(&me.id));
    let names: Vec<String> = [pages::document_of(&me.id)]
        .into_iter()
        .chain(names)
        .collect();
    let gone = async {
        let (summary, pages) = names.split_at(1);
        for some in [summary].into_iter().chain(pages.chunks(AT_ONCE)) {
            let removed = some.iter().map(|name| ctx.locks.remove_doc(name));
            futures_util::future::join_all(removed).await;
        }
    };
    let _ = ctx.clock.timeout(Duration::from_secs(1), gone).await;
}

/// How long changes are collected after a document of this size, `longest` at most.
fn pause_after(bytes: usize, per_second: usize, longest: Duration) -> Duration {
    let fair = Duration::from_secs(1) * u32::try_from(bytes).unwrap_or(u32::MAX)
        / u32::try_from(per_second).unwrap_or(u32::MAX);
    (COLLECT + fair).min(longest)
}

/// This replica as it is now, with all of its jobs.
#[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
pub(crate) fn now(me: &Identity, ctx: &Context, rev: u64) -> Presence {
    let mut jobs = ctx.local_status.jobs();
    for job in &mut jobs {
        job.paused = ctx.intents.is_paused(&job.name);
    }
    let head = head(me, ctx, jobs.iter().any(JobPresence::is_led));
    Presence { jobs, rev, ..head }
}

/// The same with these jobs alone, and those whose engines have died.
#[cfg(feature = "admin")]
pub(super) fn with_some(me: &Identity, ctx: &Context, names: &BTreeSet<String>) -> Presence {
    let mut jobs = ctx.local_status.jobs_of(names);
    for job in &mut jobs {
        job.paused = ctx.intents.is_paused(&job.name);
    }
    let head = head(me, ctx, ctx.local_status.leads_now() > 0);
    Presence { jobs, ..head }
}

/// The same without them, where it leads any or none.
fn head(me: &Identity, ctx: &Context, leads_any: bool) -> Presence {
    // What a replica is does not change with each tick.
    let leads = match ctx.peers.failover {
        true => ctx.gate.is_held(),
        false => leads_any,
    };
    Presence {
        id: me.id.clone(),
        tag: ctx.locks.tag().unwrap_or_default().to_owned(),
        watches: Vec::new(),
        name: me.name.clone(),
        host: me.host.clone(),
        pid: me.pid,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: me.started,
        mode: ctx.peers.mode().to_owned(),
        role: match (leads, ctx.peers.candidate) {
            (true, _) => Role::Leader,
            (false, true) => Role::Standby,
            (false, false) => Role::Observer,
        },
        priority: ctx.peers.priority,
        draining: ctx.gate.drain().is_cancelled(),
        unfit: ctx.locks.fitness().unfit().map(|(why, _)| why),
        cut_off: false,
        admin: me.admin.clone(),
        reload: ctx.local_status.reload(),
        notices: notices(ctx),
        jobs: Vec::new(),
        rev: 0,
        written_at: ctx.locks.wall(),
    }
}

/// How it stands with those whom this replica tells.
fn notices(ctx: &Context) -> Vec<NoticeStatus> {
    let told = ctx.notices.standings().into_iter();
    told.map(|told| NoticeStatus {
        name: told.name,
        waiting: told.waiting,
        sent: told.sent,
        failing: told.failing,
    })
    .collect()
}

/// Lock nodes that this replica watches on their way back to their vote.
fn watches(nodes: Vec<NodeReport>, ctx: &Context) -> Vec<NodeWatch> {
    let watched = nodes.into_iter().filter_map(|node| node.watched);
    let now = ctx.locks.wall();
    let watch = |(nomination, left): (String, Duration)| {
        let left = SignedDuration::try_from(left).unwrap_or(SignedDuration::MAX);
        let until = now.checked_add(left).unwrap_or(Timestamp::MAX);
        NodeWatch {
            nomination,
            // As exact as people read it: what does not change is not written.
            until: until.round(Unit::Second).unwrap_or(until),
        }
    };
    watched.map(watch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_document_is_written_less_often_but_always_before_it_is_forgotten() {
        let ordinary = |bytes| pause_after(bytes, BYTES_PER_SECOND, INTERVAL);
        let urgent = |bytes| pause_after(bytes, URGENT_BYTES_PER_SECOND, INTERVAL);
        assert_eq!(ordinary(0), COLLECT);
        assert!(ordinary(3_000) < COLLECT * 2, "ten jobs are told at once");
        assert_eq!(ordinary(300_000), INTERVAL, "a thousand in their turn");
        assert!(urgent(300_000) < Duration::from_millis(500));
        assert_eq!(urgent(usize::MAX), INTERVAL);
    }
}
