//! Everything by keys alone.

use std::time::Duration;

use serde_json::json;

use crate::{
    page::{FOLLOWED, STANDS_STILL, is_paused},
    scene::Scene,
    wait::pause,
    webdriver::{Browser, ENTER, TAB},
};

/// Stops of the key Tab on a page: more than any has here.
const STOPS: usize = 120;

/// Longer than a stream takes to send what has changed.
const NEWS: Duration = Duration::from_millis(2_500);

pub(crate) fn everything_is_reached_by_keys() {
    let scene = Scene::of(1);
    scene.leader("pulse");
    // Then its row has the place that it keeps.
    scene.soon("run that has failed", || scene.failed_run().is_some());
    let browser = Browser::start();
    browser.sign_in(&scene, 0);
    browser.wait("stream", FOLLOWED);
    the_first_stop_leads_to_the_content(&browser);
    browser.open(&scene.url(0, "/"));
    browser.wait("stream", FOLLOWED);
    stops_come_in_the_order_of_the_page(&browser);
    leave(&browser);
    a_key_leads_to_the_search_and_one_stops_the_page(&scene, &browser);
    an_order_is_given(&scene, &browser);
}

fn the_first_stop_leads_to_the_content(browser: &Browser) {
    browser.press(&[TAB]);
    assert!(
        browser.is("document.activeElement.matches('a.skip')"),
        "{}",
        browser.seen()
    );
    let seen = "document.activeElement.getBoundingClientRect().width > 20";
    assert!(browser.is(seen), "it is seen once it has the focus");
    browser.press(&[ENTER]);
    assert!(browser.is("location.hash === '#main'"), "{}", browser.url());
    browser.press(&[TAB]);
    assert!(browser.is("document.activeElement.closest('main') !== null"));
}

/// What the links of a page are for comes before them, and what stops the page is reached, too.
fn stops_come_in_the_order_of_the_page(browser: &Browser) {
    let wanted = [
        "a.skip",
        "header nav a[href=\"/\"]",
        "header nav a[href=\"/audit\"]",
        "header .tools button[aria-pressed]",
        ".states a[href=\"/?state=paused\"]",
        "form.choices input[name=q]",
        "form.choices button",
        "form.choices summary",
        "table[data-part=\"jobs\"] a[href=\"/jobs/pulse\"]",
        "table[data-part=\"replicas\"] a[href^=\"/orders/drain?\"]",
        "footer a[href=\"/metrics\"]",
    ];
    let mut reached = Vec::new();
    for _ in 0..STOPS {
        browser.press(&[TAB]);
        let stop = browser.run(
            "return arguments[0].find((css) => document.activeElement.matches(css)) ?? null;",
            &json!([wanted]),
        );
        reached.extend(stop.as_str().map(str::to_owned));
        if reached.len() == wanted.len() {
            break;
        }
    }
    assert_eq!(reached, wanted);
}

fn a_key_leads_to_the_search_and_one_stops_the_page(scene: &Scene, browser: &Browser) {
    let pressed =
        "document.querySelector('header .tools button').getAttribute('aria-pressed') === 'true'";
    browser.press(&["/"]);
    assert!(browser.is("document.activeElement.name === 'q'"));
    // In a field a key writes.
    browser.press(&["p"]);
    assert_eq!(browser.value("document.activeElement.value"), "p");
    assert!(!browser.is(pressed));
    leave(browser);
    browser.press(&["p"]);
    assert!(browser.is(pressed), "{}", browser.seen());
    assert!(browser.is(STANDS_STILL), "{}", browser.seen());
    scene.pause("report");
    pause(NEWS);
    assert!(!browser.is(&is_paused("report")), "the page stands still");
    browser.press(&["p"]);
    browser.wait("pause", &is_paused("report"));
    assert!(!browser.is(pressed));
    browser.wait("stream", FOLLOWED);
}

fn an_order_is_given(scene: &Scene, browser: &Browser) {
    browser.open(&scene.url(0, "/jobs/pulse"));
    go_to(browser, "a[href^=\"/orders/pause?\"]");
    browser.press(&[ENTER]);
    go_to(browser, "form.order input[name=reason]");
    browser.write("by hand");
    go_to(browser, "form.order button");
    browser.press(&[ENTER]);
    browser.wait(
        "answer",
        "document.querySelector('main p.good[role=alert]') !== null",
    );
    scene.soon("pause", || scene.job(0, "pulse")["paused_why"] == "by hand");
}

// === helpers ===

/// Presses Tab until this has the focus.
#[track_caller]
fn go_to(browser: &Browser, css: &str) {
    browser.wait("page", &format!("document.querySelector('{css}') !== null"));
    let there = format!("document.activeElement.matches('{css}')");
    for _ in 0..STOPS {
        browser.press(&[TAB]);
        if browser.is(&there) {
            return;
        }
    }
    panic!("no key leads to {css}:\n{}", browser.seen());
}

/// Takes the focus away.
fn leave(browser: &Browser) {
    browser.value("document.activeElement.blur()");
}
