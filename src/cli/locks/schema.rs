//! `locks schema`: what makes the tables of a PostgreSQL lock store.

use crate::{cli::failure::Failure, config::Config};

/// Prints it, for the configured schema.
#[cfg(feature = "postgres")]
pub(super) fn schema(config: &Config) -> Result<(), Failure> {
    let made = crate::node::postgres::ddl(&config.locks.postgres.schema);
    crate::cli::output::print(&made);
    Ok(())
}

#[cfg(not(feature = "postgres"))]
pub(super) fn schema(_: &Config) -> Result<(), Failure> {
    Err(Failure::Failed(
        "PostgreSQL is not part of this build: build with the feature `postgres`".to_owned(),
    ))
}
