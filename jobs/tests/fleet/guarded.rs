//! An etcd server for a fleet that has its restart guard on, as every fleet has that does not turn it off.

use crate::{etcd::Etcd, store::Store};

impl Store {
    /// A single etcd server under the restart guard.
    pub(crate) fn etcd_guarded() -> Self {
        Self::Etcd(Etcd::guarded())
    }
}
