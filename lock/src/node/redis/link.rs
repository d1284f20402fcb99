//! One connection that carries a node's lock traffic, and what happens when it breaks.
//!
//! # States            new -> connecting -> up(line) -> down(why) -> up(line) ...
//! # Invariants
//! - Requests leave in the order in which their calls were first polled, also while connecting.
//! - Nothing is sent again behind a younger request: after NOSCRIPT it is refused instead. The server is taught the scripts at
//!   once, so that what is sent from then on is executed.   (a_forgotten_script_costs_only_what_was_under_way)
//! - A node that is down answers at once with why; it is probed by a task, never by a call.
//!   (`a_frozen_node_times_out_promptly_then_fails_at_once_and_comes_back`)
//! - A stall of our own is not held against the node. (`an_answer_that_waited_while_we_were_stalled_counts`)
//! - A request goes on when its caller has gone, so that a silent node is noticed however impatient the callers are: it has a
//!   task, unless a link of the quorum carries it, which carries it to its end.
//! - Connections are made one after the other, from the start of one to that of the next [`LONGEST_PAUSE`] or nearly so,
//!   also when each breaks as soon as it is made. (`a_server_that_hangs_up_is_not_stormed`)
//! - A server that became a replica, loads, or took rights away is looked at anew before it serves again.
//!   (`a_master_that_became_a_replica_is_looked_at_anew`)
//! - A server that began to evict since it was looked at is refused: it is looked at from time to time, and as soon as its marker is gone.
//!   (`eviction_switched_on_under_a_living_connection_is_noticed`)
//! - Where servers take each other's place, nothing is sent but to the one that a majority has named a few seconds ago: see `route`.
//!   (`without_a_majority_of_sentinels_no_vote_is_asked_for_and_it_comes_back`)
//! - No connection is made to the server that another node of the fleet has reached.
//!   (`an_address_that_leads_to_the_server_of_another_node_is_refused`)
//! # When things fail
//! A request without an answer takes the connection out of service: what it did is unknown, and a connection that leads nowhere
//! looks the same. It is asked for one answer more: a server that is only slow serves on over the line that it has, since
//! connections cost it more than calls, and a thousand clients that all connect anew would keep it slow.
//! (`a_server_that_is_slow_keeps_its_connections`) Where that answer does not come, the task makes the next connection.
//!
//! Whether the node is worth asking is decided above, for all its connections: see `quorum::node_health`, which says what differs.

mod live;
mod sent;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use deadpool_redis::redis::{RedisError, Value, aio::MultiplexedConnection, cmd, from_redis_value};
use tokio::{
    sync::{oneshot, watch},
    task::unconstrained,
};
use tracing::{debug, info, warn};

use super::{
    preflight::{self, Identity},
    rights::{self, Missing},
    route::{Route, RouteState},
    script::{self, Layout, Peer, Prepared},
    trouble::{self, Scrub},
};
use crate::{
    backoff::Backoff,
    chance::Chance,
    clock::{Clock, Moment},
    node::{Call, NodeError, Refusal, Reply},
    spawn::Spawn,
};
use live::{LiveConnection, Request, Seat, ask_all, between_looks_ms, put_on};
use sent::{SentRequest, Watched};

/// For so many time limits of a call, and no longer than a second or one of them, a line that was silent may still have an answer
/// before another is made.
const LIMITS_TO_GIVE_UP: u32 = 4;
const LONGEST_DOUBT: Duration = Duration::from_secs(1);

/// The time from one attempt to connect to the next, at first and at last: a node that is back is used within a second.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(50);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// A connection that lasted shorter is a failed attempt: the next one waits longer.
pub(super) const LASTING: Duration = Duration::from_secs(1);

/// A handle on the connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Link(Arc<Shared>);

/// What a link is made of.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) route: Route,
    /// The number of the database.
    pub(super) db: i64,
    pub(super) layout: Arc<Layout>,
    /// How long a call waits for its answer.
    pub(super) limit: Duration,
    /// How long making a connection may take.
    pub(super) connect_limit: Duration,
    pub(super) scrub: Scrub,
    pub(super) clock: Clock,
    pub(super) spawn: Spawn,
}

struct Shared {
    parts: Parts,
    status: watch::Sender<Status>,
    /// Held while a request is put on the line, so that requests leave in order. Tokio's mutex is fair.
    turn: tokio::sync::Mutex<()>,
    pauses: Mutex<Backoff>,
    /// The life of the server that was taught the scripts.
    taught: Mutex<String>,
    chance: Chance,
}

#[derive(Clone)]
enum Status {
    /// Not asked yet: connections belong to the runtime of the first caller.
    New,
    /// The first attempt of all is under way and worth waiting for.
    Connecting,
    Up(Arc<LiveConnection>),
    /// A task is probing.
    Down(NodeError),
}

// === impl Link ===

impl Link {
    pub(super) fn new(parts: Parts) -> Self {
        let status = watch::Sender::new(Status::New);
        Self(Arc::new(Shared {
            parts,
            status,
            turn: tokio::sync::Mutex::new(()),
            pauses: Mutex::new(Backoff::new(FIRST_PAUSE, LONGEST_PAUSE)),
            taught: Mutex::default(),
            chance: Chance::system(),
        }))
    }

    /// A link of its own to the same server.
    pub(super) fn another(&self) -> Self {
        let mut parts = self.0.parts.clone();
        parts.route = parts.route.another();
        Self::new(parts)
    }

    /// Runs the script; at most one round trip when the server knows it.
    pub(super) async fn run(&self, call: Prepared) -> Result<Reply, NodeError> {
        let (sent, request) = self.put(call).await?;
        let (answer, answered) = oneshot::channel();
        let limit = self.0.parts.limit;
        self.0.parts.spawn.spawn(async move {
            // A caller that has gone does not want the answer.
            _ = answer.send(sent.end(request, Watched::Here).await);
        });
        // The task ends without an answer only when its runtime is shut down.
        answered.await.unwrap_or(Err(NodeError::Timeout(limit)))
    }

    /// The same without a task and a timer: a caller that drops it before its end has found that there was no answer in time.
    pub(super) async fn carry(&self, call: Prepared) -> Result<Reply, NodeError> {
        let (sent, request) = self.put(call).await?;
        sent.end(request, Watched::ByCaller).await
    }

    async fn put(&self, call: Prepared) -> Result<(SentRequest, Request), NodeError> {
        let shared = &self.0;
        let started = shared.parts.clock.now();
        let deadline = started + shared.parts.limit;

        let turn = match shared.turn.try_lock() {
            Ok(turn) => turn,
            // Unconstrained: a busy task's budget must not cost a call its place in the line.
            Err(_) => {
                let turn = unconstrained(shared.turn.lock());
                shared.before(deadline, turn).await?
            }
        };
        let line = shared.line(deadline).await?;
        shared.is_in_charge(&line, deadline).await?;
        let number = line.sent.fetch_add(1, Ordering::Relaxed) + 1;
        let peer = line.peer();
        let request = put_on(&line, call.by_digest(&peer)).await;
        drop(turn);
        let sent = SentRequest {
            shared: shared.clone(),
            line,
            call,
            peer,
            number,
            started,
            deadline,
            over: false,
        };
        Ok((sent, request))
    }

    /// The server at the other end; waits for the first connection.
    pub(super) async fn identity(&self) -> Result<Identity, NodeError> {
        // It is made in two steps.
        let deadline = self.0.parts.clock.now() + self.0.parts.connect_limit * 2;
        self.0
            .line(deadline)
            .await
            .map(|line| line.identity.clone())
    }

    /// The server at the other end when the connection was made; `None` while there is none.
    pub(super) fn last_identity(&self) -> Option<Identity> {
        match &*self.0.status.borrow() {
            Status::Up(line) => Some(line.identity.clone()),
            _ => None,
        }
    }
}

// === impl Shared ===

impl Shared {
    /// The line, or why there is none. Waits only for the very first connection.
    async fn line(self: &Arc<Self>, deadline: Moment) -> Result<Arc<LiveConnection>, NodeError> {
        if let Status::Up(line) = &*self.status.borrow() {
            return Ok(line.clone());
        }
        let mut status = self.status.subscribe();
        loop {
            let now = status.borrow_and_update().clone();
            match now {
                Status::Up(line) => return Ok(line),
                Status::Down(why) => return Err(why),
                Status::Connecting => {
                    // The sender lives as long as `self`, so a change is the only way out.
                    if let Err(late) = self.before(deadline, status.changed()).await {
                        self.change(|now| match now {
                            Status::Connecting => Some(Status::Down(late.clone())),
                            _ => None,
                        });
                        return Err(late);
                    }
                }
                Status::New => {
                    let first = self.change(|now| match now {
                        Status::New => Some(Status::Connecting),
                        _ => None,
                    });
                    if first {
                        self.connect_from_now_on(Duration::ZERO, None);
                    }
                }
            }
        }
    }

    /// Whether the server of this line is still the one to be asked; a line to another one is over.
    async fn is_in_charge(
        self: &Arc<Self>,
        line: &Arc<LiveConnection>,
        deadline: Moment,
    ) -> Result<(), NodeError> {
        let Route::Asked(finder) = &self.parts.route else {
            return Ok(());
        };
        let mut state = finder.state_of(&line.reach);
        let mut asked = Ok(());
        if state == RouteState::Unsure {
            // What takes longer is left to the task that connects.
            asked = self.before(deadline, finder.ask()).await.flatten();
            state = finder.state_of(&line.reach);
        }
        let why = match (state, asked) {
            (RouteState::Over(why), _) | (_, Err(why)) => why,
            (RouteState::Sure, Ok(())) => return Ok(()),
            (RouteState::Due, Ok(())) => {
                finder.look(&self.parts.spawn);
                return Ok(());
            }
            (RouteState::Unsure, Ok(())) => {
                NodeError::Unreachable("it took too long to hear who is in charge".to_owned())
            }
        };
        self.broke(line, why.clone());
        Err(why)
    }

    /// Waits before anything was sent.
    async fn before<T>(
        &self,
        deadline: Moment,
        work: impl Future<Output = T>,
    ) -> Result<T, NodeError> {
        let late = |_| NodeError::Unreachable("still connecting".to_owned());
        self.parts
            .clock
            .timeout_at(deadline, work)
            .await
            .map_err(late)
    }

    fn change(&self, next: impl FnOnce(&Status) -> Option<Status>) -> bool {
        self.status.send_if_modified(|status| match next(status) {
            Some(changed) => {
                *status = changed;
                true
            }
            None => false,
        })
    }

    /// This line is over, whatever else is still on it.
    fn broke(self: &Arc<Self>, line: &Arc<LiveConnection>, why: NodeError) {
        if self.lost(line, why) {
            line.seat.leave();
            self.connect_from_now_on(self.pause(), None);
        }
    }

    /// No answer came in time: the line is broken, or the server slow.
    fn was_silent(self: &Arc<Self>, line: &Arc<LiveConnection>) {
        let why = NodeError::Unreachable("no answer in time".to_owned());
        if self.lost(line, why) {
            self.connect_from_now_on(self.pause(), Some(line.clone()));
        }
    }

    /// Takes the line out of service. Whether it was in service until now.
    fn lost(&self, line: &Arc<LiveConnection>, why: NodeError) -> bool {
        let was_current = self.change(|now| match now {
            Status::Up(current) if Arc::ptr_eq(current, line) => Some(Status::Down(why.clone())),
            _ => None,
        });
        if was_current {
            info!(node = %self.parts.name, cause = why.cause(), %why, "node lost");
            if self.parts.clock.now().since(line.made) >= LASTING {
                self.pauses().reset();
            }
        }
        was_current
    }

    /// Whether the server is still fit to keep locks: its configuration may change under a connection. Any trouble on the way
    /// is met by the calls, too.
    fn look_again(self: &Arc<Self>, line: &Arc<LiveConnection>) {
        let (shared, line) = (self.clone(), line.clone());
        self.parts.spawn.spawn(async move {
            let Parts {
                clock,
                layout,
                connect_limit,
                ..
            } = &shared.parts;
            let told = clock.timeout(*connect_limit, line.info()).await;
            let Ok(Some(info)) = told else { return };
            if let Err(why @ NodeError::Refused { .. }) = preflight::judge(&info, layout.raw) {
                shared.tell(&why);
                shared.broke(&line, why);
            }
        });
    }

    fn pauses(&self) -> MutexGuard<'_, Backoff> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pause(&self) -> Duration {
        self.pauses().next(&self.chance)
    }

    /// What a person must know once, and not at each attempt.
    fn tell(&self, why: &NodeError) {
        let known =
            matches!(&*self.status.borrow(), Status::Down(known) if known.cause() == why.cause());
        match why {
            NodeError::Refused { .. } | NodeError::Tls(_) | NodeError::Protocol(_) if !known => {
                warn!(node = %self.parts.name, cause = why.cause(), %why, "node not usable");
            }
            _ => debug!(node = %self.parts.name, cause = why.cause(), %why, "node not connected"),
        }
    }

    /// Starts the task that connects, after a pause, until it succeeds or the node has been dropped. A `silent` line that has an
    /// answer by then serves on.
    fn connect_from_now_on(
        self: &Arc<Self>,
        first_pause: Duration,
        silent: Option<Arc<LiveConnection>>,
    ) {
        let (clock, raw) = (self.parts.clock.clone(), self.parts.layout.raw);
        let limit = self.parts.limit;
        let given_up = GiveUp {
            of: Arc::downgrade(self),
        };
        self.parts.spawn.spawn(async move {
            let began = clock.now();
            let mut at = began + first_pause;
            if let Some(line) = silent {
                // What turns out to be broken is replaced as soon as any other.
                let doubt = (limit * LIMITS_TO_GIVE_UP).min(LONGEST_DOUBT.max(limit));
                let give_up = began + doubt.max(first_pause);
                if let Ok(true) = clock.timeout_at(give_up, line.is_itself(raw)).await {
                    let Some(shared) = given_up.of.upgrade() else { return };
                    info!(node = %shared.parts.name, "node was slow");
                    line.forget_marker();
                    given_up.disarm();
                    shared.status.send_replace(Status::Up(line));
                    return;
                }
                line.seat.leave();
            }
            loop {
                clock.sleep_until(at).await;
                let Some(shared) = given_up.of.upgrade() else { return };
                let began = clock.now();
                match shared.connect().await {
                    Ok(line) => {
                        info!(node = %shared.parts.name, run_id = line.identity.run_id, "node connected");
                        // First: once it is up, another task may be in charge.
                        given_up.disarm();
                        shared.status.send_replace(Status::Up(Arc::new(line)));
                        return;
                    }
                    Err(why) => {
                        shared.tell(&why);
                        shared.status.send_replace(Status::Down(why));
                    }
                }
                // From start to start, for an attempt at a silent host takes long; but never without a pause.
                at = (began + shared.pause()).max(clock.now() + FIRST_PAUSE / 2);
            }
        });
    }

    async fn connect(&self) -> Result<LiveConnection, NodeError> {
        let Parts {
            route,
            db,
            clock,
            scrub,
            limit,
            connect_limit,
            ..
        } = &self.parts;
        let reach = route.reach().await?;
        // Each step for itself: where it takes long because many connect at once, to begin anew would make it longer.
        let silent = |_| NodeError::Unreachable("no connection in time".to_owned());
        let checked_out = clock.timeout(*connect_limit, reach.pool.get()).await;
        let checked_out = checked_out
            .map_err(silent)?
            .map_err(|e| trouble::no_pooled(&e, scrub))?;
        let connection = MultiplexedConnection::clone(&checked_out);
        let seat = Seat(Mutex::new(Some(checked_out)));
        let looked = clock.timeout(*connect_limit, self.look_at(&connection));
        let identity = looked.await.map_err(silent)??;
        // One that was put back in charge is another than it was: see `route`.
        let epoch = match reach.epoch {
            0 => String::new(),
            epoch => format!("/{epoch}"),
        };
        let peer = Peer {
            server: format!("{}/{db}{epoch}", identity.run_id),
            marker: None,
        };
        Ok(LiveConnection {
            reach,
            connection,
            seat,
            identity,
            made: clock.now(),
            sent: AtomicU64::new(0),
            taught: AtomicU64::new(0),
            peer: Mutex::new(Arc::new(peer)),
            next_look_ms: AtomicU64::new(between_looks_ms(*limit)),
        })
    }

    /// Decides whether the server and its user are fit to keep locks, and teaches it the scripts, unless it knows them from an
    /// earlier connection: two round trips at most.
    async fn look_at(&self, connection: &MultiplexedConnection) -> Result<Identity, NodeError> {
        let Parts {
            layout,
            scrub,
            name,
            ..
        } = &self.parts;
        let no_ops = Call {
            not_after: None,
            ops: Vec::new(),
        };
        let asked = [
            cmd("INFO"),
            rights::ask(layout),
            Prepared::new(layout, no_ops).by_digest(&Peer::default()),
        ];
        let mut answers = ask_all(connection, asked).await.into_iter();
        let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
        let (info, rights, called) = (next(), next(), next());

        let trouble = |e: RedisError| trouble::no_connection(&e, scrub);
        let lacks = |e: &RedisError| {
            matches!(
                trouble::no_connection(e, scrub),
                NodeError::Refused {
                    refusal: Refusal::NoPerm,
                    ..
                }
            )
        };
        let info = match info {
            Err(e) if lacks(&e) => return Missing::of("+info").refuse().and(Err(trouble(e))),
            info => info.map_err(trouble)?,
        };
        let info: String = from_redis_value(info)
            .map_err(|_| NodeError::Protocol("INFO is no text".to_owned()))?;
        let identity = preflight::judge(&info, layout.raw)?;
        layout.reached(name, &identity.run_id)?;

        let mut missing = match &rights {
            Ok(answer) => Missing::read(answer),
            Err(e) => match trouble::no_connection(e, scrub) {
                NodeError::Refused {
                    refusal: Refusal::NoPerm,
                    ..
                } => Missing::of("+eval"),
                NodeError::Refused {
                    refusal: Refusal::NoKey,
                    ..
                } => Missing::of(&layout.pattern()),
                // Anything else is found by the calls themselves.
                _ => Missing::default(),
            },
        };
        // Otherwise it failed for the same right.
        if missing.words().is_none() && called.as_ref().is_err_and(lacks) {
            missing.add("+evalsha");
        }
        let (needed, spare) = missing.split();
        needed.refuse()?;
        if let Some(lacks) = spare.words() {
            warn!(node = %name, lacks, "the user may not announce releases: others hear of them later");
        }
        // Only saves the first calls a round trip: a user who may not load still may call with the source. Not before
        // it is known: a server hangs up on long words of a client that it does not know, and it would not be seen
        // that the password is wrong.
        if called.is_err() || *self.taught() != identity.run_id {
            let taught = ask_all(connection, script::load()).await;
            if taught.iter().all(Result::is_ok) {
                self.taught().clone_from(&identity.run_id);
            }
        }
        Ok(identity)
    }

    fn taught(&self) -> MutexGuard<'_, String> {
        self.taught.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When the connecting task dies with its runtime, the next caller may start another on its own.
struct GiveUp {
    of: Weak<Shared>,
}

impl GiveUp {
    fn disarm(mut self) {
        self.of = Weak::new();
    }
}

impl Drop for GiveUp {
    fn drop(&mut self) {
        if let Some(shared) = self.of.upgrade() {
            shared.change(|now| match now {
                Status::Up(_) => None,
                _ => Some(Status::New),
            });
        }
    }
}
