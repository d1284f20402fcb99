//! What loading costs, counted in steps where it could grow with the square of the jobs. Counted in tests alone, by
//! `loading_grows_with_the_jobs_and_not_with_their_square`: a test that looks at a clock fails on a busy machine.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// So many characters, keys or findings were looked at.
pub(super) fn looked_at(steps: usize) {
    #[cfg(test)]
    STEPS.set(STEPS.get() + steps);
    #[cfg(not(test))]
    let _ = steps;
}

/// The steps of this thread since it was asked last.
#[cfg(test)]
pub(super) fn steps() -> usize {
    STEPS.take()
}
