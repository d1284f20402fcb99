//! `doctor --bootstrap`: nodes that never kept a lock need not be watched.
//!
//! A node cannot prove that it never voted, for a memory that is lost leaves no trace. So all of them must be empty, their
//! processes young, and nothing may come to them while we look: the programs of a living fleet write to every node they
//! meet. What remains, a fleet that stopped within the last max_ttl and whose servers all lost their memory, is for the
//! operator to know.

use std::time::Duration;

use super::super::{Failure, print};
use super::guarded::{Guarded, failed};
use crate::{
    config::Config,
    human::Span,
    node::{Admission, Answer, NodeFacts, Op, Token},
};

/// A server that has been running for longer was probably emptied.
const YOUNG: Duration = Duration::from_secs(3600);

/// Replicas write to every node at least so often.
const PRESENCE: Duration = Duration::from_secs(3);

/// What one node shows.
#[derive(Clone, Debug, Default)]
struct Shown {
    name: String,
    facts: NodeFacts,
    admission: Admission,
    /// Locks, records and replicas of ours.
    ours: usize,
}

pub(super) fn bootstrap(config: &Config) -> Result<(), Failure> {
    super::guarded::with_nodes(config, |nodes| async move {
        refuse(&look(&nodes).await?)?;
        // A holder would extend its lease, a replica tell of itself.
        let quiet = (config.locks.ttl / 3 + Duration::from_millis(500)).max(PRESENCE);
        print(&format!(
            "nothing of ours there; looking for {} whether anybody writes",
            Span(quiet)
        ));
        nodes.clock.sleep(quiet).await;
        refuse(&look(&nodes).await?)?;
        let nonce = crate::chance::Chance::system().id();
        let nominate = Op::Nominate {
            nonce: nonce.clone(),
        };
        for (name, answers) in nodes.ask_all(vec![nominate]).await? {
            match &answers[..] {
                [Answer::Admission(shown)] if shown.nonce.as_ref() == Some(&nonce) => {}
                _ => return Err(failed(&name, "another program has begun to watch it")),
            }
        }
        let admit = Op::Admit {
            nonce,
            config: nodes.fleet.to_string(),
            counter: Token(0),
            blank_before: None,
        };
        for (name, answers) in nodes.ask_all(vec![admit]).await? {
            if answers != [Answer::Done] {
                return Err(failed(&name, "it has lost its memory just now"));
            }
        }
        print("every node votes");
        Ok(())
    })
}

async fn look(nodes: &Guarded) -> Result<Vec<Shown>, Failure> {
    let ops = vec![
        Op::Admission,
        Op::Records {
            after: String::new(),
            limit: 1,
        },
        Op::List {
            prefix: String::new(),
        },
        Op::Docs {
            dir: "presence/".to_owned(),
        },
    ];
    let asked = nodes.ask_all(ops).await?;
    let facts = nodes.facts().await;
    let shown = asked
        .into_iter()
        .zip(facts)
        .map(|((name, answers), facts)| {
            let mut shown = Shown {
                name,
                facts,
                ..Shown::default()
            };
            for answer in answers {
                match answer {
                    Answer::Admission(admission) => shown.admission = admission,
                    Answer::Views(views) => shown.ours += views.len(),
                    Answer::Docs(docs) => shown.ours += docs.len(),
                    _ => {}
                }
            }
            shown
        });
    Ok(shown.collect())
}

fn refuse(shown: &[Shown]) -> Result<(), Failure> {
    let refused = shown.iter().find_map(|node| Some((node, not_new(node)?)));
    match refused {
        Some((node, why)) => Err(failed(&node.name, &why)),
        None => Ok(()),
    }
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
    use super::*;

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
}
