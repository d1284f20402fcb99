//! Wall clocks of replicas that are wrong, and what people are shown.

use std::time::Duration;

use super::{
    acts::{leader, patient},
    fleet::Fleet,
    intents::publish,
};
use crate::{job::Spec, worker::seeing};

/// News is judged by its age: by the clock of one machine a leader would be long gone, or lead since tomorrow.
#[tokio::test(start_paused = true)]
async fn who_leads_is_shown_by_the_nodes_clocks_whichever_replica_is_wrong() {
    for off in [3_600_000, -3_600_000] {
        for wrong in [0, 1] {
            let fleet = Fleet::new(3);
            let members = ["a", "b"].map(|name| fleet.join(name, patient(), Spec::continuous()));
            members[wrong].time.set_wall_offset(off);
            members.iter().for_each(publish);
            leader(&fleet, &[&members[0], &members[1]]).await;
            fleet.sleep(Duration::from_secs(5)).await;
            for member in &members {
                let seen = seeing::fleet(&member.ctx.locks).await.unwrap();
                let case = format!("{wrong} is {off} ms ahead: {seen:?}");
                let job = seen.job("job").unwrap();
                let led = job.leader.as_ref().expect(&case);
                let since = fleet.clock().wall().duration_since(led.since.expect(&case));
                assert!((-50..8_000).contains(&since.as_millis()), "{case}");
                let ages = seen.replicas.iter().map(|replica| replica.seen_ms_ago);
                assert!(ages.max().unwrap() < 5_000, "{case}");
            }
        }
    }
}
