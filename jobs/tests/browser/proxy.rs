//! A way to a worker that can be cut: what stands between a browser and a server fails, and neither of them does.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Passes on what comes to it. Ends with it.
pub(crate) struct Proxy {
    address: String,
    ways: Arc<Mutex<Ways>>,
}

#[derive(Default)]
struct Ways {
    /// Whether a new connection is closed at once.
    is_cut: bool,
    is_over: bool,
    open: Vec<TcpStream>,
    /// What each request has begun with, as far as its first bytes went.
    heads: Vec<String>,
}

// === impl Proxy ===

impl Proxy {
    /// To what listens there.
    pub(crate) fn to(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it listens").to_string();
        let ways = Arc::<Mutex<Ways>>::default();
        let passed = ways.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (mut ways, Ok(client)) = (lock(&passed), client) else {
                    continue;
                };
                if ways.is_over {
                    return;
                }
                // It is closed by being dropped.
                if ways.is_cut {
                    continue;
                }
                if let Ok(copy) = client.try_clone() {
                    ways.open.push(copy);
                }
                let (target, passed) = (target.clone(), passed.clone());
                std::thread::spawn(move || pass(client, &target, &passed));
            }
        });
        Self { address, ways }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Ends every connection, and lets none through until it is mended.
    pub(crate) fn cut(&self) {
        let mut ways = lock(&self.ways);
        ways.is_cut = true;
        for open in ways.open.drain(..) {
            _ = open.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn mend(&self) {
        lock(&self.ways).is_cut = false;
    }

    /// The requests for this path, each as it began.
    pub(crate) fn requests(&self, path: &str) -> Vec<String> {
        let ways = lock(&self.ways);
        let begin = format!("GET {path}");
        let wanted = ways.heads.iter().filter(|head| head.starts_with(&begin));
        wanted.cloned().collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        lock(&self.ways).is_over = true;
        // It waits for one more.
        _ = TcpStream::connect(&self.address);
    }
}

fn lock(ways: &Mutex<Ways>) -> MutexGuard<'_, Ways> {
    ways.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection: each carries one request, whose head is written down.
fn pass(mut client: TcpStream, target: &str, ways: &Mutex<Ways>) {
    let mut pass = || -> io::Result<()> {
        let mut server = TcpStream::connect(target)?;
        let mut first = [0; 16 * 1024];
        let read = client.read(&mut first)?;
        let head = String::from_utf8_lossy(&first[..read]).into_owned();
        lock(ways).heads.push(head);
        server.write_all(&first[..read])?;
        let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
        std::thread::spawn(move || {
            _ = io::copy(&mut from, &mut to);
            _ = to.shutdown(Shutdown::Write);
        });
        io::copy(&mut server, &mut client)?;
        server.shutdown(Shutdown::Both)
    };
    // One that has failed is over like any other.
    _ = pass();
    _ = client.shutdown(Shutdown::Both);
}
