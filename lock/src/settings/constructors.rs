//! Settings of the lock, typed in code. What has no method here is a field: `LockSettings { drift: 0.02, ..settings }`.

use std::{path::PathBuf, time::Duration};

use super::{
    Backend, EmbeddedSettings, EtcdSettings, LockSettings, PostgresSettings, RedisSettings,
};
use crate::secret::{Secret, SecretUrl};

impl LockSettings {
    /// Locks on independent Redis masters, or on one: `redis://[user:password@]host[:port][/db]`, the same with `rediss://`
    /// for TLS, or `redis+unix:///path`. The passwords in them are shown nowhere.
    #[must_use]
    pub fn redis<U: Into<SecretUrl>>(nodes: impl IntoIterator<Item = U>) -> Self {
        Self {
            backend: Backend::Redis,
            redis: RedisSettings {
                nodes: nodes.into_iter().map(Into::into).collect(),
                ..RedisSettings::default()
            },
            ..Self::default()
        }
    }

    /// Locks in a PostgreSQL database: `postgres://USER[:PASSWORD]@HOST[:PORT][,HOST…]/DATABASE`, with `?sslmode=verify-full` for
    /// TLS. The password is shown nowhere.
    #[must_use]
    pub fn postgres(url: impl Into<SecretUrl>) -> Self {
        Self {
            backend: Backend::Postgres,
            postgres: PostgresSettings {
                url: Some(url.into()),
                ..PostgresSettings::default()
            },
            ..Self::default()
        }
    }

    /// Locks in an etcd cluster, each member as `http://HOST:2379`, or `https://` for TLS. User and password are no part of these:
    /// see [`username`](Self::username) and [`password`](Self::password).
    #[must_use]
    pub fn etcd<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        Self {
            backend: Backend::Etcd,
            etcd: EtcdSettings {
                endpoints: endpoints.into_iter().map(Into::into).collect(),
                ..EtcdSettings::default()
            },
            ..Self::default()
        }
    }

    /// Locks in an SQLite file, shared by the processes of one machine. A relative path begins in the working directory.
    #[must_use]
    pub fn embedded(path: impl Into<PathBuf>) -> Self {
        Self {
            backend: Backend::Embedded,
            embedded: EmbeddedSettings { path: path.into() },
            ..Self::default()
        }
    }

    /// Locks of this process alone: other replicas do not see them.
    #[must_use]
    pub fn memory() -> Self {
        Self {
            backend: Backend::Memory,
            ..Self::default()
        }
    }

    /// How long a lease lasts without an extension, and so about how long it takes to replace a dead leader.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The longest lease that any program of the fleet may hold: the same in all of them.
    #[must_use]
    pub fn max_ttl(mut self, longest: Duration) -> Self {
        self.max_ttl = longest;
        self
    }

    /// The user of every Redis node whose URL names none, or of the etcd cluster. Call it after the constructor. It has no effect on
    /// PostgreSQL, whose user stands in the URL, in a file and in memory.
    #[must_use]
    pub fn username(mut self, name: impl Into<String>) -> Self {
        match self.backend {
            Backend::Redis => self.redis.username = Some(name.into()),
            Backend::Etcd => self.etcd.username = Some(name.into()),
            Backend::Postgres | Backend::Embedded | Backend::Memory => {}
        }
        self
    }

    /// The password of every Redis node and of the PostgreSQL user whose URL holds none, or of the etcd cluster's user. Call it after
    /// the constructor. It has no effect in a file and in memory.
    #[must_use]
    pub fn password(mut self, password: Secret) -> Self {
        match self.backend {
            Backend::Redis => self.redis.password = Some(password),
            Backend::Postgres => self.postgres.password = Some(password),
            Backend::Etcd => self.etcd.password = Some(password),
            Backend::Embedded | Backend::Memory => {}
        }
        self
    }
}
