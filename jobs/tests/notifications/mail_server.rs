//! A mail server that takes mails, encrypts where it is told to, and fails where it is told.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

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

/// When it encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encrypts {
    Never,
    /// When it is asked to by STARTTLS, which it offers.
    WhenAsked,
    /// From the first byte on.
    AtOnce,
}

/// A mail that it has. What it took and did not confirm is there, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) text: String,
    pub(crate) connection: usize,
    /// Whether all of it came over an encrypted connection.
    pub(crate) encrypted: bool,
}

/// The server; ends when dropped.
pub(crate) struct MailServer {
    address: SocketAddr,
    encrypts: Encrypts,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    taken: Vec<Taken>,
    heard: Vec<String>,
    in_the_clear: Vec<String>,
}

type Decide = Arc<dyn Fn(Stage, &Taken) -> Does + Send + Sync>;

/// A connection, encrypted or not.
type Stream = BufReader<Box<dyn Duplex>>;

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

// === impl MailServer ===

impl MailServer {
    pub(crate) async fn start(
        decide: impl Fn(Stage, &Taken) -> Does + Send + Sync + 'static,
    ) -> Self {
        Self::listen(Encrypts::Never, None, Arc::new(decide)).await
    }

    /// One that encrypts and agrees to everything.
    pub(crate) async fn start_encrypting(encrypts: Encrypts, with: ServerConfig) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(with));
        let agrees: Decide = Arc::new(|_: Stage, _: &Taken| Does::Agrees);
        Self::listen(encrypts, Some(acceptor), agrees).await
    }

    async fn listen(encrypts: Encrypts, with: Option<TlsAcceptor>, decide: Decide) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let shared = Arc::clone(&seen);
        #[allow(clippy::disallowed_methods, reason = "a test has no other runtime")]
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let stream: Box<dyn Duplex> = Box::new(stream);
                let with = (encrypts, with.clone());
                let (seen, decide) = (Arc::clone(&shared), Arc::clone(&decide));
                tokio::spawn(serve(BufReader::new(stream), with, seen, decide));
            }
        });
        Self {
            address,
            encrypts,
            seen,
            task,
        }
    }

    pub(crate) fn url(&self) -> String {
        let scheme = match self.encrypts {
            Encrypts::Never | Encrypts::WhenAsked => "smtp",
            Encrypts::AtOnce => "smtps",
        };
        format!("{scheme}://{}", self.address)
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

    /// Those that came without encryption.
    pub(crate) fn heard_in_the_clear(&self) -> Vec<String> {
        self.seen.lock().unwrap().in_the_clear.clone()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The same connection, encrypted from here on; nothing where the client does not agree.
async fn encrypted(stream: Stream, with: Option<&TlsAcceptor>) -> Option<Stream> {
    let stream = with?.accept(stream.into_inner()).await.ok()?;
    let stream: Box<dyn Duplex> = Box::new(stream);
    Some(BufReader::new(stream))
}

async fn serve(
    mut stream: Stream,
    (encrypts, with): (Encrypts, Option<TlsAcceptor>),
    seen: Arc<Mutex<Seen>>,
    decide: Decide,
) {
    let connection = {
        let mut seen = seen.lock().unwrap();
        seen.connections += 1;
        seen.connections
    };
    let mut mail = Taken {
        connection,
        ..Taken::default()
    };
    if encrypts == Encrypts::AtOnce {
        match encrypted(stream, with.as_ref()).await {
            Some(better) => stream = better,
            None => return,
        }
        mail.encrypted = true;
    }
    let (mut stage, mut good) = (Some(Stage::Greeting), "220 here".to_owned());
    let mut is_asked = false;
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
        let mut answered = stream
            .get_mut()
            .write_all(format!("{answer}\r\n").as_bytes())
            .await;
        if answered.is_ok() {
            answered = stream.get_mut().flush().await;
        }
        if answered.is_err() || answer.starts_with("421") || answer.starts_with("221") {
            return;
        }
        if std::mem::take(&mut is_asked) {
            match encrypted(stream, with.as_ref()).await {
                Some(better) => stream = better,
                None => return,
            }
            mail.encrypted = true;
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
        {
            let mut seen = seen.lock().unwrap();
            if !mail.encrypted {
                seen.in_the_clear.push(line.clone());
            }
            seen.heard.push(line.clone());
        }
        let inner =
            |line: &str| line[line.find('<').unwrap() + 1..line.find('>').unwrap()].to_owned();
        let offers = encrypts == Encrypts::WhenAsked && !mail.encrypted;
        (stage, good) = match line
            .split(' ')
            .next()
            .unwrap()
            .to_ascii_uppercase()
            .as_str()
        {
            "EHLO" => {
                // A client that takes this for an invitation says its password in the clear.
                let more = if offers { "250-STARTTLS\r\n" } else { "" };
                (
                    Some(Stage::Hello),
                    format!("250-here\r\n{more}250 AUTH PLAIN LOGIN"),
                )
            }
            "STARTTLS" if offers => {
                is_asked = true;
                (None, "220 go on".to_owned())
            }
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
