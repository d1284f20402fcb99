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
    /// What it was told.
    pub(crate) does: Option<Does>,
    /// How many had come when its answer left.
    pub(crate) answered: Option<usize>,
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
    /// Breaks the connection and does not take the item.
    Drops,
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

    /// How many items it has.
    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().taken.len()
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

    /// The item was taken, and that was said.
    pub(crate) fn is_taken(&self) -> bool {
        self.said()
            .is_some_and(|status| (200..300).contains(&status))
    }

    /// The item was refused for good, and that was said.
    pub(crate) fn is_refused(&self) -> bool {
        let later = [408, 425, 429];
        self.said()
            .is_some_and(|status| (400..500).contains(&status) && !later.contains(&status))
    }

    /// No other request with this item has to follow.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_taken() || self.is_refused()
    }

    /// The status with which it was answered.
    fn said(&self) -> Option<u16> {
        self.answered?;
        match self.does? {
            Does::Answers(status) | Does::AnswersLate(_, status) | Does::AsksToWait(status, _) => {
                Some(status)
            }
            Does::Breaks | Does::Drops | Does::Hangs => None,
        }
    }
}

/// Of each recipient no item was asked for before it was said of all earlier ones that they are over. The recipient of an item is its
/// id, modulo `recipients`.
#[track_caller]
pub(crate) fn assert_in_order(
    requests: &[Request],
    recipients: u64,
    is_over: impl Fn(&Request) -> bool,
) {
    // For each item, how many requests had come when that was said.
    let mut over: BTreeMap<u64, usize> = BTreeMap::new();
    for (at, request) in requests.iter().enumerate() {
        let id = request.id();
        for earlier in (1..id).filter(|other| other % recipients == id % recipients) {
            let before = over.get(&earlier).is_some_and(|said| *said <= at);
            assert!(before, "{id} before {earlier}, as request {at}");
        }
        if let Some(said) = request.answered.filter(|_| is_over(request)) {
            let first = over.entry(id).or_insert(said);
            *first = said.min(*first);
        }
    }
}

async fn serve(stream: TcpStream, seen: Arc<Mutex<Seen>>, decide: Decide) {
    let mut stream = BufReader::new(stream);
    while let Some(mut request) = read(&mut stream).await {
        let (does, at) = {
            let mut seen = seen.lock().unwrap();
            request.before = seen.requests.len();
            let does = decide(&request);
            request.does = Some(does);
            if matches!(
                does,
                Does::Answers(200..300) | Does::AnswersLate(_, 200..300) | Does::Breaks
            ) {
                seen.taken
                    .extend(request.headers.get("idempotency-key").cloned());
            }
            let at = request.before;
            seen.requests.push(request);
            (does, at)
        };
        let (status, after) = match does {
            Does::Answers(status) => (status, None),
            Does::AnswersLate(pause, status) => {
                Clock::system().sleep(pause).await;
                (status, None)
            }
            Does::AsksToWait(status, seconds) => (status, Some(seconds)),
            Does::Breaks | Does::Drops => return,
            Does::Hangs => std::future::pending().await,
        };
        let after = after.map_or_else(String::new, |s| format!("retry-after: {s}\r\n"));
        let answer = format!("HTTP/1.1 {status} X\r\n{after}content-length: 0\r\n\r\n");
        {
            // Before it leaves: the next request may come at once.
            let mut seen = seen.lock().unwrap();
            let come = seen.requests.len();
            seen.requests[at].answered = Some(come);
        }
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
        does: None,
        answered: None,
    })
}
