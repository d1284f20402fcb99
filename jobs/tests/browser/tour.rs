//! Every view, with something of everything on it.

use serde_json::Value;

use crate::{scene::Scene, webdriver::Browser};

/// The widths of a telephone, a laptop and a large screen.
pub(crate) const WIDTHS: [u32; 3] = [390, 1280, 1920];

pub(crate) const SCHEMES: [&str; 2] = ["light", "dark"];

/// Whether the page can be moved sideways as a whole.
const IS_WIDER: &str =
    "document.documentElement.scrollWidth > document.documentElement.clientWidth";

/// What is in the way of that, for those who look for it.
const WIDE: &str = "[...document.querySelectorAll('body *')]
    .filter((one) => one.closest('section') === null || one.matches('section'))
    .filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map((one) => one.outerHTML.slice(0, 120))";

/// The name of each view, and its path.
pub(crate) fn views(scene: &Scene) -> Vec<(&'static str, String)> {
    let run = scene.failed_run().unwrap_or_default();
    let replica = scene.id(0);
    let plain = [
        ("fleet", "/"),
        ("shards", "/?shards=parts"),
        ("job", "/jobs/pulse"),
        ("job-with-shards", "/jobs/parts"),
        ("runs", "/runs"),
        ("runs-of-a-job", "/runs?job=fails"),
        ("no-runs", "/runs?q=no-such-job"),
        ("batches", "/batches"),
        ("items", "/batches?job=cards"),
        ("replicas", "/replicas"),
        ("nodes", "/nodes"),
        ("locks", "/locks"),
        ("lock", "/locks?key=job%2Fpulse"),
        ("audit", "/audit"),
        ("order", "/orders/resign?job=pulse"),
        ("order-with-parameters", "/orders/trigger?job=pulse"),
        ("order-to-pause", "/orders/pause?job=pulse"),
        ("order-to-break", "/orders/break?key=job%2Fpulse"),
        ("order-to-resume", "/orders/resume?job=greets"),
        ("order-to-withdraw", "/orders/withdraw?id=a-trigger"),
        ("order-to-retry", "/orders/retry?job=cards&all=dead"),
        ("order-to-park", "/orders/park?job=cards&id=1"),
        ("order-to-discard", "/orders/discard?job=cards&all=dead"),
        ("order-to-pause-all", "/orders/pause_all?all=jobs"),
        ("order-to-resume-all", "/orders/resume_all?all=jobs"),
    ];
    let mut views: Vec<(&str, String)> = plain
        .into_iter()
        .map(|(name, path)| (name, path.to_owned()))
        .collect();
    views.push(("run", format!("/jobs/fails?run={run}")));
    views.push(("final-order", format!("/orders/drain?replica={replica}")));
    views
}

pub(crate) fn no_view_complains_asks_elsewhere_or_is_wider_than_its_window() {
    let scene = Scene::of(2);
    scene.liven();
    let browser = Browser::start_watched();
    browser.sign_in(&scene, 0);
    let mut faults = Vec::new();
    for (name, path) in views(&scene) {
        browser.open(&scene.url(0, &path));
        assert_eq!(browser.text("h1"), "Watchkeeper", "{}", browser.seen());
        for width in WIDTHS {
            browser.dress(width, "light");
            if browser.is(IS_WIDER) {
                let wide = browser.value(WIDE);
                faults.push(format!("{name} is wider than {width}: {wide}"));
            }
        }
        for said in browser.log("browser") {
            match said["level"] == "SEVERE" {
                true => faults.push(format!("{name} complains: {said}")),
                false => println!("{name} says: {said}"),
            }
        }
    }
    let asked = asked(&browser);
    let ours = scene.url(0, "/");
    let foreign = asked.iter().filter(|url| !is_of(&ours, url));
    faults.extend(foreign.map(|url| format!("asked for elsewhere: {url}")));
    let script = scene.url(0, "/app.js");
    assert!(
        asked.iter().any(|url| url.starts_with(&script)),
        "what is asked for is noted: {asked:?}"
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Every address that was asked for.
fn asked(browser: &Browser) -> Vec<String> {
    let entries = browser.log("performance").into_iter();
    let urls = entries.filter_map(|entry| {
        let message: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
        let message = &message["message"];
        let url = match message["method"].as_str()? {
            "Network.requestWillBeSent" => &message["params"]["request"]["url"],
            "Network.webSocketCreated" => &message["params"]["url"],
            _ => return None,
        };
        Some(url.as_str()?.to_owned())
    });
    urls.collect()
}

/// Whether an address is ours, or none at which anything is asked.
fn is_of(ours: &str, url: &str) -> bool {
    let (_, host) = ours.split_once("://").unwrap_or(("", ours));
    // With the name of a person in it, at the sign-in.
    let plain = match url.split_once('@') {
        Some((_, rest)) => rest.starts_with(host),
        None => url.starts_with(ours),
    };
    // The browser's own first page is of no host.
    let of_no_host = ["data:", "about:", "chrome:"];
    plain || of_no_host.iter().any(|scheme| url.starts_with(scheme))
}
