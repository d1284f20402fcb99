//! `doctor --bootstrap`: nodes that never kept a lock need not be watched.
//!
//! A node cannot prove that it never voted, for a memory that is lost leaves no trace. So all of them must be empty, their
//! processes young and the same ones, and no program may meet them while we look. A node without a vote keeps nothing for a
//! round that extends a lease; but its maker hears that it has no vote, and nominates it, which we see.
//! (`g5_a_holder_of_the_longest_lease_is_met`)
//!
//! What remains is for the operator to know: holders from before the servers lost their memory, of whom nothing comes.
//! They have stopped or are frozen, are cut off from the servers, or extend no more because their work is to end.

use std::time::Duration;

use super::super::{
    failure::Failure,
    output::print,
    raw_nodes::{RawNodes, failed},
};
use crate::{
    chance::Chance,
    config::{Config, LockSettings},
    human::Span,
    lock::admission::admit_at_once,
    node::{Admission, Answer, Life, NodeFacts, Op, Page},
};

/// A server that has been running for longer was probably emptied.
const YOUNG: Duration = Duration::from_secs(3600);

/// Replicas give every node a sign of life at least so often.
const PRESENCE: Duration = Duration::from_secs(3);

/// What one node shows.
#[derive(Clone, Debug, Default)]
struct Shown {
    name: String,
    facts: NodeFacts,
    admission: Admission,
    /// Locks and records of ours.
    ours: usize,
    /// Which replicas tell of themselves. They write it to every node, new ones too, so that it is no sign of a vote; only what is
    /// written or touched while we look tells that a replica lives.
    presence: Vec<Life>,
}

pub(super) fn bootstrap(config: &Config) -> Result<(), Failure> {
    if !config.locks.fleet().is_some_and(|fleet| fleet.is_guarded()) {
        return Err(Failure::Usage(
            "nothing is watched here: new nodes vote at once, unless they are servers under locks.restart_guard"
                .to_owned(),
        ));
    }
    super::guarded::with_nodes(config, |nodes, fleet| async move {
        let before = look(&nodes).await?;
        refuse(&before)?;
        let quiet = quiet(&config.locks);
        print(&format!(
            "nothing of ours there; watching for {} whether a program comes",
            Span(Duration::from_millis(
                u64::try_from(quiet.as_millis()).unwrap_or(u64::MAX)
            ))
        ));
        nodes.clock.sleep(quiet).await;
        let after = look(&nodes).await?;
        refuse(&after)?;
        same_lives(&before, &after)?;
        let chance = Chance::system();
        let admitted = admit_at_once(&nodes.nodes, &fleet, &chance);
        if let Err(not) = admitted.await {
            return Err(failed(&not.node, &not.why));
        }
        print("every node votes");
        Ok(())
    })
}

/// By then a program that lives has met every node: a replica has told of itself, and a holder has tried to extend its lease,
/// which may be as long as the longest, whatever this machine's own `ttl` is.
fn quiet(locks: &LockSettings) -> Duration {
    // A connection that died with the server costs a failed round, a probe, and a few answers before the nomination.
    let slack = Duration::from_secs(1) + locks.node_timeout().unwrap_or_default() * 10;
    // One that is still sent to the server before extends there, and meets this one only afterwards.
    let late = locks
        .fleet()
        .map_or(Duration::ZERO, |fleet| fleet.watched() - fleet.max_ttl);
    (locks.max_ttl / 3 + slack).max(PRESENCE) + late
}

async fn look(nodes: &RawNodes) -> Result<Vec<Shown>, Failure> {
    let records = nodes.pages(|from, count| Op::Records { from, count });
    let records = records.await?;
    let presence = nodes.presence().await?;
    let asked = nodes.ask_all(vec![Op::Admission]).await?;
    let facts = nodes.facts().await;
    let told = records.into_iter().zip(presence);
    let shown = asked.into_iter().zip(facts).zip(told);
    let shown = shown.map(|(((name, answers), facts), ((_, pages), presence))| {
        let ours = |page: &Page| page.views.len() + page.bodies.len();
        let admission = answers.into_iter().find_map(|answer| match answer {
            Answer::Admission(admission) => Some(admission),
            _ => None,
        });
        Shown {
            name,
            facts,
            ours: pages.iter().map(ours).sum(),
            admission: admission.unwrap_or_default(),
            presence,
        }
    });
    Ok(shown.collect())
}

fn refuse(shown: &[Shown]) -> Result<(), Failure> {
    let mut all = shown.iter().enumerate();
    let refused = all.find_map(|(n, node)| {
        let why = not_new(node).or_else(|| twin(node, &shown[..n]))?;
        Some((node, why))
    });
    match refused {
        Some((node, why)) => Err(failed(&node.name, &why)),
        None => Ok(()),
    }
}

/// Another restart meanwhile would have wiped out what was written, and a replica that told of itself meanwhile lives.
fn same_lives(before: &[Shown], after: &[Shown]) -> Result<(), Failure> {
    let mut both = before.iter().zip(after);
    // What was not touched lives for less time than before.
    let of_before = |b: &Shown, a: &Life| {
        let mut same = b.presence.iter().filter(|b| b.name == a.name);
        same.any(|b| b.rev == a.rev && a.left_ms < b.left_ms)
    };
    let told = |(b, a): &(&Shown, &Shown)| a.presence.iter().any(|doc| !of_before(b, doc));
    if let Some((node, _)) = both.find(told) {
        let why = "a replica has told of itself there meanwhile: stop it first, or let it be watched (doctor --wait-admitted)";
        return Err(failed(&node.name, why));
    }
    let mut both = before.iter().zip(after);
    match both.find(|(b, a)| b.admission.incarnation != a.admission.incarnation) {
        Some((node, _)) => Err(failed(
            &node.name,
            "it was started again meanwhile; look again",
        )),
        None => Ok(()),
    }
}

/// Which of these is the same server, if one is. Pure.
fn twin(node: &Shown, others: &[Shown]) -> Option<String> {
    let id = node.facts.run_id.as_ref()?;
    let twin = others
        .iter()
        .find(|other| other.facts.run_id.as_ref() == Some(id))?;
    Some(format!(
        "it is the same server as {}: name each server once",
        twin.name
    ))
}

/// Why a node is not known to be new. Pure.
fn not_new(node: &Shown) -> Option<String> {
    let Admission {
        admitted,
        inc,
        config,
        nonce,
        counter,
        ..
    } = &node.admission;
    let watched = "let it be watched, which costs max_ttl (doctor --wait-admitted)";
    if *admitted {
        return Some("it votes already".to_owned());
    }
    if !inc.is_empty() || config.is_some() || counter.0 > 0 || node.ours > 0 {
        return Some(format!("it has kept locks of ours; {watched}"));
    }
    if nonce.is_some() {
        return Some("a program watches it already; it votes within max_ttl".to_owned());
    }
    match node.facts.uptime_s {
        Some(seconds) if seconds <= YOUNG.as_secs() => None,
        Some(seconds) => {
            let up = Span(Duration::from_secs(seconds));
            let most = Span(YOUNG);
            Some(format!(
                "it has been running for {up}, a new server for less than {most}: it may have been emptied; {watched}"
            ))
        }
        None => Some(format!("it does not tell since when it runs; {watched}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        lock::{FleetConfig, Locks, Timing},
        node::{GuardSettings, Node, RestartGuard, Token, memory::MemoryNode},
        sim_clock::SimTime,
        spawn::Spawn,
    };

    fn fresh() -> Shown {
        Shown {
            facts: NodeFacts {
                uptime_s: Some(5),
                ..NodeFacts::default()
            },
            ..Shown::default()
        }
    }

    #[test]
    fn g5_only_a_node_that_shows_nothing_of_ours_is_new() {
        assert_eq!(not_new(&fresh()), None);
        let with = |change: fn(&mut Shown)| {
            let mut node = fresh();
            change(&mut node);
            not_new(&node).unwrap_or_default()
        };
        assert!(with(|n| n.admission.admitted = true).contains("votes already"));
        assert!(with(|n| n.admission.inc = "x".into()).contains("kept locks"));
        assert!(with(|n| n.admission.counter = Token(1)).contains("kept locks"));
        assert!(with(|n| n.ours = 1).contains("kept locks"));
        assert!(with(|n| n.admission.nonce = Some("n".into())).contains("watches it"));
        assert!(with(|n| n.facts.uptime_s = Some(90_000)).contains("it may have been emptied"));
        assert!(with(|n| n.facts.uptime_s = None).contains("does not tell"));
    }

    #[test]
    fn g5_a_node_that_was_started_again_meanwhile_is_not_known() {
        let life = |incarnation: &str| {
            let mut node = fresh();
            node.admission.incarnation = incarnation.into();
            vec![node]
        };
        assert!(same_lives(&life("i1"), &life("i1")).is_ok());
        assert!(same_lives(&life("i1"), &life("i2")).is_err());
    }

    #[test]
    fn g5_what_a_replica_left_there_is_no_lock_but_what_it_writes_meanwhile_is_a_life() {
        let told = |revs: &[(u64, u64)]| {
            let life = |(rev, left_ms): &(u64, u64)| Life {
                name: "presence/a".into(),
                rev: *rev,
                left_ms: *left_ms,
            };
            let mut node = fresh();
            node.presence = revs.iter().map(life).collect();
            vec![node]
        };
        let before = told(&[(7, 6_000)]);
        assert_eq!(not_new(&before[0]), None);
        assert!(same_lives(&before, &told(&[(7, 3_000)])).is_ok());
        assert!(same_lives(&before, &told(&[])).is_ok(), "it is over");
        assert!(same_lives(&before, &told(&[(8, 3_000)])).is_err());
        assert!(
            same_lives(&before, &told(&[(7, 6_500)])).is_err(),
            "touched"
        );
        assert!(same_lives(&told(&[]), &told(&[(8, 6_000)])).is_err());
    }

    /// All nodes restart empty just after a round.
    #[tokio::test(start_paused = true)]
    async fn g5_a_holder_of_the_longest_lease_is_met() {
        let settings = LockSettings::default();
        let fleet = FleetConfig::of(&settings);
        let guard = GuardSettings {
            mode: RestartGuard::Call,
            config: fleet.to_string(),
        };
        let time = SimTime::new();
        let clock = time.clock();
        let nodes: Vec<MemoryNode> = (0..3)
            .map(|n| MemoryNode::new(format!("n{n}"), clock.clone()))
            .collect();
        let lines = || nodes.iter().map(|node| node.clone().guarded(guard.clone()));
        let lines = || {
            lines()
                .map(|line| Arc::new(line) as Arc<dyn Node>)
                .collect()
        };
        let locks = Locks::over(lines())
            .timing(Timing {
                max_ttl: settings.max_ttl,
                ..Timing::default()
            })
            .clock(clock.clone())
            .keeper_here(Spawn::system())
            .guarded(fleet)
            .start()
            .unwrap();
        clock.sleep(settings.max_ttl * 2).await;
        let longest = locks.lock("k").ttl(settings.max_ttl);
        let lease = longest.acquire().await.unwrap();
        for node in &nodes {
            node.faults().crash();
        }
        let guarded = RawNodes {
            nodes: lines(),
            clock: clock.clone(),
            patience: Duration::from_secs(2),
            guarded: true,
        };
        let unmet = |node: &Shown| node.admission.nonce.is_none();
        let shown = look(&guarded).await.ok().unwrap();
        assert!(shown.iter().all(unmet), "empty, and nobody came yet");
        clock.sleep(quiet(&settings)).await;
        assert!(lease.is_held(), "a second holder would be one too many");
        let mut shown = look(&guarded).await.ok().unwrap();
        for node in &mut shown {
            node.facts.uptime_s = Some(60);
            let why = not_new(node).unwrap_or_default();
            assert!(why.contains("watches it"), "{}: {why}", node.name);
        }
    }
}
