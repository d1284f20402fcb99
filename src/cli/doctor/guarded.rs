//! The nodes of a guarded store.

use std::future::Future;

use super::super::{ask::on_a_runtime, failure::Failure, raw_nodes::RawNodes};
use crate::{config::Config, lock::FleetConfig};

/// Does something with all nodes; refuses stores that have no guard.
pub(super) fn with_nodes<F>(
    config: &Config,
    deed: impl FnOnce(RawNodes, FleetConfig) -> F,
) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let Some(fleet) = config.locks.fleet() else {
        return Err(Failure::Usage(
            "no node here names its fleet: only servers are shared by programs that may be configured differently"
                .to_owned(),
        ));
    };
    on_a_runtime(async { deed(RawNodes::open(config)?, fleet).await })
}
