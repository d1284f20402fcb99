//! Follows runs as far as the store tells of them: `history JOB --follow`, `trigger JOB --follow`.
//!
//! The loops here look and write; [`story`] decides what is worth a line. What a command prints reaches the store two or three seconds
//! later, of much its beginning and its end, and is shown line by line.

pub(super) mod story;

use std::{io, time::Duration};

use serde_json::json;

use super::{
    ask::{PATIENCE, command, load, no_answer, no_store, nobody_was_here, on_a_runtime},
    commands::{may_trigger, trigger_answer, trigger_text},
    failure::Failure,
    history::{HistoryArgs, left_to_read},
    interrupt::told_to_end,
    output::{finish, json_line, note},
};
use crate::{
    Worker,
    clock::{Clock, Moment},
    fleet::{
        Fleet, Trigger, TriggerParams, TriggerState,
        client::{runs::Kept, triggers::SeenShards},
        history::{RUNNING, RunRecord},
    },
    human::Span,
    signals::Signals,
    terminal::{self, BottomLine, Paint, Stream, sentence},
};
use story::{HowFar, Pace, Story};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// The history is written in the background: the end of the last attempt may come so much later than that of its trigger.
const SETTLE: Duration = Duration::from_secs(3);
/// Runs in flight whose output is shown while they go on: each costs a question at each look.
const SHOWN: usize = 8;
/// A trigger is followed for so long where no other limit was said.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Where runs are told.
struct Voice {
    to: Stream,
    paint: Paint,
    /// A line of JSON for each run.
    json: bool,
    bottom: BottomLine,
    pace: Pace,
}

/// Runs that are looked at again and again.
struct Following {
    fleet: Fleet,
    clock: Clock,
    voice: Voice,
    story: Story,
    /// What they have left to read is told, too.
    outputs: bool,
    /// As they were seen last.
    kept: Vec<Kept>,
}

/// The run of a trigger.
struct Asked {
    trigger: Trigger,
    /// Where it is one of all shards: what was seen of each.
    seen: SeenShards,
    following: Following,
}

/// What is known of it in the end.
struct Followed {
    trigger: Trigger,
    /// The name of the replica that has said so.
    replica: String,
    runs: Vec<RunRecord>,
    end: End,
}

/// Why it is followed no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Ended,
    Late,
    Left,
}

pub(super) fn history(worker: &Worker, args: &HistoryArgs) -> Result<(), Failure> {
    let clock = Clock::system();
    let filter = args.filter(clock.wall())?;
    let config = load(worker)?.config;
    if nobody_was_here(&config) {
        return Err(no_store(&config));
    }
    let job = args.job.as_deref().unwrap_or_default();
    on_a_runtime(async {
        let mut signals = Signals::listen().map_err(Failure::of)?;
        let fleet = Fleet::open(&config)?;
        let voice = Voice::new(Stream::Output, args.json);
        let mut following = Following::new(&fleet, voice, args.output);
        let idle = format!("no run of {job} is under way");
        let (mut first, mut silent) = (true, false);
        loop {
            let asked = clock.timeout(PATIENCE, fleet.kept_of(job, &filter, usize::MAX));
            let answer = tokio::select! {
                biased;
                () = told_to_end(&mut signals) => return Ok(()),
                answer = asked => answer,
            };
            let answer = match answer {
                // A misspelt job, or one of too many shards.
                Ok(Err(error)) if first && !error.passes() => return Err(Failure::of(error)),
                Ok(answer) => answer.map_err(|error| error.to_string()),
                Err(_) => Err(no_answer(&config, PATIENCE)),
            };
            match answer {
                Ok(kept) => {
                    if std::mem::take(&mut silent) {
                        following.voice.note("the store answers again");
                    }
                    if std::mem::take(&mut first) {
                        following.skip(&kept, args.most());
                    }
                    // A reader that has gone needs no more.
                    if following.tell(kept, &idle).await.is_err() {
                        return Ok(());
                    }
                }
                Err(why) if !silent => {
                    silent = true;
                    let since = fleet.now();
                    following
                        .voice
                        .note(&format!("no answer since {since:.0}: {why}"));
                }
                Err(_) => {}
            }
            tokio::select! {
                biased;
                () = told_to_end(&mut signals) => return Ok(()),
                () = clock.sleep(LOOK) => {}
            }
        }
    })
}

pub(super) fn trigger(
    worker: &Worker,
    job: &str,
    params: TriggerParams,
    timeout: Option<Duration>,
    json: bool,
) -> Result<(), Failure> {
    let config = may_trigger(worker, job, &params)?;
    let names = params.names();
    let limit = timeout.unwrap_or(DAY);
    let until = Clock::system().now() + limit;
    // With JSON at the end the story goes to standard error.
    let to = match json {
        true => Stream::Errors,
        false => Stream::Output,
    };
    let Followed {
        trigger,
        replica,
        runs,
        end,
    } = command(&config, limit, |fleet| async move {
        followed(&fleet, job, params, until, Voice::new(to, false)).await
    })?;
    let told = match end {
        End::Ended => trigger_text(&trigger, &replica, true),
        End::Late => {
            let why = format!("has not ended within {}", Span(limit));
            Err(story::left(&trigger, &why))
        }
        End::Left => Err(story::left(&trigger, "is not followed any more")),
    };
    if let (true, End::Late | End::Left, Err(why)) = (json, end, &told) {
        note(&sentence(why));
    }
    let mut answer = trigger_answer(&trigger, &replica, &names);
    answer["attempts"] = json!(runs);
    finish(json, &answer, told)
}

/// Asks for the run, and follows it until it has ended, a signal comes, or the time is over.
async fn followed(
    fleet: &Fleet,
    job: &str,
    params: TriggerParams,
    until: Moment,
    voice: Voice,
) -> Result<Followed, String> {
    let clock = Clock::system();
    let mut signals = Signals::listen().map_err(|error| error.to_string())?;
    let trigger = fleet.trigger(job, params).await;
    let trigger = trigger.map_err(|error| error.to_string())?;
    let following = Following::new(fleet, voice, true);
    let mut asked = Asked {
        trigger,
        seen: SeenShards::default(),
        following,
    };
    let end = tokio::select! {
        biased;
        () = told_to_end(&mut signals) => End::Left,
        told = asked.until_it_ends() => match told {
            Ok(()) => End::Ended,
            // A reader that has gone needs no more.
            Err(_) => End::Left,
        },
        () = clock.sleep_until(until) => End::Late,
    };
    asked.following.voice.bottom.clear();
    let replica = asked.replica().await;
    let kept = asked.following.kept;
    let runs = match fleet.with_outputs(kept.clone()).await {
        Ok(runs) => runs,
        // Without what they left to read they are known all the same.
        Err(_) => kept.into_iter().map(|kept| kept.run).collect(),
    };
    Ok(Followed {
        trigger: asked.trigger,
        replica,
        runs,
        end,
    })
}

// === impl Asked ===

impl Asked {
    /// An error when the reader has gone.
    async fn until_it_ends(&mut self) -> io::Result<()> {
        self.tell_state().await?;
        let mut settled_by = None;
        loop {
            let (fleet, was) = (self.following.fleet.clone(), self.trigger.state);
            let (trigger, seen) = (self.trigger.clone(), &mut self.seen);
            let known = fleet.follow_on(trigger, seen, TriggerState::Ended, LOOK);
            self.trigger = known.await;
            if self.trigger.state > was {
                self.tell_state().await?;
            }
            match fleet.attempts(&self.trigger, &self.seen).await {
                Ok(kept) => {
                    let idle = format!("waiting for {}", self.trigger.job);
                    self.following.tell(kept, &idle).await?;
                }
                // It may answer again before the time is over.
                Err(why) => self.following.voice.idle(&format!("no answer: {why}")),
            }
            if self.trigger.state == TriggerState::Ended {
                let now = self.following.clock.now();
                let by = *settled_by.get_or_insert(now + SETTLE);
                if self.is_settled() || now >= by {
                    return Ok(());
                }
                self.following.clock.sleep(LOOK).await;
            }
        }
    }

    /// Whether the history has all of what has ended.
    fn is_settled(&self) -> bool {
        let trigger = &self.trigger;
        let mut runs = self.following.kept.iter().map(|kept| &kept.run);
        let over = runs.clone().all(|run| run.outcome != RUNNING);
        let told = runs.any(|run| run.outcome == trigger.outcome);
        trigger.run_id.is_empty() || (over && told)
    }

    async fn tell_state(&mut self) -> io::Result<()> {
        let replica = self.replica().await;
        match story::state(&self.trigger, &replica) {
            Some(said) => self.following.voice.line(&said),
            None => Ok(()),
        }
    }

    /// The name of the replica that has said what is known.
    async fn replica(&self) -> String {
        match self.trigger.replica.as_str() {
            "" => String::new(),
            id => self.following.fleet.name_of(id).await,
        }
    }
}

// === impl Following ===

impl Following {
    fn new(fleet: &Fleet, voice: Voice, outputs: bool) -> Self {
        Self {
            fleet: fleet.clone(),
            clock: Clock::system(),
            voice,
            story: Story::default(),
            outputs,
            kept: Vec::new(),
        }
    }

    /// Of these runs no more than the last `most` are told.
    fn skip(&mut self, kept: &[Kept], most: usize) {
        let older = kept.iter().take(kept.len().saturating_sub(most));
        // Those are no news any more.
        self.story.news(older.map(|kept| &kept.run));
    }

    /// Tells what is new of these runs, and how far they are; `idle` where none is under way. An error when the reader has gone.
    async fn tell(&mut self, mut kept: Vec<Kept>, idle: &str) -> io::Result<()> {
        let in_flight = |kept: &[Kept]| {
            kept.iter()
                .filter(|kept| kept.run.outcome == RUNNING)
                .count()
        };
        // Those that were in flight a moment ago, too: the last lines of one that has ended come now.
        let is_one_of_many = in_flight(&kept).max(in_flight(&self.kept)) > 1;
        for place in self.story.news(kept.iter().map(|kept| &kept.run)) {
            let one = &mut kept[place];
            let is_over = self.outputs && one.run.outcome != RUNNING;
            if is_over {
                // Without it the rest is told all the same.
                let _ = self.fleet.read_output(one).await;
            }
            // The rest of what it has left, before its end; all of it under the one line of a run that was soon over.
            let has_begun = self.story.has_output(&one.run);
            if is_over && has_begun {
                self.tell_output(&one.run, true, is_one_of_many)?;
            }
            self.voice.run(&one.run, self.outputs)?;
            if is_over && !has_begun {
                self.tell_output(&one.run, true, false)?;
            }
        }
        if self.outputs && !self.voice.json {
            self.tell_live(&kept, is_one_of_many).await?;
        }
        self.kept = kept;
        let runs = self.kept.iter().map(|kept| &kept.run);
        match story::how_far(runs, self.fleet.now()) {
            Some(far) => self.voice.how_far(&far, self.clock.now()),
            None => {
                self.voice.idle(idle);
                Ok(())
            }
        }
    }
}

impl Following {
    /// Tells what the runs in flight have left since it was told last.
    async fn tell_live(&mut self, kept: &[Kept], is_one_of_many: bool) -> io::Result<()> {
        let in_flight = kept.iter().filter(|kept| kept.run.outcome == RUNNING);
        let in_flight: Vec<&Kept> = in_flight.collect();
        for kept in in_flight.iter().rev().take(SHOWN) {
            let mut kept = (*kept).clone();
            // It is read again at the next look.
            if self.fleet.read_output(&mut kept).await.is_ok() {
                self.tell_output(&kept.run, false, is_one_of_many)?;
            }
        }
        self.story
            .forget_outputs(in_flight.iter().map(|kept| &kept.run));
        Ok(())
    }

    /// The job is named with each line where there are several.
    fn tell_output(
        &mut self,
        run: &RunRecord,
        is_over: bool,
        is_one_of_many: bool,
    ) -> io::Result<()> {
        match self.story.unseen(run, is_over) {
            Some(text) => self.voice.output(run, &text, is_one_of_many),
            None => Ok(()),
        }
    }
}

// === impl Voice ===

impl Voice {
    fn new(to: Stream, json: bool) -> Self {
        let paint = match to {
            Stream::Output => Paint::of_output(),
            Stream::Errors => Paint::PLAIN,
        };
        Self {
            to,
            paint,
            json,
            bottom: BottomLine::of(to),
            pace: Pace::default(),
        }
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        self.bottom.clear();
        match self.to {
            Stream::Output => terminal::out_in(self.paint, text),
            Stream::Errors => {
                terminal::err(text);
                Ok(())
            }
        }
    }

    fn run(&mut self, run: &RunRecord, outputs: bool) -> io::Result<()> {
        if self.json {
            return self.line(&json_line(run));
        }
        let mut text = story::line(run, self.paint) + "\n";
        if outputs && run.output_bytes > 0 && run.output.is_none() {
            text += "    what it has left to read cannot be read\n";
        }
        self.line(&text)
    }

    fn output(&mut self, run: &RunRecord, text: &str, with_job: bool) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let text = match with_job {
            true => story::named(&run.job, text),
            false => text.to_owned(),
        };
        self.line(&left_to_read(&RunRecord {
            output: Some(text),
            ..run.clone()
        }))
    }

    /// On a terminal at the bottom, elsewhere now and then in a line.
    fn how_far(&mut self, far: &HowFar, now: Moment) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        if self.bottom.is_seen() {
            self.bottom.show(&far.text);
            return Ok(());
        }
        match self.pace.is_due(far, now) {
            true => self.line(&far.text),
            false => Ok(()),
        }
    }

    /// What there is to see while no run is under way: on a terminal alone.
    fn idle(&mut self, text: &str) {
        if !self.json {
            self.bottom.show(text);
        }
    }

    /// To standard error, between the lines.
    fn note(&mut self, text: &str) {
        self.bottom.clear();
        note(&sentence(text));
    }
}
