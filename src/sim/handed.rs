//! What a crew remembers of the terms that it has handed over, when the configuration is read again.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{
    acts::{leader, quick},
    fleet::{Fleet, Member, Starts, ready},
    intents::publish,
};
use crate::{
    job::Spec,
    worker::{
        crew::{JobChanges, Supervisor},
        registry::Body,
    },
};

const SECOND: Duration = Duration::from_secs(1);
const MIN_TERM: Duration = Duration::from_secs(10);

fn spec() -> Spec {
    Spec::every(SECOND * 2).min_term(MIN_TERM)
}

/// Somebody who is preferred.
fn preferred(fleet: &Fleet, name: &str, starts: &Starts) -> Member {
    let body = Body::Job(Arc::new(quick(starts)));
    let member = fleet.join_as(name, vec![("job", body, spec())], false, 1, true);
    publish(&member);
    member
}

/// What was handed over and came back stays for twice its minimum term, with a reload in between, too.
#[tokio::test(start_paused = true)]
async fn a_reload_forgets_nothing_of_the_jobs_that_stay() {
    let (fleet, starts) = (Fleet::new(3), Starts::default());
    let a = fleet.join_as("a", Vec::new(), false, 0, true);
    publish(&a);
    let body = Body::Job(Arc::new(quick(&starts)));
    let job = ready(("job", body, spec()));
    let (orders, desk) = mpsc::channel(1);
    let crew = Supervisor::begin(a.ctx.clone(), false, vec![job]);
    a.ctx.spawn.spawn(crew.work(desk));
    leader(&fleet, &[&a]).await;
    let b = preferred(&fleet, "b", &starts);
    leader(&fleet, &[&b]).await;
    b.drain();
    b.ended().await;
    leader(&fleet, &[&a]).await;
    let since = fleet.time.elapsed();
    orders.send(JobChanges::default()).await.unwrap();
    let c = preferred(&fleet, "c", &starts);
    leader(&fleet, &[&c]).await;
    let stayed = fleet.time.elapsed().saturating_sub(since);
    assert!(stayed >= MIN_TERM * 2, "it has stayed for {stayed:?}");
    starts.assert_once();
}
