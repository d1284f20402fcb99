//! What all answers of the server share.

use std::{sync::Arc, time::Duration};

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{
    event_documents::{KEPT, RecordedEvent},
    latest::Latest,
    problem::{Kind, Problem},
    readings::Readings,
    rights::{Rules, Seen},
    scrapes::Scrapes,
    seal::Seals,
    shared_reading::Reader,
    source::{Admin, Asked, Done, OrderError},
    stream::{ClientSlots, OPEN_SLOTS, Ring, SLOTS},
    withhold::{in_short, withhold},
};
use crate::{chance::Chance, fleet::status::FleetStatus};

/// Questions to the store at one time: however many people look at the page, the locks come first.
const STORE_READS: usize = 4;

/// Orders at one time. They have turns of their own: no reader keeps an order waiting.
const ORDERS: usize = 4;

/// Those of them that wait for databases of jobs: besides the others, which they never keep waiting.
const ITEM_ORDERS: usize = 2;

/// How long an order waits for its turn: what is asked in time can be answered in time.
const TURN: Duration = Duration::from_secs(1);

/// Whole fleets that are being sent at one time, with the token and without it: however slowly a client reads, they are no more.
const WHOLE_FLEETS: usize = 4;

/// What the server serves, and the turns at its store.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) admin: Admin,
    /// Turns of those who read.
    pub(super) store: Arc<Semaphore>,
    /// Turns of those who order.
    pub(super) orders: Arc<Semaphore>,
    /// Turns of those who order something about items.
    pub(super) item_orders: Arc<Semaphore>,
    pub(super) rules: Arc<Rules>,
    /// What has happened in this replica.
    pub(super) events: Ring<RecordedEvent>,
    /// Slots for the clients that follow, whatever they follow.
    pub(super) slots: ClientSlots,
    /// Slots for the clients that are sent the whole fleet.
    pub(super) whole_fleets: ClientSlots,
    /// The API described: `/api/v1/openapi.json`.
    pub(super) description: Bytes,
    /// What makes forms ours.
    pub(super) seals: Arc<Seals>,
    /// What those have got who follow a page.
    pub(super) latest: Arc<Latest>,
    /// What is read once for all who look at it.
    pub(super) readings: Arc<Readings>,
    /// The metrics as text.
    pub(super) scrapes: Arc<Scrapes>,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(admin: Admin, rules: Rules, description: Bytes) -> Self {
        let chance = Chance::system();
        let store = Arc::new(Semaphore::new(STORE_READS));
        let reader = Reader {
            clock: admin.clock.clone(),
            spawn: admin.spawn.clone(),
            turns: store.clone(),
        };
        let (clock, spawn) = (admin.clock.clone(), admin.spawn.clone());
        Self {
            scrapes: Arc::new(Scrapes::new(admin.metrics.clone(), clock, spawn)),
            readings: Arc::new(Readings::new(reader, admin.source.clone())),
            store,
            orders: Arc::new(Semaphore::new(ORDERS)),
            item_orders: Arc::new(Semaphore::new(ITEM_ORDERS)),
            rules: Arc::new(rules),
            events: Ring::new(admin.source.replica(), KEPT),
            slots: ClientSlots::new(SLOTS, OPEN_SLOTS),
            whole_fleets: ClientSlots::new(WHOLE_FLEETS, WHOLE_FLEETS),
            description,
            seals: Arc::new(Seals::new(chance.clone())),
            latest: Arc::new(Latest::new(chance.nonce())),
            admin,
        }
    }

    /// The fleet, as far as this client may see it.
    pub(super) async fn fleet(&self, seen: Seen) -> FleetStatus {
        // Closed never: the semaphore lives as long as the router.
        let _turn = self.store.acquire().await;
        let mut fleet = self.admin.source.fleet().await;
        if !seen.token {
            withhold(&mut fleet);
        }
        fleet
    }

    /// Whether this replica is ready; why not in full with the token alone.
    pub(super) fn ready(&self, seen: Seen) -> Result<(), String> {
        let ready = self.admin.source.ready();
        ready.map_err(|why| if seen.token { why } else { in_short(&why) })
    }

    /// The right to order something of the store, or of the database of a job; a problem when too many have it.
    pub(super) async fn turn(&self, of_items: bool) -> Result<OwnedSemaphorePermit, Problem> {
        let turns = match of_items {
            true => &self.item_orders,
            false => &self.orders,
        };
        let turn = turns.clone().acquire_owned();
        let turn = self.admin.clock.timeout(TURN, turn).await;
        // Closed never: the semaphore lives as long as the router.
        turn.ok().and_then(Result::ok).ok_or_else(|| {
            Problem::new(
                Kind::Busy,
                "too many ask at one time: nothing was asked for, do it again",
            )
        })
    }

    /// Gives an order whose turn it is. A client that goes meanwhile learns nothing of it, and changes nothing: the order is carried
    /// out to its end, and what came of it is written down.
    pub(super) async fn give(
        &self,
        turn: OwnedSemaphorePermit,
        asked: Asked,
    ) -> Result<Done, OrderError> {
        let (tell, told) = oneshot::channel();
        let source = self.admin.source.clone();
        let carried_out = async move {
            let given = source.give(asked).await;
            drop(turn);
            drop(tell.send(given));
        };
        drop(self.admin.spawn.spawn(carried_out));
        told.await.unwrap_or_else(|_| {
            let why = "what came of the order is not known: look before you give it again";
            Err(OrderError::NotKnown(why.to_owned()))
        })
    }
}
