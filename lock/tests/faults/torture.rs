//! Clients that want one lock while its nodes are killed, frozen, flushed and misled about the time, at random.
//!
//! The schedule of faults follows from the seed (`WATCHKEEPER_TORTURE_SEED`, printed); what clients make of it also
//! depends on the machine. `WATCHKEEPER_TORTURE_SECS` is its length, fifteen seconds unless set. With a rule off it
//! reports what it saw, about ten times two holders in a minute; with all of them off it fails when it saw nothing in
//! four attempts, and with all of them on when it saw anything, or when no client gets the lock after the last fault.
//! What only delays must do no harm with any rules: five seconds.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use watchkeeper_lock::{
    chance::Chance,
    clock::{Clock, Moment},
    lease::Lease,
    lock::{AdmissionState, Locks, Timing},
    node::redis::RedisNodeSettings,
    spawn::Spawn,
};

use crate::{
    client::{KEY, admit, block_on, locks, watcher},
    history::{Belief, Violation, violations},
    masters::Masters,
    rules::{ALL_OFF, Rules},
};

const NODES: usize = 3;
const CLIENTS: usize = 4;
const TTL: Duration = Duration::from_millis(400);
const NODE_TIMEOUT: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Nodes that lost their memory at the end are watched once more, and may have to be read with retries.
const RECOVERY: Duration = Duration::from_secs(10);

/// What all clients and the checker share.
struct Field {
    clock: Clock,
    over: AtomicBool,
    beliefs: Mutex<Vec<Belief>>,
    renewals: AtomicUsize,
    /// How often a node got its vote back.
    admissions: AtomicUsize,
}

struct Client<'a> {
    name: String,
    locks: Locks,
    chance: Chance,
    pauses: bool,
    field: &'a Field,
}

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Kill,
    Freeze,
    Flush,
    Mislead,
}

/// As often as they are listed.
const ALL: &[Fault] = &[
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Freeze,
    Fault::Flush,
    Fault::Mislead,
];

/// How many of each.
type Faults = BTreeMap<Fault, usize>;

/// What came of it.
struct Outcome {
    leases: usize,
    renewals: usize,
    admissions: usize,
    found: Vec<Violation>,
    faults: Faults,
    /// How long after the last fault a client got the lock anew; `None` when none did.
    recovered: Option<Duration>,
}

/// However it ends: clients go home.
struct Over<'a>(&'a AtomicBool);

pub(crate) fn torture(rules: Rules) {
    let (seed, time) = seed_and_time(15);
    println!("torture[{rules}]: WATCHKEEPER_TORTURE_SEED={seed}");
    let mut outcome = play(rules, seed, async |masters, clock| {
        disturb(masters, clock, seed, time, ALL).await
    });
    // A torture that does no harm proves nothing: without any rule it must, if not at once.
    for more in 1..=3 {
        if rules == ALL_OFF && outcome.found.is_empty() {
            println!("torture[{rules}]: seed {seed}, {time:?}: {outcome}; once more");
            outcome = play(rules, seed + more, async |masters, clock| {
                disturb(masters, clock, seed + more, time, ALL).await
            });
        }
    }
    println!("torture[{rules}]: seed {seed}, {time:?}: {outcome}");
    for violation in outcome.found.iter().take(5) {
        println!("torture[{rules}]:   {violation}");
    }
    if rules.all_on() {
        assert!(outcome.found.is_empty(), "seed {seed}: {outcome}");
        assert!(outcome.recovered.is_some(), "seed {seed}: {outcome}");
    }
    if rules == ALL_OFF {
        assert!(!outcome.found.is_empty(), "seed {seed}: {outcome}");
    }
}

/// What only takes time does no harm, with any rules: clients pause, nodes freeze. It also shows that the checker sees
/// nothing where nothing is.
pub(crate) fn delays(rules: Rules) {
    let (seed, time) = seed_and_time(5);
    let outcome = play(rules, seed, async |masters, clock| {
        disturb(masters, clock, seed, time, &[Fault::Freeze]).await
    });
    println!("delays[{rules}]: seed {seed}, {time:?}: {outcome}");
    let found = &outcome.found;
    assert!(found.is_empty(), "seed {seed}: {found:?}");
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is a number")))
}

fn seed_and_time(seconds: u64) -> (u64, Duration) {
    let seed = number("WATCHKEEPER_TORTURE_SEED");
    let seed = seed.unwrap_or_else(|| Chance::system().below(1 << 32));
    let seconds = number("WATCHKEEPER_TORTURE_SECS").unwrap_or(seconds);
    (seed, Duration::from_secs(seconds))
}

/// Clients want the lock until `disturb` has ended.
fn play(
    rules: Rules,
    seed: u64,
    disturb: impl AsyncFnOnce(&mut Masters, &Clock) -> Faults,
) -> Outcome {
    let mut masters = Masters::start(NODES);
    admit(&masters, rules, &timing());
    let field = Field {
        clock: Clock::system(),
        over: AtomicBool::new(false),
        beliefs: Mutex::new(Vec::new()),
        renewals: AtomicUsize::new(0),
        admissions: AtomicUsize::new(0),
    };
    let settings = masters.settings(NODE_TIMEOUT, false);
    let (faults, recovered) = std::thread::scope(|scope| {
        let _over = Over(&field.over);
        for n in 0..CLIENTS {
            let chance = Chance::seeded(seed.wrapping_mul(100).wrapping_add(n as u64));
            let (field, settings) = (&field, &settings);
            scope.spawn(move || {
                // Of half of them the keeper pauses with its process; that of the others has its own thread.
                let pauses = n % 2 == 0;
                let place = pauses.then(Spawn::system);
                block_on(async {
                    let client = Client {
                        name: format!("client {n}"),
                        locks: locks(settings, rules, timing(), place),
                        chance,
                        pauses,
                        field,
                    };
                    client.go().await;
                });
            });
        }
        scope.spawn(|| block_on(count_admissions(&field, &settings, rules)));
        block_on(async {
            let faults = disturb(&mut masters, &field.clock).await;
            (faults, recovery(&field).await)
        })
    });
    let beliefs = field.beliefs.into_inner().unwrap();
    // Otherwise nothing was tried.
    assert!(!beliefs.is_empty(), "nobody ever got the lock");
    Outcome {
        leases: beliefs.len(),
        renewals: field.renewals.into_inner(),
        admissions: field.admissions.into_inner(),
        found: violations(beliefs),
        faults,
        recovered,
    }
}

/// Sees every admission: a node that lost its memory has no vote for longer than a lease.
async fn count_admissions(field: &Field, settings: &[RedisNodeSettings], rules: Rules) {
    let locks = watcher(settings, rules, timing());
    let mut voted = [true; NODES];
    while !field.over.load(Ordering::SeqCst) {
        for (node, voted) in locks.admissions().await.unwrap().iter().zip(&mut voted) {
            let votes = match node.state {
                AdmissionState::Silent(_) => *voted,
                _ => node.state.votes(),
            };
            if votes && !*voted {
                field.admissions.fetch_add(1, Ordering::SeqCst);
            }
            *voted = votes;
        }
        field.clock.sleep(TTL / 10).await;
    }
}

/// How long it takes from now until a client gets the lock anew.
async fn recovery(field: &Field) -> Option<Duration> {
    let end = field.clock.now();
    while field.clock.now() < end + RECOVERY {
        let beliefs = field.beliefs.lock().unwrap().clone();
        if let Some(new) = beliefs.iter().find(|belief| belief.from > end) {
            return Some(new.from.since(end));
        }
        field.clock.sleep(TTL / 10).await;
    }
    None
}

fn timing() -> Timing {
    Timing {
        ttl: TTL,
        max_ttl: TTL,
        node_timeout: NODE_TIMEOUT,
        ..Timing::default()
    }
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let double = |v: &&Violation| matches!(v, Violation::TwoHolders { .. });
        let double = self.found.iter().filter(double).count();
        let fallen = self.found.len() - double;
        write!(
            f,
            "{:?}: {} leases, {} renewals, {} admissions, {double} times two holders, {fallen} fallen tokens, ",
            self.faults, self.leases, self.renewals, self.admissions
        )?;
        match self.recovered {
            Some(waited) => write!(f, "the next lease {waited:?} after the end"),
            None => f.write_str("no lease after the end"),
        }
    }
}

// === impl Client ===

impl Client<'_> {
    async fn go(self) {
        let mut held = 0;
        while !self.field.over.load(Ordering::SeqCst) {
            // Some stand in line, most try again and again: who comes at the wrong moment is the one who gets it.
            let wait = if self.chance.hits(0.2) {
                self.chance.up_to(TTL)
            } else {
                Duration::ZERO
            };
            if let Ok(lease) = self.locks.lock_key(KEY).wait(wait).acquire().await {
                held += 1;
                self.hold(lease, &format!("{} ({held})", self.name)).await;
            }
            self.field.clock.sleep(self.chance.up_to(ms(20))).await;
        }
        self.locks.settle().await;
    }

    /// Holds for a while or as long as it lasts, and tells from when to when it believed.
    async fn hold(&self, lease: Lease, who: &str) {
        let (clock, view) = (&self.field.clock, lease.view().clone());
        let mut belief = Belief::of(who, &lease);
        let enough = clock.now() + self.chance.up_to(4 * TTL);
        loop {
            let (to, now) = (view.valid_until(), clock.now());
            // A lease that is over shows no deadline: it was held at most to the last one that was seen, and until now.
            if to == Moment::ZERO {
                belief.to = belief.to.min(now);
                break;
            }
            if to != belief.to {
                self.field.renewals.fetch_add(1, Ordering::SeqCst);
                belief.to = to;
            }
            if now >= to {
                break;
            }
            if now >= enough {
                belief.to = now;
                break;
            }
            if self.pauses && self.chance.hits(0.01) {
                pause(self.chance.up_to(TTL));
            }
            clock.sleep(LOOK_EVERY).await;
        }
        self.field.beliefs.lock().unwrap().push(belief);
        lease.release().await;
    }
}

/// A process that stands still, in the middle of whatever its keeper does.
#[allow(clippy::disallowed_methods, reason = "the pause is the fault")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

// === faults ===

async fn disturb(
    masters: &mut Masters,
    clock: &Clock,
    seed: u64,
    time: Duration,
    kinds: &[Fault],
) -> Faults {
    let chance = Chance::seeded(seed);
    let end = clock.now() + time;
    let mut faults = Faults::new();
    let mut frozen: [Option<Moment>; NODES] = [None; NODES];
    loop {
        // In bursts: what a holder has lost on one node it soon heals, so two must be struck together.
        let rest = if chance.hits(0.6) {
            chance.up_to(ms(30))
        } else {
            ms(200) + chance.up_to(ms(600))
        };
        let next = clock.now() + rest;
        // No node stays frozen for long, and at most one is: with two, the other faults would not be noticed.
        for (n, until) in frozen.iter_mut().enumerate() {
            if let Some(thaw) = until.take_if(|thaw| *thaw <= next || next >= end) {
                clock.sleep_until(thaw).await;
                masters.thaw(n);
            }
        }
        clock.sleep_until(next).await;
        if next >= end {
            return faults;
        }
        let any = |bound: usize| usize::try_from(chance.below(bound as u64)).unwrap();
        let (n, fault) = (any(NODES), kinds[any(kinds.len())]);
        let busy = fault == Fault::Freeze && frozen != [None; NODES];
        if frozen[n].is_some() || busy {
            continue;
        }
        match fault {
            Fault::Kill => {
                // Starting a machine sets its clock.
                masters.step(n, 0);
                masters.forget(n);
            }
            Fault::Freeze => {
                masters.freeze(n);
                frozen[n] = Some(clock.now() + ms(50) + chance.up_to(ms(450)));
            }
            Fault::Flush => masters.flush(n),
            Fault::Mislead => {
                let ahead = chance.hits(0.67);
                masters.step(n, if ahead { 3600 } else { -3600 });
            }
        }
        *faults.entry(fault).or_default() += 1;
    }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
