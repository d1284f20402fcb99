//! A thousand jobs that one replica leads over three masters, two hundred ticks a second.

use serde_json::json;

use crate::{
    Plan,
    asked::Asked,
    child::{PERIOD, When, Who},
    scene::{NODES, Scene, pause},
    table::{Goal, Row, Table, micros, p50, p99, percentile, time},
};

/// From the instant at which a tick is due to its run, in milliseconds, of 99 in 100 runs.
const DELAY_MS: f64 = 20.0;
/// Resident, in MB.
const MEMORY: f64 = 60.0;

pub(crate) fn measure(plan: Plan, table: &mut Table) {
    let scene = Scene::start(NODES);
    let mut worker = scene.child(Who::Led, When::Spread, plan.jobs);
    scene.wait_until_led(&mut worker, plan.jobs);
    pause(plan.settle());

    let before = Asked::of(&scene.servers);
    worker.begin();
    pause(plan.time);
    let done = worker.end();
    let asked = Asked::of(&scene.servers).since(before);

    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let (due, runs, nodes) = (
        plan.jobs as f64 / PERIOD.as_secs_f64(),
        done.delays.len() as f64,
        NODES as f64,
    );
    let jobs = plan.jobs;
    let p99 = p99(&done.delays);
    table.add(
        Row::new(format!("{jobs} jobs, delay of runs, p99 in ms"), NODES)
            .ours(format!("{}, p50 {}", time(p99), time(p50(&done.delays))))
            .figure(micros(p99) / 1e3)
            .goal(Goal::AtMost(DELAY_MS))
            .more(json!({ "p90_us": micros(percentile(&done.delays, 90)), "max_us": micros(percentile(&done.delays, 100)) })),
    );
    table.add(
        Row::new("runs a second, to ticks that were due", NODES)
            .ours(format!("{:.1}", done.rate()))
            .beside(format!("{due:.1}"))
            .figure(done.rate() / due),
    );
    table.add(
        Row::new("resident memory, MB", NODES)
            .ours(format!("{:.1}", done.memory))
            .figure(done.memory)
            .goal(Goal::AtMost(MEMORY)),
    );
    table
        .add(Row::new("processor of the worker, percent of one", NODES).figure(done.cpu_percent()));
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let (calls, script_us) = (asked.scripts as f64, asked.script_us as f64);
    table.add(
        Row::new("calls a node and run, all traffic", NODES)
            .ours(format!(
                "{:.0} us of a server's time a run",
                script_us / runs / nodes
            ))
            .figure(calls / runs / nodes),
    );
}
