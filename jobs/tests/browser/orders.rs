//! Every order, by the form that a page leads to.

use std::process::{Child, Stdio};

use serde_json::json;

use crate::{
    command::watchkeeper,
    scene::{Scene, items},
    wait::soon,
    webdriver::Browser,
};

/// Who signs in as `ann` is written down so.
const ANN: &str = "ann (by their own word)";

/// A program under a lock. Killed with it.
struct Holder(Child);

/// The job whose items they are about.
const CARDS: &str = "cards";

/// Why two of them are discarded together.
const BOTH: &str = "these two have moved away as well";

/// An order that was given: what, of what, and why.
type Given = (&'static str, String, &'static str);

pub(crate) fn every_order_is_given_by_its_form_and_written_down() {
    let mut scene = Scene::of(3);
    let browser = Browser::start();
    browser.sign_in(&scene, 0);
    let mut given = vec![
        run_now(&scene, &browser),
        pause(&scene, &browser),
        resume(&scene, &browser),
        hand_over(&scene, &browser),
        withdraw(&scene, &browser),
        end_a_lease(&scene, &browser),
        put_aside(&scene, &browser),
        send_again(&scene, &browser),
        discard(&scene, &browser),
        discard_all(&scene, &browser),
        send_all_again(&scene, &browser),
        pause_all(&scene, &browser),
        resume_all(&scene, &browser),
    ];
    given.push(drain(&mut scene, &browser));
    let all = scene.get(0, "/api/v1/audit?limit=100");
    browser.open(&scene.url(0, "/audit"));
    for (order, of, why) in given {
        let written = items(&all).find(|entry| {
            entry["order"] == order && entry["of"] == of.as_str() && entry["reason"] == why
        });
        let written = written.unwrap_or_else(|| panic!("no {order} of {of}: {all}"));
        assert_eq!(written["who"], ANN, "{written}");
        let result = written["result"].as_str().unwrap_or_default();
        let done = match order {
            "break" => result.starts_with("The lease of"),
            "discard" if why == BOTH => result.starts_with("2 "),
            "park" | "retry" | "discard" => result.starts_with("1 "),
            "pause_all" | "resume_all" => result.ends_with("heard by w0, w1, w2"),
            _ => result == "heard" || result.starts_with("written"),
        };
        assert!(done, "{written}");
        // Readings of the orders are shared, and a moment old.
        soon("order on the page", || {
            let shown = browser.text("table[data-part=\"orders\"]");
            let there = shown.contains(why) && shown.contains(ANN);
            if !there {
                browser.reload();
            }
            there
        });
    }
}

// === the orders ===

fn run_now(scene: &Scene, browser: &Browser) -> Given {
    let why = "the numbers are wanted now";
    scene.leader("report");
    browser.open(&scene.url(0, "/jobs/report"));
    // What is wrong is said on the form, with what was written.
    browser.go("a[href^=\"/orders/trigger?\"]");
    let said = send(browser, &[("textarea[name=params]", "[")], why);
    assert!(said.contains("no JSON object"), "{said}");
    assert_eq!(
        browser.value("document.querySelector('textarea[name=params]').value"),
        "["
    );
    let params = "{\"work\": \"20ms\"}";
    let said = send(browser, &[("textarea[name=params]", params)], why);
    assert_given(browser, &said, "report");
    scene.soon("run with parameters", || {
        let runs = scene.get(0, "/api/v1/runs?job=report");
        items(&runs).any(|run| run["params"] == json!(["work"]) && run["outcome"] == "done")
    });
    ("trigger", "report".to_owned(), why)
}

fn pause(scene: &Scene, browser: &Browser) -> Given {
    let why = "the till is counted";
    browser.open(&scene.url(0, "/jobs/pulse"));
    browser.go("a[href^=\"/orders/pause?\"]");
    let said = send(browser, &[], why);
    assert_given(browser, &said, "pulse");
    scene.soon("pause", || {
        let job = scene.job(0, "pulse");
        job["paused"] == true && job["paused_why"] == why
    });
    ("pause", "pulse".to_owned(), why)
}

fn resume(scene: &Scene, browser: &Browser) -> Given {
    let why = "it is counted";
    browser.open(&scene.url(0, "/jobs/pulse"));
    assert!(!browser.has("a[href^=\"/orders/pause?\"]"), "it is paused");
    browser.go("a[href^=\"/orders/resume?\"]");
    let said = browser.text("main");
    assert!(said.contains("the till is counted"), "why it was: {said}");
    let said = send(browser, &[], why);
    assert_given(browser, &said, "pulse");
    scene.soon("end of the pause", || {
        scene.job(0, "pulse")["paused"] == false
    });
    ("resume", "pulse".to_owned(), why)
}

fn hand_over(scene: &Scene, browser: &Browser) -> Given {
    let why = "its machine is slow";
    let to = 1 - scene.leader("pulse").min(1);
    browser.open(&scene.url(0, "/jobs/pulse"));
    browser.go("a[href^=\"/orders/resign?\"]");
    browser.click(&format!(
        "select[name=to] option[value=\"{}\"]",
        scene.id(to)
    ));
    let said = send(browser, &[], why);
    assert_given(browser, &said, "pulse");
    scene.soon("leader that was chosen", || {
        scene.leads(0, "pulse") == Some(to)
    });
    ("resign", "pulse".to_owned(), why)
}

/// The first trigger goes on for ever, so that the second one waits.
fn withdraw(scene: &Scene, browser: &Browser) -> Given {
    let why = "once is enough";
    scene.leader("long");
    let trigger = || scene.order("/api/v1/jobs/long/trigger", &json!({}));
    trigger();
    scene.soon("run that goes on", || {
        let running = &scene.job(0, "long")["running"];
        running.as_array().is_some_and(|runs| !runs.is_empty())
    });
    let id = trigger()["id"].as_str().expect("an id").to_owned();
    let link = format!("a[href^=\"/orders/withdraw?\"][href*=\"{id}\"]");
    soon("trigger on the page", || {
        browser.open(&scene.url(0, "/audit"));
        browser.has(&link)
    });
    browser.go(&link);
    let said = send(browser, &[], why);
    assert_given(browser, &said, &id);
    scene.soon("end of the trigger", || {
        let waiting = scene.get(0, "/api/v1/triggers");
        items(&waiting).all(|trigger| trigger["id"] != id.as_str())
    });
    ("withdraw", id, why)
}

fn end_a_lease(scene: &Scene, browser: &Browser) -> Given {
    let (key, why) = ("lock/parcel", "its program hangs");
    let mut holder = Holder::start(scene, "parcel");
    scene.soon("lock that is held", || {
        let locks = scene.get(0, "/api/v1/locks?prefix=lock%2F&held=true");
        locks["items"][0]["key"] == key
    });
    browser.open(&scene.url(0, "/locks?q=parcel"));
    browser.go("table[data-part=\"locks\"] a");
    browser.go("a[href^=\"/orders/break?\"]");
    // It cannot be taken back, so a person says it twice.
    assert!(browser.has("form.order input[name=sure]:required"));
    let said = send(browser, &[], why);
    assert_given(browser, &said, key);
    soon("end of the program", || {
        holder.0.try_wait().expect("our own child").is_some()
    });
    ("break", key.to_owned(), why)
}

/// All cards were refused for good.
fn put_aside(scene: &Scene, browser: &Browser) -> Given {
    let why = "its address is wrong";
    scene.soon("cards that were refused", || {
        states(scene) == ["dead", "dead", "dead", "dead", "dead"]
    });
    give_of_items(scene, browser, "/orders/park?", "id=1", (why, 1));
    scene.soon("card that is put aside", || {
        states(scene) == ["parked", "dead", "dead", "dead", "dead"]
    });
    ("park", CARDS.to_owned(), why)
}

fn send_again(scene: &Scene, browser: &Browser) -> Given {
    let why = "the receiver takes them now";
    scene.receiver.take();
    give_of_items(scene, browser, "/orders/retry?", "id=2", (why, 1));
    scene.soon("card that has gone", || {
        states(scene) == ["parked", "dead", "dead", "dead"]
    });
    ("retry", CARDS.to_owned(), why)
}

fn discard(scene: &Scene, browser: &Browser) -> Given {
    let why = "its holder has moved away";
    give_of_items(scene, browser, "/orders/discard?", "id=3", (why, 1));
    // What was discarded is listed when it is asked for.
    scene.soon("card that is discarded", || {
        states(scene) == ["parked", "dead", "dead"]
    });
    ("discard", CARDS.to_owned(), why)
}

fn discard_all(scene: &Scene, browser: &Browser) -> Given {
    give_of_items(scene, browser, "/orders/discard?", "all=dead", (BOTH, 2));
    scene.soon("cards that are discarded", || states(scene) == ["parked"]);
    ("discard", CARDS.to_owned(), BOTH)
}

fn send_all_again(scene: &Scene, browser: &Browser) -> Given {
    let why = "and so do the others";
    give_of_items(scene, browser, "/orders/retry?", "all=parked", (why, 1));
    scene.soon("cards that have gone", || states(scene).is_empty());
    ("retry", CARDS.to_owned(), why)
}

fn pause_all(scene: &Scene, browser: &Browser) -> Given {
    let why = "the database is moved";
    assert!(!all_are(scene, true));
    browser.open(&scene.url(0, "/"));
    browser.go("a[href^=\"/orders/pause_all?\"]");
    assert!(browser.has("form.order input[name=sure]:required"));
    let said = send(browser, &[], why);
    assert_given(browser, &said, "All jobs");
    scene.soon("pause of all jobs", || all_are(scene, true));
    ("pause_all", "jobs".to_owned(), why)
}

fn resume_all(scene: &Scene, browser: &Browser) -> Given {
    let why = "it is where it should be";
    browser.open(&scene.url(0, "/"));
    browser.go("a[href^=\"/orders/resume_all?\"]");
    assert!(browser.has("form.order input[name=sure]:required"));
    let said = send(browser, &[], why);
    assert_given(browser, &said, "All jobs");
    scene.soon("end of all pauses", || all_are(scene, false));
    ("resume_all", "jobs".to_owned(), why)
}

/// Whether every job is paused, or none is.
fn all_are(scene: &Scene, paused: bool) -> bool {
    let jobs = scene.get(0, "/api/v1/jobs?limit=100");
    items(&jobs).count() > 0 && items(&jobs).all(|job| job["paused"] == paused)
}

/// Follows the link to an order about items, once it is there, and gives the order.
fn give_of_items(
    scene: &Scene,
    browser: &Browser,
    path: &str,
    which: &str,
    (why, count): (&str, usize),
) {
    let link = format!("a[href^=\"{path}\"][href*=\"{which}\"]");
    // What the replicas count is a moment old.
    soon("link to the order", || {
        browser.open(&scene.url(0, "/batches?job=cards"));
        browser.has(&link)
    });
    browser.go(&link);
    let said = send(browser, &[], why);
    assert_given(browser, &said, &format!("{count} "));
}

/// The states of the cards that do not go by themselves, by their ids.
fn states(scene: &Scene) -> Vec<String> {
    let kept = scene.get(0, "/api/v1/jobs/cards/items");
    let state = |item: &serde_json::Value| item["state"].as_str().unwrap_or_default().to_owned();
    items(&kept).map(state).collect()
}

fn drain(scene: &mut Scene, browser: &Browser) -> Given {
    let (id, why) = (scene.id(2), "its machine goes");
    browser.open(&scene.url(0, "/replicas"));
    browser.go(&format!("a[href^=\"/orders/drain?\"][href*=\"{id}\"]"));
    assert!(browser.has("form.order input[name=sure]:required"));
    let said = send(browser, &[], why);
    assert_given(browser, &said, "");
    assert!(said.contains("w2") || said.contains(&id), "{said}");
    scene.wait_until_gone(2);
    ("drain", id, why)
}

// === helpers ===

/// Fills the form in that is open, and sends it; says what is answered.
#[track_caller]
pub(crate) fn send(browser: &Browser, fields: &[(&str, &str)], why: &str) -> String {
    for (field, text) in fields {
        browser.fill(&format!("form.order {field}"), text);
    }
    browser.fill("form.order input[name=reason]", why);
    if browser.has("form.order input[name=sure]") {
        browser.click("form.order input[name=sure]");
    }
    // The page that answers does not have it.
    browser.run("window.isSent = true;", &json!([]));
    browser.click("form.order button");
    soon("answer to the form", || {
        browser.holds("!window.isSent && document.querySelector('main [role=alert]') !== null")
    });
    browser.text("main [role=alert]")
}

/// The answer is a good one, and about this.
#[track_caller]
pub(crate) fn assert_given(browser: &Browser, said: &str, of: &str) {
    assert!(browser.has("main p.good[role=alert]"), "{}", browser.seen());
    assert!(said.contains(of), "{said}");
}

// === impl Holder ===

impl Holder {
    /// Holds a lock of this store for as long as nothing ends it.
    fn start(scene: &Scene, key: &str) -> Self {
        let holder = watchkeeper(scene.folder())
            .args(["lock", key, "--quiet", "--config"])
            .arg(scene.config())
            .args(["--", "sleep", "600"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(holder.expect("the command starts"))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
