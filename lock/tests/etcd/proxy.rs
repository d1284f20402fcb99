//! What stands between a client and a member: it counts what is asked and what is written, holds answers, and loses one.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf},
    sync::watch,
};
use watchkeeper_lock::spawn::Spawn;

use crate::server::EtcdServer;

pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: String,
    asked: Mutex<Vec<Asked>>,
    /// The answer to the next writing does not come through.
    loses: AtomicBool,
    /// No answer comes through.
    holds: watch::Sender<bool>,
    /// One has come that does not.
    is_held: watch::Sender<bool>,
}

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Read,
    Write,
    /// Neither: a login, a watch.
    Other,
}

// === impl Proxy ===

impl Proxy {
    pub(crate) async fn start(server: &EtcdServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server: server.host().address(),
            asked: Mutex::default(),
            loses: AtomicBool::new(false),
            holds: watch::Sender::new(false),
            is_held: watch::Sender::new(false),
        });
        let all = shared.clone();
        Spawn::system().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                Spawn::system().spawn(carry(client, all.clone()));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What was asked since the last time that this was.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.shared.asked.lock().unwrap())
    }

    /// No answer comes through from now on.
    pub(crate) fn hold(&self) {
        self.shared.is_held.send_replace(false);
        self.shared.holds.send_replace(true);
    }

    /// Waits until one would have.
    pub(crate) async fn holds_an_answer(&self) {
        let mut is_held = self.shared.is_held.subscribe();
        is_held.wait_for(|is_held| *is_held).await.unwrap();
    }

    /// They come through.
    pub(crate) fn go_on(&self) {
        self.shared.holds.send_replace(false);
    }

    /// The next writing is executed, and its connection breaks in the place of an answer.
    pub(crate) fn lose_the_next_answer(&self) {
        self.shared.loses.store(true, Ordering::SeqCst);
    }
}

async fn carry(client: TcpStream, shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(&shared.server).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let is_lost = AtomicBool::new(false);
    let there = async {
        let mut rest = Vec::new();
        while let Some(request) = request(&mut from_client, &mut rest).await {
            let asked = kind(&request);
            shared.asked.lock().unwrap().push(asked);
            if asked == Asked::Write && shared.loses.swap(false, Ordering::SeqCst) {
                is_lost.store(true, Ordering::SeqCst);
            }
            if to_server.write_all(&request).await.is_err() {
                return;
            }
        }
    };
    let back = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = from_server.read(&mut bytes).await {
            // It has been executed by now.
            if is_lost.load(Ordering::SeqCst) {
                return;
            }
            let mut holds = shared.holds.subscribe();
            if *holds.borrow_and_update() {
                shared.is_held.send_replace(true);
                if holds.wait_for(|holds| !*holds).await.is_err() {
                    return;
                }
            }
            if to_client.write_all(&bytes[..n]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

/// The next request, whole; none when the client has gone. `rest` is what has come of the one after it.
async fn request(from: &mut OwnedReadHalf, rest: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        if let Some(length) = length(rest) {
            return Some(rest.drain(..length).collect());
        }
        let mut bytes = [0; 8 * 1024];
        match from.read(&mut bytes).await {
            Ok(n @ 1..) => rest.extend_from_slice(&bytes[..n]),
            _ => return None,
        }
    }
}

/// How long the request is that begins here, once all of it has come.
fn length(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let mut lines = head.lines();
    let body = lines.find_map(|line| line.strip_prefix("content-length:"));
    let body: usize = body.map_or(0, |length| length.trim().parse().unwrap());
    (bytes.len() >= end + body).then_some(end + body)
}

fn kind(request: &[u8]) -> Asked {
    let text = String::from_utf8_lossy(request);
    let writes = ["request_put", "request_delete_range"];
    if !text.starts_with("POST /v3/kv/") {
        Asked::Other
    } else if writes.iter().any(|word| text.contains(word)) {
        Asked::Write
    } else {
        Asked::Read
    }
}
