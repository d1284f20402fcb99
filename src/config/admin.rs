//! `[admin]`.

use std::{fmt, net::SocketAddr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{finding::Findings, network::Network, secret::Secret};

/// `[admin]`
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminSettings {
    /// Where health, metrics and the status page are served: an address with a port, or `"off"`. Port 0 is any free
    /// one.
    pub listen: Listen,
    /// What a request must say that changes something, or shows outputs of runs: `Authorization: Bearer TOKEN`. Unless it is
    /// set the worker makes one, in a file that only its user can read.
    pub token: Option<Secret>,
    /// Names, besides this machine's own and its addresses, by which browsers and others may ask for the page.
    pub hosts: Vec<String>,
    /// Proxies whose word on the name and the scheme by which a client knows the page (`X-Forwarded-Host`, `-Proto`) is believed.
    pub trusted_proxies: Vec<Network>,
    /// The header in which they say who asks, such as `X-Forwarded-User`: a name for the list of orders, and no right. A request that
    /// has it twice is refused.
    pub user_header: Option<String>,
    /// Nothing can be changed over HTTP.
    pub read_only: bool,
}

/// An address to listen on, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Nothing is served.
    Off,
    /// Served here.
    At(SocketAddr),
}

// === impl AdminSettings ===

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

    /// Where to serve; `None` when switched off.
    #[must_use]
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self.listen {
            Listen::Off => None,
            Listen::At(address) => Some(address),
        }
    }

    /// Adds what is wrong. Keys are relative to `[admin]`.
    pub(crate) fn check(&self, found: &mut Findings) {
        let token = self.token.as_ref().map(Secret::expose);
        if token.is_some_and(|token| token.trim() != token || token.is_empty()) {
            found.error(
                &["token"],
                "a token that is empty or has blanks around it cannot be said",
                "give one without blanks, or leave the key out",
            );
        }
        if token.is_some_and(|token| (1..16).contains(&token.len())) {
            found.warn(
                &["token"],
                "a token this short can be guessed",
                "write 16 characters or more, or leave the key out: the worker makes one",
            );
        }
        for (i, host) in self.hosts.iter().enumerate() {
            if !is_host_name(host) {
                found.error(
                    &[&format!("hosts[{i}]"), "hosts"],
                    format!("\"{host}\" is not the name of a host"),
                    "write it without scheme, port and path: \"watchkeeper.example.org\"",
                );
            }
        }
        if self.trusted_proxies.iter().any(Network::is_everything) {
            found.warn(
                &["trusted_proxies"],
                "every client counts as a proxy, so what it says of its name for the page, and of who asks, is believed",
                "name the addresses of the proxies",
            );
        }
        if let Some(name) = &self.user_header {
            if !is_header_name(name) {
                found.error(
                    &["user_header"],
                    format!("\"{name}\" is not the name of a header"),
                    "write it as the proxy does: \"X-Forwarded-User\"",
                );
            } else if self.trusted_proxies.is_empty() {
                found.warn(
                    &["user_header"],
                    "no proxy is named whose word on who asks would be believed",
                    "name the addresses of the proxies in trusted_proxies, or leave the key out",
                );
            }
        }
        // What is open there is meant to be, but its owner must know.
        if cfg!(feature = "admin") && self.address().is_some_and(|at| !at.ip().is_loopback()) {
            found.warn(
                &["listen"],
                format!(
                    "{} is open to other machines: they can read health and metrics, and a token that is said there \
                     crosses the network as it is",
                    self.listen
                ),
                "listen on 127.0.0.1, behind a proxy with TLS where others need it, or see that only machines of yours \
                 reach it",
            );
        }
        if self.address().is_some() && !cfg!(feature = "admin") && self.listen != Listen::default()
        {
            found.error(
                &["listen"],
                "the status page is not part of this build",
                "build with the feature \"admin\" or write listen = \"off\"",
            );
        }
    }
}

/// Whether this can be what stands in a `Host` header, port aside.
fn is_host_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    !name.is_empty() && name.len() <= 253 && name.chars().all(fits)
}

/// Whether a header may have this name.
fn is_header_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
    !name.is_empty() && name.len() <= 64 && name.chars().all(fits)
}

// === impl Listen ===

impl Default for Listen {
    fn default() -> Self {
        Self::At(SocketAddr::from(([127, 0, 0, 1], 8787)))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => write!(f, "{address}"),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::At).map_err(|_| {
            de::Error::custom(format!(
                "\"{text}\" is neither an address such as \"127.0.0.1:8787\" nor \"off\""
            ))
        })
    }
}
