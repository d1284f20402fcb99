//! `doctor --reconfigure`: takes the vote from nodes that keep locks for the configuration before.
//!
//! Each such node is admitted for no configuration. From then on it votes for no program, old or new; those of the new configuration
//! watch it like one that lost its memory, for the longer of both limits, and keep what it knows.

use super::super::{
    failure::Failure,
    output::print,
    raw_nodes::{RawNodes, failed, living},
};
use super::guarded::with_nodes;
use crate::{
    chance::Chance,
    config::{Config, LockSettings},
    human::Span,
    lock::{
        FleetConfig, Timing,
        admission::{Membership, memberships, whole_seconds},
    },
    node::{Admission, Answer, Op, Page, closed},
};

pub(super) fn reconfigure(config: &Config) -> Result<(), Failure> {
    with_nodes(config, |nodes, fleet| async move {
        let mut longest = fleet.watched();
        let mut others = Vec::new();
        let listed = nodes.pages(|from, count| Op::List {
            prefix: String::new(),
            from,
            count,
        });
        let listed = listed.await?;
        let presence = nodes.presence().await?;
        let asked = nodes.ask_all(vec![Op::Admission]).await?;
        let asked = asked.into_iter().zip(listed).zip(presence);
        let mut seen = Vec::new();
        for (((name, answers), (_, pages)), replicas) in asked {
            if let Some(who) = held(&pages).or_else(|| living(&replicas)) {
                let why = format!("{who}: stop every program of the fleet first");
                return Err(failed(&name, &why));
            }
            let Some(Answer::Admission(shown)) = answers.into_iter().next() else {
                return Err(failed(&name, "it gives no sensible answer"));
            };
            seen.push((name, shown));
        }
        let strangers = strangers(&seen, &fleet);
        for (n, ((name, shown), stranger)) in seen.into_iter().zip(strangers).enumerate() {
            let longest_here = FleetConfig::max_ttl_in(shown.config.as_deref().unwrap_or_default());
            let alike = || {
                Some((
                    stranger?,
                    longest_here.unwrap_or_default().max(fleet.watched()),
                ))
            };
            if let Some((differs, limit)) = differs(&shown, &fleet).or_else(alike) {
                print(&format!("{name}: {differs}"));
                longest = longest.max(limit);
                others.push((n, name, shown, limit));
            }
        }
        if others.is_empty() {
            print("no node keeps locks for another configuration");
            return Ok(());
        }
        for (n, name, shown, limit) in others {
            close(&nodes, n, &name, &shown, limit).await?;
        }
        print(&format!(
            "they vote for no program now; start the programs with the new configuration: they get locks after {}",
            Span(watched_for(&config.locks, longest))
        ));
        Ok(())
    })
}

/// How long programs of this configuration watch leases that were granted for so long at most. Pure.
fn watched_for(settings: &LockSettings, longest: std::time::Duration) -> std::time::Duration {
    whole_seconds(Timing::of(settings).watch_time(longest))
}

/// Why nodes that are configured alike are not this fleet's all the same: it has others there. Pure.
fn strangers(seen: &[(String, Admission)], ours: &FleetConfig) -> Vec<Option<String>> {
    let names: Vec<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
    let shown: Vec<_> = seen.iter().map(|(_, shown)| Some(shown.clone())).collect();
    let renamed = || "redis.nodes has other addresses for the nodes of its fleet here".to_owned();
    let why = |membership| match membership {
        Membership::Own | Membership::Waits { .. } => None,
        Membership::Elsewhere => Some(renamed()),
        Membership::Other { differs } => Some(differs),
    };
    memberships(&names, &shown, ours)
        .into_iter()
        .map(why)
        .collect()
}

/// A lock that is held under the configuration before. Pure.
fn held(pages: &[Page]) -> Option<String> {
    let mut views = pages.iter().flat_map(|page| &page.views);
    let held = views.find(|view| view.holder.is_some() && !view.foreign)?;
    Some(format!("{} is held there", held.key))
}

/// In what a node's marker or nomination differs, and for how long leases may have been granted under it. Pure.
fn differs(shown: &Admission, ours: &FleetConfig) -> Option<(String, std::time::Duration)> {
    let theirs = ours.stranger(shown).or_else(|| ours.rival(shown))?;
    let differs = ours.differs_from(theirs)?;
    let limit = FleetConfig::max_ttl_in(theirs).unwrap_or(ours.watched());
    Some((differs, limit.max(ours.watched())))
}

async fn close(
    nodes: &RawNodes,
    n: usize,
    name: &str,
    shown: &Admission,
    limit: std::time::Duration,
) -> Result<(), Failure> {
    let close = Op::Close {
        was: shown.card(),
        nonce: Chance::system().nonce(),
        config: closed(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        forgets: false,
    };
    match nodes.ask(n, vec![close]).await.as_deref() {
        Ok([Answer::Done]) => Ok(()),
        Ok(_) => Err(failed(name, "it has changed just now; try again")),
        Err(trouble) => Err(failed(name, &trouble.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn leases_are_watched_with_the_drift_that_is_configured() {
        let settings = LockSettings {
            drift: 0.4,
            ..LockSettings::default()
        };
        let watched = watched_for(&settings, Duration::from_secs(60));
        assert_eq!(watched, Duration::from_secs(85));
    }
}
