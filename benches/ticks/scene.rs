//! Servers, and children that use them.

use std::time::Duration;

use tempfile::TempDir;
use watchkeeper::{Worker, clock::Clock, config::Config};

use crate::{
    child::{Task, When, Who, options},
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

    /// The same, of servers that vote: new ones are watched for as long as the longest lease, and that is no question of how many jobs
    /// there are.
    pub(crate) fn admitted(nodes: usize) -> Self {
        let scene = Self::start(nodes);
        let mut first = scene.child(Who::Led, When::Rest, 1);
        scene.wait_until_led(&mut first, 1);
        scene
    }

    pub(crate) fn child(&self, who: Who, when: When, jobs: usize) -> Process {
        self.replicas(who, when, jobs, 1)
    }

    /// As the children have it.
    pub(crate) fn config(&self) -> Config {
        let nodes: Vec<String> = self.servers.iter().map(RedisServer::url).collect();
        let options = options(self.folder.path(), ("parent", None), &nodes, "");
        Worker::with(options).load_to_ask().unwrap().config
    }

    /// The runs that children have begun, a line each: the job and its tick.
    pub(crate) fn runs(&self) -> String {
        let files = std::fs::read_dir(self.folder.path()).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        paths
            .filter(|path| path.extension().is_some_and(|end| end == "runs"))
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect()
    }

    /// Some replicas in one process.
    pub(crate) fn replicas(&self, who: Who, when: When, jobs: usize, replicas: usize) -> Process {
        Process::start(&self.task(who, when, jobs, replicas))
    }

    pub(crate) fn task(&self, who: Who, when: When, jobs: usize, replicas: usize) -> Task {
        Task {
            who,
            when,
            jobs,
            replicas,
            nodes: self.servers.iter().map(RedisServer::url).collect(),
            folder: self.folder.path().to_owned(),
            page: None,
        }
    }

    /// Waits until all jobs have a leader, by what the servers keep; says how long that took.
    pub(crate) fn wait_until_led(&self, child: &mut Process, jobs: usize) -> Duration {
        let clock = Clock::system();
        let began = clock.now();
        for _ in 0..1_200 {
            if self.servers.iter().all(|server| terms(server) == jobs) {
                return clock.now().since(began);
            }
            child.must_live();
            pause(Duration::from_millis(100));
        }
        panic!("not all of {jobs} jobs have a leader after two minutes");
    }
}

/// How many jobs this server knows a leader of.
fn terms(server: &RedisServer) -> usize {
    let script = "local n = 0 \
        for _, table in ipairs(redis.call('KEYS', '*:2:t')) do \
        for _, field in ipairs(redis.call('HKEYS', table)) do \
        if string.sub(field, 1, 5) == 'ljob/' then n = n + 1 end end end \
        return n";
    let told = server.raw(&["EVAL", script, "0"]);
    told.trim().trim_start_matches(':').parse().unwrap_or(0)
}

#[allow(
    clippy::disallowed_methods,
    reason = "children are watched from outside"
)]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
