//! Clients that want one lock while its nodes are killed, frozen, flushed and misled about the time, at random.
//!
//! The schedule of faults follows from the seed (`WATCHKEEPER_TORTURE_SEED`, printed); what clients make of it also
//! depends on the machine. `WATCHKEEPER_TORTURE_SECS` is its length. With a rule off it reports what it saw; with all
//! rules on it fails when it saw anything.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use watchkeeper::{
    chance::Chance,
    clock::{Clock, Moment},
    lease::Lease,
    lock::{Locks, Timing},
    spawn::Spawn,
};

use crate::{
    client::{KEY, locks},
    history::{Belief, Violation, violations},
    masters::Masters,
    rules::Rules,
};

const NODES: usize = 3;
const CLIENTS: usize = 4;
const TTL: Duration = Duration::from_millis(400);
const NODE_TIMEOUT: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What all clients and the checker share.
struct Field {
    clock: Clock,
    over: AtomicBool,
    beliefs: Mutex<Vec<Belief>>,
    renewals: AtomicUsize,
}

struct Client<'a> {
    name: String,
    locks: Locks,
    chance: Chance,
    pauses: bool,
    field: &'a Field,
}

pub(crate) fn torture(rules: Rules) {
    let number = |name: &str| {
        let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
        Some(
            text.parse()
                .unwrap_or_else(|_| panic!("{name} is a number")),
        )
    };
    let seed =
        number("WATCHKEEPER_TORTURE_SEED").unwrap_or_else(|| Chance::system().below(1 << 32));
    let time = Duration::from_secs(number("WATCHKEEPER_TORTURE_SECS").unwrap_or(15));
    println!("torture[{rules}]: WATCHKEEPER_TORTURE_SEED={seed}");

    let mut masters = Masters::start(NODES);
    let field = Field {
        clock: Clock::system(),
        over: AtomicBool::new(false),
        beliefs: Mutex::new(Vec::new()),
        renewals: AtomicUsize::new(0),
    };
    let settings = masters.settings(NODE_TIMEOUT, false);
    let faults = std::thread::scope(|scope| {
        for n in 0..CLIENTS {
            let timing = Timing {
                ttl: TTL,
                max_ttl: TTL,
                node_timeout: NODE_TIMEOUT,
                ..Timing::default()
            };
            let chance = Chance::seeded(seed.wrapping_mul(100).wrapping_add(n as u64));
            let (field, settings) = (&field, &settings);
            scope.spawn(move || {
                run(async {
                    // Of half of them the keeper pauses with its process; that of the others has its own thread.
                    let pauses = n % 2 == 0;
                    let place = pauses.then(Spawn::system);
                    let client = Client {
                        name: format!("client {n}"),
                        locks: locks(settings, rules, timing, place),
                        chance,
                        pauses,
                        field,
                    };
                    client.go().await;
                })
            });
        }
        let faults = run(disturb(&mut masters, &field.clock, seed, time));
        field.over.store(true, Ordering::SeqCst);
        faults
    });
    report(rules, seed, time, field, &faults);
}

fn report(rules: Rules, seed: u64, time: Duration, field: Field, faults: &Faults) {
    let beliefs = field.beliefs.into_inner().unwrap();
    let leases = beliefs.len();
    let renewals = field.renewals.into_inner();
    let found = violations(beliefs);
    let double = |v: &&Violation| matches!(v, Violation::TwoHolders { .. });
    let double = found.iter().filter(double).count();
    let fallen = found.len() - double;
    println!(
        "torture[{rules}]: seed {seed}, {time:?}, {faults:?}: {leases} leases, {renewals} renewals, {double} times two \
         holders, {fallen} fallen tokens"
    );
    for violation in found.iter().take(5) {
        println!("torture[{rules}]:   {violation}");
    }
    // Otherwise nothing was tried.
    assert!(leases > 0, "nobody ever got the lock");
    if rules.all_on() {
        assert!(found.is_empty(), "seed {seed}: {} violations", found.len());
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

type Faults = BTreeMap<&'static str, usize>;

async fn disturb(masters: &mut Masters, clock: &Clock, seed: u64, time: Duration) -> Faults {
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
        // Nobody stays frozen for long, and at most one is: of two, nobody would notice the rest.
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
        let n = usize::try_from(chance.below(NODES as u64)).unwrap();
        let kind = chance.below(6);
        if frozen[n].is_some() {
            continue;
        }
        let fault = match kind {
            0..=2 => {
                // Whoever starts a machine sets its clock.
                masters.step(n, 0);
                masters.forget(n);
                "killed"
            }
            3 if frozen == [None; NODES] => {
                masters.freeze(n);
                frozen[n] = Some(clock.now() + ms(50) + chance.up_to(ms(450)));
                "frozen"
            }
            3 | 4 => {
                masters.flush(n);
                "flushed"
            }
            _ => {
                let ahead = chance.hits(0.67);
                masters.step(n, if ahead { 3600 } else { -3600 });
                "misled"
            }
        };
        *faults.entry(fault).or_default() += 1;
    }
}

fn run<T>(act: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(act)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
