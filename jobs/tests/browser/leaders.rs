//! A new leader, on a page that stays open.

use serde_json::json;
use watchkeeper::clock::Clock;

use crate::{
    page::{FOLLOWED, MARKED, is_led_by, mark},
    scene::Scene,
    webdriver::Browser,
};

/// Milliseconds between two questions of a page that follows no stream: what comes by a stream comes sooner. How much sooner is told.
const POLL_MS: i64 = 5_000;

/// Notes the time at which a condition holds first.
const NOTE: &str = r"
const holds = () => (CONDITION);
const watcher = new MutationObserver(() => {
  if (window.seenAt === undefined && holds()) window.seenAt = Date.now();
});
watcher.observe(document, { characterData: true, childList: true, subtree: true });";

/// The page is that of the standby, whose API is asked beside it. Browser and test have one clock.
pub(crate) fn a_new_leader_appears_on_the_open_page_by_itself() {
    let scene = Scene::of(2);
    let led = scene.leader("pulse");
    let heir = 1 - led;
    let browser = Browser::start();
    browser.open(&scene.url(heir, "/"));
    browser.wait("stream", FOLLOWED);
    browser.wait("leader", &is_led_by("pulse", &format!("w{led}")));
    mark(&browser);
    let successor = is_led_by("pulse", &format!("w{heir}"));
    browser.run(&NOTE.replace("CONDITION", &successor), &json!([]));
    let told = std::thread::scope(|scope| {
        let api = scope.spawn(|| {
            scene.soon("successor in the API", || {
                scene.leads(heir, "pulse") == Some(heir)
            });
            Clock::system().wall()
        });
        scene.kill(led);
        api.join().expect("a thread that asks")
    });
    browser.wait("successor", &successor);
    let seen = browser.value("window.seenAt").as_f64();
    let seen = seen.expect("a time") as i64;
    let late = seen - told.as_millisecond();
    println!("a new leader was on the page {late} ms after the API had told of it");
    assert!(late < POLL_MS, "{late} ms");
    assert!(browser.is(MARKED), "the page was loaded again");
    assert!(browser.is(FOLLOWED), "{}", browser.seen());
}
