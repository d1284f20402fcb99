//! A thousand jobs while none of them is due: of the replica that leads them, and of one that stands by.

use std::time::Duration;

use crate::{
    Plan,
    child::{When, Who},
    scene::{NODES, Scene, pause},
    table::{Goal, Row, Table},
    tap::{Heard, Tap},
};

/// Leases in one call.
const CHUNK: usize = 250;
/// A round: a third of the default ttl, a little early.
const ROUND: Duration = Duration::from_millis(3_334);

pub(crate) fn measure(plan: Plan, table: &mut Table) {
    let scene = Scene::start(NODES);
    let jobs = plan.jobs;
    let mut leader = scene.child(Who::Led, When::Rest, jobs);
    scene.wait_until_led(&mut leader, jobs);
    pause(plan.settle());
    let time = plan.time.max(ROUND * 2);

    leader.begin();
    let heard = listen(&scene, time);
    let done = leader.end();
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let per_round = |heard: &Heard| {
        let rounds = heard.extended as f64 / jobs as f64;
        heard.extensions() as f64 / rounds
    };
    let worst = heard.iter().map(per_round).fold(0.0, f64::max);
    #[allow(clippy::cast_precision_loss, reason = "a few")]
    let least = jobs.div_ceil(CHUNK) as f64;
    table.add(
        Row::new(
            format!("renewal of {jobs} leases, calls a node and round"),
            NODES,
        )
        .ours(format!("{worst:.2} on the worst node"))
        .beside(format!("{least} of {CHUNK}"))
        .figure(worst / least)
        .goal(Goal::AtMost(1.05)),
    );
    at_rest(
        "leader",
        &heard,
        time,
        done.cpu_percent(),
        done.memory,
        table,
    );

    let mut standby = scene.child(Who::Led, When::Rest, jobs);
    pause(plan.settle());
    standby.begin();
    leader.begin();
    let both = listen(&scene, time);
    let done = standby.end();
    let of_leader = leader.end();
    at_rest(
        "both",
        &both,
        time,
        of_leader.cpu_percent(),
        of_leader.memory,
        table,
    );
    at_rest(
        "standby, its processor and memory; calls of both",
        &both,
        time,
        done.cpu_percent(),
        done.memory,
        table,
    );
}

fn listen(scene: &Scene, time: Duration) -> Vec<Heard> {
    let taps: Vec<Tap> = scene.servers.iter().map(Tap::on).collect();
    pause(time);
    taps.into_iter().map(Tap::heard).collect()
}

fn at_rest(who: &str, heard: &[Heard], time: Duration, cpu: f64, memory: f64, table: &mut Table) {
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let (calls, bytes, nodes) = (
        heard.iter().map(Heard::all).sum::<u64>() as f64,
        heard.iter().map(|heard| heard.bytes).sum::<u64>() as f64,
        heard.len() as f64,
    );
    let seconds = time.as_secs_f64();
    let calls = calls / nodes / seconds;
    table.add(
        Row::new(format!("{who} at rest, calls a second and node"), NODES)
            .ours(format!(
                "{:.0} kB/s; processor {cpu:.1} %, {memory:.1} MB; {:?}",
                bytes / nodes / seconds / 1e3,
                heard[0].calls
            ))
            .figure(calls),
    );
}
