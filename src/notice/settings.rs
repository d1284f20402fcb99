//! `[notices.NAME]`.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{finding::Findings, secret::Secret};

/// The most recipients of one notice.
const MOST_RECIPIENTS: usize = 20;

/// `[notices.NAME]`
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NoticeSettings {
    /// What is sent: `webhook`, `mail` or `ping`.
    pub kind: Option<NoticeKind>,
    /// Where to: `https://…` for a webhook or a ping, `smtps://HOST` or `smtp://HOST` for mails. In the address of a ping `${job}` stands for the name of the job.
    pub url: Option<Secret>,
    /// A file that holds it; read at each start.
    pub url_file: Option<PathBuf>,
    /// What signs a webhook as Standard Webhooks has it: `whsec_` and base64.
    pub secret: Option<Secret>,
    /// A file that holds it; read at each start.
    pub secret_file: Option<PathBuf>,
    /// The sender of mails: `jobs@example.org` or `Jobs <jobs@example.org>`.
    pub from: Option<String>,
    /// Who gets them: one address, or a list of them.
    pub to: Recipients,
    /// Who we are at the mail server.
    pub username: Option<String>,
    /// The password there.
    pub password: Option<Secret>,
    /// A file that holds it; read at each connection.
    pub password_file: Option<PathBuf>,
    /// Whether the connection to `smtp://` must be encrypted: `required`, `optional` or `off`. Without it: yes, but on this machine.
    pub tls: Option<NoticeTls>,
    /// A file with the CAs one of which has signed the mail server's certificate. Without it: those of the system.
    pub tls_ca: Option<PathBuf>,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeKind {
    /// A POST with JSON for each change.
    Webhook,
    /// A mail for each change.
    Mail,
    /// A request for the end of each run, as healthchecks.io and others want it.
    Ping,
}

/// Whether a connection to a mail server is encrypted by STARTTLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeTls {
    /// Nothing is sent without.
    Required,
    /// When the server offers it.
    Optional,
    /// Never.
    Off,
}

/// One address or several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Recipients(Vec<String>);

impl<'de> Deserialize<'de> for Recipients {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextOrList;

        impl<'de> de::Visitor<'de> for TextOrList {
            type Value = Recipients;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Recipients, E> {
                let all = text.split(',').map(|one| one.trim().to_owned());
                Ok(Recipients(all.collect()))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Recipients, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = seq.next_element::<String>()? {
                    all.push(one);
                }
                Ok(Recipients(all))
            }
        }

        from.deserialize_any(TextOrList)
    }
}

impl Recipients {
    /// The addresses.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }
}

impl NoticeKind {
    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Mail => "mail",
            Self::Ping => "ping",
        }
    }
}

impl NoticeSettings {
    /// Adds what is missing, and what the kind has no use for. Keys are those of the table. What the values are is for the
    /// [`Carrier`](super::Carrier) to say.
    pub fn check(&self, found: &mut Findings) {
        let Some(kind) = self.kind else {
            found.error(
                &["kind", ""],
                "says not what is sent",
                "write kind = \"webhook\", \"mail\" or \"ping\"",
            );
            return;
        };
        let word = kind.as_str();
        match (&self.url, &self.url_file) {
            (None, None) => found.error(
                &["url", ""],
                "says not where to",
                "write url = \"…\", or url_file with the name of a file that holds it",
            ),
            (Some(_), Some(_)) => {
                found.error(&["url_file"], "stands beside url", "keep one of them")
            }
            _ => {}
        }
        if self.secret.is_some() && self.secret_file.is_some() {
            found.error(&["secret_file"], "stands beside secret", "keep one of them");
        }
        let of_webhooks = [
            ("secret", self.secret.is_some()),
            ("secret_file", self.secret_file.is_some()),
        ];
        let of_mails = [
            ("from", self.from.is_some()),
            ("to", !self.to.0.is_empty()),
            ("username", self.username.is_some()),
            ("password", self.password.is_some()),
            ("password_file", self.password_file.is_some()),
            ("tls", self.tls.is_some()),
            ("tls_ca", self.tls_ca.is_some()),
        ];
        let idle_webhook = of_webhooks.iter().filter(|_| kind != NoticeKind::Webhook);
        let idle_mail = of_mails.iter().filter(|_| kind != NoticeKind::Mail);
        for (key, _) in idle_webhook.chain(idle_mail).filter(|(_, given)| *given) {
            found.error(
                &[key],
                format!("has no meaning for kind = \"{word}\""),
                "remove it, or write another kind",
            );
        }
        if kind == NoticeKind::Mail {
            if self.from.is_none() {
                found.error(
                    &["from", ""],
                    "names no sender",
                    "write from = \"jobs@example.org\"",
                );
            }
            if self.to.0.is_empty() {
                found.error(
                    &["to", ""],
                    "names no recipient",
                    "write to = \"ops@example.org\"",
                );
            }
            if self.to.0.len() > MOST_RECIPIENTS {
                found.error(
                    &["to"],
                    format!(
                        "has {} recipients, and {MOST_RECIPIENTS} are the most",
                        self.to.0.len()
                    ),
                    "name a mailing list",
                );
            }
        }
    }
}
