//! What a mail says, and who takes it.

use std::{fmt, path::PathBuf};

use percent_encoding::percent_decode_str;
use reqwest::Url;
use serde::Deserialize;
use watchkeeper::secret::Secret;

/// What a mail says. In all texts `${COLUMN}` stands for a column of the row.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MailParams {
    /// The sender, the same for all: `shop@example.org` or `Shop <shop@example.org>`.
    pub(crate) from: String,
    /// The recipient, one for each row.
    pub(crate) to: String,
    /// The subject.
    pub(crate) subject: String,
    /// The plain text.
    pub(crate) text: Option<String>,
    /// The same in HTML.
    pub(crate) html: Option<String>,
    /// Whether the connection must be encrypted. Without it: yes, but on this machine.
    pub(crate) tls: Option<Tls>,
    /// A file with the CAs one of which has signed the server's certificate. Without it: those of the system.
    pub(crate) tls_ca: Option<PathBuf>,
    /// Who we are at the server, unless `sink` says it.
    pub(crate) username: Option<String>,
    /// The password.
    pub(crate) password: Option<Secret>,
    /// A file that holds it.
    pub(crate) password_file: Option<PathBuf>,
    /// The name under which we greet the server. Without it: the host's address.
    pub(crate) hello: Option<String>,
}

/// Whether a connection to `smtp://` is encrypted by STARTTLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tls {
    /// Nothing is sent without.
    Required,
    /// When the server offers it.
    Optional,
    /// Never.
    Off,
}

/// A mail server, as the address of a sink names it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct MailServer {
    /// A name or an address.
    pub(crate) host: String,
    /// The port.
    pub(crate) port: u16,
    /// Whether the connection begins with TLS (`smtps`).
    pub(crate) tls_at_once: bool,
    /// Who we are.
    pub(crate) username: Option<String>,
    /// The password.
    pub(crate) password: Option<String>,
}

// === impl MailParams ===

impl MailParams {
    /// All texts with columns in them.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let others = self.text.iter().chain(&self.html);
        [&self.to, &self.subject]
            .into_iter()
            .chain(others)
            .map(String::as_str)
    }
}

// === impl MailServer ===

impl MailServer {
    /// Reads `smtp://` or `smtps://`.
    ///
    /// # Errors
    /// A sentence without the address.
    pub(crate) fn parse(address: &str) -> Result<Self, String> {
        let url = Url::parse(address).map_err(|e| format!("is not a valid address: {e}"))?;
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or("names no host; write smtp://HOST or smtps://HOST")?;
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(
                "has more than a host and a port; what a mail says stands in `mail`".to_owned(),
            );
        }
        let tls_at_once = url.scheme() == "smtps";
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        Ok(Self {
            host: decoded(host.trim_matches(['[', ']'])),
            port: url.port().unwrap_or(if tls_at_once { 465 } else { 587 }),
            tls_at_once,
            username: Some(url.username())
                .filter(|name| !name.is_empty())
                .map(decoded),
            password: url.password().map(decoded),
        })
    }

    /// Scheme, host and port alone.
    pub(crate) fn shown(&self) -> String {
        let scheme = if self.tls_at_once { "smtps" } else { "smtp" };
        format!("{scheme}://{}:{}", self.host, self.port)
    }

    /// Whether it is this machine.
    #[cfg_attr(not(feature = "smtp"), allow(dead_code, reason = "for mails alone"))]
    pub(crate) fn is_local(&self) -> bool {
        let ip = self.host.parse::<std::net::IpAddr>();
        self.host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    }
}

impl fmt::Debug for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_read_and_shown_without_its_password() {
        let server =
            MailServer::parse("smtps://shop%40example.org:hunter2@mail.example.org").unwrap();
        assert_eq!(
            (server.host.as_str(), server.port),
            ("mail.example.org", 465)
        );
        assert_eq!(server.username.as_deref(), Some("shop@example.org"));
        assert_eq!(server.password.as_deref(), Some("hunter2"));
        assert_eq!(format!("{server:?}"), "smtps://mail.example.org:465");
        let local = MailServer::parse("smtp://[::1]:2525/").unwrap();
        assert_eq!((local.port, local.is_local()), (2525, true));
        assert_eq!(
            MailServer::parse("smtp://mail.example.org").unwrap().port,
            587
        );
        for wrong in [
            "smtp://",
            "smtp://h/hunter2",
            "smtp://h?hunter2",
            "smtp://h:hunter2",
        ] {
            let error = MailServer::parse(wrong).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
