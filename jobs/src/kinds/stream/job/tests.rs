//! The job over a server that answers as a test says.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};
use watchkeeper::spawn::Spawn;

use super::*;

/// What it says to a command; `None` for silence.
type Says = Arc<dyn Fn(&[String]) -> Option<String> + Send + Sync>;

/// A server of one test.
struct FakeServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Vec<String>>>>,
}

impl FakeServer {
    async fn start(says: impl Fn(&[String]) -> Option<String> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, says): (_, Says) = (Arc::<Mutex<Vec<_>>>::default(), Arc::new(says));
        let of_server = asked.clone();
        Spawn::system().spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (says, asked) = (says.clone(), of_server.clone());
                Spawn::system().spawn(async move { serve(connection, &says, &asked).await });
            }
        });
        Self { address, asked }
    }

    /// A job on its stream `orders`.
    fn stream(&self, more: &Value) -> Stream {
        let mut params = json!({
            "url": format!("redis://{}", self.address),
            "stream": "orders",
            "retention": "1h",
            "sink": "http://127.0.0.1:9/",
        });
        let more = more.as_object().unwrap().clone();
        params.as_object_mut().unwrap().extend(more);
        let params = serde_json::from_value(params).unwrap();
        Stream::new(params, Events::default())
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
