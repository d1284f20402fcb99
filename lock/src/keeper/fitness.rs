//! Whether this replica may hold leases at all.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    clock::{Clock, Moment},
    latest,
};

/// Time between two beats of the keeper's thread.
const KEEPER_BEAT: Duration = Duration::from_millis(500);

/// Health of the replica, told by its runtime's heartbeat and its checks, read by the keeper. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Fitness(Arc<State>);

#[derive(Debug)]
struct State {
    clock: Clock,
    /// Nanoseconds of the last heartbeat; zero when no runtime is watched.
    beat: AtomicU64,
    /// Nanoseconds of the last beat of the keeper's thread; zero when it has none of its own.
    keeper: AtomicU64,
    /// Nanoseconds after which a silent runtime counts as stalled.
    limit: AtomicU64,
    /// Nanoseconds of the last end of a freeze; zero when there was none.
    thawed: AtomicU64,
    unfit: Mutex<BTreeMap<String, (String, Moment)>>,
    news: latest::Sender<()>,
}

impl Fitness {
    pub(crate) fn new(clock: Clock) -> Self {
        Self(Arc::new(State {
            clock,
            beat: AtomicU64::new(0),
            keeper: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
            thawed: AtomicU64::new(0),
            unfit: Mutex::new(BTreeMap::new()),
            news: latest::Sender::new(()),
        }))
    }

    /// The worker's runtime turns. From the first call on it must be called again within the limit.
    #[doc(hidden)] // for the worker
    pub fn beat(&self) {
        self.0.beat.store(
            nanos(self.0.clock.now().since_boot()).max(1),
            Ordering::SeqCst,
        );
    }

    /// Sets how long the runtime may be silent; stops watching with `None`.
    #[doc(hidden)] // for the worker
    pub fn expect_beats(&self, within: Option<Duration>) {
        self.0
            .limit
            .store(within.map_or(u64::MAX, nanos), Ordering::SeqCst);
    }

    /// What a check of the replica says: fit, or why not.
    pub fn report(&self, check: &str, verdict: Result<(), String>) {
        let now = self.0.clock.now();
        let mut unfit = self.0.unfit.lock().unwrap_or_else(PoisonError::into_inner);
        match verdict {
            Ok(()) => drop(unfit.remove(check)),
            Err(why) => drop(unfit.entry(check.to_owned()).or_insert((why, now))),
        }
        drop(unfit);
        self.0.news.send_replace(());
    }

    /// Why the replica is unfit, and since when; `None` when it is fit.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn unfit(&self) -> Option<(String, Moment)> {
        let beat = self.0.beat.load(Ordering::SeqCst);
        let limit = self.0.limit.load(Ordering::SeqCst);
        let now = self.0.clock.now();
        if beat != 0 && nanos(now.since_boot()).saturating_sub(beat) > limit {
            let since = Moment::from_boot(Duration::from_nanos(beat.saturating_add(limit)));
            return Some(("the worker's runtime has stalled".to_owned(), since));
        }
        let unfit = self.0.unfit.lock().unwrap_or_else(PoisonError::into_inner);
        unfit
            .iter()
            .map(|(check, (why, since))| (format!("{check}: {why}"), *since))
            .next()
    }

    /// Age of the last heartbeat; `None` when no runtime is watched.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn silence(&self) -> Option<Duration> {
        self.since(&self.0.beat)
    }

    /// Age of the last beat of the keeper's thread; `None` when the keeper has none of its own.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn keeper_silence(&self) -> Option<Duration> {
        self.since(&self.0.keeper)
    }

    /// Beats for the thread that it runs on, until it is dropped with that.
    pub(super) async fn keeper_beats(self) {
        loop {
            let now = nanos(self.0.clock.now().since_boot()).max(1);
            self.0.keeper.store(now, Ordering::SeqCst);
            self.0.clock.sleep(KEEPER_BEAT).await;
        }
    }

    fn since(&self, beat: &AtomicU64) -> Option<Duration> {
        let beat = beat.load(Ordering::SeqCst);
        let now = nanos(self.0.clock.now().since_boot());
        (beat != 0).then(|| Duration::from_nanos(now.saturating_sub(beat)))
    }

    /// The process was frozen until `now`: that its runtime, checks and work stood still meanwhile is no illness.
    pub(crate) fn thaw(&self, now: Moment) {
        let at = nanos(now.since_boot());
        self.0.thawed.store(at, Ordering::SeqCst);
        // A runtime that is not watched stays unwatched.
        let _ = self
            .0
            .beat
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |beat| {
                (beat != 0).then_some(beat.max(at))
            });
    }

    /// When the last freeze of this process was noticed to be over; the start of the clock when there was none.
    #[doc(hidden)] // for the worker
    pub fn thawed(&self) -> Moment {
        Moment::from_boot(Duration::from_nanos(self.0.thawed.load(Ordering::SeqCst)))
    }

    /// Waits until the replica is fit.
    #[doc(hidden)] // for the worker
    pub async fn fit(&self) {
        let mut news = self.0.news.subscribe();
        while self.unfit().is_some() {
            tokio::select! {
                biased;
                _ = news.changed() => {}
                // A heartbeat sends no news: look again.
                () = self.0.clock.sleep(Duration::from_millis(50)) => {}
            }
        }
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sim_clock::SimTime, spawn::Spawn};

    #[tokio::test(start_paused = true)]
    async fn the_keeper_falls_silent_with_its_thread() {
        let clock = SimTime::new().clock();
        let fitness = Fitness::new(clock.clone());
        assert_eq!(fitness.keeper_silence(), None, "it has no thread");
        let thread = Spawn::system().spawn(fitness.clone().keeper_beats());
        let silence = async |after| {
            clock.sleep(after).await;
            fitness.keeper_silence().unwrap()
        };
        assert!(silence(KEEPER_BEAT * 10).await <= KEEPER_BEAT);
        thread.abort();
        assert!(silence(KEEPER_BEAT * 10).await >= KEEPER_BEAT * 10);
        assert_eq!(fitness.silence(), None, "no runtime is watched");
    }
}
