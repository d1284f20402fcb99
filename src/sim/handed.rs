//! What a supervisor remembers of the terms that it has handed over, when the configuration is read again.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::acts::{Starts, leader, quick};
use crate::{
    job::Spec,
    testing::{
        cluster::Cluster,
        members::{Member, ready},
    },
    worker::{
        ready::Body,
        supervisor::{JobChanges, Supervisor},
    },
};

const SECOND: Duration = Duration::from_secs(1);
const MIN_TERM: Duration = Duration::from_secs(10);

fn spec() -> Spec {
    Spec::every(SECOND * 2).min_term(MIN_TERM)
}

/// A replica that is preferred.
fn preferred(fleet: &Cluster, name: &str, starts: &Starts) -> Member {
    let body = Body::Job(Arc::new(quick(starts)));
    let member = fleet.join_as(name, vec![("job", body, spec())], false, 1, true);
    member.publish();
    member
}

/// What was handed over and came back stays for twice its minimum term, with a reload in between, too.
#[tokio::test(start_paused = true)]
async fn a_reload_forgets_nothing_of_the_jobs_that_stay() {
    let (fleet, starts) = (Cluster::new(3), Starts::default());
    let a = fleet.join_as("a", Vec::new(), false, 0, true);
    a.publish();
    let body = Body::Job(Arc::new(quick(&starts)));
    let job = ready(("job", body, spec()));
    let (changer, changes) = mpsc::channel(1);
    let supervisor = Supervisor::begin(a.ctx.clone(), vec![job]);
    a.ctx.spawn.spawn(supervisor.work(changes));
    leader(&fleet, &[&a]).await;
    let b = preferred(&fleet, "b", &starts);
    leader(&fleet, &[&b]).await;
    b.drain();
    b.ended().await;
    leader(&fleet, &[&a]).await;
    let since = fleet.time.elapsed();
    changer.send(JobChanges::default()).await.unwrap();
    let c = preferred(&fleet, "c", &starts);
    leader(&fleet, &[&c]).await;
    let stayed = fleet.time.elapsed().saturating_sub(since);
    assert!(stayed >= MIN_TERM * 2, "it has stayed for {stayed:?}");
    starts.assert_once();
}
