//! The store's thread: executes calls in order, and tells releases to those that listen.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};
use tracing::{debug, warn};

use super::{store::Store, users};
use crate::{
    node::{Announcement, Announcements, Call, NodeError, NodeFacts, Reply},
    seldom::Seldom,
};

/// How often the file is asked for releases of other processes, while there are listeners.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Announcements that a slow reader may leave unread before it loses some.
const UNREAD: usize = 1024;

/// Work for the store's thread.
pub(super) enum Job {
    /// Execute this.
    Call(Call, oneshot::Sender<Result<Reply, NodeError>>),
    /// Say what is known of the file.
    Inspect(oneshot::Sender<NodeFacts>),
    /// Tell releases from now on.
    Subscribe(oneshot::Sender<Announcements>),
}

/// Works until every handle is gone.
pub(super) fn run(mut store: Store, jobs: &Receiver<Job>) {
    // Before anything is granted.
    users::show(store.path());
    let mut watch = Watch::default();
    let mut said = Seldom::default();
    loop {
        let job = if watch.readers.is_empty() {
            jobs.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            jobs.recv_timeout(LOOK_EVERY)
        };
        match job {
            Ok(Job::Call(call, answer)) => {
                let result = store.call(&call);
                if let Err(error) = &result {
                    debug!(node = "embedded", cause = error.cause(), "call failed");
                }
                // A caller that has gone away needs no answer; what it asked for is done.
                let _gone = answer.send(result);
                watch.ours = true;
            }
            Ok(Job::Inspect(answer)) => drop(answer.send(store.inspect())),
            Ok(Job::Subscribe(answer)) => watch.subscribe(&store, answer),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // Also after a call: a busy store must not be deaf.
        if let Err(error) = watch.look(&store)
            && let Some(held_back) = said.say("releases", store.now())
        {
            warn!(node = "embedded", %error, held_back, "releases unread");
        }
    }
}

/// The listeners, and what they have been told.
#[derive(Default)]
struct Watch {
    readers: Vec<mpsc::Sender<Announcement>>,
    /// Number of the last release told.
    last: i64,
    /// The file's version at the last look; changes of our own do not count in it.
    version: i64,
    /// Whether we may have changed the file since.
    ours: bool,
}

impl Watch {
    fn subscribe(&mut self, store: &Store, answer: oneshot::Sender<Announcements>) {
        if self.readers.is_empty() {
            match store.last_release() {
                Ok(last) => self.last = last,
                // Telling old news costs a needless look, missing new ones a wait.
                Err(error) => warn!(node = "embedded", %error, "last release unknown"),
            }
            self.ours = true;
        }
        let (sender, receiver) = mpsc::channel(UNREAD);
        if answer.send(receiver).is_ok() {
            self.readers.push(sender);
        }
    }

    fn look(&mut self, store: &Store) -> rusqlite::Result<()> {
        self.readers.retain(|reader| !reader.is_closed());
        if self.readers.is_empty() {
            return Ok(());
        }
        // The version first: what is committed after it is found by the next look.
        let version = store.data_version()?;
        if version == self.version && !self.ours {
            return Ok(());
        }
        for (number, news) in store.releases(self.last)? {
            for reader in &self.readers {
                // A reader that lags loses announcements; polling stays the truth.
                let _lagging = reader.try_send(news.clone());
            }
            self.last = number;
        }
        (self.version, self.ours) = (version, false);
        Ok(())
    }
}
