//! A browser that runs no script of a page.

use serde_json::json;

use crate::{
    orders::{assert_given, send},
    page::keys,
    scene::Scene,
    tour::views,
    webdriver::Browser,
};

/// What the script adds to a page.
const ADDED: &str = "header .tools button";

pub(crate) fn every_view_answers_and_orders_are_given_without_a_script() {
    let scene = Scene::of(1);
    scene.liven();
    let browser = Browser::start();
    browser.sign_in(&scene, 0);
    assert!(browser.has(ADDED), "{}", browser.seen());
    browser.devtools(
        "Emulation.setScriptExecutionDisabled",
        &json!({ "value": true }),
    );
    for (name, path) in views(&scene) {
        browser.open(&scene.url(0, &path));
        assert!(!browser.has(ADDED), "{name} runs a script");
        assert_eq!(browser.text("h1"), "Watchkeeper", "{name}");
        let shown = browser.has("main table tbody tr, main dl, main form.order");
        assert!(shown, "{name}: {}", browser.seen());
    }
    browser.open(&scene.url(0, "/"));
    assert!(
        browser.has("noscript meta[http-equiv=refresh]"),
        "it is loaded again by itself"
    );
    browser.fill("input[name=q]", "puls");
    browser.go("form.choices button");
    assert_eq!(keys(&browser, "jobs"), ["pulse"]);

    browser.open(&scene.url(0, "/jobs/report"));
    browser.go("a[href^=\"/orders/pause?\"]");
    let said = send(&browser, &[], "no script is needed");
    assert_given(&browser, &said, "report");
    scene.soon("pause", || {
        scene.job(0, "report")["paused_why"] == "no script is needed"
    });
}
