//! One lock shared with Redlock clients of others, on the same plain key (`raw_keys`).
//!
//! Between us and them no more is promised than by plain Redlock: these cases are about good days. Whether our nodes
//! are guarded and our own holders watched makes no difference to them: what they wrote is waited for, and never
//! replaced, shortened or broken. They cost about half a minute, most of it waiting for leases to end; to build the
//! stranger in Rust takes another minute, once (`tests/interop/install`).

pub(crate) mod foreign;

use std::{fs, path::Path, time::Duration};

use tempfile::TempDir;
use tokio::runtime::Runtime;
use watchkeeper_lock::{
    chance::Chance,
    clock::Clock,
    lock::{LockError, Locks, Timing},
};

use crate::{
    client::{admit, locks, patient},
    masters::{Masters, until},
    rules::Rules,
    torture::pause,
};
use foreign::{Foreign, Peer};

/// Of a lease that is extended, theirs or ours.
const TTL_MS: u64 = 1500;
const TTL: Duration = Duration::from_millis(TTL_MS);
/// Of one that must not run out meanwhile.
const LONG_MS: u64 = 20_000;
/// A waiter of ours looks at least every second, for strangers announce nothing.
const PROMPT: Duration = Duration::from_secs(3);

/// How exactly two clocks are compared here.
const TICK: Duration = Duration::from_millis(5);

/// Masters, a stranger, and us; all of them know each other, and the lock is free.
struct Scene {
    key: String,
    them: Foreign,
    us: Us,
    masters: Masters,
}

/// A process of ours. Its keeper has its own thread.
struct Us {
    locks: Locks,
    runtime: Runtime,
}

/// What one node shows of the key: its value in hex, for there are strangers whose values are no text, and how long it
/// lives.
type Shown = (String, u64);

// === cases ===

/// They hold: we are refused, and told by whom and for how long. What they hold we never touch, also when they extend it
/// beyond its first life. When they release it, we get it.
pub(crate) fn they_hold(peer: Peer, nodes: usize, rules: Rules) {
    let mut scene = Scene::new(peer, nodes, rules);
    let owner = scene.them.acquire(&scene.key, TTL_MS).expect("it is free");
    scene.theirs_is_everywhere();
    let (clock, start) = (Clock::system(), Clock::system().now());
    let waiting = {
        let builder = scene.us.locks.lock_key(&scene.key);
        scene.us.runtime.spawn(builder.wait(60 * TTL).acquire())
    };
    while clock.now().since(start) < 2 * TTL {
        let before = scene.shown();
        scene.refused(&owner);
        scene.refused(&owner);
        for ((value, left), (then, before)) in scene.shown().iter().zip(&before) {
            assert_eq!((value, then), (&owner, &owner));
            assert!(left <= before, "lengthened from {before} to {left}");
            // Time passes for it, no more.
            assert!(left + 500 > *before, "shortened from {before} to {left}");
        }
        // On every node: what shows more than that afterwards was extended.
        let aged = |(_, left): &Shown| *left < TTL_MS / 2;
        until("half of its life", || scene.shown().iter().all(aged));
        assert!(!waiting.is_finished(), "we hold it, too");
        scene.them.extend(TTL_MS);
        scene.theirs_is_everywhere();
    }
    assert!(!waiting.is_finished(), "we hold it, too");

    scene.them.release();
    let released = clock.now();
    let lease = scene.us.runtime.block_on(waiting).unwrap().unwrap();
    let waited = lease.view().since().since(released);
    assert!(waited < PROMPT, "{waited:?}");
}

/// Every node's clock goes back while they hold, so that what they wrote lives an hour longer. They may be alive: we wait
/// for it, however long our own dead would have been over, and do not break it by force either.
pub(crate) fn their_clock_goes_back(peer: Peer, nodes: usize, rules: Rules) {
    let mut scene = Scene::new(peer, nodes, rules);
    let owner = scene.them.acquire(&scene.key, TTL_MS).expect("it is free");
    scene.theirs_is_everywhere();
    (0..nodes).for_each(|n| scene.masters.step(n, -3600));
    let (clock, start) = (Clock::system(), Clock::system().now());
    let lives = scene.shown();
    assert!(lives.iter().all(|(_, left)| *left > 3_000_000), "{lives:?}");
    while clock.now().since(start) < 2 * TTL {
        let builder = scene.us.locks.lock_key(&scene.key).wait(TTL / 2);
        assert!(scene.us.runtime.block_on(builder.acquire()).is_err());
    }
    let named = text(&owner);
    let report = scene.us.locks.break_lease(&scene.key, &named, true);
    let report = scene.us.runtime.block_on(report).unwrap();
    let after = scene.shown();
    let passed = u64::try_from((clock.now().since(start) + TICK).as_millis()).unwrap();
    for ((value, left), (_, before)) in after.iter().zip(&lives) {
        assert_eq!(value, &owner, "{report:?}");
        assert!(left <= before, "lengthened from {before} to {left}");
        assert!(
            left + passed >= *before,
            "shortened from {before} to {left}"
        );
    }
}

/// We hold and extend beyond the first life: they are refused. When we release it, they get it.
pub(crate) fn we_hold(peer: Peer, nodes: usize, rules: Rules) {
    let mut scene = Scene::new(peer, nodes, rules);
    let lease = scene.us.acquire(&scene.key);
    let (start, clock) = (lease.view().since(), Clock::system());
    until("the last node", || scene.seen().is_some());
    while clock.now().since(start) < 2 * TTL {
        assert_eq!(scene.them.acquire(&scene.key, TTL_MS), None);
        assert!(lease.view().is_held());
        let ours = |(value, left): &Shown| *value == hex(lease.view().owner()) && *left <= TTL_MS;
        assert!(scene.shown().iter().all(ours), "{:?}", scene.shown());
    }
    scene.us.runtime.block_on(lease.release());
    assert!(scene.them.acquire(&scene.key, TTL_MS).is_some());
    scene.them.release();
}

/// They die: their key lives as long as they said, and no shorter; then it is ours.
pub(crate) fn they_die(peer: Peer, nodes: usize, rules: Rules) {
    let mut scene = Scene::new(peer, nodes, rules);
    scene.them.acquire(&scene.key, TTL_MS).expect("it is free");
    scene.theirs_is_everywhere();
    // Read first: what is left on the node that is the first to let go.
    let now = Clock::system().now();
    let left = scene.left();
    scene.them.kill();
    let lease = scene.us.acquire(&scene.key);
    let waited = lease.view().since().since(now);
    // Their clock and ours do not tick together.
    assert!(
        waited + TICK >= Duration::from_millis(left),
        "{waited:?} {left}"
    );
    assert!(waited < TTL + PROMPT, "{waited:?}");
}

/// Both sides count in one file: no update is lost.
pub(crate) fn both_count(peer: Peer, nodes: usize, rules: Rules) {
    const EACH: usize = 40;
    let mut scene = Scene::new(peer, nodes, rules);
    let folder = TempDir::with_prefix("wk-count-").unwrap();
    let file = counter(&folder);
    let theirs = format!("count {} {EACH} {} {LONG_MS}", file.display(), scene.key);
    scene.them.begin(&theirs);
    let others = Us::new(&scene.masters, rules);
    std::thread::scope(|scope| {
        for us in [&scene.us, &others] {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let lease = us.acquire(&scene.key);
                    us.runtime
                        .block_on(add_one(&file, Duration::from_millis(1)));
                    us.runtime.block_on(lease.release());
                }
            });
        }
    });
    assert_eq!(scene.them.answer(), "counted");
    assert_eq!(count(&file), 3 * EACH);
}

/// Three of them and four of us take turns, they with a retry every 30 to 60 ms: we get two thirds of an equal share at
/// least (W7).
pub(crate) fn we_get_our_share(peer: Peer, nodes: usize, rules: Rules) {
    let turns = take_turns(peer, nodes, rules, Duration::from_secs(20), |_, _| {});
    assert!(turns.all() > 100, "{turns:?}");
    // Two thirds of four sevenths.
    assert!(turns.ours * 21 >= turns.all() * 8, "{turns:?}");
}

/// The same while nodes stand still one after the other, have no memory left, are copied and forget their scripts: what
/// plain Redlock bears. Both go on.
pub(crate) fn we_take_turns_in_unrest(peer: Peer, nodes: usize, rules: Rules) {
    let disturb = |masters: &Masters, chance: &Chance| {
        let node = usize::try_from(chance.below(nodes as u64)).unwrap();
        match chance.below(4) {
            0 => {
                masters.freeze(node);
                pause(chance.up_to(Duration::from_millis(300)));
                masters.thaw(node);
            }
            1 => {
                masters.tell(node, &["CONFIG", "SET", "maxmemory", "1"]);
                pause(chance.up_to(Duration::from_millis(300)));
                masters.tell(node, &["CONFIG", "SET", "maxmemory", "0"]);
            }
            2 => masters.back_up(node),
            _ => masters.tell(node, &["SCRIPT", "FLUSH"]),
        }
        pause(chance.up_to(Duration::from_millis(600)));
    };
    let turns = take_turns(peer, nodes, rules, Duration::from_secs(10), disturb);
    assert!(turns.ours > 0 && turns.theirs > 0, "{turns:?}");
}

/// How often either side had the lock.
#[derive(Debug)]
struct Turns {
    ours: usize,
    theirs: usize,
}

/// Three of them and four of us count in one file, each for 20 ms at a time and with pauses of 30 to 60 ms: no update is
/// lost.
fn take_turns(
    peer: Peer,
    nodes: usize,
    rules: Rules,
    time: Duration,
    disturb: impl Fn(&Masters, &Chance),
) -> Turns {
    const HOLD: Duration = Duration::from_millis(20);
    let masters = Masters::start(nodes);
    let timing = Timing {
        ttl: Duration::from_secs(5),
        max_ttl: Duration::from_secs(5),
        ..Timing::default()
    };
    admit(&masters, rules, &timing);
    let us = [(); 4].map(|()| Us::with(&masters, rules, timing.clone()));
    let mut them = [(); 3].map(|()| peer.start(&masters));
    for us in &us {
        us.runtime.block_on(us.acquire("first contact").release());
    }
    for them in &mut them {
        them.acquire(&peer.key("first-contact"), TTL_MS).unwrap();
        them.release();
    }
    let folder = TempDir::with_prefix("wk-share-").unwrap();
    let (file, key) = (counter(&folder), peer.key("order-42"));
    let (clock, until) = (Clock::system(), Clock::system().now() + time);
    for them in &mut them {
        let (file, ms, hold) = (file.display(), time.as_millis(), HOLD.as_millis());
        them.begin(&format!("share {file} {key} 5000 {ms} {hold}"));
    }
    let ours: usize = std::thread::scope(|scope| {
        let takes_turns = |us: &Us| {
            let mut turns = 0;
            let chance = us.locks.chance();
            while clock.now() < until {
                let lease = us.acquire(&key);
                us.runtime.block_on(add_one(&file, HOLD));
                us.runtime.block_on(lease.release());
                turns += 1;
                // As they do.
                let pause = Duration::from_millis(30 + chance.below(30));
                us.runtime.block_on(clock.sleep(pause));
            }
            turns
        };
        let us = us.each_ref().map(|us| scope.spawn(move || takes_turns(us)));
        let chance = Chance::system();
        while clock.now() < until {
            disturb(&masters, &chance);
            pause(Duration::from_millis(20));
        }
        us.into_iter().map(|us| us.join().unwrap()).sum()
    });
    let turns = |them: &mut Foreign| {
        let said = them.answer();
        let turns = said.strip_prefix("shared ").expect("its turns");
        turns.parse::<usize>().expect("a number")
    };
    let theirs = them.iter_mut().map(turns).sum();
    let turns = Turns { ours, theirs };
    println!("{turns:?}");
    assert_eq!(count(&file), turns.all());
    turns
}

/// What the case above rests on: without the lock, they count wrong.
pub(crate) fn without_the_lock_updates_are_lost(peer: Peer, nodes: usize, rules: Rules) {
    let scene = Scene::new(peer, nodes, rules);
    let folder = TempDir::with_prefix("wk-count-").unwrap();
    let file = counter(&folder);
    let mut them = [scene.them, peer.start(&scene.masters)];
    // All of their counting falls between our look and our writing.
    let seen = count(&file);
    for client in &mut them {
        client.begin(&format!("wreck {} 3", file.display()));
        assert_eq!(client.answer(), "counted");
    }
    assert_eq!(count(&file), 6, "nothing keeps them out");
    fs::write(&file, (seen + 1).to_string()).unwrap();
    assert_eq!(count(&file), 1, "seven counted, and six are lost");
}

fn counter(folder: &TempDir) -> std::path::PathBuf {
    let file = folder.path().join("count");
    fs::write(&file, "0").unwrap();
    file
}

fn count(file: &Path) -> usize {
    // Empty for a moment while a stranger writes it, where no lock keeps us from looking.
    fs::read_to_string(file).unwrap().parse().unwrap_or(0)
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// As we show it; what is no text, as well as it can be.
fn text(hex: &str) -> String {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads, gives others time to get in between, writes.
async fn add_one(file: &Path, time: Duration) {
    let seen = count(file);
    Clock::system().sleep(time).await;
    fs::write(file, (seen + 1).to_string()).unwrap();
}

// === impl Turns ===

impl Turns {
    fn all(&self) -> usize {
        self.ours + self.theirs
    }
}

// === impl Scene ===

impl Scene {
    fn new(peer: Peer, nodes: usize, rules: Rules) -> Self {
        let masters = Masters::start(nodes);
        admit(&masters, rules, &patient(TTL));
        let us = Us::new(&masters, rules);
        let mut them = peer.start(&masters);
        // To meet nodes for the first time takes a while, and so does the start of a stranger.
        us.runtime.block_on(us.acquire("first contact").release());
        them.acquire(&peer.key("first-contact"), TTL_MS).unwrap();
        them.release();
        Self {
            key: peer.key("order-42"),
            them,
            us,
            masters,
        }
    }

    fn shown(&self) -> Vec<Shown> {
        self.seen().expect("every node shows the key")
    }

    /// What all nodes show; `None` while one shows nothing.
    fn seen(&self) -> Option<Vec<Shown>> {
        let ask = |n: usize| {
            let server = self.masters.server(n);
            // Together: between two commands it might end.
            let script = "local value = redis.call('GET', KEYS[1]) \
                local hex = value and value:gsub('.', function(c) return ('%02x'):format(c:byte()) end) \
                return hex and hex .. ' ' .. redis.call('PTTL', KEYS[1])";
            let said = server.raw(&["EVAL", script, "1", &self.key]);
            let (value, left) = said.split("\r\n").nth(1)?.split_once(' ')?;
            Some((value.to_owned(), left.parse().expect("a time to live")))
        };
        (0..self.masters.len()).map(ask).collect()
    }

    /// They go on when a majority has granted or extended: the others are still about to.
    fn theirs_is_everywhere(&self) {
        let fresh = |shown: Vec<Shown>| shown.iter().all(|(_, left)| *left > TTL_MS / 2);
        until("the last node", || self.seen().is_some_and(fresh));
    }

    /// Milliseconds until the first node lets go of the key.
    fn left(&self) -> u64 {
        let lives = self.shown().into_iter().map(|(_, left)| left);
        lives.min().unwrap()
    }

    /// We try twice, and are told who holds it. For the key time passes, and nothing else happens.
    fn refused(&self, owner: &str) {
        let start = Clock::system().now();
        let before = self.shown();
        for _ in 0..2 {
            let attempt = self.us.locks.lock_key(&self.key).acquire();
            match self.us.runtime.block_on(attempt) {
                Err(LockError::Held { by, for_at_most }) => {
                    assert_eq!(by, Some(text(owner)));
                    let left = for_at_most.expect("a time to live");
                    assert!(left <= TTL, "{left:?}");
                }
                other => panic!("{other:?}"),
            }
        }
        let after = self.shown();
        let passed = Clock::system().now().since(start) + TICK;
        for ((value, left), (then, before)) in after.iter().zip(&before) {
            assert_eq!((value.as_str(), then.as_str()), (owner, owner));
            assert!(left <= before, "lengthened from {before} to {left}");
            let shorter = Duration::from_millis(before - left);
            assert!(shorter <= passed, "shortened by {shorter:?} in {passed:?}");
        }
    }
}

// === impl Us ===

impl Us {
    fn new(masters: &Masters, rules: Rules) -> Self {
        Self::with(masters, rules, patient(TTL))
    }

    fn with(masters: &Masters, rules: Rules, timing: Timing) -> Self {
        let settings = masters.settings(timing.node_timeout, true);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let locks = locks(&settings, rules, timing, None);
        Self { locks, runtime }
    }

    fn acquire(&self, key: &str) -> watchkeeper_lock::lease::Lease {
        let builder = self.locks.lock_key(key).wait(Duration::from_secs(60));
        self.runtime.block_on(builder.acquire()).unwrap()
    }
}
