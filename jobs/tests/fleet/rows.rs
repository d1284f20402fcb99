//! A table in PostgreSQL, sent by a fleet over three masters to which everything happens. Costs about 40 seconds, most of them
//! spent waiting; needs both servers.

use std::time::Duration;

use libtest_mimic::Trial;
use tokio_postgres::{Client, NoTls};
use watchkeeper::{clock::Clock, spawn::Spawn};
use watchkeeper_jobs::receiver::Receiver;

use crate::{
    fleet::Fleet,
    postgres::{self, PostgresServer, USER},
    store::Store,
    wait::{SOON, pause},
};

const NAME: &str = "masters::rows::rows_of_postgresql_are_sent_once_whatever_happens";
/// Rows that are there from the start, and rows whose ids are taken early and committed late.
const ROWS: i64 = 4_900;
const LATE: i64 = 100;
/// Rows a second, of all workers together.
const RATE: usize = 280;
/// All rows in the long run.
const MANY: i64 = 20_000;

const MAIL: &str = r#"
[jobs.mail]
kind = "notifications"
schedule = "continuous"
coordination = "batch"
params = { source = "$SOURCE", table = "notifications", listen = "mails", sink = "$SINK", rate = $RATE }
"#;

const TABLE: &str = "
CREATE TABLE notifications (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    recipient text NOT NULL,
    body      jsonb NOT NULL,
    sent_at   timestamptz
);
CREATE INDEX ON notifications (id) WHERE sent_at IS NULL;
";

/// The case, where both servers are.
pub(crate) fn trial() -> Trial {
    if postgres::programs().is_some() {
        return crate::server::trial(NAME, || {
            rows_of_postgresql_are_sent_once_whatever_happens(
                Store::masters_guarded(),
                &PostgresServer::start(),
            );
        });
    }
    postgres::trial(NAME, &postgres::Shared::default(), |_| {})
}

/// Workers are killed every two seconds, one is frozen past the end of its leases, a master is restarted empty, and a
/// transaction commits its rows long after others of larger ids were sent.
fn rows_of_postgresql_are_sent_once_whatever_happens(store: Store, server: &PostgresServer) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let receiver = runtime.block_on(Receiver::start(&Spawn::system())).unwrap();
    let source = server.url(USER, "postgres");
    let connect = || {
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&source, NoTls).await.unwrap();
            Spawn::system().spawn(async move { drop(connection.await) });
            client
        })
    };
    let execute = |client: &Client, sql: &str| {
        runtime.block_on(client.batch_execute(sql)).unwrap();
    };
    let (person, early) = (connect(), connect());
    let ask = |sql: &str| -> String {
        let row = runtime.block_on(person.query_one(sql, &[])).unwrap();
        row.get(0)
    };
    let number = |sql: &str| {
        ask(&format!("SELECT ({sql})::text"))
            .parse::<i64>()
            .unwrap()
    };
    execute(&person, TABLE);
    let insert = |n: i64| {
        format!(
            "INSERT INTO notifications (recipient, body)
             SELECT 'user' || i, jsonb_build_object('text', i) FROM generate_series(1, {n}) AS i"
        )
    };
    let rows = match std::env::var_os("WATCHKEEPER_LONG") {
        Some(_) => MANY - LATE,
        None => ROWS,
    };
    execute(&early, &format!("BEGIN; {}; NOTIFY mails", insert(LATE)));
    execute(&person, &insert(rows));
    let columns = "SELECT string_agg(attname || attnum || atttypid::regtype, ',' ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = 'notifications'::regclass AND attnum > 0";
    let before = ask(columns);

    let config = MAIL
        .replace("$SOURCE", &source)
        .replace("$RATE", &RATE.to_string())
        .replace("$SINK", &receiver.url());
    let mut fleet = Fleet::new(store, &config);
    for _ in 0..4 {
        fleet.start();
    }
    let sent_so_far = |n: u64| {
        runtime.block_on(async {
            let mut tally = receiver.watch();
            tally.wait_for(|t| t.accepted >= n).await.map(drop).unwrap();
        });
    };
    sent_so_far(300);
    let clock = Clock::system();
    // Four times what it takes on an idle machine.
    let until = clock.now() + SOON * u32::try_from(3 * (rows + LATE) / (ROWS + LATE)).unwrap();
    let unsent = "SELECT count(*) FROM notifications WHERE sent_at IS NULL";
    let mut round = 0;
    let mut frozen = None;
    while round < 8 || number(unsent) > 0 {
        assert!(clock.now() < until, "{} rows left", number(unsent));
        pause(Duration::from_secs(2));
        round += 1;
        match round {
            1 => {
                let worker = fleet.workers()[1];
                fleet.freeze(worker);
                frozen = Some(worker);
            }
            // Two ttl later.
            3 => _ = fleet.thaw(frozen.take().unwrap()),
            4 => fleet.store.restart(1),
            5 => execute(&early, "COMMIT"),
            _ => {}
        }
        // The oldest one that is not frozen.
        if number(unsent) > 0 {
            let victim = fleet.workers().into_iter().find(|w| Some(*w) != frozen);
            fleet.kill(victim.unwrap());
            fleet.start();
        }
    }
    for worker in fleet.workers() {
        fleet.terminate(worker);
        assert!(fleet.wait_until_gone(worker), "a drained worker ends well");
    }
    let tally = receiver.tally();
    let doubted = number("SELECT doubted FROM watchkeeper_delivery_source").unsigned_abs();
    fleet.measured(
        "rounds, requests, repeats, listed in doubt",
        &(round, tally.requests, tally.repeats_recognised, doubted),
    );
    // What is late comes together, and no more than a little of that fits into a few seconds.
    let (span, most) = (5, receiver.most_within(Duration::from_secs(5)));
    fleet.measured("requests within 5 s, at most", &most);
    assert!(most <= RATE * span * 11 / 10, "{most} within {span} s");
    let all = rows + LATE;
    assert_eq!(
        (tally.accepted, tally.accepted_twice),
        (all.unsigned_abs(), 0)
    );
    assert_eq!(tally.lost("notifications", 1..=all), 0);
    assert!(
        tally.repeats_recognised <= doubted,
        "{tally:?}, {doubted} in doubt"
    );
    assert!(doubted > 0, "nobody was killed in the act");
    assert_eq!(ask(columns), before);
    let left = number("SELECT count(*) FROM watchkeeper_delivery");
    assert_eq!(left, 0, "items in the side table");
}
