//! The job: reads, sends and marks one cell at a time, in the order that [the method](super) says.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::OnceCell;
use tracing::{debug, warn};
use watchkeeper::{
    batch::{BatchJob, BatchLimits},
    clock::{Clock, Moment},
    config::{Findings, Severity},
    event::{Event, Events},
    job::{JobError, Outcome, Run},
    node::Token,
};

use super::{
    backlog::Backlog,
    cell::ItemId,
    delivery::{Answer, MAX_BACKOFF, Mark, Policy},
    limits::Limits,
    open,
    params::NotificationsParams,
    pauses::Pauses,
    sending::{Sending, Sent},
    sink::{Plan, Sink},
    source::{Begin, Exceptions, Finish, Item, Source, SourceError, Unmarked},
    times::Times,
};
use crate::kinds::kind::in_a_line;

/// Sends the rows of a table.
pub struct Notifications {
    params: NotificationsParams,
    policy: Policy,
    clock: Clock,
    limits: Limits,
    pauses: Pauses,
    times: Times,
    events: Option<Events>,
    /// The job's name, given or told by the first run.
    name: OnceLock<String>,
    backlog: Backlog,
    /// Batches whose end could not be written: how often in a row, and until when they are left alone.
    unended: Mutex<BTreeMap<String, (u32, Moment)>>,
    own_sink: Option<Arc<dyn Sink>>,
    /// Made at first use, so that making the job cannot fail; what is wrong then is told as a fatal failure.
    ends: OnceCell<Ends>,
}

/// Both ends of the way.
#[derive(Clone)]
struct Ends {
    source: Arc<dyn Source>,
    sink: Arc<dyn Sink>,
}

/// For so long a batch is left alone that has a later holder.
const LOST: Duration = Duration::from_secs(5);
/// So long is tried to mark what was sent, with pauses between these.
const FINISHING: Duration = Duration::from_secs(15);
const FINISH_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

// === impl Notifications ===

impl Notifications {
    /// The job as configured. Tells `events`, if given, how many items were sent, are to be repeated, are dead, in
    /// doubt or parked, and how many are left.
    #[must_use]
    pub fn new(params: NotificationsParams, events: Option<Events>) -> Self {
        Self {
            policy: Policy {
                in_doubt: params.in_doubt.unwrap_or_default(),
                attempts: params.attempts.unwrap_or(params.backoff.attempts()),
                backoff: params.backoff,
            },
            limits: Limits::new(params.limits()),
            pauses: Pauses::default(),
            times: Times::new(&params.columns),
            clock: Clock::system(),
            events,
            name: OnceLock::new(),
            backlog: Backlog::default(),
            unended: Mutex::default(),
            own_sink: None,
            ends: OnceCell::new(),
            params,
        }
    }

    /// The same to a sink of your own; `sink` and what belongs to it is not asked for then.
    ///
    /// # Example
    /// ```
    /// use std::sync::Arc;
    ///
    /// use watchkeeper::node::Token;
    /// use watchkeeper_jobs::{
    ///     Notifications, NotificationsParams,
    ///     notifications::{Answer, Item, Sink},
    /// };
    ///
    /// struct Pager;
    ///
    /// #[async_trait::async_trait]
    /// impl Sink for Pager {
    ///     fn name(&self) -> String {
    ///         "pager".to_owned()
    ///     }
    ///     async fn send(&self, item: &Item, _token: Token) -> Answer {
    ///         // Give the receiver `item.key`, which is the same each time the row is sent.
    ///         match item.body.get("number") {
    ///             Some(_) => Answer::Accepted,
    ///             None => Answer::Refused { why: "it has no number".to_owned() },
    ///         }
    ///     }
    /// }
    ///
    /// # fn job(params: NotificationsParams) -> Notifications {
    /// Notifications::new(params, None).with_sink(Arc::new(Pager))
    /// # }
    /// ```
    #[must_use]
    pub fn with_sink(mut self, sink: Arc<dyn Sink>) -> Self {
        self.own_sink = Some(sink);
        self.ends = OnceCell::new();
        self
    }

    /// The same on another clock.
    #[doc(hidden)] // for the tests of the command
    #[must_use]
    pub fn on_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Items in the side table, for the status.
    ///
    /// # Errors
    /// When the database does not answer, or the parameters are wrong.
    #[doc(hidden)] // for the tests of the command, which tells people of them
    pub async fn exceptions(&self) -> Result<Exceptions, JobError> {
        let ends = self.ends().await?;
        ends.source
            .exceptions()
            .await
            .map_err(SourceError::into_job_error)
    }

    /// Items still to be sent, for the status.
    ///
    /// # Errors
    /// When the database does not answer, or the parameters are wrong.
    #[doc(hidden)] // for the tests; people ask `watchkeeper notify`
    pub async fn backlog(&self) -> Result<u64, JobError> {
        let ends = self.ends().await?;
        let backlog = ends.source.backlog().await;
        let backlog = backlog.map_err(SourceError::into_job_error)?;
        Ok(backlog.items)
    }

    /// [`BatchJob::process`] under a token that is given: for programs that claim batches in a way of their own. The token
    /// must grow from holder to holder of a batch.
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)] // Tests choose the tokens of holders.
    pub async fn process_under(
        &self,
        token: Token,
        batch: &str,
        run: &Run,
    ) -> Result<Outcome, JobError> {
        let _ = self.name.set(run.job().to_owned());
        if let Some(locks) = run.locks() {
            self.limits.share(run.job(), locks);
            self.pauses.share(run.job(), locks);
        }
        let ends = self.ends().await?;
        self.exchange_pauses(&ends).await;
        run.check()?;
        if let Some(rest) = self.rests(batch) {
            run.comes_back(rest);
            return Ok(Outcome::Skip(
                "its last end could not be written".to_owned(),
            ));
        }
        let begun = ends
            .source
            .begin(run.job(), batch, token, self.policy, self.now_ms())
            .await;
        let work = match begun.map_err(SourceError::into_job_error)? {
            Begin::Send(work) => work,
            Begin::Lost(holder) => return Ok(lost(run, batch, token, Some(holder))),
            Begin::OtherJob(other) => {
                return Err(JobError::fatal(format!(
                    "job {other:?} is sending these rows, or its sender died in the act: one job sends the rows of a table, \
                     or `where` tells theirs apart; after a change of the job's name see the guide"
                )));
            }
            Begin::OtherCells(in_force) => {
                return Ok(Outcome::Skip(format!("cells of {in_force} are in force")));
            }
        };
        if work.in_doubt + work.parked > 0 {
            warn!(
                job = run.job(),
                batch,
                in_doubt = work.in_doubt,
                parked = work.parked,
                "the last holder ended while sending"
            );
            for (word, n) in [("in_doubt", work.in_doubt), ("parked", work.parked)] {
                run.count_items(word, n);
                self.tell_items(word, n);
            }
        }
        if work.dead > 0 {
            warn!(
                job = run.job(),
                batch,
                dead = work.dead,
                "rows are too large to be sent"
            );
            run.count_items("dead", work.dead);
            self.tell_items("dead", work.dead);
        }
        if work.items.is_empty() {
            return Ok(Outcome::Skip("nothing to send".to_owned()));
        }

        let sending = Sending {
            sink: ends.sink.as_ref(),
            limits: &self.limits,
            times: &self.times,
            clock: &self.clock,
            lanes: self.params.lanes(),
            dedupe: self.params.dedupe.as_ref().map(|d| d.column.as_str()),
        };
        let Sent {
            answers,
            rest,
            limited,
        } = sending.all(&work.items, token, run).await;
        let cut_off = |answer: &Answer| matches!(answer, Answer::CutOff { .. });
        let complete = answers.len() == work.items.len() && !answers.values().any(cut_off);
        let answers = confirmed(answers, &work.items, &ends).await;
        let now_ms = self.now_ms();
        let mut trouble = None;
        let marks: Vec<(ItemId, Mark)> = answers
            .into_iter()
            .filter_map(|(i, answer)| {
                let item = work.items.get(i)?;
                let waits = matches!(answer, Answer::Waits { .. });
                let marks = self.judged(item, answer, now_ms);
                let reason = marks.iter().find_map(|(_, mark)| match mark {
                    Mark::Except(exception) if !waits => Some(&exception.reason),
                    _ => None,
                });
                trouble = trouble.take().or_else(|| reason.cloned());
                Some(marks)
            })
            .flatten()
            .collect();
        let counts = count(&marks);
        let finished = self
            .finish(&ends, batch, token, marks, &work.items, run)
            .await;
        self.ended(batch, finished.is_ok());
        let unmarked = match finished.map_err(SourceError::into_job_error)? {
            Finish::Lost(holder) => return Ok(lost(run, batch, token, holder)),
            Finish::Written(unmarked) => unmarked,
        };
        if unmarked != Unmarked::default() {
            let Unmarked { in_doubt, parked } = unmarked;
            warn!(
                job = run.job(),
                batch, in_doubt, parked, "rows that were sent could not be marked"
            );
            for (word, n) in [("in_doubt", in_doubt), ("parked", parked)] {
                run.count_items(word, n);
                self.tell_items(word, n);
            }
        }
        if let Some(reason) = trouble {
            let sink = ends.sink.name();
            warn!(
                job = run.job(),
                batch,
                sink,
                ?counts,
                reason,
                "not everything was sent"
            );
        } else {
            debug!(job = run.job(), batch, ?counts, "batch sent");
        }
        for (word, n) in counts {
            run.count_items(word, n);
            self.tell_items(word, n);
        }
        self.tell_backlog(&ends);
        if !complete {
            run.check()?;
        }
        if let Some(pause) = limited {
            run.comes_back(pause);
        }
        Ok(rest.map_or(Outcome::Done, Outcome::RetryAfter))
    }

    /// What becomes of the rows of an item after this answer.
    fn judged(&self, item: &Item, answer: Answer, now_ms: i64) -> Vec<(ItemId, Mark)> {
        let (policy, prior, key) = (self.policy, item.prior.as_ref(), &item.key);
        if item.digest.is_none() {
            let mark = policy.judge(prior, answer, now_ms, key);
            return vec![(item.id.clone(), mark)];
        }
        let rows = item.members.iter().map(|(_, prior)| prior.as_ref());
        let marks = policy.judge_rows(prior, rows, &answer, now_ms, key);
        let ids = item.members.iter().map(|(id, _)| id.clone());
        ids.zip(marks).collect()
    }

    /// Ends the batch. What was sent is not forgotten because the database does not answer for a moment: it is asked again, as long
    /// as the batch is ours. Where it cannot be marked all the same it is listed as in doubt, so that it is sent no oftener than what is
    /// never answered.
    async fn finish(
        &self,
        ends: &Ends,
        batch: &str,
        token: Token,
        marks: Vec<(ItemId, Mark)>,
        items: &[Item],
        run: &Run,
    ) -> Result<Finish, SourceError> {
        let now_ms = self.now_ms();
        let until = self.clock.now() + FINISHING;
        let (mut pause, mut unclear) = (FINISH_AGAIN.0, false);
        loop {
            let finished = ends
                .source
                .finish(batch, token, self.policy, marks.clone(), now_ms)
                .await;
            let error = match finished {
                // An earlier attempt removed the intent, and its answer was lost; or a later holder did, which has listed what we
                // had not marked.
                Ok(Finish::Lost(None)) if unclear => {
                    return Ok(Finish::Written(Unmarked::default()));
                }
                Err(error) => error,
                finished => return finished,
            };
            let ours = run.lease().is_none_or(|lease| !lease.remaining().is_zero());
            if !ours {
                return Err(error);
            }
            if !error.may_pass() || self.clock.now() + pause >= until {
                let (marks, unmarked) = self.in_doubt(marks, items, &error);
                if unmarked == Unmarked::default() {
                    return Err(error);
                }
                let finished = ends
                    .source
                    .finish(batch, token, self.policy, marks, self.now_ms())
                    .await;
                return match finished {
                    Ok(Finish::Written(_)) => {
                        warn!(job = run.job(), batch, %error, "rows that were sent are not marked");
                        Ok(Finish::Written(unmarked))
                    }
                    Ok(Finish::Lost(None)) if unclear => Ok(Finish::Written(Unmarked::default())),
                    Ok(lost) => Ok(lost),
                    // The first one says more of the cause.
                    Err(_) => Err(error),
                };
            }
            warn!(job = run.job(), batch, %error, "rows that were sent are not marked yet");
            unclear = true;
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(FINISH_AGAIN.1);
        }
    }

    /// These marks where none of them can be made, for this reason; and what becomes of the rows that were sent.
    fn in_doubt(
        &self,
        marks: Vec<(ItemId, Mark)>,
        items: &[Item],
        error: &SourceError,
    ) -> (Vec<(ItemId, Mark)>, Unmarked) {
        let (why, now_ms) = (error.said(), self.now_ms());
        let mut of: BTreeMap<&ItemId, &Item> = BTreeMap::new();
        for item in items {
            of.insert(&item.id, item);
            of.extend(item.members.iter().map(|(id, _)| (id, item)));
        }
        let mut unmarked = Unmarked::default();
        let in_doubt = |(id, mark): (ItemId, Mark)| {
            let mark = match mark {
                Mark::Sent | Mark::Duplicate => {
                    let item = of.get(&id);
                    let prior = item.and_then(|item| item.prior.as_ref());
                    // Rows of one message wait as one.
                    let key = item.map_or("", |item| item.key.as_str());
                    let doubt = self.policy.unwritten(prior, &why, now_ms, key);
                    unmarked.count(&doubt);
                    Mark::Except(doubt)
                }
                Mark::Except(exception) => Mark::Except(exception),
            };
            (id, mark)
        };
        (marks.into_iter().map(in_doubt).collect(), unmarked)
    }

    /// For how long a batch is still left alone, because its end could not be written.
    fn rests(&self, batch: &str) -> Option<Duration> {
        let unended = self.unended();
        let (_, until) = unended.get(batch)?;
        let rest = until.since(self.clock.now());
        (!rest.is_zero()).then_some(rest)
    }

    /// The end of a batch was written, or could not be: then its rows are sent again, each time after a longer pause.
    fn ended(&self, batch: &str, is_written: bool) {
        let mut unended = self.unended();
        let before = unended.remove(batch).map_or(0, |(times, _)| times);
        if is_written {
            return;
        }
        let (now, times) = (self.clock.now(), before.saturating_add(1));
        unended.retain(|_, (_, until)| now < *until + MAX_BACKOFF);
        let until = now + self.policy.pause(times, batch);
        unended.insert(batch.to_owned(), (times, until));
    }

    fn unended(&self) -> MutexGuard<'_, BTreeMap<String, (u32, Moment)>> {
        self.unended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ends(&self) -> Result<Ends, JobError> {
        let ends = self.ends.get_or_try_init(|| async {
            connect(&self.params, self.own_sink.as_ref(), &self.clock)
        });
        ends.await.cloned().map_err(JobError::fatal)
    }

    async fn exchange_pauses(&self, ends: &Ends) {
        if let Some(hosts) = ends.sink.hosts() {
            self.pauses.exchange(hosts, &self.clock).await;
        }
    }

    /// Has the backlog counted, if it is time. Neither a look nor the end of a batch waits for it.
    fn tell_backlog(&self, ends: &Ends) {
        if let Some(events) = &self.events {
            let (events, job) = (events.clone(), self.told_name().to_owned());
            self.backlog.tell(&ends.source, &self.clock, events, job);
        }
    }

    fn tell_items(&self, outcome: &'static str, count: u64) {
        if count > 0 {
            self.tell(|job| Event::Items {
                job,
                outcome,
                count,
            });
        }
    }

    fn tell(&self, event: impl FnOnce(String) -> Event) {
        if let Some(events) = &self.events {
            events.tell(event(self.told_name().to_owned()));
        }
    }

    fn told_name(&self) -> &str {
        self.name.get().map_or("notifications", String::as_str)
    }

    fn now_ms(&self) -> i64 {
        self.clock.wall().as_millisecond()
    }
}

#[async_trait]
impl BatchJob for Notifications {
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError> {
        let ends = self.ends().await?;
        self.exchange_pauses(&ends).await;
        let rests = ends
            .sink
            .hosts()
            .and_then(|hosts| hosts.rest(self.clock.now()));
        let pending = match rests {
            // Nothing could be sent.
            Some(_) => Vec::new(),
            None => {
                let pending = ends.source.pending(self.now_ms(), limit).await;
                pending.map_err(SourceError::into_job_error)?
            }
        };
        if self.name.get().is_some() {
            self.tell_backlog(&ends);
        }
        Ok(pending)
    }

    async fn process(&self, batch: &str, run: Run) -> Result<Outcome, JobError> {
        // Without a claim there is no order among holders, and nothing here would be safe.
        if run.token() == Token(0) {
            return Err(JobError::fatal(
                "notifications need coordination = \"batch\"",
            ));
        }
        self.process_under(run.token(), batch, &run).await
    }

    async fn woken(&self) {
        match self.ends.get() {
            Some(ends) => ends.source.woken().await,
            None => std::future::pending().await,
        }
    }

    fn named(&self, job: &str) {
        let _ = self.name.set(job.to_owned());
    }

    async fn stopped(&self) {
        self.backlog.stop();
    }

    fn limits(&self) -> BatchLimits {
        BatchLimits {
            claim: self.params.claim,
            concurrency: self.params.concurrency,
        }
    }
}

/// What was accepted is in doubt when the sink cannot say that it stays. What is a repeat of nothing else stays unsent behind it.
async fn confirmed(
    mut answers: BTreeMap<usize, Answer>,
    items: &[Item],
    ends: &Ends,
) -> BTreeMap<usize, Answer> {
    if !answers.values().any(|a| *a == Answer::Accepted) {
        return answers;
    }
    if let Err(error) = ends.sink.flush().await {
        warn!(sink = ends.sink.name(), %error, "accepted items could not be made to stay");
        let why = format!("accepted, but perhaps not kept: {error}");
        for answer in answers.values_mut().filter(|a| **a == Answer::Accepted) {
            *answer = Answer::Unknown { why: why.clone() };
        }
        answers.retain(|i, answer| {
            *answer != Answer::Duplicate || items.get(*i).is_some_and(|item| item.is_repeat)
        });
    }
    answers
}

fn count(marks: &[(ItemId, Mark)]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for (_, mark) in marks {
        *counts.entry(mark.word()).or_insert(0) += 1;
    }
    counts
}

/// The batch comes back after a pause: its later holder may be dead, and a larger token than ours does not go by itself.
fn lost(run: &Run, batch: &str, token: Token, holder: Option<Token>) -> Outcome {
    run.comes_back(LOST);
    let holder = holder.map(|t| t.0);
    warn!(
        batch,
        token = token.0,
        ?holder,
        "batch lost to a later holder; nothing was written"
    );
    Outcome::Skip("lost to a later holder".to_owned())
}

/// What is wrong with the parameters; does not touch the database, and sends nothing.
pub(super) fn check(params: &NotificationsParams) -> Findings {
    let mut found = params.check();
    Plan::read(params, &mut found);
    found
}

fn connect(
    params: &NotificationsParams,
    own_sink: Option<&Arc<dyn Sink>>,
    clock: &Clock,
) -> Result<Ends, String> {
    let mut found = params.check();
    let plan = match own_sink {
        None => Plan::read(params, &mut found),
        Some(_) => None,
    };
    let mut errors = Findings::default();
    found
        .into_iter()
        .filter(|finding| finding.severity == Severity::Error)
        .filter(|finding| own_sink.is_none() || finding.keys != ["sink"])
        .for_each(|error| errors.push(error));
    if !errors.is_empty() {
        return Err(in_a_line(&errors));
    }
    let database = params.database();
    let database = database.map_err(|(key, why)| format!("params.{key} {why}"))?;
    let sink = match (own_sink, plan) {
        (Some(sink), _) => Arc::clone(sink),
        (None, Some(plan)) => plan.open(params, clock)?,
        (None, None) => return Err("params.sink is missing".to_owned()),
    };
    let source = open::source(database, params);
    Ok(Ends { source, sink })
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifications")
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
