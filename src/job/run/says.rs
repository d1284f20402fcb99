//! What the code of a run says by it: how far it is, what it is at, text to read, items by what became of them.

use std::{
    collections::BTreeMap,
    sync::{MutexGuard, PoisonError},
};

use super::Run;
use crate::{
    clock::Moment,
    job::{ItemOutcome, RunProgress, output, run_report::RunReport},
};

impl Run {
    /// Says how far the run is; shown in the status, with the pace and the time that is left. Every call counts as
    /// progress, also one with the numbers of the last, and so does the start: a run that says nothing for longer than
    /// its job's `progress_deadline` is stopped.
    pub fn progress(&self, done: u64, total: u64) {
        let now = self.0.setup.clock.now();
        self.report().progress.say(done, Some(total), now);
    }

    /// The same where the total may be unknown, with a message as in [`Run::message`].
    pub fn progress_with(&self, done: u64, total: Option<u64>, message: &str) {
        let now = self.0.setup.clock.now();
        let progress = &mut self.report().progress;
        progress.say(done, total, now);
        progress.message(message, now);
    }

    /// Says what the run is at, in a few words: 200 bytes are kept. It stays until another one, or none, is said, and
    /// counts as progress. Every client that may read the store can read it: keep secrets out.
    pub fn message(&self, message: &str) {
        let now = self.0.setup.clock.now();
        self.report().progress.message(message, now);
    }

    /// How far the run is, as it last said, and how it goes on from there.
    #[must_use]
    pub(crate) fn how_far(&self) -> RunProgress {
        let now = self.0.setup.clock.now();
        self.report().progress.told(now)
    }

    /// When the run last said anything of itself; its start before that.
    #[must_use]
    pub(crate) fn progress_at(&self) -> Moment {
        self.report().progress.at()
    }

    /// Leaves text to read with this run in the history: what a command printed, what was counted. Of more than
    /// [`MAX_OUTPUT`](crate::job::MAX_OUTPUT) bytes the beginning and the end are kept, with a line between them that
    /// says how many were left out. The last call counts; one after the end of the run changes nothing. What a run that goes on has
    /// left so far is shown a few seconds later, and stays where its replica dies. Every client that may read the store can read it:
    /// keep secrets out.
    pub fn keep_output(&self, text: impl Into<String>) {
        // Cut before the lock is taken: no reader waits for a long text.
        let kept = output::bounded(text.into());
        let mut report = self.report();
        report.output = Some(kept);
        report.texts += 1;
    }

    /// Counts items of this batch by what became of them, for the history: `sent`, `failed`, any bounded word. One of
    /// `dead`, `failed`, `in_doubt` and `parked` makes the batch worth a record of its own. Of a run that is no batch
    /// nothing of it is kept.
    pub fn count_items(&self, outcome: &'static str, items: u64) {
        self.report().items.count(outcome, items);
    }

    /// Says what became of one item of this batch, for the history, which counts items and has the reasons of the first few
    /// that did not go well. A batch with items that are to be tried again comes back when the first of them is due, if
    /// its run ends with [`Outcome::Done`](crate::Outcome::Done). Of a run that is no batch nothing of it is kept.
    ///
    /// ```
    /// use std::time::Duration;
    /// use watchkeeper::{JobError, Outcome, Run, job::ItemOutcome};
    ///
    /// async fn process(run: &Run, mails: &[(&str, u16)]) -> Result<Outcome, JobError> {
    ///     for (mail, answer) in mails {
    ///         run.check()?;
    ///         run.item(mail, match answer {
    ///             200 => ItemOutcome::Done,
    ///             503 => ItemOutcome::RetryAfter(Duration::from_secs(30), "busy".to_owned()),
    ///             _ => ItemOutcome::Dead(format!("answered {answer}")),
    ///         });
    ///     }
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    pub fn item(&self, item: &str, outcome: ItemOutcome) {
        let now = self.0.setup.clock.now();
        self.report().items.say(item, &outcome, now);
    }

    /// This batch is to come back after `pause`, for items of which nothing is to be said.
    #[doc(hidden)] // for the stock jobs
    pub fn comes_back(&self, pause: std::time::Duration) {
        let now = self.0.setup.clock.now();
        self.report().items.comes_back(now + pause);
    }

    /// When the first item that is to be tried again is due.
    #[doc(hidden)] // for the tests of the stock jobs
    #[must_use]
    pub fn items_again(&self) -> Option<Moment> {
        self.report().items.again
    }

    /// Why the first few items did not go well; empty when all did.
    pub(crate) fn item_reasons(&self) -> String {
        self.report().items.reasons()
    }

    /// The items that were counted.
    pub(crate) fn items(&self) -> BTreeMap<String, u64> {
        let report = self.report();
        let counts = report.items.counts.iter();
        counts.map(|(word, n)| ((*word).to_owned(), *n)).collect()
    }

    /// What the run has left to read, as it is kept; `None` when it left nothing.
    #[doc(hidden)] // for the tests of the stock jobs
    #[must_use]
    pub fn kept_output(&self) -> Option<String> {
        self.report().output.clone()
    }

    /// How often it has left text to read.
    pub(crate) fn texts(&self) -> u64 {
        self.report().texts
    }

    /// The number of the last text that it has left, and the text.
    pub(crate) fn last_text(&self) -> (u64, String) {
        let report = self.report();
        (report.texts, report.output.clone().unwrap_or_default())
    }

    fn report(&self) -> MutexGuard<'_, RunReport> {
        // Every change is complete before the lock is given back.
        self.0.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
