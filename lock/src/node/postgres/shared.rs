//! What all connections of a node have in common.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use super::{
    address::{PgAddress, Server},
    connect::{self, Greeted, NoConnection},
    error,
    rows::Sql,
};
use crate::{
    clock::{Clock, Moment},
    node::{
        GuardSettings, NodeError, Refusal, Servers,
        remote::{Compared, Furthest},
    },
    spawn::Spawn,
};

/// A connection that was refused is not tried again for so long.
const TURNED_AWAY: Duration = Duration::from_millis(500);

/// Where a database is, and how it is used.
#[derive(Clone, Debug)]
#[doc(hidden)] // made from the settings
pub struct PostgresNodeSettings {
    /// How it is reached.
    pub address: PgAddress,
    /// How releases are heard of; the same unless it is given.
    pub listen: Option<PgAddress>,
    /// The schema with our tables.
    pub schema: String,
    /// How long a call waits for its answer.
    pub node_timeout: Duration,
    /// Fleets with different namespaces do not meet.
    pub namespace: String,
    /// Which lives of the server may vote; the default guards nothing, and compares what [`crate::Locks`] says of its times.
    pub guard: GuardSettings,
}

/// What all connections of a node have in common.
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) settings: PostgresNodeSettings,
    pub(super) sql: Sql,
    pub(super) compared: Compared,
    pub(super) clock: Clock,
    pub(super) spawn: Spawn,
    /// How much of which life's log was seen on its disk.
    pub(super) furthest: Furthest,
    /// Whether nothing can be kept on the way to the server: see [`super::kept`].
    pub(super) pooled: Arc<AtomicBool>,
    pub(super) joined: OnceLock<(Servers, usize)>,
    pub(super) refused: RefusedLately,
}

/// Why no connection was made of late, where the server is not down. Nothing else paces those that ask again, and each attempt
/// costs the server a process.
#[derive(Default)]
pub(super) struct RefusedLately(Mutex<Option<(Moment, NodeError)>>);

// === impl Shared ===

impl Shared {
    /// Greets one server of the address.
    pub(super) async fn greet(&self, server: &Server) -> Result<Greeted, NodeError> {
        let address = &self.settings.address;
        let greeted = connect::greet(server, address, &self.spawn, None).await;
        greeted.map_err(|why| match why {
            NoConnection::Setup(why) => NodeError::Tls(why),
            NoConnection::Server(why) => error::no_connection(&why),
        })
    }

    /// Where releases are told and heard.
    pub(super) fn channel(&self) -> String {
        let PostgresNodeSettings {
            schema, namespace, ..
        } = &self.settings;
        let both = format!("{schema}\0{namespace}");
        format!("watchkeeper_{:016x}", crate::hash::fnv1a(both.bytes()))
    }
}

// === impl RefusedLately ===

impl RefusedLately {
    /// Why none is to be tried now.
    pub(super) fn why(&self, now: Moment) -> Option<NodeError> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.as_ref();
        let last = last.filter(|(at, _)| now.since(*at) < TURNED_AWAY);
        last.map(|(_, why)| why.clone())
    }

    pub(super) fn learn(&self, now: Moment, why: &NodeError) {
        // A person has to mend these. What is down is asked again at its own pace, and the rest passes.
        let lasts = matches!(
            why,
            NodeError::Auth(_)
                | NodeError::Refused {
                    refusal: Refusal::OutOfMemory,
                    ..
                }
        );
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = lasts.then(|| (now, why.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_was_refused_is_not_tried_again_at_once() {
        let refused = RefusedLately::default();
        let at = |ms| Moment::ZERO + Duration::from_millis(ms);
        assert_eq!(refused.why(at(0)), None);
        let full = NodeError::Refused {
            refusal: Refusal::OutOfMemory,
            said: "could not write init file".to_owned(),
        };
        for lasting in [full, NodeError::Auth("no such user".to_owned())] {
            refused.learn(at(0), &lasting);
            assert_eq!(refused.why(at(499)), Some(lasting));
            assert_eq!(refused.why(at(500)), None);
        }
        refused.learn(at(0), &NodeError::Unreachable("refused".to_owned()));
        assert_eq!(refused.why(at(1)), None);
    }
}
