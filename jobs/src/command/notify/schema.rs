//! `schema`: what makes the side tables of a job, for migrations of one's own.

use watchkeeper::{Worker, terminal};

use super::{args::SchemaArgs, failure::Failure, which};
use crate::notifications::open;

/// Prints it.
pub(super) async fn print(worker: &Worker, args: &SchemaArgs) -> Result<(), Failure> {
    let mailing = which::one(worker, args.job.as_deref())?;
    let sql = open::schema(&mailing.database, &mailing.params).await?;
    terminal::out(&sql);
    Ok(())
}
