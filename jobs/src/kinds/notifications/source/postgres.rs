//! A table in PostgreSQL, which others read and write at the same time.
//!
//! A few connections, none of which is held while rows are sent. A call is one short transaction; one that fails closes its
//! connection, and the next call looks at the table afresh. A failed server, a standby where the primary was, a table that is
//! missing: each is said, and tried again at the next look.
//!
//! # Invariants
//! - G1 A holder whose claim was overtaken begins and marks nothing.      (a_stale_holder_marks_and_removes_nothing)
//! - G2 No row of the user's table is locked but those that are being marked, and marking waits for no other transaction.
//!   (a_row_that_another_program_holds_is_marked_later)
//! - G3 The user's table gets no column, and nothing else is made in its schema but the side tables.
//!   (columns_of_the_table_stay_as_they_are)
//! - G4 Work is found without reading the rows that were sent.   (the_search_for_work_uses_the_partial_index)
//!
//! - G5 A row that cannot be marked is sent no oftener than one that is never answered, and keeps no other from being marked.
//!   (a_row_that_stays_held_is_repeated_with_pauses_or_parked, a_row_that_refuses_its_mark_is_parked_and_the_others_are_marked,
//!   a_mark_is_refused_whatever_the_code_with_which, a_mark_that_is_taken_back_is_no_mark,
//!   a_batch_that_never_ends_is_sent_no_oftener_than_its_attempts)
//!
//! # Not promised
//! A row that another program keeps locked for longer than about two seconds after it was sent is in doubt: listed, and sent
//! again with its key after a pause, or parked, as `in_doubt` says.
//!
//! In reading order: `address`, `tls`, `session`, `statements`, `error` (the way to a server), `table` (what was found), `side`, `rows`,
//! `search` (SQL), `index` (whether an index is missing), `operator`.

mod error;
mod index;
mod operator;
mod rows;
mod search;
mod session;
mod side;
mod statements;
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::{try_join, try_join3, try_join4};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio_postgres::types::Type;
use tracing::warn;
use watchkeeper::{
    clock::{Clock, Moment},
    node::{Token, postgres::address::PgAddress},
};

pub(crate) use self::operator::PgOperator;
use self::{
    search::Search,
    session::{COUNTING, STATEMENT, Session},
    side::{Record, Settled},
    table::{Table, Wanted},
};
use super::{
    Backlog, Begin, Counts, Exceptions, Finish, Listed, Named, Result, Source, SourceError,
    Unmarked, Work, table::too_large,
};
use crate::notifications::{
    cell::{Cell, ItemId},
    delivery::{Exception, Mark, Policy, State},
    params::NotificationsParams,
};

/// The source.
#[derive(Debug)]
pub(crate) struct PgSource {
    address: PgAddress,
    wanted: Wanted,
    clock: Clock,
    /// Connections at a time.
    room: Semaphore,
    shared: Mutex<Shared>,
    /// Rung when other sessions announce rows.
    heard: Arc<Notify>,
}

/// What calls leave for each other.
#[derive(Default)]
struct Shared {
    /// Connections that are not in use.
    idle: Vec<Session>,
    /// Found at the first call, and again after an error.
    table: Option<Table>,
    search: Search,
    /// A row with work in each bucket, as the last look saw it.
    seen: BTreeMap<i64, ItemId>,
    told_of_layout: bool,
    told_of_table: bool,
    /// The connection on which announcements come, where they are wanted.
    listening: Option<Session>,
    /// When another may be made.
    listen_again: Option<Moment>,
}

/// A connection in use, and the table.
struct Open<'s> {
    session: Session,
    table: Table,
    _room: SemaphorePermit<'s>,
}

/// Connections of one replica and job at most: transactions are short, and none is open while something is sent.
const CONNECTIONS: usize = 4;
/// Pause between attempts to listen to announcements.
const LISTEN_AGAIN: Duration = Duration::from_secs(10);
/// A call that takes longer is given up: its connection is broken.
const CALL: Duration = Duration::from_secs(20);
/// So does a look, in which another division into cells may be put in force.
const LOOK: Duration = Duration::from_secs(28);
/// The portions that bring up what the side table says of recipients take no more of a look.
const BRINGING_UP: Duration = Duration::from_secs(4);
/// What is left of it then takes no longer.
const DIVIDING: Duration = Duration::from_secs(15);
/// Pauses before rows that other programs hold are marked again; after the last of them they are in doubt.
const AGAIN_MS: [u64; 5] = [50, 100, 200, 500, 1000];

// === impl Shared ===

impl Shared {
    /// From now on all is looked at afresh.
    fn leave(&mut self) {
        self.table = None;
        self.idle.clear();
    }
}

// === impl PgSource ===

impl PgSource {
    /// The table that `params` names, at this address. Connects at the first call.
    #[must_use]
    pub(crate) fn new(address: PgAddress, params: &NotificationsParams) -> Self {
        Self {
            address,
            wanted: Wanted::new(params),
            clock: Clock::system(),
            room: Semaphore::new(CONNECTIONS),
            shared: Mutex::default(),
            heard: Arc::default(),
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self) -> Result<Open<'_>> {
        let room = self.room.acquire().await;
        let room = room.map_err(|_| SourceError::Unfinished)?;
        let kept = {
            let mut shared = self.shared();
            let now = self.clock.now();
            if shared.idle.iter().any(|session| session.is_left(now)) {
                shared.leave();
                shared.search.brought_up.clear();
            }
            shared.idle.retain(|session| !session.is_closed());
            (shared.idle.pop(), shared.table.clone())
        };
        let (session, table) = match kept {
            (Some(session), Some(table)) => {
                // Nothing is under way on it.
                let preparing = self.clock.timeout(CALL, session.prepare(&self.clock));
                preparing.await.map_err(|_| SourceError::Unfinished)?;
                (session, table)
            }
            (session, _) => {
                let session = match session {
                    Some(session) => session,
                    None => Session::connect(&self.address, &self.clock).await?,
                };
                let table = self.look_at_table(&session).await?;
                self.shared().table = Some(table.clone());
                (session, table)
            }
        };
        Ok(Open {
            session,
            table,
            _room: room,
        })
    }

    /// What is asked for, as it is found there. Makes the side tables.
    async fn look_at_table(&self, session: &Session) -> Result<Table> {
        let table = table::inspect(session, &self.wanted).await?;
        side::make(session, &table).await?;
        let told = std::mem::replace(&mut self.shared().told_of_table, true);
        if !told {
            if rows::any_without_id(session, &table).await? {
                warn!(table = table.name, "rows whose id is null are not sent");
            }
            if let Some(missing) = index::missing(session, &table).await? {
                warn!(
                    table = table.name,
                    "the search for unsent rows has no index, and reads rows that were sent: {missing}"
                );
            }
        }
        Ok(table)
    }

    /// Awaits a call, and puts its connection back when it did its work. After an error all is looked at afresh.
    async fn end<T>(
        &self,
        open: &Open<'_>,
        limit: Duration,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let done = match self.clock.timeout(limit, call).await {
            Ok(done) => done,
            Err(_) => Err(SourceError::unanswered(
                open.session.server.clone(),
                "no answer in time".to_owned(),
                true,
            )),
        };
        if done.is_err() {
            self.shared().leave();
        }
        done
    }

    fn keep(&self, open: Open<'_>) {
        self.shared().idle.push(open.session);
    }

    /// Listens to what other sessions announce, where that is wanted. Without it, rows are found at the next look.
    async fn listen(&self) {
        let Some(channel) = &self.wanted.listen else {
            return;
        };
        {
            let mut shared = self.shared();
            let now = self.clock.now();
            let listening = shared.listening.as_ref();
            let listens = listening.is_some_and(|s| !s.is_closed() && !s.is_left(now));
            if listens || shared.listen_again.is_some_and(|at| now < at) {
                return;
            }
            shared.listen_again = Some(now + LISTEN_AGAIN);
        }
        let made = Session::listen(&self.address, &self.clock, channel, &self.heard).await;
        let why = match made {
            Ok(Some(session)) => {
                self.shared().listening = Some(session);
                // What was announced until now was heard by no session of ours.
                self.heard.notify_one();
                return;
            }
            Ok(None) => {
                "the address leads to a pooler, which may give each transaction another session"
                    .to_owned()
            }
            Err(error) => error.to_string(),
        };
        warn!(
            channel,
            why, "announcements of rows are not heard; they are found at the next look"
        );
    }
}

#[async_trait]
impl Source for PgSource {
    async fn pending(&self, now_ms: i64, limit: usize) -> Result<Vec<String>> {
        let open = self.open().await?;
        let mut search = self.shared().search.clone();
        let looking = open.pending(&mut search, now_ms, limit, &self.clock);
        let found = match self.end(&open, LOOK, looking).await {
            Ok(found) => found,
            Err(error) => {
                self.shared().search.brought_up.clear();
                return Err(error);
            }
        };
        let mut told = false;
        {
            let mut shared = self.shared();
            shared.search = search;
            shared.seen = found.cells.iter().cloned().collect();
            if found.settled.layout != open.table.layout {
                told = std::mem::replace(&mut shared.told_of_layout, true);
            }
        }
        if found.settled.layout != open.table.layout && !told {
            warn!(
                table = open.table.name,
                in_force = %found.settled.layout,
                configured = %open.table.layout,
                "another cell size is in force until no batch of it is open"
            );
        }
        let cells = found.cells.iter();
        let mut batches: Vec<String> = cells
            .map(|(number, _)| open.table.batch(found.settled.layout, *number))
            .collect();
        // Intents come last: those of live holders are claimed anyway, those left behind mostly have rows.
        for batch in found.intents {
            if batches.len() < limit && !batches.contains(&batch) {
                batches.push(batch);
            }
        }
        self.keep(open);
        self.listen().await;
        Ok(batches)
    }

    async fn woken(&self) {
        self.heard.notified().await;
    }

    async fn begin(
        &self,
        job: &str,
        batch: &str,
        token: Token,
        policy: Policy,
        now_ms: i64,
    ) -> Result<Begin> {
        let open = self.open().await?;
        let cell = Cell::parse(batch).filter(|cell| cell.source == open.table.source);
        let Some(cell) = cell else {
            self.keep(open);
            return Err(SourceError::NoBatch(batch.to_owned()));
        };
        let from = self.shared().seen.get(&cell.number).cloned();
        let holder = Holder {
            batch,
            token,
            now_ms,
        };
        let beginning = open.begin(&cell, from.as_ref(), job, holder, policy);
        let begun = self.end(&open, CALL, beginning).await?;
        self.keep(open);
        Ok(begun)
    }

    async fn finish(
        &self,
        batch: &str,
        token: Token,
        policy: Policy,
        marks: Vec<(ItemId, Mark)>,
        now_ms: i64,
    ) -> Result<Finish> {
        let (mut marks, mut in_parts) = (marks, false);
        let mut before = Unmarked::default();
        let mut pauses = AGAIN_MS.iter();
        let mut pause = pauses.next();
        loop {
            let open = self.open().await?;
            let holder = Holder {
                batch,
                token,
                now_ms,
            };
            let how = Marking {
                policy,
                last: pause.is_none(),
                in_parts,
            };
            let ending = open.finish(holder, &marks, how);
            let ended = match self.end(&open, CALL, ending).await {
                // One row keeps all others from being marked; which one is seen when they are marked in parts.
                Err(error) if error.is_of_marking() && !in_parts => {
                    in_parts = true;
                    continue;
                }
                ended => ended?,
            };
            self.keep(open);
            let (left, at_once) = match ended {
                Ended::Finished(Finish::Written(unmarked)) => {
                    before.add(unmarked);
                    return Ok(Finish::Written(before));
                }
                Ended::Finished(finish) => return Ok(finish),
                Ended::Left {
                    left,
                    unmarked,
                    at_once,
                } => {
                    before.add(unmarked);
                    (left, at_once)
                }
            };
            marks.retain(|(id, mark)| mark.is_done() && left.contains(id));
            if at_once {
                continue;
            }
            self.clock
                .sleep(Duration::from_millis(pause.copied().unwrap_or_default()))
                .await;
            pause = pauses.next();
        }
    }

    async fn exceptions(&self) -> Result<Exceptions> {
        let open = self.open().await?;
        let exceptions = self.end(&open, CALL, open.exceptions()).await?;
        self.keep(open);
        Ok(exceptions)
    }

    async fn backlog(&self) -> Result<Backlog> {
        let open = self.open().await?;
        let counting = async {
            open.session.begin_to_read(COUNTING).await?;
            let backlog = rows::backlog(&open.session, &open.table).await?;
            open.session.commit().await?;
            Ok(backlog)
        };
        let backlog = self.end(&open, COUNTING * 3, counting).await?;
        self.keep(open);
        Ok(backlog)
    }

    async fn counts(&self) -> Result<Counts> {
        let open = self.open().await?;
        let counting = async {
            open.session.begin_to_read(COUNTING).await?;
            let counts = side::counts(&open.session, &open.table).await?;
            open.session.commit().await?;
            Ok(counts)
        };
        let counts = self.end(&open, COUNTING * 2, counting).await?;
        self.keep(open);
        Ok(counts)
    }
}

// === one call, within its transaction ===

/// Who begins or ends which batch, and when.
#[derive(Clone, Copy)]
struct Holder<'h> {
    batch: &'h str,
    token: Token,
    now_ms: i64,
}

/// What a look found.
struct Found {
    settled: Settled,
    cells: Vec<(i64, ItemId)>,
    intents: Vec<String>,
}

/// How an attempt to end a batch came out.
enum Ended {
    Finished(Finish),
    /// These rows are held by other programs, or were not tried yet; all else is written, and the intent names these alone.
    Left {
        left: BTreeSet<ItemId>,
        unmarked: Unmarked,
        /// There are such as were not tried.
        at_once: bool,
    },
}

/// How rows are marked.
#[derive(Clone, Copy)]
struct Marking {
    policy: Policy,
    /// What other programs still hold is in doubt now.
    last: bool,
    /// In parts: one row that cannot be marked keeps no other from it.
    in_parts: bool,
}

impl Open<'_> {
    async fn pending(
        &self,
        search: &mut Search,
        now_ms: i64,
        limit: usize,
        clock: &Clock,
    ) -> Result<Found> {
        let (session, table) = (&self.session, &self.table);
        session.begin_to_read(STATEMENT).await?;
        let mut settled = side::settled(session, table).await?;
        if settled.as_ref().is_none_or(|s| s.layout != table.layout) {
            session.roll_back().await?;
            settled = Some(self.divide(search, clock).await?);
            session.begin_to_read(STATEMENT).await?;
        }
        let settled = settled.ok_or(SourceError::Unfinished)?;
        let cells = search
            .look(session, table, settled.layout, now_ms, limit)
            .await?;
        let intents = side::open_intents(session, table, limit).await?;
        session.commit().await?;
        Ok(Found {
            settled,
            cells,
            intents,
        })
    }

    /// Puts the configured layout in force, where that may be; says which is. What the side table says of recipients is brought up before,
    /// in short transactions, as far as one look comes with it: the next one goes on.
    async fn divide(&self, search: &mut Search, clock: &Clock) -> Result<Settled> {
        let (session, table) = (&self.session, &self.table);
        let until = clock.now() + BRINGING_UP;
        session.begin(STATEMENT, &table.sql_take_source()).await?;
        let (settled, changes) = side::is_to_change(session, table).await?;
        session.commit().await?;
        if !changes {
            return Ok(settled);
        }
        loop {
            if clock.now() >= until {
                return Ok(settled);
            }
            session.begin(STATEMENT, &table.sql_take_source()).await?;
            let next = side::bring_up(session, table, &search.brought_up).await?;
            session.commit().await?;
            match next {
                Some(next) => search.brought_up = next,
                None => break,
            }
        }
        session.begin(DIVIDING, &table.sql_take_source()).await?;
        let settled = side::put_in_force(session, table).await?;
        session.commit().await?;
        if settled.layout == table.layout {
            search.brought_up.clear();
        }
        Ok(settled)
    }

    async fn begin(
        &self,
        cell: &Cell,
        from: Option<&ItemId>,
        job: &str,
        holder: Holder<'_>,
        policy: Policy,
    ) -> Result<Begin> {
        let (session, table) = (&self.session, &self.table);
        let Holder {
            batch,
            token,
            now_ms,
        } = holder;
        let take = table.sql_take_batch(batch);
        let due = || rows::due(session, table, cell, from, now_ms);
        let due_at_once = async {
            match cell.layout == table.layout {
                true => due().await.map(Some),
                false => Ok(None),
            }
        };
        let ((), settled, last, due_at_once) = try_join4(
            session.begin(STATEMENT, &take),
            side::settled(session, table),
            side::intent(session, table, batch),
            due_at_once,
        )
        .await?;
        let Settled { layout, database } = match settled {
            Some(settled) => settled,
            None => side::settle(session, table).await?,
        };
        if layout != cell.layout {
            session.roll_back().await?;
            return Ok(Begin::OtherCells(layout.to_string()));
        }
        let mut work = Work::default();
        let due_at_once = due_at_once.filter(|_| last.is_none());
        if let Some(last) = last {
            if let Some(other) = last.keeps_out(job, token) {
                session.roll_back().await?;
                return Ok(other);
            }
            let ids: Vec<ItemId> = last.items.ids().cloned().collect();
            let found = rows::look_up(session, table, &ids).await?;
            let (last, named) = (last.token, last.items);
            let doubts: Vec<(&ItemId, Exception)> = found
                .iter()
                .filter_map(|(id, row)| {
                    let doubt = policy.left_behind(row.unsent, row.prior.as_ref(), last)?;
                    Some((id, doubt))
                })
                .collect();
            for (_, doubt) in &doubts {
                match doubt.state {
                    State::Parked => work.parked += 1,
                    _ => work.in_doubt += 1,
                }
            }
            self.record(
                Holder {
                    token: last,
                    ..holder
                },
                &doubts,
            )
            .await?;
            side::note_digests(session, table, &named).await?;
            side::count_doubts(session, table, work.in_doubt + work.parked).await?;
        }
        // After the doubts were recorded: parked items must not be read as work.
        let (items, large) = match due_at_once {
            Some(due) => due,
            None => due().await?,
        };
        let dead = |(id, bytes): &(ItemId, u64)| (id.clone(), Exception::dead(too_large(*bytes)));
        let large: Vec<(ItemId, Exception)> = large.iter().map(dead).collect();
        let dead: Vec<(&ItemId, Exception)> = large.iter().map(|(id, e)| (id, e.clone())).collect();
        self.record(holder, &dead).await?;
        work.dead = dead.len() as u64;
        work.items = table.folded(items, &database, now_ms);
        let items = Named::of(&work.items);
        let intent = async {
            match work.items.is_empty() {
                true => side::remove_intent(session, table, batch).await,
                false => {
                    side::write_intent(session, table, batch, job, token, &items, now_ms).await
                }
            }
        };
        try_join(intent, session.commit()).await?;
        Ok(Begin::Send(work))
    }

    async fn finish(
        &self,
        holder: Holder<'_>,
        marks: &[(ItemId, Mark)],
        how: Marking,
    ) -> Result<Ended> {
        let (session, table) = (&self.session, &self.table);
        let Holder {
            batch,
            token,
            now_ms,
        } = holder;
        let take = table.sql_take_batch(batch);
        let ((), present) = try_join(
            session.begin(STATEMENT, &take),
            side::intent(session, table, batch),
        )
        .await?;
        let last = present.as_ref().map(|intent| intent.token);
        let Some(present) = present.filter(|_| last == Some(token)) else {
            session.roll_back().await?;
            return Ok(Ended::Finished(Finish::Lost(last)));
        };
        // What the intent names no more is settled: an earlier attempt has come so far.
        let named: BTreeSet<&ItemId> = present.items.ids().collect();
        let marks = marks.iter().filter(|(id, _)| named.contains(id));
        let marks: Vec<(ItemId, Mark)> = marks.cloned().collect();
        let (mut sent, mut held, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        let mut left = BTreeSet::new();
        // Repeats come second: they are marked as the row is that was sent.
        for (mark, are_repeats) in [(Mark::Sent, false), (Mark::Duplicate, true)] {
            let of = marks.iter().filter(|(_, done)| *done == mark);
            let ids: Vec<ItemId> = of.map(|(id, _)| id.clone()).collect();
            if how.in_parts {
                let done = rows::mark_in_parts(session, table, &ids, are_repeats, now_ms).await?;
                held.extend(done.left);
                refused.extend(done.refused);
                left.extend(done.untried);
            } else {
                held.extend(rows::mark_sent(session, table, &ids, are_repeats, now_ms).await?);
            }
            sent.extend(ids);
        }
        let at_once = !left.is_empty();
        if !how.last {
            left.extend(held.iter().cloned());
        }
        {
            let refused = refused.iter().map(|(id, _)| id);
            let others: BTreeSet<&ItemId> = left.iter().chain(&held).chain(refused).collect();
            sent.retain(|id| !others.contains(id));
        }
        let open = {
            let sent: BTreeSet<&ItemId> = sent.iter().collect();
            present.items.only(|id| !sent.contains(id))
        };
        let mut exceptions: Vec<(&ItemId, Exception)> = marks
            .iter()
            .filter_map(|(id, mark)| match mark {
                Mark::Sent | Mark::Duplicate => None,
                Mark::Except(exception) => Some((id, exception.clone())),
            })
            .collect();
        let held = held.iter().filter(|_| how.last).map(|id| (id, None));
        let refused = refused.iter().map(|(id, why)| (id, Some(why.as_str())));
        let mut unmarked = Unmarked::default();
        for (id, exception) in self
            .unmarked(held.chain(refused).collect(), &open, how.policy, now_ms)
            .await?
        {
            unmarked.count(&exception);
            exceptions.push((id, exception));
        }
        self.record(holder, &exceptions).await?;
        side::note_digests(session, table, &open).await?;
        let doubts = exceptions.iter().filter(|(_, e)| e.doubted).count();
        side::count_doubts(session, table, doubts as u64).await?;
        let is_over = left.is_empty();
        let held = open.only(|id| left.contains(id));
        let intent = async {
            match is_over {
                true => side::remove_intent(session, table, batch).await,
                // Nothing is locked while others are waited for, and what was marked stays so.
                false => side::narrow_intent(session, table, batch, &held).await,
            }
        };
        let forget = side::forget(session, table, &sent);
        try_join3(forget, intent, session.commit()).await?;
        Ok(match is_over {
            true => Ended::Finished(Finish::Written(unmarked)),
            false => Ended::Left {
                left,
                unmarked,
                at_once,
            },
        })
    }

    /// What becomes of rows that were sent and cannot be marked, each with the database's reason, if it gave one.
    async fn unmarked<'i>(
        &self,
        rows: Vec<(&'i ItemId, Option<&str>)>,
        open: &Named,
        policy: Policy,
        now_ms: i64,
    ) -> Result<Vec<(&'i ItemId, Exception)>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<ItemId> = rows.iter().map(|(id, _)| (*id).clone()).collect();
        let known = rows::look_up(&self.session, &self.table, &ids).await?;
        let keys = open.pause_keys();
        let of = |(id, refusal): (&'i ItemId, Option<&str>)| {
            let prior = known.get(id).and_then(|row| row.prior.clone());
            let key = keys.get(id).map_or("", String::as_str);
            (id, prior, refusal.map(str::to_owned), key)
        };
        Ok(policy.all_unmarked(rows.into_iter().map(of).collect(), now_ms))
    }

    async fn record(&self, holder: Holder<'_>, exceptions: &[(&ItemId, Exception)]) -> Result<()> {
        let records = exceptions.iter().map(|(id, exception)| Record {
            id,
            exception,
            token: holder.token,
            batch: holder.batch,
        });
        let records: Vec<Record<'_>> = records.collect();
        side::record(&self.session, &self.table, &records, holder.now_ms).await
    }

    async fn exceptions(&self) -> Result<Exceptions> {
        let (session, table) = (&self.session, &self.table);
        session.begin_to_read(STATEMENT).await?;
        let listed = format!(
            "FROM {} AS d JOIN {} AS n ON n.{} = {} AND n.{} IS NULL WHERE d.source = $1",
            table.delivery,
            table.sql_name,
            table.sql_id,
            table.sql_id_of_item(),
            table.sql_sent_at
        );
        let source = [(&table.source as _, Type::TEXT)];
        let counts = format!("SELECT d.state, count(*) {listed} GROUP BY 1");
        let items = format!(
            "SELECT {}, d.state, d.attempts, d.not_before, d.reason {listed}
             ORDER BY d.number, d.item COLLATE \"C\" LIMIT 10000",
            table.sql_read_id()
        );
        let mut all = Exceptions {
            counts: side::counted(&session.query(&counts, &source).await?)?,
            ..Exceptions::default()
        };
        for row in &session.query(&items, &source).await? {
            let id = table.id.get(row, 0)?;
            if let Some(exception) = side::exception(row, 1)? {
                all.items.push(Listed { id, exception });
            }
        }
        all.doubted_ever = side::doubted_ever(session, table).await?.unwrap_or(0);
        session.commit().await?;
        Ok(all)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("idle", &self.idle.len())
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
