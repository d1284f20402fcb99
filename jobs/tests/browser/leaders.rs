//! A new leader, on a page that stays open.

use serde_json::json;
use watchkeeper::clock::Clock;

use crate::{
    page::{FOLLOWED, MARKED, is_led_by, mark},
    scene::Scene,
    wait::{starved, watch_processors},
    webdriver::Browser,
};

/// A page that is followed is looked at once in so many milliseconds; a page that follows no stream asks every five seconds.
const LOOK_MS: i64 = 1_000;

/// What it takes to read, to send and to draw what was found.
const SHOWN_MS: i64 = 250;

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
    assert!(browser.is(FOLLOWED), "{}", browser.seen());
    watch_processors();
    let clock = Clock::system();
    let successor = is_led_by("pulse", &format!("w{heir}"));
    browser.run(&NOTE.replace("CONDITION", &successor), &json!([]));
    let (told, from) = std::thread::scope(|scope| {
        let api = scope.spawn(|| {
            scene.soon("successor in the API", || {
                scene.leads(heir, "pulse") == Some(heir)
            });
            (clock.wall(), clock.now())
        });
        scene.kill(led);
        api.join().expect("a thread that asks")
    });
    browser.wait("successor", &successor);
    let seen = browser.value("window.seenAt").as_f64();
    let seen = seen.expect("a time") as i64;
    let late = seen - told.as_millisecond();
    println!("a new leader was on the page {late} ms after the API had told of it");
    let waited = i64::try_from(starved(from, clock.now()).as_millis()).expect("a short time");
    assert!(late < LOOK_MS + SHOWN_MS + waited, "{late} ms");
    assert!(browser.is(MARKED), "the page was loaded again");
    assert!(browser.is(FOLLOWED), "{}", browser.seen());
}
