//! A table in PostgreSQL, and one in a file, sent by a fleet over three masters to which everything happens. Costs about 40 seconds
//! each, most of them spent waiting; needs both servers.

use std::{collections::BTreeSet, time::Duration};

use libtest_mimic::Trial;
use rusqlite::Connection;
use tokio::runtime::Runtime;
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
const NAME_OF_FILE: &str = "masters::rows::rows_of_a_file_are_sent_once_whatever_happens";
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
params = { source = "$SOURCE", table = "notifications", sink = "$SINK", rate = $RATE $MORE }
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

/// Notes each row that is ever listed in doubt.
const NOTING: &str = "
CREATE TABLE doubted (item text);
CREATE FUNCTION note_doubt() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.state = 'in_doubt' THEN INSERT INTO doubted VALUES (NEW.item); END IF;
        RETURN NEW;
    END $$;
CREATE TRIGGER note_doubt AFTER INSERT OR UPDATE ON watchkeeper_delivery FOR EACH ROW EXECUTE FUNCTION note_doubt();
";

const TABLE_OF_FILE: &str = "
PRAGMA journal_mode = wal;
CREATE TABLE notifications (
    id        INTEGER PRIMARY KEY,
    recipient TEXT NOT NULL,
    body      TEXT NOT NULL,
    sent_at   TEXT
);
CREATE INDEX unsent ON notifications (id) WHERE sent_at IS NULL;
";

const NOTING_OF_FILE: &str = "
CREATE TABLE doubted (item TEXT);
CREATE TRIGGER note_new_doubt AFTER INSERT ON watchkeeper_delivery WHEN NEW.state = 'in_doubt'
    BEGIN INSERT INTO doubted VALUES (NEW.item); END;
CREATE TRIGGER note_doubt AFTER UPDATE ON watchkeeper_delivery WHEN NEW.state = 'in_doubt'
    BEGIN INSERT INTO doubted VALUES (NEW.item); END;
";

/// A database with the table.
trait Database {
    /// Makes it, with so many rows and those whose ids come before, which are not to be seen yet.
    fn make(&mut self, fleet: &Fleet, rows: i64);

    /// Lets the others be seen.
    fn commit_late(&mut self);

    /// From now on rows that are listed in doubt are noted.
    fn note_doubts(&mut self);

    /// What one row of one text says.
    fn ask(&mut self, sql: &str) -> String;

    /// The rows that were noted, with commas.
    fn doubted(&mut self) -> String;

    /// What the table looks like.
    fn columns(&mut self) -> String;
}

/// On a server.
struct OnServer {
    runtime: Runtime,
    person: Client,
    early: Client,
}

/// In a file of the fleet's folder.
#[derive(Default)]
struct InFile(Option<Connection>);

/// The cases, where both servers are.
pub(crate) fn trials() -> Vec<Trial> {
    let on_server = match postgres::programs().is_some() {
        true => crate::server::trial(NAME, || {
            let server = PostgresServer::start();
            let source = server.url(USER, "postgres");
            let database = OnServer::at(&source);
            let store = Store::masters_guarded();
            rows_are_sent_once_whatever_happens(store, database, (&source, ", listen = \"mails\""));
        }),
        false => postgres::trial(NAME, &postgres::Shared::default(), |_| {}),
    };
    let in_file = crate::server::trial(NAME_OF_FILE, || {
        let source = "sqlite://$FOLDER/app.db";
        let store = Store::masters_guarded();
        rows_are_sent_once_whatever_happens(store, InFile::default(), (source, ""));
    });
    vec![on_server, in_file]
}

// === impl OnServer ===

impl OnServer {
    fn at(source: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let connect = || {
            runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(source, NoTls).await.unwrap();
                Spawn::system().spawn(async move { drop(connection.await) });
                client
            })
        };
        let (person, early) = (connect(), connect());
        Self {
            runtime,
            person,
            early,
        }
    }

    fn execute(&self, client: &Client, sql: &str) {
        self.runtime.block_on(client.batch_execute(sql)).unwrap();
    }
}

impl Database for OnServer {
    fn make(&mut self, _: &Fleet, rows: i64) {
        let insert = |n: i64| {
            format!(
                "INSERT INTO notifications (recipient, body)
                 SELECT 'user' || i, jsonb_build_object('text', i) FROM generate_series(1, {n}) AS i"
            )
        };
        self.execute(&self.person, TABLE);
        let early = format!("BEGIN; {}; NOTIFY mails", insert(LATE));
        self.execute(&self.early, &early);
        self.execute(&self.person, &insert(rows));
    }

    fn commit_late(&mut self) {
        self.execute(&self.early, "COMMIT");
    }

    fn note_doubts(&mut self) {
        self.execute(&self.person, NOTING);
    }

    fn ask(&mut self, sql: &str) -> String {
        let asked = format!("SELECT ({sql})::text");
        let row = self.runtime.block_on(self.person.query_one(&asked, &[]));
        row.unwrap().get(0)
    }

    fn doubted(&mut self) -> String {
        self.ask("SELECT string_agg(item, ',') FROM doubted")
    }

    fn columns(&mut self) -> String {
        self.ask(
            "SELECT string_agg(attname || attnum || atttypid::regtype, ',' ORDER BY attnum)
             FROM pg_attribute WHERE attrelid = 'notifications'::regclass AND attnum > 0",
        )
    }
}

// === impl InFile ===

impl InFile {
    fn execute(&self, sql: &str) {
        let db = self.0.as_ref().expect("it was made");
        db.execute_batch(sql).unwrap();
    }

    /// Rows of these ids.
    fn insert(&self, first: i64, last: i64) {
        self.execute(&format!(
            "WITH RECURSIVE ids (i) AS (VALUES ({first}) UNION ALL SELECT i + 1 FROM ids WHERE i < {last})
             INSERT INTO notifications (id, recipient, body) SELECT i, 'user' || i, 'text ' || i FROM ids"
        ));
    }
}

impl Database for InFile {
    fn make(&mut self, fleet: &Fleet, rows: i64) {
        let db = Connection::open(fleet.file("app.db")).unwrap();
        db.busy_timeout(SOON).unwrap();
        self.0 = Some(db);
        self.execute(TABLE_OF_FILE);
        self.insert(LATE + 1, LATE + rows);
    }

    /// There is one writer at a time: no transaction can stay open beside the others.
    fn commit_late(&mut self) {
        self.insert(1, LATE);
    }

    fn note_doubts(&mut self) {
        self.execute(NOTING_OF_FILE);
    }

    fn ask(&mut self, sql: &str) -> String {
        let db = self.0.as_ref().expect("it was made");
        let asked = format!("SELECT CAST(({sql}) AS TEXT)");
        db.query_row(&asked, [], |row| row.get(0)).unwrap()
    }

    fn doubted(&mut self) -> String {
        self.ask("SELECT group_concat(item) FROM doubted")
    }

    fn columns(&mut self) -> String {
        self.ask("SELECT group_concat(name || type) FROM pragma_table_info('notifications')")
    }
}

/// Workers are killed every two seconds, one is frozen past the end of its leases, a master is restarted empty, and rows are
/// committed long after others of larger ids were sent. `source` and what the job is told besides.
fn rows_are_sent_once_whatever_happens(
    store: Store,
    mut database: impl Database,
    (source, more): (&str, &str),
) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let receiver = runtime.block_on(Receiver::start(&Spawn::system())).unwrap();
    let rows = match std::env::var_os("WATCHKEEPER_LONG") {
        Some(_) => MANY - LATE,
        None => ROWS,
    };
    let config = MAIL
        .replace("$SOURCE", source)
        .replace("$RATE", &RATE.to_string())
        .replace("$SINK", &receiver.url())
        .replace("$MORE", more);
    let mut fleet = Fleet::new(store, &config);
    database.make(&fleet, rows);
    let before = database.columns();
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
    database.note_doubts();
    let clock = Clock::system();
    // Four times what it takes on an idle machine.
    let until = clock.now() + SOON * u32::try_from(3 * (rows + LATE) / (ROWS + LATE)).unwrap();
    let unsent = "SELECT count(*) FROM notifications WHERE sent_at IS NULL";
    let mut round = 0;
    let mut frozen = None;
    while round < 8 || number(&mut database, unsent) > 0 {
        assert!(
            clock.now() < until,
            "{} rows left",
            number(&mut database, unsent)
        );
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
            5 => database.commit_late(),
            _ => {}
        }
        // The oldest one that is not frozen.
        if number(&mut database, unsent) > 0 {
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
    let doubted = "SELECT doubted FROM watchkeeper_delivery_source";
    let doubted = number(&mut database, doubted).unsigned_abs();
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
    // Row by row: no doubt about one stands for another that was repeated.
    let noted = database.doubted();
    let noted: BTreeSet<&str> = noted.split(',').collect();
    for repeated in &tally.repeated {
        let id = repeated.rsplit('/').next().unwrap();
        assert!(
            noted.contains(id),
            "{repeated} came again, and was never in doubt"
        );
    }
    assert_eq!(database.columns(), before);
    let left = number(&mut database, "SELECT count(*) FROM watchkeeper_delivery");
    assert_eq!(left, 0, "items in the side table");
}

fn number(database: &mut impl Database, sql: &str) -> i64 {
    database.ask(sql).parse().unwrap()
}
