//! What goes over the connection to the server itself, and to a pooler before it.

use std::{
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::json;
use watchkeeper::{batch::BatchJob, clock::Clock, job::FailureKind};

use crate::{
    scene::Scene,
    server::{PostgresServer, USER},
};

/// Stands before a server, and counts how often a text is asked of it.
struct Before {
    folder: tempfile::TempDir,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    asked: AtomicUsize,
    /// How often a transaction was refused because it was in another process.
    refused: AtomicUsize,
}

/// What stands there.
#[derive(Clone, Copy, PartialEq)]
enum Is {
    /// Nothing: all goes through.
    Nothing,
    /// It refuses greetings that ask for settings, as PgBouncer does.
    Pooler,
    /// It passes the greeting on, and gives the client another process later, as pgagroal does.
    Exchanger,
    /// It passes the greeting on, and cleans up before each transaction.
    Cleaner,
}

/// A statement of every batch.
const TEXT: &[u8] = b"SELECT token, items::text, job FROM";

impl Before {
    fn start(server: &PostgresServer, is: Is) -> Self {
        let (folder, counts) = (tempfile::tempdir().unwrap(), Arc::default());
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let (behind, count) = (socket_in(server.folder()), Arc::clone(&counts));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (behind, count) = (behind.clone(), Arc::clone(&count));
                // Its client may end at any time.
                thread::spawn(move || serve(client, &behind, is, &count));
            }
        });
        Self { folder, counts }
    }

    fn source(&self, database: &str) -> String {
        let folder = self.folder.path().display().to_string();
        format!(
            "postgres://{USER}@{}/{database}",
            folder.replace('/', "%2F")
        )
    }
}

/// The server's socket.
fn socket_in(folder: &Path) -> PathBuf {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let socket = names
        .into_iter()
        .find(|name| name.starts_with(".s.PGSQL.") && !name.ends_with(".lock"));
    folder.join(socket.expect("it listens"))
}

fn serve(
    mut client: UnixStream,
    behind: &Path,
    is: Is,
    counts: &Arc<Counts>,
) -> std::io::Result<()> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let mut greeting = vec![0; u32::from_be_bytes(length) as usize - 4];
    client.read_exact(&mut greeting)?;
    if is == Is::Pooler && has(&greeting, b"options\0") > 0 {
        let said = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0";
        let mut refusal = vec![b'E'];
        refusal.extend(u32::try_from(said.len() + 4).unwrap().to_be_bytes());
        refusal.extend(said);
        return client.write_all(&refusal);
    }
    let greet = || {
        let mut server = UnixStream::connect(behind)?;
        server.write_all(&length)?;
        server.write_all(&greeting)?;
        std::io::Result::Ok(server)
    };
    let answer = |mut from: UnixStream| {
        let (mut back, counts) = (client.try_clone()?, Arc::clone(counts));
        thread::spawn(move || {
            let mut part = vec![0; 1 << 16];
            while let Ok(n @ 1..) = from.read(&mut part) {
                let refused = has(&part[..n], is.refusal());
                counts.refused.fetch_add(refused, Ordering::SeqCst);
                if back.write_all(&part[..n]).is_err() {
                    break;
                }
            }
            back.shutdown(std::net::Shutdown::Both)
        });
        std::io::Result::Ok(())
    };
    let mut server = greet()?;
    answer(server.try_clone()?)?;
    let mut part = vec![0; 1 << 16];
    let (mut client_side, mut begun) = (client.try_clone()?, 0);
    loop {
        // What is sent together arrives together.
        let n = client_side.read(&mut part)?;
        begun += has(&part[..n], b"BEGIN ISOLATION");
        if is == Is::Exchanger && begun >= EXCHANGED {
            begun = 0;
            server = greet()?;
            // It greets back, and is ready.
            let mut greeted = Vec::new();
            while !greeted.ends_with(b"Z\0\0\0\x05I") {
                let mut byte = [0];
                server.read_exact(&mut byte)?;
                greeted.extend(byte);
            }
            answer(server.try_clone()?)?;
        }
        counts
            .asked
            .fetch_add(has(&part[..n], TEXT), Ordering::SeqCst);
        match is {
            Is::Cleaner => server.write_all(&cleaned_up(&part[..n]))?,
            _ => server.write_all(&part[..n])?,
        }
        if n == 0 {
            return server.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// The same, with what cleans up before the transaction that begins in it.
fn cleaned_up(part: &[u8]) -> Vec<u8> {
    const BEGINS: &[u8] = b"BEGIN ISOLATION";
    // Without the COMMIT both would be one transaction, which has no other isolation then.
    const CLEANS: &[u8] = b"DEALLOCATE ALL; COMMIT; ";
    let mut all = part.to_vec();
    let begins = part.windows(BEGINS.len()).position(|some| some == BEGINS);
    if let Some(at) = begins.filter(|at| *at >= 4) {
        // The length of the message stands before its text, and counts itself.
        let mut length = [0; 4];
        length.copy_from_slice(&part[at - 4..at]);
        let longer = u32::from_be_bytes(length) + u32::try_from(CLEANS.len()).unwrap();
        all[at - 4..at].copy_from_slice(&longer.to_be_bytes());
        all.splice(at..at, CLEANS.iter().copied());
    }
    all
}

fn has(text: &[u8], what: &[u8]) -> usize {
    let parts = text.windows(what.len());
    parts.filter(|part| *part == what).count()
}

const BATCHES: usize = 40;

/// After so many transactions of a client it has another process.
const EXCHANGED: usize = 12;

impl Is {
    /// What the server says where a statement is used in the wrong place.
    fn refusal(self) -> &'static [u8] {
        match self {
            Self::Cleaner => b"prepared statement \"",
            _ => b"a pooler gave the connection away",
        }
    }
}

/// How often the text was sent for so many batches, and how often a transaction was refused.
async fn texts_of(is: Is) -> (usize, usize) {
    let server = PostgresServer::start();
    let scene = Scene::on(server.url(USER, "")).await;
    scene.sql(&format!(
        "CREATE TABLE notifications (id int PRIMARY KEY, body text, sent_at timestamptz);
         INSERT INTO notifications SELECT i, 'b' FROM generate_series(0, {} - 1) AS i;",
        BATCHES * 2
    ));
    let before = Before::start(&server, is);
    let source = before.source(scene.database());
    let job = scene.job(json!({"source": source, "batch_size": 2}));
    let failures = scene.send_all_at_last(&job, 1).await;
    let refusal = std::str::from_utf8(is.refusal())
        .unwrap()
        .trim_end_matches('"');
    let refused = |why: &String| why.contains(refusal);
    assert!(failures.iter().all(refused), "{failures:?}");
    assert_eq!(
        (scene.tally().accepted, scene.unsent()),
        (BATCHES as u64 * 2, 0)
    );
    let Counts { asked, refused } = &*before.counts;
    (asked.load(Ordering::SeqCst), refused.load(Ordering::SeqCst))
}

pub(crate) async fn the_server_is_told_each_statement_a_few_times() {
    let (texts, refused) = texts_of(Is::Nothing).await;
    assert_eq!(refused, 0);
    // Until it was asked for often enough, and then once, on each of four connections.
    assert!(texts <= 4 * 5, "{texts} for {BATCHES} batches");
}

pub(crate) async fn behind_a_pooler_no_statement_is_prepared() {
    let (texts, refused) = texts_of(Is::Pooler).await;
    assert_eq!(refused, 0);
    assert!(texts >= 2 * BATCHES, "{texts} for {BATCHES} batches");
}

/// Each row is sent once all the same.
pub(crate) async fn a_pooler_that_passes_the_greeting_on_is_found_out_before_a_name_is_used() {
    let (texts, refused) = texts_of(Is::Exchanger).await;
    assert!(refused > 0, "nothing was noticed");
    // On each of four connections once at most: from then on nothing is prepared.
    assert!(refused <= 4, "{refused} times");
    assert!(texts > 4 * 5, "{texts} texts");
}

/// Nor is any row sent twice here.
pub(crate) async fn a_pooler_that_takes_away_what_was_prepared_is_found_out() {
    let (texts, refused) = texts_of(Is::Cleaner).await;
    assert!(refused > 0, "nothing was noticed");
    // Statements that were sent together are refused each for itself, in one call on each of four connections at most.
    assert!(refused <= 4 * 5, "{refused} times");
    assert!(texts >= BATCHES, "{texts} texts for {BATCHES} batches");
}

/// Whoever prepares a statement needs the table, as those do who use it.
pub(crate) async fn to_prepare_waits_for_no_other_session_without_an_end() {
    let scene = Scene::with_rows(5).await;
    let job = scene.job(json!({}));
    // What was asked for so often is to be prepared at the next look.
    for _ in 0..3 {
        job.pending(9).await.unwrap();
    }
    let other = scene.session().await;
    let hold = "BEGIN; LOCK TABLE notifications IN ACCESS EXCLUSIVE MODE";
    other.batch_execute(hold).await.unwrap();
    let clock = Clock::system();
    let began = clock.now();
    let error = job.pending(9).await.unwrap_err();
    let waited = clock.now().since(began);
    assert_eq!(error.kind(), FailureKind::Retry);
    // To prepare was given up, and so was the look itself, by the server and not by us.
    assert!(
        error
            .to_string()
            .contains("another session holds what was needed"),
        "{error}"
    );
    assert!(
        waited >= Duration::from_secs(5),
        "nothing was to be prepared"
    );
    assert!(waited < Duration::from_secs(20), "{waited:?}");
    other.batch_execute("COMMIT").await.unwrap();
    scene.send_all(&job, 1).await;
    assert_eq!((scene.tally().accepted, scene.unsent()), (5, 0));
}
