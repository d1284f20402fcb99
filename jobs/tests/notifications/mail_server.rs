//! A mail server that takes mails, and fails where it is told.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What is being said to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Greeting,
    Hello,
    Password,
    Sender,
    Recipient,
    Permission,
    /// The whole text, with its last dot.
    Text,
}

/// What it does then.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Does {
    Agrees,
    Answers(u16),
    Breaks,
    Hangs,
}

/// A mail that it has. What it took and did not confirm is there, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) text: String,
    pub(crate) connection: usize,
}

/// The server; ends when dropped.
pub(crate) struct MailServer {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    taken: Vec<Taken>,
    heard: Vec<String>,
}

type Decide = Arc<dyn Fn(Stage, &Taken) -> Does + Send + Sync>;

// === impl MailServer ===

impl MailServer {
    pub(crate) async fn start(
        decide: impl Fn(Stage, &Taken) -> Does + Send + Sync + 'static,
    ) -> Self {
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

    pub(crate) fn url(&self) -> String {
        format!("smtp://{}", self.address)
    }

    pub(crate) fn taken(&self) -> Vec<Taken> {
        self.seen.lock().unwrap().taken.clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }

    /// All lines that it was told, but for texts.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.seen.lock().unwrap().heard.clone()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, seen: Arc<Mutex<Seen>>, decide: Decide) {
    let mut stream = BufReader::new(stream);
    let connection = {
        let mut seen = seen.lock().unwrap();
        seen.connections += 1;
        seen.connections
    };
    let mut mail = Taken {
        connection,
        ..Taken::default()
    };
    let (mut stage, mut good) = (Some(Stage::Greeting), "220 here".to_owned());
    loop {
        let does = stage.map_or(Does::Agrees, |stage| decide(stage, &mail));
        // It has the mail, whether it can still say so or not.
        if stage == Some(Stage::Text) && !matches!(does, Does::Answers(400..)) {
            seen.lock().unwrap().taken.push(mail.clone());
        }
        let answer = match does {
            Does::Agrees => good.clone(),
            Does::Answers(code) => format!("{code} as told"),
            Does::Breaks => return,
            Does::Hangs => std::future::pending().await,
        };
        let refused = answer.starts_with(['4', '5']);
        let answered = stream
            .get_mut()
            .write_all(format!("{answer}\r\n").as_bytes())
            .await;
        if answered.is_err() || answer.starts_with("421") || answer.starts_with("221") {
            return;
        }
        if stage == Some(Stage::Permission) && !refused {
            mail.text.clear();
            while !mail.text.ends_with("\r\n.\r\n") {
                if !matches!(stream.read_line(&mut mail.text).await, Ok(n) if n > 0) {
                    return;
                }
            }
            (stage, good) = (Some(Stage::Text), "250 taken".to_owned());
            continue;
        }
        let mut line = String::new();
        if !matches!(stream.read_line(&mut line).await, Ok(n) if n > 0) {
            return;
        }
        let line = line.trim().to_owned();
        seen.lock().unwrap().heard.push(line.clone());
        let inner =
            |line: &str| line[line.find('<').unwrap() + 1..line.find('>').unwrap()].to_owned();
        (stage, good) = match line
            .split(' ')
            .next()
            .unwrap()
            .to_ascii_uppercase()
            .as_str()
        {
            "EHLO" => (
                Some(Stage::Hello),
                "250-here\r\n250 AUTH PLAIN LOGIN".to_owned(),
            ),
            "AUTH" => (Some(Stage::Password), "235 welcome".to_owned()),
            "MAIL" => {
                mail.from = inner(&line);
                (Some(Stage::Sender), "250 go on".to_owned())
            }
            "RCPT" => {
                mail.to = inner(&line);
                (Some(Stage::Recipient), "250 go on".to_owned())
            }
            "DATA" => (Some(Stage::Permission), "354 go on".to_owned()),
            "QUIT" => (None, "221 bye".to_owned()),
            _ => (None, "250 fine".to_owned()),
        };
    }
}
