//! Configuration: defaults, then a file, then the environment, then flags; every fault told at once and with its place.

mod settings;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::{
    job::spec::Spec,
    lock::settings::{Backend, EmbeddedSettings, Expiry, LockSettings, RedisSettings},
};
pub use settings::{AdminSettings, Listen, LogFormat, Mode, TelemetrySettings, WorkerSettings};

/// Everything that can be configured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[worker]`
    pub worker: WorkerSettings,
    /// `[locks]`
    pub locks: LockSettings,
    /// `[admin]`
    pub admin: AdminSettings,
    /// `[telemetry]`
    pub telemetry: TelemetrySettings,
    /// `[jobs.NAME]`
    pub jobs: BTreeMap<String, Spec>,
}
