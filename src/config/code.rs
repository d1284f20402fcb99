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
            // Whoever writes settings of the locks has chosen where they live, be it the place that is the default.
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
        }
        if let Some(admin) = &self.admin
            && ours("admin.token")
        {
            config.admin.token.clone_from(&admin.token);
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

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;
    use crate::config::{Backend, Listen, LoadOptions, Secret, load, schema};

    fn options(code: CodeSettings) -> LoadOptions {
        LoadOptions {
            code,
            places: Vec::new(),
            ..LoadOptions::default()
        }
    }

    fn secrets() -> CodeSettings {
        let locks = LockSettings {
            backend: Backend::Redis,
            ..LockSettings::default()
        };
        let mut code = CodeSettings {
            locks: Some(locks),
            admin: Some(AdminSettings::default()),
            ..CodeSettings::default()
        };
        let (locks, admin) = (code.locks.as_mut().unwrap(), code.admin.as_mut().unwrap());
        locks.redis.nodes = vec!["redis://me:hunter2@a".into()];
        locks.redis.password = Some(Secret::new("hunter2"));
        admin.token = Some(Secret::new("hunter2"));
        code
    }

    #[test]
    #[cfg(feature = "redis")]
    fn secrets_of_code_arrive_whole_and_are_shown_to_nobody() {
        let loaded = load(&options(secrets())).unwrap();
        let config = &loaded.config;
        let arrived = [
            (
                "locks.redis.password",
                config.locks.redis.password.as_ref().map(Secret::expose),
            ),
            (
                "locks.redis.nodes",
                config.locks.redis.nodes.first().map(|url| url.expose()),
            ),
            (
                "admin.token",
                config.admin.token.as_ref().map(Secret::expose),
            ),
        ];
        // Whoever adds a secret to the settings has it arrive, too.
        assert_eq!(arrived.map(|(key, _)| key), schema::SECRETS);
        for (key, secret) in arrived {
            assert!(
                secret.is_some_and(|secret| secret.contains("hunter2")),
                "{key}"
            );
        }
        assert!(!loaded.render(true).contains("hunter2"));
    }

    #[test]
    #[cfg(feature = "redis")]
    fn a_later_layer_replaces_a_secret_of_code() {
        let mut options = options(secrets());
        options.env = vec![
            (
                "WATCHKEEPER_LOCKS__REDIS__PASSWORD".to_owned(),
                "other".to_owned(),
            ),
            (
                "WATCHKEEPER_LOCKS__REDIS__NODES".to_owned(),
                "redis://b".to_owned(),
            ),
        ];
        let config = load(&options).unwrap().config;
        assert_eq!(config.locks.redis.password.unwrap().expose(), "other");
        assert_eq!(config.locks.redis.nodes[0].expose(), "redis://b");
        assert_eq!(config.admin.token.unwrap().expose(), "hunter2");
    }

    #[test]
    fn a_file_overrides_code_key_by_key_and_a_fault_names_the_key_and_who_said_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("watchkeeper.toml");
        fs::write(&file, "[locks]\nmax_ttl = \"20s\"\n").unwrap();
        let locks = LockSettings {
            ttl: Duration::from_secs(15),
            ..LockSettings::default()
        };
        let admin = AdminSettings {
            listen: Listen::Off,
            ..AdminSettings::default()
        };
        let mut options = options(CodeSettings {
            locks: Some(locks),
            admin: Some(admin),
            ..CodeSettings::default()
        });
        options.file = Some(file);
        options.root = folder.path().to_owned();
        let config = load(&options).unwrap().config;
        assert_eq!(config.locks.ttl, Duration::from_secs(15));
        assert_eq!(config.locks.max_ttl, Duration::from_secs(20));
        assert_eq!(config.admin.address(), None);
        options.code.locks.as_mut().unwrap().ttl = Duration::from_secs(40);
        let said = load(&options).unwrap_err().to_string();
        assert!(
            said.starts_with("code: locks.ttl: 40s is longer than max_ttl (20s)"),
            "{said}"
        );
    }
}
