//! Everything that a search for faults looks at: what `doctor` asks.

use std::time::Duration;

use jiff::Timestamp;

use super::{Fleet, error::FleetError};
use crate::{
    fleet::{
        status::{FleetStatus, LockDetail},
        view,
    },
    lock::AdmissionReport,
};

/// What a fleet shows to a search for faults.
pub(crate) struct Examined {
    pub(crate) status: FleetStatus,
    pub(crate) locks: Vec<LockDetail>,
    pub(crate) admissions: Vec<AdmissionReport>,
    /// The fleet's time.
    pub(crate) now: Timestamp,
    /// How far clocks may be apart.
    pub(crate) skew: Duration,
}

impl Fleet {
    /// Everything about every lock there is, node by node.
    pub(crate) async fn all_details(&self) -> Result<Vec<LockDetail>, FleetError> {
        let views = self.patiently(|| self.locks.list("")).await?;
        let keys = views.iter().filter_map(|views| views.first());
        self.details(keys.map(|view| view.key.clone()).collect())
            .await
    }

    /// Everything that tells how the fleet does.
    pub(crate) async fn examine(&self) -> Result<Examined, FleetError> {
        let status = self.status().await?;
        let locks = self.all_details().await?;
        let presences = self.presences().await?;
        Ok(Examined {
            status,
            locks,
            admissions: view::admissions(&self.locks, &presences).await?,
            now: self.locks.wall(),
            skew: self.locks.timing().skew,
        })
    }
}
