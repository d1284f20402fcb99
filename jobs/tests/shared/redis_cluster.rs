//! A Redis Cluster: three masters, and two replicas of the one that has the slot of our keys.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::ops::Range;

use watchkeeper::clock::{Clock, Moment};

use crate::redis_place::{OK, PORT, Server, in_time, user_with};

const MASTERS: usize = 3;

/// When one of these servers dies, those that are left are more than a majority of all.
const REPLICAS: usize = 2;

const SLOTS: usize = 16_384;

/// What the slot of our keys is made of: the namespace that nobody changes here.
const TAG: &str = "{watchkeeper}";

/// Masters first, then the replicas.
pub(crate) struct RedisCluster {
    servers: Vec<Server>,
    ids: Vec<String>,
    /// The slot of our keys.
    slot: usize,
}

// === impl RedisCluster ===

impl RedisCluster {
    pub(crate) fn start() -> Self {
        let options = [
            "--cluster-enabled",
            "yes",
            "--cluster-config-file",
            "nodes.conf",
            // Longer than a busy machine keeps a server waiting.
            "--cluster-node-timeout",
            "2000",
        ];
        let server = |_| Server::start("--cluster-announce-ip", &options);
        let servers: Vec<Server> = (0..MASTERS + REPLICAS).map(server).collect();
        for (n, server) in servers.iter().enumerate() {
            if n < MASTERS {
                take_slots(server, slots_of(n));
            }
            // Otherwise they would have to agree on them first.
            let epoch = (n + 1).to_string();
            assert_eq!(server.tell(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]), OK);
        }
        let ids: Vec<String> = servers.iter().map(|one| word(one, &["MYID"])).collect();
        let slot = word(&servers[0], &["KEYSLOT", TAG]);
        let cluster = Self {
            slot: slot.parse().expect("a number"),
            ids,
            servers,
        };
        cluster.meet();
        cluster
    }

    fn meet(&self) {
        let (masters, replicas) = self.servers.split_at(MASTERS);
        for other in &self.servers[1..] {
            masters[0].tell(&["CLUSTER", "MEET", &other.host, &PORT.to_string()]);
        }
        let ours = (0..MASTERS).find(|n| slots_of(*n).contains(&self.slot));
        let ours = &self.ids[ours.expect("every slot has a master")];
        for replica in replicas {
            // Not before it has met that one.
            in_time("a master", || {
                replica.tell(&["CLUSTER", "REPLICATE", ours]) == OK
            });
        }
        self.wait_until_whole();
    }

    /// The address for workers.
    pub(crate) fn url(&self) -> String {
        let all = self.servers.iter();
        let all: Vec<String> = all.map(|one| format!("{}:{PORT}", one.host)).collect();
        format!("cluster://{}", all.join(","))
    }

    /// See [`crate::redis_failover::RedisFailover::with_users`].
    pub(crate) fn with_user(&self, rights: &[String]) -> String {
        for server in &self.servers {
            assert_eq!(server.tell(&user_with(rights)), OK);
        }
        self.url()
    }

    /// Kills the master that has our slot, and says when most nodes named another one. It comes back, empty, as a replica of that.
    pub(crate) fn replace_master(&mut self) -> Moment {
        self.wait_until_whole();
        let before = self.owner().expect("most nodes name one");
        self.servers[before].kill();
        in_time("another master", || {
            self.owner().is_some_and(|now| now != before)
        });
        let named = Clock::system().now();
        self.servers[before].restart();
        named
    }

    /// All of them stand still.
    pub(crate) fn freeze(&self) {
        self.servers.iter().for_each(Server::freeze);
    }

    /// All go on.
    pub(crate) fn thaw(&self) {
        self.servers.iter().for_each(Server::thaw);
    }

    /// The server that most nodes have for the master of our slot.
    fn owner(&self) -> Option<usize> {
        let said = self.servers.iter().filter_map(|server| {
            let nodes = server.told(&["CLUSTER", "NODES"])?;
            owner_in(&nodes, self.slot)
        });
        let said: Vec<String> = said.collect();
        let most = |id: &String| {
            let votes = said.iter().filter(|said| *said == id);
            votes.count() > self.servers.len() / 2
        };
        self.ids.iter().position(most)
    }

    /// Waits until every node takes the cluster for good, and every replica has what its master has.
    fn wait_until_whole(&self) {
        in_time("the cluster", || {
            self.servers.iter().all(|server| {
                let told = |what| server.told(&["CLUSTER", what]);
                let (Some(info), Some(nodes)) = (told("INFO"), told("NODES")) else {
                    return false;
                };
                let flags: Vec<&str> = nodes.lines().filter_map(flags).collect();
                let has = |flag: &str| flags.iter().filter(|flags| flags.contains(flag)).count();
                let is_good = info.contains("cluster_state:ok") && has("fail") == 0;
                let is_linked = || server.info("role") == "master" || server.is_linked();
                is_good && has("master") == MASTERS && has("slave") == REPLICAS && is_linked()
            })
        });
    }
}

/// The slots that a master has in the beginning.
fn slots_of(master: usize) -> Range<usize> {
    master * SLOTS / MASTERS..(master + 1) * SLOTS / MASTERS
}

/// One by one: versions before 7 know no ranges.
fn take_slots(server: &Server, slots: Range<usize>) {
    let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
    let mut order = vec!["CLUSTER", "ADDSLOTS"];
    order.extend(slots.iter().map(String::as_str));
    assert_eq!(server.tell(&order), OK);
}

/// The one word that a server of a cluster answers.
fn word(server: &Server, words: &[&str]) -> String {
    let told = server.tell(&[&["CLUSTER"][..], words].concat());
    let last = told.lines().last().unwrap_or_default();
    last.trim_start_matches(':').to_owned()
}

/// The id of the node that has this slot, as `CLUSTER NODES` shows it: `id address flags master ping pong epoch link slots…`.
fn owner_in(nodes: &str, slot: usize) -> Option<String> {
    let has = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&slot),
            // What is on its way stands in brackets.
            _ => false,
        }
    };
    let mut lines = nodes.lines();
    let owner = lines.find(|line| line.split(' ').skip(8).any(has))?;
    owner.split(' ').next().map(str::to_owned)
}

fn flags(line: &str) -> Option<&str> {
    line.split(' ').nth(2)
}
