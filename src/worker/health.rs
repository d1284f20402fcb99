//! The health of a replica as its program checks it.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::{
    panics::{bury, caught_later},
    scheduler::Context,
};

/// A check of the replica's own health: fit, or why not.
pub(crate) type HealthCheck = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Reports a health check of the replica to the keeper, again and again.
pub(crate) async fn watch(name: String, check: HealthCheck, ctx: Context) {
    let mut was_fit = true;
    loop {
        let limit = ctx.locks.timing().ttl / 2;
        let mut asked = Box::pin(caught_later(&*check));
        let answer = ctx.clock.timeout(limit, &mut asked).await;
        // A check that is given up may panic when it is dropped.
        bury(asked);
        let verdict = match answer {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(panic)) => Err(format!("the check panicked: {panic}")),
            Err(_) => Err("no answer in time".to_owned()),
        };
        if verdict.is_ok() != was_fit {
            was_fit = verdict.is_ok();
            let unfit = verdict.as_ref().err().map(|why| format!("{name}: {why}"));
            ctx.fitness("replica", unfit);
        }
        ctx.locks.fitness().report(&name, verdict);
        ctx.clock.sleep(ctx.health_every()).await;
    }
}
