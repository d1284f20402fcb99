//! A job that is an asynchronous function.

use async_trait::async_trait;

use crate::job::{Job, JobError, Outcome, Run};

/// Makes a job of a function.
pub(super) struct Function<F>(pub(super) F);

#[async_trait]
impl<F, Fut> Job for Function<F>
where
    F: Fn(Run) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, JobError>> + Send + 'static,
{
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        (self.0)(run).await
    }
}
