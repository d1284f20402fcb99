//! Streams that break, are refused, or belong to a page that is not looked at.
//!
//! The long waits of a page are held back and let go by the case ([`HOLD`], [`LET_GO`]): nothing here waits for them.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::json;

use crate::{
    page::{ASKED_FOR, FOLLOWED, MARKED, is_paused, mark},
    proxy::Proxy,
    scene::Scene,
    wait::soon,
    webdriver::Browser,
};

/// Pages that are followed at one time without the token.
const OPEN_SLOTS: usize = 16;

/// What is to happen when a page was not looked at for ten seconds, or has had no stream for thirty, does not before [`LET_GO`].
const HOLD: &str = r"(() => {
  const usual = window.setTimeout;
  window.held = new Map();
  window.setTimeout = (act, ms, ...rest) => {
    if (ms !== 10000 && ms !== 30000) return usual(act, ms, ...rest);
    const id = usual(() => {}, 0);
    window.held.set(id, [act, ms]);
    return id;
  };
  const forget = window.clearTimeout;
  window.clearTimeout = (id) => { window.held.delete(id); forget(id); };
})()";

/// Lets happen what was held back, and says in how many milliseconds it should have.
const LET_GO: &str = r"(() => {
  const held = [...window.held.values()];
  window.held.clear();
  held.forEach(([act]) => act());
  return held.map(([, ms]) => ms);
})()";

/// The page is looked at, or not, as far as it is told.
const LOOK_AWAY: &str = r"(() => {
  Object.defineProperty(document, 'hidden', { value: true, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
})()";
const LOOK: &str = r"(() => {
  delete document.hidden;
  document.dispatchEvent(new Event('visibilitychange'));
})()";

/// A tab of this browser has the stream.
const HAS_STREAM: &str = "return (await navigator.locks.query()).held.some(({ name }) => name === 'watchkeeper-stream');";

pub(crate) fn a_stream_that_breaks_goes_on_behind_what_was_seen() {
    let scene = Scene::of(1);
    scene.leader("pulse");
    let proxy = Proxy::to(scene.address(0));
    let browser = Browser::start();
    browser.open(&proxy.url("/"));
    browser.wait("stream", FOLLOWED);
    mark(&browser);
    // What has come by the stream has an id.
    scene.pause("report");
    browser.wait("pause", &is_paused("report"));
    proxy.cut();
    let broken = "document.getElementById('live').textContent.startsWith('the stream has ended')";
    browser.wait("end of the stream", broken);
    scene.pause("pulse");
    assert!(!browser.is(&is_paused("pulse")));
    proxy.mend();
    browser.wait("pause", &is_paused("pulse"));
    browser.wait("stream", FOLLOWED);
    assert!(browser.is(MARKED), "the page was loaded again");
    let streams = proxy.requests("/events");
    let again = streams.last().expect("it was asked for");
    let again = again.to_ascii_lowercase();
    assert!(streams.len() > 1, "{streams:?}");
    assert!(again.contains("\r\nlast-event-id: "), "{again}");
}

pub(crate) fn a_page_that_is_refused_a_stream_asks_until_it_gets_one() {
    let scene = Scene::of(1);
    scene.leader("pulse");
    let others: Vec<TcpStream> = (0..OPEN_SLOTS).map(|_| follower(&scene)).collect();
    let browser = Browser::start();
    browser.begin_pages_with(HOLD);
    browser.open(&scene.url(0, "/"));
    mark(&browser);
    browser.wait("question", ASKED_FOR);
    scene.pause("pulse");
    browser.wait("pause", &is_paused("pulse"));
    assert!(browser.is(ASKED_FOR), "{}", browser.seen());
    // A place is free again as soon as the server has seen them go.
    drop(others);
    let mut tries = Vec::new();
    soon("stream", || {
        let tried = browser.value(LET_GO);
        tries.extend(tried.as_array().cloned().unwrap_or_default());
        browser.holds(FOLLOWED)
    });
    assert!(tries.iter().all(|ms| *ms == 30_000), "{tries:?}");
    scene.resume("pulse");
    browser.wait("end of the pause", &format!("!{}", is_paused("pulse")));
    assert!(browser.is(MARKED), "the page was loaded again");
}

pub(crate) fn a_page_that_is_not_looked_at_leaves_the_stream_to_others() {
    let scene = Scene::of(1);
    scene.leader("pulse");
    let browser = Browser::start();
    browser.begin_pages_with(HOLD);
    browser.open(&scene.url(0, "/"));
    browser.wait("stream", FOLLOWED);
    mark(&browser);
    let has_stream = || browser.run(HAS_STREAM, &json!([])) == true;
    // A moment is no reason to give it up.
    browser.value(LOOK_AWAY);
    browser.value(LOOK);
    assert_eq!(browser.value(LET_GO), json!([]));
    assert!(has_stream());
    browser.value(LOOK_AWAY);
    assert!(has_stream());
    assert_eq!(browser.value(LET_GO), json!([10_000]));
    soon("end of the stream", || !has_stream());
    scene.pause("pulse");
    assert!(!browser.is(&is_paused("pulse")), "it asks for nothing");
    browser.value(LOOK);
    browser.wait("pause", &is_paused("pulse"));
    soon("stream", has_stream);
    browser.wait("stream", FOLLOWED);
    assert!(browser.is(MARKED), "the page was loaded again");
}

/// A client that follows the page of the fleet for as long as it is kept.
fn follower(scene: &Scene) -> TcpStream {
    let address = scene.address(0);
    let request = format!("GET /events?path=/ HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let mut stream = TcpStream::connect(&address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it is asked");
    let mut said = [0; 12];
    stream.read_exact(&mut said).expect("an answer");
    assert_eq!(&said, b"HTTP/1.1 200");
    stream
}
