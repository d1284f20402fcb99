//! What the service manager that has started this process is told: that the worker serves, that it turns, that it drains.
//!
//! The protocol is that of `sd_notify`: datagrams to the socket that `NOTIFY_SOCKET` names, a path or, behind an `@`, an abstract
//! name. Without that variable nothing is told.
//!
//! | message | when |
//! | --- | --- |
//! | `READY=1` | the page listens, and the engines of the jobs begin |
//! | `WATCHDOG=1` | twice in the time of `WATCHDOG_USEC`, while runtime and keeper turn, as `/livez` judges it |
//! | `STOPPING=1` | the drain begins, whichever way it was asked for |
//!
//! # Invariants
//! - A worker that stands still gives no sign of life, so that its manager ends it.
//!   (a_worker_that_stands_still_gives_no_sign_of_life, a_keeper_that_stands_still_gives_no_sign_of_life)
//! - A worker that is well again says so at once.         (a_worker_that_turns_again_gives_its_sign_of_life_at_once)
//! - A manager that has no room for a message delays nothing but that message.   (a_manager_that_is_busy_is_told_later)

use std::{
    env,
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    path::Path,
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// Where messages go.
const SOCKET: &str = "NOTIFY_SOCKET";
/// So many microseconds after the last sign of life the manager ends the process.
const WATCHDOG: &str = "WATCHDOG_USEC";
/// The process that is meant by that.
const WATCHED: &str = "WATCHDOG_PID";

/// A manager that has no room for a message is tried again after this, so often at most.
const AGAIN: Duration = Duration::from_millis(100);
const TRIES: u32 = 100;
/// A worker that stood still when a sign of life was due is looked at so often until the next would be.
const LOOKS: u32 = 20;

/// The service manager of this process.
pub(super) struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// Between two signs of life; nothing where it waits for none.
    every: Option<Duration>,
}

// === impl ServiceManager ===

impl ServiceManager {
    /// The one that the environment names, if any.
    pub(super) fn of_process() -> Option<Self> {
        let found = Self::named(env::var_os, std::process::id());
        found.unwrap_or_else(|error| {
            tracing::warn!(%error, "the service manager cannot be told anything");
            None
        })
    }

    /// The one that these variables name to the process with this id.
    fn named(
        variable: impl Fn(&'static str) -> Option<OsString>,
        pid: u32,
    ) -> io::Result<Option<Self>> {
        let Some(name) = variable(SOCKET).filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
            _ => SocketAddr::from_pathname(Path::new(&name))?,
        };
        let socket = UnixDatagram::unbound()?;
        // The runtime waits for no other process.
        socket.set_nonblocking(true)?;
        let number = |name: &'static str| -> Option<u64> { variable(name)?.to_str()?.parse().ok() };
        // A program that starts this one may hand its own watchdog on with its environment.
        let meant = number(WATCHED).is_none_or(|watched| watched == u64::from(pid));
        let limit = number(WATCHDOG).filter(|usec| meant && *usec > 0);
        Ok(Some(Self {
            socket,
            address,
            every: limit.map(|usec| Duration::from_micros(usec) / 2),
        }))
    }

    /// Tells that the worker serves, then again and again that it turns, and when it drains. To be dropped when the worker has
    /// ended.
    pub(super) async fn attend(
        self,
        clock: Clock,
        turns: impl Fn() -> bool + Send,
        drain: CancellationToken,
    ) {
        self.tell(&clock, "READY=1").await;
        let drains = async {
            drain.cancelled().await;
            self.tell(&clock, "STOPPING=1").await;
        };
        tokio::join!(drains, self.give_signs_of_life(&clock, turns));
    }

    async fn give_signs_of_life(&self, clock: &Clock, turns: impl Fn() -> bool + Send) {
        let Some(every) = self.every else {
            return;
        };
        loop {
            // What stands still by this judgement must not be kept alive by a task that happens to go on.
            let next = if turns() {
                self.tell(clock, "WATCHDOG=1").await;
                every
            } else {
                // One that is well again, such as a process that was stopped for a while, must not be ended for one sign.
                every / LOOKS
            };
            clock.sleep(next).await;
        }
    }

    /// Says it as soon as there is room for it.
    async fn tell(&self, clock: &Clock, what: &str) {
        for _ in 0..TRIES {
            match self.send(what) {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    clock.sleep(AGAIN).await;
                }
                Err(error) => {
                    tracing::warn!(%error, what, "the service manager was not told");
                    return;
                }
            }
        }
        tracing::warn!(what, "the service manager was not told: it does not listen");
    }

    fn send(&self, what: &str) -> io::Result<()> {
        let sent = self.socket.send_to_addr(what.as_bytes(), &self.address);
        sent.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use tempfile::TempDir;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::{sim_clock::SimTime, spawn::Spawn};

    const SECOND: Duration = Duration::from_secs(1);

    /// A manager that waits for a sign of life every two seconds, and a worker that attends to it.
    struct Scene {
        socket: UnixDatagram,
        folder: TempDir,
        clock: Clock,
        turns: Arc<AtomicBool>,
        drain: CancellationToken,
    }

    impl Scene {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
            socket.set_nonblocking(true).unwrap();
            Self {
                socket,
                folder,
                clock: SimTime::new().clock(),
                turns: Arc::new(AtomicBool::new(true)),
                drain: CancellationToken::new(),
            }
        }

        fn attend(&self) -> JoinHandle<()> {
            let path = self.folder.path().join("notify");
            let variable = move |name: &str| match name {
                SOCKET => Some(path.clone().into_os_string()),
                WATCHDOG => Some("2000000".into()),
                _ => None,
            };
            let manager = ServiceManager::named(variable, 7).unwrap().unwrap();
            let turns = self.turns.clone();
            let turns = move || turns.load(Ordering::SeqCst);
            Spawn::system().spawn(manager.attend(self.clock.clone(), turns, self.drain.clone()))
        }

        /// What was told since the last call.
        fn told(&self) -> Vec<String> {
            received(&self.socket)
        }

        /// Leaves no room for another message.
        fn fill(&self) {
            let path = self.folder.path().join("notify");
            loop {
                // One sender alone may run out of its own memory before the receiver is full.
                let filler = UnixDatagram::unbound().unwrap();
                filler.set_nonblocking(true).unwrap();
                let mut sent = 0;
                while filler.send_to(b"filler", &path).is_ok() {
                    sent += 1;
                }
                if sent == 0 {
                    return;
                }
            }
        }
    }

    fn received(socket: &UnixDatagram) -> Vec<String> {
        let mut found = Vec::new();
        let mut buffer = [0; 64];
        while let Ok(length) = socket.recv(&mut buffer) {
            found.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        found
    }

    #[tokio::test(start_paused = true)]
    async fn a_manager_is_told_that_the_worker_serves_turns_and_drains() {
        let scene = Scene::new();
        let attending = scene.attend();
        scene.clock.sleep(SECOND / 2).await;
        assert_eq!(scene.told(), ["READY=1", "WATCHDOG=1"]);
        scene.clock.sleep(SECOND * 2).await;
        assert_eq!(scene.told(), ["WATCHDOG=1", "WATCHDOG=1"]);
        scene.drain.cancel();
        scene.clock.sleep(SECOND / 10).await;
        assert_eq!(scene.told(), ["STOPPING=1"]);
        scene.clock.sleep(SECOND).await;
        assert_eq!(scene.told(), ["WATCHDOG=1"], "a drain takes its time");
        attending.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_stands_still_gives_no_sign_of_life() {
        let scene = Scene::new();
        let attending = scene.attend();
        scene.clock.sleep(SECOND / 2).await;
        assert_eq!(scene.told().len(), 2);
        scene.turns.store(false, Ordering::SeqCst);
        scene.clock.sleep(SECOND * 5).await;
        assert_eq!(scene.told(), [""; 0]);
        scene.turns.store(true, Ordering::SeqCst);
        scene.clock.sleep(SECOND / 2).await;
        assert_eq!(scene.told(), ["WATCHDOG=1"]);
        attending.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_turns_again_gives_its_sign_of_life_at_once() {
        let scene = Scene::new();
        let attending = scene.attend();
        scene.clock.sleep(SECOND / 2).await;
        assert_eq!(scene.told().len(), 2);
        scene.turns.store(false, Ordering::SeqCst);
        // The sign that was due at the first second is left out.
        scene.clock.sleep(SECOND * 3 / 4).await;
        assert_eq!(scene.told(), [""; 0]);
        scene.turns.store(true, Ordering::SeqCst);
        scene.clock.sleep(SECOND / 10).await;
        assert_eq!(scene.told(), ["WATCHDOG=1"]);
        scene.clock.sleep(SECOND * 4 / 5).await;
        assert_eq!(scene.told(), [""; 0], "and then as usual");
        attending.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_manager_that_is_busy_is_told_later() {
        let scene = Scene::new();
        scene.fill();
        let attending = scene.attend();
        scene.clock.sleep(SECOND).await;
        let before = scene.told();
        assert!(!before.is_empty() && before.iter().all(|told| told == "filler"));
        scene.clock.sleep(SECOND / 2).await;
        assert_eq!(scene.told(), ["READY=1", "WATCHDOG=1"]);
        attending.abort();
    }

    #[test]
    fn a_manager_is_found_by_an_abstract_name_too() {
        let name = format!("watchkeeper-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_nonblocking(true).unwrap();
        let variable = |asked: &str| (asked == SOCKET).then(|| OsString::from(format!("@{name}")));
        let manager = ServiceManager::named(variable, 7).unwrap().unwrap();
        assert_eq!(manager.every, None, "no watchdog waits");
        manager.send("READY=1").unwrap();
        assert_eq!(received(&socket), ["READY=1"]);
    }

    #[test]
    fn nothing_is_told_where_nothing_is_asked_for() {
        for name in [None, Some("")] {
            let variable = |asked: &str| name.filter(|_| asked == SOCKET).map(OsString::from);
            assert!(ServiceManager::named(variable, 7).unwrap().is_none());
        }
    }

    #[test]
    fn signs_of_life_are_given_where_this_process_is_meant() {
        for (usec, pid, every) in [
            ("20000000", None, Some(SECOND * 10)),
            ("20000000", Some("7"), Some(SECOND * 10)),
            ("20000000", Some("8"), None),
            ("0", None, None),
            ("soon", None, None),
        ] {
            let variable = |asked: &str| match asked {
                SOCKET => Some(OsString::from("/run/systemd/notify")),
                WATCHDOG => Some(usec.into()),
                _ => pid.map(OsString::from),
            };
            let manager = ServiceManager::named(variable, 7).unwrap().unwrap();
            assert_eq!(manager.every, every, "{usec} {pid:?}");
        }
    }
}
