//! The job: reads the stream, hands its messages to the engine of batches, and handles each under its claim.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::OnceCell;
use tracing::{debug, info, warn};
use watchkeeper::{
    Locks,
    batch::{BatchJob, BatchLimits},
    chance::Chance,
    clock::{Clock, Moment},
    event::{Event, Events},
    job::{JobError, Outcome, Run},
    node::Token,
};

use super::{
    backlog::ReadCount,
    handler::{Handled, Handler, Plan, errors},
    id::Id,
    message::{Message, Window},
    params::{Mode, StreamParams},
    server::{START, Server, Trouble},
};
use crate::kinds::{kind::in_a_line, notifications::delivery::MAX_ASKED};

/// Handles the messages of a stream.
pub(super) struct Stream {
    params: StreamParams,
    clock: Clock,
    events: Events,
    /// The job's name.
    name: OnceLock<String>,
    /// The name of this process in a group.
    member: String,
    window: Mutex<Window>,
    /// Messages that were refused because of their age, since the log was told.
    too_old: Mutex<u64>,
    /// Made at first use, so that making the job cannot fail; what is wrong then is told as a failure.
    ends: OnceCell<Ends>,
}

/// Both ends of the way.
struct Ends {
    reading: tokio::sync::Mutex<Reading>,
    /// Dead messages go over a connection of their own: reading does not wait for them.
    burying: tokio::sync::Mutex<Server>,
    handler: Arc<Handler>,
}

/// The server, and when to look for what.
struct Reading {
    server: Server,
    /// Where the search for messages of other members goes on, and when.
    take_over_from: String,
    take_over_at: Moment,
    /// When to forget members that are gone.
    forget_at: Moment,
    /// When to look whether the stream has begun anew.
    look_back_at: Moment,
    /// How far this reader is, where there is no group.
    read_count: ReadCount,
    /// When the backlog may be counted again.
    count_at: Moment,
    /// When this was last looked at.
    looked_at: Moment,
}

/// A stream that has nothing new is looked at so often: it may have begun anew.
const LOOK_BACK_EVERY: Duration = Duration::from_secs(2);
/// Members of processes that have ended are forgotten after this time, and looked for so often.
const GONE: (Duration, Duration) = (Duration::from_secs(3600), Duration::from_secs(600));
/// A message that this replica does not know any more is left to others for so long.
const UNKNOWN: Duration = Duration::from_secs(1);
/// A list of dead messages keeps about so many.
const MOST_DEAD: usize = 100_000;
/// What waits comes back so long before it is too old, or a tenth of the retention before.
const LAST_TRY: Duration = Duration::from_secs(5);
/// The backlog is counted at most this often, and so seldom that counting takes no more than a fiftieth of the time.
const COUNT_EVERY: Duration = Duration::from_secs(1);
const COUNT_SHARE: u32 = 50;
/// Why a message is refused.
const TOO_OLD: &str = "it is older than the retention, or than what the lock nodes remember: it may have been handled";

// === impl Stream ===

impl Stream {
    pub(super) fn new(params: StreamParams, events: Events) -> Self {
        Self::timed_by(Clock::system(), params, events)
    }

    fn timed_by(clock: Clock, params: StreamParams, events: Events) -> Self {
        Self {
            window: Mutex::new(Window::new(params.read_ahead)),
            clock,
            events,
            name: OnceLock::new(),
            member: Chance::system().id(),
            too_old: Mutex::new(0),
            ends: OnceCell::new(),
            params,
        }
    }

    async fn ends(&self) -> Result<&Ends, JobError> {
        let ends = self.ends.get_or_try_init(|| async { self.connect() });
        ends.await.map_err(JobError::fatal)
    }

    fn connect(&self) -> Result<Ends, String> {
        let mut found = self.params.check();
        let plan = Plan::read(&self.params, &mut found);
        let right = plan.filter(|_| errors(&found) == 0);
        let plan = right.ok_or_else(|| in_a_line(&found))?;
        let (client, name) = self.params.client()?;
        let reading = Reading {
            server: Server::new(client.clone(), name.clone()),
            take_over_from: START.to_owned(),
            take_over_at: Moment::ZERO,
            forget_at: Moment::ZERO,
            look_back_at: Moment::ZERO,
            read_count: ReadCount::default(),
            count_at: Moment::ZERO,
            looked_at: self.clock.now(),
        };
        Ok(Ends {
            reading: tokio::sync::Mutex::new(reading),
            burying: tokio::sync::Mutex::new(Server::new(client, name)),
            handler: Arc::new(plan.open(&self.clock)?),
        })
    }

    /// The first id that is young enough, by the clock that has dated the messages: a replica whose own is wrong would pass over
    /// some, and for all members if it made the group.
    async fn first(&self, server: &mut Server) -> Result<Id, Trouble> {
        let retention = SignedDuration::try_from(self.params.retention.0);
        let now = server.time().await?;
        let first = retention.ok().and_then(|ago| now.checked_sub(ago).ok());
        Ok(Id::at(first.unwrap_or(Timestamp::UNIX_EPOCH)))
    }

    /// Reads what there is room for.
    async fn read(&self, reading: &mut Reading) -> Result<(), Trouble> {
        let now = self.clock.now();
        if now.since(reading.looked_at) > self.params.retention.0 {
            // Others have done meanwhile what was read here and what came behind it, and their records are forgotten as for one
            // that starts now: all of it would be refused, and fill the list of dead ones.
            info!(
                job = self.name(),
                stream = self.params.stream,
                "this replica has not looked for longer than the retention: reading begins anew with what is young enough"
            );
            self.window().begin_anew();
            reading.read_count = ReadCount::default();
            (reading.take_over_from, reading.take_over_at) = (START.to_owned(), Moment::ZERO);
        }
        // Also where the server does not answer: then the others may not have read, either, and nothing is passed over unseen.
        reading.looked_at = now;
        match (self.params.mode, &self.params.group) {
            (Mode::Group, Some(group)) => self.read_as_member(reading, group).await,
            _ => self.read_all(reading).await,
        }
    }

    async fn read_all(&self, reading: &mut Reading) -> Result<(), Trouble> {
        let (room, position) = {
            let mut window = self.window();
            // There is no group to be told.
            let settled = window.settled();
            window.told(&settled);
            (window.room(), window.position)
        };
        if room == 0 {
            return Ok(());
        }
        let position = match position {
            Some(position) => position,
            None => self.first(&mut reading.server).await?,
        };
        let stream = &self.params.stream;
        let read = reading.server.read(stream, position, room).await?;
        let now = self.clock.now();
        if let Some(last) = read.last().map(|message| message.id) {
            reading.read_count.read(read.len());
            let mut window = self.window();
            window.position = Some(last);
            window.add(read);
        } else if now >= reading.look_back_at {
            reading.look_back_at = now + LOOK_BACK_EVERY;
            let last = reading.server.last_id(stream).await?;
            let anew = last.is_none_or(|last| last < position);
            let mut window = self.window();
            if anew && window.position.is_some() {
                info!(
                    job = self.name(),
                    stream, "the stream has begun anew: it is read from its beginning"
                );
            }
            // What was read before and comes again was done: its record says so.
            window.position = (!anew).then_some(position);
            if anew {
                reading.read_count = ReadCount::default();
            }
        }
        Ok(())
    }

    async fn read_as_member(&self, reading: &mut Reading, group: &str) -> Result<(), Trouble> {
        self.acknowledge(&mut reading.server, group).await?;
        let (stream, server) = (&self.params.stream, &mut reading.server);
        let member = (group, self.member.as_str());
        let now = self.clock.now();
        let room = self.window().room();
        if room > 0 && now >= reading.take_over_at {
            let idle = self.params.take_over_after.0;
            let from = &reading.take_over_from;
            let taken = server.take_over(stream, member, idle, from, room).await?;
            if taken.next == START {
                reading.take_over_at = now + self.params.look_every();
            }
            reading.take_over_from = taken.next;
            if let Some(first) = taken.removed.first() {
                let count = taken.removed.len();
                warn!(
                    job = self.name(),
                    stream,
                    group,
                    count,
                    first,
                    "messages were removed from the stream before they were acknowledged: they may be unhandled; keep them for longer \
                     (MAXLEN, MINID)"
                );
            }
            if !taken.messages.is_empty() {
                let count = taken.messages.len();
                info!(
                    job = self.name(),
                    stream, group, count, "messages taken over"
                );
            }
            self.window().add(taken.messages);
        }
        let room = self.window().room();
        if room > 0 {
            let messages = server.deal(stream, member, room).await?;
            self.window().add(messages);
        }
        if now >= reading.forget_at {
            let (after, every) = GONE;
            reading.forget_at = now + every;
            if let Err(trouble) = server.forget_members(stream, group, after).await {
                // The user may not run scripts, for instance: it costs the server a little memory.
                debug!(job = self.name(), %trouble, "members that are gone stay in the group");
            }
        }
        Ok(())
    }

    /// Tells the group of what is settled. What a look that was given up has not told is told by the next one.
    async fn acknowledge(&self, server: &mut Server, group: &str) -> Result<(), Trouble> {
        let settled = self.window().settled();
        if !settled.is_empty() {
            let told = server.acknowledge(&self.params.stream, group, &settled);
            told.await?;
            self.window().told(&settled);
        }
        Ok(())
    }

    /// There was no group: the stream is new, or the server has lost it.
    async fn make_group(&self, reading: &mut Reading) -> Result<(), Trouble> {
        let Some(group) = &self.params.group else {
            return Ok(());
        };
        let stream = &self.params.stream;
        let first = self.first(&mut reading.server).await?;
        let made = reading.server.make_group(stream, group, first);
        made.await?;
        reading.take_over_from = START.to_owned();
        info!(
            job = self.name(),
            stream, group, "the consumer group was made, for messages that are young enough"
        );
        Ok(())
    }

    /// Tells how much is still to be done, when it is time.
    async fn tell_backlog(&self, reading: &mut Reading) {
        let began = self.clock.now();
        if began < reading.count_at {
            return;
        }
        match self.backlog(reading).await {
            Ok(Some(items)) => self.events.tell(Event::Backlog {
                job: self.name().to_owned(),
                items,
                since: None,
            }),
            Ok(None) => {}
            Err(trouble) => debug!(job = self.name(), %trouble, "the backlog was not counted"),
        }
        let now = self.clock.now();
        reading.count_at = now + (now.since(began) * COUNT_SHARE).max(COUNT_EVERY);
    }

    /// Messages that are not done: those that were read or dealt out, and what lies behind them. Nothing where there is no such group.
    async fn backlog(&self, reading: &mut Reading) -> Result<Option<u64>, Trouble> {
        let stream = &self.params.stream;
        if let (Mode::Group, Some(group)) = (self.params.mode, &self.params.group) {
            let Some(dealt) = reading.server.dealt(stream, group).await? else {
                return Ok(None);
            };
            let lag = match dealt.lag {
                Some(lag) => lag,
                None => {
                    let size = reading.server.size(stream).await?;
                    size.map_or(0, |size| ReadCount::default().behind(dealt.last, &size))
                }
            };
            return Ok(Some(dealt.pending.saturating_add(lag)));
        }
        let (position, waiting) = {
            let window = self.window();
            (window.position, window.waiting())
        };
        let behind = match position {
            Some(position) => {
                let size = reading.server.size(stream).await?;
                size.map_or(0, |size| reading.read_count.behind(position, &size))
            }
            // The last look has found nothing that is young enough.
            None => 0,
        };
        let waiting = u64::try_from(waiting).unwrap_or(u64::MAX);
        Ok(Some(waiting.saturating_add(behind)))
    }

    /// A message that nothing more is tried with. It is done then.
    async fn bury(&self, message: &Message, why: &str, run: &Run) -> Result<Outcome, JobError> {
        self.put_on_dead_list(message, why, run.attempt(), run)
            .await?;
        let (id, attempt, list) = (message.id, run.attempt(), self.params.dead_list());
        warn!(job = run.job(), %id, attempt, list, why, "a message is dead");
        Ok(Outcome::Done)
    }

    async fn put_on_dead_list(
        &self,
        message: &Message,
        why: &str,
        attempts: u32,
        run: &Run,
    ) -> Result<(), JobError> {
        let fields = serde_json::Value::Object(message.fields.clone());
        let entries = [
            ("id", message.id.to_string()),
            ("stream", self.params.stream.clone()),
            ("attempts", attempts.to_string()),
            ("reason", why.to_owned()),
            ("message", fields.to_string()),
        ];
        let list = self.params.dead_list();
        let ends = self.ends().await?;
        let mut server = ends.burying.lock().await;
        let buried = server.bury(&list, &entries, MOST_DEAD).await;
        buried.map_err(JobError::retry)?;
        self.count("dead", run);
        Ok(())
    }

    /// A message that this replica has read and that is not settled.
    fn known(&self, batch: &str) -> Option<Message> {
        let id: Option<Id> = batch.parse().ok();
        id.and_then(|id| self.window().get(id))
    }

    fn count(&self, outcome: &'static str, run: &Run) {
        run.count_items(outcome, 1);
        self.events.tell(Event::Items {
            job: run.job().to_owned(),
            outcome,
            count: 1,
        });
    }

    fn tell_too_old(&self) {
        let count = std::mem::take(&mut *self.too_old());
        if count > 0 {
            warn!(
                job = self.name(),
                stream = self.params.stream,
                count,
                list = self.params.dead_list(),
                "messages were refused and are on the list of dead ones: they are older than the retention, or than what the lock nodes \
                 remember, and may have been handled"
            );
        }
    }

    fn name(&self) -> &str {
        self.name.get().map_or("stream", String::as_str)
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        // Changed by short, complete steps.
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn too_old(&self) -> MutexGuard<'_, u64> {
        self.too_old.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl BatchJob for Stream {
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError> {
        self.tell_too_old();
        let mut reading = self.ends().await?.reading.lock().await;
        match self.read(&mut reading).await {
            Ok(()) => {}
            Err(Trouble::NoGroup) => self
                .make_group(&mut reading)
                .await
                .map_err(JobError::retry)?,
            Err(trouble) => return Err(JobError::retry(trouble)),
        }
        if self.name.get().is_some() {
            self.tell_backlog(&mut reading).await;
        }
        Ok(self.window().ids(limit))
    }

    async fn process(&self, batch: &str, run: Run) -> Result<Outcome, JobError> {
        // Without a claim every replica would handle every message.
        if run.token() == Token(0) {
            return Err(JobError::fatal("streams need coordination = \"batch\""));
        }
        let Some(message) = self.known(batch) else {
            // Not skipped: that would be its end. Another reader knows it, or this one will again.
            return Ok(Outcome::RetryAfter(UNKNOWN));
        };
        let last = run.attempt() >= self.params.attempts;
        if run.attempt() > self.params.attempts {
            // Its last attempt has ended without a word about it.
            return self
                .bury(&message, "its last attempt did not end well", &run)
                .await;
        }
        run.check()?;
        let ends = self.ends().await?;
        match ends.handler.handle(&message, &run).await? {
            Handled::Done => {
                self.count("sent", &run);
                Ok(Outcome::Done)
            }
            Handled::Waits(pause) => {
                let now = run.locks().map_or_else(|| self.clock.wall(), Locks::wall);
                let (date, retention) = (message.id.date(), self.params.retention.0);
                Ok(Outcome::RetryAfter(in_time(pause, date, retention, now)))
            }
            Handled::Failed(why) if last => self.bury(&message, &why, &run).await,
            Handled::Failed(why) => {
                self.count("retry", &run);
                Err(JobError::retry(why))
            }
            Handled::Never(why) => self.bury(&message, &why, &run).await,
        }
    }

    fn named(&self, job: &str) {
        let _ = self.name.set(job.to_owned());
    }

    fn limits(&self) -> BatchLimits {
        BatchLimits {
            claim: self.params.claim,
            concurrency: self.params.concurrency,
        }
    }

    fn retention(&self) -> Option<Duration> {
        Some(self.params.retention.0)
    }

    fn source(&self) -> &str {
        &self.params.stream
    }

    fn produced_at(&self, batch: &str) -> Timestamp {
        let id = batch.parse::<Id>();
        id.map_or(Timestamp::UNIX_EPOCH, Id::date)
    }

    /// In this order: it is on the list of dead ones, then it is done, and then the group is told.
    async fn refused(&self, batch: &str, run: Run) -> Result<Outcome, JobError> {
        let Some(message) = self.known(batch) else {
            return Ok(Outcome::RetryAfter(UNKNOWN));
        };
        let attempts = run.attempt().saturating_sub(1);
        self.put_on_dead_list(&message, TOO_OLD, attempts, &run)
            .await?;
        *self.too_old() += 1;
        Ok(Outcome::Done)
    }

    fn settled(&self, batch: &str) {
        if let Ok(id) = batch.parse() {
            self.window().settle(id);
        }
    }

    async fn stopped(&self) {
        let (Some(group), Some(ends)) = (&self.params.group, self.ends.get()) else {
            return;
        };
        let mut reading = ends.reading.lock().await;
        if let Err(trouble) = self.acknowledge(&mut reading.server, group).await {
            // Another member takes them over, and finds their final records.
            debug!(job = self.name(), %trouble, "messages that were handled stay unacknowledged");
        }
        self.tell_too_old();
    }
}

/// A pause that a receiver asks for, cut so that the message of this date comes back while it is young enough.
fn in_time(pause: Duration, date: Timestamp, retention: Duration, now: Timestamp) -> Duration {
    let accepted = retention.saturating_sub(LAST_TRY.min(retention / 10));
    let age = Duration::try_from(now.duration_since(date)).unwrap_or_default();
    let left = accepted.saturating_sub(age).max(UNKNOWN);
    pause.min(MAX_ASKED).min(left)
}

#[cfg(test)]
mod tests;
