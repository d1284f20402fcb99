//! Two holders of one lock, one after the other, over an SQLite file: no server needed.
//!
//! `cargo run -p watchkeeper-lock --example hold`

use std::{error::Error, time::Duration};

use watchkeeper_lock::{Locks, settings::LockSettings};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let process = || -> Result<Locks, Box<dyn Error>> {
        let settings = LockSettings::embedded(folder.path().join("locks.db"));
        Ok(Locks::open(&settings, "hold")?.start()?)
    };
    // As two processes would: each with a connection and a keeper of its own.
    let (first, second) = (process()?, process()?);

    let lease = first.lock("report").acquire().await?;
    println!("first:  holds \"report\", fenced by {}", lease.token());
    match second.lock("report").acquire().await {
        Ok(_) => return Err("two holders".into()),
        Err(held) => println!("second: {held}"),
    }

    lease.release().await;
    println!("first:  has released it");
    let lease = second.lock("report").wait(Duration::from_secs(5));
    let lease = lease.acquire().await?;
    println!("second: holds it, fenced by {}", lease.token());
    lease.release().await;
    Ok(())
}
