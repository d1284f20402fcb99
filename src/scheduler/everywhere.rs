//! Runs a job in every replica, without a lock, and without a ledger that outlives the process.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Context, engine::Engine, ledger_store::LedgerStore, term::TermLoop};
use crate::{job::Job, status::JobStanding};

impl Engine {
    /// Runs the job in every replica, without a lock and without a ledger that outlives the process.
    pub(crate) async fn run_everywhere(&mut self) {
        let ctx = &self.ctx.clone();
        let store = LedgerStore::local();
        while let Some(pass) = ctx.gate.pass().await {
            self.take_up();
            tokio::select! {
                biased;
                () = pass.over() => continue,
                () = async {
                    ctx.locks.fitness().fit().await;
                    self.wait_until_fit(&pass).await;
                } => {}
            }
            ctx.local_status.stands(&self.name, JobStanding::Working);
            let unfit = CancellationToken::new();
            let watch = watch_without_lock(
                self.job.clone(),
                self.name.clone(),
                ctx.clone(),
                unfit.clone(),
            );
            let watch = ctx.spawn.spawn(watch);
            TermLoop {
                engine: self,
                store: &store,
                lease: None,
                pass: &pass,
                brief: false,
                is_first: true,
                unfit: Some(unfit),
            }
            .run()
            .await;
            watch.abort();
        }
        ctx.local_status.stands(&self.name, JobStanding::Off);
    }
}

/// Asks the job and this replica whether they are fit: without a lock no keeper watches the replica's own fitness.
async fn watch_without_lock(
    job: Arc<dyn Job>,
    name: String,
    ctx: Context,
    unfit: CancellationToken,
) {
    loop {
        ctx.clock.sleep(ctx.health_every()).await;
        let Some(why) = ctx.why_unfit_here(|| job.health()).await else {
            continue;
        };
        tracing::warn!(job = name, why, "not fit: nothing new starts here");
        unfit.cancel();
        return;
    }
}
