//! Requests to the members of a cluster, over etcd's HTTP gateway: one member as long as it serves, then the next.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use reqwest::{RequestBuilder, Response, header, redirect::Policy};
use rustls::ClientConfig;
use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, de::DeserializeOwned};
use tracing::debug;

use super::{
    address,
    civil::Civil,
    error::Trouble,
    settings::EtcdNodeSettings,
    version,
    wire::{Done, LoggedIn, Login, Refused, Txn, Versions},
};
use crate::{
    clock::Clock,
    node::{NodeError, Refusal},
};

/// The longest answer that is read.
const LONGEST: usize = 256 << 20;
/// Connections are made within this time, or not at all.
const CONNECT: Duration = Duration::from_secs(2);

/// A way to the members, with connections of its own: they are driven where they were made, and no caller waits for another's.
pub(super) struct Client {
    http: reqwest::Client,
    cluster: Arc<ClusterState>,
}

/// The members, and what is known of them.
struct ClusterState {
    tls: ClientConfig,
    members: Vec<String>,
    /// Which of them is asked.
    at: AtomicUsize,
    login: Option<(String, SecretString)>,
    /// That of our user; `None` before one was asked for.
    token: Mutex<Option<String>>,
    /// The time of each member.
    civil: Vec<Mutex<Civil>>,
    /// Which of them are not too old.
    new_enough: Vec<AtomicBool>,
    clock: Clock,
}

// === impl Client ===

impl Client {
    pub(super) fn new(settings: &EtcdNodeSettings, clock: Clock) -> Result<Self, String> {
        let mut members = Vec::new();
        for endpoint in &settings.endpoints {
            members.push(address::origin(endpoint).map_err(|why| format!("the endpoint {why}"))?);
        }
        if members.is_empty() {
            return Err("it has no endpoints".to_owned());
        }
        // The CAs of the system are many: they are read where they are needed.
        let tls = match members.iter().any(|member| member.starts_with("https:")) {
            true => {
                let tls = address::client_config(&settings.tls);
                tls.map_err(|(name, why)| format!("locks.etcd.tls.{name}: {why}"))?
            }
            false => address::no_tls()?,
        };
        let http = http(&tls).map_err(|why| format!("no client can be made: {why}"))?;
        let login = match (&settings.username, &settings.password) {
            (Some(name), Some(password)) => Some((name.clone(), password.clone())),
            _ => None,
        };
        let cluster = ClusterState {
            tls,
            at: AtomicUsize::new(0),
            login,
            token: Mutex::default(),
            civil: members.iter().map(|_| Mutex::default()).collect(),
            new_enough: members.iter().map(|_| AtomicBool::new(false)).collect(),
            members,
            clock,
        };
        Ok(Self {
            http,
            cluster: Arc::new(cluster),
        })
    }

    /// Another way to the same members.
    pub(super) fn another(&self) -> Self {
        Self {
            // What was made once can be made again; else they share it.
            http: http(&self.cluster.tls).unwrap_or_else(|_| self.http.clone()),
            cluster: Arc::clone(&self.cluster),
        }
    }

    /// Milliseconds since 1970 that the clock of this member has reached for certain, and how much more it may be; `None` where none of
    /// its answers was dated.
    pub(super) fn civil_ms(&self, member: usize) -> Option<(i64, Duration)> {
        let civil = self.cluster.civil.get(member)?;
        let civil = *civil.lock().unwrap_or_else(PoisonError::into_inner);
        civil.now(self.cluster.clock.now())
    }

    pub(super) fn members(&self) -> usize {
        self.cluster.members.len()
    }

    /// Where a member is: without user and password, which are refused there.
    pub(super) fn name_of(&self, member: usize) -> &str {
        let members = &self.cluster.members;
        let member = members.get(member).or(members.first());
        member.map_or("", String::as_str)
    }

    /// Asks a member that is met for the first time of which version it is, and the others in turn where that is too old. One that
    /// does not tell is judged by what it answers to all else.
    pub(super) async fn is_new_enough(&self, limit: Duration) -> Result<(), NodeError> {
        let mut first = None;
        for _ in 0..self.cluster.members.len() {
            let member = self.member();
            let Some(known) = self.cluster.new_enough.get(member) else {
                break;
            };
            if known.load(Ordering::Relaxed) {
                return Ok(());
            }
            let why = match self.version(member, limit).await {
                Ok(found) => match version::too_old(&found) {
                    Some(said) => Trouble::Elsewhere(NodeError::Refused {
                        refusal: Refusal::Version,
                        said,
                    }),
                    None => {
                        known.store(true, Ordering::Relaxed);
                        return Ok(());
                    }
                },
                // It answers, and keeps that door shut.
                Err(Trouble::Elsewhere(NodeError::Refused { .. })) => return Ok(()),
                Err(why) => why,
            };
            match why.at(self.name_of(member)) {
                Trouble::Elsewhere(why) => {
                    self.leave(member);
                    // One that answers says more than one that is silent.
                    if matches!(first, None | Some(NodeError::Unreachable(_))) {
                        first = Some(why);
                    }
                }
                // The time is over.
                Trouble::Unknown(why @ NodeError::Timeout(_)) => {
                    self.leave(member);
                    return Err(why);
                }
                Trouble::Nothing(_) | Trouble::Unknown(_) | Trouble::Token => return Ok(()),
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// The version that a member tells.
    async fn version(&self, member: usize, limit: Duration) -> Result<String, Trouble> {
        let request = self.http.get(format!("{}/version", self.name_of(member)));
        let answered = self
            .cluster
            .clock
            .timeout(limit, self.answer(member, request, limit));
        let unknown = |_| Trouble::Unknown(NodeError::Timeout(limit));
        let text = answered.await.map_err(unknown)??;
        let nonsense = |why| Trouble::Nothing(NodeError::Protocol(format!("no version: {why}")));
        let Versions { etcdserver } = serde_json::from_slice(&text).map_err(nonsense)?;
        Ok(etcdserver)
    }

    /// A transaction that may be asked twice: it only looks, or makes what is made once.
    pub(super) async fn ask_txn(&self, txn: &Txn, limit: Duration) -> Result<Done, NodeError> {
        let (member, done): (usize, Done) = self.ask("/v3/kv/txn", txn, limit).await?;
        Ok(Done { member, ..done })
    }

    /// A transaction, asked once.
    pub(super) async fn post_txn(&self, txn: &Txn, limit: Duration) -> Result<Done, Trouble> {
        let (member, done): (usize, Done) = self.post("/v3/kv/txn", txn, limit).await?;
        Ok(Done { member, ..done })
    }

    /// Asks a member, and the others in turn where it does not serve: for what may be asked twice.
    pub(super) async fn ask<A: DeserializeOwned>(
        &self,
        path: &str,
        question: &impl Serialize,
        limit: Duration,
    ) -> Result<(usize, A), NodeError> {
        let mut first = None;
        for _ in 0..self.cluster.members.len() {
            match self.post(path, question, limit).await {
                Ok(answer) => return Ok(answer),
                // The time is over.
                Err(Trouble::Unknown(why @ NodeError::Timeout(_))) => return Err(why),
                Err(Trouble::Elsewhere(why) | Trouble::Unknown(why)) => {
                    // One that answers says more than one that is silent.
                    if matches!(first, None | Some(NodeError::Unreachable(_))) {
                        first = Some(why);
                    }
                }
                Err(why) => return Err(why.error()),
            }
        }
        Err(first.unwrap_or_else(|| NodeError::Unreachable("it has no members".to_owned())))
    }

    /// Asks the member that is in use, once, and says which it was, also where it fails. The next member is in use after one that
    /// does not serve.
    async fn post<A: DeserializeOwned>(
        &self,
        path: &str,
        question: &impl Serialize,
        limit: Duration,
    ) -> Result<(usize, A), Trouble> {
        let member = self.cluster.at.load(Ordering::Relaxed);
        let done = self.ask_one(member, path, question, limit).await;
        if matches!(done, Err(Trouble::Elsewhere(_) | Trouble::Unknown(_))) {
            self.leave(member);
        }
        let name = self.name_of(member);
        if matches!(done, Err(Trouble::Unknown(NodeError::Timeout(_)))) {
            debug!(member = name, path, "no answer in time");
        }
        done.map(|answer| (member, answer))
            .map_err(|trouble| trouble.at(name))
    }

    /// Asks this member, once; a token that is refused is asked for again.
    pub(super) async fn ask_one<A: DeserializeOwned>(
        &self,
        member: usize,
        path: &str,
        question: &impl Serialize,
        limit: Duration,
    ) -> Result<A, Trouble> {
        match self.post_to(member, path, question, limit).await {
            Err(Trouble::Token) if self.cluster.login.is_some() => {
                *self
                    .cluster
                    .token
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = None;
                self.post_to(member, path, question, limit).await
            }
            done => done,
        }
    }

    /// Another member is in use, unless it is already.
    pub(super) fn leave(&self, member: usize) {
        let next = (member + 1) % self.cluster.members.len();
        // Somebody else may have left it already.
        let (now, then) = (Ordering::Relaxed, Ordering::Relaxed);
        _ = self.cluster.at.compare_exchange(member, next, now, then);
    }

    pub(super) fn member(&self) -> usize {
        self.cluster.at.load(Ordering::Relaxed)
    }

    /// Begins a stream of answers.
    pub(super) async fn open(
        &self,
        member: usize,
        path: &str,
        question: &impl Serialize,
        limit: Duration,
    ) -> Result<Response, Trouble> {
        let request = self.request(member, path, question, limit).await?;
        let sent = self.cluster.clock.timeout(limit, request.send()).await;
        let sent = sent.map_err(|_| Trouble::Unknown(NodeError::Timeout(limit)))?;
        let response = sent.map_err(|why| Trouble::of(&why.without_url(), limit))?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(self.refused(response, limit).await),
        }
    }

    pub(super) async fn post_to<A: DeserializeOwned>(
        &self,
        member: usize,
        path: &str,
        question: &impl Serialize,
        limit: Duration,
    ) -> Result<A, Trouble> {
        let request = self.request(member, path, question, limit).await?;
        let answered = self
            .cluster
            .clock
            .timeout(limit, self.answer(member, request, limit));
        let unknown = |_| Trouble::Unknown(NodeError::Timeout(limit));
        let text = answered.await.map_err(unknown)??;
        let nonsense =
            |why| Trouble::Unknown(NodeError::Protocol(format!("no answer of etcd: {why}")));
        serde_json::from_slice(&text).map_err(nonsense)
    }

    async fn answer(
        &self,
        member: usize,
        request: RequestBuilder,
        limit: Duration,
    ) -> Result<Vec<u8>, Trouble> {
        let asked = self.cluster.clock.now();
        let sent = request.send().await;
        let response = sent.map_err(|why| Trouble::of(&why.without_url(), limit))?;
        let arrived = self.cluster.clock.now();
        let date = response.headers().get(header::DATE);
        let date = date.and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        let since = date.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
        if let Some(seconds) = since.and_then(|since| i64::try_from(since.as_secs()).ok())
            && let Some(civil) = self.cluster.civil.get(member)
        {
            let mut civil = civil.lock().unwrap_or_else(PoisonError::into_inner);
            civil.saw(seconds, asked, arrived);
        }
        match response.status().is_success() {
            true => body(response, limit).await,
            false => Err(self.refused(response, limit).await),
        }
    }

    async fn refused(&self, response: Response, limit: Duration) -> Trouble {
        let status = response.status().as_u16();
        let read = self
            .cluster
            .clock
            .timeout(limit, body(response, limit))
            .await;
        let text = read.ok().and_then(Result::ok).unwrap_or_default();
        // Some of its endpoints say it in plain words.
        let plain = |_| Refused {
            message: String::from_utf8_lossy(&text).trim().to_owned(),
            ..Refused::default()
        };
        let refused: Refused = serde_json::from_slice(&text).unwrap_or_else(plain);
        Trouble::said(status, &refused)
    }

    async fn request(
        &self,
        member: usize,
        path: &str,
        question: &impl Serialize,
        limit: Duration,
    ) -> Result<RequestBuilder, Trouble> {
        let request = self.plain(member, path, question)?;
        let Some((name, password)) = &self.cluster.login else {
            return Ok(request);
        };
        let known = self
            .cluster
            .token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let token = match known {
            Some(token) => token,
            None => {
                let login = Login {
                    name,
                    password: password.expose_secret(),
                };
                let asking = self.plain(member, "/v3/auth/authenticate", &login)?;
                let answered = self
                    .cluster
                    .clock
                    .timeout(limit, self.answer(member, asking, limit))
                    .await;
                // Whatever became of it, what was to be asked with it has not left.
                let answered = match answered {
                    Ok(Ok(answered)) => answered,
                    // Nobody has to log in: an empty token.
                    Ok(Err(Trouble::Nothing(NodeError::Unfit(why))))
                        if why.contains("not enabled") =>
                    {
                        b"{\"token\":\"\"}".to_vec()
                    }
                    // Its user would go by none.
                    Ok(Err(Trouble::Token)) => {
                        let why = "the login was refused; see locks.etcd.username and locks.etcd.password";
                        return Err(Trouble::Nothing(NodeError::Auth(why.to_owned())));
                    }
                    Ok(Err(Trouble::Unknown(why))) => return Err(Trouble::Elsewhere(why)),
                    Ok(Err(why)) => return Err(why),
                    Err(_) => return Err(Trouble::Elsewhere(NodeError::Timeout(limit))),
                };
                let nonsense = |why| {
                    let why = format!("no answer of etcd to a login: {why}");
                    Trouble::Elsewhere(NodeError::Protocol(why))
                };
                let LoggedIn { token } = serde_json::from_slice(&answered).map_err(nonsense)?;
                let mut known = self
                    .cluster
                    .token
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                known.insert(token).clone()
            }
        };
        if token.is_empty() {
            return Ok(request);
        }
        let mut value = header::HeaderValue::from_str(&token).map_err(|_| Trouble::Token)?;
        value.set_sensitive(true);
        Ok(request.header(header::AUTHORIZATION, value))
    }

    fn plain(
        &self,
        member: usize,
        path: &str,
        question: &impl Serialize,
    ) -> Result<RequestBuilder, Trouble> {
        let text = serde_json::to_vec(question);
        let text = text.map_err(|why| Trouble::Nothing(NodeError::Protocol(why.to_string())))?;
        let origin = self.name_of(member);
        let request = self.http.post(format!("{origin}{path}"));
        Ok(request
            .header(header::CONTENT_TYPE, "application/json")
            .body(text))
    }
}

fn http(tls: &ClientConfig) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        // What stands between is for the traffic of people.
        .no_proxy()
        .redirect(Policy::none())
        .http1_only()
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .pool_idle_timeout(Duration::from_secs(60))
        .tls_backend_preconfigured(tls.clone())
        .build()
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("members", &self.cluster.members)
            .finish_non_exhaustive()
    }
}

async fn body(mut response: Response, limit: Duration) -> Result<Vec<u8>, Trouble> {
    let mut text = Vec::new();
    loop {
        let more = response.chunk().await;
        let more = more.map_err(|why| match Trouble::of(&why.without_url(), limit) {
            Trouble::Elsewhere(why) => Trouble::Unknown(why),
            other => other,
        })?;
        let Some(more) = more else { return Ok(text) };
        if text.len() + more.len() > LONGEST {
            let why = "an answer without an end".to_owned();
            return Err(Trouble::Unknown(NodeError::Protocol(why)));
        }
        text.extend_from_slice(&more);
    }
}
