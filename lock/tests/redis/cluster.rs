//! A Redis Cluster as a node: the master of the slot that our keys are in, wherever most nodes of the cluster say it is.

use std::time::Duration;

use watchkeeper_lock::clock::Clock;

use crate::{
    bench::{read, run},
    failover::{
        Contest, Endpoint, LEASE, NAME, OK, SHORT, Server, another_than, answer, beside, client,
        founded, in_time, leads_to, named_by_most, next_after, overlaps, rivals, taken, through,
        tokens_rise, trouble,
    },
};

/// Masters, each with a replica.
const MASTERS: usize = 3;

const SLOTS: usize = 16_384;

/// A document, which stands beside the locks.
const DOC: &str = "notes/one";

/// A cluster: masters first, then a replica of each.
pub(crate) struct RedisCluster {
    servers: Vec<Server>,
    ids: Vec<String>,
    /// The slot of our keys.
    slot: u16,
}

// === impl RedisCluster ===

impl RedisCluster {
    async fn start() -> Self {
        Self::at(Endpoint::plain).await
    }

    /// The same at endpoints of their own.
    pub(crate) async fn at(endpoint: impl Fn() -> Endpoint) -> Self {
        let options = [
            "--cluster-enabled",
            "yes",
            "--cluster-config-file",
            "nodes.conf",
            "--cluster-node-timeout",
            "1000",
        ];
        let server = |_| Server::start(endpoint(), None, &options);
        let servers: Vec<Server> = (0..2 * MASTERS).map(server).collect();
        for (n, server) in servers.iter().enumerate() {
            if n < MASTERS {
                take_slots(server, n * SLOTS / MASTERS, (n + 1) * SLOTS / MASTERS - 1);
            }
            // Otherwise they would have to agree on them first.
            let epoch = (n + 1).to_string();
            assert_eq!(server.tell(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]), OK);
        }
        let ids: Vec<String> = servers.iter().map(|one| word(one, &["MYID"])).collect();
        let slot = word(&servers[0], &["KEYSLOT", "{app}"]);
        let cluster = Self {
            slot: slot.parse().unwrap(),
            ids,
            servers,
        };
        cluster.meet().await;
        cluster
    }

    async fn meet(&self) {
        let (masters, replicas) = self.servers.split_at(MASTERS);
        for other in &self.servers[1..] {
            masters[0].tell(&["CLUSTER", "MEET", "127.0.0.1", &other.known]);
        }
        for (replica, master) in replicas.iter().zip(&self.ids) {
            // Not before it has met that one.
            in_time("a master", async || {
                replica.tell(&["CLUSTER", "REPLICATE", master]) == OK
            })
            .await;
        }
        self.is_whole().await;
    }

    /// The addresses of all nodes.
    pub(crate) fn addresses(&self) -> Vec<String> {
        addresses(&self.servers)
    }

    fn url(&self) -> String {
        format!("cluster://{}", self.addresses().join(","))
    }

    /// The server that most nodes have for the master of our slot.
    fn owner(&self) -> Option<usize> {
        let said = self.servers.iter().filter_map(|server| {
            let nodes = server.told(&["CLUSTER", "NODES"])?;
            owner_in(&nodes, self.slot)
        });
        let said: Vec<String> = said.collect();
        let ids = self.ids.iter().map(String::as_str);
        named_by_most(&said, self.servers.len(), ids)
    }

    /// Waits until most nodes have another one for it.
    async fn another_than(&self, before: usize) -> usize {
        another_than(before, || self.owner()).await
    }

    /// A master that has other slots.
    fn another_master(&self) -> usize {
        let owner = self.owner();
        let is_other = |&n: &usize| Some(n) != owner && self.servers[n].info("role") == "master";
        let mut all = 0..self.servers.len();
        all.find(is_other).expect("there are three masters")
    }

    /// Waits until every node takes the cluster for good, and every replica has a master.
    async fn is_whole(&self) {
        in_time("the cluster", async || {
            self.servers.iter().all(|server| {
                let told = |what| server.told(&["CLUSTER", what]);
                let (Some(info), Some(nodes)) = (told("INFO"), told("NODES")) else {
                    return false;
                };
                let flags: Vec<&str> = nodes.lines().filter_map(flags).collect();
                let has = |flag: &str| flags.iter().filter(|flags| flags.contains(flag)).count();
                let is_good = info.contains("cluster_state:ok") && has("fail") == 0;
                let is_linked = || {
                    let role = server.info("role");
                    role == "master" || server.info("master_link_status") == "up"
                };
                is_good && has("master") == MASTERS && has("slave") == MASTERS && is_linked()
            })
        })
        .await;
    }

    /// Gives our slot and all its keys to another master, as an operator does.
    async fn move_slot(&self, to: usize) {
        let from = self.owner().expect("most nodes name one");
        let (source, target) = (&self.servers[from], &self.servers[to]);
        let (source_id, target_id) = (self.ids[from].as_str(), self.ids[to].as_str());
        let slot = self.slot.to_string();
        let set = |server: &Server, state: &str, id: &str| {
            server.tell(&["CLUSTER", "SETSLOT", &slot, state, id])
        };
        assert_eq!(set(target, "IMPORTING", source_id), OK);
        assert_eq!(set(source, "MIGRATING", target_id), OK);
        in_time("the keys to move", async || {
            let told = source.tell(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            // Each word stands below its length.
            let keys: Vec<&str> = told.lines().skip(2).step_by(2).collect();
            if !keys.is_empty() {
                let port = target.known.as_str();
                let mut order = vec!["MIGRATE", "127.0.0.1", port, "", "0", "5000", "KEYS"];
                order.extend(keys);
                source.tell(&order);
                return false;
            }
            set(target, "NODE", target_id) == OK && set(source, "NODE", target_id) == OK
        })
        .await;
        for server in &self.servers {
            // Replicas hear of it from the others.
            set(server, "NODE", target_id);
        }
        in_time("its new master", async || self.owner() == Some(to)).await;
    }
}

fn listing(servers: &[Server]) -> String {
    format!("cluster://{}", addresses(servers).join(","))
}

fn addresses(servers: &[Server]) -> Vec<String> {
    let ports = servers.iter().map(|server| &server.known);
    ports.map(|port| format!("127.0.0.1:{port}")).collect()
}

/// The one word that a server of a cluster answers.
fn word(server: &Server, words: &[&str]) -> String {
    let told = server.tell(&[&["CLUSTER"][..], words].concat());
    let last = told.lines().last().unwrap_or_default();
    last.trim_start_matches(':').to_owned()
}

fn take_slots(server: &Server, first: usize, last: usize) {
    let range = [first, last].map(|slot| slot.to_string());
    if server.tell(&["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]) == OK {
        return;
    }
    // Versions before 7 want each of them.
    let slots: Vec<String> = (first..=last).map(|slot| slot.to_string()).collect();
    for some in slots.chunks(1000) {
        let mut order = vec!["CLUSTER", "ADDSLOTS"];
        order.extend(some.iter().map(String::as_str));
        assert_eq!(server.tell(&order), OK);
    }
}

/// The id of the node that has this slot, as `CLUSTER NODES` shows it: `id address flags master ping pong epoch link slots…`.
fn owner_in(nodes: &str, slot: u16) -> Option<String> {
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

// === cases ===

pub(crate) fn a_cluster_is_one_node() {
    run(async {
        let cluster = RedisCluster::start().await;
        let url = cluster.url();
        let (_one, other, lease) = rivals(&through(&url, LEASE)).await;
        let first = lease.token();
        assert_eq!(lease.release().await.nodes, 1);
        assert!(first < taken(&other).await.token());
        let owner = cluster.owner().unwrap();
        leads_to(&client(&url), &cluster.servers[owner]).await;
    });
}

pub(crate) fn too_few_listed_nodes_are_no_majority() {
    run(async {
        let cluster = RedisCluster::start().await;
        // All that have slots, and yet half of those who say who has them.
        let half = client(&listing(&cluster.servers[..MASTERS]));
        trouble(&half, "3 of 6").await;
        let most = client(&listing(&cluster.servers[..MASTERS + 1]));
        answer(&most, read(NAME)).await;
    });
}

pub(crate) fn a_killed_master_is_followed() {
    run(async {
        let mut cluster = RedisCluster::start().await;
        let url = cluster.url();
        let (one, other, lease) = rivals(&through(&url, LEASE)).await;
        let before = cluster.owner().unwrap();
        cluster.servers[before].kill();
        let next = next_after(&lease, &other).await;
        let owner = cluster.owner().unwrap();
        assert_eq!(owner, before + MASTERS, "its replica");
        next.release().await;
        // It comes back as a replica, and changes nothing.
        cluster.servers[before].restart();
        cluster.is_whole().await;
        assert_eq!(taken(&one).await.release().await.nodes, 1);
        leads_to(&client(&url), &cluster.servers[owner]).await;
    });
}

pub(crate) fn a_slot_that_moves_is_followed() {
    run(async {
        let cluster = RedisCluster::start().await;
        let url = cluster.url();
        let (one, other, lease) = rivals(&through(&url, LEASE)).await;
        in_time("a document", async || {
            let life = Duration::from_secs(600);
            let written = one.put_doc(DOC, 1, life, "kept".to_owned()).await;
            written.is_ok()
        })
        .await;
        let to = cluster.another_master();
        cluster.move_slot(to).await;
        next_after(&lease, &other).await.release().await;
        in_time("the document", async || {
            let Ok(shown) = other.doc(DOC).await else {
                return false;
            };
            assert_eq!(shown.map(|doc| doc.body).as_deref(), Some("kept"));
            true
        })
        .await;
        leads_to(&client(&url), &cluster.servers[to]).await;
        assert_eq!(taken(&one).await.release().await.nodes, 1);
    });
}

pub(crate) fn turns_go_on_across_a_failover_and_a_slot_that_moves() {
    beside(async {
        let mut cluster = RedisCluster::start().await;
        let settings = founded(&cluster.url(), SHORT).await;
        let contest = Contest::start(&[settings]);
        contest.go_on("at the beginning").await;
        let before = cluster.owner().unwrap();
        cluster.servers[before].kill();
        let owner = cluster.another_than(before).await;
        cluster.servers[before].restart();
        contest.go_on("after a failover").await;
        cluster.is_whole().await;
        let stands_still = &cluster.servers[owner];
        stands_still.freeze();
        cluster.another_than(owner).await;
        stands_still.thaw();
        contest.go_on("after one that stood still").await;
        cluster.is_whole().await;
        let began = Clock::system().now();
        cluster.move_slot(cluster.another_master()).await;
        contest.go_on("after the slot has moved").await;
        let took = Clock::system().now().since(began);
        let mut held = contest.end().await;
        println!("[cluster] turns again {took:.1?} after the slot began to move");
        assert_eq!(overlaps(&held), 0);
        tokens_rise(&mut held);
    });
}
