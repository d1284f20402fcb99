//! Many windows of one browser. It opens six connections to one host: a page in each of seven windows that followed a stream of its
//! own would leave none for the seventh to load.

use std::time::Duration;

use watchkeeper::clock::Clock;

use crate::{
    page::{FOLLOWED, MARKED, is_paused, mark, row},
    scene::Scene,
    webdriver::Browser,
};

const WINDOWS: usize = 8;

pub(crate) fn eight_windows_answer_and_are_kept_up_to_date() {
    let scene = Scene::of(1);
    scene.leader("pulse");
    let browser = Browser::start();
    let mut windows = vec![browser.window()];
    while windows.len() < WINDOWS {
        windows.push(browser.open_window());
    }
    for window in &windows {
        browser.go_to_window(window);
        browser.open(&scene.url(0, "/"));
        browser.wait("row", &format!("{} !== null", row("pulse")));
        mark(&browser);
    }
    let clock = Clock::system();
    scene.pause("pulse");
    let paused = clock.now();
    let (mut streams, mut last) = (0, Duration::ZERO);
    for window in &windows {
        browser.go_to_window(window);
        browser.wait("pause", &is_paused("pulse"));
        last = clock.now().since(paused);
        assert!(browser.is(MARKED), "the page was loaded again");
        streams += usize::from(browser.is(FOLLOWED));
    }
    println!("{WINDOWS} windows were up to date after {last:.1?}");
    assert_eq!(streams, 1, "one for the browser, and the others ask");
}
