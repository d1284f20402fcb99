//! Plays a simulation, and tells its story when it has failed.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use super::{Fleet, Sim, report};

/// The variable of the environment that says which seed every simulation takes.
const SEED: &str = "WATCHKEEPER_SIM_SEED";

// === impl Sim ===

impl Sim {
    /// Plays the story: makes the fleet, hands it to `test`, checks at the end what holds for every story, and gives back
    /// what `test` gave. It blocks; call it from a plain `#[test]`, because it brings a tokio runtime of its own whose time is
    /// virtual.
    ///
    /// # Panics
    /// When `test` panics, or when a job broke a rule that is always checked ([`Fleet::assert_no_two_at_once`] and
    /// [`Fleet::assert_once_per_tick`], for all jobs): with what happened until then, the seed, and how to repeat it. Within
    /// a tokio runtime.
    pub fn run<T, F: Future<Output = T>>(mut self, test: impl FnOnce(Fleet) -> F) -> T {
        assert!(
            tokio::runtime::Handle::try_current().is_err(),
            "a simulation brings its own runtime: write #[test] and a plain fn instead of #[tokio::test]"
        );
        self.seed = seed_of_environment().unwrap_or(self.seed);
        let (seed, checked) = (self.seed, self.checked);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => panic!("no runtime: {error}"),
        };
        let mut seen = None;
        let played = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async {
                let fleet = Fleet::begin(self).await;
                seen = Some(fleet.clone());
                let done = test(fleet.clone()).await;
                // What was told at this very instant is noted.
                tokio::task::yield_now().await;
                if checked {
                    fleet.check_all();
                }
                done
            })
        }));
        let story = seen.filter(|_| played.is_err()).map(|fleet| {
            // Its clock is that of the runtime.
            let _inside = runtime.enter();
            report::story(&fleet)
        });
        // Not waited for: a thread that a job blocks may block for ever.
        runtime.shutdown_background();
        match played {
            Ok(done) => done,
            Err(panic) => fail(panic, seed, &story.unwrap_or_default()),
        }
    }
}

// === helpers ===

fn seed_of_environment() -> Option<u64> {
    let text = std::env::var(SEED).ok()?;
    match text.parse() {
        Ok(seed) => Some(seed),
        Err(_) => panic!("{SEED}={text:?} is no seed: write a whole number"),
    }
}

/// Panics with what `test` panicked with, and the story.
fn fail(panic: Box<dyn Any + Send>, seed: u64, story: &str) -> ! {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let Some(said) = said.or_else(|| panic.downcast_ref::<String>().cloned()) else {
        eprintln!("{story}{}", repeat(seed));
        resume_unwind(panic)
    };
    // What was said stands on the terminal already: a panic is printed where it happens.
    eprintln!("{story}{}", repeat(seed));
    resume_unwind(Box::new(format!("{said}\n{story}{}", repeat(seed))))
}

fn repeat(seed: u64) -> String {
    format!("seed {seed}; the same again: {SEED}={seed} cargo test NAME_OF_THE_TEST\n")
}
