//! `[admin]` and `[telemetry]`, typed in code.

use std::net::SocketAddr;

use super::{AdminSettings, Listen, LogFormat, Secret, TelemetrySettings};

impl AdminSettings {
    /// Health, metrics and the status page are served at this address: `([127, 0, 0, 1], 8787)`. Port 0 is any free one.
    #[must_use]
    pub fn listen(address: impl Into<SocketAddr>) -> Self {
        Self {
            listen: Listen::At(address.into()),
            ..Self::default()
        }
    }

    /// Nothing is served.
    #[must_use]
    pub fn off() -> Self {
        Self {
            listen: Listen::Off,
            ..Self::default()
        }
    }

    /// What a request must say that changes something, or shows outputs of runs: `Authorization: Bearer TOKEN`. Unless it is
    /// set the worker makes one, in a file that only its user can read.
    #[must_use]
    pub fn token(mut self, token: Secret) -> Self {
        self.token = Some(token);
        self
    }
}

impl TelemetrySettings {
    /// Which log lines are written: a level, or `target=level` pairs with commas between them.
    #[must_use]
    pub fn log(lines: impl Into<String>) -> Self {
        Self {
            log: lines.into(),
            ..Self::default()
        }
    }

    /// How they are written.
    #[must_use]
    pub fn format(mut self, format: LogFormat) -> Self {
        self.format = format;
        self
    }
}
