//! What the scheduler costs: how late runs begin, and what many jobs use while they run and while they rest.
//!
//! `cargo bench --bench ticks -- [SECTION...] [--quick] [--strict]` measures and prints a table. Every side runs in a
//! process of its own, whose processor time and memory the system tells. The table is for people; the last line is one
//! JSON object. See `benches/README.md` for what the figures mean.
//!
//! Without a Redis server it says so and ends well, unless `WATCHKEEPER_REQUIRE` names redis.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench fails by panicking"
)]

use std::{process::ExitCode, time::Duration};

#[path = "../lock/benches/lock/asked.rs"]
mod asked;
#[path = "ticks/at_once.rs"]
mod at_once;
#[path = "ticks/beside.rs"]
mod beside;
#[path = "ticks/child.rs"]
mod child;
#[path = "ticks/led.rs"]
mod led;
#[path = "ticks/pages.rs"]
mod pages;
#[path = "ticks/process.rs"]
mod process;
#[path = "ticks/replicas.rs"]
mod replicas;
#[path = "ticks/rest.rs"]
mod rest;
#[path = "ticks/scale.rs"]
mod scale;
#[path = "ticks/scene.rs"]
mod scene;
#[path = "../lock/tests/redis/server.rs"]
mod server;
#[path = "../lock/benches/lock/table.rs"]
mod table;
#[path = "../lock/tests/redis/tap.rs"]
mod tap;

use table::Table;

/// As the stock command has it.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SECTIONS: [&str; 8] = [
    "led", "rest", "at-once", "beside", "scale", "sent", "replicas", "pages",
];

/// How much is measured.
#[derive(Clone, Copy)]
struct Plan {
    /// Jobs of each side.
    jobs: usize,
    /// Jobs of one replica, as they grow.
    sizes: &'static [usize],
    /// Ticks a second, as they grow.
    rates: &'static [usize],
    /// Replicas, and the jobs that each of them knows.
    fleet: (usize, usize),
    /// Fleets whose page is asked for: their replicas, and the jobs that each of them knows.
    pages: &'static [(usize, usize)],
    /// How long each side is watched.
    time: Duration,
    /// Nothing is said about time: only that everything can be measured.
    check: bool,
}

const FULL: Plan = Plan {
    jobs: 1_000,
    sizes: &[1_000, 3_000, 10_000],
    rates: &[400, 800, 1_600, 3_200],
    fleet: (200, 1_000),
    pages: &[(20, 1_000), (2, 10_000)],
    time: Duration::from_secs(30),
    check: false,
};

const QUICK: Plan = Plan {
    rates: &[],
    fleet: (40, 200),
    pages: &[(20, 1_000)],
    time: Duration::from_secs(12),
    ..FULL
};

const CHECK: Plan = Plan {
    jobs: 20,
    sizes: &[20],
    rates: &[],
    fleet: (8, 20),
    pages: &[(3, 20)],
    time: Duration::from_secs(1),
    check: true,
};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, task] = &words[..]
        && flag == child::FLAG
    {
        serde_json::from_str::<child::Task>(task).unwrap().run();
        return ExitCode::SUCCESS;
    }
    if server::binary().is_none() {
        println!("ignored: {}", server::REMEDY);
        return if server::required() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        };
    }
    let said = |word: &str| words.iter().any(|given| given == word);
    let wanted: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|word| !word.starts_with('-'))
        .collect();
    if let Some(unknown) = wanted.iter().find(|word| !SECTIONS.contains(word)) {
        eprintln!("no section `{unknown}`: there are {}", SECTIONS.join(", "));
        return ExitCode::from(2);
    }
    // Only `cargo bench` says `--bench`: run by anything else this is a check.
    let plan = match (said("--bench"), said("--quick")) {
        (false, _) => CHECK,
        (true, true) => QUICK,
        (true, false) => FULL,
    };
    let mut table = Table::default();
    for section in SECTIONS {
        if !wanted.is_empty() && !wanted.contains(&section) {
            continue;
        }
        table.section(section, &[]);
        match section {
            "led" => led::measure(plan, &mut table),
            "rest" => rest::measure(plan, &mut table),
            "at-once" => at_once::measure(plan, &mut table),
            "sent" => replicas::sent_at_rest(plan, &mut table),
            "replicas" => replicas::measure(plan, &mut table),
            "pages" => pages::measure(plan, &mut table),
            "scale" => scale::measure(plan, &mut table),
            _ => beside::measure(plan, &mut table),
        }
    }
    table.end("ticks");
    // What is missed on a busy machine is no defect of the code: only who asks for it gets a verdict.
    if said("--strict") && !table.meets_its_goals() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

impl Plan {
    /// Until everything of a side has begun: long enough for each of its jobs to be due.
    fn settle(&self) -> Duration {
        if self.check {
            Duration::from_secs(1)
        } else {
            child::PERIOD + Duration::from_secs(3)
        }
    }
}
