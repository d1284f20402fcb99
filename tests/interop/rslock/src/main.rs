//! A foreign holder of locks: rslock of crates.io, driven line by line.
//!
//!   watchkeeper-interop SOCKET...   one Redis master or several
//!   acquire KEY TTL_MS              held OWNER | refused    in hex: its values are no text
//!   extend TTL_MS                   extended | lost
//!   release                         released
//!   count FILE TIMES KEY TTL_MS     counted    adds 1 to the number in FILE, so many times, each under the lock
//!   wreck FILE TIMES                counted    the same without a lock

use std::{env, fs, io::Error, time::Duration};

use rslock::{Lock, LockManager};
use tokio::io::{AsyncBufReadExt, BufReader};

/// Whoever would stop at the first refusal, and whoever goes on until it has the lock.
struct Client {
    once: LockManager,
    stubborn: LockManager,
    lock: Option<Lock>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let masters = || env::args().skip(1).map(|path| format!("unix://{path}"));
    let manager = |retries, pause_ms| {
        let mut manager = LockManager::new(masters().collect());
        manager.set_retry(retries, Duration::from_millis(pause_ms));
        manager
    };
    let mut client = Client {
        once: manager(1, 1),
        stubborn: manager(1000, 20),
        lock: None,
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
            _ => return Err(Error::other(format!("not an order: {line}"))),
        })
    }
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
