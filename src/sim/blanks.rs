//! G3 with whole replicas: what becomes of ticks when a majority of lock nodes has lost its memory.

use std::time::Duration;

use super::{acts::quick, fleet::Starts};
use crate::{
    due::Misfire,
    event::Event,
    job::{Coordination, Spec},
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
            let told = fleet.events();
            let unknown = told.iter().find_map(|told| match &told.event {
                Event::TicksSkipped {
                    why: "unknown",
                    first,
                    last,
                    count,
                    ..
                } => Some((*first, *last, *count)),
                _ => None,
            });
            let expected = (ticks[3], ticks[5], 3);
            assert_eq!(unknown, Some(expected), "{coordination}");
        });
    }
}
