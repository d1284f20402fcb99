//! Three etcd servers that are one cluster: one of them leads. Shared with the suites of the stock jobs.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::time::Duration;

use crate::etcd_server::{EtcdServer, Host, pause};

/// Three members of one cluster.
pub(crate) struct EtcdCluster {
    members: Vec<EtcdServer>,
}

// === impl EtcdCluster ===

impl EtcdCluster {
    pub(crate) fn start() -> Self {
        let hosts = [(); 3].map(|()| Host::new());
        let all: Vec<String> = (hosts.iter().enumerate())
            .map(|(n, host)| format!("m{n}={}", host.peers()))
            .collect();
        let all = all.join(",");
        // One alone is never healthy.
        let members = hosts.iter().enumerate();
        let mut members: Vec<EtcdServer> = members
            .map(|(n, host)| EtcdServer::launch(host, &format!("m{n}"), &all, &[]))
            .collect();
        members
            .iter_mut()
            .for_each(EtcdServer::wait_until_it_is_healthy);
        Self { members }
    }

    /// The addresses of all members.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.members.iter().map(EtcdServer::url).collect()
    }

    pub(crate) fn kill(&mut self, member: usize) {
        self.members[member].kill();
    }

    /// Starts it again, and waits until it takes part; with it there is a majority.
    pub(crate) fn start_again(&mut self, member: usize) {
        self.members[member].start_again();
    }

    pub(crate) fn freeze(&self, member: usize) {
        self.members[member].freeze();
    }

    pub(crate) fn thaw(&self, member: usize) {
        self.members[member].thaw();
    }

    /// Which member leads, waited for.
    pub(crate) fn leader(&self) -> usize {
        for _ in 0..1000 {
            if let Some(leader) = self.members.iter().position(EtcdServer::is_leader) {
                return leader;
            }
            pause(Duration::from_millis(10));
        }
        panic!("no member leads");
    }

    /// Makes another member lead, and says which.
    pub(crate) fn move_leader(&self) -> usize {
        let mut said = String::new();
        for _ in 0..50 {
            let from = self.leader();
            let others = (1..self.members.len()).map(|n| (from + n) % self.members.len());
            // Not one that stands still or is not there.
            let mut others = others.filter_map(|to| Some((to, self.members[to].id()?)));
            if let Some((to, id)) = others.next() {
                let id = format!("{id:x}");
                match self.members[from].control(&["move-leader", &id], "") {
                    Ok(_) => return to,
                    // An election came between.
                    Err(why) => said = why,
                }
            }
            pause(Duration::from_millis(100));
        }
        panic!("no other member would lead: {said}");
    }
}
