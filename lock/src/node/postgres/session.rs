//! One connection for calls: how a call becomes a transaction.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::{join, join_all, join3};
use tokio::sync::oneshot;
use tokio_postgres::{Client, Row, error::SqlState, types::ToSql};
use tracing::debug;

use super::{
    address::Server,
    connect::{self, Greeted},
    error,
    history::{self, History, ServerId, TIMELINE},
    kept::{self, Kept},
    layout::{self, quoted},
    rows::{Head, Sql, Unreadable},
    shared::Shared,
    watch,
    written::{RowAddresses, Statement},
};
use crate::{
    clock::Moment,
    node::{
        Announcement, Call, NodeError, NodeMs, Refusal, Reply, announce,
        rules::{self, Gate, Guarded},
        sheet::{Sheet, Wanted},
    },
};

/// The first version that is spoken to.
const OLDEST: i32 = 130_000;
/// Reads of one call at most: each brings what the one before has missed.
const MOST_READS: usize = 1_000;
/// How often what has ended is removed.
const CLEAN_EVERY: Duration = Duration::from_secs(60);
/// The longest text that is announced; PostgreSQL takes less than 8,000 bytes.
const LONGEST_NEWS: usize = 7_500;
/// Connections may take longer to make than calls to answer.
pub(super) const LEAST_CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A connection with what is known of its server.
pub(super) struct Session {
    client: Client,
    /// What this connection keeps, where it leads to one process of the server.
    kept: Option<Kept>,
    /// Dropped with it: whatever is under way is given up.
    _alive: oneshot::Sender<()>,
    /// A call is under way. One that finds it so knows that the call before was given up in the middle.
    busy: bool,
    /// Of the cluster and the database.
    pub(super) identity: String,
    /// How far its server has come.
    history: Option<History>,
    clean_at: Moment,
}

/// Executes a call; connects first where need be.
pub(super) async fn call(
    slot: &mut Option<Session>,
    shared: &Shared,
    call: &Call,
) -> Result<Reply, NodeError> {
    if let Some(why) = shared.furthest.gone() {
        return Err(NodeError::Gone(why.to_owned()));
    }
    let session = ready(slot, shared).await?;
    session.busy = true;
    let limit = shared.settings.node_timeout;
    // The server gives up first: it waits for the row for one limit, and for each statement for two.
    let done = shared
        .clock
        .timeout(limit * 4, session.execute(shared, call))
        .await;
    session.busy = false;
    let done = done.unwrap_or(Err(error::unknown(limit)));
    if let Err(why) = &done {
        debug!(node = %shared.name, cause = why.cause(), %why, "call failed");
        if error::ends_the_connection(why) || session.client.is_closed() {
            *slot = None;
        }
    }
    done
}

/// The connection, made anew where there is none that can be used.
pub(super) async fn ready<'s>(
    slot: &'s mut Option<Session>,
    shared: &Shared,
) -> Result<&'s mut Session, NodeError> {
    let used = shared.settings.address.used();
    let is_left = |session: &Session| {
        let history = session.history.as_ref();
        used.is_stale(shared.clock.now())
            || history.is_some_and(|history| used.has_outlived(history))
    };
    let usable =
        |session: &Session| !session.busy && !session.client.is_closed() && !is_left(session);
    let kept = slot.take().filter(usable);
    let session = match kept {
        Some(session) => session,
        None => {
            if let Some(why) = shared.refused.why(shared.clock.now()) {
                return Err(why);
            }
            let opened = Session::open(shared).await;
            opened.inspect_err(|why| shared.refused.learn(shared.clock.now(), why))?
        }
    };
    Ok(slot.insert(session))
}

/// A server that has said what it is.
struct Met {
    greeted: Greeted,
    server: ServerId,
    /// Of the cluster and the database.
    identity: String,
    /// None of a standby: it follows another one.
    history: Option<History>,
    /// Why it keeps no locks.
    unfit: Option<(Refusal, String)>,
}

// === impl Met ===

impl Met {
    /// Says what it is.
    async fn at(place: usize, server: &Server, shared: &Shared) -> Result<Self, NodeError> {
        let greeted = shared.greet(server).await?;
        let server = ServerId {
            place,
            name: server.name.clone(),
        };
        let facts = format!(
            "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), \
             current_setting('transaction_read_only') = 'on', current_setting('fsync') = 'on', \
             (SELECT oid::text FROM pg_database WHERE datname = current_database()), \
             (SELECT system_identifier::text FROM pg_control_system()), \
             {TIMELINE}"
        );
        let facts = greeted.client.query_typed(&facts, &[]).await;
        let facts = facts.map_err(|e| error::of(&e))?;
        let read = |at: usize| -> Result<bool, NodeError> { get(&facts, at) };
        let version: i32 = get(&facts, 0)?;
        let unfit = if version < OLDEST {
            Some((Refusal::Version, format!("PostgreSQL {}", version / 10_000)))
        } else if read(1)? {
            Some((Refusal::ReadOnly, "it is a standby".to_owned()))
        } else if read(2)? {
            Some((Refusal::ReadOnly, "it is read-only".to_owned()))
        } else if !read(3)? {
            Some((Refusal::NotDurable, "fsync is off".to_owned()))
        } else {
            None
        };
        let (database, system): (String, String) = (get(&facts, 4)?, get(&facts, 5)?);
        let timeline: Option<String> = get(&facts, 6)?;
        Ok(Self {
            greeted,
            server,
            identity: format!("{system}/{database}"),
            history: timeline.map(|timeline| History { system, timeline }),
            unfit,
        })
    }

    /// Refused is what keeps no locks, and a server in whose place another one is: one of these, or one that was used before; and one
    /// that was not, while another server is `mute`.
    fn may_be_used(
        &self,
        shared: &Shared,
        met: &[History],
        mute: Option<&NodeError>,
    ) -> Result<(), NodeError> {
        if let Some((refusal, said)) = &self.unfit {
            return refused(*refusal, said.clone());
        }
        let Some(history) = &self.history else {
            return Ok(());
        };
        let used = shared.settings.address.used();
        if history.has_successor_among(met.iter()) || used.has_outlived(history) {
            return refused(Refusal::ReadOnly, history.outlived(used));
        }
        match mute {
            Some(why) if !used.is(history) => Err(why.clone()),
            _ => Ok(()),
        }
    }
}

/// How much a person learns from it.
fn says(why: &NodeError) -> u8 {
    match why {
        NodeError::Unreachable(_) => 0,
        NodeError::Refused {
            refusal: Refusal::ReadOnly,
            ..
        } => 1,
        _ => 2,
    }
}

/// Why no other server is used, where this one lives and lets this program not in: it may have been promoted in the place of the others.
fn untold(server: &Server, why: &NodeError) -> Option<NodeError> {
    let said = |text: &str| {
        format!(
            "{} does not let this program in, and may have been promoted in the place of the others: {text}",
            server.name
        )
    };
    match why {
        NodeError::Auth(text) => Some(NodeError::Auth(said(text))),
        NodeError::Refused {
            refusal: Refusal::Clients,
            said: text,
        } => Some(NodeError::Refused {
            refusal: Refusal::Clients,
            said: said(text),
        }),
        _ => None,
    }
}

fn refused<T>(refusal: Refusal, said: String) -> Result<T, NodeError> {
    Err(NodeError::Refused { refusal, said })
}

// === impl Session ===

impl Session {
    /// Connects to the first server that is fit to keep locks, and whose place no other one has taken; says of each why it was not that one.
    async fn open(shared: &Shared) -> Result<Self, NodeError> {
        let servers = shared.settings.address.servers();
        let servers = servers.map_err(NodeError::Auth)?;
        let limit = shared.settings.node_timeout.max(LEAST_CONNECT_LIMIT);
        let many = servers.len() > 1;
        let began = shared.clock.now();
        let meeting = servers.iter().enumerate();
        let meeting = meeting.map(|(place, server)| Met::at(place, server, shared));
        let takes_part = |met: &Met| met.history.is_some();
        let met = connect::all(meeting, &shared.clock, limit, takes_part).await;
        let histories = history::of_all(&met, |met| met.history.as_ref());
        let used = shared.settings.address.used();
        for met in met.iter().flatten().flatten() {
            if let Some(history) = &met.history {
                used.met(history, &met.server);
            }
        }
        if many {
            used.asked(began);
        }
        let silent = || NodeError::Unreachable("no connection in time".to_owned());
        let mut others = servers.iter().zip(&met);
        let mute = others.find_map(|(server, met)| untold(server, met.as_ref()?.as_ref().err()?));
        let mut first = None;
        for (server, met) in servers.iter().zip(met) {
            let opening = async {
                let met = met.unwrap_or_else(|| Err(silent()))?;
                met.may_be_used(shared, &histories, mute.as_ref())?;
                Self::with(met, shared).await
            };
            let why = match shared.clock.timeout(limit, opening).await {
                Ok(Ok(session)) => return Ok(session),
                Ok(Err(why)) => why,
                Err(_) => silent(),
            };
            debug!(node = %shared.name, server = server.name, %why, "no connection");
            // A server that answers says more than one that is silent, and a primary more than a standby.
            if first.as_ref().is_none_or(|known| says(known) < says(&why)) {
                first = Some(match (many, why) {
                    (true, NodeError::Unreachable(why)) => {
                        NodeError::Unreachable(format!("{}: {why}", server.name))
                    }
                    (_, why) => why,
                });
            }
        }
        Err(first.unwrap_or_else(|| NodeError::Unreachable("it names no server".to_owned())))
    }

    async fn with(met: Met, shared: &Shared) -> Result<Self, NodeError> {
        let Met {
            greeted,
            server,
            identity,
            history,
            ..
        } = met;
        let client = greeted.client;
        if let Some((servers, place)) = shared.joined.get()
            && let Err(twin) = servers.reached(*place, &shared.name, &identity)
        {
            let said = format!("it is the server of {twin}, too");
            return refused(Refusal::Twin, said);
        }
        let mut session = Self {
            client,
            kept: None,
            _alive: greeted.alive,
            busy: false,
            identity,
            history,
            clean_at: shared.clock.now() + CLEAN_EVERY,
        };
        // Within limits, or what waits there would go on waiting when we have given up.
        let opening = opening("READ COMMITTED", LEAST_CONNECT_LIMIT / 4);
        session.batch(&opening).await?;
        if let Err(why) = session.prepare(shared).await {
            session.roll_back().await;
            return Err(why);
        }
        session.batch("COMMIT").await?;
        if greeted.is_direct && !shared.pooled.load(Ordering::Relaxed) {
            let limit = shared.settings.node_timeout;
            let (often, pooled) = (shared.sql.often(), Arc::clone(&shared.pooled));
            let (life, process) = (Sql::flushed(), greeted.process);
            let keeping = Kept::by(&session.client, process, limit, &often, &life, pooled);
            session.kept = match keeping.await {
                Ok(kept) => Some(kept),
                // It does as well without.
                Err(why) if why.as_db_error().is_some() => {
                    debug!(node = %shared.name, %why, "nothing is kept on a connection");
                    let clash = why.code() == Some(&SqlState::DUPLICATE_PSTATEMENT);
                    shared.pooled.fetch_or(clash, Ordering::Relaxed);
                    None
                }
                Err(why) => return Err(error::of(&why)),
            };
        }
        let address = &shared.settings.address;
        if let Some(history) = &session.history {
            address.used().note(history, &server);
        }
        watch::begin(address, &shared.clock, &shared.spawn);
        Ok(session)
    }

    /// Sees to it that the tables stand, and makes them where they do not and this user may.
    async fn prepare(&self, shared: &Shared) -> Result<(), NodeError> {
        let schema = &shared.settings.schema;
        let stands = "SELECT to_regclass($1) IS NOT NULL";
        let table = format!("{}.node", quoted(schema));
        let params = [(
            &table as &(dyn ToSql + Sync),
            tokio_postgres::types::Type::TEXT,
        )];
        let stands = self.client.query_typed(stands, &params).await;
        let stands: bool = get(&stands.map_err(|why| error::of(&why))?, 0)?;
        if !stands {
            // Programs that start together make them one after the other.
            let making = format!(
                "SELECT pg_advisory_xact_lock({}); {}",
                i64::from_ne_bytes(crate::hash::fnv1a(schema.bytes()).to_ne_bytes()),
                layout::ddl(schema)
            );
            if let Err(why) = self.client.batch_execute(&making).await {
                return Err(match error::of(&why) {
                    NodeError::Auth(why) => NodeError::Refused {
                        refusal: Refusal::Tables,
                        said: format!("the schema \"{schema}\" is not there, and: {why}"),
                    },
                    other => other,
                });
            }
        }
        let namespace = &shared.settings.namespace;
        let params = [(
            namespace as &(dyn ToSql + Sync),
            tokio_postgres::types::Type::TEXT,
        )];
        let made = self
            .client
            .query_typed(&shared.sql.first_row, &params)
            .await;
        made.map(drop).map_err(|e| error::of(&e))
    }

    async fn batch(&self, sql: &str) -> Result<(), NodeError> {
        let done = self.client.batch_execute(sql).await;
        done.map_err(|e| error::of(&e))
    }

    async fn execute(&mut self, shared: &Shared, call: &Call) -> Result<Reply, NodeError> {
        let wanted = Wanted::by(call);
        // Before anything is asked: what another connection sees meanwhile says nothing of what this one is told.
        let asked = Asked {
            shared,
            call,
            seen: shared.furthest.so_far(),
        };
        if call.ops.iter().all(rules::only_looks) {
            return self.look(&asked, wanted).await;
        }
        // Not `READ WRITE`: a server that was told to take no writes, so that another one may, would take them all the same.
        let opening = self.opening("READ COMMITTED", shared.settings.node_timeout);
        let namespace = &shared.settings.namespace;
        let take = shared.sql.take(namespace);
        let statements = shared.sql.read(namespace, &wanted);
        // Three statements: what is read must have been committed before the row was taken.
        let begin = self.client.batch_execute(&opening);
        let lock = kept::ask(&self.client, self.kept.as_ref(), &take);
        let sent = join3(begin, lock, self.send(&statements)).await;
        let read = match sent {
            (Ok(()), Ok(locked), read) if locked.len() == 1 => read,
            (Ok(()), Ok(_), _) => {
                self.roll_back().await;
                return Err(NodeError::Refused {
                    refusal: Refusal::Tables,
                    said: "the namespace's row is gone".to_owned(),
                });
            }
            (Err(why), ..) => {
                self.roll_back().await;
                return Err(error::of(&why));
            }
            (_, Err(why), _) => {
                self.roll_back().await;
                return Err(why);
            }
        };
        let decided = match read {
            Ok(answers) => self.decide(&asked, wanted, answers).await,
            Err(why) => Err(why),
        };
        let mut decided = match decided {
            Ok(decided) => decided,
            Err(why) => {
                self.roll_back().await;
                return Err(why);
            }
        };
        let news = decided.sheet.take_announced();
        let changes = decided.sheet.changes();
        let statements = match changes.is_empty() && decided.gate.is_none() {
            // Nothing depends on its end.
            true => {
                self.end_soon();
                return Ok(decided.reply);
            }
            false => {
                let changes = (&changes, &decided.addresses);
                shared.sql.write(namespace, changes, decided.gate)
            }
        };
        let commit = self.client.batch_execute("COMMIT");
        // What this commit has put on the disk counts from now on.
        let flushed = Sql::flushed();
        let after = kept::ask(&self.client, self.kept.as_ref(), &flushed);
        let (written, committed, after) = join3(self.write(&statements), commit, after).await;
        match (written, committed) {
            (Ok(true), Ok(())) => {}
            // A row that somebody changed by hand meanwhile was left out: of what was answered nobody knows what stands.
            (Ok(_) | Err(NodeError::Unreachable(_)), _) => {
                return Err(error::unknown(shared.settings.node_timeout));
            }
            // What was refused has been rolled back, whatever was answered to its end.
            (Err(refused), _) => return Err(refused),
        }
        if let Some(row) = after.ok().and_then(|rows| rows.into_iter().next())
            && let (Ok(life), Ok(flushed)) =
                (row.try_get::<_, Option<&str>>(0), row.try_get::<_, i64>(1))
            && let Some(life) = life.or(self.kept.as_ref().map(|kept| &*kept.life))
        {
            shared
                .furthest
                .has_seen(life, u64::try_from(flushed).unwrap_or(0));
        }
        self.announce(&shared.channel(), &news);
        if shared.clock.now() >= self.clean_at {
            self.clean_at = shared.clock.now() + CLEAN_EVERY;
            self.clean(shared, decided.reply.at);
        }
        Ok(decided.reply)
    }

    /// Looks without holding up any writer: at locks or documents by one statement, at all else within one view of the whole.
    async fn look(&mut self, asked: &Asked<'_>, wanted: Wanted) -> Result<Reply, NodeError> {
        let shared = asked.shared;
        let namespace = &shared.settings.namespace;
        let statements = shared.sql.read(namespace, &wanted);
        let limit = shared.settings.node_timeout;
        let is_of_one_moment = wanted.only_locks() || wanted.only_docs();
        if let ([_], Some(kept)) = (&*statements, &self.kept)
            && is_of_one_moment
            && kept.limit == limit
            && kept.plain
        {
            // One statement sees one moment, and has the limits of this connection: it needs no transaction around it.
            let answers = self.send(&statements).await?;
            let decided = self.decide(asked, wanted, answers).await?;
            return Ok(decided.reply);
        }
        if is_of_one_moment {
            // In a transaction it has limits, also where the client has given up.
            let opening = self.opening("READ COMMITTED, READ ONLY", limit);
            let begin = self.client.batch_execute(&opening);
            let end = self.client.batch_execute("COMMIT");
            let (begun, read, _) = join3(begin, self.send(&statements), end).await;
            begun.map_err(|why| error::of(&why))?;
            let decided = self.decide(asked, wanted, read?).await?;
            return Ok(decided.reply);
        }
        // Walks may take longer.
        let walks = !wanted.names.is_empty() || !wanted.doc_names.is_empty();
        let limit = if walks { limit * 2 } else { limit };
        let opening = self.opening("REPEATABLE READ, READ ONLY", limit);
        let begin = self.client.batch_execute(&opening);
        let (begun, read) = join(begin, self.send(&statements)).await;
        let decided = match (begun, read) {
            (Ok(()), Ok(answers)) => self.decide(asked, wanted, answers).await,
            (Err(why), _) => Err(error::of(&why)),
            (_, Err(why)) => Err(why),
        };
        self.end_soon();
        Ok(decided?.reply)
    }

    /// What becomes of the call, by the rules. Reads what they miss.
    async fn decide(
        &self,
        asked: &Asked<'_>,
        mut wanted: Wanted,
        mut answers: Vec<Vec<Row>>,
    ) -> Result<Decided, NodeError> {
        let Asked { shared, call, seen } = asked;
        let unreadable = |Unreadable(why)| NodeError::Protocol(why);
        let (mut sheet, mut addresses) = (Sheet::default(), RowAddresses::new());
        let mut first: Option<Head> = None;
        for _ in 0..MOST_READS {
            let into = (&mut sheet, &mut addresses);
            let head = Sql::fill(into, &wanted, &answers).map_err(unreadable)?;
            if let Some(kept) = &self.kept {
                kept.compare(head.process)?;
            }
            // A call is executed at one instant: that of its first look.
            let head = first.get_or_insert(head);
            let life = match (&self.kept, &head.life) {
                (Some(kept), None) => kept.life.clone(),
                (_, Some(life)) => life.clone(),
                (None, None) => return Err(unreadable(Unreadable("no life".to_owned()))),
            };
            let Some(node) = &head.node else {
                return Err(NodeError::Refused {
                    refusal: Refusal::Tables,
                    said: "the namespace's row is gone".to_owned(),
                });
            };
            if node.layout != layout::LAYOUT {
                return Err(NodeError::Refused {
                    refusal: Refusal::Layout,
                    said: format!(
                        "the tables are of layout {}, this program knows {}",
                        node.layout,
                        layout::LAYOUT
                    ),
                });
            }
            // Another database, other tables, another history: what was granted before is not known here.
            let incarnation = format!("{life}:{}", node.made);
            if let Some((of, floor)) = seen
                && *of == life
                && head.flushed < *floor
            {
                let why = format!(
                    "the database is a copy from before (its log ends at {:x}, {floor:x} was seen)",
                    head.flushed
                );
                return Err(NodeError::Gone(shared.furthest.is_gone(why).to_owned()));
            }
            shared.furthest.has_seen(&life, head.flushed);
            // Who looks at what others have left would wait there, and find each write refused.
            let Some(wall_ms) = head.now else {
                return refused(Refusal::ReadOnly, "it is read-only".to_owned());
            };
            let now = NodeMs(u64::try_from(wall_ms).unwrap_or(0));
            rules::admit(now, call)?;
            sheet.begin_again();
            sheet.set_read_forgotten(node.forgotten);
            let stood = Gate::read(&node.gate);
            let mut gate = stood.clone();
            let compared = shared.compared.with();
            let guarded = compared.map(|(config, guarded)| Guarded {
                incarnation: if guarded { &incarnation } else { "" },
                config,
            });
            let executed = match guarded {
                Some(_) => {
                    rules::execute_guarded(&mut sheet, (&mut gate, guarded), now, wall_ms, call)
                }
                None => rules::execute(&mut sheet, now, wall_ms, call),
            };
            match executed {
                Ok(reply) => {
                    return Ok(Decided {
                        reply,
                        gate: (gate != stood).then(|| gate.written()),
                        sheet,
                        addresses,
                    });
                }
                Err(missing) => wanted = Wanted::missing(missing),
            }
            let statements = shared.sql.read(&shared.settings.namespace, &wanted);
            answers = self.send(&statements).await?;
        }
        Err(NodeError::Protocol("it has no end".to_owned()))
    }

    /// Sends these statements together. Their answers, in order, or the first error.
    async fn send(&self, statements: &[Statement]) -> Result<Vec<Vec<Row>>, NodeError> {
        let sent = statements
            .iter()
            .map(|statement| kept::ask(&self.client, self.kept.as_ref(), statement));
        let mut answers = Vec::new();
        for answer in join_all(sent).await {
            answers.push(answer?);
        }
        Ok(answers)
    }

    /// The same for what writes: whether all rows were written that must be.
    async fn write(&self, statements: &[Statement]) -> Result<bool, NodeError> {
        let sent = statements
            .iter()
            .map(|statement| kept::write(&self.client, self.kept.as_ref(), statement));
        let mut all = true;
        for written in join_all(sent).await {
            all &= written?;
        }
        Ok(all)
    }

    /// What begins a transaction.
    fn opening(&self, mode: &str, limit: Duration) -> String {
        match &self.kept {
            Some(kept) if kept.limit == limit => format!("BEGIN ISOLATION LEVEL {mode}"),
            _ => opening(mode, limit),
        }
    }

    async fn roll_back(&self) {
        _ = self.client.batch_execute("ROLLBACK").await;
    }

    /// Ends a transaction that has changed nothing. What comes next is executed after it.
    fn end_soon(&self) {
        post(self.client.batch_execute("ROLLBACK"));
    }

    /// Removes some of what has ended, in a transaction of its own.
    fn clean(&self, shared: &Shared, now: NodeMs) {
        let opening = self.opening("READ COMMITTED", shared.settings.node_timeout);
        post(self.client.batch_execute(&opening));
        for statement in shared.sql.clean(&shared.settings.namespace, now) {
            let params: Vec<_> = statement.params.iter().map(kept::typed).collect();
            post(self.client.query_typed(&statement.sql, &params));
        }
        post(self.client.batch_execute("COMMIT"));
    }

    /// Tells of releases, which are committed. Nothing depends on it.
    fn announce(&self, channel: &str, news: &[Announcement]) {
        if news.is_empty() {
            return;
        }
        let text = announce::written(news);
        let text = match text.len() <= LONGEST_NEWS {
            true => text,
            // To look everywhere.
            false => String::new(),
        };
        let sql = format!(
            // Nobody waits for a disk to be told.
            "SELECT set_config('synchronous_commit', 'off', true), pg_notify('{channel}', '{}')",
            text.replace('\'', "''")
        );
        post(self.client.batch_execute(&sql));
    }
}

/// A call, and what was known when it was asked.
struct Asked<'c> {
    shared: &'c Shared,
    call: &'c Call,
    /// How much of which life's log had been seen.
    seen: Option<(String, u64)>,
}

/// What became of a call, before it is written.
struct Decided {
    reply: Reply,
    sheet: Sheet,
    addresses: RowAddresses,
    gate: Option<String>,
}

/// Hands a statement to the connection, and does not wait for its answer.
fn post<T>(sending: impl Future<Output = T>) {
    let mut sending = Box::pin(sending);
    let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
    // The first poll puts it on the line.
    _ = sending.as_mut().poll(&mut nobody);
}

fn get<T: tokio_postgres::types::FromSqlOwned>(rows: &[Row], at: usize) -> Result<T, NodeError> {
    let row = rows.first();
    let row = row.ok_or_else(|| NodeError::Protocol("no row".to_owned()))?;
    row.try_get(at)
        .map_err(|error| NodeError::Protocol(error.to_string()))
}

/// Settings hold for one transaction, so that they also hold behind a pooler. One statement makes all of them.
fn opening(mode: &str, limit: Duration) -> String {
    format!(
        "BEGIN ISOLATION LEVEL {mode}; \
         SELECT {}, \
             CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') \
                 THEN set_config('synchronous_commit', 'on', true) END",
        kept::limits(limit, true)
    )
}
