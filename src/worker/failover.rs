//! Failover mode: one replica of the fleet is the active one, by a lock of its own. The first standbys watch that lock, and with
//! it the locks of all jobs; the others rest.

use std::{convert::Infallible, time::Duration};

use crate::{
    election::Elector,
    event::Event,
    lease::LeaseView,
    scheduler::{Context, Vacancy, WHOLE_REPLICA, Watcher},
};

/// Opens the gate while this replica holds the replica lock. The engines watch their jobs' locks all the while,
/// so that they have them as soon as it is open.
pub(super) async fn hold_the_gate(ctx: Context) {
    let vacancy = Vacancy::default();
    let watcher = Watcher {
        ctx: &ctx,
        of: WHOLE_REPLICA,
        vacancy: &vacancy,
    };
    let _watching = watcher.keep_watching(WHOLE_REPLICA, None, |_| {});
    let elector = Elector::for_key(&ctx.locks, WHOLE_REPLICA.to_owned())
        .hesitating(ctx.hesitation(WHOLE_REPLICA, None));
    let elector = watcher.candidate(elector);
    let drain = ctx.gate.drain().clone();
    while !drain.is_cancelled() {
        let elected = tokio::select! {
            biased;
            () = drain.cancelled() => return,
            elected = watcher.campaign(&elector) => elected,
        };
        let Ok(elected) = elected else {
            ctx.clock.sleep(Duration::from_secs(1)).await;
            continue;
        };
        let lease = elected.term.lease().clone();
        let (job, token) = ("replica".to_owned(), lease.token());
        ctx.events.tell(Event::Leading {
            job,
            token,
            leaderless: elected.leaderless,
        });
        ctx.gate.hold(lease.clone());
        // Which replica is the active one.
        ctx.local_status.told();
        let held = async {
            let why = tokio::select! {
                biased;
                () = drain.cancelled() => crate::lease::Loss::Released,
                why = lease.closing() => why,
            };
            ctx.gate.close();
            // The passes of all jobs hold the lease: it is handed over when the last of them has wound down.
            while lease.work_in_flight() > 0 && lease.is_held() {
                lease.work_changed().await;
            }
            why
        };
        // Also while the jobs wind down: work that is told only at the end of the lease outlives it.
        let why = tokio::select! {
            biased;
            why = held => why,
            never = cordon_in_time(&lease, &ctx) => match never {},
        };
        ctx.local_status.told();
        elected.term.resign().await;
        ctx.events.tell(Event::StandingBy {
            job: "replica".to_owned(),
            why,
        });
    }
}

/// Closes a lease that could not be extended so early that the work under it can still end before it does.
async fn cordon_in_time(lease: &LeaseView, ctx: &Context) -> Infallible {
    let timing = ctx.locks.timing();
    let margin = timing.cancel_margin(lease.ttl(), timing.grace);
    while lease.is_open() {
        // Extensions move it on.
        let at = lease.valid_until().back(margin);
        if ctx.clock.now() >= at {
            lease.cordon("the replica lock is about to end and could not be extended");
        } else {
            ctx.clock.sleep_until(at).await;
        }
    }
    std::future::pending().await
}
