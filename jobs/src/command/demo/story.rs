//! What happens, in order: replicas start, one leads, notifications go out, the leader is killed, another takes over,
//! everything arrives, all replicas end, and all is counted.
//!
//! Nothing here waits for a fixed time: every step follows from what was seen, so that a slow machine makes a slow
//! story, not another one.

use std::{collections::BTreeMap, time::Duration};

use crate::{Notifications, receiver::Receiver};
use anyhow::{Context, bail};
use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use watchkeeper::{
    clock::{Clock, Moment},
    fleet::status::FleetStatus,
    spawn::Spawn,
};

use super::{
    args::DemoArgs,
    fleet::{Ended, Fleet},
    keys::{Key, Keys},
    scene::{BEAT, SEND, Scene, TTL},
    scout::{Look, Scout},
    stage::Stage,
    ticks,
    verdict::Summary,
};

/// Everything that sends must be over by then, on the slowest machine. A good one takes a quarter of it.
const LIMIT: Duration = Duration::from_secs(100);
/// How long the replicas may take to end.
const DRAIN: Duration = Duration::from_secs(15);
/// Between two looks while a takeover is being timed.
const SHARP: Duration = Duration::from_millis(10);
/// Between two looks otherwise.
const CALM: Duration = Duration::from_millis(100);

/// Everything on stage.
pub(crate) struct Story {
    pub(crate) stage: Stage,
    clock: Clock,
    scene: Scene,
    receiver: Receiver,
    fleet: Fleet,
    scout: Scout,
    keys: Keys,
    interrupts: [Signal; 2],
    total: u64,
    at_least: Duration,
    began: Moment,
    plot: Plot,
}

/// A signal asked us to end.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// How far the story is.
#[derive(Debug, Default)]
struct Plot {
    introduced: bool,
    /// The leader was killed as planned.
    struck: bool,
    pending: Option<Takeover>,
    /// The first takeover after a kill: how long it took, and when it was seen by wall clock.
    taken: Option<(Duration, Timestamp)>,
    quit: bool,
    /// Before everything had happened.
    left_early: bool,
}

/// A takeover that is being timed.
#[derive(Debug)]
struct Takeover {
    verb: &'static str,
    name: String,
    pid: u32,
    token: u64,
    since: Moment,
    /// When each later token was seen first.
    seen: BTreeMap<u64, Moment>,
}

/// The replica that leads now, and runs.
struct Leader {
    name: String,
    pid: u32,
    token: u64,
    /// It also works on batches.
    sends: bool,
}

impl Story {
    /// Sets the scene and starts the replicas.
    pub(crate) async fn begin(args: &DemoArgs, stage: Stage) -> anyhow::Result<Self> {
        let clock = Clock::system();
        // First: from here on Ctrl-C must clean up.
        let interrupts = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        ];
        let receiver = Receiver::start(&Spawn::system()).await?;
        let scene = Scene::build(args, &receiver.url())
            .await
            .context("cannot set the scene")?;
        let scout = Scout::new(&scene.config, &clock)?;
        let mut fleet = Fleet::new(scene.config_file(), scene.folder())?;
        for n in 1..=args.replicas {
            fleet.start(&format!("replica-{n}"))?;
        }
        stage.say(&format!(
            "{} replicas, {} notifications to send, a heartbeat every second; store in {}",
            args.replicas,
            args.notifications,
            scene.folder().display()
        ));
        let keys = Keys::listen();
        if keys.are_read() {
            stage.say("keys: k kill the leader, f freeze it, u thaw, h hand over, q quit");
        }
        Ok(Self {
            stage,
            began: clock.now(),
            clock,
            scene,
            receiver,
            fleet,
            scout,
            keys,
            interrupts,
            total: u64::from(args.notifications),
            at_least: args.for_.unwrap_or_default(),
            plot: Plot::default(),
        })
    }

    /// Tells the story to its end and counts.
    pub(crate) async fn tell(&mut self) -> anyhow::Result<Summary> {
        let until = self.began + self.at_least + LIMIT;
        let mut mishaps = Vec::new();
        while !self.plot.quit && !self.is_over().await? {
            if self.clock.now() >= until {
                let limit = (self.at_least + LIMIT).as_secs();
                mishaps.push(format!("it was not over after {limit} s"));
                break;
            }
            let look = self.scout.look().await?;
            let status = self.scout.fleet().await.unwrap_or_default();
            self.follow(look.as_ref(), &status)?;
            let pause = if self.plot.pending.is_some() {
                SHARP
            } else {
                CALM
            };
            let [interrupt, terminate] = &mut self.interrupts;
            tokio::select! {
                biased;
                _ = interrupt.recv() => bail!(Interrupted),
                _ = terminate.recv() => bail!(Interrupted),
                key = self.keys.next() => self.press(key, look.as_ref(), &status),
                () = self.clock.sleep(pause) => {}
            }
        }
        // A spectator who has seen everything and only wanted to look longer leaves nothing out.
        self.plot.left_early = self.plot.quit && !self.is_complete().await?;
        if self.plot.left_early {
            mishaps.push("you left before the end".to_owned());
        }
        self.stage.say("the replicas end");
        mishaps.extend(self.fleet.drain(&self.clock, DRAIN).await);
        self.count(mishaps).await
    }

    /// Ends the replicas that are left; when something went wrong, shows what the replicas said last.
    pub(crate) async fn clean_up(&mut self, troubled: bool) {
        if troubled {
            for replica in self.fleet.replicas() {
                let words = self.fleet.last_words(&replica.name);
                self.stage.say(&format!("--- {}:\n{words}", replica.name));
            }
        }
        // Before the folder goes, so that no replica writes into it any more.
        self.fleet.kill_all().await;
        self.scene.servers.end().await;
    }

    /// Whether the user wanted it to end early.
    pub(crate) fn was_left(&self) -> bool {
        self.plot.left_early
    }

    /// Whether everything that was to happen has happened, and for as long as was wanted.
    async fn is_over(&self) -> anyhow::Result<bool> {
        let early = self.clock.now() < self.began + self.at_least;
        Ok(!early && self.is_complete().await?)
    }

    /// Whether everything that was to happen has happened.
    async fn is_complete(&self) -> anyhow::Result<bool> {
        let Some((_, taken_at)) = self.plot.taken else {
            return Ok(false);
        };
        let accepted = self.receiver.watch().borrow().accepted;
        if self.plot.pending.is_some() || accepted < self.total {
            return Ok(false);
        }
        let status = self.scout.fleet().await.unwrap_or_default();
        let ticked = status.job(BEAT).and_then(|job| job.last_tick);
        // The new leader has fired, and whatever is accepted is marked as sent.
        Ok(ticked.is_some_and(|at| at > taken_at) && self.unsent().await? == 0)
    }

    /// Takes note of what is seen, and acts when it is time.
    fn follow(&mut self, look: Option<&Look>, status: &FleetStatus) -> anyhow::Result<()> {
        let accepted = self.receiver.watch().borrow().accepted;
        self.stage.progress(accepted, status);
        self.stage.replicas(self.fleet.replicas(), status);
        for ended in self.fleet.reap() {
            self.tell_end(&ended);
        }
        self.introduce(status);
        self.time_takeover(look, status);
        if self.plot.pending.is_some() {
            return Ok(());
        }
        for name in self.fleet.restart_gone()? {
            self.stage.say(&format!("{name} is started again"));
        }
        let leader = self.leader(look, status);
        if let Some(leader) = leader.filter(|_| self.plot.introduced && !self.plot.struck) {
            // While it also sends, so that something is in doubt; but not for ever.
            let early = accepted * 10 < self.total * 4;
            let late = accepted * 10 >= self.total * 7;
            if !early && (leader.sends || late) {
                self.plot.struck = true;
                self.strike("killed", leader);
            }
        }
        Ok(())
    }

    fn introduce(&mut self, status: &FleetStatus) {
        let leader = status.job(BEAT).and_then(|job| job.leader.as_ref());
        let all = status.replicas.len() >= self.fleet.replicas().len();
        let Some(leader) = leader.filter(|_| all && !self.plot.introduced) else {
            return;
        };
        self.plot.introduced = true;
        let (name, token) = (&leader.name, leader.token.0);
        self.stage.say(&format!(
            "{name} is elected: it leads {BEAT} under token {token}; the others stand by"
        ));
        for replica in &status.replicas {
            if let Some(at) = &replica.admin {
                self.stage
                    .say(&format!("status page of {}: http://{at}/", replica.name));
            }
        }
    }

    /// The leader by its own word, when the lock is held and it is ours to do something to. Nodes may show larger tokens than
    /// its own: of bids that were lost.
    fn leader(&self, look: Option<&Look>, status: &FleetStatus) -> Option<Leader> {
        let leader = status.job(BEAT)?.leader.as_ref()?;
        look?.held_under?;
        let token = leader.token.0;
        let running = status.job(SEND).map(|job| job.running.as_slice());
        let mut running = running.unwrap_or_default().iter();
        Some(Leader {
            name: self.fleet.running(leader.pid)?,
            pid: leader.pid,
            token,
            sends: running.any(|run| run.replica == leader.replica),
        })
    }

    fn press(&mut self, key: Key, look: Option<&Look>, status: &FleetStatus) {
        let verb = match key {
            Key::Quit => {
                self.plot.quit = true;
                return;
            }
            Key::Thaw => {
                for name in self.fleet.thaw() {
                    self.stage.say(&format!("{name} is thawed"));
                }
                return;
            }
            Key::Kill => "killed",
            Key::Freeze => "frozen",
            Key::HandOver => "asked to end",
        };
        match self
            .leader(look, status)
            .filter(|_| self.plot.pending.is_none())
        {
            Some(leader) => self.strike(verb, leader),
            None => self.stage.say("no replica leads just now"),
        }
    }

    /// Does it to the leader, and times what follows.
    fn strike(&mut self, verb: &'static str, leader: Leader) {
        let Leader {
            name, pid, token, ..
        } = leader;
        // The clock first: what the signal costs belongs to the takeover.
        let since = self.clock.now();
        match verb {
            "killed" => self.fleet.kill(pid),
            "frozen" => self.fleet.freeze(pid),
            _ => self.fleet.ask_to_end(pid),
        }
        let accepted = self.receiver.watch().borrow().accepted;
        let total = self.total;
        self.stage.say(&format!(
            "{name} is {verb}, with {accepted} of {total} sent"
        ));
        self.plot.pending = Some(Takeover {
            verb,
            name,
            pid,
            token,
            since,
            seen: BTreeMap::new(),
        });
    }

    fn time_takeover(&mut self, look: Option<&Look>, status: &FleetStatus) {
        let now = self.clock.now();
        let Some(pending) = &mut self.plot.pending else {
            return;
        };
        if let Some(token) = look.and_then(|look| look.held_under)
            && token > pending.token
        {
            pending.seen.entry(token).or_insert(now);
        }
        // A lock may be won and given back at once; a leader is the replica that says so.
        let leader = status.job(BEAT).and_then(|job| job.leader.as_ref());
        let Some(leader) = leader.filter(|l| l.token.0 > pending.token && l.pid != pending.pid)
        else {
            return;
        };
        let at = pending.seen.get(&leader.token.0).copied().unwrap_or(now);
        let took = at.since(pending.since);
        let (name, token, ms) = (&leader.name, leader.token.0, took.as_millis());
        let before = &pending.name;
        self.stage.say(&format!(
            "{name} takes over from {before} after {ms} ms, under token {token}"
        ));
        if pending.verb == "killed" && self.plot.taken.is_none() {
            self.plot.taken = Some((took, self.clock.wall()));
        }
        self.plot.pending = None;
    }

    fn tell_end(&self, ended: &Ended) {
        let Ended {
            name,
            status,
            unasked,
        } = ended;
        if *unasked {
            let words = self.fleet.last_words(name);
            self.stage
                .say(&format!("{name} ended by itself ({status}):\n{words}"));
        }
    }

    async fn unsent(&self) -> anyhow::Result<u64> {
        self.scene.table.unsent().await
    }

    async fn count(&mut self, mishaps: Vec<String>) -> anyhow::Result<Summary> {
        let tally = self.receiver.tally();
        let doubts = Notifications::new(self.scene.params.clone(), None)
            .exceptions()
            .await
            .map_err(|error| anyhow::anyhow!("cannot read the list of doubts: {error}"))?;
        let ticks = ticks::count(&self.scene.beats()?, &self.scout.ledger().await?);
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let ids = 1..=i64::try_from(self.total)?;
        Ok(Summary {
            takeover_ms: self.plot.taken.map(|(took, _)| millis(took)),
            ttl_ms: millis(TTL),
            notifications: self.total,
            accepted: tally.accepted,
            accepted_twice: tally.accepted_twice,
            lost: u64::try_from(tally.lost(SEND, ids))?,
            repeats_recognised: tally.repeats_recognised,
            ticks_fired: ticks.fired,
            ticks_repeated: ticks.repeated,
            ticks_missed: ticks.missed.len() as u64,
            missed: ticks
                .missed
                .iter()
                .map(|tick| self.explain(*tick))
                .collect(),
            doubted: doubts.doubted_ever,
            unsent: self.unsent().await?,
            doubled: ticks.doubled,
            mishaps,
        })
    }
    /// A missed tick, with what the replicas say of it.
    fn explain(&self, tick: Timestamp) -> String {
        let mut logs = self.fleet.replicas().iter();
        let why = logs.find_map(|replica| {
            let log = self.fleet.log_of(&replica.name);
            ticks::why_skipped(&std::fs::read_to_string(log).ok()?, tick)
        });
        match why.as_deref() {
            Some("overlap") => format!("{tick} fell due while the run before it was still open"),
            Some(why) => format!("{tick} was skipped: {why}"),
            None => format!("{tick}"),
        }
    }
}
