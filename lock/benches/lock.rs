//! What a lock costs on real Redis servers, beside the same work written by hand, in one run.
//!
//! `cargo bench --bench lock -- [SECTION...] [--quick] [--nodes=N] [--strict] [--one-thread]` measures and prints a
//! table. What is compared is interleaved in short rounds, so that a machine that grows busy slows both sides. The table is for people;
//! the last line is one JSON object. See `benches/README.md` for what the figures mean.
//!
//! Without a Redis server it says so and ends well, unless `WATCHKEEPER_REQUIRE` names redis.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench fails by panicking"
)]

use std::{process::ExitCode, time::Duration};

#[path = "lock/asked.rs"]
mod asked;
#[path = "lock/bulk.rs"]
mod bulk;
#[path = "lock/contended.rs"]
mod contended;
#[path = "lock/cycles.rs"]
mod cycles;
#[path = "lock/frozen.rs"]
mod frozen;
#[path = "lock/handover.rs"]
mod handover;
#[path = "lock/idle.rs"]
mod idle;
#[path = "lock/proxy.rs"]
mod proxy;
#[path = "lock/raw.rs"]
mod raw;
#[path = "lock/renewals.rs"]
mod renewals;
#[path = "lock/scene.rs"]
mod scene;
#[path = "../tests/redis/server.rs"]
mod server;
#[path = "lock/table.rs"]
mod table;
#[path = "lock/trips.rs"]
mod trips;

use table::Table;

const SECTIONS: [&str; 9] = [
    "cycles",
    "trips",
    "bulk",
    "renewals",
    "handover",
    "expiry",
    "idle",
    "contended",
    "frozen",
];

/// How much is measured.
#[derive(Clone, Copy)]
struct Plan {
    /// Interleaved rounds of each comparison.
    rounds: usize,
    /// How long one side of a round is kept busy.
    busy: Duration,
    /// Single trials of what is measured one by one, such as hand-overs.
    trials: usize,
    /// How long calls of idle processes are counted.
    idle: Duration,
    /// Only with so many nodes.
    nodes: Option<usize>,
}

const FULL: Plan = Plan {
    rounds: 7,
    busy: Duration::from_millis(400),
    trials: 40,
    idle: Duration::from_secs(20),
    nodes: None,
};

const QUICK: Plan = Plan {
    rounds: 3,
    busy: Duration::from_millis(200),
    trials: 12,
    idle: Duration::from_secs(10),
    nodes: None,
};

/// Only that everything can be measured: says nothing about time.
const CHECK: Plan = Plan {
    rounds: 1,
    busy: Duration::from_millis(20),
    trials: 1,
    idle: Duration::from_millis(200),
    nodes: None,
};

fn main() -> ExitCode {
    if server::binary().is_none() {
        println!("ignored: {}", server::REMEDY);
        return if server::required() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        };
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
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
    let mut plan = match (said("--bench"), said("--quick")) {
        (false, _) => CHECK,
        (true, true) => QUICK,
        (true, false) => FULL,
    };
    let nodes = words.iter().find_map(|word| word.strip_prefix("--nodes="));
    plan.nodes = nodes.map(|n| n.parse().expect("--nodes=1, 3 or 5"));

    // As `#[tokio::main]` has it; the hand-written client shares it, while our keeper has a thread of its own.
    let runtime = if said("--one-thread") {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    } else {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
    }
    .unwrap();
    let mut table = Table::default();
    for section in SECTIONS {
        if !wanted.is_empty() && !wanted.contains(&section) {
            continue;
        }
        table.section(section);
        runtime.block_on(measure(section, plan, &mut table));
    }
    table.end("lock");
    // What is missed on a busy machine is no defect of the code: only who asks for it gets a verdict.
    if said("--strict") && !table.meets_its_goals() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

impl Plan {
    /// Those of these numbers of nodes that are wanted.
    fn nodes<const N: usize>(&self, of: [usize; N]) -> impl Iterator<Item = usize> + use<N> {
        let only = self.nodes;
        of.into_iter()
            .filter(move |n| only.is_none_or(|only| only == *n))
    }
}

async fn measure(section: &str, plan: Plan, table: &mut Table) {
    match section {
        "cycles" => cycles::measure(plan, table).await,
        "trips" => trips::measure(plan, table).await,
        "bulk" => bulk::measure(plan, table).await,
        "renewals" => renewals::measure(plan, table).await,
        "handover" => handover::on_release(plan, table).await,
        "expiry" => handover::on_expiry(plan, table).await,
        "idle" => idle::measure(plan, table).await,
        "contended" => contended::measure(plan, table).await,
        "frozen" => frozen::measure(plan, table).await,
        other => unreachable!("{other} is no section"),
    }
}
