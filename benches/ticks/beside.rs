//! The same jobs on the same schedules, a fifth of them at each whole second: ours beside tokio-cron-scheduler, which has
//! no locks, no memory and no other replicas, and beside bare timers.

use serde_json::json;

use crate::{
    Plan,
    child::{When, Who},
    scene::{NODES, Scene, pause},
    table::{Row, Table, micros, p50, p99, time},
};

pub(crate) fn measure(plan: Plan, table: &mut Table) {
    for (who, what) in [
        (Who::Timers, "bare timers"),
        (Who::Peer, "tokio-cron-scheduler"),
        (Who::Everywhere, "ours, everywhere: no locks"),
        (Who::Led, "ours, led over three masters"),
    ] {
        let scene = Scene::start(if matches!(who, Who::Led | Who::Everywhere) {
            NODES
        } else {
            0
        });
        let mut child = scene.child(who, When::Seconds, plan.jobs);
        if who == Who::Led {
            scene.wait_until_led(&mut child, plan.jobs);
        }
        pause(plan.settle());
        child.begin();
        pause(plan.time);
        let done = child.end();
        table.add(
            Row::new(format!("{what}, delay p50, p99"), scene.servers.len())
                .ours(format!(
                    "{}, {}; {:.1} % cpu, {:.1} MB, {:.1} runs/s",
                    time(p50(&done.delays)),
                    time(p99(&done.delays)),
                    done.cpu_percent(),
                    done.memory,
                    done.rate()
                ))
                .figure(micros(p99(&done.delays)) / 1e3)
                .more(json!({ "cpu_percent": done.cpu_percent(), "memory_mb": done.memory })),
        );
    }
}
