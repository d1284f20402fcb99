//! What this replica knows of the others, and its own settings among them. Their summaries are looked at again and again, and
//! of their details what this replica needs. What is kept of each is what it tells of jobs beyond what is expected of it, and
//! it is put together anew when it tells something else.
//!
//! # Invariants
//! - A change costs what has changed, however many replicas and jobs there are.   (a_change_of_one_replica_costs_that_one)
//! - What this replica does not know of the others makes it watch, and what it has not read for [`LIFETIME`] it does not know. It
//!   counts on while too few nodes vote: then no lock can be had either.   (what_is_not_known_is_watched,
//!   what_is_known_counts_while_too_few_nodes_vote)
//! - A replica that has not touched its summary for [`FRESH`] counts as gone.   (whoever_touches_nothing_any_more_counts_as_gone)
//! - What a dead replica has said of a job keeps no replica from it for longer than [`INTERVAL`] and [`FRESH`] together.
//!   (a_definition_that_died_with_its_leader_counts_for_seven_seconds_at_most)

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

use super::{
    Intents, LocalStatus,
    definitions::Definitions,
    ranks::{Me, Ranks},
    spread::{self, Attention, HandOver, Held, Peer, StandsBy},
};
#[cfg(doc)]
use crate::fleet::presence::INTERVAL;
use crate::{
    clock::Moment,
    fleet::presence::{
        FRESH, LIFETIME,
        replicas::{Own, Replicas, Telling, Wanted},
    },
    latest,
    lock::{LockError, Locks, NodeReport, tally::majority},
    node::Token,
};

/// Too few votes for a shorter time count for nothing.
const SHORT: Duration = Duration::from_secs(5);

/// Settings of this replica, and what it knows of the others. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    pub(crate) replica: String,
    /// Larger is preferred.
    pub(crate) priority: i32,
    /// Whether this replica ever leads.
    pub(crate) candidate: bool,
    pub(crate) failover: bool,
    /// What they tell of their jobs.
    pub(super) definitions: Definitions,
    view: Arc<Mutex<View>>,
    /// Counts the changes of what is known of who leads and who stands by.
    news: Arc<latest::Sender<u64>>,
    /// Counts how often others were found to have gone.
    gone: Arc<latest::Sender<u64>>,
    /// Whether the others were asked for, with an answer or without.
    asked: Arc<latest::Sender<bool>>,
    reading: Arc<tokio::sync::Mutex<Reading>>,
}

#[derive(Debug, Default)]
struct View {
    /// In the order of their ids.
    others: Vec<Peer>,
    /// What follows from them.
    ranks: Ranks,
    /// Since when so many nodes have given their votes that a lock can be taken.
    voted: Option<Moment>,
    /// Since when too few do.
    too_few: Option<Moment>,
    /// When the others were last heard of; `None` before the first time, and when that is too long ago.
    read: Option<Moment>,
    /// Since when the shares are what they are, and how many jobs this replica has led since.
    calm: Option<(usize, Moment)>,
    /// How often a replica was put together.
    #[cfg(test)]
    built: usize,
}

/// What was read of the others, and what of it this replica has taken note of.
#[derive(Debug)]
struct Reading {
    replicas: Replicas,
    /// Up to which news of each replica.
    noted: BTreeMap<String, u64>,
    /// The jobs that this replica has had then.
    own: Arc<Own>,
    /// Whether it has reached enough nodes then to take a lock.
    reached: bool,
    /// The jobs that a replica has other definitions of, by its id.
    differ: BTreeMap<String, BTreeSet<String>>,
}

/// What is new of replicas, this one among them.
#[derive(Debug, Default)]
struct News {
    gone: BTreeSet<String>,
    told: Vec<Telling>,
}

/// The turn of this replica among those that stand by for the work of a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TickTurn {
    pub(crate) turn: usize,
    /// The ids of those that are to come first.
    pub(super) first: Vec<String>,
}

// === impl Peers ===

impl Peers {
    pub(crate) fn new(replica: &str, priority: i32, candidate: bool, failover: bool) -> Self {
        Self {
            replica: replica.to_owned(),
            priority,
            candidate,
            failover,
            definitions: Definitions::default(),
            view: Arc::default(),
            news: Arc::default(),
            gone: Arc::default(),
            asked: Arc::default(),
            reading: reading(LIFETIME),
        }
    }

    /// In a fleet whose summaries live for so long without a touch.
    pub(crate) fn told_for(self, lifetime: Duration) -> Self {
        let reading = reading(lifetime);
        Self { reading, ..self }
    }

    pub(crate) fn mode(&self) -> &'static str {
        match self.failover {
            true => "failover",
            false => "shared",
        }
    }

    /// Reads what has moved of what the others tell, and takes note of it; says whether it is news who leads what and who stands by.
    ///
    /// # Errors
    /// [`LockError`] while no node answers: nothing has changed then.
    pub(super) async fn look(&self, locks: &Locks, mine: &LocalStatus) -> Result<bool, LockError> {
        let mut reading = self.reading.lock().await;
        let own = mine.own();
        let wanted = Wanted::Standings {
            hash: &own.hash,
            but: &self.replica,
        };
        // What is read before a node stops to answer, or before this is dropped, is news at the next look.
        reading.replicas.look(locks, wanted).await?;
        let reaches = reach_enough(&locks.nodes().await?);
        let (now, at) = (locks.wall(), locks.clock().now());
        let fresh = reading.news(&self.replica, &own, reaches, now);
        let moved = !fresh.gone.is_empty() || !fresh.told.is_empty();
        for told in &fresh.told {
            match told.presence.id == self.replica {
                true => mine.heard_of_itself(&told.presence),
                false => mine.heard(&told.presence),
            }
        }
        let mut news = self.saw(fresh, &own, reaches, at);
        if moved || self.definitions.seen() == 0 {
            let disputed = reading.disputed();
            mine.disputed(&disputed);
            self.definitions.saw(match disputed.is_empty() {
                true => BTreeMap::new(),
                false => {
                    let told = reading.replicas.about(&disputed, now, &own);
                    Definitions::noted(told.filter(|told| told.id != self.replica), reaches)
                }
            });
        }
        let there = reading.replicas.news().map(|(id, _)| id).collect();
        mine.heard_again(&there, now);
        news |= {
            let mut view = self.view();
            let led = mine.leads_now();
            if view.calm.is_none_or(|(was, _)| was != led) {
                view.calm = Some((led, at));
            }
            let knew = view.knows(at);
            view.read = Some(at);
            view.votes(locks.enough_vote(), at) || !knew
        };
        if news {
            self.news.send_modify(|news| *news += 1);
        }
        self.asked.send_replace(true);
        Ok(news)
    }

    /// The largest token under which another replica says to lead the job.
    pub(super) async fn leader(
        &self,
        job: &str,
        locks: &Locks,
        mine: &LocalStatus,
    ) -> Option<Token> {
        // The next look at all of them takes note of what is read.
        let mut reading = self.reading.lock().await;
        let wanted = Wanted::Standings {
            hash: &mine.own().hash,
            but: &self.replica,
        };
        let looked = reading.replicas.look(locks, wanted).await;
        looked.ok()?;
        reading.replicas.leader(job)
    }

    /// Takes note of what is new of the others, for a replica that `reaches` enough nodes; says whether it changes anything.
    fn saw(&self, fresh: News, own: &Own, reaches: bool, now: Moment) -> bool {
        let mut view = self.view();
        let View { others, ranks, .. } = &mut *view;
        let me = Me {
            id: &self.replica,
            priority: self.priority,
        };
        let have_gone = others.extract_if(.., |peer| fresh.gone.contains(&peer.id));
        let have_gone: Vec<Peer> = have_gone.collect();
        for peer in &have_gone {
            ranks.change(Some(peer), None, me, now);
        }
        let have_gone = !have_gone.is_empty();
        let (mut is_news, mut moved) = (have_gone, have_gone);
        #[cfg(test)]
        let mut built = 0;
        let told = fresh.told.iter();
        for told in told.filter(|told| told.presence.id != self.replica) {
            #[cfg(test)]
            {
                built += 1;
            }
            let peer = Peer::of(told, own, self.failover, reaches);
            match others.binary_search_by(|was| was.id.cmp(&peer.id)) {
                Ok(at) => {
                    let was = std::mem::replace(&mut others[at], peer);
                    let is = &others[at];
                    ranks.change(Some(&was), Some(is), me, now);
                    is_news |= *is != was;
                    moved |= !is.has_share_of(&was);
                }
                Err(at) => {
                    ranks.change(None, Some(&peer), me, now);
                    others.insert(at, peer);
                    (is_news, moved) = (true, true);
                }
            }
        }
        #[cfg(test)]
        {
            view.built += built;
        }
        if moved {
            view.calm = view.calm.map(|(led, _)| (led, now));
        }
        drop(view);
        if have_gone {
            self.gone.send_modify(|gone| *gone += 1);
        }
        is_news
    }

    /// The others could not be heard of at `now`, when enough nodes vote, or too few; says whether that makes what is known of them
    /// too old.
    pub(super) fn saw_nothing(&self, enough_vote: bool, now: Moment) -> bool {
        self.asked.send_replace(true);
        let mut view = self.view();
        view.votes(enough_vote, now);
        let known = view.knows(now);
        let was = view.read.is_some();
        if known || !was {
            return false;
        }
        view.read = None;
        drop(view);
        self.news.send_modify(|news| *news += 1);
        true
    }

    /// What this replica does about the lock of `job`, or of the whole replica, when another one holds it, or none has since it was
    /// seen to be `vacant`; and when that changes by itself.
    pub(crate) fn attention(
        &self,
        job: &str,
        vacant: Option<Moment>,
        now: Moment,
    ) -> (Attention, Option<Duration>) {
        #[cfg(test)]
        if let Some(by_chance) = super::watchers::mutants::by_chance(&self.replica, job, now) {
            return by_chance;
        }
        let view = self.view();
        match view.knows(now) {
            true => {
                let voted = view.voted.filter(|_| view.too_few.is_none());
                view.ranks.attention(job, vacant, voted, now)
            }
            false => (Attention::Watches, None),
        }
    }

    /// The turn of this replica among those that stand by for the work of this instant, of whom so many come first; `None`
    /// when it does not know them.
    pub(crate) fn turn(
        &self,
        job: &str,
        at: Timestamp,
        first: usize,
        now: Moment,
    ) -> Option<TickTurn> {
        let view = self.view();
        if !view.knows(now) || view.others.is_empty() {
            return None;
        }
        let before = spread::turn(job, at, &self.replica, &view.others);
        let turn = before.len();
        let first = before.into_iter().take(first).map(str::to_owned);
        Some(TickTurn {
            turn,
            first: first.collect(),
        })
    }

    /// Whether any of these replicas lives and stands by for the job, by what was heard lately.
    pub(super) fn any_stands_by(&self, ids: &[String], job: &str, now: Moment) -> bool {
        let view = self.view();
        let stands_by = |peer: &Peer| ids.contains(&peer.id) && peer.stands_by.contains(job);
        view.knows(now) && view.others.iter().any(stands_by)
    }

    /// Completes when the others were asked for once. Cancel-safe.
    pub(super) async fn were_asked(&self) {
        let mut asked = self.asked.subscribe();
        let _ = asked.wait_for(|asked| *asked).await;
    }

    /// Completes when another replica has gone since `seen`. Cancel-safe when that was read before.
    pub(super) async fn any_gone(&self, seen: u64) {
        let mut gone = self.gone.subscribe();
        let _ = gone.wait_for(|now| *now != seen).await;
    }

    /// How often others were found to have gone.
    pub(super) fn gone(&self) -> u64 {
        *self.gone.borrow()
    }

    /// Whether this replica was named to lead the job next.
    pub(super) fn is_called(&self, job: &str, intents: &Intents) -> bool {
        let asked = intents.resign(job);
        asked.is_some_and(|asked| asked.to.as_ref() == Some(&self.replica))
    }

    /// Completes when anything is news since `seen`. Cancel-safe when that was read before.
    pub(super) async fn changed(&self, seen: u64) {
        let mut news = self.news.subscribe();
        let _ = news.wait_for(|now| *now != seen).await;
    }

    pub(super) fn seen(&self) -> u64 {
        *self.news.borrow()
    }

    /// How long all shares have been what they are.
    pub(super) fn calm_for(&self, now: Moment) -> Duration {
        let view = self.view();
        view.calm
            .map_or(Duration::ZERO, |(_, since)| now.since(since))
    }

    /// The ids of the others that were heard of lately; of none when that is too long ago.
    pub(crate) fn others(&self, now: Moment) -> Vec<String> {
        let view = self.view();
        let others = view.others.iter().filter(|_| view.knows(now));
        others.map(|peer| peer.id.clone()).collect()
    }

    /// Whether there is no other replica.
    pub(super) fn is_alone(&self) -> bool {
        self.view().others.is_empty()
    }

    /// Which of these terms this replica is to hand over now, if any.
    pub(super) fn hand_over(&self, mine: &LocalStatus, terms: &[Held]) -> Option<HandOver> {
        let me = self.me(mine);
        spread::hand_over(&me, terms, &self.view().others)
    }

    /// Whether this replica would take the job over, as far as it was heard of lately.
    pub(super) fn stands_by(&self, replica: &str, job: &str) -> bool {
        let view = self.view();
        let found = view.others.iter().find(|peer| peer.id == replica);
        found.is_some_and(|peer| peer.stands_by.contains(job))
    }

    /// Whether any other replica would. One of smaller priority does not count: it would give the job back.
    pub(super) fn has_standby(&self, job: &str) -> bool {
        let would = |peer: &Peer| peer.priority >= self.priority && peer.stands_by.contains(job);
        self.view().others.iter().any(would)
    }

    /// How long this replica waits before a bid for what looks free.
    pub(crate) fn bid_after(
        &self,
        job: &str,
        local_status: &LocalStatus,
        ttl: Duration,
    ) -> Duration {
        let me = self.leading(BTreeMap::new());
        let mine = local_status.terms_now();
        spread::bid_after(job, (&me, mine), &self.view().others, ttl)
    }

    /// This replica, as it is now.
    fn me(&self, local_status: &LocalStatus) -> Peer {
        self.leading(local_status.led())
    }

    fn leading(&self, leads: BTreeMap<String, bool>) -> Peer {
        Peer {
            id: self.replica.clone(),
            priority: self.priority,
            leads,
            stands_by: StandsBy::default(),
            is_active: false,
        }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        // Every change is complete before the lock is given back.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl View ===

impl View {
    /// Takes note of whether enough nodes vote; says whether they do so again.
    fn votes(&mut self, enough: bool, now: Moment) -> bool {
        match (enough, self.too_few) {
            (true, None) => self.voted.replace(self.voted.unwrap_or(now)).is_none(),
            (true, Some(since)) => {
                self.too_few = None;
                if now.since(since) >= SHORT || self.voted.is_none() {
                    self.voted = Some(now);
                }
                true
            }
            (false, since) => {
                self.too_few = since.or(Some(now));
                false
            }
        }
    }

    fn knows(&self, now: Moment) -> bool {
        let counts = |at| self.too_few.is_some() || now.since(at) < LIFETIME;
        self.read.is_some_and(counts)
    }
}

// === impl Reading ===

impl Reading {
    /// What the others tell that this replica has not taken note of; all of it where it has other jobs than then, or reaches
    /// the nodes as it did not.
    fn news(&mut self, me: &str, own: &Arc<Own>, reaches: bool, now: Timestamp) -> News {
        if self.own != *own || self.reached != reaches {
            (self.own, self.reached) = (own.clone(), reaches);
            self.noted.values_mut().for_each(|noted| *noted = 0);
        }
        let Self {
            replicas, noted, ..
        } = self;
        let there: BTreeMap<&str, u64> = replicas.news().collect();
        let gone = noted.keys().filter(|id| !there.contains_key(id.as_str()));
        let gone: BTreeSet<String> = gone.cloned().collect();
        noted.retain(|id, _| !gone.contains(id));
        self.differ.retain(|id, _| !gone.contains(id));
        let mut fresh = News {
            gone,
            told: Vec::new(),
        };
        for (id, news) in there {
            if noted.get(id) == Some(&news) {
                continue;
            }
            let Some(told) = replicas.telling(id, now, own) else {
                continue;
            };
            noted.insert(id.to_owned(), news);
            let other = |name: &str, definition: &str| {
                let mine = own.definition(name);
                !definition.is_empty() && mine.is_some_and(|mine| mine != definition)
            };
            let jobs = told.presence.jobs.iter();
            let differ = jobs.filter(|job| id != me && other(&job.name, &job.definition));
            let differ: BTreeSet<String> = differ.map(|job| job.name.clone()).collect();
            match differ.is_empty() {
                true => drop(self.differ.remove(id)),
                false => drop(self.differ.insert(id.to_owned(), differ)),
            }
            fresh.told.push(told);
        }
        fresh
    }

    /// The jobs on which not all agree.
    fn disputed(&self) -> BTreeSet<String> {
        self.differ.values().flatten().cloned().collect()
    }
}

/// Whether so many nodes answer, and give their votes, that a lock can be taken.
pub(crate) fn reach_enough(nodes: &[NodeReport]) -> bool {
    let votes = nodes.iter().filter(|node| node.trouble.is_none()).count();
    nodes.is_empty() || votes >= majority(nodes.len())
}

/// Of replicas that have given a sign of life of late.
fn reading(lifetime: Duration) -> Arc<tokio::sync::Mutex<Reading>> {
    let life = lifetime.saturating_sub(FRESH)..lifetime;
    Arc::new(tokio::sync::Mutex::new(Reading {
        replicas: Replicas::within(life),
        noted: BTreeMap::new(),
        own: Arc::default(),
        reached: true,
        differ: BTreeMap::new(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fleet::presence::teller::write_all,
        node::memory::MemoryNode,
        sim_clock::SimTime,
        spawn::Spawn,
        status::{JobPresence, JobStanding, Presence, Role},
    };

    fn own() -> Own {
        Own::of([JobPresence {
            name: "job".to_owned(),
            ..JobPresence::default()
        }])
    }

    /// All that is known now: these replicas.
    fn saw(peers: &Peers, all: &[Presence], now: Moment) -> bool {
        let mut view = peers.view();
        view.read = Some(now);
        view.votes(true, now);
        let there = |id: &String| all.iter().any(|presence| presence.id == *id);
        let known = view.others.iter().map(|peer| peer.id.clone());
        let gone = known.filter(|id| !there(id)).collect();
        drop(view);
        let told = all.iter().cloned().map(Telling::all).collect();
        peers.saw(News { gone, told }, &own(), true, now)
    }

    #[test]
    fn only_another_replica_that_could_take_over_stands_by() {
        let presence = |id: &str, standing| Presence {
            id: id.to_owned(),
            jobs: vec![JobPresence {
                name: "job".to_owned(),
                standing,
                ..JobPresence::default()
            }],
            ..Presence::default()
        };
        let standby = || presence("b", JobStanding::Standby);
        let has_standby = |me: &str, priority, other: Presence, job: &str| {
            let peers = Peers::new(me, priority, true, false);
            saw(&peers, &[other], Moment::ZERO);
            peers.has_standby(job)
        };
        assert!(has_standby("a", 0, standby(), "job"));
        assert!(!has_standby("a", 0, standby(), "another"));
        assert!(!has_standby("a", 1, standby(), "job"), "it is worth less");
        let off = presence("b", JobStanding::Off);
        assert!(!has_standby("a", 0, off, "job"));
        let observes = Presence {
            role: Role::Observer,
            ..standby()
        };
        assert!(!has_standby("a", 0, observes, "job"));
        let drains = Presence {
            draining: true,
            ..standby()
        };
        assert!(!has_standby("a", 0, drains, "job"));
        let ill = Presence {
            unfit: Some("disk full".to_owned()),
            ..standby()
        };
        assert!(!has_standby("a", 0, ill, "job"));
    }

    #[test]
    fn what_is_not_known_is_watched() {
        let peers = Peers::new("me", 0, true, false);
        let at = |secs| Moment::from_boot(Duration::from_secs(secs));
        let watches = |now| peers.attention("job", None, at(now)).0 == Attention::Watches;
        let presence = |id: &str, standing| Presence {
            id: id.to_owned(),
            priority: 1,
            jobs: vec![JobPresence {
                name: "job".to_owned(),
                standing,
                ..JobPresence::default()
            }],
            ..Presence::default()
        };
        let fleet: Vec<Presence> = ["b", "c", "d"]
            .map(|id| presence(id, JobStanding::Standby))
            .into_iter()
            .chain([presence("a", JobStanding::Leading)])
            .collect();
        let saw = |fleet: &[Presence], now| saw(&peers, fleet, at(now));
        assert!(watches(100), "no other is known");
        saw(&[], 100);
        assert!(watches(100), "there is no other");
        assert!(saw(&fleet, 102));
        assert!(!saw(&fleet, 104));
        assert!(!watches(104));
        // The documents cannot be read: for a while what is known counts.
        assert!(!peers.saw_nothing(true, at(106)));
        assert!(!watches(110));
        assert!(watches(111), "also where no replica has said so");
        assert!(peers.saw_nothing(true, at(111)));
        assert!(!peers.saw_nothing(true, at(113)));
        saw(&fleet, 114);
        assert!(!watches(114));
        let mut again = fleet.clone();
        again[0].draining = true;
        assert!(saw(&again, 116));
        assert!(watches(116), "one of three goes");
    }

    #[test]
    fn what_is_known_counts_while_too_few_nodes_vote() {
        let peers = Peers::new("me", 0, true, false);
        let at = |secs| Moment::from_boot(Duration::from_secs(secs));
        let standby = |id: &str| Presence {
            id: id.to_owned(),
            priority: 1,
            jobs: vec![JobPresence {
                name: "job".to_owned(),
                standing: JobStanding::Standby,
                ..JobPresence::default()
            }],
            ..Presence::default()
        };
        let fleet = ["b", "c", "d"].map(standby);
        let attention = |now| peers.attention("job", None, at(now)).0;
        saw(&peers, &fleet, at(100));
        assert_eq!(attention(104), Attention::Rests);
        assert_eq!(attention(105), Attention::Helps, "its patience is over");
        // Too few nodes vote, so that nothing can be done about it.
        assert!(!peers.saw_nothing(false, at(106)));
        assert!(!peers.saw_nothing(false, at(3_000)));
        assert_eq!(attention(3_000), Attention::Rests);
        // They do again: patience begins anew.
        saw(&peers, &fleet, at(3_001));
        assert_eq!(attention(3_005), Attention::Rests);
        assert_eq!(attention(3_006), Attention::Helps);
        // A short time of it counts for nothing.
        peers.saw_nothing(false, at(3_007));
        saw(&peers, &fleet, at(3_009));
        assert_eq!(attention(3_009), Attention::Helps);
        // They vote, and yet nothing can be read.
        assert!(peers.saw_nothing(true, at(3_020)));
        assert_eq!(attention(3_020), Attention::Watches);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_one_replica_costs_that_one() {
        for (replicas, jobs) in [(4, 100), (16, 100), (16, 400)] {
            let time = SimTime::new();
            let node = MemoryNode::new("one", time.clock());
            let locks = Locks::over(vec![Arc::new(node)])
                .clock(time.clock())
                .keeper_here(Spawn::system())
                .start()
                .unwrap();
            let job = |n: usize| JobPresence {
                name: format!("job-{n}"),
                coordination: "leader".to_owned(),
                definition: "0f".to_owned(),
                ..JobPresence::default()
            };
            let mine = LocalStatus::default();
            (0..jobs).for_each(|n| mine.add_job(job(n)));
            let replica = |me: usize| {
                let leads = |n: usize| JobPresence {
                    standing: JobStanding::Leading,
                    token: Some(Token(1)),
                    ..job(n)
                };
                let known = |n: usize| if n % replicas == me { leads(n) } else { job(n) };
                Presence {
                    id: format!("r{me}"),
                    mode: "shared".to_owned(),
                    rev: 1,
                    jobs: (0..jobs).map(known).collect(),
                    ..Presence::default()
                }
            };
            let mut all: Vec<Presence> = (0..replicas).map(replica).collect();
            for told in &all {
                write_all(&locks, told, LIFETIME).await;
            }
            let peers = Peers::new("me", 0, true, false);
            let look = async || peers.look(&locks, &mine).await.unwrap();
            let built = || peers.view().built;
            assert!(look().await);
            assert_eq!(built(), replicas);
            let names = |peer: &Peer| peer.leads.len() + peer.stands_by.kept();
            let kept: usize = peers.view().others.iter().map(names).sum();
            assert_eq!(kept, 2 * jobs, "each job where it is led");
            assert!(peers.stands_by("r1", "job-0") && !peers.stands_by("r1", "job-1"));
            assert!(!look().await);
            assert_eq!(built(), replicas, "nothing has changed");
            // One that cannot do a job any more.
            all[1].jobs[0].standing = JobStanding::Off;
            all[1].rev = 2;
            write_all(&locks, &all[1], LIFETIME).await;
            assert!(look().await);
            assert_eq!(built(), replicas + 1);
            assert!(!peers.stands_by("r1", "job-0") && peers.stands_by("r1", "job-2"));
        }
    }
}
