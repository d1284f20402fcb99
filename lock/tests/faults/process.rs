//! Clients in processes of their own, which are killed and frozen while they want the lock: this very program, started with
//! [`CLIENT`] in its environment. Each says on its standard output what it believes, as soon as it does.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use watchkeeper_lock::{
    chance::Chance,
    clock::{Clock, Moment},
    lock::Timing,
    node::redis::RedisNodeSettings,
};

use crate::{
    client::{KEY, block_on, locks},
    history::Belief,
    masters,
    rules::{COMBINATIONS, Rules},
    torture::{pause, timing},
};

/// The seed, the place of the rules among all combinations, and the addresses of the nodes.
const CLIENT: &str = "TORTURED_CLIENT";

/// A client in a process of its own. Killed and reaped on drop.
struct Process {
    child: Child,
    /// Its present belief, until it is over.
    belief: Arc<Mutex<Option<Belief>>>,
    reader: Option<JoinHandle<()>>,
}

/// How often each has happened.
pub(crate) type Faults = BTreeMap<&'static str, usize>;

/// What the processes of one torture have in common.
pub(crate) struct Processes<'a> {
    pub(crate) rules: Rules,
    pub(crate) urls: Vec<String>,
    pub(crate) ttl: Duration,
    pub(crate) beliefs: &'a Arc<Mutex<Vec<Belief>>>,
    pub(crate) is_over: &'a (dyn Fn() -> bool + Sync),
}

// === impl Processes ===

impl Processes<'_> {
    /// One client after the other, each killed or frozen at random.
    pub(crate) fn torture(&self, seed: u64) -> Faults {
        let chance = Chance::seeded(seed);
        let mut faults = Faults::new();
        let mut n = 0;
        while !(self.is_over)() {
            n += 1;
            let process = self.start(seed.wrapping_add(n), &format!("process {seed}.{n}"));
            while !(self.is_over)() {
                pause(ms(100) + chance.up_to(ms(1_500)));
                if chance.hits(0.5) {
                    *faults.entry("killed").or_default() += 1;
                    break;
                }
                *faults.entry("frozen").or_default() += 1;
                process.signal(Signal::STOP);
                pause(chance.up_to(2 * self.ttl));
                process.signal(Signal::CONT);
            }
            self.end(process);
        }
        faults
    }

    fn start(&self, seed: u64, name: &str) -> Process {
        let rules = COMBINATIONS.iter().position(|rules| *rules == self.rules);
        let rules = rules.expect("a combination that is run");
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .env(CLIENT, format!("{seed} {rules} {}", self.urls.join(",")))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("this program starts once more");
        let (belief, beliefs) = (Arc::default(), self.beliefs.clone());
        let said = child.stdout.take().expect("piped");
        let reader = {
            let (belief, name) = (Arc::clone(&belief), name.to_owned());
            std::thread::spawn(move || {
                for line in BufReader::new(said).lines().map_while(Result::ok) {
                    hear(&line, &name, &belief, &beliefs);
                }
            })
        };
        Process {
            child,
            belief,
            reader: Some(reader),
        }
    }

    /// Kills it. What it believed it does not believe any more.
    fn end(&self, mut process: Process) {
        _ = process.child.kill();
        _ = process.child.wait();
        let dead = Clock::system().now();
        if let Some(reader) = process.reader.take() {
            reader.join().expect("a reader");
        }
        let belief = process.belief.lock().unwrap().take();
        if let Some(belief) = belief {
            let to = belief.to.min(dead);
            self.beliefs.lock().unwrap().push(Belief { to, ..belief });
        }
    }
}

/// One line of a client: `got TOKEN FROM TO`, `until TO`, `over TO`, in nanoseconds of the boot clock.
fn hear(line: &str, name: &str, belief: &Mutex<Option<Belief>>, beliefs: &Mutex<Vec<Belief>>) {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |word: &str| word.parse().expect("a number");
    let at = |word: &str| Moment::from_boot(Duration::from_nanos(number(word)));
    let mut belief = belief.lock().unwrap();
    match (&words[..], &mut *belief) {
        (["got", token, from, to], _) => {
            *belief = Some(Belief {
                who: name.to_owned(),
                token: number(token),
                from: at(from),
                to: at(to),
            });
        }
        (["until", to], Some(belief)) => belief.to = at(to),
        (["over", to], held) => {
            if let Some(belief) = held.take() {
                let to = belief.to.min(at(to));
                beliefs.lock().unwrap().push(Belief { to, ..belief });
            }
        }
        _ => panic!("{name}: {line}"),
    }
}

// === the client ===

/// Whether this process is such a client; then it does not come back before it is killed.
pub(crate) fn is_client() -> bool {
    let Ok(order) = std::env::var(CLIENT) else {
        return false;
    };
    let words: Vec<&str> = order.split(' ').collect();
    let [seed, rules, urls] = words[..] else {
        panic!("{order}");
    };
    let rules: usize = rules.parse().expect("a number");
    let rules = COMBINATIONS[rules];
    let timing = timing();
    let settings = urls
        .split(',')
        .map(|url| masters::settings(url, timing.node_timeout, false));
    let settings: Vec<_> = settings.collect();
    let chance = Chance::seeded(seed.parse().expect("a seed"));
    block_on(wants(&settings, rules, &timing, &chance));
    true
}

async fn wants(settings: &[RedisNodeSettings], rules: Rules, timing: &Timing, chance: &Chance) {
    let (clock, ttl) = (Clock::system(), timing.ttl);
    let locks = locks(settings, rules, timing.clone(), None);
    let nanos = |at: Moment| at.since_boot().as_nanos();
    loop {
        let wait = if chance.hits(0.3) {
            chance.up_to(ttl)
        } else {
            Duration::ZERO
        };
        if let Ok(lease) = locks.lock_key(KEY).wait(wait).acquire().await {
            let view = lease.view().clone();
            let mut to = view.valid_until();
            println!(
                "got {} {} {}",
                lease.token().0,
                nanos(view.since()),
                nanos(to)
            );
            let enough = clock.now() + chance.up_to(4 * ttl);
            while view.is_held() && clock.now() < enough {
                let until = view.valid_until();
                // Zero when it is over.
                if until > to {
                    to = until;
                    println!("until {}", nanos(to));
                }
                clock.sleep(ms(2)).await;
            }
            println!("over {}", nanos(clock.now()));
            lease.release().await;
        }
        clock.sleep(chance.up_to(ms(20))).await;
    }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

// === impl Process ===

impl Process {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        _ = kill_process(pid, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
