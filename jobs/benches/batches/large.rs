//! Large tables, sent by the program itself: when the first row goes, and what it takes of memory.

use std::{
    fs::File,
    io::Read,
    process::{Child, Command, Stdio},
    time::Duration,
};

use watchkeeper::clock::Clock;

use crate::{
    Plan,
    fleet::{Masters, database, insert, until},
    table::{Goal, Row, Table},
};

/// The program as it is; killed and reaped on drop.
struct Program(Child);

const LIMIT: Duration = Duration::from_secs(600);

// === impl Program ===

impl Program {
    fn start(masters: &Masters, name: &str, source: &str, more: &str) -> Self {
        let (file, locks, sent) = (
            masters.file(&format!("{name}.toml")),
            masters.file(&format!("{name}.db")),
            masters.file(&format!("{name}.jsonl")),
        );
        let text = format!(
            "[locks]\nbackend = \"embedded\"\n[locks.embedded]\npath = {locks:?}\n\
             [jobs.mail]\nkind = \"notifications\"\nschedule = \"continuous\"\ncoordination = \"batch\"\n\
             [jobs.mail.params]\nsource = {source:?}\ntable = \"notifications\"\nsink = \"file://{}\"\n{more}\n",
            sent.display()
        );
        std::fs::write(&file, text).unwrap();
        let log = File::create(masters.file(&format!("{name}.log"))).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_watchkeeper"))
            .arg("--config")
            .arg(&file)
            .arg("run")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }

    fn must_live(&mut self) {
        let ended = self.0.try_wait().unwrap();
        assert!(ended.is_none(), "the program has ended: {ended:?}");
    }

    /// Resident memory, in MB of 1,000,000 bytes.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.unwrap().split_whitespace().next().unwrap();
        kib.parse::<u64>().unwrap() as f64 * 1024.0 / 1e6
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn has_rows(file: &std::path::Path) -> bool {
    let mut byte = [0];
    File::open(file).is_ok_and(|mut file| file.read(&mut byte).is_ok_and(|n| n == 1))
}

pub(crate) async fn section(plan: Plan, table: &mut Table) {
    table.section("large", &[]);
    let masters = Masters::start(0);
    let clock = Clock::system();
    let (_server, client, url) = database().await;
    insert(&client, plan.large).await;
    client.batch_execute("ANALYZE notifications").await.unwrap();
    // Once where all is unsent, and once where ten thousand at the end are.
    for (what, name, prepare) in [
        ("all of them unsent", "all", ""),
        (
            "the last 10,000 unsent",
            "last",
            "UPDATE notifications SET sent_at = now() WHERE sent_at IS NULL AND id <= (SELECT max(id) - 10000 FROM notifications);
             VACUUM ANALYZE notifications",
        ),
    ] {
        for statement in prepare.split(';').filter(|s| !s.trim().is_empty()) {
            client.batch_execute(statement).await.unwrap();
        }
        let began = clock.now();
        let mut program = Program::start(&masters, name, &url, "");
        let sent = masters.file(&format!("{name}.jsonl"));
        until("the first row", LIMIT, || {
            program.must_live();
            has_rows(&sent)
        })
        .await;
        let took = clock.now().since(began);
        drop(program);
        let row = Row::new(format!("{} rows, {what}: seconds from the start to the first row", plan.large), 1)
            .ours(format!("{:.2} s", took.as_secs_f64()))
            .figure(took.as_secs_f64())
            .goal(Goal::AtMost(2.0));
        table.add(row);
    }
    client
        .batch_execute("TRUNCATE notifications")
        .await
        .unwrap();
    client
        .batch_execute("DELETE FROM watchkeeper_delivery_intent")
        .await
        .unwrap();
    client
        .batch_execute("DELETE FROM watchkeeper_delivery")
        .await
        .unwrap();
    insert(&client, plan.many).await;
    client.batch_execute("ANALYZE notifications").await.unwrap();
    let began = clock.now();
    let program = Program::start(&masters, "many", &url, "batch_size = 100\nclaim = 16");
    let mut highest: f64 = 0.0;
    loop {
        clock.sleep(Duration::from_millis(500)).await;
        highest = highest.max(program.memory());
        let open = "SELECT EXISTS (SELECT 1 FROM notifications WHERE sent_at IS NULL)";
        if !client.query_one(open, &[]).await.unwrap().get::<_, bool>(0) {
            break;
        }
        assert!(
            clock.now().since(began) < LIMIT * 3,
            "does not come to an end"
        );
    }
    let took = clock.now().since(began);
    let row = Row::new(
        format!(
            "{} rows to a file: the most memory of the process, MB",
            plan.many
        ),
        1,
    )
    .ours(format!("{highest:.0} MB in {:.0} s", took.as_secs_f64()))
    .figure(highest)
    .goal(Goal::AtMost(80.0));
    table.add(row);
}
