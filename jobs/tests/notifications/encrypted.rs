//! Mails over TLS, to a server whose certificate a CA of our own has signed. Costs about two seconds.

use std::{fs, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio_rustls::rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use watchkeeper_jobs::{demo_table::unsent, notifications::State};

use crate::{
    mail_server::{Encrypts, MailServer},
    mails::{BATCH, mailer, rows},
    papers::Papers,
    sender::{listed, send},
};

const HERE: &str = "127.0.0.1";

/// A server that shows these papers.
async fn server(encrypts: Encrypts, papers: &Papers) -> MailServer {
    let pem = |name: &str| fs::read(papers.path(name)).unwrap();
    let (certificate, key) = (pem("server.crt"), pem("server.key"));
    let certificate = CertificateDer::from_pem_slice(&certificate).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    MailServer::start_encrypting(encrypts, config).await
}

/// What is written about the mail server, with the CA of these papers.
fn trusting(papers: &Papers) -> Value {
    json!({
        "tls": "required",
        "tls_ca": papers.path("ca.crt"),
        "username": "shop",
        "password": "hunter2",
    })
}

/// Lines that may come without encryption.
fn is_harmless(line: &str) -> bool {
    let word = line.split(' ').next().unwrap_or_default();
    ["EHLO", "STARTTLS", "QUIT"].contains(&word)
}

#[tokio::test]
async fn mails_go_encrypted_to_a_server_of_the_named_ca() {
    let papers = Papers::new(HERE);
    for encrypts in [Encrypts::WhenAsked, Encrypts::AtOnce] {
        let server = server(encrypts, &papers).await;
        let scene = rows(3).await;
        let job = mailer(&scene, &server, &trusting(&papers), &json!({}));
        send(&job, 1, BATCH).await;
        assert_eq!(listed(&job).await.items.len(), 0, "{encrypts:?}");
        let taken = server.taken();
        assert_eq!((taken.len(), unsent(&scene.db()).unwrap()), (3, 0));
        assert!(taken.iter().all(|mail| mail.encrypted), "{taken:?}");
        let heard = server.heard();
        assert!(heard.iter().any(|line| line.starts_with("AUTH")));
        let in_the_clear = server.heard_in_the_clear();
        match encrypts {
            Encrypts::AtOnce => assert_eq!(in_the_clear, [""; 0]),
            _ => assert!(in_the_clear.contains(&"STARTTLS".to_owned())),
        }
        assert!(in_the_clear.iter().all(|line| is_harmless(line)));
    }
}

#[tokio::test]
async fn a_server_that_is_not_trusted_is_told_nothing_and_no_mail_is_lost() {
    let (papers, strangers) = (Papers::new(HERE), Papers::new(HERE));
    let elsewhere = Papers::new("mail.example.org");
    for encrypts in [Encrypts::WhenAsked, Encrypts::AtOnce] {
        for (shown, trusted, remedy) in [
            (
                &papers,
                &strangers,
                "name the file of that CA as `mail.tls_ca`",
            ),
            (&elsewhere, &elsewhere, "write that name in `sink`"),
        ] {
            let server = server(encrypts, shown).await;
            let scene = rows(1).await;
            let job = mailer(&scene, &server, &trusting(trusted), &json!({}));
            send(&job, 1, BATCH).await;
            let waiting = listed(&job).await;
            let exception = &waiting.items[0].exception;
            assert_eq!((exception.state, exception.attempts), (State::Retry, 0));
            assert!(exception.reason.contains(remedy), "{exception:?}");
            assert_eq!(waiting.doubted_ever, 0);
            let heard = server.heard();
            assert!(heard.iter().all(|line| is_harmless(line)), "{heard:?}");
            assert_eq!(server.taken().len(), 0);
        }
    }
    // With the right one the mail that has waited goes.
    let scene = rows(1).await;
    let server = server(Encrypts::WhenAsked, &papers).await;
    let wrong = mailer(&scene, &server, &trusting(&strangers), &json!({}));
    send(&wrong, 1, BATCH).await;
    assert_eq!((server.taken().len(), scene.unsent()), (0, 1));
    scene.advance(Duration::from_secs(61));
    let right = mailer(&scene, &server, &trusting(&papers), &json!({}));
    send(&right, 2, BATCH).await;
    assert_eq!((server.taken().len(), scene.unsent()), (1, 0));
}
