//! Where a cluster is, and how it is used.

use std::{fmt, time::Duration};

use secrecy::SecretString;

use super::address::EtcdTlsFiles;
use crate::node::GuardSettings;

/// Where a cluster is, and how it is used.
#[derive(Clone)]
#[doc(hidden)] // made from the settings
pub struct EtcdNodeSettings {
    /// Its members: `http://HOST:PORT`, or `https://` with TLS. One of them is asked; the next one, where it does not serve.
    pub endpoints: Vec<String>,
    /// The user that logs in; without it and a password there is no login.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<SecretString>,
    /// What `https://` endpoints are verified with.
    pub tls: EtcdTlsFiles,
    /// How long a request waits for its answer.
    pub node_timeout: Duration,
    /// Fleets with different namespaces do not meet.
    pub namespace: String,
    /// Which lives of the cluster may vote; the default guards nothing, and compares what [`crate::Locks`] says of its times.
    pub guard: GuardSettings,
}

// === impl EtcdNodeSettings ===

impl fmt::Debug for EtcdNodeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An endpoint may hold what it should not.
        f.debug_struct("EtcdNodeSettings")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}
