//! Replicas that disagree on a job, with `definition = "refuse"`.

use std::time::Duration;

use super::acts::{Starts, quick};
use crate::{
    event::Event,
    job::{Disagreement, Spec},
    testing::{cluster::Cluster, members::Member},
};

const SECOND: Duration = Duration::from_secs(1);

/// The newest definition waits, although its replica is first in the line, until no replica has the old one any more.
#[tokio::test(start_paused = true)]
async fn under_a_refused_definition_nobody_leads_while_a_replica_has_the_old_one() {
    let (fleet, old, new) = (Cluster::new(3), Starts::default(), Starts::default());
    let join = |name, starts: &Starts, seconds: u32| {
        let spec = Spec::every(SECOND * seconds).definition(Disagreement::Refuse);
        let member = fleet.join(name, quick(starts), spec);
        member.publish();
        member
    };
    let a = join("a", &old, 2);
    fleet.sleep(SECOND * 5).await;
    let b = join("b", &old, 2);
    fleet.sleep(SECOND * 5).await;
    let c = join("c", &new, 3);
    fleet.sleep(SECOND * 20).await;
    let leads = |member: &Member| member.leads();
    assert_eq!([&a, &b, &c].map(leads), [true, false, false]);
    let led = a
        .told
        .lock()
        .unwrap()
        .iter()
        .filter(|e| matches!(e, Event::Leading { .. }))
        .count();
    assert_eq!(led, 1, "in one term");
    a.tasks.crash();
    fleet.sleep(SECOND * 20).await;
    assert_eq!([&b, &c].map(leads), [true, false], "its like takes over");
    assert_eq!(new.len(), 0, "nothing has run under the new one");
    b.tasks.crash();
    fleet.sleep(SECOND * 20).await;
    assert!(c.leads() && new.len() > 2, "the last one that is left");
    old.assert_once();
    new.assert_once();
}
