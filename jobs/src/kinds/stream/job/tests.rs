//! The job over a server that answers as a test says.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};
use watchkeeper::{job::RunFacts, sim_clock::SimTime, spawn::Spawn};

use super::*;

/// What it says to a command; `None` for silence.
type Says = Arc<dyn Fn(&[String]) -> Option<String> + Send + Sync>;

/// A server of one test.
struct FakeServer {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<Vec<String>>>>,
}

impl FakeServer {
    async fn start(says: impl Fn(&[String]) -> Option<String> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, says): (_, Says) = (Arc::<Mutex<Vec<_>>>::default(), Arc::new(says));
        let of_server = asked.clone();
        let connections = Arc::<AtomicUsize>::default();
        let count = connections.clone();
        Spawn::system().spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let (says, asked) = (says.clone(), of_server.clone());
                Spawn::system().spawn(async move { serve(connection, &says, &asked).await });
            }
        });
        Self {
            address,
            connections,
            asked,
        }
    }

    /// A job on its stream `orders`.
    fn stream(&self, more: &Value) -> Stream {
        self.stream_timed_by(Clock::system(), more)
    }

    fn stream_timed_by(&self, clock: Clock, more: &Value) -> Stream {
        let mut params = json!({
            "url": format!("redis://{}", self.address),
            "stream": "orders",
            "retention": "1h",
            "sink": "http://127.0.0.1:9/",
        });
        let more = more.as_object().unwrap().clone();
        params.as_object_mut().unwrap().extend(more);
        let params = serde_json::from_value(params).unwrap();
        Stream::timed_by(clock, params, Events::default())
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// How it was asked with this command, each time.
    fn asked(&self, command: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let of_command = asked.iter().filter(|words| words[0] == command);
        of_command.map(|words| words.join(" ")).collect()
    }
}

async fn serve(connection: TcpStream, says: &Says, asked: &Mutex<Vec<Vec<String>>>) {
    let mut connection = BufReader::new(connection);
    while let Some(words) = command(&mut connection).await {
        let said = match words[0].as_str() {
            "CLIENT" => Some(OK.to_owned()),
            _ => {
                asked.lock().unwrap().push(words.clone());
                says(&words)
            }
        };
        if let Some(said) = said {
            let _ = connection.write_all(said.as_bytes()).await;
        }
    }
}

/// The words of the next command, until the connection ends.
async fn command(connection: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..length(connection, "*").await? {
        let length = length(connection, "$").await?;
        let mut word = vec![0; length + 2];
        connection.read_exact(&mut word).await.ok()?;
        word.truncate(length);
        words.push(String::from_utf8(word).unwrap());
    }
    Some(words)
}

async fn length(connection: &mut BufReader<TcpStream>, mark: &str) -> Option<usize> {
    let mut line = String::new();
    connection.read_line(&mut line).await.ok()?;
    line.trim_end().strip_prefix(mark)?.parse().ok()
}

const OK: &str = "+OK\r\n";
const NOTHING: &str = "*-1\r\n";
const UNDONE: &str = "-LOADING it reads its data\r\n";

fn group() -> Value {
    json!({"mode": "group", "group": "shop", "take_over_after": "200ms"})
}

/// Messages as one command answers them.
fn entries(ids: &[&str]) -> String {
    let entry = |id: &&str| format!("*2\r\n${}\r\n{id}\r\n*2\r\n+a\r\n+b\r\n", id.len());
    let entries: String = ids.iter().map(entry).collect();
    format!("*{}\r\n{entries}", ids.len())
}

fn dealt(ids: &[&str]) -> String {
    format!("*1\r\n*2\r\n+orders\r\n{}", entries(ids))
}

#[tokio::test]
async fn the_search_for_messages_of_others_goes_on_after_a_failure() {
    let calls = Mutex::new(0);
    let server = FakeServer::start(move |words| {
        Some(match words[0].as_str() {
            "XAUTOCLAIM" => {
                let mut calls = calls.lock().unwrap();
                *calls += 1;
                match *calls {
                    1 => format!("*3\r\n+7-0\r\n{}*0\r\n", entries(&["5-1"])),
                    2 => UNDONE.to_owned(),
                    _ => format!("*3\r\n+0-0\r\n{}*0\r\n", entries(&["7-1"])),
                }
            }
            "XREADGROUP" => NOTHING.to_owned(),
            _ => OK.to_owned(),
        })
    })
    .await;
    let stream = server.stream(&group());
    assert_eq!(stream.pending(9).await.unwrap(), ["5-1"]);
    stream.pending(9).await.unwrap_err();
    assert_eq!(stream.pending(9).await.unwrap(), ["5-1", "7-1"]);
    let from = server.asked("XAUTOCLAIM");
    let from: Vec<&str> = from
        .iter()
        .filter_map(|ask| ask.split(' ').nth(5))
        .collect();
    assert_eq!(from, ["0-0", "7-0", "7-0"]);
}

fn run_of(id: &str, attempt: u32) -> Run {
    let facts = RunFacts {
        job: "orders".to_owned(),
        id: "r-1".to_owned(),
        tick: Timestamp::UNIX_EPOCH,
        attempt,
        replica: "a".to_owned(),
        batch: Some(id.to_owned()),
        shard: 0,
        shards: 1,
        params: Value::Null,
        checkpoint: None,
    };
    Run::new(facts, Clock::system(), None, Duration::ZERO, Moment::NEVER)
}

#[tokio::test]
async fn a_message_that_is_too_old_goes_to_the_dead_list() {
    let full = Arc::new(AtomicBool::new(true));
    let of_server = full.clone();
    let server = FakeServer::start(move |words| {
        Some(match words[0].as_str() {
            "XAUTOCLAIM" => format!("*3\r\n+0-0\r\n{}*0\r\n", entries(&["5-1"])),
            "XREADGROUP" => NOTHING.to_owned(),
            "XADD" if of_server.load(Ordering::SeqCst) => "-OOM no room\r\n".to_owned(),
            "XADD" => "+9-0\r\n".to_owned(),
            _ => OK.to_owned(),
        })
    })
    .await;
    let stream = server.stream(&group());
    assert_eq!(stream.pending(9).await.unwrap(), ["5-1"]);
    stream.refused("5-1", run_of("5-1", 3)).await.unwrap_err();
    full.store(false, Ordering::SeqCst);
    let refused = stream.refused("5-1", run_of("5-1", 3)).await;
    assert_eq!(refused.unwrap(), Outcome::Done);
    assert_eq!(server.asked("XACK"), [""; 0], "nothing is settled yet");
    let dead = server.asked("XADD").pop().unwrap();
    for part in [
        "orders:dead",
        "id 5-1",
        "attempts 2",
        TOO_OLD,
        "{\"a\":\"b\"}",
    ] {
        assert!(dead.contains(part), "{part}: {dead}");
    }
    stream.settled("5-1");
    stream.pending(9).await.unwrap();
    assert_eq!(server.asked("XACK"), ["XACK orders shop 5-1"]);
}

#[test]
fn what_a_receiver_asks_for_does_not_make_a_message_too_old() {
    let (hour, second) = (Duration::from_secs(3600), Duration::from_secs(1));
    let date = Timestamp::UNIX_EPOCH;
    let after = |asked, age| {
        let now = date + SignedDuration::try_from(age).unwrap();
        in_time(asked, date, hour, now)
    };
    assert_eq!(after(second * 7, hour / 2), second * 7);
    assert_eq!(after(hour * 50, hour / 2), hour / 2 - LAST_TRY);
    // It is refused with its reason soon.
    assert_eq!(after(hour * 50, hour - second), UNKNOWN);
    let long = in_time(Duration::MAX, date, hour * 1000, date);
    assert_eq!(long, MAX_ASKED);
}

#[tokio::test]
async fn reading_begins_by_the_clock_of_the_server() {
    for (more, command, asked) in [
        (
            json!({}),
            "XREAD",
            "XREAD COUNT 128 STREAMS orders 6400000-0",
        ),
        (
            group(),
            "XGROUP",
            "XGROUP CREATE orders shop 6400000-0 MKSTREAM",
        ),
    ] {
        let server = FakeServer::start(|words| {
            Some(match words[0].as_str() {
                "TIME" => "*2\r\n$5\r\n10000\r\n$1\r\n7\r\n".to_owned(),
                "XAUTOCLAIM" => "-NOGROUP no such group\r\n".to_owned(),
                "XREAD" => dealt(&["6400000-1"]),
                _ => OK.to_owned(),
            })
        })
        .await;
        // The clock of this machine shows another year.
        server.stream(&more).pending(9).await.unwrap();
        assert_eq!(server.asked(command), [asked]);
    }
}

/// Of large messages few come in the time that an answer may take.
#[tokio::test]
async fn fewer_messages_are_asked_for_where_so_many_take_too_long() {
    const FEW: usize = 40;
    let next = AtomicUsize::new(1);
    let server = FakeServer::start(move |words| {
        if words[0] != "XREAD" {
            return Some("*2\r\n$5\r\n10000\r\n$1\r\n7\r\n".to_owned());
        }
        let count: usize = words[2].parse().unwrap();
        let first = next.load(Ordering::SeqCst);
        (count <= FEW).then(|| {
            next.store(first + count, Ordering::SeqCst);
            let ids: Vec<String> = (first..first + count).map(|n| format!("7-{n}")).collect();
            dealt(&ids.iter().map(String::as_str).collect::<Vec<_>>())
        })
    })
    .await;
    let stream = server.stream(&json!({"read_ahead": 10_000}));
    let ends = stream.ends().await.unwrap();
    ends.reading.lock().await.server.limit = Duration::from_secs(1);
    for _ in 0..2 {
        stream.pending(9).await.unwrap_err();
    }
    for looks in 1..=20 {
        let read = stream.pending(10_000).await.unwrap().len();
        assert_eq!(read, looks * 32);
    }
    let counts: Vec<String> = server.asked("XREAD");
    let counts: Vec<&str> = counts
        .iter()
        .filter_map(|ask| ask.split(' ').nth(2))
        .collect();
    assert_eq!(counts[..3], ["128", "64", "32"]);
    // It may have been a bad time.
    stream.pending(9).await.unwrap_err();
    assert_eq!(
        server.asked("XREAD").last().unwrap().split(' ').nth(2),
        Some("64")
    );
    assert_eq!(stream.pending(10_000).await.unwrap().len(), 21 * 32);
}

#[tokio::test]
async fn what_is_settled_is_acknowledged_in_the_end_also_when_a_look_was_given_up() {
    let silent = Arc::new(AtomicBool::new(false));
    let of_server = silent.clone();
    let server = FakeServer::start(move |words| match words[0].as_str() {
        "XAUTOCLAIM" => Some(format!("*3\r\n+0-0\r\n{}*0\r\n", entries(&["5-1"]))),
        "XREADGROUP" => Some(NOTHING.to_owned()),
        "XACK" if of_server.load(Ordering::SeqCst) => None,
        _ => Some(OK.to_owned()),
    })
    .await;
    let stream = server.stream(&group());
    stream.pending(9).await.unwrap();
    stream.settled("5-1");
    silent.store(true, Ordering::SeqCst);
    {
        let looking = stream.pending(9);
        let asked = async {
            while server.asked("XACK").is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = looking => panic!("there was an answer"),
            () = asked => {}
        }
    }
    silent.store(false, Ordering::SeqCst);
    stream.stopped().await;
    assert_eq!(server.asked("XACK"), ["XACK orders shop 5-1"; 2]);
    stream.stopped().await;
    assert_eq!(server.asked("XACK").len(), 2, "it was told");
}

#[tokio::test]
async fn what_was_trimmed_before_it_was_acknowledged_is_told_and_is_no_work() {
    let server = FakeServer::start(|words| {
        Some(match words[0].as_str() {
            "XAUTOCLAIM" => format!(
                "*3\r\n+0-0\r\n{}*2\r\n$3\r\n3-0\r\n$3\r\n4-0\r\n",
                entries(&["5-1"])
            ),
            "XREADGROUP" => NOTHING.to_owned(),
            _ => OK.to_owned(),
        })
    })
    .await;
    let stream = server.stream(&group());
    let mut reading = stream.ends().await.unwrap().reading.lock().await;
    let member = ("shop", "a");
    let taken = reading
        .server
        .take_over("orders", member, UNKNOWN, START, 9);
    let taken = taken.await.unwrap();
    assert_eq!(taken.removed, ["3-0", "4-0"]);
    assert_eq!(taken.messages.len(), 1);
    drop(reading);
    assert_eq!(stream.pending(9).await.unwrap(), ["5-1"]);
}

#[tokio::test]
async fn what_is_left_is_told_and_not_read_for_it() {
    // Of 42 messages two were read, or dealt out.
    const SIZE: &str = "*8\r\n+length\r\n:42\r\n+entries-added\r\n:50\r\n+last-generated-id\r\n+6500000-0\r\n\
        +first-entry\r\n*2\r\n+6400000-1\r\n*0\r\n";
    const GROUPS: &str = "*1\r\n*6\r\n+name\r\n+shop\r\n+pending\r\n:2\r\n+lag\r\n:40\r\n";
    for (more, command) in [(json!({}), "XREAD"), (group(), "XREADGROUP")] {
        let server = FakeServer::start(|words| {
            Some(match (words[0].as_str(), words[1..].first()) {
                ("TIME", _) => "*2\r\n$5\r\n10000\r\n$1\r\n7\r\n".to_owned(),
                ("XAUTOCLAIM", _) => "*3\r\n+0-0\r\n*0\r\n*0\r\n".to_owned(),
                ("XREAD" | "XREADGROUP", _) => dealt(&["6400000-1", "6400000-2"]),
                ("XINFO", Some(of)) if of == "GROUPS" => GROUPS.to_owned(),
                ("XINFO", _) => SIZE.to_owned(),
                _ => OK.to_owned(),
            })
        })
        .await;
        let stream = server.stream(&more);
        let mut told = stream.events.observe();
        stream.named("parcels");
        assert_eq!(stream.pending(9).await.unwrap().len(), 2);
        let expected = Event::Backlog {
            job: "parcels".to_owned(),
            items: 42,
            since: None,
        };
        assert_eq!(told.try_recv().unwrap(), expected, "{command}");
        assert_eq!(
            (server.asked(command).len(), server.asked("XINFO").len()),
            (1, 1)
        );
    }
}

/// What was read then was done by others, and so was what came behind it: their records are forgotten.
#[tokio::test]
async fn a_replica_that_has_not_looked_for_longer_than_the_retention_begins_with_what_is_young_enough()
 {
    for (more, command, asked) in [
        (
            json!({}),
            "XREAD",
            "XREAD COUNT 128 STREAMS orders 6400000-0",
        ),
        (
            group(),
            "XAUTOCLAIM",
            "XAUTOCLAIM orders shop A 200 0-0 COUNT 128",
        ),
    ] {
        let server = FakeServer::start(|words| {
            Some(match words[0].as_str() {
                "TIME" => "*2\r\n$5\r\n10000\r\n$1\r\n7\r\n".to_owned(),
                "XREAD" | "XREADGROUP" => dealt(&["6400000-1"]),
                "XAUTOCLAIM" => "*3\r\n+7-0\r\n*0\r\n*0\r\n".to_owned(),
                _ => OK.to_owned(),
            })
        })
        .await;
        let time = SimTime::new();
        let mut stream = server.stream_timed_by(time.clock(), &more);
        stream.member = "A".to_owned();
        for minutes in [0, 30, 100] {
            time.set_offset(minutes * 60_000);
            assert_eq!(stream.pending(9).await.unwrap(), ["6400000-1"]);
        }
        // At first, from where it was, and at first again.
        let asked_how = server.asked(command);
        assert_eq!(
            (asked_how[0].as_str(), asked_how[2].as_str()),
            (asked, asked)
        );
        assert_ne!(asked_how[1], asked);
    }
}

/// The server may have become a replica, and another one stands behind its name.
#[tokio::test]
async fn a_server_that_is_no_master_is_asked_over_a_new_connection() {
    let asked = AtomicUsize::new(0);
    let server = FakeServer::start(move |words| {
        Some(match words[0].as_str() {
            "XAUTOCLAIM" if asked.fetch_add(1, Ordering::SeqCst) == 0 => {
                "-READONLY You can't write against a read only replica.\r\n".to_owned()
            }
            "XAUTOCLAIM" => "*3\r\n+0-0\r\n*0\r\n*0\r\n".to_owned(),
            "XREADGROUP" => dealt(&["5-1"]),
            _ => OK.to_owned(),
        })
    })
    .await;
    let stream = server.stream(&group());
    let refused = stream.pending(9).await.unwrap_err().to_string();
    assert!(
        refused.contains("an address that leads to the master"),
        "{refused}"
    );
    assert_eq!(stream.pending(9).await.unwrap(), ["5-1"]);
    assert_eq!(server.connections(), 2);
}
