//! A foreign holder of locks: rslock of crates.io, driven line by line.
//!
//!   watchkeeper-interop SOCKET...   one Redis master or several
//!   acquire KEY TTL_MS              held OWNER | refused    in hex: its values are no text
//!   extend TTL_MS                   extended | lost
//!   release                         released
//!   count FILE TIMES KEY TTL_MS     counted    adds 1 to the number in FILE, so many times, each under the lock
//!   wreck FILE TIMES                counted    the same without a lock
//!
//! For benches, times in microseconds; `--workers=2` before the sockets: on a runtime of two threads.
//!   cycle KEY TTL_MS AT_A_TIME MS             cycled CYCLES FAILED TIME P50 P99        each cycle acquires and releases a
//!                                                                                      lock that nobody else wants
//!   contend KEY TTL_MS CLIENTS TIMES HOLD_MS  contended TURNS TIME P50 P99 LONGEST     so many clients, with connections
//!                                                                                      of their own, take turns at one
//!                                                                                      lock, with rslock's own retries

use std::{
    env, fs,
    io::Error,
    time::{Duration, Instant},
};

use rslock::{Lock, LockManager};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    runtime::Builder,
    task::JoinSet,
};

/// Whoever would stop at the first refusal, and whoever goes on until it has the lock.
struct Client {
    masters: Vec<String>,
    once: LockManager,
    stubborn: LockManager,
    contenders: Vec<LockManager>,
    lock: Option<Lock>,
}

fn main() -> Result<(), Error> {
    let mut masters = Vec::new();
    let mut workers = 1;
    for word in env::args().skip(1) {
        match word.strip_prefix("--workers=") {
            Some(many) => workers = many.parse().map_err(Error::other)?,
            None => masters.push(format!("unix://{word}")),
        }
    }
    let mut runtime = match workers {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = runtime.worker_threads(workers).enable_all().build()?;
    runtime.block_on(obey(masters))
}

async fn obey(masters: Vec<String>) -> Result<(), Error> {
    let manager = |retries, pause_ms| {
        let mut manager = LockManager::new(masters.clone());
        manager.set_retry(retries, Duration::from_millis(pause_ms));
        manager
    };
    let mut client = Client {
        once: manager(1, 1),
        stubborn: manager(1000, 20),
        contenders: Vec::new(),
        lock: None,
        masters,
    };
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        println!("{}", client.answer(&line).await?);
    }
    Ok(())
}

impl Client {
    async fn answer(&mut self, line: &str) -> Result<String, Error> {
        let words: Vec<&str> = line.split(' ').collect();
        Ok(match words[..] {
            ["acquire", key, ttl] => match self.once.lock(key, millis(ttl)).await {
                Ok(lock) => {
                    let bytes = lock.val.iter();
                    let owner: String = bytes.map(|byte| format!("{byte:02x}")).collect();
                    self.lock = Some(lock);
                    format!("held {owner}")
                }
                Err(_) => "refused".to_owned(),
            },
            ["extend", ttl] => {
                let lock = self.lock.take().ok_or(Error::other("nothing is held"))?;
                match self.once.extend(&lock, millis(ttl)).await {
                    Ok(extended) => {
                        self.lock = Some(extended);
                        "extended".to_owned()
                    }
                    Err(_) => "lost".to_owned(),
                }
            }
            ["release"] => {
                let lock = self.lock.take().ok_or(Error::other("nothing is held"))?;
                lock.release().await;
                "released".to_owned()
            }
            ["count", file, times, key, ttl] => {
                for _ in 0..number(times) {
                    let held = self.stubborn.acquire(key, millis(ttl)).await;
                    let held = held.map_err(Error::other)?;
                    add_one(file).await?;
                    held.release().await;
                }
                "counted".to_owned()
            }
            ["wreck", file, times] => {
                for _ in 0..number(times) {
                    add_one(file).await?;
                }
                "counted".to_owned()
            }
            ["cycle", key, ttl, at_a_time, ms] => {
                self.cycle(key, millis(ttl), number(at_a_time), millis(ms))
                    .await?
            }
            ["contend", key, ttl, clients, times, hold] => {
                self.connect(clients, key, millis(ttl)).await?;
                self.contend(key, millis(ttl), number(times), millis(hold))
                    .await?
            }
            _ => return Err(Error::other(format!("not an order: {line}"))),
        })
    }

    async fn cycle(
        &self,
        key: &str,
        ttl: Duration,
        at_a_time: u64,
        busy: Duration,
    ) -> Result<String, Error> {
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for task in 0..at_a_time {
            let (manager, key) = (self.once.clone(), format!("{key}-{task}"));
            tasks.spawn(async move {
                let (mut took, mut failed) = (Vec::new(), 0);
                loop {
                    let began = Instant::now();
                    if began.duration_since(start) >= busy {
                        return (took, failed);
                    }
                    let Ok(lock) = manager.lock(key.as_str(), ttl).await else {
                        failed += 1;
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        continue;
                    };
                    lock.release().await;
                    took.push(began.elapsed());
                }
            });
        }
        let (mut took, mut failed) = (Vec::new(), 0);
        while let Some(task) = tasks.join_next().await {
            let (its, lost) = task?;
            took.extend(its);
            failed += lost;
        }
        let time = start.elapsed().as_micros();
        took.sort_unstable();
        let [p50, p99] = [50, 99].map(|percent| percentile(&took, percent));
        Ok(format!("cycled {} {failed} {time} {p50} {p99}", took.len()))
    }

    /// So many contenders, each with connections of its own that have been used before.
    async fn connect(&mut self, clients: &str, key: &str, ttl: Duration) -> Result<(), Error> {
        while self.contenders.len() < number(clients) as usize {
            let manager = LockManager::new(self.masters.clone());
            let own = format!("{key}-{}", self.contenders.len());
            let held = manager.acquire(own.as_str(), ttl).await;
            held.map_err(Error::other)?.release().await;
            self.contenders.push(manager);
        }
        Ok(())
    }

    async fn contend(
        &self,
        key: &str,
        ttl: Duration,
        times: u64,
        hold: Duration,
    ) -> Result<String, Error> {
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for manager in self.contenders.clone() {
            let key = key.to_owned();
            tasks.spawn(async move {
                let mut waits = Vec::new();
                for _ in 0..times {
                    let began = Instant::now();
                    let held = manager.acquire(key.as_str(), ttl).await;
                    let held = held.map_err(Error::other)?;
                    waits.push(began.elapsed());
                    tokio::time::sleep(hold).await;
                    held.release().await;
                }
                Ok::<_, Error>(waits)
            });
        }
        let mut waits = Vec::new();
        while let Some(task) = tasks.join_next().await {
            waits.extend(task??);
        }
        let time = start.elapsed().as_micros();
        waits.sort_unstable();
        let [p50, p99, longest] = [50, 99, 100].map(|percent| percentile(&waits, percent));
        let turns = waits.len();
        Ok(format!("contended {turns} {time} {p50} {p99} {longest}"))
    }
}

/// Of sorted times, in microseconds; zero of nothing.
fn percentile(sorted: &[Duration], percent: usize) -> u128 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0, Duration::as_micros)
}

/// Reads, gives others time to get in between, writes.
async fn add_one(file: &str) -> Result<(), Error> {
    let seen = number(&fs::read_to_string(file)?);
    tokio::time::sleep(Duration::from_millis(1)).await;
    fs::write(file, (seen + 1).to_string())
}

/// What is no number is one that another is just writing.
fn number(word: &str) -> u64 {
    word.parse().unwrap_or(0)
}

fn millis(word: &str) -> Duration {
    Duration::from_millis(number(word))
}
