//! G3 with whole replicas: what becomes of ticks when a majority of lock nodes has lost its memory.

use std::time::Duration;

use super::acts::{Starts, quick};
use crate::{
    due::Misfire,
    event::Event,
    job::{Coordination, Spec},
    ledger::Ledger,
    testing::Sim,
};

const MINUTE: Duration = Duration::from_secs(60);

/// One node was away while three ticks ran; then the two others lose their memory. It shows a ledger from before.
#[test]
fn what_a_majority_has_forgotten_is_reported_and_never_runs_again() {
    for coordination in [Coordination::Leader, Coordination::Tick] {
        let starts = Starts::default();
        let seen = starts.clone();
        // Whatever counts as undecided would be made up for.
        let spec = Spec::every(MINUTE * 10)
            .misfire(Misfire::All)
            .coordination(coordination);
        let sim = Sim::new().replicas(2).nodes(3);
        let sim = sim.job("report", move |_| quick(&seen), spec);
        sim.run(|fleet| async move {
            fleet.advance(MINUTE * 35).await;
            fleet.lose_node(3);
            fleet.advance(MINUTE * 31).await;
            assert_eq!(starts.ticks().len(), 6, "{coordination}: up to 01:00");
            fleet.replicas().into_iter().for_each(|r| fleet.kill(r));
            fleet.restart_node_empty(1);
            fleet.restart_node_empty(2);
            fleet.restart_node(3);
            fleet.replicas().into_iter().for_each(|r| fleet.start(r));
            fleet.advance(MINUTE * 15).await;
            starts.assert_once();
            let ticks = starts.ticks();
            assert_eq!(ticks.len(), 8, "{coordination}: 01:10 and 01:20: {ticks:?}");
            let expected = (ticks[3], ticks[5], 3);
            let unknown = unknown(&fleet.events());
            assert_eq!(unknown.first(), Some(&expected), "{coordination}");
        });
    }
}

/// Every node is empty at one time, and replicas live: they know what was decided.
#[test]
fn what_all_nodes_have_forgotten_living_replicas_remember() {
    for coordination in [Coordination::Leader, Coordination::Tick] {
        for leader_dies in [false, true] {
            all_forget(coordination, leader_dies, false);
        }
    }
    // The spare replica of a failover fleet has never stood for election.
    all_forget(Coordination::Leader, false, true);
    all_forget(Coordination::Leader, true, true);
}

fn all_forget(coordination: Coordination, leader_dies: bool, failover: bool) {
    let case = format!("{coordination}, leader dies: {leader_dies}, failover: {failover}");
    let starts = Starts::default();
    let seen = starts.clone();
    let spec = Spec::every(MINUTE * 10)
        .misfire(Misfire::All)
        .coordination(coordination);
    let mut sim = Sim::new().replicas(2).nodes(3);
    if failover {
        sim = sim.failover();
    }
    let sim = sim.job("report", move |_| quick(&seen), spec);
    sim.run(|fleet| async move {
        // Just before a tick, which falls due before a replica has noticed, or while no node votes.
        fleet
            .advance(MINUTE * 40 - Duration::from_millis(500))
            .await;
        assert_eq!(starts.ticks().len(), 3, "{case}");
        if leader_dies && let Some(leader) = fleet.leader("report") {
            fleet.kill(leader);
        }
        (1..=3).for_each(|node| fleet.restart_node_empty(node));
        fleet.advance(MINUTE * 5).await;
        let told = unknown(&fleet.events());
        let tick = starts.ticks()[2] + MINUTE * 10;
        let ran = starts.ticks().contains(&tick);
        assert_eq!(told.len() + usize::from(ran), 1, "{case}: {told:?}");
        assert!(
            told.iter().all(|span| *span == (tick, tick, 1)),
            "{case}: {told:?}"
        );
        fleet.advance(MINUTE * 15).await;
        starts.assert_once();
        let all = starts.ticks().len() + told.len();
        assert_eq!(all, 5, "{case}: 00:10 to 00:50");
    });
}

/// The replicas' clocks are a day ahead while the nodes lose their memory: the loss bears a time of tomorrow.
#[test]
fn a_loss_by_a_clock_that_was_ahead_is_accounted_for_once() {
    for coordination in [Coordination::Leader, Coordination::Tick] {
        for nodes in [1, 3] {
            let case = format!("{coordination}, {nodes} nodes");
            let starts = Starts::default();
            let seen = starts.clone();
            let spec = Spec::every(MINUTE * 10)
                .misfire(Misfire::All)
                .coordination(coordination);
            let sim = Sim::new().replicas(2).nodes(nodes);
            let sim = sim.job("report", move |_| quick(&seen), spec);
            sim.run(|fleet| async move {
                fleet.advance(MINUTE * 35).await;
                let day = MINUTE * 60 * 24;
                let replicas = fleet.replicas();
                replicas.iter().for_each(|r| fleet.clock_ahead(*r, day));
                (1..=nodes).for_each(|node| fleet.restart_node_empty(node));
                fleet.advance(MINUTE * 3).await;
                let zero = Duration::ZERO;
                replicas.iter().for_each(|r| fleet.clock_ahead(*r, zero));
                // 00:40 to 01:10.
                fleet.advance(MINUTE * 33).await;
                if let Some(leader) = fleet.leader("report") {
                    fleet.kill(leader);
                }
                // 01:20 to 01:40: those who take over have nothing to account for.
                fleet.advance(MINUTE * 30).await;
                starts.assert_once();
                let (ran, told) = (starts.ticks().len(), unknown(&fleet.events()));
                assert_eq!((ran, told), (10, vec![]), "{case}: {:?}", starts.ticks());
                if coordination == Coordination::Tick {
                    return;
                }
                // Lost again, by clocks that are right: one node shows a ledger from before the last tick.
                if nodes == 3 {
                    fleet.lose_node(3);
                }
                fleet.advance(MINUTE * 10).await;
                assert_eq!(starts.ticks().len(), 11, "{case}");
                replicas.iter().for_each(|r| fleet.kill(*r));
                (1..=nodes.min(2)).for_each(|node| fleet.restart_node_empty(node));
                if nodes == 3 {
                    fleet.restart_node(3);
                }
                replicas.iter().for_each(|r| fleet.start(*r));
                fleet.advance(MINUTE * 25).await;
                starts.assert_once();
                let last = starts.ticks()[10];
                let told = unknown(&fleet.events());
                let expected = (nodes == 3).then_some((last, last, 1));
                assert_eq!(told, expected.into_iter().collect::<Spans>(), "{case}");
                assert_eq!(starts.ticks().len(), 13, "{case}: {:?}", starts.ticks());
            });
        }
    }
}

/// No replica remembers: the job is one never seen, as in a new fleet, and nothing is made up. Its ledger says since when that is.
#[test]
fn what_nobody_remembers_is_not_told() {
    let starts = Starts::default();
    let seen = starts.clone();
    let spec = Spec::every(MINUTE * 10).misfire(Misfire::All);
    let sim = Sim::new().replicas(2).nodes(3);
    let sim = sim.job("report", move |_| quick(&seen), spec);
    sim.run(|fleet| async move {
        fleet.advance(MINUTE * 35).await;
        assert_eq!(
            unknown(&fleet.events()),
            [],
            "a new fleet has nothing to tell"
        );
        fleet.replicas().into_iter().for_each(|r| fleet.kill(r));
        (1..=3).for_each(|node| fleet.restart_node_empty(node));
        fleet.advance(MINUTE * 30).await;
        fleet.replicas().into_iter().for_each(|r| fleet.start(r));
        fleet.advance(MINUTE * 10).await;
        assert_eq!(unknown(&fleet.events()), []);
        assert_eq!(starts.ticks().len(), 4, "00:10 to 00:30, and 01:10");
        // What `explain` tells of ticks from before.
        let key = "job/report";
        let seen = fleet.operator().look(vec![key.to_owned()]).await.unwrap();
        let ledger = Ledger::from_body(&seen[0].record().body).unwrap();
        let known_from = *ledger.memory_losses().last().unwrap();
        assert!(known_from > starts.ticks()[2] && known_from < starts.ticks()[3]);
    });
}

type Spans = Vec<(jiff::Timestamp, jiff::Timestamp, u64)>;

fn unknown(told: &[crate::testing::Told]) -> Spans {
    let spans = told.iter().filter_map(|told| match &told.event {
        Event::TicksSkipped {
            why: "unknown",
            first,
            last,
            count,
            ..
        } => Some((*first, *last, *count)),
        _ => None,
    });
    spans.collect()
}
