//! The other end of a connection.

use std::sync::Arc;

/// What a connection knows of the server at its other end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::node::redis) struct Peer {
    /// Its process and database: `RUN_ID/DB`.
    pub(in crate::node::redis) server: String,
    /// The marker, once its server was seen to be admitted.
    pub(in crate::node::redis) marker: Option<Arc<str>>,
}
