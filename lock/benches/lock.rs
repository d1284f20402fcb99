//! What a lock costs on real Redis servers, beside the same work written by hand, in one run.
//!
//! `cargo bench --bench lock -- [SECTION...] [--quick] [--nodes=N] [--at=N] [--only=SIDE,...] [--strict] [--one-thread]`
//! measures and prints a table. What is compared is interleaved in short rounds, so that a machine that grows busy slows both sides. The table is for people;
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
#[path = "lock/listing.rs"]
mod listing;
#[path = "lock/peers.rs"]
mod peers;
#[path = "lock/processor.rs"]
mod processor;
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

const SECTIONS: [&str; 10] = [
    "cycles",
    "trips",
    "bulk",
    "renewals",
    "handover",
    "expiry",
    "idle",
    "contended",
    "frozen",
    "listing",
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
    /// Leases beside which a listing and an admission are tried, and the longest lease where a node is admitted.
    leases: usize,
    max_ttl: Duration,
    /// Threads of the callers' runtime.
    workers: usize,
    /// Only with so many nodes.
    nodes: Option<usize>,
    /// Only so many cycles at a time.
    at: Option<usize>,
    /// Only these sides of cycles, beside those by hand; all when empty.
    only: &'static [String],
}

const FULL: Plan = Plan {
    rounds: 7,
    busy: Duration::from_millis(400),
    trials: 40,
    idle: Duration::from_secs(20),
    leases: 200_000,
    max_ttl: Duration::from_secs(30),
    workers: 2,
    nodes: None,
    at: None,
    only: &[],
};

const QUICK: Plan = Plan {
    rounds: 3,
    busy: Duration::from_millis(200),
    trials: 12,
    idle: Duration::from_secs(10),
    leases: 200_000,
    max_ttl: Duration::from_secs(30),
    workers: 2,
    nodes: None,
    at: None,
    only: &[],
};

/// Only that everything can be measured: says nothing about time.
const CHECK: Plan = Plan {
    rounds: 1,
    busy: Duration::from_millis(20),
    trials: 1,
    idle: Duration::from_millis(200),
    leases: 500,
    max_ttl: Duration::from_secs(3),
    workers: 2,
    nodes: None,
    at: None,
    only: &[],
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
    if let Some((listing::PLANT, what)) = words.split_first().map(|(w, what)| (w.as_str(), what)) {
        return listing::planter(what);
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
    let mut plan = match (said("--bench"), said("--quick")) {
        (false, _) => CHECK,
        (true, true) => QUICK,
        (true, false) => FULL,
    };
    let nodes = words.iter().find_map(|word| word.strip_prefix("--nodes="));
    plan.nodes = nodes.map(|n| n.parse().expect("--nodes=1, 3 or 5"));
    let at = words.iter().find_map(|word| word.strip_prefix("--at="));
    plan.at = at.map(|n| n.parse().expect("--at=1, 32 or 256"));
    let only = words.iter().find_map(|word| word.strip_prefix("--only="));
    let only = only.into_iter().flat_map(|names| names.split(','));
    plan.only = only.map(str::to_owned).collect::<Vec<_>>().leak();

    if said("--one-thread") {
        plan.workers = 1;
    }

    // As `#[tokio::main]` has it; the hand-written client shares it, while our keeper has a thread of its own.
    let mut runtime = match plan.workers {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.worker_threads(plan.workers).enable_all().build();
    let runtime = runtime.unwrap();
    let mut table = Table::default();
    for section in SECTIONS {
        if !wanted.is_empty() && !wanted.contains(&section) {
            continue;
        }
        table.section(section, columns(section));
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

    /// Whether this side of a comparison is wanted.
    fn wants(&self, side: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == side)
    }
}

/// Columns that only this section has.
fn columns(section: &str) -> &'static [&'static str] {
    match section {
        "cycles" | "bulk" | "contended" => processor::COLUMNS,
        _ => &[],
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
        "listing" => listing::measure(plan, table).await,
        other => unreachable!("{other} is no section"),
    }
}
