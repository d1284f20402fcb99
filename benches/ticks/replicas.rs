//! Many replicas in a few processes: what their standbys ask of the servers while the jobs rest, and what happens when half of
//! the processes are killed while they tick. What the replicas themselves use is not told: they share two processors.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use watchkeeper::{clock::Clock, fleet::Fleet};

use crate::{
    Plan,
    child::{When, Who},
    process::Process,
    scene::{NODES, Scene, pause},
    server::RedisServer,
    table::{Goal, Row, Table},
    tap::{Heard, Tap},
};

/// Processes, half of which are killed.
const PROCESSES: usize = 4;
/// Locks that standbys look at, a second and node.
const READS: f64 = 1_500.0;
/// From the kill until every job is led again, in seconds: the ttl and three more.
const LED_AGAIN_S: f64 = 13.0;
/// Jobs, and replicas in two processes, of which it is counted what each server sends at rest.
const JOBS: usize = 100;
const FEW_AND_MANY: [usize; 2] = [4, 12];
/// Bytes that a server sends in a second, with many replicas.
const SENT: f64 = 100_000.0;

pub(crate) fn measure(plan: Plan, table: &mut Table) {
    let (replicas, jobs) = plan.fleet;
    let each = replicas / PROCESSES;
    let scene = Scene::start(NODES);
    let start = |when| -> Vec<Process> {
        let child = |_| scene.replicas(Who::Led, when, jobs, each);
        (0..PROCESSES).map(child).collect()
    };
    let mut children = start(When::Rest);
    let after = scene.wait_until_led(&mut children[0], jobs);
    pause(plan.settle() * 2);
    let taps: Vec<Tap> = scene.servers.iter().map(Tap::on).collect();
    pause(plan.time);
    let heard: Vec<Heard> = taps.into_iter().map(Tap::heard).collect();
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let a_second = |of: fn(&Heard) -> u64| {
        let most = heard.iter().map(of).max().unwrap_or(0) as f64;
        most / plan.time.as_secs_f64()
    };
    let name = format!("{replicas} replicas, {jobs} jobs at rest");
    table.add(
        Row::new(format!("{name}: locks looked at, a second and node"), NODES)
            .ours(format!(
                "{:.0} calls/s; {:.0} kB/s asked; all led {:.1} s after the start; {:?}",
                a_second(Heard::all),
                a_second(|heard| heard.bytes) / 1e3,
                after.as_secs_f64(),
                heard[0].calls
            ))
            .figure(a_second(|heard| heard.looked))
            .goal(Goal::AtMost(READS)),
    );
    drop(children);
    half_are_killed(plan, table);
}

/// What each server sends while nothing is due, by its own count.
pub(crate) fn sent_at_rest(plan: Plan, table: &mut Table) {
    let mut most_of = Vec::new();
    for replicas in FEW_AND_MANY {
        let scene = Scene::start(NODES);
        let child = |_| scene.replicas(Who::Led, When::Rest, JOBS, replicas / 2);
        let mut children: Vec<Process> = (0..2).map(child).collect();
        scene.wait_until_led(&mut children[0], JOBS);
        pause(plan.settle() * 2);
        let time = plan.time.max(Duration::from_secs(20));
        let before: Vec<[f64; 2]> = scene.servers.iter().map(moved).collect();
        pause(time);
        let after = scene.servers.iter().map(moved);
        let rates: Vec<[f64; 2]> = before
            .iter()
            .zip(after)
            .map(|(before, after)| {
                [0, 1].map(|n: usize| (after[n] - before[n]) / time.as_secs_f64())
            })
            .collect();
        let most = |n: usize| rates.iter().map(|of| of[n]).fold(0.0, f64::max);
        let row = Row::new(
            format!("{replicas} replicas, {JOBS} jobs at rest: bytes sent, a second and node"),
            NODES,
        );
        let row = row
            .ours(format!("{:.1} kB/s received", most(1) / 1e3))
            .figure(most(0));
        table.add(row.goal(Goal::AtMost(SENT)));
        most_of.push(most(0));
    }
    let [few, many] = FEW_AND_MANY;
    table.add(
        Row::new(
            format!("{many} replicas send for {JOBS} jobs at rest, times what {few} do"),
            NODES,
        )
        .figure(most_of[1] / most_of[0])
        .goal(Goal::AtMost(2.0)),
    );
}

/// Bytes that a server has sent and received until now.
fn moved(server: &RedisServer) -> [f64; 2] {
    let told = server.raw(&["INFO", "stats"]);
    ["total_net_output_bytes:", "total_net_input_bytes:"].map(|field| {
        let line = told.lines().find_map(|line| line.strip_prefix(field));
        line.and_then(|bytes| bytes.trim().parse().ok())
            .unwrap_or(0.0)
    })
}

fn half_are_killed(plan: Plan, table: &mut Table) {
    let (replicas, jobs) = plan.fleet;
    let scene = Scene::start(NODES);
    let child = |_| scene.replicas(Who::Led, When::Spread, jobs, replicas / PROCESSES);
    let mut children: Vec<Process> = (0..PROCESSES).map(child).collect();
    scene.wait_until_led(&mut children[0], jobs);
    pause(plan.settle());
    let clock = Clock::system();
    let killed: Vec<Process> = children.split_off(PROCESSES / 2);
    drop(killed);
    let began = clock.now();
    let alive: BTreeSet<u32> = children.iter().map(Process::pid).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let led_again = runtime.block_on(async {
        let fleet = Fleet::connect(&scene.config()).await.unwrap();
        loop {
            if let Ok(status) = fleet.status().await {
                let led = status.jobs.iter().filter(|job| {
                    job.leader
                        .as_ref()
                        .is_some_and(|leader| alive.contains(&leader.pid))
                });
                if led.count() == jobs {
                    return clock.now().since(began);
                }
            }
            assert!(
                clock.now().since(began) < Duration::from_secs(120),
                "not all are led again"
            );
            // To ask for it costs much, of so many.
            clock.sleep(Duration::from_millis(500)).await;
        }
    });
    pause(plan.settle());
    drop(children);
    let runs = scene.runs();
    let mut begun: BTreeMap<&str, usize> = BTreeMap::new();
    for run in runs.lines() {
        *begun.entry(run).or_default() += 1;
    }
    let twice: usize = begun.values().filter(|count| **count > 1).count();
    let name = format!("{replicas} replicas, {jobs} jobs, half of the processes killed");
    table.add(
        Row::new(format!("{name}: all led again after, s"), NODES)
            .ours(format!("{} ticks began", begun.len()))
            .figure(led_again.as_secs_f64())
            .goal(Goal::AtMost(LED_AGAIN_S)),
    );
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let twice = twice as f64;
    table.add(
        Row::new(format!("{name}: ticks that began twice"), NODES)
            .figure(twice)
            .goal(Goal::AtMost(0.0)),
    );
}
