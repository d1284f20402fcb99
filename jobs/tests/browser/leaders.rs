//! A new leader, on a page that stays open.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    thread::JoinHandle,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::json;
use watchkeeper::clock::Clock;

use crate::{
    page::{FOLLOWED, MARKED, is_led_by, mark},
    scene::Scene,
    wait::{SOON, starved, watch_processors},
    webdriver::Browser,
};

/// A new leader is shown within so many milliseconds after it has begun to lead. A page that is followed is looked at twice a second;
/// one that follows no stream asks every five.
const SHOWN_MS: i64 = 1_000;

/// What it takes to draw what was sent, and to see that.
const DRAWN_MS: i64 = 250;

/// Who follow a page beside the browser.
const OTHERS: usize = 7;

/// Between two looks of theirs whether they are to end.
const AGAIN: Duration = Duration::from_millis(200);

/// Notes the time at which a condition holds first.
const NOTE: &str = r"
const holds = () => (CONDITION);
const watcher = new MutationObserver(() => {
  if (window.seenAt === undefined && holds()) window.seenAt = Date.now();
});
watcher.observe(document, { characterData: true, childList: true, subtree: true });";

pub(crate) fn a_new_leader_appears_on_the_open_page_by_itself() {
    a_new_leader_appears_on("/", 0);
}

pub(crate) fn a_new_leader_appears_on_the_page_of_its_job() {
    a_new_leader_appears_on("/jobs/pulse", 0);
}

pub(crate) fn a_new_leader_appears_while_eight_follow() {
    a_new_leader_appears_on("/", OTHERS);
}

/// The page is that of the standby. Browser, workers and test have one clock.
fn a_new_leader_appears_on(path: &str, others: usize) {
    let scene = Scene::of(2);
    let led = scene.leader("pulse");
    let heir = 1 - led;
    let browser = Browser::start();
    browser.open(&scene.url(heir, path));
    browser.wait("stream", FOLLOWED);
    browser.wait("leader", &is_led_by("pulse", &format!("w{led}")));
    mark(&browser);
    assert!(browser.is(FOLLOWED), "{}", browser.seen());
    let others: Vec<JoinHandle<i64>> = (0..others)
        .map(|_| follower(scene.address(heir), path, format!("w{heir}")))
        .collect();
    watch_processors();
    let clock = Clock::system();
    let successor = is_led_by("pulse", &format!("w{heir}"));
    browser.run(&NOTE.replace("CONDITION", &successor), &json!([]));
    let before = scene.mark();
    scene.kill(led);
    let leads = scene.begins_to_lead(before, heir, "pulse");
    let began: Timestamp = leads.text("timestamp").parse().expect("a time");
    browser.wait("successor", &successor);
    let seen = browser.value("window.seenAt").as_f64();
    let mut seen = vec![seen.expect("a time") as i64];
    seen.extend(
        others
            .into_iter()
            .map(|one| one.join().expect("a thread that follows")),
    );
    let late: Vec<i64> = seen.iter().map(|at| at - began.as_millisecond()).collect();
    println!("a new leader was on {path} {late:?} ms after it had begun to lead");
    let waited = i64::try_from(starved(leads.at, clock.now()).as_millis()).expect("a short time");
    assert!(
        late.iter().all(|late| *late < SHOWN_MS + DRAWN_MS + waited),
        "{late:?} ms"
    );
    assert!(browser.is(MARKED), "the page was loaded again");
    assert!(browser.is(FOLLOWED), "{}", browser.seen());
}

/// Follows a page as a script does, and says when it was told of this leader.
fn follower(address: String, path: &str, leader: String) -> JoinHandle<i64> {
    let request = format!("GET /events?path={path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let mut stream = TcpStream::connect(&address).expect("it listens");
    stream.set_read_timeout(Some(AGAIN)).expect("a limit");
    stream.write_all(request.as_bytes()).expect("it is asked");
    let leader = format!("<b>{leader}</b>");
    std::thread::spawn(move || {
        let clock = Clock::system();
        let until = clock.now() + SOON;
        let (mut seen, mut part) = (String::new(), [0; 16 * 1024]);
        while clock.now() < until {
            match stream.read(&mut part) {
                Ok(0) => panic!("the stream has ended: {seen}"),
                Ok(read) => seen += &String::from_utf8_lossy(&part[..read]),
                Err(error) => assert!(
                    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                    "{error}"
                ),
            }
            let rows = seen.split("<tr data-key=\"pulse\">").skip(1);
            let mut rows = rows.filter_map(|row| row.split("</tr>").next());
            if rows.any(|row| row.contains(&leader)) {
                return clock.wall().as_millisecond();
            }
        }
        panic!("it was not told of {leader}: {seen}");
    })
}
