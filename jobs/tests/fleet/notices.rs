//! What people and services hear of a job that breaks, while its leader is killed and one of the receivers never answers.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener as Deaf},
    sync::{Arc, Condvar, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Uri},
};
use serde_json::Value;
use tokio::{net::TcpListener, runtime::Runtime};
use watchkeeper::spawn::Spawn;

use crate::{fleet::Fleet, store::Store, wait::SOON};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

const CONFIG: &str = r#"
[worker]
notify = ["ops", "deaf", "beat"]
[notices.ops]
kind = "webhook"
url_file = "$FOLDER/url"
secret = "$SECRET"
[notices.deaf]
kind = "webhook"
url = "http://$DEAF/hook"
[notices.beat]
kind = "ping"
url = "http://$SERVICE/ping/${job}"
[jobs.check]
kind = "exec"
schedule = "@every 1s"
retry = 1
params = { command = ["test", "-e", "$FOLDER/well"] }
"#;

/// A request: path, body, and whether its signature is right.
#[derive(Clone, Debug)]
struct Heard {
    path: String,
    body: Value,
    signed: bool,
}

/// Takes everything; ends with its runtime.
struct Service {
    address: SocketAddr,
    heard: Arc<(Mutex<Vec<Heard>>, Condvar)>,
    _runtime: Runtime,
}

impl Service {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let heard = Arc::default();
        let listener = runtime
            .block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(take).with_state(Arc::clone(&heard));
        runtime.block_on(async {
            Spawn::system().spawn(async move { axum::serve(listener, app).await.unwrap() });
        });
        Self {
            address,
            heard,
            _runtime: runtime,
        }
    }

    /// Waits until what was heard is as wanted.
    fn wait(&self, what: &str, wanted: impl Fn(&[Heard]) -> bool) -> Vec<Heard> {
        let (all, news) = &*self.heard;
        let all = all.lock().unwrap();
        let not_yet = |all: &mut Vec<Heard>| !wanted(all);
        let (all, waited) = news.wait_timeout_while(all, SOON, not_yet).unwrap();
        assert!(!waited.timed_out(), "no {what} within {SOON:?}: {all:?}");
        all.clone()
    }
}

async fn take(
    State(heard): State<Arc<(Mutex<Vec<Heard>>, Condvar)>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) {
    let signed = standardwebhooks::Webhook::new(SECRET)
        .unwrap()
        .verify(&body, &headers)
        .is_ok();
    let (all, news) = &*heard;
    all.lock().unwrap().push(Heard {
        path: uri.path().to_owned(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
        signed,
    });
    news.notify_all();
}

/// The events that the webhook was told.
fn told(heard: &[Heard]) -> Vec<&str> {
    let hooks = heard.iter().filter(|one| one.path == "/hook");
    hooks
        .map(|one| one.body["data"]["event"].as_str().unwrap())
        .collect()
}

fn pings(heard: &[Heard], path: &str) -> usize {
    heard.iter().filter(|one| one.path == path).count()
}

pub(crate) fn a_job_that_breaks_is_told_once_although_its_leader_is_killed(store: Store) {
    let service = Service::start();
    // It takes connections, and never says a word.
    let deaf = Deaf::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let config = CONFIG
        .replace("$SECRET", SECRET)
        .replace("$SERVICE", &service.address.to_string())
        .replace("$DEAF", &deaf.local_addr().unwrap().to_string());
    let mut fleet = Fleet::new(store, &config);
    let url = format!("http://{}/hook\n", service.address);
    std::fs::write(fleet.file("url"), url).unwrap();
    let checked = fleet.command(&["check"]);
    assert!(checked.contains("ops, deaf, beat"), "{checked}");
    let shown = fleet.command(&["config"]);
    assert!(
        !shown.contains("whsec_") && !shown.contains("/ping/"),
        "{shown}"
    );
    for worker in [fleet.start(), fleet.start()] {
        fleet.wait_until_ready(worker);
    }
    let first = fleet.leader("check");
    service.wait("failure", |heard| {
        told(heard) == ["failed"] && pings(heard, "/ping/check/fail") > 2
    });
    let mark = fleet.log.mark();
    fleet.kill(first.worker);
    let next = fleet.next_leader(mark, "check");
    let before = pings(&service.wait("anything", |_| true), "/ping/check/fail");
    let heard = service.wait("failure under the next leader", |heard| {
        pings(heard, "/ping/check/fail") > before + 2
    });
    assert_eq!(told(&heard), ["failed"], "once for all of them");
    std::fs::write(fleet.file("well"), "").unwrap();
    let heard = service.wait("recovery", |heard| {
        told(heard).len() > 1 && pings(heard, "/ping/check") > 2
    });
    assert_eq!(told(&heard), ["failed", "recovered"]);
    let hooks: Vec<&Heard> = heard.iter().filter(|one| one.path == "/hook").collect();
    assert!(hooks.iter().all(|hook| hook.signed), "{hooks:?}");
    assert_eq!(hooks[0].body["type"], "watchkeeper.job.failed");
    assert_eq!(hooks[0].body["data"]["job"], "check");
    assert_eq!(hooks[1].body["data"]["since"], hooks[0].body["timestamp"]);
    // The one that does not answer keeps no lease and no process for long.
    let drains = fleet.terminate(next.worker);
    assert!(
        fleet.wait_until_gone(next.worker),
        "a drained worker ends well"
    );
    let took = watchkeeper::clock::Clock::system().now().since(drains);
    fleet.measured("drain with a deaf receiver", &took);
    assert!(took.as_secs() < 15, "{took:?}");
}
