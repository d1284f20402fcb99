//! What a page shows, as expressions in its script.

use crate::webdriver::Browser;

/// The page follows a stream.
pub(crate) const FOLLOWED: &str =
    "document.getElementById('live')?.textContent === 'up to date, as it happens'";

/// The page follows none, and asks for itself again and again.
pub(crate) const ASKED_FOR: &str =
    "document.getElementById('live')?.textContent === 'up to date, asked for every 5 s'";

/// Nothing on the page changes, since a person has said so.
pub(crate) const STANDS_STILL: &str =
    "document.getElementById('live')?.textContent === 'frozen: nothing on this page changes'";

/// It is still the page on which [`mark`] was called, and no other that has taken its place.
pub(crate) const MARKED: &str = "window.marked === true";

/// Leaves something on the page that no other one has, not even the same one loaded again.
#[track_caller]
pub(crate) fn mark(browser: &Browser) {
    browser.value("window.marked = true");
}

/// The row of a job.
pub(crate) fn row(job: &str) -> String {
    format!("document.querySelector('table[data-part=\"jobs\"] tr[data-key=\"{job}\"]')")
}

/// The row of this job says that it is paused.
pub(crate) fn is_paused(job: &str) -> String {
    let row = row(job);
    format!(
        "({row}?.querySelector('td[data-label=\"State\"]')?.textContent.includes('paused') === true)"
    )
}

/// The row of this job names this leader.
pub(crate) fn is_led_by(job: &str, leader: &str) -> String {
    let row = row(job);
    format!("({row}?.querySelector('td[data-label=\"Leader\"] b')?.textContent === '{leader}')")
}

/// The keys of the rows of a table, in order.
#[track_caller]
pub(crate) fn keys(browser: &Browser, part: &str) -> Vec<String> {
    let keys = browser.value(&format!(
        "[...document.querySelectorAll('table[data-part=\"{part}\"] > tbody > tr')].map((row) => row.dataset.key)"
    ));
    let keys = keys.as_array().into_iter().flatten();
    keys.filter_map(|key| Some(key.as_str()?.to_owned()))
        .collect()
}
