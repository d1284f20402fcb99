//! `[locks.etcd]`, and what is wrong with it.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize, Serializer};

use super::{TlsSettings, tls};
use crate::{
    finding::Findings,
    secret::{Secret, redact},
};

/// `[locks.etcd]`
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EtcdSettings {
    /// The members of one cluster: `http://HOST:2379`, or `https://` for TLS, without user and password. One of them is asked as
    /// long as it serves, then the next.
    #[serde(serialize_with = "redacted")]
    pub endpoints: Vec<String>,
    /// The user, where the cluster wants one.
    pub username: Option<String>,
    /// The user's password.
    pub password: Option<Secret>,
    /// How long the cluster may take to answer.
    #[serde(with = "crate::human::duration")]
    pub node_timeout: Duration,
    /// `[locks.etcd.tls]`
    pub tls: TlsSettings,
}

// === impl EtcdSettings ===

impl Default for EtcdSettings {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            username: None,
            password: None,
            node_timeout: Duration::from_millis(500),
            tls: TlsSettings::default(),
        }
    }
}

impl fmt::Debug for EtcdSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints: Vec<String> = self.endpoints.iter().map(|url| redact(url)).collect();
        f.debug_struct("EtcdSettings")
            .field("endpoints", &endpoints)
            .field("username", &self.username)
            .field("password", &self.password)
            .field("node_timeout", &self.node_timeout)
            .field("tls", &self.tls)
            .finish()
    }
}

#[cfg(feature = "etcd")]
impl EtcdSettings {
    /// The files for TLS, as the node wants them.
    pub(crate) fn files(&self) -> crate::node::etcd::EtcdTlsFiles {
        crate::node::etcd::EtcdTlsFiles {
            ca: self.tls.ca.clone(),
            cert: self.tls.cert.clone(),
            key: self.tls.key.clone(),
        }
    }
}

/// An endpoint with a password is refused; until then, and where another backend is chosen, it is shown nowhere.
fn redacted<S: Serializer>(endpoints: &[String], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(endpoints.iter().map(|endpoint| redact(endpoint)))
}

/// Adds what is wrong. Keys are relative to `[locks]`.
pub(super) fn check(settings: &EtcdSettings, raw_keys: bool, found: &mut Findings) {
    if raw_keys {
        found.error(
            &["raw_keys", "backend"],
            "no other client has its locks in our keys of etcd",
            "leave it out, or use redis",
        );
    }
    if settings.node_timeout.is_zero() {
        found.error(
            &["etcd.node_timeout"],
            "nothing answers in no time",
            "leave it out, or write a duration such as \"500ms\"",
        );
    }
    if settings.endpoints.is_empty() {
        found.error(
            &["etcd.endpoints"],
            "none is named: which cluster keeps the locks?",
            "write endpoints = [\"http://127.0.0.1:2379\"]",
        );
    }
    check_endpoints(&settings.endpoints, found);
    match (&settings.username, &settings.password) {
        (Some(_), None) => found.error(
            &["etcd.password", "etcd.username"],
            "the user has no password",
            "set it, or leave etcd.username out",
        ),
        (None, Some(_)) => found.error(
            &["etcd.username", "etcd.password"],
            "a password is set, and not whose it is",
            "set it, or leave etcd.password out",
        ),
        (Some(_), Some(_)) | (None, None) => {}
    }
    check_login(settings, found);
    check_tls(settings, found);
}

fn check_endpoints(endpoints: &[String], found: &mut Findings) {
    let mut seen: Vec<(String, usize)> = Vec::new();
    for (i, endpoint) in endpoints.iter().enumerate() {
        let key = format!("etcd.endpoints[{i}]");
        let shown = redact(endpoint);
        // Before all else: what else is wrong may be told with a part of the password.
        if endpoint.contains('@') {
            found.error(
                &[&key],
                format!("\"{shown}\" holds a user or a password"),
                "leave them out, and set etcd.username and etcd.password",
            );
            continue;
        }
        if let Err(why) = fits(endpoint) {
            let (what, remedy) = why.split_once("; ").unwrap_or((&why, ""));
            found.error(&[&key], format!("\"{shown}\" {what}"), remedy);
            continue;
        }
        let member = spelled(endpoint);
        match seen.iter().find(|(other, _)| *other == member) {
            Some((_, first)) => found.error(
                &[&key],
                format!("\"{shown}\" is the same as endpoints[{first}]"),
                "name each member once",
            ),
            None => seen.push((member, i)),
        }
    }
}

/// One spelling for each member.
fn spelled(endpoint: &str) -> String {
    let endpoint = endpoint.trim().trim_end_matches('/');
    endpoint.to_ascii_lowercase()
}

fn check_tls(settings: &EtcdSettings, found: &mut Findings) {
    let encrypted = |endpoint: &String| spelled(endpoint).starts_with("https:");
    let endpoints = &settings.endpoints;
    if !endpoints.iter().any(encrypted) {
        if let Some(file) = tls::first_set(&settings.tls) {
            found.error(
                &[&format!("etcd.tls.{file}"), "etcd.endpoints"],
                "it is set, but no endpoint is asked with TLS",
                "write https:// in place of http://, or leave it out",
            );
        }
        return;
    }
    for (i, endpoint) in endpoints.iter().enumerate() {
        if spelled(endpoint).starts_with("http:") {
            found.warn(
                &[&format!("etcd.endpoints[{i}]")],
                "it is asked without TLS, others are with",
                "write https://",
            );
        }
    }
    look_at_files(settings, found);
}

/// A password on an open line.
fn check_login(settings: &EtcdSettings, found: &mut Findings) {
    let open = |endpoint: &String| {
        let member = spelled(endpoint);
        let here = ["http://127.", "http://localhost", "http://[::1]"];
        member.starts_with("http:") && !here.iter().any(|start| member.starts_with(start))
    };
    if settings.username.is_some()
        && settings.password.is_some()
        && let Some(i) = settings.endpoints.iter().position(open)
    {
        found.warn(
            &["etcd.username", &format!("etcd.endpoints[{i}]")],
            "user and password go there without TLS",
            "write https://",
        );
    }
}

#[cfg(feature = "etcd")]
fn fits(endpoint: &str) -> Result<(), String> {
    crate::node::etcd::check_endpoint(endpoint)
}

/// Without it the backend is refused already.
#[cfg(not(feature = "etcd"))]
fn fits(_: &str) -> Result<(), String> {
    Ok(())
}

#[cfg(feature = "etcd")]
fn look_at_files(settings: &EtcdSettings, found: &mut Findings) {
    if let Err((file, message, remedy)) = crate::node::etcd::check_tls(&settings.files()) {
        found.error(&[&format!("etcd.tls.{file}")], message, remedy);
    }
}

/// Without it the backend is refused already.
#[cfg(not(feature = "etcd"))]
fn look_at_files(_: &EtcdSettings, _: &mut Findings) {}

#[cfg(all(test, feature = "etcd"))]
mod tests {
    use super::*;
    use crate::settings::{Backend, Expiry, FleetConfig, LockSettings};

    fn found(settings: &EtcdSettings, raw_keys: bool) -> Vec<String> {
        let mut found = Findings::default();
        check(settings, raw_keys, &mut found);
        let text = |f: &crate::finding::Finding| {
            assert!(!f.remedy.is_empty(), "{f:?}");
            format!("{}: {}; {}", f.keys.join(", "), f.message, f.remedy)
        };
        found.iter().map(text).collect()
    }

    fn over(endpoints: &[&str]) -> EtcdSettings {
        EtcdSettings {
            endpoints: endpoints.iter().map(|url| (*url).to_owned()).collect(),
            ..EtcdSettings::default()
        }
    }

    #[test]
    fn what_is_wrong_is_named_by_its_key_and_shows_no_secret() {
        let good = over(&["http://a:2379", "http://b:2379"]);
        assert_eq!(found(&good, false), Vec::<String>::new());
        let with = |change: fn(&mut EtcdSettings)| {
            let mut settings = good.clone();
            change(&mut settings);
            found(&settings, false).join("\n")
        };
        for (change, key) in [
            (
                (|s| s.endpoints.clear()) as fn(&mut EtcdSettings),
                "etcd.endpoints: none is named",
            ),
            (
                |s| s.endpoints[1] = "b:2379".to_owned(),
                "etcd.endpoints[1]: \"b:2379\" does not begin with",
            ),
            (
                |s| s.endpoints[1] = "http://me:hunter2@b:2379".to_owned(),
                "etcd.endpoints[1]: \"http://me:***@b:2379\" holds a user or a password; leave them out, and set etcd.username",
            ),
            (
                |s| s.endpoints[1] = "me:hunter2@b".to_owned(),
                "etcd.endpoints[1]: \"me:***@b\" holds a user or a password",
            ),
            (
                |s| s.endpoints[1] = "http://b:2379/?password=hunter2".to_owned(),
                "etcd.endpoints[1]: \"http://b:2379/?password=***\" ",
            ),
            (
                |s| s.endpoints[1] = " HTTP://A:2379/".to_owned(),
                "is the same as endpoints[0]; name each member once",
            ),
            (
                |s| s.username = Some("me".to_owned()),
                "etcd.password, etcd.username: the user has no password",
            ),
            (
                |s| s.password = Some(Secret::new("hunter2")),
                "etcd.username, etcd.password: a password is set",
            ),
            (
                |s| s.tls.ca = Some("/nowhere".into()),
                "etcd.tls.ca, etcd.endpoints: it is set, but no endpoint",
            ),
            (
                |s| s.endpoints[0] = "https://a:2379".to_owned(),
                "etcd.endpoints[1]: it is asked without TLS",
            ),
            (
                |s| s.node_timeout = Duration::ZERO,
                "etcd.node_timeout: nothing answers",
            ),
        ] {
            let said = with(change);
            assert!(said.contains(key), "{said}, not {key}");
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
        assert!(found(&good, true)[0].starts_with("raw_keys, backend: "));
    }

    #[test]
    fn user_and_password_in_code_are_those_of_the_chosen_store() {
        let settings = LockSettings::etcd(["http://127.0.0.1:2379", "http://127.0.0.1:2479"])
            .username("me")
            .password(Secret::new("pw"));
        assert_eq!(settings.backend, Backend::Etcd);
        assert_eq!(settings.etcd.username.as_deref(), Some("me"));
        assert!(settings.etcd.password.is_some());
        assert!(settings.redis.username.is_none() && settings.redis.password.is_none());
        let postgres = LockSettings::postgres("postgres://me@127.0.0.1/db");
        let postgres = postgres.password(Secret::new("pw"));
        assert!(postgres.postgres.password.is_some() && postgres.redis.password.is_none());
        let redis = LockSettings::redis(["redis://127.0.0.1"]).username("me");
        assert_eq!(redis.redis.username.as_deref(), Some("me"));
        assert_eq!(settings.expiry(), Expiry::Observed);
        // However many members it has, a cluster is one node.
        assert_eq!(FleetConfig::of(&settings).nodes, 1);
        let told = |settings: &LockSettings| {
            let mut found = Findings::default();
            settings.check(&mut found);
            found.iter().map(|f| f.keys.join(", ")).collect::<Vec<_>>()
        };
        assert_eq!(told(&settings), [""; 0]);
        let short = settings.ttl(Duration::from_secs(9));
        assert_eq!(told(&short), ["ttl, etcd.node_timeout"]);
    }

    #[test]
    fn files_for_tls_are_looked_at() {
        let mut settings = over(&["https://a:2379"]);
        settings.tls.ca = Some("/nowhere/ca.pem".into());
        let said = found(&settings, false).join("\n");
        assert!(
            said.starts_with("etcd.tls.ca: /nowhere/ca.pem cannot be read"),
            "{said}"
        );
        settings.tls = TlsSettings {
            cert: Some("/nowhere/client.pem".into()),
            ..TlsSettings::default()
        };
        let said = found(&settings, false).join("\n");
        assert!(said.starts_with("etcd.tls.key: "), "{said}");
    }

    #[test]
    fn a_password_at_the_wrong_place_is_shown_to_nobody() {
        let mut settings = over(&["http://me:hunter2@a:2379"]);
        settings.password = Some(Secret::new("hunter2"));
        let written = serde_json::to_string(&settings).unwrap();
        assert!(written.contains("http://me:***@a:2379"), "{written}");
        assert!(!written.contains("hunter2"), "{written}");
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
