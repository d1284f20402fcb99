//! A receiver that asks one of several senders for a pause. Costs about 15 seconds, nearly all of which it waits.

use std::time::Duration;

use watchkeeper::{clock::Clock, spawn::Spawn};
use watchkeeper_jobs::{
    demo_table::create_demo_table,
    receiver::{Faults, Receiver},
};

use crate::{
    fleet::Fleet,
    log::Line,
    store::Store,
    wait::{SOON, pause, soon},
};

const MAIL: &str = r#"
[jobs.mail]
kind = "notifications"
schedule = "continuous"
coordination = "batch"
params = { source = "sqlite://$FOLDER/app.db", table = "notifications", sink = "$SINK", batch_size = 10, rate = 60 }
"#;

/// More than are sent in the time that it takes.
const ROWS: usize = 2_000;

/// What the receiver asks for.
const ASKED: Duration = Duration::from_secs(12);

/// By then every replica has heard of it: twice a second and a look, and what was under way.
const HEARD: Duration = Duration::from_secs(6);

/// It is asked of one request alone, and kept by the replica that has not sent that as well.
pub(crate) fn a_pause_that_one_sender_was_asked_for_is_kept_by_all(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let receiver = runtime.block_on(Receiver::start(&Spawn::system())).unwrap();
    let mut fleet = Fleet::new(store, &MAIL.replace("$SINK", &receiver.url()));
    create_demo_table(&fleet.file("app.db"), ROWS).unwrap();
    fleet.start();
    fleet.start();
    let both_send = || {
        let lines = fleet.log.since(0);
        let sends = |worker: usize| {
            let done = |l: &&Line| l.worker == worker && l.is("batch ended", "mail");
            lines.iter().filter(done).count() > 1
        };
        fleet.workers().into_iter().all(sends)
    };
    soon("batch of each worker", both_send);
    let clock = Clock::system();
    let before = clock.now();
    receiver.behave(Faults {
        refuse_next: 1,
        status: 429,
        retry_after: Some(ASKED.as_secs()),
        ..Faults::default()
    });
    soon("refusal", || receiver.tally().refused == 1);
    let so_far = receiver.tally().requests;
    pause(HEARD);
    let heard = receiver.tally().requests;
    let most = so_far + 60 * HEARD.as_secs();
    fleet.measured("requests until all had heard of it", &(heard - so_far));
    assert!(heard <= most, "{so_far}, then {heard}");
    runtime.block_on(async {
        let mut tally = receiver.watch();
        let more = clock.timeout(SOON, tally.wait_for(|t| t.requests > heard));
        more.await.expect("it is sent to again").map(drop).unwrap();
    });
    let left_alone = clock.now().since(before);
    fleet.measured("sent to again after", &left_alone);
    assert!(left_alone >= ASKED, "{left_alone:?}");
}
