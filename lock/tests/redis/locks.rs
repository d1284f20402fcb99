//! The suite of locks on real servers: one, three and five of them, in both modes of expiry.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use watchkeeper_lock::node::{Expiry, Node, redis::RedisNodeSettings};

use crate::{
    bench,
    it::locks::{Faults, Scene, Stage, Time},
    server::RedisServer,
};

/// Plays a case on so many servers. A processor that is busy with something else may keep a lease of half a second from being
/// renewed: what fails by its times is played once more with times that are four times as long, and said. What no slow machine
/// can be the reason of is final.
pub(crate) fn play<F: Future<Output = ()>>(
    count: usize,
    expiry: Expiry,
    case: impl Fn(Scene) -> F,
) {
    let first = scene(count).expiring(expiry);
    let broken = first.broken();
    let played = catch_unwind(AssertUnwindSafe(|| bench::run(case(first))));
    let Err(failure) = played else {
        return;
    };
    if broken.load(Ordering::SeqCst) {
        resume_unwind(failure);
    }
    println!("[locks] failed with short times; once more with longer ones");
    bench::run(case(scene(count).expiring(expiry).slower(4)));
}

struct Servers(Vec<Mutex<RedisServer>>);

/// So many servers, which lose nothing when they are killed.
pub(crate) fn scene(count: usize) -> Scene {
    let keep = ["--appendonly", "yes", "--appendfsync", "always"];
    let servers = (0..count).map(|_| Mutex::new(RedisServer::start_with(&keep)));
    Scene::new(Box::new(Servers(servers.collect())), Time::real())
}

impl Servers {
    fn raw(&self, node: usize, words: &[&str]) {
        self.0[node].lock().unwrap().raw(words);
    }
}

impl Stage for Servers {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn connect(&self, node: usize) -> Arc<dyn Node> {
        let settings = RedisNodeSettings {
            raw_keys: true,
            node_timeout: Duration::from_millis(500),
            ..bench::settings(&self.0[node].lock().unwrap())
        };
        Arc::new(bench::node(&settings))
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }
}

impl Faults for Servers {
    fn plant(&self, node: usize, key: &str, value: &str, ttl: Option<Duration>) {
        match ttl {
            Some(ttl) => {
                let ttl = ttl.as_millis().to_string();
                self.raw(node, &["SET", key, value, "PX", &ttl]);
            }
            None => self.raw(node, &["SET", key, value]),
        }
    }

    fn vanish(&self, node: usize, key: &str) {
        self.raw(node, &["DEL", key]);
    }

    fn outlive(&self, node: usize, key: &str) {
        self.raw(node, &["PEXPIRE", key, "3600000"]);
    }

    fn freeze(&self, node: usize) {
        self.0[node].lock().unwrap().freeze();
    }

    fn thaw(&self, node: usize) {
        self.0[node].lock().unwrap().thaw();
    }

    fn restart(&self, node: usize) {
        self.0[node].lock().unwrap().restart();
    }
}
