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
    for &jobs in plan.sizes {
        let is_largest = jobs == plan.sizes[plan.sizes.len() - 1];
        let goal = |goal| is_largest.then_some(Goal::AtMost(goal));
        let side = Side::at(jobs, RATE, plan);
        side.rows(jobs, &goal, table);
        at_rest(jobs, plan, &goal, table);
    }
    let jobs = plan.sizes[plan.sizes.len() - 1];
    for rate in plan.rates.iter().copied() {
        let side = Side::at(jobs, rate, plan);
        let p99 = micros(p99(&side.delays)) / 1e3;
        table.add(
            Row::new(
                format!("{jobs} jobs, {rate} ticks a second, delay p99 in ms"),
                NODES,
            )
            .ours(side.told())
            .figure(p99)
            .more(json!({ "runs_a_second": side.rate })),
        );
        if p99 > KNEE_MS {
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

impl Side {
    /// So many jobs that are due so often together.
    fn at(jobs: usize, rate: usize, plan: Plan) -> Self {
        let period = Duration::from_millis((jobs * 1_000 / rate) as u64);
        let when = When::SpreadOver(u64::try_from(period.as_millis()).unwrap_or(u64::MAX));
        let (scene, mut worker, led_after) = led(jobs, when);
        pause(if plan.check {
            Duration::from_secs(1)
        } else {
            period.min(plan.time)
        });
        let (asked, servers) = (Asked::of(&scene.servers), busiest(&scene));
        worker.begin();
        pause(plan.time);
        let done = worker.end();
        let server = (busiest(&scene) - servers).as_secs_f64() / done.time.as_secs_f64() * 100.0;
        let asked = Asked::of(&scene.servers).since(asked);
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let calls = asked.scripts as f64 / NODES as f64 / done.time.as_secs_f64();
        Self {
            led_after,
            rate: done.rate(),
            cpu: done.cpu_percent(),
            memory: done.memory,
            delays: done.delays,
            server,
            calls,
        }
    }

    fn told(&self) -> String {
        format!(
            "{}, p50 {}, most {}; {:.1} runs/s; worker {:.1} %, {:.1} MB; busiest server {:.1} %, {:.0} calls/s",
            time(p99(&self.delays)),
            time(p50(&self.delays)),
            time(percentile(&self.delays, 100)),
            self.rate,
            self.cpu,
            self.memory,
            self.server,
            self.calls
        )
    }

    fn rows(&self, jobs: usize, goal: &impl Fn(f64) -> Option<Goal>, table: &mut Table) {
        let mut add = |what: &str, ours: String, figure: f64, at_most: f64| {
            let row = Row::new(format!("{jobs} jobs, {what}"), NODES)
                .ours(ours)
                .figure(figure);
            table.add(match goal(at_most) {
                Some(goal) => row.goal(goal),
                None => row,
            });
        };
        let p99 = micros(p99(&self.delays)) / 1e3;
        add(
            "200 ticks a second, delay p99 in ms",
            self.told(),
            p99,
            DELAY_MS,
        );
        add("resident memory, MB", String::new(), self.memory, MEMORY);
        add(
            "busiest server, percent of a processor",
            String::new(),
            self.server,
            SERVER,
        );
        add(
            "from the start to all led, s",
            String::new(),
            self.led_after,
            LEADS_S,
        );
    }
}

fn at_rest(jobs: usize, plan: Plan, goal: &impl Fn(f64) -> Option<Goal>, table: &mut Table) {
    let (scene, mut worker, _) = led(jobs, When::Rest);
    pause(plan.settle());
    let (asked, servers) = (Asked::of(&scene.servers), busiest(&scene));
    worker.begin();
    pause(plan.time);
    let done = worker.end();
    let server = (busiest(&scene) - servers).as_secs_f64() / done.time.as_secs_f64() * 100.0;
    let asked = Asked::of(&scene.servers).since(asked);
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let calls = asked.scripts as f64 / NODES as f64 / done.time.as_secs_f64();
    let row = Row::new(
        format!("{jobs} jobs at rest, worker, percent of a processor"),
        NODES,
    )
    .ours(format!(
        "{:.1} MB; busiest server {server:.1} %, {calls:.0} calls/s",
        done.memory
    ))
    .figure(done.cpu_percent());
    table.add(match goal(REST) {
        Some(goal) => row.goal(goal),
        None => row,
    });
}

/// A worker that leads all of its jobs, and how many seconds that took.
fn led(jobs: usize, when: When) -> (Scene, Process, f64) {
    let scene = Scene::start(NODES);
    let mut worker = scene.child(Who::Led, when, jobs);
    let after = scene.wait_until_led(&mut worker, jobs);
    (scene, worker, after.as_secs_f64())
}

/// Processor time of the server that used most.
fn busiest(scene: &Scene) -> Duration {
    let used = scene.servers.iter().map(|server| cpu_of(server.pid()));
    used.max().unwrap_or_default()
}
