//! `locks --leaked`: what nobody will release, found by two looks.

use std::{collections::BTreeSet, time::Duration};

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
    fleet::view as seeing,
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
    // Raw keys stand among those of others: only what is known by name is looked at.
    let known: Vec<String> = config.jobs.keys().cloned().collect();
    let found: Vec<Leak> = ask_within(PATIENCE + LOOK_AGAIN, config, |locks| async move {
        let views = locks.list(&prefix).await?;
        let keys = views.iter().filter_map(|views| views.first());
        let keys = keys.map(|view| view.key.clone());
        let mut keys: BTreeSet<String> = keys.collect();
        // What no list shows: a key that somebody else wrote, or whose record has gone.
        let endless = locks.endless().await?.into_iter();
        keys.extend(endless.zip(locks.nodes().await?).flat_map(|(found, node)| {
            found.unwrap_or_else(|why| {
                let node = node.name;
                let said =
                    format!("{node}: not all keys without a time to live were looked for: {why}");
                crate::terminal::err(&format!("watchkeeper: {said}"));
                Vec::new()
            })
        }));
        let told = seeing::told(&locks).await.unwrap_or_default();
        let known = known
            .into_iter()
            .chain(told.jobs.into_iter().map(|job| job.name));
        keys.extend(known.map(|job| format!("job/{job}")));
        let keys: Vec<String> = keys
            .into_iter()
            .filter(|key| key.starts_with(&prefix))
            .collect();
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
