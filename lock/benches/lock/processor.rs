//! Processor time of clients and servers, as the system counts it: the steadier figure where others use the machine as well.

use std::{fs, time::Duration};

use rustix::time::{ClockId, clock_gettime};

use crate::{
    asked::Asked,
    scene::Scene,
    server::RedisServer,
    table::{median, micros},
};

/// The columns of sections that count it.
pub(crate) const COLUMNS: &[&str] = &["client us (beside)", "servers us (beside)"];

/// What some processes used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    client: Duration,
    servers: Duration,
}

/// What a side of a comparison costs, all of it.
pub(crate) struct Meter {
    /// Another client than this process.
    client: Option<u32>,
    asked: Asked,
    used: Used,
}

/// Microseconds of a processor for one piece of work, by round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent {
    client: Vec<f64>,
    servers: Vec<f64>,
}

// === impl Used ===

impl Used {
    /// By this process, with every thread that it has or had, and by these servers.
    pub(crate) fn here(servers: &[RedisServer]) -> Self {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let time = Duration::try_from(time).unwrap_or_default();
        Self::by(time, servers)
    }

    fn by(client: Duration, servers: &[RedisServer]) -> Self {
        Self {
            client,
            servers: servers.iter().map(|server| of(server.pid())).sum(),
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            client: self.client.saturating_sub(before.client),
            servers: self.servers.saturating_sub(before.servers),
        }
    }
}

/// A process' threads, to the nanosecond. One that is just running is counted up to the last tick of the system's clock: to be
/// asked when the work is done.
fn of(pid: u32) -> Duration {
    threads(pid).or_else(|| whole(pid)).unwrap_or_default()
}

fn threads(pid: u32) -> Option<Duration> {
    let mut all = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        // A thread may end meanwhile.
        let Ok(stat) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else {
            continue;
        };
        all += Duration::from_nanos(stat.split(' ').next()?.parse().ok()?);
    }
    (!all.is_zero()).then_some(all)
}

/// Where the kernel keeps no such statistics: user and system time, in hundredths of a second.
fn whole(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

// === impl Meter ===

impl Meter {
    /// Of this process and its servers, from now on.
    pub(crate) fn here(scene: &Scene) -> Self {
        Self::begin(None, scene)
    }

    /// Of another client of these servers.
    pub(crate) fn there(client: u32, scene: &Scene) -> Self {
        Self::begin(Some(client), scene)
    }

    fn begin(client: Option<u32>, scene: &Scene) -> Self {
        let (asked, used) = (scene.asked(), used(client, scene));
        Self {
            client,
            asked,
            used,
        }
    }

    /// With what is left to be done after the last answer.
    pub(crate) async fn read(self, scene: &Scene) -> (Asked, Used) {
        scene.quiet().await;
        let used = used(self.client, scene).since(self.used);
        (scene.asked().since(self.asked), used)
    }
}

fn used(client: Option<u32>, scene: &Scene) -> Used {
    match client {
        Some(client) => Used::by(of(client), &scene.servers),
        None => Used::here(&scene.servers),
    }
}

// === impl Spent ===

impl Spent {
    /// A round of so many pieces of work.
    pub(crate) fn add(&mut self, used: Used, pieces: f64) {
        self.client.push(micros(used.client) / pieces.max(1.0));
        self.servers.push(micros(used.servers) / pieces.max(1.0));
    }

    pub(crate) fn client_us(&self) -> f64 {
        median(self.client.clone())
    }

    pub(crate) fn servers_us(&self) -> f64 {
        median(self.servers.clone())
    }

    /// All of it, to another one's; round by round.
    pub(crate) fn to(&self, beside: &Self) -> f64 {
        let ratios = self.rounds().zip(beside.rounds()).map(|(a, b)| a / b);
        median(ratios.collect())
    }

    fn rounds(&self) -> impl Iterator<Item = f64> {
        self.client.iter().zip(&self.servers).map(|(a, b)| a + b)
    }

    pub(crate) fn text(&self) -> String {
        let (client, servers) = (self.client_us(), self.servers_us());
        format!("{client:.1} + {servers:.1} us")
    }

    /// What stands in [`COLUMNS`].
    pub(crate) fn columns(&self, beside: Option<&Self>) -> [String; 2] {
        let cell = |of: fn(&Self) -> f64| match beside {
            Some(beside) => format!("{:.1} ({:.1})", of(self), of(beside)),
            None => format!("{:.1}", of(self)),
        };
        [cell(Self::client_us), cell(Self::servers_us)]
    }
}
