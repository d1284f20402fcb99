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
            let locks = locks(&settings, rules, timing, None);
            let chance = Chance::seeded(seed.wrapping_mul(100).wrapping_add(n as u64));
            let field = &field;
            scope.spawn(move || run(client(field, &locks, &chance, &format!("client {n}"))));
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

// === clients ===

async fn client(field: &Field, locks: &Locks, chance: &Chance, name: &str) {
    let mut held = 0;
    while !field.over.load(Ordering::SeqCst) {
        let wait = chance.up_to(TTL);
        if let Ok(lease) = locks.lock_key(KEY).wait(wait).acquire().await {
            held += 1;
            hold(
                field,
                lease,
                chance.up_to(4 * TTL),
                &format!("{name} ({held})"),
            )
            .await;
        }
        field.clock.sleep(chance.up_to(TTL / 8)).await;
    }
}

/// Holds for `time` or as long as it lasts, and tells from when to when it believed.
async fn hold(field: &Field, lease: Lease, time: Duration, who: &str) {
    let view = lease.view().clone();
    let mut belief = Belief::of(who, &lease);
    let enough = field.clock.now() + time;
    loop {
        let (to, now) = (view.valid_until(), field.clock.now());
        // A lease that is over shows no deadline: it was held at most to the last one that was seen, and until now.
        if to == Moment::ZERO {
            belief.to = belief.to.min(now);
            break;
        }
        if to != belief.to {
            field.renewals.fetch_add(1, Ordering::SeqCst);
            belief.to = to;
        }
        if now >= to {
            break;
        }
        if now >= enough {
            belief.to = now;
            break;
        }
        field.clock.sleep(LOOK_EVERY).await;
    }
    field.beliefs.lock().unwrap().push(belief);
    lease.release().await;
}

// === faults ===

type Faults = BTreeMap<&'static str, usize>;

async fn disturb(masters: &mut Masters, clock: &Clock, seed: u64, time: Duration) -> Faults {
    let chance = Chance::seeded(seed);
    let end = clock.now() + time;
    let mut faults = Faults::new();
    while clock.now() < end {
        clock.sleep(ms(150) + chance.up_to(ms(550))).await;
        let n = usize::try_from(chance.below(NODES as u64)).unwrap();
        let fault = match chance.below(5) {
            0 | 1 => {
                // Whoever starts a machine sets its clock.
                masters.step(n, 0);
                masters.forget(n);
                "killed"
            }
            2 => {
                masters.freeze(n);
                clock.sleep(ms(50) + chance.up_to(ms(450))).await;
                masters.thaw(n);
                "frozen"
            }
            3 => {
                masters.flush(n);
                "flushed"
            }
            _ => {
                masters.step(n, if chance.hits(0.67) { 3600 } else { -3600 });
                "misled"
            }
        };
        *faults.entry(fault).or_default() += 1;
    }
    faults
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn run<T>(act: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(act)
}
