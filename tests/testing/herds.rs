//! Many jobs at one instant.

use std::{collections::BTreeMap, time::Duration};

use watchkeeper::{DurationExt, Job, JobError, Outcome, Run, Spec, event::Event, testing::Sim};

struct Quick;

#[async_trait::async_trait]
impl Job for Quick {
    async fn run(&self, _: Run) -> Result<Outcome, JobError> {
        Ok(Outcome::Done)
    }
}

/// One more than twice as many as are written at a time would need three turns.
const JOBS: usize = 600;

#[test]
fn jobs_that_started_last_at_one_instant_start_first_at_the_next() {
    let spec = Spec::every(1.mins());
    let mut sim = Sim::new()
        .replicas(1)
        .nodes(1)
        .starting("2026-01-01T00:00:10Z")
        .latency(20.millis());
    for n in 0..JOBS {
        sim = sim.job(&format!("job-{n:03}"), |_| Quick, spec.clone());
    }
    let urgent = spec.priority(1);
    let sim = sim.job("urgent", |_| Quick, urgent);
    sim.run(|fleet| async move {
        fleet.advance(2.mins()).await;
        let mut ticks: BTreeMap<_, Vec<(Duration, String)>> = BTreeMap::new();
        for told in fleet.events() {
            if let Event::RunStarted {
                job, tick, delay, ..
            } = told.event
            {
                ticks.entry(tick).or_default().push((delay, job));
            }
        }
        let ticks: Vec<_> = ticks.into_values().collect();
        assert_eq!(
            ticks.iter().map(Vec::len).collect::<Vec<_>>(),
            [JOBS + 1, JOBS + 1]
        );
        let places = |tick: &[(Duration, String)]| {
            let mut order = tick.to_vec();
            order.sort_by_key(|(delay, _)| *delay);
            let order = order.into_iter().enumerate();
            order
                .map(|(place, (_, job))| (job, place))
                .collect::<BTreeMap<_, _>>()
        };
        let (first, second) = (places(&ticks[0]), places(&ticks[1]));
        // What had to wait for its turn is among those of the first turn now.
        let late = first.iter().filter(|(_, place)| **place >= 510);
        let again = late.clone().filter(|(job, _)| second[*job] >= 500).count();
        assert!(late.count() > 80 && again == 0, "{again} were late twice");
        assert!(first["urgent"] < 500 && second["urgent"] < 500);
    });
}
