//! Whether a server may be a lock server, decided once per connection from its `INFO`.

use std::collections::HashMap;

use crate::node::NodeError;

/// The oldest server that is served.
const OLDEST: (u32, u32) = (6, 2);

/// Who answered: two endpoints that show the same run id are one server, and no majority.
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
/// [`NodeError::Unfit`] with a sentence for the operator.
pub(super) fn judge(info: &str, raw_keys: bool) -> Result<Identity, NodeError> {
    let fields: HashMap<&str, &str> = info
        .lines()
        .filter_map(|line| line.trim_end().split_once(':'))
        .collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or_default();
    let unfit = |why: String| Err(NodeError::Unfit(why));

    let version = field("redis_version");
    if !new_enough(version) {
        return unfit(format!(
            "the server is version `{version}`; upgrade to Redis {}.{} or later (or Valkey)",
            OLDEST.0, OLDEST.1
        ));
    }
    let role = field("role");
    if role != "master" {
        return unfit(format!(
            "the server's role is `{role}`: give the address of a master, independent of the other nodes"
        ));
    }
    let (limit, policy) = (field("maxmemory"), field("maxmemory_policy"));
    if limit != "0" && policy != "noeviction" {
        return unfit(format!(
            "the server evicts keys when its memory is full (`{policy}`), locks too: set `maxmemory-policy noeviction`"
        ));
    }
    if raw_keys && field("cluster_enabled") == "1" {
        return unfit(
            "raw keys cannot be kept on Redis Cluster: use a server without cluster mode, or turn `raw_keys` off"
                .to_owned(),
        );
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
            Err(NodeError::Unfit(why)) => why,
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
    }

    #[test]
    fn cluster_mode_is_refused_for_raw_keys_only() {
        let cluster = GOOD.replace("cluster_enabled:0", "cluster_enabled:1");
        assert!(refused(&cluster, true).contains("raw_keys"));
        assert!(judge(&cluster, false).is_ok());
    }
}
