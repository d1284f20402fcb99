//! Where a node's server is: at one address, or wherever a majority of those that decide it says.
//!
//! Sentinels, and the nodes of a Redis Cluster, put another master in the place of one that died, froze or was cut off. The old
//! one may live on and not know, with all that it has granted in its memory. So it is asked who is in charge, and a call is sent
//! only where a majority has named this very server within the last [`TRUST`].
//!
//! # Why no two masters vote at once
//! What one sentinel names has an order: a later configuration has a larger epoch, and it never goes back. Two clients that use two
//! masters have each heard a majority of *all* sentinels, so at least one of them has named the old master first and the new one
//! later. No lease of the old one was asked for later than [`TRUST`] after it was asked, so that it is over `max_ttl` after that;
//! the new one is of another life, and votes only when it was watched for `max_ttl` and [`LATE`], which is longer. The
//! same holds for the nodes of a cluster. No setting of the servers is needed for it, and no replica: of a pair the one that is
//! left serves on. How many there are is what they say themselves, so a list that names too few is no majority, and one that is
//! named twice counts once, by its id.
//!
//! Another life is also what a server was put back in charge with: one that was cut off for a while, and has taken no other
//! server's memory since, has missed what was granted elsewhere. So the epoch of the configuration is a part of which life it is.
//! In a Cluster a server is put back as a replica, which its own history tells, or by a slot that moves away and back: what was
//! nominated in between counts on neither server without its watch.
//!
//! It is asked before the first connection, whenever one breaks, and every second while there are calls; of a client that was
//! asleep before its next call. A program without a majority has no node: unsure means not leading.
//!
//! # Not promised
//! Majorities are those of one set. While sentinels, or nodes of a cluster, are added or taken away, all of them must reach each other:
//! otherwise two sides may count differently, and both find a majority. What forgets its epoch (a configuration on no disk) names what
//! it was told first.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use deadpool_redis::{
    Manager, Pool, Runtime, Timeouts,
    redis::{
        AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisError, RedisResult,
        aio::MultiplexedConnection, pipe,
    },
};
use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};

use super::{
    failover::{Failover, Kind},
    trouble::{self, Scrub, Trouble},
};
use crate::{
    clock::{Clock, Moment},
    node::{MemberFacts, NodeError, Refusal, guard::LATE},
};

/// Connections to one server: the keeper's calls go over one, those of callers over another, and the successor of each is made
/// while it may still hang. Release announcements have one of their own.
const LINES: usize = 4;

/// Connections may take longer to make than calls to answer: they are made beside the calls.
pub(super) const LEAST_CONNECT_LIMIT: Duration = Duration::from_millis(500);

/// A server is asked for no longer than this after a majority has named it.
const TRUST: Duration = Duration::from_secs(5);

/// What was asked of the server before may still be held when the next one could first be watched, and no later.
const _: () = assert!(TRUST.as_secs() < LATE.as_secs());

/// How often it is asked again while there are calls.
const LOOK: Duration = Duration::from_secs(1);

/// One server, and how it is reached.
pub(super) struct Reach {
    pub(super) client: Client,
    pub(super) pool: Pool,
    /// Which configuration has put it in charge; 0 where that is told otherwise.
    pub(super) epoch: u64,
    address: String,
}

/// Where a node's server is.
#[derive(Clone)]
pub(super) enum Route {
    /// At one address.
    Fixed(Arc<Reach>),
    /// Where a majority says.
    Asked(Arc<Finder>),
}

/// Whether a server may still be asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RouteState {
    /// It was named a moment ago.
    Sure,
    /// It may, and it is time to ask again.
    Due,
    /// Not before a majority has named it again.
    Unsure,
    /// Another one is in charge.
    Over(NodeError),
}

/// Asks who is in charge. Each link has one of its own, on its own runtime: what was found is shared.
pub(super) struct Finder {
    kind: Kind,
    seeds: Vec<Seed>,
    /// A server of data, but for host and port.
    servers: ConnectionInfo,
    /// A key in the slot that counts.
    key: String,
    limit: Duration,
    scrub: Scrub,
    clock: Clock,
    found: Arc<Mutex<Found>>,
    /// One asks for all that use this link.
    asking: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Found {
    named: Option<Named>,
    reach: Option<Arc<Reach>>,
}

struct Named {
    by: Charge,
    /// When the question was about to leave.
    asked: Moment,
}

/// Who is in charge.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Charge {
    host: String,
    port: u16,
    epoch: u64,
}

/// One that is asked.
struct Seed {
    shown: String,
    client: Client,
    scrub: Scrub,
    line: tokio::sync::Mutex<Option<MultiplexedConnection>>,
}

/// What one of them says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    /// Who says it.
    id: String,
    names: Charge,
    /// How many there are, by its own count.
    of: usize,
}

// === impl Reach ===

impl Reach {
    pub(super) fn new(
        client: Client,
        epoch: u64,
        limit: Duration,
        scrub: &Scrub,
    ) -> Result<Self, String> {
        let trouble = |e: &dyn std::fmt::Display| scrub.clean(&e.to_string());
        let connect_limit = limit.max(LEAST_CONNECT_LIMIT);
        let times = AsyncConnectionConfig::new()
            // Our own clock times each request: the library's timer would hold our stalls against the node.
            .set_response_timeout(None)
            .set_connection_timeout(Some(connect_limit));
        let address = client.get_connection_info().clone();
        let shown = address.addr().to_string();
        let manager = Manager::new_with_config(address, times).map_err(|e| trouble(&e))?;
        let pool = Pool::builder(manager)
            .max_size(LINES)
            .runtime(Runtime::Tokio1)
            .timeouts(Timeouts {
                wait: Some(connect_limit),
                create: Some(connect_limit),
                recycle: Some(limit),
            })
            .build()
            .map_err(|e| trouble(&e))?;
        Ok(Self {
            client,
            pool,
            epoch,
            address: shown,
        })
    }
}

// === impl Route ===

impl Route {
    /// The server as it is now: asks, where it is to be asked.
    ///
    /// # Errors
    /// [`NodeError`], where no majority names one.
    pub(super) async fn reach(&self) -> Result<Arc<Reach>, NodeError> {
        match self {
            Self::Fixed(reach) => Ok(reach.clone()),
            Self::Asked(finder) => {
                finder.ask().await?;
                finder.reach()
            }
        }
    }

    /// Whether this server is still the one in charge; when it is to be asked and no server says, it is not.
    pub(super) async fn leads_to(&self, reach: &Arc<Reach>) -> bool {
        let now = self.reach().await;
        now.is_ok_and(|now| Arc::ptr_eq(&now, reach)) || !self.is_asked()
    }

    /// For a link of its own.
    pub(super) fn another(&self) -> Self {
        match self {
            Self::Fixed(reach) => Self::Fixed(reach.clone()),
            Self::Asked(finder) => Self::Asked(Arc::new(finder.another())),
        }
    }

    /// What each of those that name the server tells, for people; none where the address is that of the server.
    pub(super) async fn members(&self) -> Vec<MemberFacts> {
        match self {
            Self::Fixed(_) => Vec::new(),
            Self::Asked(finder) => finder.members().await,
        }
    }

    /// Whether others take the place of a server.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self, Self::Asked(_))
    }
}

// === impl Finder ===

impl Finder {
    /// Asks those of this address. `key` is one of ours.
    ///
    /// # Errors
    /// Those of `open`, which makes clients.
    pub(super) fn new<E>(
        address: Failover,
        key: &str,
        limit: Duration,
        open: impl Fn(ConnectionInfo) -> Result<Client, E>,
        clock: Clock,
    ) -> Result<Self, E> {
        let Failover {
            kind,
            seeds,
            servers,
        } = address;
        let seed = |(shown, info): (String, ConnectionInfo)| {
            let scrub = Scrub::new(info.redis_settings().password());
            Ok(Seed {
                shown,
                client: open(info)?,
                scrub,
                line: tokio::sync::Mutex::default(),
            })
        };
        // With what TLS needs, read once.
        let servers = open(servers)?.get_connection_info().clone();
        Ok(Self {
            scrub: Scrub::new(servers.redis_settings().password()),
            seeds: seeds.into_iter().map(seed).collect::<Result<_, E>>()?,
            kind,
            servers,
            key: key.to_owned(),
            limit,
            clock,
            found: Arc::default(),
            asking: Arc::default(),
        })
    }

    /// One that asks by itself, on connections of its own: a runtime that stands still holds up no other one.
    fn another(&self) -> Self {
        let seed = |seed: &Seed| Seed {
            shown: seed.shown.clone(),
            client: seed.client.clone(),
            scrub: seed.scrub.clone(),
            line: tokio::sync::Mutex::default(),
        };
        Self {
            kind: self.kind.clone(),
            seeds: self.seeds.iter().map(seed).collect(),
            servers: self.servers.clone(),
            key: self.key.clone(),
            limit: self.limit,
            scrub: self.scrub.clone(),
            clock: self.clock.clone(),
            found: self.found.clone(),
            asking: Arc::default(),
        }
    }

    /// Whether this server may still be asked.
    pub(super) fn state_of(&self, reach: &Arc<Reach>) -> RouteState {
        let found = self.found();
        let Some(named) = &found.named else {
            return RouteState::Unsure;
        };
        if !found
            .reach
            .as_ref()
            .is_some_and(|now| Arc::ptr_eq(now, reach))
        {
            return RouteState::Over(NodeError::Unreachable(format!(
                "{}:{} is in charge now, and no longer {} as it was",
                named.by.host, named.by.port, reach.address
            )));
        }
        let age = self.clock.now().since(named.asked);
        match () {
            () if age < LOOK => RouteState::Sure,
            () if age < TRUST => RouteState::Due,
            () => RouteState::Unsure,
        }
    }

    /// Asks again beside the calls, unless another task does.
    pub(super) fn look(self: &Arc<Self>, spawn: &crate::spawn::Spawn) {
        let Ok(turn) = self.asking.clone().try_lock_owned() else {
            return;
        };
        let finder = self.clone();
        spawn.spawn(async move {
            // What fails is met when the trust is over.
            _ = finder.ask_now().await;
            drop(turn);
        });
    }

    /// Asks, or waits for what was asked after this was called.
    pub(super) async fn ask(&self) -> Result<(), NodeError> {
        let wanted = self.clock.now();
        let _turn = self.asking.lock().await;
        let is_new = |named: &Named| named.asked >= wanted;
        if self.found().named.as_ref().is_some_and(is_new) {
            return Ok(());
        }
        self.ask_now().await
    }

    async fn ask_now(&self) -> Result<(), NodeError> {
        let asked = self.clock.now();
        let mut answers: FuturesUnordered<_> =
            self.seeds.iter().map(|seed| self.hear(seed)).collect();
        let (mut said, mut trouble): (Vec<Said>, Option<NodeError>) = (Vec::new(), None);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(one) if said.iter().any(|other| other.id == one.id) => {}
                Ok(one) => said.push(one),
                Err(why) => {
                    // What a person must mend is told before what may pass.
                    let passes = |why: &NodeError| matches!(why, NodeError::Unreachable(_));
                    if trouble.as_ref().is_none_or(passes) {
                        trouble = Some(why);
                    }
                }
            }
            if let Some(by) = agreed(&said, self.seeds.len()) {
                return self.settle(Named { by, asked });
            }
        }
        Err(disagreed(&said, self.seeds.len(), self.who(), trouble))
    }

    /// Takes note of the server that was named.
    fn settle(&self, named: Named) -> Result<(), NodeError> {
        let mut found = self.found();
        // Another link has asked later.
        if found
            .named
            .as_ref()
            .is_some_and(|now| now.asked > named.asked)
        {
            return Ok(());
        }
        let is_same = |now: &Named| now.by == named.by;
        if found.reach.is_none() || !found.named.as_ref().is_some_and(is_same) {
            let info = self.at(&named.by.host, named.by.port);
            let client = Client::open(info).map_err(|e| self.no_way(&e.to_string()))?;
            let reach = Reach::new(client, named.by.epoch, self.limit, &self.scrub);
            let reach = reach.map_err(NodeError::Unreachable)?;
            found.reach = Some(Arc::new(reach));
        }
        found.named = Some(named);
        Ok(())
    }

    fn no_way(&self, why: &str) -> NodeError {
        NodeError::Unreachable(self.scrub.clean(why))
    }

    fn reach(&self) -> Result<Arc<Reach>, NodeError> {
        let reach = self.found().reach.clone();
        reach.ok_or_else(|| NodeError::Unreachable("no server was named yet".to_owned()))
    }

    /// The address of a server of data.
    fn at(&self, host: &str, port: u16) -> ConnectionInfo {
        let host = host.to_owned();
        let addr = match self.servers.addr() {
            ConnectionAddr::TcpTls {
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        self.servers.clone().set_addr(addr)
    }

    fn who(&self) -> &'static str {
        match self.kind {
            Kind::Sentinel(_) => "sentinels",
            Kind::Cluster => "nodes of the cluster",
        }
    }

    /// All of them, also where a majority has spoken. However long calls may take: one that is silent holds up a person.
    async fn members(&self) -> Vec<MemberFacts> {
        let limit = LEAST_CONNECT_LIMIT;
        let role = match self.kind {
            Kind::Sentinel(_) => "sentinel",
            Kind::Cluster => "node of the cluster",
        };
        let asked = self.seeds.iter().map(|seed| async move {
            let heard = self.clock.timeout(limit, self.hear(seed)).await;
            member(
                &seed.shown,
                role,
                heard.unwrap_or_else(|_| Err(seed.silent())),
            )
        });
        join_all(asked).await
    }

    async fn hear(&self, seed: &Seed) -> Result<Said, NodeError> {
        let limit = self.limit.max(LEAST_CONNECT_LIMIT);
        let mut line = seed.line.lock().await;
        let asking = async {
            // Whoever has heard enough leaves in the midst of this, and the connection stays.
            if let Some(connection) = line.clone() {
                let said = self.put(connection, seed).await;
                // One that has stood idle may lead nowhere.
                if !said.as_ref().is_err_and(|e| e.is_io_error()) {
                    return said;
                }
            }
            let connection = line.insert(seed.connect(limit).await?).clone();
            self.put(connection, seed).await
        };
        let answer = match self.clock.timeout(limit * 2, asking).await {
            Ok(answer) => answer,
            Err(_) => {
                *line = None;
                return Err(seed.silent());
            }
        };
        if answer.as_ref().is_err_and(|e| e.is_io_error()) {
            *line = None;
        }
        let answer = answer.map_err(|error| seed.trouble(&error, &self.kind))?;
        answer.map_err(|why| NodeError::Protocol(format!("{}: {why}", seed.shown)))
    }

    async fn put(&self, mut connection: MultiplexedConnection, seed: &Seed) -> Answer {
        match &self.kind {
            Kind::Sentinel(master) => sentinel(&mut connection, master).await,
            Kind::Cluster => {
                // Certificates are for names; without them an address is what leads there for certain.
                let named = matches!(self.servers.addr(), ConnectionAddr::TcpTls { .. });
                cluster(&mut connection, &self.key, (&seed.host(), named)).await
            }
        }
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Seed ===

impl Seed {
    async fn connect(&self, limit: Duration) -> RedisResult<MultiplexedConnection> {
        let patience = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(Some(limit));
        let connecting = self
            .client
            .get_multiplexed_async_connection_with_config(&patience);
        connecting.await
    }

    /// Where it is itself: a node of a cluster may not know its own address.
    fn host(&self) -> String {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
            other => other.to_string(),
        }
    }

    fn silent(&self) -> NodeError {
        NodeError::Unreachable(format!("{}: no answer in time", self.shown))
    }

    fn trouble(&self, error: &RedisError, kind: &Kind) -> NodeError {
        let shown = &self.shown;
        match trouble::sort(error, &self.scrub) {
            Trouble::Slow => self.silent(),
            Trouble::Broken(why) => NodeError::Unreachable(format!("{shown}: {why}")),
            Trouble::NoScript => NodeError::Protocol(format!("{shown}: NOSCRIPT")),
            Trouble::Answered(NodeError::Tls(why)) => NodeError::Tls(format!("{shown}: {why}")),
            // The remedies of these are those of lock servers.
            Trouble::Answered(NodeError::Refused { refusal, said }) => {
                let remedy = match kind {
                    Kind::Sentinel(_) if refusal == Refusal::NoPerm => {
                        "allow its user +sentinel|myid +sentinel|master +sentinel|get-master-addr-by-name"
                    }
                    Kind::Cluster if refusal == Refusal::NoPerm => {
                        "allow its user +cluster|keyslot +cluster|nodes"
                    }
                    Kind::Sentinel(_) => {
                        "sentinels have a user and a password of their own: write ?sentinel_password=… at the end of the address"
                    }
                    Kind::Cluster => "give the user and the password of its nodes",
                };
                NodeError::Protocol(format!("{shown}: {said} ({remedy})"))
            }
            Trouble::Answered(other) => NodeError::Protocol(format!("{shown}: {other}")),
        }
    }
}

// === what is said ===

/// What an answer is, when the connection was good: one that makes sense, or why it makes none.
type Answer = RedisResult<Result<Said, String>>;

/// While it fails over, a sentinel shows the address of before with the epoch of after: which address the epoch has is asked between
/// two looks at the epoch.
async fn sentinel(connection: &mut MultiplexedConnection, master: &str) -> Answer {
    type Told = (String, Fields, Option<(String, u16)>, Fields);
    let mut asked = pipe();
    asked.cmd("SENTINEL").arg("MYID");
    asked.cmd("SENTINEL").arg("MASTER").arg(master);
    let address = asked.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME");
    address.arg(master);
    asked.cmd("SENTINEL").arg("MASTER").arg(master);
    let (id, before, address, after): Told = asked.query_async(connection).await?;
    Ok(read_sentinel(id, &before, address, &after))
}

type Fields = HashMap<String, String>;

fn read_sentinel(
    id: String,
    before: &Fields,
    address: Option<(String, u16)>,
    after: &Fields,
) -> Result<Said, String> {
    let number = |fields: &Fields, name: &str| fields.get(name)?.parse::<u64>().ok();
    let epochs = [before, after].map(|fields| number(fields, "config-epoch"));
    let others = number(after, "num-other-sentinels").and_then(|n| usize::try_from(n).ok());
    match (address, epochs, others) {
        (Some((host, port)), [Some(before), Some(epoch)], Some(others))
            if !host.is_empty() && port != 0 && !id.is_empty() =>
        {
            if before != epoch {
                return Err("it is about to name another master".to_owned());
            }
            Ok(Said {
                id,
                names: Charge { host, port, epoch },
                of: others.saturating_add(1),
            })
        }
        _ => Err("it does not answer as a Sentinel of Redis 6.2 or later does".to_owned()),
    }
}

async fn cluster(connection: &mut MultiplexedConnection, key: &str, own: (&str, bool)) -> Answer {
    let mut asked = pipe();
    asked.cmd("CLUSTER").arg("KEYSLOT").arg(key);
    asked.cmd("CLUSTER").arg("NODES");
    let (slot, nodes): (u16, String) = asked.query_async(connection).await?;
    Ok(read_cluster(slot, &nodes, own))
}

/// Reads `CLUSTER NODES`: `id host:port@bus,name flags master ping pong epoch link slots…`. `own` is where it was asked, and whether
/// names count.
fn read_cluster(slot: u16, nodes: &str, own: (&str, bool)) -> Result<Said, String> {
    let (mut me, mut owner, mut of) = (None, None, HashSet::new());
    for line in nodes.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, address, flags, _, _, _, epoch, _, slots @ ..] = words.as_slice() else {
            continue;
        };
        let has = |flag: &str| flags.split(',').any(|word| word == flag);
        if has("handshake") || has("noaddr") {
            continue;
        }
        of.insert(*id);
        if has("myself") {
            me = Some((*id).to_owned());
        }
        if has("master") && slots.iter().any(|range| covers(range, slot)) {
            let epoch: u64 = epoch.parse().unwrap_or(0);
            let is_later = owner.as_ref().is_none_or(|&(known, _)| epoch > known);
            if is_later {
                owner = Some((epoch, *address));
            }
        }
    }
    let id = me.ok_or("it is no node of a cluster: cluster:// wants cluster-enabled yes")?;
    let (_, address) = owner.ok_or_else(|| format!("no server has the slot {slot} of our keys"))?;
    let (host, port) = host_of(address, own).ok_or("it names a node without an address")?;
    // A replica that is promoted takes a new history, so that it need not be told apart by the epoch, which also grows when a node
    // takes another slot.
    let names = Charge {
        host,
        port,
        epoch: 0,
    };
    Ok(Said {
        id,
        names,
        of: of.len(),
    })
}

/// Host and port of `127.0.0.1:7000@17000,name`.
fn host_of(address: &str, (own, named): (&str, bool)) -> Option<(String, u16)> {
    let (at, names) = address.split_once('@').unwrap_or((address, ""));
    let (ip, port) = at.rsplit_once(':')?;
    let name = names
        .split(',')
        .nth(1)
        .filter(|_| named)
        .unwrap_or_default();
    let host = [name, ip, own].into_iter().find(|host| !host.is_empty())?;
    let port = port.parse().ok().filter(|&port: &u16| port != 0)?;
    Some((host.to_owned(), port))
}

fn covers(range: &str, slot: u16) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    match (first.parse::<u16>(), last.parse::<u16>()) {
        (Ok(first), Ok(last)) => (first..=last).contains(&slot),
        // What is on its way to another node.
        _ => false,
    }
}

fn member(address: &str, role: &str, heard: Result<Said, NodeError>) -> MemberFacts {
    let told = MemberFacts {
        address: address.to_owned(),
        role: Some(role.to_owned()),
        ..MemberFacts::default()
    };
    match heard {
        Ok(said) => MemberFacts {
            id: Some(said.id),
            names: Some(format!("{}:{}", said.names.host, said.names.port)),
            of: Some(said.of),
            ..told
        },
        Err(why) => MemberFacts {
            // Where it is stands there already.
            error: Some(why.to_string().replace(&format!("{address}: "), "")),
            ..told
        },
    }
}

/// How many there are: as many as are listed, or as the one counts that knows most of them. One that has just begun knows of no
/// other.
fn count(said: &[Said], listed: usize) -> usize {
    let known = said.iter().map(|one| one.of);
    known.max().unwrap_or(0).max(listed)
}

/// The server that a majority of all names.
fn agreed(said: &[Said], listed: usize) -> Option<Charge> {
    let all = count(said, listed);
    said.iter().find_map(|one| {
        let votes = said.iter().filter(|other| other.names == one.names).count();
        (votes > all / 2).then(|| one.names.clone())
    })
}

fn disagreed(said: &[Said], listed: usize, who: &str, trouble: Option<NodeError>) -> NodeError {
    if said.is_empty() {
        return match trouble {
            Some(NodeError::Unreachable(why)) => {
                NodeError::Unreachable(format!("none of the {who} answers: {why}"))
            }
            Some(other) => other,
            None => NodeError::Unreachable(format!("none of the {who} is named")),
        };
    }
    let mut named: Vec<String> = said
        .iter()
        .map(|one| format!("{}:{}", one.names.host, one.names.port))
        .collect();
    named.sort_unstable();
    named.dedup();
    let why = trouble.map(|why| format!("; {why}")).unwrap_or_default();
    NodeError::Unreachable(format!(
        "{} of {} {who} name {}, which is no majority: name more of them, and look at those that are silent{why}",
        said.len(),
        count(said, listed),
        named.join(" or "),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(id: &str, port: u16, of: usize) -> Said {
        let names = charge(port);
        let id = id.to_owned();
        Said { id, names, of }
    }

    fn charge(port: u16) -> Charge {
        let (host, epoch) = ("h".to_owned(), 0);
        Charge { host, port, epoch }
    }

    #[test]
    fn only_a_majority_of_all_is_one() {
        let agreed = |all: &[Said]| agreed(all, 1).map(|by| by.port);
        assert_eq!(agreed(&[]), None);
        assert_eq!(agreed(&[said("a", 1, 1)]), Some(1));
        assert_eq!(agreed(&[said("a", 1, 3)]), None);
        assert_eq!(agreed(&[said("a", 1, 3), said("b", 2, 3)]), None);
        let two = [said("a", 1, 3), said("b", 2, 3), said("c", 2, 3)];
        assert_eq!(agreed(&two), Some(2));
        // One that knows of more is believed.
        assert_eq!(agreed(&[said("a", 1, 3), said("b", 1, 4)]), None);
        let three = [said("a", 1, 4), said("b", 1, 4), said("c", 1, 4)];
        assert_eq!(agreed(&three), Some(1));
    }

    /// One that was started anew knows of no other, and may name the first master of all.
    #[test]
    fn one_that_knows_nobody_is_no_majority_of_those_that_are_listed() {
        assert_eq!(agreed(&[said("a", 1, 1)], 3), None);
        let two = [said("a", 1, 1), said("b", 1, 3)];
        assert_eq!(agreed(&two, 3), Some(charge(1)));
    }

    /// It has missed what was granted by the one between.
    #[test]
    fn a_master_that_is_put_back_in_charge_is_another_one() {
        let mut later = said("b", 1, 3);
        later.names.epoch = 2;
        let both = [said("a", 1, 3), later.clone()];
        assert_eq!(agreed(&both, 3), None);
        assert_eq!(
            agreed(&[both, [later.clone(), later.clone()]].concat(), 3),
            Some(later.names)
        );
    }

    #[test]
    fn who_is_in_charge_of_a_slot_is_read_from_the_nodes() {
        let nodes = "\
            a1 127.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-5460 [5461->-b2]\n\
            b2 127.0.0.1:7001@17001,name.example master - 0 0 2 connected 5461-10922\n\
            c3 127.0.0.1:7002@17002 master,fail - 0 0 3 disconnected 10923-16383\n\
            d4 127.0.0.1:7003@17003 slave c3 0 0 3 connected\n\
            e5 :0@0 slave,noaddr c3 0 0 3 disconnected\n\
            nonsense\n";
        let read = |slot, nodes| read_cluster(slot, nodes, ("x", true));
        let one = read(6000, nodes).unwrap();
        let shown = (one.id.as_str(), one.names.host.as_str(), one.of);
        assert_eq!((shown, one.names.port), (("a1", "name.example", 4), 7001));
        let by_address = read_cluster(6000, nodes, ("x", false)).unwrap();
        assert_eq!(by_address.names.host, "127.0.0.1");
        let port = |nodes| read(16383, nodes).unwrap().names.port;
        assert_eq!(port(nodes), 7002);
        // Both have it until all know: the larger epoch is the later one.
        let later =
            format!("{nodes}d4 127.0.0.1:7003@17003 master - 0 0 9 connected 10923-16383\n");
        assert_eq!(port(&later), 7003);
        let alone = "a1 :7000@17000 myself,master - 0 0 1 connected 0-16383\n";
        assert_eq!(read(1, alone).unwrap().names.host, "x");
        assert!(read(1, "").unwrap_err().contains("cluster-enabled"));
        let empty = "a1 :7000@17000 myself,master - 0 0 1 connected\n";
        assert!(read(1, empty).unwrap_err().contains("slot 1"));
    }

    #[test]
    fn an_answer_that_is_none_of_a_sentinel_names_nobody() {
        let fields = |epoch: &str, others: &str| {
            let pairs = [("config-epoch", epoch), ("num-other-sentinels", others)];
            let owned = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
            HashMap::from(owned)
        };
        let good = fields("0", "2");
        let at = |host: &str, port| Some((host.to_owned(), port));
        let read = |id: &str, address, after| read_sentinel(id.to_owned(), &good, address, after);
        assert_eq!(read("a", at("h", 1), &good), Ok(said("a", 1, 3)));
        let (many, below) = (fields("0", "many"), fields("-1", "2"));
        for (id, address, after) in [
            ("", at("h", 1), &good),
            ("a", None, &good),
            ("a", at("", 1), &good),
            ("a", at("h", 0), &good),
            ("a", at("h", 1), &many),
            ("a", at("h", 1), &below),
        ] {
            assert!(read(id, address, after).is_err());
        }
        let later = fields("1", "2");
        let moving = read("a", at("h", 1), &later).unwrap_err();
        assert!(moving.contains("about to"), "{moving}");
    }
}
