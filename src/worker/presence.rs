//! What this replica tells the others about itself.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    fleet::presence::{INTERVAL, LIFETIME},
    scheduler::Context,
    status::{NodeWatch, Presence, Role, Standing, replica_id},
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

/// Changes are collected for so long before they are told.
const COLLECT: Duration = Duration::from_millis(100);
/// Bytes of documents in a second, on each node: what changes with every tick of a thousand jobs is told with what
/// changes meanwhile.
const BYTES_PER_SECOND: usize = 100_000;
/// The same for what others should soon know of: who leads what.
const URGENT_BYTES_PER_SECOND: usize = 1_000_000;

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

/// Publishes presence documents until the task is dropped.
pub(crate) async fn publish(me: Identity, ctx: Context, pace: Pace) {
    let Pace { interval, lifetime } = pace;
    let mut rev = 0;
    loop {
        rev += 1;
        let mut presence = now(&me, &ctx, rev);
        presence.watches = watches(&ctx).await;
        let mut bytes = 0;
        if let Ok(body) = presence.to_json() {
            bytes = body.len();
            let name = presence.document_name();
            // Without a store nothing is told; the next document tells it.
            let _ = ctx.locks.put_doc(&name, rev, lifetime, body).await;
        }
        let in_turn = async {
            let told = ctx.clock.now();
            ctx.local_status.worked().await;
            let pause = pause_after(bytes, BYTES_PER_SECOND, interval);
            // The pause counts from the last document on: the first tick after a calm is told at once.
            let collected = ctx.clock.now() + COLLECT;
            ctx.clock.sleep_until(collected.max(told + pause)).await;
        };
        tokio::select! {
            biased;
            () = ctx.local_status.changed() => {
                let pause = pause_after(bytes, URGENT_BYTES_PER_SECOND, interval);
                ctx.clock.sleep(pause).await;
            }
            () = in_turn => {}
            () = ctx.clock.sleep(interval) => {}
        }
    }
}

/// After the last run: the document goes.
pub(super) async fn withdraw(me: &Identity, ctx: &Context) {
    let name = now(me, ctx, 0).document_name();
    let gone = ctx.locks.remove_doc(&name);
    let _ = ctx.clock.timeout(Duration::from_secs(1), gone).await;
}

/// How long changes are collected after a document of this size, `longest` at most.
fn pause_after(bytes: usize, per_second: usize, longest: Duration) -> Duration {
    let fair = Duration::from_secs(1) * u32::try_from(bytes).unwrap_or(u32::MAX)
        / u32::try_from(per_second).unwrap_or(u32::MAX);
    (COLLECT + fair).min(longest)
}

/// This replica as it is now.
pub(crate) fn now(me: &Identity, ctx: &Context, rev: u64) -> Presence {
    let mut jobs = ctx.local_status.jobs(INTERVAL);
    for job in &mut jobs {
        job.paused = ctx.intents.is_paused(&job.name);
    }
    let leads = jobs.iter().any(|job| job.standing == Standing::Leading);
    Presence {
        id: me.id.clone(),
        tag: ctx.locks.tag().unwrap_or_default().to_owned(),
        watches: Vec::new(),
        name: me.name.clone(),
        host: me.host.clone(),
        pid: me.pid,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: me.started,
        mode: ctx.place.mode().to_owned(),
        role: match (leads, ctx.place.candidate) {
            (true, _) => Role::Leader,
            (false, true) => Role::Standby,
            (false, false) => Role::Observer,
        },
        priority: ctx.place.priority,
        draining: ctx.gate.drain().is_cancelled(),
        unfit: ctx.locks.fitness().unfit().map(|(why, _)| why),
        admin: me.admin.clone(),
        reload: ctx.local_status.reload(),
        jobs,
        rev,
        written_at: ctx.locks.wall(),
    }
}

/// Lock nodes that this replica watches on their way back to their vote.
async fn watches(ctx: &Context) -> Vec<NodeWatch> {
    let nodes = ctx.locks.nodes().await.unwrap_or_default();
    let watched = nodes.into_iter().filter_map(|node| node.watched);
    let watch = |(nomination, left): (String, Duration)| NodeWatch {
        nomination,
        left_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
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
