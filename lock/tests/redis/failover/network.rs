//! A network that can be cut in two, for servers, sentinels and programs of one machine.
//!
//! # Why proxies that know who comes
//! A partition in the kernel wants rights that tests do not have, and a process for each side. So each server and each sentinel has a
//! proxy, whose address is the only one that others are told (`replica-announce-port`, `sentinel announce-port`, `sentinel monitor`):
//! every connection between two of them leads through one, whichever of the two has made it. A proxy that shuts everybody out would not
//! do, for a master that answers nobody is no danger. It has to serve those on its own side, and so a proxy asks who comes. Servers and
//! sentinels begin their connections at an address of their own (`bind-source-addr`, since Redis 7). Clients cannot be told where to
//! begin. They say who they are in the place of a password: the user `default` of a server without one takes any. One that does not
//! say it reaches nobody, so that nothing passes a cut because it was forgotten.
//!
//! # What a cut does
//! What packets that are dropped do. Connections stay and are silent, their end is not told either, and a new one gets no answer.
//! When the cut is healed, all that was written comes through, late.
//!
//! The proxies of other suites were made for something else: they count what one client asks, and know nobody.

use std::net::{IpAddr, Ipv4Addr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};
use watchkeeper_lock::{clock::Clock, spawn::Spawn};

use super::{BRISK, Endpoint, OK, quiet_port, servers::write_words};

/// So much is handed on at once.
const MOST: usize = 16 * 1024;

/// One that talks: a server, a sentinel, or programs that are never parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Party(Ipv4Addr);

pub(crate) struct Network {
    /// Those on the one side; all others are on the other.
    cut_off: watch::Sender<Vec<Party>>,
}

/// From one party to another.
#[derive(Clone)]
struct Route {
    from: Party,
    to: Party,
    cut_off: watch::Receiver<Vec<Party>>,
}

// === impl Party ===

impl Party {
    pub(crate) const fn server(n: u8) -> Self {
        Self(Ipv4Addr::new(127, 0, 1, n + 1))
    }

    pub(crate) const fn sentinel(n: u8) -> Self {
        Self(Ipv4Addr::new(127, 0, 2, n + 1))
    }

    pub(crate) const fn programs(n: u8) -> Self {
        Self(Ipv4Addr::new(127, 0, 3, n + 1))
    }

    /// What it says in the place of a password.
    pub(crate) fn word(self) -> String {
        self.0.to_string()
    }

    /// Whose connections begin there.
    fn at(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(own) if own != Ipv4Addr::LOCALHOST => Some(Self(own)),
            _ => None,
        }
    }

    /// Who says this first.
    fn in_words(first: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(first);
        text.lines().find_map(|line| line.parse().ok()).map(Self)
    }
}

// === impl Network ===

impl Network {
    /// One that is whole.
    pub(crate) fn new() -> Self {
        Self {
            cut_off: watch::Sender::new(Vec::new()),
        }
    }

    /// Where this party is to listen, behind a proxy.
    pub(crate) async fn endpoint(&self, party: Party) -> Endpoint {
        let port = quiet_port();
        Endpoint {
            known: self.proxy(party, &port).await,
            port,
            settings: vec![("bind-source-addr", party.word())],
        }
    }

    /// Starts the proxy of this party, which listens there itself; the proxy's port.
    async fn proxy(&self, to: Party, port: &str) -> String {
        let server: u16 = port.parse().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = listener.local_addr().unwrap().port();
        let cut_off = self.cut_off.subscribe();
        Spawn::system().spawn(async move {
            while let Ok((caller, from)) = listener.accept().await {
                let cut_off = cut_off.clone();
                Spawn::system().spawn(carry(caller, from.ip(), to, server, cut_off));
            }
        });
        proxy.to_string()
    }

    /// From now on nothing passes between these and all others.
    pub(crate) fn cut_off(&self, parties: &[Party]) {
        self.cut_off.send_replace(parties.to_vec());
    }

    pub(crate) fn heal(&self) {
        self.cut_off(&[]);
    }
}

// === impl Route ===

impl Route {
    /// Waits until something may pass; false when the network is gone.
    async fn is_open(&mut self) -> bool {
        let (from, to) = (self.from, self.to);
        let together = |cut_off: &Vec<Party>| cut_off.contains(&from) == cut_off.contains(&to);
        self.cut_off.wait_for(together).await.is_ok()
    }
}

async fn carry(
    caller: TcpStream,
    address: IpAddr,
    to: Party,
    server: u16,
    cut_off: watch::Receiver<Vec<Party>>,
) {
    _ = caller.set_nodelay(true);
    let (mut from_caller, to_caller) = caller.into_split();
    let mut first = Vec::new();
    let mut from = Party::at(address);
    if from.is_none() {
        first.resize(MOST, 0);
        let Ok(n @ 1..) = from_caller.read(&mut first).await else {
            return;
        };
        first.truncate(n);
        from = Party::in_words(&first);
    }
    let Some(from) = from else {
        let said = String::from_utf8_lossy(&first);
        eprintln!("[network] {address} does not say who it is: {said}");
        return;
    };
    let mut route = Route { from, to, cut_off };
    // No connection is made through a cut.
    if !route.is_open().await {
        return;
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else {
        return;
    };
    _ = server.set_nodelay(true);
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        pour(first, from_caller, to_server, route.clone()),
        pour(Vec::new(), from_server, to_caller, route),
    );
}

/// Hands on what is read after `bytes`, and the end of it, while the route is open.
async fn pour(
    mut bytes: Vec<u8>,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut route: Route,
) {
    loop {
        if !route.is_open().await || to.write_all(&bytes).await.is_err() {
            return;
        }
        bytes.resize(MOST, 0);
        match from.read(&mut bytes).await {
            Ok(n @ 1..) => bytes.truncate(n),
            _ => break,
        }
    }
    // What writes is dropped with this, and that is how the end is told.
    _ = route.is_open().await;
}

/// One command of this party through a proxy, and the raw answer; none where it takes longer than an answer does.
pub(crate) async fn ask(party: Party, proxy: &str, words: &[&str]) -> Option<String> {
    let port: u16 = proxy.parse().ok()?;
    let asked = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        let mut request = String::new();
        write_words(&mut request, &["AUTH", "default", &party.word()]);
        write_words(&mut request, words);
        stream.write_all(request.as_bytes()).await?;
        // Nothing more to come from us: the server answers, then closes.
        stream.shutdown().await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = Clock::system().timeout(BRISK, asked).await.ok()?.ok()?;
    Some(answer.strip_prefix(OK)?.to_owned())
}
