//! A table whose server is killed while its rows are being sent, and whose standby takes its place. For the long run: costs about 15
//! seconds.

use std::time::Duration;

use libtest_mimic::Trial;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};
use watchkeeper::{clock::Clock, spawn::Spawn};
use watchkeeper_jobs::receiver::{Faults, Receiver};

use crate::{
    fleet::Fleet,
    mail::{open_claims, still_growing},
    postgres::{self, PostgresServer, USER},
    store::Store,
    wait::{SOON, pause, soon},
};

const NAME: &str =
    "embedded::succession::rows_are_sent_once_although_a_standby_takes_the_place_of_their_server";
const ROWS: i64 = 900;

const MAIL: &str = r#"
[jobs.mail]
kind = "notifications"
schedule = "continuous"
coordination = "batch"
params = { source = "$SOURCE", table = "notifications", sink = "$SINK", batch_size = 30 }
"#;

const TABLE: &str = "
CREATE TABLE notifications (id bigint PRIMARY KEY, body text NOT NULL, sent_at timestamptz);
CREATE INDEX ON notifications (id) WHERE sent_at IS NULL;
";

/// The case, where the server is.
pub(crate) fn trial() -> Trial {
    postgres::trial_of_its_own(NAME, || {
        rows_are_sent_once_although_a_standby_takes_the_place_of_their_server(Store::embedded());
    })
}

/// A connection to one server.
struct Asked<'r> {
    runtime: &'r Runtime,
    client: Client,
}

impl<'r> Asked<'r> {
    fn new(runtime: &'r Runtime, server: &PostgresServer) -> Self {
        let url = server.url(USER, "postgres");
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            Spawn::system().spawn(async move { drop(connection.await) });
            client
        });
        Self { runtime, client }
    }

    fn execute(&self, sql: &str) {
        self.runtime
            .block_on(self.client.batch_execute(sql))
            .unwrap();
    }

    fn number(&self, sql: &str) -> i64 {
        let sql = format!("SELECT ({sql})::bigint");
        let row = self.runtime.block_on(self.client.query_one(&sql, &[]));
        row.unwrap().get(0)
    }
}

/// The standby is synchronous, as the guide asks for. Of three senders one is killed with its rows under way, then the server; the
/// standby knows what was under way, so that no row comes twice that was not listed in doubt.
fn rows_are_sent_once_although_a_standby_takes_the_place_of_their_server(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let mut primary = PostgresServer::start();
    let standby = primary.standby();
    let (old, new) = (
        Asked::new(&runtime, &primary),
        Asked::new(&runtime, &standby),
    );
    old.execute(TABLE);
    old.execute(&format!(
        "INSERT INTO notifications SELECT i, 'Notification ' || i FROM generate_series(1, {ROWS}) AS i"
    ));
    // In a file of its own, which the standby does not have: once it is in charge it waits for no other.
    old.execute("ALTER SYSTEM SET synchronous_standby_names = '*'");
    old.execute("SELECT pg_reload_conf()");
    let follows = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    soon("synchronous standby", || old.number(follows) == 1);

    let receiver = runtime.block_on(Receiver::start(&Spawn::system())).unwrap();
    let source = format!(
        "postgres://{USER}@{},{}/postgres",
        primary.host(),
        standby.host()
    );
    let config = MAIL
        .replace("$SOURCE", &source)
        .replace("$SINK", &receiver.url());
    let mut fleet = Fleet::new(store, &config);
    for _ in 0..3 {
        fleet.start();
    }
    runtime.block_on(async {
        let mut tally = receiver.watch();
        let third = ROWS.unsigned_abs() / 3;
        let seen = tally.wait_for(|t| t.requests >= third).await;
        seen.map(drop).unwrap();
    });
    // From here no answer comes: each sender is in the middle of its batches.
    receiver.behave(Faults {
        hang_next: ROWS.unsigned_abs(),
        ..Faults::default()
    });
    while still_growing(|| receiver.tally().requests) {}
    let busiest = fleet
        .workers()
        .into_iter()
        .max_by_key(|worker| open_claims(&fleet, *worker));
    fleet.kill(busiest.unwrap());
    primary.stop();
    // What is answered now cannot be marked before the standby is in charge.
    receiver.behave(Faults::default());
    receiver.release();
    new.execute("SELECT pg_promote()");

    let unsent = "SELECT count(*) FROM notifications WHERE sent_at IS NULL";
    let clock = Clock::system();
    let until = clock.now() + SOON * 2;
    while new.number(unsent) > 0 {
        assert!(clock.now() < until, "{} rows left", new.number(unsent));
        pause(Duration::from_millis(50));
    }
    for worker in fleet.workers() {
        fleet.terminate(worker);
        assert!(fleet.wait_until_gone(worker), "a drained worker ends well");
    }
    let tally = receiver.tally();
    let doubted = new.number("SELECT doubted FROM watchkeeper_delivery_source");
    fleet.measured(
        "requests, repeats, listed in doubt",
        &(tally.requests, tally.repeats_recognised, doubted),
    );
    assert_eq!(
        (tally.accepted, tally.accepted_twice),
        (ROWS.unsigned_abs(), 0)
    );
    assert_eq!(tally.lost("notifications", 1..=ROWS), 0);
    assert!(
        tally.repeats_recognised > 0,
        "the killed one had nothing under way"
    );
    assert!(
        tally.repeats_recognised <= doubted.unsigned_abs(),
        "{tally:?}, {doubted} in doubt"
    );
    for table in ["watchkeeper_delivery", "watchkeeper_delivery_intent"] {
        let left = new.number(&format!("SELECT count(*) FROM {table}"));
        assert_eq!(left, 0, "{table}");
    }
}
