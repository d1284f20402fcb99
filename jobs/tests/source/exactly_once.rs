//! The example of payments: processes of it are killed and frozen, and each payment is booked once.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use watchkeeper::clock::Clock;

use crate::scene::Scene;

#[allow(dead_code, missing_docs, reason = "a program of its own")]
#[path = "../../examples/postings.rs"]
mod example;

const DATABASE: &str = "POSTINGS_DATABASE";
const LOCKS: &str = "POSTINGS_LOCKS";
const PAYMENTS: i64 = 4_000;
const ACCOUNTS: i64 = 20;

/// This program, started by the test below, is one replica of the example.
pub(crate) fn is_replica() -> bool {
    let (Ok(database), Some(locks)) = (std::env::var(DATABASE), std::env::var_os(LOCKS)) else {
        return false;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let worked = runtime.block_on(example::work(&database, &PathBuf::from(locks)));
    worked.unwrap();
    true
}

struct Replica(Child);

impl Replica {
    fn start(scene: &Scene, locks: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let child = command
            .env(DATABASE, scene.source())
            .env(LOCKS, locks)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

pub(crate) async fn a_payment_is_booked_once_whatever_dies() {
    let scene = Scene::with_rows(0).await;
    let session = scene.session().await;
    session.batch_execute(example::TABLES).await.unwrap();
    let fences = watchkeeper::fence::postgres::CREATE_TABLE;
    session.batch_execute(fences).await.unwrap();
    let rows = format!(
        "INSERT INTO account SELECT i, 0 FROM generate_series(0, {ACCOUNTS} - 1) AS i;
         INSERT INTO payment (account, amount) SELECT i % {ACCOUNTS}, i FROM generate_series(1, {PAYMENTS}) AS i;
         -- Slow enough to be killed in the middle of it.
         CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_sleep(0.001); RETURN NEW; END';
         CREATE TRIGGER slow BEFORE UPDATE ON payment FOR EACH ROW EXECUTE FUNCTION slow();
         -- One that is booked twice is refused by the table itself.
         CREATE FUNCTION once() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN RAISE EXCEPTION ''booked twice''; END';
         CREATE TRIGGER once BEFORE UPDATE ON payment FOR EACH ROW WHEN (OLD.posted_at IS NOT NULL) EXECUTE FUNCTION once();"
    );
    session.batch_execute(&rows).await.unwrap();
    let locks = scene.folder.path().join("locks.db");
    let mut replicas: Vec<Replica> = (0..3).map(|_| Replica::start(&scene, &locks)).collect();
    let left = async || -> i64 {
        let open = "SELECT count(*) FROM payment WHERE posted_at IS NULL";
        session.query_one(open, &[]).await.unwrap().get(0)
    };
    let clock = Clock::system();
    let end = clock.now() + crate::wait::SOON;
    let mut strikes = 0;
    while left().await > 0 {
        assert!(clock.now() < end, "{} payments are left", left().await);
        clock.sleep(Duration::from_millis(500)).await;
        // In turn one is killed, and one is frozen past the end of its leases.
        let (n, frozen) = (strikes % 3, (strikes + 1) % 3);
        if strikes % 2 == 0 {
            replicas[n] = Replica::start(&scene, &locks);
        } else {
            replicas[frozen].signal(Signal::STOP);
            clock.sleep(Duration::from_secs(4)).await;
            replicas[frozen].signal(Signal::CONT);
        }
        strikes += 1;
    }
    assert!(strikes >= 2, "nothing happened meanwhile");
    let balances: i64 = session
        .query_one("SELECT sum(balance)::bigint FROM account", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(balances, PAYMENTS * (PAYMENTS + 1) / 2);
    let wrong: i64 = session
        .query_one(
            "SELECT count(*) FROM account WHERE balance <> (SELECT sum(amount) FROM payment WHERE account = account.id)",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(wrong, 0);
}
