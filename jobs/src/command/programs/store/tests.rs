//! What flags and configuration make of each other, and what a process does that was frozen beyond its lease.

use std::{fs, path::Path, sync::Arc, thread};

use clap::Parser;
use tempfile::TempDir;
use watchkeeper::{node::memory::MemoryNode, sim_clock::SimTime, spawn::Spawn};

use super::*;
use crate::command::programs::LockArgs;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    lock: LockArgs,
}

fn options(root: &Path, env: &[(&str, &str)]) -> LoadOptions {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    LoadOptions {
        root: root.to_owned(),
        env: env.iter().map(own).collect(),
        ..LoadOptions::default()
    }
}

fn loaded(line: &str, file: &str, env: &[(&str, &str)]) -> Result<Config, String> {
    let folder = TempDir::new().unwrap();
    if !file.is_empty() {
        fs::write(folder.path().join("watchkeeper.toml"), file).unwrap();
    }
    let words = ["lock", "k"].into_iter().chain(line.split_whitespace());
    let common = Cli::parse_from(words.chain(["--", "true"])).lock.common;
    let loaded = load(options(folder.path(), env), &common)?;
    place_is_named(&loaded)?;
    if common.raw {
        raw_makes_sense(&loaded.config, &common.key)?;
    }
    Ok(loaded.config)
}

#[test]
fn a_place_that_nobody_named_is_refused_with_the_ways_to_name_one() {
    for file in ["", "[locks]\nttl = \"5s\"", "[jobs.a]\nkind = \"x\""] {
        let why = loaded("", file, &[]).unwrap_err();
        for way in ["--nodes", "--postgres", "--etcd", "--embedded", "--config"] {
            assert!(why.contains(way), "{why}");
        }
    }
    let why = loaded("", "", &[("WATCHKEEPER_LOCKS__REDIS__NODES", "redis://a")]).unwrap_err();
    assert!(why.contains("locks.backend"), "{why}");
    let name = [("WATCHKEEPER_WORKER__NAMESPACE", "a\nwatchkeeper: b")];
    let why = loaded("--embedded f", "", &name).unwrap_err();
    assert_eq!(why.lines().count(), 1, "{why}");
    let why = loaded("", "locks.backend = \"memory\"", &[]).unwrap_err();
    assert!(why.contains("excludes no other"), "{why}");
}

#[test]
fn flags_win_over_configuration() {
    let file = "[locks]\nbackend = \"embedded\"\nembedded.path = \"a.db\"\nttl = \"5s\"\n\
                [jobs.other]\nkind = \"of another program\"";
    let config = loaded("", file, &[]).unwrap();
    assert!(config.locks.embedded.path.ends_with("a.db"));
    assert_eq!(config.locks.ttl, Duration::from_secs(5));
    let config = loaded("--embedded b.db --ttl 2s --namespace n", file, &[]).unwrap();
    assert_eq!(config.locks.embedded.path, Path::new("b.db"));
    assert_eq!(config.locks.ttl, Duration::from_secs(2));
    assert_eq!(config.worker.namespace, "n");
    let nodes = "--nodes redis://a,redis://b --nodes redis://c";
    let config = loaded(nodes, file, &[("WATCHKEEPER_LOCKS__REDIS__PASSWORD", "pw")]).unwrap();
    assert_eq!(config.locks.backend, Backend::Redis);
    assert_eq!(config.locks.redis.nodes[2].expose(), "redis://c");
    assert!(config.locks.redis.password.is_some());
}

#[cfg(feature = "etcd")]
#[test]
fn each_member_of_a_cluster_is_an_option_of_its_own() {
    let members = "--etcd http://a:2379 --etcd http://b:2379";
    let config = loaded(members, "", &[]).unwrap();
    assert_eq!(config.locks.backend, Backend::Etcd);
    assert_eq!(
        config.locks.etcd.endpoints,
        ["http://a:2379", "http://b:2379"]
    );
    assert!(
        loaded(&format!("{members} --raw"), "", &[])
            .unwrap_err()
            .contains("--raw")
    );
    let why = loaded("--etcd http://me:hunter2@a:2379", "", &[]).unwrap_err();
    assert!(
        why.starts_with("--etcd: ") && !why.contains("hunter2"),
        "{why}"
    );
}

#[test]
fn a_long_ttl_raises_a_limit_that_nobody_set() {
    let config = loaded("--embedded f --ttl 5m", "", &[]).unwrap();
    assert_eq!(config.locks.max_ttl, Duration::from_secs(300));
    let why = loaded("--embedded f --ttl 5m", "locks.max_ttl = \"1m\"", &[]).unwrap_err();
    assert!(
        why.starts_with("--ttl: locks.ttl: 5m is longer than max_ttl (1m)"),
        "{why}"
    );
}

#[test]
fn a_broken_rule_names_the_flag() {
    let why = loaded("--nodes redis://a --ttl 200ms", "", &[]).unwrap_err();
    assert!(
        why.starts_with("--ttl: locks.ttl: 200ms is shorter"),
        "{why}"
    );
    let why = loaded("--embedded f --ttl 10", "", &[]).unwrap_err();
    assert!(
        why.starts_with("--ttl: locks.ttl: a duration needs a unit"),
        "{why}"
    );
    let why = loaded("--nodes redis://:hunter2@a:x", "", &[]).unwrap_err();
    assert!(
        why.starts_with("--nodes: ") && !why.contains("hunter2"),
        "{why}"
    );
}

#[test]
fn verbatim_keys_are_for_redis_and_spare_our_own() {
    assert!(
        loaded("--embedded f --raw", "", &[])
            .unwrap_err()
            .contains("--raw")
    );
    assert!(
        loaded("--nodes redis://a --raw", "", &[])
            .unwrap()
            .locks
            .raw_keys
    );
    let config = loaded("--nodes redis://a", "", &[]).unwrap();
    assert!(raw_makes_sense(&config, "{watchkeeper}:2:t").is_err());
    assert!(raw_makes_sense(&config, "{other}:2:t").is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_frozen_beyond_its_lease_waits_a_moment_for_the_word_of_its_guard() {
    let time = SimTime::new();
    let node = MemoryNode::new("one", time.clock());
    let locks = Locks::over(vec![Arc::new(node)])
        .clock(time.clock())
        .keeper_here(Spawn::system())
        .on_unstoppable(|_| {})
        .start()
        .unwrap();
    let lease = locks.lock("backup").acquire().await.unwrap();
    let work = lease.view().begin_work();
    assert!(
        !ends_yet(lease.view(), LAST_MOMENT),
        "no time to wait before the end of the lease"
    );
    time.set_offset(60_000);
    assert!(!ends_yet(lease.view(), Duration::ZERO), "for a moment only");
    let ends = thread::spawn(move || drop(work));
    assert!(ends_yet(lease.view(), LAST_MOMENT), "its command has ended");
    ends.join().unwrap();
}
