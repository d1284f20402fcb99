//! What is wrong with receivers, what their faults mean, and that no secret is told.

use serde_json::{Value, json};
use watchkeeper::config::Findings;

use super::*;

fn settings(value: Value) -> NoticeSettings {
    serde_json::from_value(value).unwrap()
}

fn found(value: Value) -> Vec<(String, String)> {
    let found: Findings = Carriers.check(&settings(value));
    found
        .into_iter()
        .map(|mut f| (f.keys.swap_remove(0), f.message))
        .collect()
}

fn keys(value: Value) -> Vec<String> {
    found(value).into_iter().map(|(key, _)| key).collect()
}

#[test]
fn a_receiver_of_each_kind_is_found_right_and_made() {
    let secret = format!("whsec_{}", "a".repeat(32));
    for right in [
        json!({"kind": "webhook", "url": "https://h.example/hook", "secret": secret}),
        json!({"kind": "webhook", "url": "http://127.0.0.1:9/hook"}),
        json!({"kind": "ping", "url": "https://h.example/key/${job}"}),
        #[cfg(feature = "smtp")]
        json!({"kind": "mail", "url": "smtps://h.example", "from": "Jobs <jobs@example.org>", "to": ["a@example.org", "B <b@example.org>"]}),
    ] {
        assert_eq!(found(right.clone()), [], "{right}");
        let made = Carriers.open(&settings(right.clone()), &Clock::system());
        assert!(made.is_ok(), "{right}: {:?}", made.err());
    }
}

#[test]
fn every_fault_of_a_receiver_is_found_under_its_key() {
    for (wrong, expected) in [
        (json!({}), vec!["kind"]),
        (json!({"kind": "ping"}), vec!["url"]),
        (
            json!({"kind": "ping", "url": "https://h", "url_file": "f", "secret": "s", "to": "a@h"}),
            vec!["url_file", "secret", "to"],
        ),
        (
            json!({"kind": "mail", "url": "smtp://h"}),
            vec!["from", "to"],
        ),
        (
            json!({"kind": "webhook", "url": "h.example/hook"}),
            vec!["url"],
        ),
        (
            json!({"kind": "webhook", "url": "ftp://h.example"}),
            vec!["url"],
        ),
        (
            json!({"kind": "webhook", "url": "http://h.example/"}),
            vec!["url"],
        ),
        (
            json!({"kind": "webhook", "url_file": "/nowhere/url"}),
            vec!["url_file"],
        ),
        (
            json!({"kind": "webhook", "url": "https://h.example", "secret": "short"}),
            vec!["secret"],
        ),
        (
            json!({"kind": "webhook", "url": "https://h.example", "secret_file": "/nowhere/s"}),
            vec!["secret_file"],
        ),
        (
            json!({"kind": "ping", "url": "https://h/${name}"}),
            vec!["url"],
        ),
        (
            json!({"kind": "ping", "url": "https://${job}.example/"}),
            vec!["url"],
        ),
        #[cfg(feature = "smtp")]
        (
            json!({"kind": "mail", "url": "https://h.example", "from": "a@h", "to": "b@h"}),
            vec!["url"],
        ),
        #[cfg(feature = "smtp")]
        (
            json!({"kind": "mail", "url": "smtp://h.example", "from": "nobody", "to": ["b@h", "a b"], "username": "me", "tls": "off"}),
            vec!["from", "password", "tls", "to[1]"],
        ),
    ] {
        assert_eq!(keys(wrong.clone()), expected, "{wrong}");
    }
}

#[test]
fn no_secret_is_in_a_fault() {
    for wrong in [
        json!({"kind": "webhook", "url": "https://hunter2:hunter2@[/hunter2"}),
        json!({"kind": "webhook", "url": "http://h.example/hunter2", "secret": "hunter2"}),
        json!({"kind": "ping", "url": "gopher://h/hunter2/${hunter2}"}),
        #[cfg(feature = "smtp")]
        json!({"kind": "mail", "url": "smtp://me:hunter2@h.example/hunter2", "from": "a@h", "to": "b@h"}),
    ] {
        let told = found(wrong);
        assert!(!told.is_empty());
        assert!(!format!("{told:?}").contains("hunter2"), "{told:?}");
    }
}
