//! Clients that want one lock while its nodes are killed, frozen, flushed, copied, replaced, filled and misled about the time,
//! at random (`disturb.rs`); some in processes of their own, which are killed and frozen as well (`process.rs`). The witness is
//! outside of them all: what each believed, from when to when, on the one boot clock of the machine.
//!
//! [`mixed`] adds clients that are configured in another way.
//!
//! The schedule of faults follows from the seed (`WATCHKEEPER_TORTURE_SEED`, printed); what clients make of it also
//! depends on the machine. `WATCHKEEPER_TORTURE_SECS` is its length, fifteen seconds unless set. With a rule off it
//! reports what it saw, about ten times two holders in a minute, on a busy machine two; with all of them off it fails when it
//! saw nothing in twelve attempts, and with all of them on when it saw anything, or when no client gets the lock after the last fault.
//! What only delays must do no harm with any rules: five seconds.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
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
    client::{KEY, admit, admit_among, block_on, locks, watcher},
    disturb::{ALL, Fault, Faults, disturb},
    history::{Belief, Violation, violations},
    masters::Masters,
    mixed::{self, Member},
    process::{self, Processes},
    rules::{ALL_OFF, ALL_ON, Rules},
};

const NODES: usize = 3;
const CLIENTS: usize = 4;
const PROCESSES: u64 = 2;
const TTL: Duration = Duration::from_millis(400);
const NODE_TIMEOUT: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Nodes that lost their memory at the end are watched once more, and may have to be read with retries. Where most of them did, all
/// have to answer twice within the short timeout of these clients, which a busy machine keeps them from for a while.
const RECOVERY: Duration = Duration::from_secs(60);

/// What a node keeps of itself.
const EVERYTHING: &str = "local all = {} \
    for _, key in ipairs(redis.call('KEYS', '*')) do \
    if redis.call('TYPE', key).ok == 'hash' then \
    for n, word in ipairs(redis.call('HGETALL', key)) do all[#all + 1] = word end \
    else all[#all + 1] = key end end \
    return table.concat(all, ' | ')";

/// What all clients and the checker share.
struct Field {
    clock: Clock,
    over: AtomicBool,
    beliefs: Arc<Mutex<Vec<Belief>>>,
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

/// What came of it.
struct Outcome {
    leases: usize,
    renewals: usize,
    admissions: usize,
    found: Vec<Violation>,
    faults: Faults,
    /// What happened to processes.
    processes: process::Faults,
    /// How long after the last fault a client got the lock anew; `None` when none did.
    recovered: Option<Duration>,
}

/// However it ends: clients go home.
struct Over<'a>(&'a AtomicBool);

pub(crate) fn torture(rules: Rules) {
    let (seed, time) = seed_and_time(15);
    println!("torture[{rules}]: WATCHKEEPER_TORTURE_SEED={seed}");
    let play = |seed| {
        let outcome = play(rules, seed, &[], async |masters, clock| {
            disturb(masters, clock, seed, time, ALL).await
        });
        println!("torture[{rules}]: seed {seed}, {time:?}: {outcome}");
        outcome
    };
    let mut outcome = play(seed);
    // A torture that does no harm proves nothing: without any rule it must, if not at once.
    for more in 1..12 {
        if rules == ALL_OFF && outcome.found.is_empty() {
            outcome = play(seed + more);
        }
    }
    outcome.tell(5);
    if rules.all_on() {
        outcome.is_good(seed);
    }
    if rules == ALL_OFF {
        assert!(!outcome.found.is_empty(), "seed {seed}: {outcome}");
    }
}

/// Members that are configured in another way, all at once: none of them gets in the way of the others.
pub(crate) fn mixed() {
    let (seed, time) = seed_and_time(10);
    let outcome = play(ALL_ON, seed, mixed::REFUSED, async |masters, clock| {
        disturb(masters, clock, seed, time, ALL).await
    });
    println!("mixed: seed {seed}, {time:?}: {outcome}");
    outcome.tell(5);
    outcome.is_good(seed);
}

/// What only takes time does no harm, with any rules: clients pause, nodes freeze. It also shows that the checker sees
/// nothing where nothing is.
pub(crate) fn delays(rules: Rules) {
    let (seed, time) = seed_and_time(5);
    let outcome = play(rules, seed, &[], async |masters, clock| {
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
    mixed: &[Member],
    disturb: impl AsyncFnOnce(&mut Masters, &Clock) -> Faults,
) -> Outcome {
    let mut masters = Masters::start_with(NODES, &["--repl-diskless-sync-delay", "0"]);
    admit(&masters, rules, &timing());
    let unknown = Masters::start(if mixed.is_empty() { 0 } else { NODES - 1 });
    let field = Field {
        clock: Clock::system(),
        over: AtomicBool::new(false),
        beliefs: Arc::default(),
        renewals: AtomicUsize::new(0),
        admissions: AtomicUsize::new(0),
    };
    let settings = masters.settings(NODE_TIMEOUT, false);
    let unknown_settings = unknown.settings(NODE_TIMEOUT, false);
    let member = |member: &Member| member.told(rules, &timing(), &settings, &unknown_settings);
    let members: Vec<_> = mixed.iter().map(member).collect();
    admit_among(NODES, &unknown, rules, &timing());
    let is_over = || field.over.load(Ordering::SeqCst);
    let urls = masters.addresses().into_iter();
    let processes = Processes {
        rules,
        urls: urls.map(|at| format!("unix://{}", at.display())).collect(),
        ttl: TTL,
        beliefs: &field.beliefs,
        is_over: &is_over,
    };
    let processes = &processes;
    let (faults, of_processes, recovered) = std::thread::scope(|scope| {
        let over = Over(&field.over);
        for n in 0..CLIENTS {
            // Of half of them the keeper pauses with its process; that of the others has its own thread.
            let (field, settings, pauses) = (&field, &settings, n % 2 == 0);
            let name = format!("client {n}");
            scope.spawn(move || wants(name, seed, pauses, settings, rules, timing(), field));
        }
        for ((rules, timing, nodes), member) in members.iter().zip(mixed) {
            let (field, name) = (&field, format!("{member:?}"));
            scope.spawn(move || wants(name, seed, false, nodes, *rules, timing.clone(), field));
        }
        let tortured = (0..PROCESSES).map(|n| {
            scope.spawn(move || processes.torture(seed.wrapping_mul(1000).wrapping_add(n)))
        });
        let tortured: Vec<_> = tortured.collect();
        scope.spawn(|| block_on(count_admissions(&field, &settings, rules)));
        let (faults, recovered) = block_on(async {
            let faults = disturb(&mut masters, &field.clock).await;
            (faults, recovery(&field).await)
        });
        drop(over);
        let mut all = process::Faults::new();
        for faults in tortured.into_iter().map(|one| one.join().unwrap()) {
            for (what, times) in faults {
                *all.entry(what).or_default() += times;
            }
        }
        (faults, all, recovered)
    });
    let beliefs = std::mem::take(&mut *field.beliefs.lock().unwrap());
    if recovered.is_none() {
        for belief in &beliefs {
            println!("  {belief} from {:?} to {:?}", belief.from, belief.to);
        }
        tell_nodes(&masters, &settings, rules);
    }
    // Otherwise nothing was tried.
    assert!(!beliefs.is_empty(), "nobody ever got the lock");
    Outcome {
        leases: beliefs.len(),
        renewals: field.renewals.into_inner(),
        admissions: field.admissions.into_inner(),
        found: violations(beliefs),
        faults,
        processes: of_processes,
        recovered,
    }
}

/// A client in a thread of its own, until the torture is over. One that is refused from the start wants nothing.
fn wants(
    name: String,
    seed: u64,
    pauses: bool,
    settings: &[RedisNodeSettings],
    rules: Rules,
    timing: Timing,
    field: &Field,
) {
    let number = name.bytes().map(u64::from).sum();
    let chance = Chance::seeded(seed.wrapping_mul(100).wrapping_add(number));
    let place = pauses.then(Spawn::system);
    block_on(async {
        let client = Client {
            name,
            locks: locks(settings, rules, timing, place),
            chance,
            pauses,
            field,
        };
        client.go().await;
    });
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

/// What the nodes show where no client gets the lock any more.
fn tell_nodes(masters: &Masters, settings: &[RedisNodeSettings], rules: Rules) {
    block_on(async {
        let locks = watcher(settings, rules, timing());
        match locks.admissions().await {
            Ok(nodes) => nodes.iter().for_each(|node| println!("  {node:?}")),
            Err(error) => println!("  {error}"),
        }
    });
    for node in 0..masters.len() {
        println!(
            "  {node}: {}",
            masters.asked(node, &["EVAL", EVERYTHING, "0"])
        );
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

pub(crate) fn timing() -> Timing {
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

// === impl Outcome ===

impl Outcome {
    /// Says the first of what was seen.
    fn tell(&self, most: usize) {
        for violation in self.found.iter().take(most) {
            println!("  {violation}");
        }
    }

    /// No two ever held it, no token fell, and in the end it was had again.
    fn is_good(&self, seed: u64) {
        assert!(self.found.is_empty(), "seed {seed}: {self}");
        assert!(self.recovered.is_some(), "seed {seed}: {self}");
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let double = |v: &&Violation| matches!(v, Violation::TwoHolders { .. });
        let double = self.found.iter().filter(double).count();
        let fallen = self.found.len() - double;
        write!(
            f,
            "{:?}, processes {:?}: {} leases, {} renewals, {} admissions, {double} times two holders, {fallen} fallen \
             tokens, ",
            self.faults, self.processes, self.leases, self.renewals, self.admissions
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
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
