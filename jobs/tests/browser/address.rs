//! What is chosen on a page stands in its address.

use serde_json::json;

use crate::{
    page::{FOLLOWED, is_paused, keys, row},
    scene::Scene,
    webdriver::Browser,
};

/// What the fields of the form say.
const CHOSEN: &str = "['q', 'state', 'sort', 'tz', 'size'].map(
    (name) => document.querySelector(`form.choices [name=${name}]`)?.value ?? ''
)";

/// The row that says that there is none.
const NOTHING: &str = "document.querySelector('table[data-part=\"jobs\"] td.none') !== null";

pub(crate) fn what_is_chosen_on_a_page_survives_a_reload() {
    let scene = Scene::of(1);
    scene.leader("pulse");
    let browser = Browser::start();
    // Two rows a page, so that there is a second one.
    browser.open(&scene.url(0, "/?size=2"));
    browser.fill("input[name=q]", "e");
    browser.click("form.choices summary");
    browser.choose("sort", "name");
    browser.fill("input[name=tz]", "Europe/Rome");
    browser.go("form.choices button");
    assert_eq!(keys(&browser, "jobs"), ["greets", "pulse"], "of three");
    browser.go("a[rel=next]");
    let address = browser.url();
    for _ in 0..2 {
        assert_eq!(keys(&browser, "jobs"), ["report"], "{}", browser.seen());
        let chosen = browser.value(CHOSEN);
        assert_eq!(chosen, json!(["e", "", "name", "Europe/Rome", "2"]));
        let pager = browser.text(".pager");
        assert!(pager.contains("3–3 of 3"), "{pager}");
        let footer = browser.text("footer");
        assert!(footer.contains("Times in Europe/Rome"), "{footer}");
        let now = browser.text("time.now");
        assert!(now.ends_with("+01:00") || now.ends_with("+02:00"), "{now}");
        browser.reload();
        assert_eq!(browser.url(), address);
    }
    // What comes by the stream is chosen in the same way.
    browser.wait("stream", FOLLOWED);
    scene.pause("pulse");
    scene.pause("report");
    browser.wait("pause", &is_paused("report"));
    assert_eq!(keys(&browser, "jobs"), ["report"]);

    browser.go(".states a[href*=\"state=paused\"]");
    let chosen = browser.value(CHOSEN);
    assert_eq!(chosen, json!(["e", "paused", "name", "Europe/Rome", "2"]));
    assert_eq!(keys(&browser, "jobs"), ["pulse", "report"]);
    browser.reload();
    browser.wait("stream", FOLLOWED);
    scene.resume("pulse");
    browser.wait("row less", &format!("{} === null", row("pulse")));
    assert_eq!(keys(&browser, "jobs"), ["report"]);
    scene.resume("report");
    browser.wait("sentence that there is none", NOTHING);

    for path in [
        "/runs?q=e&sort=took&state=done&tz=Europe%2FRome",
        "/replicas?q=e&sort=-started&state=leader&tz=Europe%2FRome",
        "/batches?q=e&sort=-name&state=backlog&tz=Europe%2FRome",
        "/locks?q=job&sort=-key&state=held&tz=Europe%2FRome",
    ] {
        browser.open(&scene.url(0, path));
        let chosen = browser.value(CHOSEN);
        for field in 0..4 {
            assert_ne!(chosen[field], json!(""), "{path}: {chosen}");
        }
        browser.reload();
        assert_eq!(browser.value(CHOSEN), chosen, "{path}");
    }
}
