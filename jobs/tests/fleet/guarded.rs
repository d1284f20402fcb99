//! Servers of a fleet that has its restart guard on, as every fleet has that does not turn it off.

#[cfg(feature = "postgres")]
use crate::database::Database;
#[cfg(feature = "etcd")]
use crate::etcd::Etcd;
use crate::store::Store;

impl Store {
    /// A single etcd server under the restart guard.
    #[cfg(feature = "etcd")]
    pub(crate) fn etcd_guarded() -> Self {
        Self::Etcd(Etcd::guarded())
    }

    /// A PostgreSQL server of its own under the restart guard.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres_guarded() -> Self {
        Self::Postgres(Database::guarded())
    }

    /// A primary and a standby that follows it asynchronously, likewise.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres_standby() -> Self {
        Self::Postgres(Database::with_standby())
    }
}
