//! What mails need of the parameters, read and found right.

use std::path::Path;

use lettre::{message::Mailbox, transport::smtp::client::Certificate};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use serde::Deserialize;
use watchkeeper::{config::Findings, files, secret::Secret};

use super::{
    connection::Settings,
    letter::{Letter, mailbox},
};
use crate::{
    kinds::kind::{read, take},
    notifications::{
        params::{MailParams, MailServer, NotificationsParams, Tls},
        text::{Form, Text},
    },
    web::read_secret,
};

/// A mailer to be.
pub(crate) struct Plan {
    pub(super) server: Settings,
    pub(super) letter: Letter,
    /// Connections at a time.
    pub(super) connections: usize,
}

// === impl Plan ===

impl Plan {
    /// The plan for this server.
    pub(crate) fn read(
        server: MailServer,
        params: &NotificationsParams,
        found: &mut Findings,
    ) -> Option<Self> {
        if params.in_doubt.is_none() {
            found.error(
                &["in_doubt"],
                "must be said for mails: no server recognises a mail that comes again",
                "write \"repeat\" (some mails arrive twice) or \"park\" (some wait for a person)",
            );
        }
        if params.mail.is_null() {
            found.error(
                &["mail"],
                "is missing",
                "write mail = { from = \"…\", to = \"${COLUMN}\", subject = \"…\", text = \"${COLUMN}\" }",
            );
            return None;
        }
        let Ok(mail) = MailParams::deserialize(&params.mail) else {
            found.nest(
                "mail",
                read(&params.mail, |_: &MailParams| Findings::default()),
            );
            return None;
        };
        let letter = letter(&mail, found);
        let settings = settings(server, &mail, found);
        Some(Self {
            server: settings,
            letter: letter?,
            connections: params.per_host,
        })
    }
}

fn letter(mail: &MailParams, found: &mut Findings) -> Option<Letter> {
    let mut text = |key: &str, text: &str, form| {
        let missing = || Err("is missing".to_owned());
        let read = if text.is_empty() {
            missing()
        } else {
            Text::parse(text, form)
        };
        take(found, &format!("mail.{key}"), read)
    };
    let to = text("to", &mail.to, Form::Header);
    let subject = text("subject", &mail.subject, Form::Header);
    let plain = mail
        .text
        .as_ref()
        .map(|plain| text("text", plain, Form::Plain));
    let html = mail
        .html
        .as_ref()
        .map(|html| text("html", html, Form::Html));
    if mail.text.is_none() && mail.html.is_none() {
        found.error(
            &["mail.text"],
            "is missing, and so is `mail.html`",
            "write one of them, or both",
        );
    }
    let from = take(found, "mail.from", from(&mail.from));
    Some(Letter {
        from: from?,
        to: to?,
        subject: subject?,
        // What was given and cannot be read was told.
        text: plain.flatten(),
        html: html.flatten(),
    })
}

fn from(text: &str) -> Result<Mailbox, String> {
    mailbox(text).ok_or_else(|| {
        "must be the sender: shop@example.org, or Shop <shop@example.org>; it is the same for all rows".to_owned()
    })
}

pub(super) fn settings(server: MailServer, mail: &MailParams, found: &mut Findings) -> Settings {
    let username = server.username.clone().or(mail.username.clone());
    let password = server
        .password
        .clone()
        .map(Secret::new)
        .or(mail.password.clone());
    if let Some(path) = &mail.password_file {
        take(found, "mail.password_file", read_secret(path));
        if password.is_some() {
            found.error(
                &["mail.password_file"],
                "stands beside a password",
                "keep one of them",
            );
        }
    }
    let has_password = password.is_some() || mail.password_file.is_some();
    if username.is_some() && !has_password {
        found.error(
            &["mail.password"],
            "is missing, and there is a user name",
            "name a file that holds it as `mail.password_file`",
        );
    }
    if username.is_none() && has_password {
        found.error(
            &["mail.username"],
            "is missing, and there is a password",
            "write it",
        );
    }
    let far = !server.is_local();
    let tls = mail
        .tls
        .unwrap_or(if far { Tls::Required } else { Tls::Optional });
    if username.is_some() && far && !server.tls_at_once && tls != Tls::Required {
        found.error(
            &["mail.tls"],
            "would let a password go unencrypted to another machine",
            "leave it out, or write \"required\"",
        );
    }
    let ca = mail.tls_ca.as_ref();
    let ca = ca.and_then(|path| take(found, "mail.tls_ca", authorities(path)));
    let is_host = |name: &String| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        !name.is_empty() && name.chars().all(fits)
    };
    if mail.hello.as_ref().is_some_and(|name| !is_host(name)) {
        found.error(
            &["mail.hello"],
            "is no name of a host",
            "write letters, digits, `-` and `.`",
        );
    }
    Settings {
        address: server,
        tls,
        ca: ca.unwrap_or_default(),
        username,
        password,
        password_file: mail.password_file.clone(),
        hello: mail.hello.clone(),
    }
}

/// The CAs in a file.
fn authorities(path: &Path) -> Result<Vec<Certificate>, String> {
    let shown = path.display();
    let pem = files::read(path).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    let found: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.unwrap_or_default();
    let is_one = |der: &CertificateDer<'static>| RootCertStore::empty().add(der.clone()).is_ok();
    if found.is_empty() || !found.iter().all(is_one) {
        return Err(format!(
            "{shown} holds no certificate of a CA in PEM; it begins with -----BEGIN CERTIFICATE-----"
        ));
    }
    let certificates = found
        .into_iter()
        .map(|der| Certificate::from_der(der.to_vec()));
    let certificates: Result<Vec<Certificate>, _> = certificates.collect();
    certificates.map_err(|error| format!("{shown} cannot be used: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn keys(sink: &str, mail: Value, more: Value) -> Vec<String> {
        let mut params = json!({"sink": sink, "mail": mail, "in_doubt": "park"});
        params
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let params: NotificationsParams = serde_json::from_value(params).unwrap();
        let mut found = Findings::default();
        let server = MailServer::parse(sink).unwrap();
        Plan::read(server, &params, &mut found);
        let found = found.into_iter();
        found.map(|mut f| f.keys.swap_remove(0)).collect()
    }

    fn mail(more: Value) -> Value {
        let mut mail = json!({"from": "a@example.org", "to": "${to}", "subject": "Hi ${n}", "text": "${body}"});
        mail.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        mail
    }

    #[test]
    fn every_wrong_key_of_a_mail_is_named() {
        let far = "smtp://mail.example.org";
        assert!(keys(far, mail(json!({})), json!({})).is_empty());
        let none = json!({"in_doubt": null});
        assert_eq!(
            keys(far, mail(json!({})), none),
            ["in_doubt"],
            "nobody chooses it for you"
        );
        let wrong = mail(
            json!({"from": "nobody", "to": "${a b}", "subject": "two\nlines", "html": "${", "hello": "a b"}),
        );
        assert_eq!(
            keys(far, wrong, json!({})),
            [
                "mail.to",
                "mail.subject",
                "mail.html",
                "mail.from",
                "mail.hello"
            ]
        );
        assert_eq!(
            keys(far, json!({}), json!({})),
            ["mail.to", "mail.subject", "mail.text", "mail.from"]
        );
    }

    #[test]
    fn a_password_needs_encryption() {
        let far = "smtp://me:hunter2@mail.example.org";
        assert!(keys(far, mail(json!({})), json!({})).is_empty());
        for tls in ["optional", "off"] {
            assert_eq!(
                keys(far, mail(json!({"tls": tls})), json!({})),
                ["mail.tls"]
            );
        }
        let local = "smtp://me:hunter2@localhost:2525";
        assert!(keys(local, mail(json!({"tls": "off"})), json!({})).is_empty());
        let file = json!({"password_file": "/nowhere", "username": "me"});
        assert_eq!(
            keys("smtps://h", mail(file), json!({})),
            ["mail.password_file"]
        );
        assert_eq!(
            keys("smtps://h", mail(json!({"username": "me"})), json!({})),
            ["mail.password"]
        );
    }

    #[test]
    fn a_file_that_holds_no_ca_is_refused_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let found = || keys("smtps://h", mail(json!({"tls_ca": file})), json!({}));
        assert_eq!(found(), ["mail.tls_ca"], "there is none");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for text in ["", "hunter2", broken] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(found(), ["mail.tls_ca"], "{text}");
            let said = authorities(&file).unwrap_err();
            assert!(
                said.contains("ca.pem") && !said.contains("hunter2"),
                "{said}"
            );
        }
        let names = ["mail.example.org".to_owned()];
        let own = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(&file, own.cert.pem()).unwrap();
        assert_eq!(found(), [""; 0]);
        assert_eq!(authorities(&file).unwrap().len(), 1);
    }
}
