//! What of our environment no program may have that we start.

use std::ffi::OsString;

use super::{
    schema,
    text::{PREFIX, TOLD, secret_of},
};
use crate::secret::{redact, tells};

/// The variables of ours among these that hold a secret, or say where one lies: whatever a program is started for, it has no
/// need of them. Those that say where the locks live are none, as long as no password stands in them.
#[must_use]
pub fn secret_variables(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<OsString> {
    let secret = |(name, value): &(OsString, OsString)| {
        let name = name.to_string_lossy();
        let ours = name.strip_prefix(PREFIX);
        ours.is_some_and(|rest| holds_secret(rest, value.to_str()))
    };
    let found = variables.into_iter().filter(secret);
    found.map(|(name, _)| name).collect()
}

/// `value`: none when it is no text.
fn holds_secret(rest: &str, value: Option<&str>) -> bool {
    if !rest.contains("__") {
        return !TOLD.contains(&rest) && tells(rest);
    }
    let path: Vec<String> = rest.to_lowercase().split("__").map(str::to_owned).collect();
    let key = path.join(".");
    let by_value = value.is_none_or(|value| redact(value) != value);
    // Whether an address is a secret, its value says.
    const ADDRESSES: [&str; 3] = [
        "locks.redis.nodes",
        "locks.postgres.url",
        "locks.postgres.listen_url",
    ];
    let by_name = !ADDRESSES.contains(&key.as_str()) && schema::SECRETS.contains(&key.as_str());
    by_value
        || by_name
        || secret_of(&path).is_some()
        || schema::is_params(&path)
        || path.first().is_some_and(|section| section == "notices")
        || path.last().is_some_and(|last| tells(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_none_of_our_secrets_and_all_else() {
        let passed = [
            ("HOME", "/root"),
            ("PASSWORD", "of another program"),
            ("WATCHKEEPER_CONFIG", "/etc/w.toml"),
            ("WATCHKEEPER_TOKEN", "41"),
            ("WATCHKEEPER_KEY", "k"),
            ("WATCHKEEPER_LOCKS__BACKEND", "redis"),
            (
                "WATCHKEEPER_LOCKS__REDIS__NODES",
                "redis://a:6379,redis://b",
            ),
            ("WATCHKEEPER_LOCKS__REDIS__USERNAME", "me"),
            (
                "WATCHKEEPER_LOCKS__ETCD__ENDPOINTS",
                "http://a:2379,http://b:2379",
            ),
        ];
        let kept = [
            ("WATCHKEEPER_LOCKS__REDIS__PASSWORD", "x"),
            ("WATCHKEEPER_LOCKS__REDIS__PASSWORD_FILE", "/run/secrets/x"),
            ("WATCHKEEPER_LOCKS__REDIS__NODES_FILE", "nodes"),
            ("WATCHKEEPER_LOCKS__ETCD__PASSWORD", "x"),
            ("WATCHKEEPER_LOCKS__ETCD__PASSWORD_FILE", "/run/secrets/x"),
            (
                "WATCHKEEPER_LOCKS__ETCD__ENDPOINTS",
                "http://a:2379,http://me:pw@b",
            ),
            ("WATCHKEEPER_ADMIN__TOKEN", "x"),
            ("WATCHKEEPER_ADMIN__TOKEN_FILE", "x"),
            ("WATCHKEEPER_ADMIN_TOKEN", "x"),
            ("WATCHKEEPER_JOBS__MAIL__PARAMS__SINK", "smtp://a"),
            ("WATCHKEEPER_NOTICES__OPS__URL", "https://a/key"),
            ("WATCHKEEPER_LOCKS__PASSWORD", "misspelt"),
            ("WATCHKEEPER_LOCKS__REDIS__NODES", "redis://a,redis://:pw@b"),
            ("WATCHKEEPER_WORKER__NAME", "redis://:pw@b"),
        ];
        let own = |(name, value): (&str, &str)| (OsString::from(name), OsString::from(value));
        assert_eq!(secret_variables(passed.map(own)), [""; 0]);
        assert_eq!(secret_variables(kept.map(own)), kept.map(|(name, _)| name));
    }
}
