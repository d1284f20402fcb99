//! Whether a server may be a lock server, decided once per connection from its `INFO`.

use std::collections::HashMap;

use crate::node::{NodeError, Refusal};

/// The oldest server that is served.
const OLDEST: (u32, u32) = (6, 2);

/// The server that answered: two endpoints that show the same run id are one server, and no majority.
#[doc(hidden)] // for the tests
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// New with every start of the server process.
    pub run_id: String,
    /// The version the server claims to be, in Redis's count.
    pub version: String,
    /// Whether it writes an append-only file: a node without one comes back empty after a restart.
    pub append_only: bool,
}

/// Refuses a server that cannot keep locks, naming the remedy.
///
/// # Errors
/// [`NodeError::Refused`] with what was found.
pub(super) fn judge(info: &str, raw_keys: bool) -> Result<Identity, NodeError> {
    let fields: HashMap<&str, &str> = info
        .lines()
        .filter_map(|line| line.trim_end().split_once(':'))
        .collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or_default();
    let refused = |refusal, said: String| Err(NodeError::Refused { refusal, said });

    let version = field("redis_version");
    if !new_enough(version) {
        return refused(Refusal::Version, format!("it is of version `{version}`"));
    }
    // Its scripts cannot write a time as a whole number.
    if field("arch_bits") == "32" {
        return refused(Refusal::Version, "it is a 32-bit program".to_owned());
    }
    // Before the role: a replica that loads says so itself, and a master that loads will be one.
    if field("loading") == "1" {
        return refused(Refusal::Loading, "it is loading".to_owned());
    }
    let role = field("role");
    if role != "master" {
        return refused(Refusal::ReadOnly, format!("its role is `{role}`"));
    }
    let (limit, policy) = (field("maxmemory"), field("maxmemory_policy"));
    if limit != "0" && policy != "noeviction" {
        let said = format!("it evicts keys when its memory is full (`{policy}`)");
        return refused(Refusal::Evicts, said);
    }
    if raw_keys && field("cluster_enabled") == "1" {
        let said = "it runs in cluster mode, which cannot keep raw_keys".to_owned();
        return refused(Refusal::Moved, said);
    }
    let run_id = field("run_id");
    if run_id.is_empty() {
        return Err(NodeError::Protocol("INFO shows no run_id".to_owned()));
    }
    Ok(Identity {
        run_id: run_id.to_owned(),
        version: version.to_owned(),
        append_only: field("aof_enabled") == "1",
    })
}

fn new_enough(version: &str) -> bool {
    let mut parts = version
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= OLDEST
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n# Memory\r\nmaxmemory:0\r\n\
                        maxmemory_policy:allkeys-lru\r\n# Persistence\r\naof_enabled:1\r\n# Replication\r\n\
                        role:master\r\n# Cluster\r\ncluster_enabled:0\r\n";

    fn refused(info: &str, raw_keys: bool) -> String {
        match judge(info, raw_keys) {
            Err(refused @ NodeError::Refused { .. }) => refused.to_string(),
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn a_fit_master_shows_who_it_is() {
        let who = judge(GOOD, true).unwrap();
        assert_eq!(
            (who.run_id.as_str(), who.version.as_str()),
            ("abc", "7.0.15")
        );
        assert!(who.append_only);
    }

    #[test]
    fn a_replica_an_evicting_or_old_server_is_refused_with_the_remedy() {
        assert!(refused(&GOOD.replace("role:master", "role:slave"), false).contains("a master"));
        assert!(
            refused(&GOOD.replace("maxmemory:0", "maxmemory:1000"), false).contains("noeviction")
        );
        assert!(refused(&GOOD.replace("7.0.15", "6.0.16"), false).contains("6.2"));
        assert!(judge(&GOOD.replace("7.0.15", "6.2.0"), false).is_ok());
        assert!(refused(&format!("arch_bits:32\r\n{GOOD}"), false).contains("64 bits"));
    }

    #[test]
    fn a_loading_server_is_waited_for() {
        let info = format!("loading:1\r\n{GOOD}");
        assert!(refused(&info, false).contains("wait"));
    }

    #[test]
    fn cluster_mode_is_refused_for_raw_keys_only() {
        let cluster = GOOD.replace("cluster_enabled:0", "cluster_enabled:1");
        assert!(refused(&cluster, true).contains("raw_keys"));
        assert!(judge(&cluster, false).is_ok());
    }
}
