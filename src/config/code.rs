//! What code says: settings typed in place of written in a file, and jobs. A layer between the defaults and the file.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    AdminSettings, Config, LockSettings, Spec, TelemetrySettings, WorkerSettings,
    problem::{Provenance, Source},
};

/// Sections of the configuration that code says; of the others the defaults hold.
#[derive(Clone, Debug, Default)]
pub struct CodeSettings {
    /// `[worker]`
    pub worker: Option<WorkerSettings>,
    /// `[locks]`
    pub locks: Option<LockSettings>,
    /// `[admin]`
    pub admin: Option<AdminSettings>,
    /// `[telemetry]`
    pub telemetry: Option<TelemetrySettings>,
}

impl CodeSettings {
    /// The layer below the file.
    pub(super) fn config(&self) -> Config {
        Config {
            worker: self.worker.clone().unwrap_or_default(),
            locks: self.locks.clone().unwrap_or_default(),
            admin: self.admin.clone().unwrap_or_default(),
            telemetry: self.telemetry.clone().unwrap_or_default(),
            notices: BTreeMap::new(),
            jobs: BTreeMap::new(),
        }
    }

    /// What code sets, as far as it differs from the defaults.
    pub(super) fn places(&self) -> BTreeMap<String, Source> {
        let mut found = BTreeMap::new();
        let json = |config: &Config| serde_json::to_value(config).unwrap_or_default();
        let (default, value) = (json(&Config::default()), json(&self.config()));
        differences("", &default, &value, &mut found);
        if self.locks.is_some() {
            // A program that writes settings of the locks has chosen where they live, be it the place that is the default.
            found.insert("locks.backend".to_owned(), Source::Code);
        }
        found
    }

    /// Puts back the secrets that no later layer has replaced: on their way through the layers they are `***`.
    pub(super) fn restore_secrets(&self, config: &mut Config, provenance: &Provenance) {
        let ours = |key: &str| provenance.of(key) == Source::Code;
        if let Some(locks) = &self.locks {
            if ours("locks.redis.nodes") {
                config.locks.redis.nodes.clone_from(&locks.redis.nodes);
            }
            if ours("locks.redis.password") {
                config
                    .locks
                    .redis
                    .password
                    .clone_from(&locks.redis.password);
            }
            let (of, from) = (&mut config.locks.postgres, &locks.postgres);
            if ours("locks.postgres.url") {
                of.url.clone_from(&from.url);
            }
            if ours("locks.postgres.listen_url") {
                of.listen_url.clone_from(&from.listen_url);
            }
            if ours("locks.postgres.password") {
                of.password.clone_from(&from.password);
            }
            if ours("locks.etcd.password") {
                config.locks.etcd.password.clone_from(&locks.etcd.password);
            }
        }
        if let Some(admin) = &self.admin
            && ours("admin.token")
        {
            config.admin.token.clone_from(&admin.token);
        }
        if let Some(telemetry) = &self.telemetry
            && ours("telemetry.otlp_headers")
        {
            let headers = &mut config.telemetry.otlp_headers;
            headers.clone_from(&telemetry.otlp_headers);
        }
    }
}

/// What code sets of its jobs, as far as it differs from the defaults.
pub(super) fn places_of_jobs(specs: &BTreeMap<String, Spec>) -> BTreeMap<String, Source> {
    let default = serde_json::to_value(Spec::default()).unwrap_or_default();
    let mut found = BTreeMap::new();
    for (name, spec) in specs {
        let at = format!("jobs.{name}");
        found.insert(at.clone(), Source::Code);
        let value = serde_json::to_value(spec).unwrap_or_default();
        differences(&at, &default, &value, &mut found);
    }
    found
}

fn differences(at: &str, default: &Value, value: &Value, found: &mut BTreeMap<String, Source>) {
    match value {
        Value::Object(table) => {
            for (key, inner) in table {
                let default = default.get(key).unwrap_or(&Value::Null);
                let dot = if at.is_empty() { "" } else { "." };
                differences(&format!("{at}{dot}{key}"), default, inner, found);
            }
        }
        value if value != default => {
            found.insert(at.to_owned(), Source::Code);
        }
        _ => {}
    }
}
