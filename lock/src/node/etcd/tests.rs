//! What members that are none can show: versions, faults and what is told of itself. The rest is in `tests/etcd`.

use std::time::{Duration, UNIX_EPOCH};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::{
    base::paper::Paper,
    node::{GuardSettings, Op, Refusal},
};

/// The status and the text with which a path is answered.
type Says = Arc<dyn Fn(&str) -> (u16, String) + Send + Sync>;

/// A member that is none: it answers by path alone, and notes what it was asked.
struct Fake {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

// === impl Fake ===

impl Fake {
    async fn start(says: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let says: Says = Arc::new(says);
        let noted = Arc::clone(&asked);
        Spawn::system().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serve(stream, Arc::clone(&noted), Arc::clone(&says));
                Spawn::system().spawn(serving);
            }
        });
        Self { url, asked }
    }

    /// One of this version that answers everything else so.
    async fn of_version(version: &'static str, status: u16, text: &'static str) -> Self {
        Self::start(move |path| match path {
            "/version" => (200, format!("{{\"etcdserver\":\"{version}\"}}")),
            _ => (status, text.to_owned()),
        })
        .await
    }

    /// One that tells this of itself, and nothing else.
    async fn telling(status: String) -> Self {
        Self::start(move |path| match path {
            "/v3/maintenance/status" => (200, status.clone()),
            _ => (404, String::new()),
        })
        .await
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, asked: Arc<Mutex<Vec<String>>>, says: Says) {
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    let mut text = Vec::new();
    let mut bytes = [0; 8 * 1024];
    while let Ok(n @ 1..) = stream.read(&mut bytes).await {
        text.extend_from_slice(&bytes[..n]);
        while let Some(length) = length(&text) {
            let request: Vec<u8> = text.drain(..length).collect();
            let request = String::from_utf8_lossy(&request).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default();
            asked.lock().unwrap().push(path.to_owned());
            let (status, said) = says(path);
            let length = said.len();
            let answer = format!(
                "HTTP/1.1 {status} said\r\nDate: {date}\r\nContent-Length: {length}\r\n\r\n{said}"
            );
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
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

const DENIED: &str = "{\"code\":7,\"message\":\"etcdserver: permission denied\"}";

fn settings(urls: &[&str]) -> EtcdNodeSettings {
    EtcdNodeSettings {
        endpoints: urls.iter().map(|url| (*url).to_owned()).collect(),
        username: None,
        password: None,
        tls: EtcdTlsFiles::default(),
        node_timeout: Duration::from_secs(3),
        namespace: "n".to_owned(),
        guard: GuardSettings::default(),
    }
}

fn node(settings: EtcdNodeSettings) -> EtcdNode {
    EtcdNode::new(settings, Clock::system(), Spawn::system()).unwrap()
}

/// Why a look at a lock is not answered.
async fn trouble(node: &EtcdNode) -> NodeError {
    let key = "k".to_owned();
    let call = Call {
        not_after: None,
        ops: vec![Op::Read { key }],
    };
    node.call(call).await.unwrap_err()
}

#[tokio::test]
async fn an_old_server_is_refused_by_its_version_and_asked_nothing_else() {
    let old = Fake::of_version("3.3.27", 404, "404 page not found").await;
    let node = node(settings(&[&old.url]));
    for times in 1..=2 {
        let why = trouble(&node).await;
        let NodeError::Refused { refusal, said } = &why else {
            panic!("{why:?}")
        };
        assert_eq!(*refusal, Refusal::Version);
        let wanted = format!("{}: etcd 3.3.27, where 3.4 or later is needed", old.url);
        assert_eq!(*said, wanted);
        assert!(why.to_string().contains("etcd to 3.4 or later"), "{why}");
        // Also after it was upgraded it is asked first.
        assert_eq!(old.asked(), vec!["/version"; times]);
    }
}

#[tokio::test]
async fn the_next_member_is_asked_after_one_that_is_too_old() {
    let old = Fake::of_version("3.3.27", 404, "404 page not found").await;
    let new = Fake::of_version("3.5.21", 403, DENIED).await;
    let node = node(settings(&[&old.url, &new.url]));
    let why = trouble(&node).await;
    assert!(matches!(why, NodeError::Auth(_)), "{why:?}");
    assert_eq!(old.asked(), ["/version"]);
    assert_eq!(new.asked(), ["/version", "/v3/kv/txn"]);
    // Once for each member.
    trouble(&node).await;
    assert_eq!(new.asked(), ["/version", "/v3/kv/txn", "/v3/kv/txn"]);
}

#[tokio::test]
async fn a_listener_that_is_not_let_in_says_so_once() {
    let (paper, _reading) = Paper::reading(tracing::Level::DEBUG);
    let (one, other) = (
        Fake::of_version("3.5.21", 403, DENIED).await,
        Fake::of_version("3.5.21", 403, DENIED).await,
    );
    let node = node(EtcdNodeSettings {
        node_timeout: Duration::from_millis(100),
        ..settings(&[&one.url, &other.url])
    });
    let _heard = node.announcements().await;
    let clock = Clock::system();
    let end = clock.now() + Duration::from_secs(15);
    let lines = loop {
        let text = paper.text();
        let lines = text
            .lines()
            .filter(|line| line.contains("no announcements"));
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        if lines.len() > 2 {
            break lines;
        }
        assert!(clock.now() < end, "it is tried again: {lines:?}");
        clock.sleep(Duration::from_millis(10)).await;
    };
    assert!(
        lines[0].contains("WARN") && lines[0].contains("grant-permission"),
        "{lines:?}"
    );
    assert!(
        lines[1..].iter().all(|line| line.contains("DEBUG")),
        "{lines:?}"
    );
}

/// As a proxy does whose server is away: the greeting is taken, and the connection closed.
#[tokio::test]
async fn a_connection_that_is_closed_in_its_greeting_says_nothing_of_certificates() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    Spawn::system().spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            _ = stream.read(&mut [0; 64 * 1024]).await;
        }
    });
    let why = trouble(&node(settings(&[&url]))).await;
    assert!(why.to_string().contains("tls handshake eof"), "{why}");
    assert!(matches!(why, NodeError::Unreachable(_)), "{why:?}");
}

/// Also one that was not asked for its version, as it came into use when another was away.
#[tokio::test]
async fn a_call_goes_on_to_the_next_member_where_one_has_no_gateway() {
    let none = Fake::start(|_| (404, "404 page not found".to_owned())).await;
    let good = Fake::of_version("3.5.21", 403, DENIED).await;
    let why = trouble(&node(settings(&[&none.url, &good.url]))).await;
    assert!(matches!(why, NodeError::Auth(_)), "{why:?}");
    assert!(none.asked().contains(&"/v3/kv/txn".to_owned()));
    assert!(good.asked().contains(&"/v3/kv/txn".to_owned()));
}

/// A proxy may keep that door shut.
#[tokio::test]
async fn a_member_that_tells_no_version_is_judged_by_its_answers() {
    for (status, said) in [(404, "nothing"), (200, "{}"), (200, "no JSON"), (503, "")] {
        let shut = Fake::start(move |path| match path {
            "/version" => (status, said.to_owned()),
            _ => (403, DENIED.to_owned()),
        })
        .await;
        let why = trouble(&node(settings(&[&shut.url]))).await;
        assert!(matches!(why, NodeError::Auth(_)), "{said}: {why:?}");
        assert_eq!(shut.asked(), ["/version", "/v3/kv/txn"], "{said}");
    }
    // What answers nowhere is no gateway that we know.
    let nothing = Fake::start(|_| (404, String::new())).await;
    let why = trouble(&node(settings(&[&nothing.url]))).await;
    let said = "no gateway of etcd 3.4 or later answers there";
    let said = format!("{}: {said}", nothing.url);
    assert!(why.to_string().starts_with(&said), "{why}");
}

#[tokio::test]
async fn the_member_that_failed_is_named_and_no_password_is_shown() {
    let denies = Fake::of_version("3.5.21", 403, DENIED).await;
    let babbles = Fake::of_version("3.5.21", 200, "no JSON").await;
    let full = "{\"code\":8,\"message\":\"etcdserver: mvcc: database space exceeded\"}";
    let full = Fake::of_version("3.5.21", 429, full).await;
    for (member, cause) in [(&denies, "auth"), (&babbles, "protocol"), (&full, "oom")] {
        let why = trouble(&node(settings(&[&member.url]))).await;
        assert_eq!(why.cause(), cause, "{why}");
        let named = format!("{}: ", member.url);
        assert!(why.to_string().contains(&named), "{why}");
    }
    let nowhere = "http://127.0.0.1:1";
    let why = trouble(&node(settings(&[nowhere]))).await;
    let said = format!("unreachable: {nowhere}: ");
    assert!(why.to_string().starts_with(&said), "{why}");
    let wrong = "{\"code\":3,\"message\":\"etcdserver: authentication failed, invalid user ID or password\"}";
    let strict = Fake::of_version("3.5.21", 400, wrong).await;
    let why = trouble(&node(EtcdNodeSettings {
        username: Some("me".to_owned()),
        password: Some("hunter2".to_owned().into()),
        ..settings(&[&strict.url])
    }))
    .await;
    let said = format!("access refused: {}: ", strict.url);
    assert!(why.to_string().starts_with(&said), "{why}");
    assert!(!why.to_string().contains("hunter2"), "{why}");
    assert_eq!(strict.asked(), ["/version", "/v3/auth/authenticate"]);
}

/// What a member tells of itself. `leader` is a number of a member, or 0.
fn status(cluster: u64, member: u64, leader: u64, more: &str) -> String {
    format!(
        "{{\"header\":{{\"cluster_id\":\"{cluster}\",\"member_id\":\"{member}\",\"revision\":\"5\"}},\
         \"version\":\"3.5.21\",\"dbSize\":\"20480\",\"dbSizeInUse\":\"16384\",\"leader\":\"{leader}\"{more}}}"
    )
}

/// Also of one that is silent: the others are asked beside it, and it is not waited for long.
#[tokio::test]
async fn every_endpoint_tells_of_itself_and_a_stranger_is_named() {
    let alarm = ",\"errors\":[\"memberID:12 alarm:NOSPACE \"]";
    let silent = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let urls = silent
        .each_ref()
        .map(|one| format!("http://{}", one.local_addr().unwrap()));
    let stranger = Fake::telling(status(2, 21, 21, "")).await;
    let leader = Fake::telling(status(1, 11, 11, alarm)).await;
    let full = Fake::telling(status(1, 12, 11, alarm)).await;
    let learner = Fake::telling(status(1, 13, 11, ",\"isLearner\":true")).await;
    let node = node(settings(&[
        &urls[0],
        &stranger.url,
        &learner.url,
        &full.url,
        &leader.url,
        "http://127.0.0.1:1",
        &urls[1],
    ]));
    let clock = Clock::system();
    let began = clock.now();
    let facts = node.inspect().await.unwrap();
    let took = clock.now().since(began);
    // Two that are silent, one after the other, would take four seconds.
    assert!(took < Duration::from_secs(4), "{took:?}");
    // A member that takes part speaks for all of them.
    assert_eq!(facts.role.as_deref(), Some("follower"));
    assert_eq!(facts.version.as_deref(), Some("3.5.21"));
    assert_eq!(facts.run_id.as_deref(), Some("0000000000000001"));
    assert_eq!((facts.size, facts.in_use), (Some(20_480), Some(16_384)));
    assert_eq!(facts.alarms.as_deref(), Some("memberID:12 alarm:NOSPACE"));
    let seen: Vec<_> = (facts.members.iter())
        .map(|member| {
            let role = member.role.as_deref().unwrap_or("no answer");
            (role, member.stranger, member.alarms.is_some())
        })
        .collect();
    let wanted = [
        ("no answer", false, false),
        ("leader", true, false),
        ("learner", false, false),
        ("follower", false, true),
        ("leader", false, false),
        ("no answer", false, false),
        ("no answer", false, false),
    ];
    assert_eq!(seen, wanted);
    let why = |member: usize| facts.members[member].error.clone().unwrap_or_default();
    assert!(why(0).starts_with("no answer within"), "{}", why(0));
    assert!(why(5).starts_with("unreachable"), "{}", why(5));
    assert_eq!(facts.members[1].address, stranger.url);
    let cluster = facts.members[1].cluster.as_deref();
    assert_eq!(cluster, Some("0000000000000002"));
}

#[tokio::test]
async fn of_members_that_all_fail_one_that_answers_says_why() {
    let shut = Fake::start(|_| (404, String::new())).await;
    let node = node(settings(&["http://127.0.0.1:1", &shut.url]));
    let why = node.inspect().await.unwrap_err();
    assert_eq!(why.cause(), "version", "{why}");
}
