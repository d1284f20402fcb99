//! A receiver of notifications that refuses them for good until it is told to take them.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// Longer than a notification of these tests.
const MOST: usize = 64 * 1024;

/// For so long a client may say nothing; the others wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// Its thread ends with the process.
pub(crate) struct Receiver {
    address: SocketAddr,
    takes: Arc<AtomicBool>,
}

// === impl Receiver ===

impl Receiver {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let takes = Arc::new(AtomicBool::new(false));
        let taking = takes.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Who goes away in the middle of a request is asked no more.
                _ = answer(client, taking.load(Ordering::SeqCst));
            }
        });
        Self { address, takes }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// From now on it takes what is sent.
    pub(crate) fn take(&self) {
        self.takes.store(true, Ordering::SeqCst);
    }
}

fn answer(mut client: TcpStream, takes: bool) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    let (mut request, mut block) = (Vec::new(), [0; 4096]);
    while !is_whole(&request) && request.len() < MOST {
        match client.read(&mut block)? {
            0 => return Ok(()),
            read => request.extend_from_slice(&block[..read]),
        }
    }
    let status = if takes {
        "204 No Content"
    } else {
        "400 Bad Request"
    };
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    client.write_all(answer.as_bytes())
}

/// Whether head and body have arrived.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(0, |length| length.trim().parse().unwrap_or(0));
    body.len() >= length
}
