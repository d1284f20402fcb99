//! A page changes all the time, and nothing of that takes away what a person is at.

use serde_json::json;

use crate::{
    page::{FOLLOWED, MARKED, is_paused, mark, row},
    scene::Scene,
    webdriver::{Browser, LEFT},
};

/// The text that a person has marked.
const SELECTED: &str = "document.getSelection().toString()";

pub(crate) fn a_person_at_a_row_or_a_field_is_not_disturbed() {
    let scene = Scene::of(1);
    scene.leader("pulse");
    let browser = Browser::start();
    browser.open(&scene.url(0, "/"));
    browser.wait("stream", FOLLOWED);
    mark(&browser);

    // In the middle of a word in the search.
    browser.click("input[name=q]");
    browser.write("pulse");
    browser.press(&[LEFT, LEFT]);
    scene.pause("greets");
    browser.wait("pause", &is_paused("greets"));
    let field = browser.value(
        "[document.activeElement.name, document.activeElement.value, document.activeElement.selectionStart]",
    );
    assert_eq!(field, json!(["q", "pulse", 3]));
    // What is written on is written there.
    browser.write("X");
    assert_eq!(browser.value("document.activeElement.value"), "pulXse");

    // On a link in a row that changes, and in which others change places.
    let link = format!("{}.querySelector('a')", row("pulse"));
    browser.value(&format!("(window.link = {link}).focus()"));
    scene.pause("pulse");
    scene.pause("report");
    browser.wait("pause", &is_paused("report"));
    assert!(browser.is("document.activeElement === window.link && window.link.isConnected"));
    assert!(!browser.is(&is_paused("pulse")), "it waits for the person");

    // With a text marked.
    let cell = format!(
        "{}.querySelector('td[data-label=\"Schedule\"]')",
        row("long")
    );
    browser.value(&format!(
        "document.getSelection().selectAllChildren({cell})"
    ));
    let text = browser.value(SELECTED);
    assert!(text.as_str().is_some_and(|text| text.starts_with("manual")));
    scene.pause("long");
    scene.pause("fails");
    browser.wait("pause", &is_paused("fails"));
    assert_eq!(browser.value(SELECTED), text);
    assert!(!browser.is(&is_paused("long")), "it waits for the person");

    // Once the person has gone, the next answer brings both rows: that to the question with which a pause of the page ends.
    browser.value("(document.activeElement.blur(), document.getSelection().removeAllRanges())");
    browser.press(&["p", "p"]);
    browser.wait("row that has waited", &is_paused("long"));
    browser.wait("row that has waited", &is_paused("pulse"));
    assert!(browser.is(MARKED), "the page was loaded again");
}
