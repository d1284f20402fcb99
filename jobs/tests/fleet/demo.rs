//! The demonstration on servers that it starts itself. Costs about 20 seconds, most of them the pace of what is shown.

use std::os::unix::fs::PermissionsExt;

use libtest_mimic::Trial;
use serde_json::Value;

#[cfg(feature = "etcd")]
use crate::etcd_server;
use crate::{
    command::{Ran, watchkeeper},
    postgres, server,
};

const MASTERS: &str = "demo::it_loses_nothing_on_three_masters";
const TABLE: &str = "demo::it_loses_nothing_with_a_table_in_postgresql";

const ALL: &str = "demo::it_loses_nothing_with_locks_and_table_in_postgresql";

const SENTINEL: &str = "demo::it_loses_nothing_on_a_master_behind_sentinel";
const CLUSTER: &str = "demo::it_loses_nothing_on_a_cluster";

#[cfg(feature = "etcd")]
const ETCD: &str = "demo::it_loses_nothing_with_locks_in_etcd";

/// The cases, where the servers are.
pub(crate) fn trials() -> [Trial; 3] {
    let masters = server::trial(MASTERS, || shows(&["--store", "redis"]));
    let table = postgres::trial_of_its_own(TABLE, || shows(&["--source", "postgres"]));
    let all = postgres::trial_of_its_own(ALL, || {
        shows(&["--store", "postgres", "--source", "postgres"]);
    });
    [masters, table, all]
}

/// The same on servers that others may replace: eight seconds longer, for so long they are watched.
pub(crate) fn trials_on_failover() -> [Trial; 2] {
    let sentinel = server::trial(SENTINEL, || shows(&["--store", "sentinel"]));
    let cluster = server::trial(CLUSTER, || shows(&["--store", "cluster"]));
    [sentinel, cluster]
}

/// The same with locks in etcd.
#[cfg(feature = "etcd")]
pub(crate) fn trial_on_etcd() -> Trial {
    etcd_server::trial_of_its_own(ETCD, || shows(&["--store", "etcd"]))
}

fn shows(on: &[&str]) {
    // Its own folder: the path of a socket has 107 bytes at most.
    let folder = tempfile::TempDir::with_prefix("wk-").expect("a temporary folder");
    // PostgreSQL runs as another user where we are root, who has to get to a folder in this one.
    let open = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(folder.path(), open).expect("our own folder");
    let ran: Ran = watchkeeper(folder.path())
        .args(["demo", "--notifications", "200", "--json"])
        .args(on)
        .env("TMPDIR", folder.path())
        .output()
        .expect("our own program")
        .into();
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let summary = ran.out.lines().last().map(serde_json::from_str::<Value>);
    let summary = summary.expect("a summary").expect("in JSON");
    assert_eq!(summary["accepted"], 200, "{summary}");
    let left = std::fs::read_dir(folder.path())
        .expect("our own folder")
        .count();
    assert_eq!(left, 0, "the demo left something behind");
}
