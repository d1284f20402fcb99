//! `locks --leaked`: what nothing will release, found by two looks.

use super::super::{
    ask::{Limits, PATIENCE, ask, place, refuse_nowhere},
    failure::Failure,
    output::print_as,
    waiting,
};
use crate::{
    config::Config,
    fleet::{client::locks::LOOK_AGAIN, status::leaks::Leak},
    terminal::{cell, err, sentence},
};

pub(super) fn leaked(config: &Config, prefix: &str, json: bool) -> Result<(), Failure> {
    refuse_nowhere(config, json, &Vec::<Leak>::new())?;
    let limit = PATIENCE + LOOK_AGAIN;
    let leaks = ask(config, Limits::nodes(limit), |fleet| async move {
        let leaks = fleet.leaks(prefix);
        waiting::shown("looking twice", limit, leaks).await
    })?;
    for (node, why) in leaks.unsearched {
        err(&format!(
            "watchkeeper: {node}: not all keys without a time to live were looked for: {why}"
        ));
    }
    let found = leaks.found;
    print_as(json, &found, || match found.is_empty() {
        true => format!("nothing leaked in {}", place(config)),
        false => show(&found),
    })
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
