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
};

use serde_json::json;

use crate::{
    scene::Scene,
    server::{PostgresServer, USER},
};

/// Stands before a server, and counts how often a text is asked of it.
struct Before {
    folder: tempfile::TempDir,
    asked: Arc<AtomicUsize>,
}

/// A statement of every batch.
const TEXT: &[u8] = b"SELECT token, items::text, job FROM";

impl Before {
    /// A pooler refuses greetings that ask for settings.
    fn start(server: &PostgresServer, is_pooler: bool) -> Self {
        let (folder, asked) = (tempfile::tempdir().unwrap(), Arc::default());
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let (behind, count) = (socket_in(server.folder()), Arc::clone(&asked));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (behind, count) = (behind.clone(), Arc::clone(&count));
                // Its client may end at any time.
                thread::spawn(move || serve(client, &behind, is_pooler, &count));
            }
        });
        Self { folder, asked }
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
    is_pooler: bool,
    asked: &AtomicUsize,
) -> std::io::Result<()> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let mut greeting = vec![0; u32::from_be_bytes(length) as usize - 4];
    client.read_exact(&mut greeting)?;
    let has = |text: &[u8], what: &[u8]| {
        text.windows(what.len())
            .filter(|part| *part == what)
            .count()
    };
    if is_pooler && has(&greeting, b"options\0") > 0 {
        let said = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0";
        let mut refusal = vec![b'E'];
        refusal.extend(u32::try_from(said.len() + 4).unwrap().to_be_bytes());
        refusal.extend(said);
        return client.write_all(&refusal);
    }
    let mut server = UnixStream::connect(behind)?;
    server.write_all(&length)?;
    server.write_all(&greeting)?;
    let (mut answers, mut back) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut back);
        back.shutdown(std::net::Shutdown::Both)
    });
    let mut part = vec![0; 1 << 16];
    loop {
        // What is sent together arrives together.
        let n = client.read(&mut part)?;
        asked.fetch_add(has(&part[..n], TEXT), Ordering::SeqCst);
        server.write_all(&part[..n])?;
        if n == 0 {
            return server.shutdown(std::net::Shutdown::Both);
        }
    }
}

const BATCHES: usize = 40;

/// How often the text was sent for so many batches.
async fn texts_of(is_pooler: bool) -> usize {
    let server = PostgresServer::start();
    let scene = Scene::on(server.url(USER, "")).await;
    scene.sql(&format!(
        "CREATE TABLE notifications (id int PRIMARY KEY, body text, sent_at timestamptz);
         INSERT INTO notifications SELECT i, 'b' FROM generate_series(0, {} - 1) AS i;",
        BATCHES * 2
    ));
    let before = Before::start(&server, is_pooler);
    let source = before.source(scene.database());
    let job = scene.job(json!({"source": source, "batch_size": 2}));
    scene.send_all(&job, 1).await;
    assert_eq!(
        (scene.tally().accepted, scene.unsent()),
        (BATCHES as u64 * 2, 0)
    );
    before.asked.load(Ordering::SeqCst)
}

pub(crate) async fn the_server_is_told_each_statement_a_few_times() {
    let texts = texts_of(false).await;
    // Until it was asked for often enough, and then once, on each of four connections.
    assert!(texts <= 4 * 5, "{texts} for {BATCHES} batches");
}

pub(crate) async fn behind_a_pooler_no_statement_is_prepared() {
    let texts = texts_of(true).await;
    assert!(texts >= 2 * BATCHES, "{texts} for {BATCHES} batches");
}
