//! `locks --leaked`: what nobody will release, found by two looks.

use std::time::Duration;

use super::{
    super::{
        Failure, print, print_json,
        status::{ask_within, no_store, nobody_was_here, place},
    },
    PATIENCE,
    show::details,
};
use crate::{
    config::Config,
    status::leaks::{Leak, leaks, wants_second_look},
    terminal::{cell, sentence},
};

/// Between two looks for leaks: longer than a replica takes to tell what it holds.
const LOOK_AGAIN: Duration = Duration::from_millis(2_500);

pub(super) fn leaked(config: &Config, prefix: &str, json: bool) -> Result<(), Failure> {
    if nobody_was_here(config) {
        if json {
            print_json(&Vec::<Leak>::new())?;
        }
        return Err(no_store(config));
    }
    let prefix = prefix.to_owned();
    let found: Vec<Leak> = ask_within(PATIENCE + LOOK_AGAIN, config, |locks| async move {
        let views = locks.list(&prefix).await?;
        let keys = views.iter().filter_map(|views| views.first());
        let keys: Vec<String> = keys.map(|view| view.key.clone()).collect();
        let then = details(&locks, keys.clone()).await?;
        if !then.iter().any(wants_second_look) {
            return Ok(leaks(&then, &then));
        }
        locks.clock().sleep(LOOK_AGAIN).await;
        Ok(leaks(&then, &details(&locks, keys).await?))
    })?;
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
