//! `[locks.postgres]`, and what is wrong with it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    finding::Findings,
    secret::{Secret, SecretUrl},
};

/// `[locks.postgres]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PostgresSettings {
    /// The database: `postgres://USER[:PASSWORD]@HOST[:PORT][,HOST…]/DATABASE[?sslmode=verify-full&sslrootcert=FILE]`. Of several
    /// hosts the first one that takes writes is used.
    pub url: Option<SecretUrl>,
    /// The same database past a pooler, where releases are heard of; `url` unless it is set.
    pub listen_url: Option<SecretUrl>,
    /// The password of a user whose URL holds none.
    pub password: Option<Secret>,
    /// The schema with our tables, which is made where it is missing.
    pub schema: String,
    /// How long the database may take to answer.
    #[serde(with = "crate::human::duration")]
    pub node_timeout: Duration,
}

impl Default for PostgresSettings {
    fn default() -> Self {
        Self {
            url: None,
            listen_url: None,
            password: None,
            schema: "watchkeeper".to_owned(),
            node_timeout: Duration::from_millis(250),
        }
    }
}

/// Adds what is wrong. Keys are relative to `[locks]`.
pub(super) fn check(settings: &PostgresSettings, raw_keys: bool, found: &mut Findings) {
    if raw_keys {
        found.error(
            &["raw_keys", "backend"],
            "no other client has its locks in our tables of PostgreSQL",
            "leave it out, or use redis",
        );
    }
    if settings.node_timeout.is_zero() {
        found.error(
            &["postgres.node_timeout"],
            "nothing answers in no time",
            "leave it out, or write a duration such as \"250ms\"",
        );
    }
    let schema = &settings.schema;
    if schema.is_empty() || schema.len() > 63 || schema.contains(['\0', '\'']) {
        found.error(
            &["postgres.schema"],
            "a schema has a name of 1 to 63 bytes, without quotation marks",
            "leave it out, or write one such as \"watchkeeper\"",
        );
    }
    if settings.url.is_none() {
        found.error(
            &["postgres.url"],
            "it is missing: which database keeps the locks?",
            "write one such as \"postgres://worker@db/app\"",
        );
    }
    addresses(settings, found);
}

#[cfg(feature = "postgres")]
fn addresses(settings: &PostgresSettings, found: &mut Findings) {
    let urls = [
        ("postgres.url", &settings.url),
        ("postgres.listen_url", &settings.listen_url),
    ];
    for (key, url) in urls {
        let Some(url) = url else { continue };
        let remedy = "see the section [locks.postgres] of the reference";
        match settings.address(url) {
            Err(why) => found.error(&[key], format!("the address {why}"), remedy),
            Ok(address) => {
                if let Err(why) = crate::node::postgres::tls::connector(&address.tls) {
                    found.error(&[key], why, remedy);
                }
            }
        }
    }
}

/// Without it the backend is refused already.
#[cfg(not(feature = "postgres"))]
fn addresses(_: &PostgresSettings, _: &mut Findings) {}

/// Without it the backend is refused already.
#[cfg(not(feature = "postgres"))]
impl PostgresSettings {
    pub(super) fn names_several_hosts(&self) -> bool {
        false
    }
}

#[cfg(feature = "postgres")]
impl PostgresSettings {
    /// Whether another server may take the place of the one that is used.
    pub(super) fn names_several_hosts(&self) -> bool {
        let address = self.url.as_ref().map(|url| self.address(url));
        matches!(address, Some(Ok(address)) if address.hosts() > 1)
    }

    /// One of the addresses, with the password.
    pub(crate) fn address(
        &self,
        url: &SecretUrl,
    ) -> Result<crate::node::postgres::address::PgAddress, String> {
        let address = crate::node::postgres::address::PgAddress::parse(url.expose())?;
        Ok(match &self.password {
            Some(password) => address.with_password(password.expose()),
            None => address,
        })
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;

    fn found(settings: &PostgresSettings, raw_keys: bool) -> Vec<String> {
        let mut found = Findings::default();
        check(settings, raw_keys, &mut found);
        let text = |f: &crate::finding::Finding| format!("{}: {}", f.keys.join(", "), f.message);
        found.iter().map(text).collect()
    }

    #[test]
    fn what_is_wrong_is_named_by_its_key_and_shows_no_secret() {
        let good = PostgresSettings {
            url: Some(SecretUrl::new("postgres://me@db/app")),
            ..PostgresSettings::default()
        };
        assert_eq!(found(&good, false), Vec::<String>::new());
        let with = |change: fn(&mut PostgresSettings)| {
            let mut settings = good.clone();
            change(&mut settings);
            found(&settings, false).join("; ")
        };
        for (change, key) in [
            (
                (|s| s.url = None) as fn(&mut PostgresSettings),
                "postgres.url: it is missing",
            ),
            (
                |s| s.url = Some(SecretUrl::new("postgres://me:hunter2")),
                "postgres.url: the address",
            ),
            (
                |s| s.listen_url = Some(SecretUrl::new("postgres://:hunter2@db/app")),
                "postgres.listen_url: ",
            ),
            (
                |s| {
                    s.url = Some(SecretUrl::new(
                        "postgres://me:hunter2@db/app?sslrootcert=/nowhere",
                    ))
                },
                "/nowhere cannot be read",
            ),
            (|s| s.schema = "it's".to_owned(), "postgres.schema: "),
            (|s| s.schema.clear(), "postgres.schema: "),
            (
                |s| s.node_timeout = Duration::ZERO,
                "postgres.node_timeout: ",
            ),
        ] {
            let said = with(change);
            assert!(said.contains(key), "{said}, not {key}");
            assert!(!said.contains("hunter2"), "{said}");
        }
        assert!(found(&good, true)[0].starts_with("raw_keys, backend: "));
    }

    #[test]
    fn a_lease_that_may_outlive_a_promotion_beside_an_old_primary_is_warned_of() {
        use crate::settings::LockSettings;

        let warned = |hosts: &str, ttl: u64| {
            let url = format!("postgres://me@{hosts}/app");
            let longest = Duration::from_secs(30);
            let settings = LockSettings::postgres(url).max_ttl(longest);
            let mut found = Findings::default();
            settings.check_ttl(Duration::from_secs(ttl), "ttl", &mut found);
            let remedies = found.iter().map(|f| f.remedy.clone());
            remedies.collect::<Vec<_>>()
        };
        assert_eq!(warned("a,b", 25), ["raise max_ttl to 31s or more"]);
        assert!(warned("a,b", 24).is_empty() && warned("a", 30).is_empty());
    }
}
