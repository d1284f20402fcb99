//! What a growing number of jobs costs one replica over three masters: two hundred ticks a second however many jobs they come
//! from, then at rest; and how many ticks a second the largest number bears.

use std::time::Duration;

use serde_json::json;

use crate::{
    Plan,
    asked::Asked,
    child::{When, Who},
    process::{Process, cpu_of},
    scene::{NODES, Scene, pause},
    table::{Goal, Row, Table, micros, p50, p99, percentile, time},
};

/// Ticks a second of every size.
const RATE: usize = 200;
/// Of the largest size, in milliseconds, percent of a processor and MB.
const DELAY_MS: f64 = 25.0;
const MEMORY: f64 = 120.0;
const SERVER: f64 = 15.0;
const REST: f64 = 5.0;
/// From its start until it leads all jobs, in seconds.
const LEADS_S: f64 = 30.0;
/// Where runs begin so late, in milliseconds, a worker has too much to do.
const KNEE_MS: f64 = 100.0;

pub(crate) fn measure(plan: Plan, table: &mut Table) {
    let largest = plan.sizes.last().copied().unwrap_or_default();
    for &jobs in plan.sizes {
        let mut add = |what: &str, ours: String, figure: f64, at_most: f64| {
            let row = Row::new(format!("{jobs} jobs, {what}"), NODES)
                .ours(ours)
                .figure(figure);
            table.add(match jobs == largest {
                true => row.goal(Goal::AtMost(at_most)),
                false => row,
            });
        };
        let side = Side::at(jobs, RATE, plan);
        let late = format!("{RATE} ticks a second, delay p99 in ms");
        add(&late, side.delays(), side.p99_ms(), DELAY_MS);
        add("the same, memory in MB", String::new(), side.memory, MEMORY);
        let server = "the same, busiest server, percent of a processor";
        add(server, side.cost(), side.server, SERVER);
        let start = "from the start to all led, s";
        add(start, String::new(), side.led_after, LEADS_S);
        let rest = Side::of(jobs, When::Rest, plan.settle(), plan);
        let at_rest = "at rest, worker, percent of a processor";
        add(at_rest, rest.cost(), rest.cpu, REST);
    }
    for rate in plan.rates.iter().copied() {
        let side = Side::at(largest, rate, plan);
        table.add(
            Row::new(
                format!("{largest} jobs, {rate} ticks a second, delay p99 in ms"),
                NODES,
            )
            .ours(format!("{}; {}", side.delays(), side.cost()))
            .figure(side.p99_ms())
            .more(json!({ "runs_a_second": side.rate })),
        );
        if side.p99_ms() > KNEE_MS {
            break;
        }
    }
}

/// What was measured of one worker.
struct Side {
    led_after: f64,
    delays: Vec<Duration>,
    rate: f64,
    cpu: f64,
    memory: f64,
    server: f64,
    calls: f64,
}

// === impl Side ===

impl Side {
    /// So many jobs that are due so often together.
    fn at(jobs: usize, rate: usize, plan: Plan) -> Self {
        let period = Duration::from_millis((jobs * 1_000 / rate) as u64);
        let when = When::SpreadOver(u64::try_from(period.as_millis()).unwrap_or(u64::MAX));
        let settle = match plan.check {
            true => Duration::from_secs(1),
            // What is seen first in the middle of a period is due in the next one.
            false => period * 2,
        };
        Self::of(jobs, when, settle, plan)
    }

    /// So many jobs that one worker leads, watched when everything has begun.
    fn of(jobs: usize, when: When, settle: Duration, plan: Plan) -> Self {
        let (scene, mut worker, led_after) = led(jobs, when);
        pause(settle);
        let (asked, servers) = (Asked::of(&scene.servers), busiest(&scene));
        worker.begin();
        pause(plan.time);
        let done = worker.end();
        let used = busiest(&scene).saturating_sub(servers);
        let asked = Asked::of(&scene.servers).since(asked);
        let seconds = done.time.as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let calls = asked.scripts as f64 / NODES as f64 / seconds;
        Self {
            led_after,
            rate: done.rate(),
            cpu: done.cpu_percent(),
            memory: done.memory,
            delays: done.delays,
            server: used.as_secs_f64() / seconds * 100.0,
            calls,
        }
    }

    fn p99_ms(&self) -> f64 {
        micros(p99(&self.delays)) / 1e3
    }

    fn delays(&self) -> String {
        format!(
            "{}, p50 {}, most {}; {:.1} runs/s",
            time(p99(&self.delays)),
            time(p50(&self.delays)),
            time(percentile(&self.delays, 100)),
            self.rate
        )
    }

    fn cost(&self) -> String {
        format!(
            "worker {:.1} %, {:.1} MB; busiest server {:.1} %, {:.0} calls/s",
            self.cpu, self.memory, self.server, self.calls
        )
    }
}

/// A worker that leads all of its jobs, and how many seconds that took.
fn led(jobs: usize, when: When) -> (Scene, Process, f64) {
    let scene = Scene::admitted(NODES);
    let mut worker = scene.child(Who::Led, when, jobs);
    let after = scene.wait_until_led(&mut worker, jobs);
    (scene, worker, after.as_secs_f64())
}

/// Processor time of the server that used most.
fn busiest(scene: &Scene) -> Duration {
    let used = scene.servers.iter().map(|server| cpu_of(server.pid()));
    used.max().unwrap_or_default()
}
