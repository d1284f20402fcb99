//! One connection to the mail server, and what is said on it.

use std::{fmt::Display, io, path::PathBuf, time::Duration};

use lettre::transport::smtp::{
    Error,
    authentication::{Credentials, Mechanism},
    client::{
        AsyncSmtpConnection, Certificate, CertificateStore, TlsParameters, TlsParametersBuilder,
    },
    commands::{Data, Mail, Rcpt, Rset},
    extension::{ClientId, Extension, MailBodyParameter, MailParameter},
};
use rustls::CertificateError;
use watchkeeper::{
    clock::{Clock, Moment},
    secret::Secret,
};

use super::{
    letter::Written,
    reply::{Failure, Stage},
};
use crate::{
    notifications::params::{MailServer, Tls},
    web::{install_crypto, read_secret},
};

/// The server, and who we are there.
pub(super) struct Server {
    settings: Settings,
    /// None when nothing is ever encrypted.
    tls: Option<TlsParameters>,
    hello: ClientId,
    clock: Clock,
}

/// What is configured of it.
pub(super) struct Settings {
    pub(super) address: MailServer,
    pub(super) tls: Tls,
    /// CAs one of which has signed the server's certificate; those of the system when there are none.
    pub(super) ca: Vec<Certificate>,
    pub(super) username: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) hello: Option<String>,
}

/// A connection that has been greeted, encrypted and let in.
pub(super) struct Connection {
    inner: AsyncSmtpConnection,
    clock: Clock,
    /// Whether more can be said on it.
    good: bool,
    /// Mails that went over it.
    pub(super) mails: u32,
    /// When the last one did.
    pub(super) used: Moment,
}

/// What a server says that wants encryption for a password.
const NO_ENCRYPTION: u16 = 538;
/// What helps where encryption is wanted and not offered.
const NOT_OFFERED: &str = "no encryption: the server offers no STARTTLS; write `smtps://` in `sink` if it encrypts from the first byte, or \
    mail.tls = \"optional\" where the network is trusted";
/// Characters of an answer that are told.
const TOLD: usize = 200;
/// A farewell that is not answered does not matter.
const FAREWELL: Duration = Duration::from_secs(1);

// === impl Server ===

impl Server {
    pub(super) fn new(settings: Settings, clock: Clock) -> Result<Self, String> {
        install_crypto();
        let encrypts = settings.address.tls_at_once || settings.tls != Tls::Off;
        let tls = encrypts.then(|| trusting(&settings));
        let tls = tls
            .transpose()
            .map_err(|e| format!("no encryption: {}", plain(&e)))?;
        let host = rustix::system::uname()
            .nodename()
            .to_str()
            .map(str::to_owned)
            .ok();
        let hello = settings
            .hello
            .clone()
            .or(host.filter(|host| host.contains('.')));
        Ok(Self {
            tls,
            hello: hello.map_or_else(ClientId::default, ClientId::Domain),
            settings,
            clock,
        })
    }

    pub(super) fn shown(&self) -> String {
        self.settings.address.shown()
    }

    /// A new connection, ready for a mail.
    pub(super) async fn connect(&self, deadline: Moment) -> Result<Connection, Failure> {
        let late = |_| failure(Stage::Connection, "no connection in time", None);
        // One address that does not answer leaves time for the next.
        let each = deadline.since(self.clock.now()) / 2;
        let opened = self.clock.timeout_at(deadline, self.open(each)).await;
        opened.map_err(late)?
    }

    async fn open(&self, each: Duration) -> Result<Connection, Failure> {
        let settings = &self.settings;
        let address = &settings.address;
        let fails = |what: &str, error: &Error| {
            let mut failure = failure(Stage::Connection, what, Some(error));
            let of_tls = of_tls(error);
            // No encryption that we trust is a wrong setting, as if the server had said so.
            let no_trust = error.is_client() || error.is_tls() || of_tls.is_some();
            failure.code = failure.code.or(no_trust.then_some(NO_ENCRYPTION));
            if let Some(remedy) = of_tls.and_then(remedy) {
                failure.why = format!("{}; {remedy}", failure.why);
            }
            failure
        };
        let at_once = self.tls.clone().filter(|_| address.tls_at_once);
        let server = (address.host.as_str(), address.port);
        let inner =
            AsyncSmtpConnection::connect_tokio1(server, Some(each), &self.hello, at_once, None);
        let mut inner = inner.await.map_err(|e| fails("no connection", &e))?;
        if settings.tls == Tls::Required && !address.tls_at_once && !inner.can_starttls() {
            return Err(Failure {
                stage: Stage::Connection,
                code: Some(NO_ENCRYPTION),
                why: NOT_OFFERED.to_owned(),
            });
        }
        if let Some(tls) = &self.tls
            && inner.can_starttls()
        {
            let upgraded = inner.starttls(tls.clone(), &self.hello).await;
            upgraded.map_err(|e| fails("no encryption by STARTTLS", &e))?;
        }
        if let Some(username) = &settings.username {
            // The check has seen this; what the server offers is known only now.
            if !inner.is_encrypted() && !address.is_local() {
                let why = "the server offers no encryption, and a password is not sent without";
                return Err(Failure {
                    stage: Stage::Connection,
                    code: Some(NO_ENCRYPTION),
                    why: why.to_owned(),
                });
            }
            let password = self.password().await?;
            let who = Credentials::new(username.clone(), password.expose().to_owned());
            let asked = inner
                .auth(&[Mechanism::Plain, Mechanism::Login], &who)
                .await;
            // The server's own words could repeat what it was told.
            asked.map_err(|e| Failure {
                stage: Stage::Connection,
                code: code(&e).or(e.is_client().then_some(NO_ENCRYPTION)),
                why: match code(&e) {
                    Some(code) => format!("the password was refused: answered {code}"),
                    None => "the server did not let us in".to_owned(),
                },
            })?;
        }
        Ok(Connection {
            inner,
            clock: self.clock.clone(),
            good: true,
            mails: 0,
            used: self.clock.now(),
        })
    }

    /// Read at each connection: it may have been replaced.
    async fn password(&self) -> Result<Secret, Failure> {
        let Some(path) = self.settings.password_file.clone() else {
            let password = self.settings.password.clone();
            return Ok(password.unwrap_or_else(|| Secret::new("")));
        };
        let read = tokio::task::spawn_blocking(move || read_secret(&path)).await;
        let read = read.map_err(|e| e.to_string()).and_then(|read| read);
        read.map(Secret::new).map_err(|why| Failure {
            stage: Stage::Connection,
            // As if the server had refused it: a setting is wrong.
            code: Some(535),
            why,
        })
    }
}

// === impl Connection ===

impl Connection {
    /// Whether another mail can go over it.
    pub(super) fn is_good(&self) -> bool {
        self.good && !self.inner.has_broken()
    }

    /// Sends one mail.
    pub(super) async fn send(&mut self, letter: &Written, deadline: Moment) -> Result<(), Failure> {
        self.mails += 1;
        let mut options = Vec::new();
        if !letter.text.is_ascii() {
            options.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        let international = [&letter.from, &letter.to]
            .into_iter()
            .any(|who| !is_ascii(who));
        if international {
            if !self
                .inner
                .server_info()
                .supports_feature(Extension::SmtpUtfEight)
            {
                let why = "the server takes no address with letters outside of ASCII";
                return Err(Failure::unfit(why.to_owned()));
            }
            options.push(MailParameter::SmtpUtfEight);
        }
        let from = Mail::new(Some(letter.from.clone()), options);
        self.say(Stage::Sender, from, deadline).await?;
        let to = Rcpt::new(letter.to.clone(), Vec::new());
        self.say(Stage::Recipient, to, deadline).await?;
        self.say(Stage::Permission, Data, deadline).await?;
        // From here on nothing but an answer tells what became of it.
        self.good = false;
        let answer = self
            .clock
            .timeout_at(deadline, self.inner.message(&letter.text))
            .await;
        match answer {
            Ok(Ok(_)) => {
                self.good = true;
                Ok(())
            }
            Ok(Err(error)) => {
                // A refusal leaves the conversation where it was.
                self.good = code(&error).is_some_and(|code| code != 421);
                let what = match code(&error) {
                    Some(_) => "the text was refused",
                    None => "the connection broke before the text was answered",
                };
                Err(failure(Stage::Text, what, Some(&error)))
            }
            Err(_) => Err(failure(Stage::Text, "no answer to the text in time", None)),
        }
    }

    /// One command; after a refusal the next mail can begin.
    async fn say(
        &mut self,
        stage: Stage,
        command: impl Display,
        deadline: Moment,
    ) -> Result<(), Failure> {
        self.good = false;
        let answer = self
            .clock
            .timeout_at(deadline, self.inner.command(command))
            .await;
        let what = match stage {
            Stage::Sender => "the sender was refused",
            Stage::Recipient => "the recipient was refused",
            _ => "the mail was refused",
        };
        match answer {
            Ok(Ok(_)) => {
                self.good = true;
                Ok(())
            }
            Ok(Err(error)) if code(&error).is_some() => {
                if code(&error) != Some(421) {
                    let reset = self
                        .clock
                        .timeout_at(deadline, self.inner.command(Rset))
                        .await;
                    self.good = matches!(reset, Ok(Ok(_)));
                }
                Err(failure(stage, what, Some(&error)))
            }
            Ok(Err(error)) => Err(failure(stage, "the connection broke", Some(&error))),
            Err(_) => Err(failure(stage, "no answer in time", None)),
        }
    }

    /// Says good-bye, if the server listens.
    pub(super) async fn quit(mut self) {
        if self.is_good() {
            drop(self.clock.timeout(FAREWELL, self.inner.quit()).await);
        }
    }
}

fn is_ascii(address: &lettre::Address) -> bool {
    address.user().is_ascii() && address.domain().is_ascii()
}

fn code(error: &Error) -> Option<u16> {
    error.status().map(u16::from)
}

/// Encryption with certificates by the CAs that are named, or by those of the system.
fn trusting(settings: &Settings) -> Result<TlsParameters, Error> {
    let mut tls = TlsParameters::builder(settings.address.host.clone());
    if !settings.ca.is_empty() {
        // Whoever names a CA trusts no other.
        tls = tls.certificate_store(CertificateStore::None);
    }
    let named = settings.ca.iter().cloned();
    let tls = named.fold(tls, TlsParametersBuilder::add_root_certificate);
    tls.build()
}

/// Why the encryption failed, if that is what failed, such as for a certificate that no CA vouches for.
fn of_tls(error: &Error) -> Option<&rustls::Error> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let io = inner
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        let of_tls = io.and_then(|io| io.downcast_ref::<rustls::Error>());
        if of_tls.is_some() {
            return of_tls;
        }
        cause = inner.source();
    }
    None
}

/// What helps against it.
fn remedy(error: &rustls::Error) -> Option<&'static str> {
    let rustls::Error::InvalidCertificate(why) = error else {
        return None;
    };
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Some(
            "its certificate is signed by no CA that is trusted; name the file of that CA as `mail.tls_ca`",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Some("its certificate is for another name; write that name in `sink`")
        }
        _ => None,
    }
}

fn failure(stage: Stage, what: &str, error: Option<&Error>) -> Failure {
    let why = match error {
        Some(error) => format!("{what}: {}", plain(error)),
        None => what.to_owned(),
    };
    Failure {
        stage,
        code: error.and_then(code),
        why,
    }
}

/// The error and its causes in one short line.
fn plain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    line.chars().take(TOLD).collect()
}
