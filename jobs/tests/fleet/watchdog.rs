//! A keeper that stands still, in a process that lives on: its service manager hears no more signs of life, and a standby has its job
//! meanwhile. A small C file (`hold.c`), loaded into the worker, holds the keeper's thread and no other. Costs about ten seconds.

use std::{os::unix::net::UnixDatagram, sync::mpsc::Receiver, time::Duration};

use watchkeeper::{
    DurationExt,
    clock::{Clock, Moment},
};

use crate::{
    fleet::{Fleet, TTL, pulse},
    log::GONE,
    shim::compiled,
    store::Store,
    wait::{SOON, starved},
};

/// Without a sign of life for so long the manager would end the process.
const WATCHDOG: Duration = Duration::from_secs(1);

/// What has stood still for so long gives no more signs of life.
const STANDS_STILL: Duration = Duration::from_secs(5);

/// What threads are called has 15 bytes.
const KEEPER: &str = "watchkeeper-kee";

pub(crate) fn a_keeper_that_stands_still_gives_no_sign_of_life(store: Store) {
    let mut fleet = Fleet::new(store, &pulse());
    let manager = Manager::new(&fleet);
    let held = fleet.file("held");
    let shim = compiled("hold", include_str!("hold.c")).expect("a C compiler");
    let variables = [
        ("NOTIFY_SOCKET", fleet.file("notify").display().to_string()),
        ("WATCHDOG_USEC", WATCHDOG.as_micros().to_string()),
        ("LD_PRELOAD", shim.display().to_string()),
        ("HOLD_THREAD", KEEPER.to_owned()),
        ("HOLD_FILE", held.display().to_string()),
    ];
    let worker = fleet.start_with(&variables.map(|(name, value)| (name.to_owned(), value)));
    fleet.wait_until_ready(worker);
    assert_eq!(manager.next(SOON).as_deref(), Some("READY=1"));
    let led = fleet.leader("pulse");
    let beats = fleet.beats();
    beats.wait(SOON, "run", |beat| beat.token == led.token);
    let other = fleet.join();
    for _ in 0..4 {
        assert_eq!(manager.next(SOON).as_deref(), Some("WATCHDOG=1"));
    }

    let mark = fleet.log.mark();
    std::fs::write(&held, "").expect("our own folder");
    let clock = Clock::system();
    let stood = clock.now();
    let next = fleet.next_leader(mark, "pulse");
    assert_eq!(next.worker, other);
    fleet.took_over(stood, &next);
    let last = manager.last_sign(stood);
    fleet.measured("the last sign of life after", &last.since(stood));
    // Its last beat came before, and twice in the manager's time there is a sign of life.
    let most = STANDS_STILL + WATCHDOG + 1.secs() + starved(stood, last);
    assert!(last.since(stood) <= most);
    let page = fleet.page(worker);
    let (status, said) = fleet.says(&page, "GET", "/livez", "");
    assert_eq!(status, 503, "{said}");
    assert!(said.contains("the lock keeper has stood still"), "{said}");
    // All else goes on: nothing but the watchdog tells.
    assert_eq!(fleet.status_of(worker, "/metrics"), 200);
    let has_gone = |worker| {
        let lines = fleet.log.since(0);
        lines.iter().any(|l| l.worker == worker && l.says() == GONE)
    };
    assert!(!has_gone(worker), "the process lives");
    let replica = fleet.replica(worker);
    let acts = beats.of("pulse").into_iter();
    let late = acts.filter(|beat| beat.replica == replica && beat.at > next.said);
    assert_eq!(late.count(), 0, "it did nothing after its lease");

    // Let go, it gives signs of life again: nothing but the keeper was in their way.
    std::fs::remove_file(&held).expect("our own file");
    assert_eq!(manager.next(SOON).as_deref(), Some("WATCHDOG=1"));
    assert!(!has_gone(worker), "it had nothing to abort for");
    let mark = fleet.log.mark();
    fleet.kill(other);
    assert_eq!(fleet.next_leader(mark, "pulse").worker, worker);
    assert!(TTL < STANDS_STILL, "its leases were over before that");
}

/// What systemd has: a socket that is told how a process does.
struct Manager(Receiver<(Moment, String)>);

impl Manager {
    /// Its thread, which takes what is told when it is told, ends with the process.
    fn new(fleet: &Fleet) -> Self {
        let socket = UnixDatagram::bind(fleet.file("notify")).expect("a socket in our own folder");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let (clock, mut buffer) = (Clock::system(), [0; 64]);
            while let Ok(length) = socket.recv(&mut buffer) {
                let said = String::from_utf8_lossy(&buffer[..length]).into_owned();
                if tell.send((clock.now(), said)).is_err() {
                    return;
                }
            }
        });
        Self(told)
    }

    /// What is told next; nothing where that takes longer than `limit`.
    fn next(&self, limit: Duration) -> Option<String> {
        self.0.recv_timeout(limit).ok().map(|(_, said)| said)
    }

    /// When the last sign of life came: the manager's time passes twice without another.
    fn last_sign(&self, since: Moment) -> Moment {
        let mut last = since;
        while let Ok((at, told)) = self.0.recv_timeout(WATCHDOG * 2) {
            assert_eq!(told, "WATCHDOG=1");
            last = at;
            assert!(last.since(since) < SOON, "the signs of life do not end");
        }
        last
    }
}
