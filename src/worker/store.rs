//! From settings to nodes.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::Clock,
    error::{Error, Result},
    ledger,
    lock::{
        AdmissionReport, AdmissionState, LockSettings, Locks, LocksBuilder, Timing,
        open::{self, StoreError},
    },
    node::{Node, NodeError, Refusal},
};

/// Between two questions to nodes that have not said anything yet.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Opens the nodes of the configured backend. Servers need not be up: they are reached when they are needed.
///
/// # Errors
/// [`Error::Store`] for a file that cannot be opened or an address that makes no sense, [`Error::StoreLocked`] for a file that
/// another process keeps locked.
pub(crate) fn nodes(
    settings: &LockSettings,
    namespace: &str,
    clock: &Clock,
) -> Result<Vec<Arc<dyn Node>>> {
    open::nodes(settings, namespace, clock).map_err(|error| match error {
        StoreError::Locked { store } => Error::StoreLocked { store },
        StoreError::Unusable { store, why } => Error::Store { store, why },
        other => Error::Store {
            store: namespace.to_owned(),
            why: other.to_string(),
        },
    })
}

/// A lock service as configured, before it starts: every program of a fleet must open it alike. `grace` is how long its
/// longest work may take to end.
///
/// # Errors
/// As `nodes`.
pub fn open(
    settings: &LockSettings,
    namespace: &str,
    clock: &Clock,
    grace: Duration,
) -> Result<LocksBuilder> {
    let nodes = nodes(settings, namespace, clock)?;
    Ok(open::over(nodes, settings, clock).timing(timing(settings, grace)))
}

/// The same on a thread of its own: a file that another process keeps locked takes a second to be given up.
///
/// # Errors
/// As `nodes`; after [`Error::StoreLocked`] it may be tried again.
pub async fn open_aside(
    settings: &LockSettings,
    namespace: &str,
    clock: &Clock,
    grace: Duration,
) -> Result<LocksBuilder> {
    let (settings, namespace, clock) = (settings.clone(), namespace.to_owned(), clock.clone());
    let opening = move || open(&settings, &namespace, &clock, grace);
    let opened = tokio::task::spawn_blocking(opening).await;
    opened.map_err(|ended| Error::Process(ended.into()))?
}

/// The times of the lock core.
#[must_use]
pub fn timing(settings: &LockSettings, grace: Duration) -> Timing {
    Timing {
        kept_longer: ledger::KEPT_LONGER,
        grace,
        ..Timing::of(settings)
    }
}

/// Refuses a list of nodes in which two addresses lead to one server: it would count twice towards a majority. A node
/// that does not answer within a second is let in. Cancel-safe.
///
/// # Errors
/// [`Error::Store`] naming both.
pub async fn refuse_twins(locks: &Locks) -> Result<()> {
    let names: Vec<String> = locks
        .nodes()
        .await?
        .into_iter()
        .map(|node| node.name)
        .collect();
    let asked = locks
        .clock()
        .timeout(Duration::from_secs(1), locks.identities())
        .await;
    let identities = asked.unwrap_or(Ok(Vec::new()))?;
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (identity, name) in identities.iter().zip(&names) {
        let Some(identity) = identity else { continue };
        if let Some((_, twin)) = seen.iter().find(|(id, _)| id == identity) {
            let why = format!("it is the same server as {twin}: a majority needs independent ones");
            return Err(Error::Store {
                store: name.clone(),
                why,
            });
        }
        seen.push((identity, name));
    }
    // One that came second was refused as such, and has told no identity.
    if !identities.contains(&None) {
        return Ok(());
    }
    let looking = locks.look(vec!["preflight".to_owned()]);
    let Ok(looked) = locks.clock().timeout(Duration::from_secs(1), looking).await else {
        return Ok(());
    };
    let looked = looked?;
    for (seen, name) in looked.iter().flat_map(|state| &state.nodes).zip(&names) {
        if let Err(NodeError::Refused {
            refusal: Refusal::Twin,
            said,
        }) = seen
        {
            return Err(Error::Store {
                store: name.clone(),
                why: format!("{said}: a majority needs independent ones"),
            });
        }
    }
    Ok(())
}

/// Refuses to start where no replica can ever lead: so many nodes want a person (a wrong password, rights that are missing,
/// a certificate) that the others are no majority. Fewer of them are told in the log, and lived with. Nodes that are
/// silent may come, and are no reason: they are asked again for a second. Cancel-safe.
///
/// # Errors
/// [`Error::Store`] with the first of these nodes, and what to do.
pub(crate) async fn refuse_closed(locks: &Locks) -> Result<()> {
    let reports = locks.nodes().await?;
    let until = locks.clock().now() + Duration::from_secs(1);
    let mut late = vec![false; reports.len()];
    let troubles = loop {
        let looking = locks.look(vec!["preflight".to_owned()]);
        let Ok(seen) = locks.clock().timeout_at(until, looking).await else {
            return Ok(());
        };
        let seen = seen?.pop().map_or_else(Vec::new, |state| state.nodes);
        let troubles: Vec<Option<NodeError>> = seen.into_iter().map(Result::err).collect();
        for (late, trouble) in late.iter_mut().zip(&troubles) {
            // One that was late is not asked again at once, and counts as out of reach until then.
            *late = match trouble {
                Some(NodeError::Timeout(_) | NodeError::Overload) => true,
                Some(NodeError::Unreachable(_)) => *late,
                _ => false,
            };
        }
        let silent = late.iter().filter(|late| **late).count();
        // A machine that is busy with its start is no store that is away.
        if late.len() - silent > late.len() / 2 || locks.clock().now() >= until {
            break troubles;
        }
        locks.clock().sleep(ASK_AGAIN).await;
    };
    let closed: Vec<(&str, &NodeError)> = reports
        .iter()
        .zip(&troubles)
        .filter_map(|(report, trouble)| Some((report.name.as_str(), trouble.as_ref()?)))
        .filter(|(_, trouble)| wants_a_person(trouble))
        .collect();
    if !refuse_strangers(locks).await? {
        // What a node says about itself is in the log already, or comes soon.
        let trouble = troubles.iter().flatten().next();
        tracing::warn!(
            cause = trouble.map(NodeError::cause),
            "too few lock nodes have told for whom they keep locks: if it is for a fleet that is configured differently, nothing \
             will run here, and `watchkeeper doctor` says so"
        );
    }
    let left = reports.len() - closed.len();
    match closed.first() {
        Some((name, trouble)) if left < reports.len() / 2 + 1 => Err(Error::Store {
            store: (*name).to_owned(),
            why: trouble.to_string(),
        }),
        _ => Ok(()),
    }
}

/// Refuses to start where a majority of nodes keeps locks for a fleet that is configured differently. Answers whether a
/// majority has told for whom, within a second: silent nodes are no reason, but they may tell when they are asked again.
/// Cancel-safe.
///
/// # Errors
/// [`Error::Store`] with the first of these nodes, both values, and what to do.
pub async fn refuse_strangers(locks: &Locks) -> Result<bool> {
    let asking = locks.admissions();
    let Ok(shown) = locks.clock().timeout(Duration::from_secs(1), asking).await else {
        return Ok(false);
    };
    let shown = shown?;
    let others = shown.iter().filter_map(|node| match &node.state {
        AdmissionState::Configured { differs } => Some((&node.name, differs)),
        _ => None,
    });
    let others: Vec<_> = others.collect();
    let majority = shown.len() / 2 + 1;
    match others.first() {
        Some((name, differs)) if shown.len() - others.len() < majority => Err(Error::Store {
            store: (*name).clone(),
            why: format!(
                "it keeps locks for a fleet that is configured differently: {differs}; {}",
                NodeError::to_agree(differs)
            ),
        }),
        _ => {
            let silent = |node: &&AdmissionReport| matches!(node.state, AdmissionState::Silent(_));
            Ok(shown.len() - shown.iter().filter(silent).count() >= majority)
        }
    }
}

fn wants_a_person(trouble: &NodeError) -> bool {
    match trouble {
        NodeError::Tls(_) | NodeError::Auth(_) => true,
        NodeError::Refused { refusal, .. } => refusal.needs_a_person(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        lock::{FleetConfig, settings::Backend},
        node::{
            Announcements, Call, Expiry, GuardSettings, Refusal, Reply, RestartGuard,
            memory::MemoryNode,
        },
        sim_clock::SimTime,
        spawn::Spawn,
    };

    async fn started(troubles: &[Option<NodeError>]) -> Result<()> {
        let clock = Clock::system();
        let nodes = troubles.iter().enumerate().map(|(i, trouble)| {
            let node = MemoryNode::new(format!("n{i}"), clock.clone());
            if let Some(trouble) = trouble {
                node.faults().fail_all_with(trouble.clone());
            }
            Arc::new(node) as Arc<dyn Node>
        });
        let locks = Locks::over(nodes.collect()).start().unwrap();
        refuse_closed(&locks).await
    }

    #[tokio::test]
    async fn nothing_starts_where_nobody_can_ever_lead() {
        let refused = |refusal| {
            Some(NodeError::Refused {
                refusal,
                said: "no".to_owned(),
            })
        };
        let closed = refused(Refusal::NoPerm);
        assert!(started(&[closed.clone(), None, None]).await.is_ok());
        let loading = refused(Refusal::Loading);
        assert!(started(&[loading.clone(), loading, None]).await.is_ok());
        let error = started(&[closed.clone(), None, closed]).await.unwrap_err();
        assert!(error.to_string().contains("ACL SETUSER"), "{error}");
        let password = NodeError::Auth("see locks.postgres.url".to_owned());
        let error = started(&[Some(password)]).await.unwrap_err();
        assert!(
            error.to_string().contains("see locks.postgres.url"),
            "{error}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_starts_where_a_node_says_late_that_it_wants_a_person() {
        let clock = SimTime::new().clock();
        let frozen = || {
            let node = MemoryNode::new("n0", clock.clone());
            node.faults().freeze();
            let locks = Locks::over(vec![Arc::new(node.clone()) as Arc<dyn Node>]);
            let locks = locks.clock(clock.clone()).keeper_here(Spawn::system());
            (node, locks.start().unwrap())
        };
        let (node, locks) = frozen();
        let thaw = async {
            clock.sleep(Duration::from_millis(300)).await;
            let password = NodeError::Auth("see locks.postgres.url".to_owned());
            node.faults().fail_all_with(password);
            node.faults().thaw();
        };
        let (started, ()) = tokio::join!(refuse_closed(&locks), thaw);
        let error = started.unwrap_err().to_string();
        assert!(error.contains("see locks.postgres.url"), "{error}");
        // One that says nothing may come, and is waited for no longer.
        let (_node, locks) = frozen();
        let began = clock.now();
        refuse_closed(&locks).await.unwrap();
        assert!(clock.now().since(began) <= Duration::from_millis(2_500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fleet_of_others_that_answers_late_is_refused_when_it_has_answered() {
        let clock = SimTime::new().clock();
        let node = |n| MemoryNode::new(format!("n{n}"), clock.clone());
        let nodes: Vec<MemoryNode> = (0..3).map(node).collect();
        let client = |max_ttl| {
            let fleet = FleetConfig::of(&LockSettings {
                max_ttl,
                ..LockSettings::default()
            });
            let guard = GuardSettings {
                mode: RestartGuard::Call,
                config: fleet.to_string(),
            };
            let line = |node: &MemoryNode| Arc::new(node.clone().guarded(guard.clone()));
            let lines = nodes.iter().map(|node| line(node) as Arc<dyn Node>);
            let locks = Locks::over(lines.collect()).timing(Timing {
                max_ttl,
                ..Timing::default()
            });
            let locks = locks.clock(clock.clone()).keeper_here(Spawn::system());
            locks.guarded(fleet).start().unwrap()
        };
        let theirs = client(Duration::from_secs(30));
        clock.sleep(Duration::from_secs(60)).await;
        theirs.lock("k").acquire().await.unwrap();
        assert!(refuse_strangers(&theirs).await.unwrap());
        let ours = client(Duration::from_secs(20));
        nodes[0].faults().freeze();
        nodes[1].faults().freeze();
        assert!(!refuse_strangers(&ours).await.unwrap(), "one has told");
        nodes.iter().for_each(|node| node.faults().thaw());
        let error = loop {
            match refuse_strangers(&ours).await {
                Ok(told) => assert!(!told, "they are not ours"),
                Err(error) => break error.to_string(),
            }
            clock.sleep(Duration::from_secs(1)).await;
        };
        assert!(
            error.contains("max_ttl is 30s there and 20s here"),
            "{error}"
        );
    }

    #[test]
    fn the_configuration_expects_of_silent_holders_what_its_nodes_do() {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = LockSettings::default();
        settings.embedded.path = folder.path().join("locks.db");
        settings.redis.nodes = vec!["redis://127.0.0.1:1".into()];
        settings.postgres.url = Some("postgres://me@127.0.0.1:1/app".into());
        settings.etcd.endpoints = vec!["http://127.0.0.1:1".to_owned()];
        let mut seen = 0;
        for backend in [
            Backend::Memory,
            Backend::Embedded,
            Backend::Redis,
            Backend::Postgres,
            Backend::Etcd,
        ] {
            settings.backend = backend;
            // What is not part of this build has no nodes.
            if let Ok(nodes) = nodes(&settings, "test", &Clock::system()) {
                assert_eq!(Expiry::over(&nodes), settings.expiry(), "{backend:?}");
                seen += 1;
            }
        }
        let parts = [
            cfg!(feature = "sqlite"),
            cfg!(feature = "redis"),
            cfg!(feature = "postgres"),
            cfg!(feature = "etcd"),
        ];
        assert_eq!(seen, 1 + parts.into_iter().map(usize::from).sum::<usize>());
    }

    #[test]
    fn one_node_whose_clock_may_jump_is_enough_to_believe_none() {
        struct Jumpy(MemoryNode);
        #[async_trait::async_trait]
        impl Node for Jumpy {
            fn name(&self) -> &str {
                self.0.name()
            }
            async fn call(&self, call: Call) -> std::result::Result<Reply, NodeError> {
                self.0.call(call).await
            }
            async fn announcements(&self) -> Option<Announcements> {
                None
            }
        }
        let steady = || MemoryNode::new("steady", Clock::system());
        let mut nodes: Vec<Arc<dyn Node>> = vec![Arc::new(steady()), Arc::new(steady())];
        assert_eq!(Expiry::over(&nodes), Expiry::Server);
        nodes.push(Arc::new(Jumpy(steady())));
        assert_eq!(
            Expiry::over(&nodes),
            Expiry::Observed,
            "nothing was said of its clock"
        );
    }
}
