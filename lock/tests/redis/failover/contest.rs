//! Programs that want one lock all the time, and look all the time whether they hold it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinHandle;
use watchkeeper_lock::{
    Locks,
    chance::Chance,
    clock::{Clock, Moment},
    lease::Lease,
    settings::LockSettings,
    spawn::Spawn,
};

use super::{
    NAME, SHORT, in_time,
    naive::{Naive, NaiveLease},
    programs::{locks, unguarded},
};

/// Programs that contend until the end, each in a task.
pub(crate) struct Contest {
    seen: Arc<Seen>,
    programs: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    held: Mutex<Vec<Held>>,
    turns: AtomicU64,
    is_over: AtomicBool,
}

/// A lease as its holder saw it: it was held at both moments, and all the time between them.
pub(crate) struct Held {
    program: usize,
    token: u64,
    from: Moment,
    to: Moment,
}

/// One that wants the lock.
enum Program {
    Ours(Locks),
    Naive(Naive),
}

/// What it has got.
enum Hold {
    Ours(Lease),
    Naive(NaiveLease),
}

const PROGRAMS: usize = 4;

/// How often a holder looks.
const LOOK: Duration = Duration::from_millis(2);

// === impl Contest ===

impl Contest {
    /// Programs of ours with one of these settings after the other. On the runtime of the caller.
    pub(crate) fn start(settings: &[LockSettings]) -> Self {
        let ours = settings.iter().cycle().take(PROGRAMS);
        Self::of(ours.map(|one| Program::Ours(locks(one))).collect())
    }

    /// One of ours with each of these settings, which are refused everywhere else: see [`unguarded`].
    pub(crate) fn unguarded(settings: &[LockSettings]) -> Self {
        let ours = settings.iter().map(unguarded);
        Self::of(ours.map(Program::Ours).collect())
    }

    /// The same of programs that each believe one sentinel.
    pub(crate) fn naive(programs: impl IntoIterator<Item = Naive>) -> Self {
        Self::of(programs.into_iter().map(Program::Naive).collect())
    }

    fn of(programs: Vec<Program>) -> Self {
        let seen = Arc::new(Seen::default());
        let programs = programs.into_iter().enumerate().map(|(number, program)| {
            let seen = seen.clone();
            Spawn::system().spawn(async move {
                while !seen.is_over.load(Ordering::SeqCst) {
                    seen.take_a_turn(number, &program).await;
                }
            })
        });
        let programs = programs.collect();
        Self { seen, programs }
    }

    /// Waits until each of them could have had a turn.
    pub(crate) async fn go_on(&self, when: &str) {
        let count = || self.seen.turns.load(Ordering::SeqCst);
        let enough = count() + self.programs.len() as u64;
        in_time(&format!("turns {when}"), async || count() >= enough).await;
    }

    /// Waits until this program had a turn that begins after this call.
    pub(crate) async fn has_a_turn(&self, program: usize, when: &str) {
        let now = Clock::system().now();
        in_time(&format!("a turn {when}"), async || {
            let held = self.seen.held.lock().unwrap();
            held.iter()
                .any(|held| held.program == program && now <= held.from)
        })
        .await;
    }

    /// Every lease that was held.
    pub(crate) async fn end(self) -> Vec<Held> {
        self.seen.is_over.store(true, Ordering::SeqCst);
        for program in self.programs {
            program.await.unwrap();
        }
        std::mem::take(&mut *self.seen.held.lock().unwrap())
    }
}

impl Seen {
    async fn take_a_turn(&self, number: usize, program: &Program) {
        let (clock, chance) = (Clock::system(), Chance::system());
        let Some(mut hold) = program.acquire().await else {
            clock.sleep(LOOK).await;
            return;
        };
        let from = clock.now();
        // Longer than a lease at times, so that it has to be kept.
        let leaves = from + chance.up_to(hold.ttl() * 2);
        let mut held = None;
        loop {
            // The time first: what is held afterwards was held then.
            let to = clock.now();
            if !hold.is_held().await {
                break;
            }
            held = Some(Held {
                program: number,
                token: hold.token(),
                from,
                to,
            });
            if to >= leaves {
                break;
            }
            clock.sleep(LOOK).await;
        }
        if let Some(held) = held {
            self.held.lock().unwrap().push(held);
            self.turns.fetch_add(1, Ordering::SeqCst);
        }
        hold.release().await;
    }
}

// === impl Program ===

impl Program {
    async fn acquire(&self) -> Option<Hold> {
        match self {
            Self::Ours(locks) => {
                let lease = locks.lock(NAME).wait(SHORT).acquire().await;
                lease.ok().map(Hold::Ours)
            }
            Self::Naive(naive) => naive.acquire().await.map(Hold::Naive),
        }
    }
}

// === impl Hold ===

impl Hold {
    fn ttl(&self) -> Duration {
        match self {
            Self::Ours(lease) => lease.ttl(),
            Self::Naive(lease) => lease.ttl(),
        }
    }

    /// Zero where there is none.
    fn token(&self) -> u64 {
        match self {
            Self::Ours(lease) => lease.token().0,
            Self::Naive(_) => 0,
        }
    }

    async fn is_held(&mut self) -> bool {
        match self {
            Self::Ours(lease) => lease.is_held(),
            Self::Naive(lease) => lease.is_held().await,
        }
    }

    async fn release(self) {
        match self {
            Self::Ours(lease) => _ = lease.release().await,
            Self::Naive(lease) => lease.release().await,
        }
    }
}

// === what was seen ===

/// How often two programs held the lock at the same moment.
pub(crate) fn overlaps(held: &[Held]) -> usize {
    let pairs = held
        .iter()
        .enumerate()
        .flat_map(|(n, one)| held[n + 1..].iter().map(move |other| (one, other)));
    let at_once = pairs.filter(|(one, other)| {
        one.program != other.program && one.from <= other.to && other.from <= one.to
    });
    at_once.count()
}

/// A later holder has a larger token.
pub(crate) fn tokens_rise(held: &mut [Held]) {
    held.sort_by_key(|held| held.from);
    for two in held.windows(2) {
        let (last, token) = (two[0].token, two[1].token);
        assert!(last < token, "tokens rise: {last} {token}");
    }
}
