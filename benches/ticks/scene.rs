//! Servers, and children that use them.

use std::time::Duration;

use tempfile::TempDir;

use crate::{
    child::{Task, When, Who},
    process::Process,
    server::RedisServer,
};

/// Three masters on unix sockets.
pub(crate) const NODES: usize = 3;

/// Some servers and a folder.
pub(crate) struct Scene {
    pub(crate) servers: Vec<RedisServer>,
    folder: TempDir,
}

impl Scene {
    pub(crate) fn start(nodes: usize) -> Self {
        Self {
            servers: (0..nodes).map(|_| RedisServer::start()).collect(),
            folder: TempDir::with_prefix("wk-ticks-").unwrap(),
        }
    }

    pub(crate) fn child(&self, who: Who, when: When, jobs: usize) -> Process {
        Process::start(&Task {
            who,
            when,
            jobs,
            nodes: self.servers.iter().map(RedisServer::url).collect(),
            folder: self.folder.path().to_owned(),
        })
    }

    /// Waits until all jobs have a leader, by what the servers keep.
    pub(crate) fn wait_until_led(&self, child: &mut Process, jobs: usize) {
        let count = format!(":{jobs}\r\n");
        let script = "local n = 0 \
            for _, table in ipairs(redis.call('KEYS', '*:2:t')) do \
            for _, field in ipairs(redis.call('HKEYS', table)) do \
            if string.sub(field, 1, 5) == 'ljob/' then n = n + 1 end end end \
            return n";
        for _ in 0..600 {
            if self
                .servers
                .iter()
                .all(|s| s.raw(&["EVAL", script, "0"]) == count)
            {
                return;
            }
            child.must_live();
            pause(Duration::from_millis(100));
        }
        panic!("not all of {jobs} jobs have a leader after a minute");
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "children are watched from outside"
)]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
