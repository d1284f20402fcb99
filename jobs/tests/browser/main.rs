//! The pages in a real browser: Chromium without a window, led by chromedriver, on real workers whose store is a file. Costs about
//! half a minute, most of it the processor's, three cases at a time.
//!
//! `cargo test -p watchkeeper-jobs --test browser [FILTER]`. Where `chromium` or `chromedriver` is not installed the cases are
//! ignored and say why, and `WATCHKEEPER_REQUIRE=chromium` makes that a failure. One of them asks axe-core, which
//! `tests/interop/install node` installs, and by the word `node` it is required.
//!
//! Nothing leaves this machine: the browser finds no name and no address but 127.0.0.1.
//!
//! `cargo test -p watchkeeper-jobs --test browser pictures -- --ignored` keeps pictures of every view, in every width and both
//! schemes, in `target/pictures` or in the folder that `WATCHKEEPER_PICTURES` names.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::{env, process::ExitCode};

use libtest_mimic::{Arguments, Trial};

mod address;
mod axe;
#[path = "../shared/command.rs"]
mod command;
mod focus;
mod http;
mod keyboard;
mod leaders;
#[path = "../fleet/log.rs"]
#[allow(dead_code, reason = "shared with the suite of fleets")]
mod log;
mod orders;
mod page;
mod pictures;
mod proxy;
mod receiver;
mod refusals;
mod scene;
mod streams;
mod tabs;
mod tour;
#[path = "../shared/wait.rs"]
mod wait;
mod webdriver;
mod without_script;

/// What a case needs: its word in `WATCHKEEPER_REQUIRE`, and why it is missing.
type Need = (&'static str, fn() -> Option<&'static str>);

const CHROMIUM: Need = ("chromium", webdriver::missing);
const AXE: Need = ("node", axe::missing);

/// Names each case by its module, so that a filter finds it.
macro_rules! cases {
    ($($module:ident needs $needs:expr => { $($case:ident),+ $(,)? }),+ $(,)?) => {
        vec![$($(trial(
            concat!(stringify!($module), "::", stringify!($case)),
            $needs,
            $module::$case,
        )),+),+]
    };
}

fn main() -> ExitCode {
    // The longest first.
    let mut cases = cases![
        axe needs &[CHROMIUM, AXE] => { nothing_on_any_view_keeps_a_person_out },
        orders needs &[CHROMIUM] => { every_order_is_given_by_its_form_and_written_down },
        tour needs &[CHROMIUM] => { no_view_complains_asks_elsewhere_or_is_wider_than_its_window },
        tabs needs &[CHROMIUM] => { eight_windows_answer_and_are_kept_up_to_date },
        without_script needs &[CHROMIUM] => { every_view_answers_and_orders_are_given_without_a_script },
        keyboard needs &[CHROMIUM] => { everything_is_reached_by_keys },
        leaders needs &[CHROMIUM] => {
            a_new_leader_appears_on_the_open_page_by_itself,
            a_new_leader_appears_on_the_page_of_its_job,
            a_new_leader_appears_while_eight_follow,
        },
        refusals needs &[CHROMIUM] => {
            no_order_is_taken_without_the_token_or_where_nothing_may_be_changed,
        },
        streams needs &[CHROMIUM] => {
            a_stream_that_breaks_goes_on_behind_what_was_seen,
            a_page_that_is_refused_a_stream_asks_until_it_gets_one,
            a_page_that_is_not_looked_at_leaves_the_stream_to_others,
        },
        address needs &[CHROMIUM] => { what_is_chosen_on_a_page_survives_a_reload },
        focus needs &[CHROMIUM] => { a_person_at_a_row_or_a_field_is_not_disturbed },
    ];
    // For people who want to look, not for every day.
    let pictures = cases![pictures needs &[CHROMIUM] => { every_view_is_drawn }];
    let pictures = pictures.into_iter();
    cases.extend(pictures.map(|case| case.with_ignored_flag(true)));
    let mut arguments = Arguments::from_args();
    // Each of them has a browser and a fleet.
    arguments.test_threads.get_or_insert(3);
    libtest_mimic::run(&arguments, cases).exit_code()
}

/// A panic is a failure of the case.
fn trial(name: &str, needs: &[Need], case: fn()) -> Trial {
    let missing = needs
        .iter()
        .find_map(|(word, missing)| Some((*word, missing()?)));
    let Some((word, why)) = missing else {
        return Trial::test(name, move || {
            case();
            Ok(())
        });
    };
    let required = env::var("WATCHKEEPER_REQUIRE")
        .is_ok_and(|list| list.split(',').any(|required| required.trim() == word));
    if required {
        let why = format!("{why} (WATCHKEEPER_REQUIRE names {word})");
        return Trial::test(name, move || Err(why.into()));
    }
    // Also with `--ignored`, which runs it all the same, it must never count as passed.
    Trial::test(format!("{name} [{why}]"), move || Err(why.into())).with_ignored_flag(true)
}
