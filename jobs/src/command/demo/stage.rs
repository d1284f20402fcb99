//! What is shown: bars on a terminal, plain lines otherwise.

use std::io::{self, IsTerminal};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use watchkeeper::{fleet::status::FleetStatus, terminal};

use super::{
    fleet::{Replica, State},
    scene::{BEAT, SEND},
    verdict::Summary,
};

/// Where the story is told.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Lines go to standard error, because standard output ends with JSON.
    json: bool,
    total: u64,
    bars: Option<Bars>,
    /// Tenths of the notifications that a line was written about.
    told: u64,
}

#[derive(Debug)]
struct Bars {
    all: MultiProgress,
    sent: ProgressBar,
    replicas: Vec<ProgressBar>,
}

impl Stage {
    pub(crate) fn new(json: bool, total: u64) -> Self {
        let bars = io::stderr().is_terminal().then(|| Bars::new(total));
        Self {
            json,
            total,
            bars,
            told: 0,
        }
    }

    /// A line of the story.
    pub(crate) fn say(&self, line: &str) {
        match &self.bars {
            Some(bars) => {
                let _ = bars.all.println(terminal::lines(line));
            }
            None => self.line(line),
        }
    }

    /// How far the notifications and the heartbeat are.
    pub(crate) fn progress(&mut self, accepted: u64, fleet: &FleetStatus) {
        if let Some(bars) = &self.bars {
            bars.sent.set_position(accepted);
            return;
        }
        let fifths = accepted * 5 / self.total.max(1);
        if fifths > self.told {
            self.told = fifths;
            let sending = fleet.job(SEND).map_or(0, |job| job.running.len());
            let tick = tick(fleet).map_or(String::new(), |at| format!("; last tick {at}"));
            let total = self.total;
            self.line(&format!(
                "sent {accepted} of {total}, {sending} batches in flight{tick}"
            ));
        }
    }

    /// What each replica is doing.
    pub(crate) fn replicas(&mut self, replicas: &[Replica], fleet: &FleetStatus) {
        let Some(bars) = &mut self.bars else { return };
        while bars.replicas.len() < replicas.len() {
            bars.add_replica();
        }
        for (bar, replica) in bars.replicas.iter().zip(replicas) {
            let text = describe(replica, fleet);
            bar.set_message(terminal::line(&text).into_owned());
        }
    }

    /// The end of the story.
    pub(crate) fn end(&mut self, summary: &Summary, problems: &[String]) {
        if let Some(bars) = self.bars.take() {
            let _ = bars.all.clear();
        }
        let s = summary;
        let took = match s.takeover_ms {
            Some(took) => format!("{took} ms after the kill (ttl {} ms)", s.ttl_ms),
            None => "not seen".to_owned(),
        };
        self.line(&format!("\ntakeover       {took}"));
        self.line(&format!(
            "notifications  {} of {} accepted, {} lost, {} accepted twice",
            s.accepted, s.notifications, s.lost, s.accepted_twice
        ));
        self.line(&format!(
            "repeats        {} recognised by their key; {} had been listed in doubt",
            s.repeats_recognised, s.doubted
        ));
        self.line(&format!(
            "ticks          {} fired, {} of them again after their replica died, {} missed",
            s.ticks_fired, s.ticks_repeated, s.ticks_missed
        ));
        for tick in &s.missed {
            self.line(&format!("               missed: {tick}"));
        }
        for problem in problems {
            self.line(&format!("FAILED         {problem}"));
        }
        if problems.is_empty() {
            self.line("everything as promised");
        }
    }

    fn line(&self, line: &str) {
        match self.json {
            true => terminal::err(line),
            false => terminal::out(line),
        }
    }
}

impl Bars {
    fn new(total: u64) -> Self {
        let all = MultiProgress::new();
        let sent = all.add(ProgressBar::new(total));
        sent.set_style(style("notifications  {bar:40} {pos}/{len}"));
        Self {
            all,
            sent,
            replicas: Vec::new(),
        }
    }

    fn add_replica(&mut self) {
        let bar = self
            .all
            .insert_before(&self.sent, ProgressBar::new_spinner());
        bar.set_style(style("{msg}"));
        self.replicas.push(bar);
    }
}

/// The last tick, as a time of day.
fn tick(fleet: &FleetStatus) -> Option<String> {
    let at = fleet.job(BEAT)?.last_tick?;
    Some(at.strftime("%T").to_string())
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn describe(replica: &Replica, fleet: &FleetStatus) -> String {
    let name = &replica.name;
    match replica.state {
        State::Frozen => return format!("{name}  frozen"),
        State::Ending => return format!("{name}  ending"),
        State::Gone => return format!("{name}  gone"),
        State::Running => {}
    }
    // The newest of this name: its predecessor may still be listed.
    let told = fleet.replicas.iter().filter(|r| r.name == *name);
    let Some(told) = told.max_by_key(|r| r.started) else {
        return format!("{name}  starting");
    };
    let leads = fleet.job(BEAT).and_then(|job| job.leader.as_ref());
    let role = match leads.filter(|leader| leader.replica == told.id) {
        Some(leader) => {
            let tick = tick(fleet).unwrap_or_default();
            format!("leads under token {}, last tick {tick}", leader.token.0)
        }
        None => "stands by".to_owned(),
    };
    let running = fleet.job(SEND).map(|job| job.running.as_slice());
    let ours = running.unwrap_or_default().iter();
    let batches = ours.filter(|run| run.replica == told.id).count();
    let page = told.admin.as_ref().map(|at| format!("http://{at}/"));
    format!(
        "{name}  {role:<40} {batches} batches  {}",
        page.unwrap_or_default()
    )
}
