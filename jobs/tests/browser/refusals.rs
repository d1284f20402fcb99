//! What a browser cannot order: without the token, without a form of ours, and where nothing may be changed.
//!
//! A browser that has no token asks its user for one, which no test can answer. So a script of the page asks as one that says none:
//! with the page's own origin, and with its headers.

use serde_json::{Value, json};

use crate::{
    scene::{Scene, items},
    webdriver::Browser,
};

/// The statuses with which a form is given out, and taken.
const ASK: &str = r"
const [order, of, credentials] = arguments;
const form = await fetch(`/orders/${order}?${new URLSearchParams(of)}`, { credentials });
const body = new URLSearchParams([...of, ['reason', 'none'], ['sure', 'yes']]);
const sent = await fetch(`/orders/${order}`, { method: 'POST', credentials, body });
return [form.status, sent.status];";

const LINKS: &str = "a[href^=\"/orders/\"]";

pub(crate) fn no_order_is_taken_without_the_token_or_where_nothing_may_be_changed() {
    let read_only = [("WATCHKEEPER_ADMIN__READ_ONLY", "true")];
    let scene = Scene::with(&[&[], &read_only]);
    scene.leader("pulse");
    let browser = Browser::start();

    browser.open(&scene.url(0, "/jobs/pulse"));
    assert!(browser.has(LINKS), "{}", browser.seen());
    all_are_refused(&scene, &browser, "omit", &json!([401, 401]));
    // The token alone is not enough: a form of ours has a seal.
    browser.sign_in(&scene, 0);
    all_are_refused(&scene, &browser, "same-origin", &json!([200, 403]));

    browser.sign_in(&scene, 1);
    for path in [
        "/",
        "/jobs/pulse",
        "/replicas",
        "/locks?key=job%2Fpulse",
        "/audit",
    ] {
        browser.open(&scene.url(1, path));
        assert!(!browser.has(LINKS), "{path}: {}", browser.seen());
        let strip = browser.text("#strip");
        assert!(
            strip.contains("orders are not taken here"),
            "{path}: {strip}"
        );
    }
    all_are_refused(&scene, &browser, "same-origin", &json!([403, 403]));
    all_are_refused(&scene, &browser, "omit", &json!([401, 403]));

    let given = scene.get(0, "/api/v1/audit");
    assert_eq!(items(&given).count(), 0, "{given}");
    assert_eq!(scene.job(0, "pulse")["paused"], false);
}

#[track_caller]
fn all_are_refused(scene: &Scene, browser: &Browser, credentials: &str, expected: &Value) {
    let replica = scene.id(0);
    let orders = [
        ("trigger", json!([["job", "report"]])),
        ("pause", json!([["job", "pulse"]])),
        ("resume", json!([["job", "pulse"]])),
        ("resign", json!([["job", "pulse"]])),
        ("drain", json!([["replica", replica]])),
        ("withdraw", json!([["id", "a-trigger"]])),
        ("break", json!([["key", "job/pulse"]])),
        ("retry", json!([["job", "cards"], ["id", "1"]])),
        ("park", json!([["job", "cards"], ["id", "1"]])),
        ("discard", json!([["job", "cards"], ["id", "1"]])),
        ("pause_all", json!([["all", "jobs"]])),
        ("resume_all", json!([["all", "jobs"]])),
    ];
    for (order, of) in orders {
        let answered = browser.run(ASK, &json!([order, of, credentials]));
        assert_eq!(answered, *expected, "{order}, credentials {credentials}");
    }
}
