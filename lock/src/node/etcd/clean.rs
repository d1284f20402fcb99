//! What is gone was written empty. It is deleted later, beside all calls, by one program for all.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tracing::debug;

use super::{
    error::Trouble,
    shared::Shared,
    wire::{Compare, Is, Range, Step, Target, Txn},
};
use crate::node::{NodeError, NodeMs};

/// How often that happens, in all of a fleet.
pub(super) const EVERY: Duration = Duration::from_secs(60);
/// Keys that are looked at, and that are deleted, at a time.
const CLEANED: (usize, usize) = (500, 40);
/// From one deletion to the next.
const BETWEEN: Duration = Duration::from_millis(50);

/// Begins, unless this process is at it.
pub(super) fn soon(shared: &Arc<Shared>, now: NodeMs) {
    if shared.cleans.swap(true, Ordering::AcqRel) {
        return;
    }
    let shared = Arc::clone(shared);
    let spawn = shared.spawn.clone();
    spawn.spawn(async move {
        if let Err(why) = clean(&shared, now).await {
            debug!(node = %shared.name, %why, "what is gone could not be deleted");
        }
        shared.cleans.store(false, Ordering::Release);
    });
}

/// Deletes what is gone, unless another program has begun to a short time ago.
async fn clean(shared: &Shared, now: NodeMs) -> Result<(), NodeError> {
    let swept = shared.keys.swept();
    let (limit, keys) = (shared.settings.node_timeout, &shared.keys);
    let mine = |revision: i64| Txn {
        compare: vec![Compare {
            key: swept.clone(),
            target: Target::Mod,
            result: Is::Equal,
            mod_revision: revision,
        }],
        success: vec![Step::Put(keys.sweep(now))],
        ..Txn::default()
    };
    let one = Txn {
        success: vec![Step::Range(Range {
            key: swept.clone(),
            ..Range::default()
        })],
        ..Txn::default()
    };
    let done = shared.client.ask_txn(&one, limit).await?;
    let life = done.life();
    let found = done.found().pop().unwrap_or_default();
    let last = found.kvs.first();
    let told = last.and_then(|kv| std::str::from_utf8(&kv.value.0).ok()?.parse::<u64>().ok());
    let every = u64::try_from(EVERY.as_millis()).unwrap_or(u64::MAX);
    // One that lies in the future was told by a clock that was wrong.
    if told.is_some_and(|told| told <= now.0 && now.0 < told.saturating_add(every / 2)) {
        return Ok(());
    }
    let begun = mine(last.map_or(0, |kv| kv.mod_revision));
    let begun = shared.commit(&begun).await.map_err(Trouble::error)?;
    if !begun.succeeded {
        return Ok(());
    }
    for kind in ["lock", "doc"] {
        let mut from = String::new();
        loop {
            let page = Txn {
                success: vec![Step::Range(keys.to_clean(kind, &from, CLEANED.0))],
                ..Txn::default()
            };
            let done = shared.client.ask_txn(&page, limit).await?;
            if done.life() != life {
                return Ok(());
            }
            let found = done.found().pop().unwrap_or_default();
            let (gone, next) = keys.cleaned(kind, &found, now);
            for some in gone.chunks(CLEANED.1) {
                let (compare, steps): (Vec<_>, Vec<_>) = some.iter().cloned().unzip();
                let mut success: Vec<Step> = steps.into_iter().flatten().collect();
                success.push(Step::Put(keys.sweep(now)));
                let txn = Txn {
                    compare,
                    success,
                    ..Txn::default()
                };
                // One of them has come back: another time.
                shared.commit(&txn).await.map_err(Trouble::error)?;
                // Whoever has found a key missing looks again.
                shared.clock.sleep(BETWEEN).await;
            }
            match next {
                Some(next) if found.kvs.len() >= CLEANED.0 => from = next,
                _ => break,
            }
        }
    }
    Ok(())
}
