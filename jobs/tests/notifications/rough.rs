//! A web service that misbehaves as it is told, down to the connection.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use watchkeeper::clock::Clock;

/// What it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// How many came before it.
    pub(crate) before: usize,
}

/// What it does then.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Does {
    /// Answers this; 2xx takes the item.
    Answers(u16),
    /// Answers this after a while.
    AnswersLate(Duration, u16),
    /// Asks to be left alone for so many seconds.
    AsksToWait(u16, u64),
    /// Takes the item and breaks the connection.
    Breaks,
    /// Never answers.
    Hangs,
}

/// The service; ends when dropped.
pub(crate) struct Rough {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    requests: Vec<Request>,
    taken: BTreeSet<String>,
}

type Decide = Arc<dyn Fn(&Request) -> Does + Send + Sync>;

// === impl Rough ===

impl Rough {
    pub(crate) async fn start(decide: impl Fn(&Request) -> Does + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, decide): (Arc<Mutex<Seen>>, Decide) = (Arc::default(), Arc::new(decide));
        let shared = Arc::clone(&seen);
        #[allow(clippy::disallowed_methods, reason = "a test has no other runtime")]
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&shared), Arc::clone(&decide)));
            }
        });
        Self {
            address,
            seen,
            task,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().requests.clone()
    }

    /// Keys of the items that it has.
    pub(crate) fn taken(&self) -> BTreeSet<String> {
        self.seen.lock().unwrap().taken.clone()
    }
}

impl Drop for Rough {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Request ===

impl Request {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn id(&self) -> u64 {
        self.json()["id"].as_u64().unwrap()
    }
}

async fn serve(stream: TcpStream, seen: Arc<Mutex<Seen>>, decide: Decide) {
    let mut stream = BufReader::new(stream);
    while let Some(mut request) = read(&mut stream).await {
        let does = {
            let mut seen = seen.lock().unwrap();
            request.before = seen.requests.len();
            let does = decide(&request);
            if matches!(
                does,
                Does::Answers(200..300) | Does::AnswersLate(_, 200..300) | Does::Breaks
            ) {
                seen.taken
                    .extend(request.headers.get("idempotency-key").cloned());
            }
            seen.requests.push(request);
            does
        };
        let (status, after) = match does {
            Does::Answers(status) => (status, None),
            Does::AnswersLate(pause, status) => {
                Clock::system().sleep(pause).await;
                (status, None)
            }
            Does::AsksToWait(status, seconds) => (status, Some(seconds)),
            Does::Breaks => return,
            Does::Hangs => std::future::pending().await,
        };
        let after = after.map_or_else(String::new, |s| format!("retry-after: {s}\r\n"));
        let answer = format!("HTTP/1.1 {status} X\r\n{after}content-length: 0\r\n\r\n");
        if stream.get_mut().write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok().filter(|n| *n > 0)?;
    let path = line.split(' ').nth(1)?.trim_start_matches('/').to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok().filter(|n| *n > 0)?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|n| n.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request {
        path,
        headers,
        body,
        before: 0,
    })
}
