//! `status --watch`: the fleet as it changes, until a signal ends it. Reads only.
//!
//! On a terminal a picture of its size is drawn in its place, by a plain function of what is known, the size and the time:
//! [`drawn`]. Elsewhere there is a document for each change.
//!
//! # Invariants
//! - W1 What only moves with the time is no change.   (time_alone_is_no_change)
//! - W2 While the store does not answer, it is told since when, and what was known before.
//!   (silence_is_told_with_its_beginning_and_what_was_known_stays)

use std::{io, time::Duration};

use futures_util::StreamExt;
use jiff::Timestamp;
use signal_hook::{
    consts::{SIGTSTP, SIGWINCH},
    low_level,
};

use super::{
    ask::{PATIENCE, load, no_answer, on_a_runtime, place, refuse_nowhere},
    failure::Failure,
    interrupt::told_to_end,
    output::{json_line, note},
    status::{age, show},
};
use crate::{
    Worker,
    clock::Clock,
    config::Config,
    fleet::{
        Fleet,
        status::{FleetStatus, JobStatus, NodeStatus, ReplicaStatus},
    },
    human::{Span, duration},
    signals::Signals,
    terminal::{self, Canvas, Ink, Paint, Size, Stream, frame},
};

/// The bounds of a pause between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(24 * 3600));

/// What is known of a fleet that is looked at again and again.
#[derive(Debug)]
pub(super) struct WatchState {
    /// When the first look began.
    began: Timestamp,
    last: Option<Picture>,
    /// Why there is no answer now.
    trouble: Option<String>,
}

#[derive(Debug)]
struct Picture {
    fleet: FleetStatus,
    at: Timestamp,
    essence: FleetStatus,
}

/// What a look has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// There is something else to show.
    changed: bool,
    /// The store does not answer any more.
    fell_silent: bool,
    /// It answers again.
    answers_again: bool,
}

/// Where it is shown.
enum To {
    Screen(Screen),
    Lines,
    Json,
}

struct Screen {
    canvas: Canvas,
    signals: signal_hook_tokio::Signals,
}

/// A number of seconds, or a duration with its unit.
pub(super) fn every(text: &str) -> Result<Duration, String> {
    let every = match text.parse() {
        Ok(secs) => Duration::try_from_secs_f64(secs).map_err(|why| why.to_string())?,
        Err(_) => duration::parse(text)?,
    };
    let (shortest, longest) = PAUSES;
    match (shortest..=longest).contains(&every) {
        true => Ok(every),
        false => Err(format!("write {} to {}", Span(shortest), Span(longest))),
    }
}

pub(super) fn watch(
    worker: &Worker,
    every: Duration,
    shards: bool,
    json: bool,
) -> Result<(), Failure> {
    let config = load(worker)?.config;
    refuse_nowhere(&config, json, &FleetStatus::default())?;
    on_a_runtime(async {
        let clock = Clock::system();
        // First of all: a signal that comes while the store is opened ends the command in order, too.
        let mut signals = Signals::listen().map_err(Failure::of)?;
        let fleet = Fleet::open(&config)?;
        let mut to = To::begin(json).map_err(Failure::of)?;
        let mut state = WatchState::new(fleet.now());
        loop {
            let asked = clock.timeout(PATIENCE, fleet.status());
            let answer = tokio::select! {
                biased;
                () = told_to_end(&mut signals) => return Ok(()),
                answer = asked => answer,
            };
            let answer = match answer {
                Ok(answer) => answer.map_err(|error| error.to_string()),
                Err(_) => Err(no_answer(&config, PATIENCE)),
            };
            let answer = answer.map(|mut fleet| {
                if !shards {
                    fleet.forget_shards();
                }
                fleet
            });
            let news = state.hear(answer, fleet.now());
            let next = clock.now() + every;
            let mut told = to.tell(&state, news, &config, fleet.now(), every);
            loop {
                // The reader has gone: nothing is left to be done.
                if told.is_err() {
                    return Ok(());
                }
                tokio::select! {
                    biased;
                    () = told_to_end(&mut signals) => return Ok(()),
                    () = to.changed() => {
                        told = to.tell(&state, News::default(), &config, fleet.now(), every);
                    }
                    () = clock.sleep_until(next) => break,
                }
            }
        }
    })
}

/// The picture of what is known, for a terminal of this size. Pure.
pub(super) fn drawn(
    state: &WatchState,
    config: &Config,
    now: Timestamp,
    every: Duration,
    size: Size,
    paint: Paint,
) -> String {
    let place = terminal::sentence(&place(config));
    let mut text = format!("{now:.0}  every {}  {place}\n", Span(every));
    if let Some((since, why)) = state.silence() {
        let age = age(since, now);
        let said = terminal::sentence(&format!("no answer since {since:.0} ({age}): {why}"));
        text += &format!("{}\n", paint.ink(Ink::Bad, &said));
    }
    match &state.last {
        Some(picture) => {
            let shown = show(&picture.fleet, config, picture.at, paint);
            text += &format!("\n{shown}");
        }
        None if state.trouble.is_none() => text += "\nasked, and not answered yet\n",
        None => {}
    }
    frame(&text, size)
}

// === impl WatchState ===

impl WatchState {
    pub(super) fn new(began: Timestamp) -> Self {
        Self {
            began,
            last: None,
            trouble: None,
        }
    }

    /// Takes note of what came of a look, which ended at `now`.
    pub(super) fn hear(&mut self, answer: Result<FleetStatus, String>, now: Timestamp) -> News {
        match answer {
            Ok(fleet) => {
                let answers_again = self.trouble.take().is_some();
                let essence = essence(&fleet);
                let before = self.last.as_ref().map(|picture| &picture.essence);
                let changed = before != Some(&essence);
                self.last = Some(Picture {
                    fleet,
                    at: now,
                    essence,
                });
                News {
                    changed,
                    fell_silent: false,
                    answers_again,
                }
            }
            Err(why) => News {
                fell_silent: self.trouble.replace(why).is_none(),
                ..News::default()
            },
        }
    }

    /// Since when there is no answer, and why.
    fn silence(&self) -> Option<(Timestamp, &str)> {
        let why = self.trouble.as_deref()?;
        let since = self.last.as_ref().map_or(self.began, |picture| picture.at);
        Some((since, why))
    }
}

/// What of it is a change where it differs: without ages, what remains of leases, and measurements.
fn essence(fleet: &FleetStatus) -> FleetStatus {
    FleetStatus {
        replicas: fleet.replicas.iter().map(replica).collect(),
        jobs: fleet.jobs.iter().map(job).collect(),
        nodes: fleet.nodes.iter().map(node).collect(),
    }
}

fn replica(replica: &ReplicaStatus) -> ReplicaStatus {
    ReplicaStatus {
        // That it is silent is a change, and for how long is none.
        seen_ms_ago: match replica.is_silent() {
            true => u64::MAX,
            false => 0,
        },
        ..replica.clone()
    }
}

fn job(job: &JobStatus) -> JobStatus {
    let mut job = job.clone();
    timeless(&mut job);
    job
}

fn timeless(job: &mut JobStatus) {
    if let Some(leader) = &mut job.leader {
        leader.remaining_ms = None;
    }
    if let Some(last) = &mut job.last_seen {
        last.ms_ago = 0;
    }
    for run in &mut job.running {
        run.per_second = None;
        run.left_ms = None;
    }
    job.by_shard.iter_mut().for_each(timeless);
}

fn node(node: &NodeStatus) -> NodeStatus {
    NodeStatus {
        votes_in_ms: None,
        // In words it says for how much longer.
        error: node.error.clone().filter(|_| node.cause.is_none()),
        rtt_us: None,
        offset_ms: None,
        ..node.clone()
    }
}

// === impl To ===

impl To {
    fn begin(json: bool) -> io::Result<Self> {
        Ok(match Stream::Output.size() {
            _ if json => Self::Json,
            Some(_) => Self::Screen(Screen {
                signals: signal_hook_tokio::Signals::new([SIGTSTP, SIGWINCH])?,
                canvas: Canvas::begin()?,
            }),
            None => Self::Lines,
        })
    }

    /// An error once the reader has gone.
    fn tell(
        &self,
        state: &WatchState,
        news: News,
        config: &Config,
        now: Timestamp,
        every: Duration,
    ) -> io::Result<()> {
        if let Self::Screen(screen) = self {
            let paint = Paint::of_output();
            let Some(size) = Stream::Output.size() else {
                return Err(io::ErrorKind::BrokenPipe.into());
            };
            let picture = drawn(state, config, now, every, size, paint);
            return screen.canvas.draw(&picture);
        }
        if let Some((since, why)) = state.silence().filter(|_| news.fell_silent) {
            let said = format!("no answer since {since:.0}: {why}");
            note(&terminal::sentence(&said));
        }
        if news.answers_again {
            note("the store answers again");
        }
        let picture = state.last.as_ref().filter(|_| news.changed);
        let Some(picture) = picture else {
            return Ok(());
        };
        let paint = Paint::of_output();
        match self {
            Self::Json => terminal::out_in(Paint::PLAIN, &json_line(&picture.fleet)),
            _ => {
                let shown = show(&picture.fleet, config, now, paint);
                terminal::out_in(paint, &format!("{now:.0}\n{shown}\n"))
            }
        }
    }

    /// Completes when the picture has to be drawn again before there is anything new: the window has another size, or this process
    /// was stopped and goes on. Cancel-safe.
    async fn changed(&mut self) {
        let Self::Screen(Screen { canvas, signals }) = self else {
            return std::future::pending().await;
        };
        if signals.next().await == Some(SIGTSTP) {
            // The shell that comes back finds its cursor.
            canvas.leave();
            let _ = low_level::emulate_default_handler(SIGTSTP);
            let _ = canvas.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::status::{LeaderStatus, Rate, RunStatus};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn fleet() -> FleetStatus {
        let leader = LeaderStatus {
            name: "alpha".to_owned(),
            remaining_ms: Some(9_000),
            ..LeaderStatus::default()
        };
        let run = RunStatus {
            done: Some(3),
            per_second: Some(Rate::new(0.5)),
            left_ms: Some(4_000),
            ..RunStatus::default()
        };
        let job = JobStatus {
            name: "report".to_owned(),
            coordination: "leader".to_owned(),
            leader: Some(leader),
            leader_known: true,
            running: vec![run],
            ..JobStatus::default()
        };
        let replica = ReplicaStatus {
            name: "alpha".to_owned(),
            started: at("2026-05-04T08:00:00Z"),
            seen_ms_ago: 100,
            ..ReplicaStatus::default()
        };
        let node = NodeStatus {
            name: "n1".to_owned(),
            up: true,
            rtt_us: Some(300),
            cause: Some("unadmitted".to_owned()),
            error: Some("votes again in 12s at most".to_owned()),
            ..NodeStatus::default()
        };
        FleetStatus {
            replicas: vec![replica],
            jobs: vec![job],
            nodes: vec![node],
        }
    }

    #[test]
    fn time_alone_is_no_change() {
        let now = at("2026-05-04T08:10:00Z");
        let mut state = WatchState::new(now);
        assert!(state.hear(Ok(fleet()), now).changed, "the first one");
        let mut later = fleet();
        later.replicas[0].seen_ms_ago = 1_900;
        later.nodes[0].rtt_us = Some(900);
        later.nodes[0].error = Some("votes again in 10s at most".to_owned());
        let job = &mut later.jobs[0];
        job.leader.as_mut().unwrap().remaining_ms = Some(7_000);
        job.running[0].left_ms = Some(2_000);
        job.running[0].per_second = None;
        assert_eq!(state.hear(Ok(later.clone()), now), News::default());
        type Change = fn(&mut FleetStatus);
        let changes: [Change; 4] = [
            |fleet| fleet.replicas[0].seen_ms_ago = 60_000,
            |fleet| fleet.jobs[0].running[0].done = Some(4),
            |fleet| fleet.jobs[0].leader = None,
            |fleet| fleet.nodes[0].up = false,
        ];
        for (n, change) in changes.into_iter().enumerate() {
            change(&mut later);
            assert!(state.hear(Ok(later.clone()), now).changed, "{n}");
        }
    }

    #[test]
    fn silence_is_told_with_its_beginning_and_what_was_known_stays() {
        let (began, then) = (at("2026-05-04T08:10:00Z"), at("2026-05-04T08:10:02Z"));
        let (config, every) = (Config::default(), Duration::from_secs(2));
        let size = Size {
            columns: 200,
            rows: 50,
        };
        let picture =
            |state: &WatchState, now| drawn(state, &config, now, every, size, Paint::PLAIN);
        let mut state = WatchState::new(began);
        assert!(picture(&state, began).contains("not answered yet"));
        let news = state.hear(Err("no majority".to_owned()), then);
        assert!(news.fell_silent && !news.changed);
        let shown = picture(&state, then);
        assert!(
            shown.contains("no answer since 2026-05-04T08:10:00Z (2s): no majority"),
            "{shown}"
        );
        let news = state.hear(Ok(fleet()), then);
        assert!(news.answers_again && news.changed);
        assert!(!picture(&state, then).contains("no answer"));
        let later = at("2026-05-04T08:10:40Z");
        state.hear(Err("no majority".to_owned()), at("2026-05-04T08:10:09Z"));
        let news = state.hear(Err("no majority\u{1b}[2J".to_owned()), later);
        assert_eq!(news, News::default(), "it was told");
        let shown = picture(&state, later);
        assert!(
            shown.contains("no answer since 2026-05-04T08:10:02Z (38s): no majority\\u001b[2J"),
            "{shown}"
        );
        assert!(shown.contains("report"), "{shown}");
    }

    #[test]
    fn a_picture_has_the_columns_and_rows_of_its_terminal() {
        let now = at("2026-05-04T08:10:00Z");
        let mut state = WatchState::new(now);
        state.hear(Ok(fleet()), now);
        let (config, every) = (Config::default(), Duration::from_secs(2));
        for (columns, rows) in [(200, 50), (40, 8), (20, 3), (2, 1)] {
            let size = Size { columns, rows };
            let shown = drawn(&state, &config, now, every, size, Paint::PLAIN);
            assert!(shown.lines().count() <= rows, "{columns}x{rows}:\n{shown}");
            for line in shown.lines() {
                assert!(terminal::columns(line) < columns, "{size:?}: {line}");
            }
        }
        let size = Size {
            columns: 40,
            rows: 8,
        };
        let coloured = drawn(&state, &config, now, every, size, Paint::COLOURED);
        let plain = drawn(&state, &config, now, every, size, Paint::PLAIN);
        assert_ne!(coloured, plain);
        assert_eq!(coloured.lines().count(), plain.lines().count());
    }
}
