//! One request on its way: what its answer says of the server, and what it means when none comes.

use std::sync::{Arc, atomic::Ordering};

use deadpool_redis::redis::Value;
use futures_util::future::join_all;

use super::{
    Parts, Shared,
    live::{LiveConnection, Request, put_on},
};
use crate::{
    clock::Moment,
    node::{
        NodeError, Refusal, Reply,
        redis::{
            script::{self, Peer, Prepared},
            trouble::{self, Trouble},
        },
    },
};

/// One request on its way.
pub(super) struct SentRequest {
    pub(super) shared: Arc<Shared>,
    pub(super) line: Arc<LiveConnection>,
    pub(super) call: Prepared,
    /// What was known of the server when it was sent.
    pub(super) peer: Arc<Peer>,
    pub(super) number: u64,
    pub(super) started: Moment,
    pub(super) deadline: Moment,
    /// An answer has come, or is known not to.
    pub(super) over: bool,
}

/// Where it is noticed that an answer does not come.
#[derive(Clone, Copy)]
pub(super) enum Watched {
    Here,
    ByCaller,
}

impl SentRequest {
    pub(super) async fn end(
        mut self,
        request: Request,
        watched: Watched,
    ) -> Result<Reply, NodeError> {
        let mut outcome = self.answer(request, watched).await;
        if matches!(outcome, Err(Trouble::NoScript)) {
            let turn = self.shared.turn.lock().await;
            self.teach().await;
            // A younger request may have been executed already, if another client has just loaded the script:
            // going behind it would break the order, and a refusal is always safe.
            if self.line.sent.load(Ordering::Relaxed) != self.number {
                drop(turn);
                self.over = true;
                return Err(trouble::forgotten());
            }
            self.line.sent.fetch_add(1, Ordering::Relaxed);
            self.peer = self.line.peer();
            let request = put_on(&self.line, self.call.with_source(&self.peer)).await;
            drop(turn);
            outcome = self.answer(request, watched).await;
        }
        self.over = true;
        let Parts { limit, .. } = &self.shared.parts;
        match outcome {
            Ok(value) => {
                let (reply, marker) = self.call.decode(value, &self.peer)?;
                let lost = self.line.learn(marker);
                if lost || self.line.is_due(self.started, *limit) {
                    self.shared.look_again(&self.line);
                }
                Ok(reply)
            }
            Err(trouble) => {
                let waited = self.shared.parts.clock.now().since(self.started);
                match &trouble {
                    Trouble::Slow => self.shared.was_silent(&self.line),
                    Trouble::Broken(why) => {
                        let why = NodeError::Unreachable(why.clone());
                        self.shared.broke(&self.line, why);
                    }
                    Trouble::Answered(refused) if self.must_be_looked_at(refused) => {
                        self.shared.broke(&self.line, refused.clone());
                    }
                    Trouble::Answered(_) | Trouble::NoScript => {}
                }
                Err(self.named(trouble::maybe_executed(trouble, waited)))
            }
        }
    }

    /// Puts the scripts on the line, unless that was done after this request was sent. Not waited for.
    async fn teach(&self) {
        let line = &self.line;
        if line.taught.load(Ordering::Relaxed) >= self.number {
            return;
        }
        line.taught
            .store(line.sent.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut taught = Vec::new();
        for cmd in script::load() {
            taught.push(put_on(line, cmd).await);
        }
        // A user who may not load calls with the source, as soon as there is nothing younger.
        self.shared
            .parts
            .spawn
            .spawn(async move { drop(join_all(taught).await) });
    }

    fn must_be_looked_at(&self, refused: &NodeError) -> bool {
        let moved = |refusal| matches!(refusal, Refusal::Moved | Refusal::ClusterDown);
        let is_moved = match refused {
            NodeError::Refused { refusal, .. } => moved(*refusal),
            _ => false,
        };
        // Another node of the cluster may be in charge by now.
        must_be_looked_at(refused) || (is_moved && self.shared.parts.route.is_asked())
    }

    /// The server does not say which key it means. What else can be of another type costs nothing but itself.
    fn named(&self, error: NodeError) -> NodeError {
        match error {
            NodeError::Refused {
                refusal: refusal @ Refusal::WrongType,
                ..
            } => NodeError::Refused {
                refusal,
                said: format!(
                    "WRONGTYPE: {} is not a hash",
                    self.shared.parts.layout.table
                ),
            },
            other => other,
        }
    }

    async fn answer(&self, mut request: Request, watched: Watched) -> Result<Value, Trouble> {
        let Parts {
            clock,
            limit,
            scrub,
            ..
        } = &self.shared.parts;
        let mut answer = match watched {
            Watched::ByCaller => Ok((&mut request).await),
            Watched::Here => clock.timeout_at(self.deadline, &mut request).await,
        };
        if answer.is_err() && clock.now().since(self.deadline) > *limit / 2 {
            // We were late ourselves, frozen or starved: the answer may have been waiting for us all the time, and
            // dropping every node's connection now would look like the loss of a majority.
            answer = clock.timeout(*limit, request).await;
        }
        match answer {
            Ok(answer) => answer
                .and_then(Value::extract_error)
                .map_err(|error| trouble::sort(&error, scrub)),
            Err(_) => Err(Trouble::Slow),
        }
    }
}

impl Drop for SentRequest {
    fn drop(&mut self) {
        // Without a runtime nothing can be connected anew: the next request finds out.
        if !self.over && tokio::runtime::Handle::try_current().is_ok() {
            self.shared.was_silent(&self.line);
        }
    }
}

/// Whether the server is no longer what it was when the connection was made.
fn must_be_looked_at(refused: &NodeError) -> bool {
    match refused {
        NodeError::Refused { refusal, said } => match refusal {
            Refusal::ReadOnly | Refusal::Loading | Refusal::NoPerm => true,
            // A call names one key, which is ours; a lock's raw key is met by the script, and is that lock's trouble
            // alone.
            Refusal::NoKey => !said.contains("script"),
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_key_that_is_not_ours_costs_no_connection() {
        let looked_at = |refusal, said: &str| {
            must_be_looked_at(&NodeError::Refused {
                refusal,
                said: said.to_owned(),
            })
        };
        for met_by_the_script in [
            "ERR The user executing the script can't access at least one of the keys mentioned",
            "NOPERM ACL failure in script: No permissions to access a key",
        ] {
            assert!(!looked_at(Refusal::NoKey, met_by_the_script));
        }
        assert!(looked_at(
            Refusal::NoKey,
            "NOPERM No permissions to access a key"
        ));
        assert!(looked_at(
            Refusal::NoPerm,
            "NOPERM User a has no permissions to run the 'evalsha' command"
        ));
        assert!(!looked_at(Refusal::OutOfMemory, "OOM command not allowed"));
    }
}
