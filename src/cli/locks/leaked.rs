//! `locks --leaked`: what nothing will release, found by two looks.

use super::super::{
    ask::{Limits, PATIENCE, ask, no_store, nobody_was_here, place},
    failure::Failure,
    output::{print, print_json},
};
use crate::{
    config::Config,
    fleet::{client::locks::LOOK_AGAIN, status::leaks::Leak},
    terminal::{cell, err, sentence},
};

pub(super) fn leaked(config: &Config, prefix: &str, json: bool) -> Result<(), Failure> {
    if nobody_was_here(config) {
        if json {
            print_json(&Vec::<Leak>::new())?;
        }
        return Err(no_store(config));
    }
    let limits = Limits::nodes(PATIENCE + LOOK_AGAIN);
    let leaks = ask(
        config,
        limits,
        |fleet| async move { fleet.leaks(prefix).await },
    )?;
    for (node, why) in leaks.unsearched {
        err(&format!(
            "watchkeeper: {node}: not all keys without a time to live were looked for: {why}"
        ));
    }
    let found = leaks.found;
    if json {
        return print_json(&found);
    }
    if found.is_empty() {
        print(&format!("nothing leaked in {}", place(config)));
        return Ok(());
    }
    print(&show(&found));
    Ok(())
}

pub(in crate::cli) fn show(found: &[Leak]) -> String {
    let mut text = String::new();
    for leak in found {
        text += &format!(
            "{} ({}): {}\n  -> {}\n",
            cell(&leak.key),
            cell(&leak.nodes.join(", ")),
            sentence(&leak.finding),
            sentence(&leak.remedy)
        );
    }
    text
}
