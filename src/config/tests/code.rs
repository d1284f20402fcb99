//! What code says, and what wins over it.

use std::{fs, time::Duration};

use crate::config::{
    AdminSettings, Backend, CodeSettings, Listen, LoadOptions, LockSettings, Secret,
    TelemetrySettings, load, schema,
};

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
        telemetry: Some(TelemetrySettings::default().otlp_headers(Secret::new("x-key=hunter2"))),
        ..CodeSettings::default()
    };
    let (locks, admin) = (code.locks.as_mut().unwrap(), code.admin.as_mut().unwrap());
    locks.redis.nodes = vec!["redis://me:hunter2@a".into()];
    locks.redis.password = Some(Secret::new("hunter2"));
    locks.postgres.url = Some("postgres://me:hunter2@a/app".into());
    locks.postgres.listen_url = Some("postgres://me:hunter2@b/app".into());
    locks.postgres.password = Some(Secret::new("hunter2"));
    locks.etcd.password = Some(Secret::new("hunter2"));
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
            "locks.postgres.url",
            config.locks.postgres.url.as_ref().map(|url| url.expose()),
        ),
        (
            "locks.postgres.listen_url",
            config
                .locks
                .postgres
                .listen_url
                .as_ref()
                .map(|url| url.expose()),
        ),
        (
            "locks.postgres.password",
            config.locks.postgres.password.as_ref().map(Secret::expose),
        ),
        (
            "locks.etcd.password",
            config.locks.etcd.password.as_ref().map(Secret::expose),
        ),
        (
            "admin.token",
            config.admin.token.as_ref().map(Secret::expose),
        ),
        (
            "telemetry.otlp_headers",
            config.telemetry.otlp_headers.as_ref().map(Secret::expose),
        ),
    ];
    // A secret that is added to the settings arrives, too.
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
