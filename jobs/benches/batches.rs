//! What batches cost: rows of a table beside a queue in the database itself, claims, many claimers, large tables.
//!
//! `cargo bench -p watchkeeper-jobs --bench batches -- [SECTION...] [--quick] [--strict]` measures and prints a table. The table
//! is for people; the last line is one JSON object. See `benches/README.md` for what the figures mean.
//!
//! Without the programs of PostgreSQL or a Redis server it says so and ends well, unless `WATCHKEEPER_REQUIRE` names them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench fails by panicking"
)]

use std::process::ExitCode;

#[path = "../../lock/benches/lock/asked.rs"]
mod asked;
#[path = "batches/beside.rs"]
mod beside;
#[path = "batches/claims.rs"]
mod claims;
#[path = "batches/fleet.rs"]
mod fleet;
#[path = "batches/large.rs"]
mod large;
#[path = "../../lock/tests/postgres/server.rs"]
mod postgres;
#[path = "../../lock/tests/redis/server.rs"]
mod server;
#[allow(dead_code, reason = "every bench uses its own part")]
#[path = "../../lock/benches/lock/table.rs"]
mod table;

use table::Table;

const SECTIONS: [&str; 5] = ["beside", "claims", "crowd", "rate", "large"];

/// How much is measured.
#[derive(Clone, Copy)]
struct Plan {
    /// Rows that are sent in one round.
    rows: u64,
    /// Rounds of each side.
    rounds: usize,
    /// Rows of a large table.
    large: u64,
    /// Rows that one process sends while its memory is watched.
    many: u64,
    /// How long claims are counted, in seconds.
    seconds: u64,
}

const FULL: Plan = Plan {
    rows: 60_000,
    rounds: 3,
    large: 10_000_000,
    many: 1_000_000,
    seconds: 10,
};

const QUICK: Plan = Plan {
    rows: 10_000,
    rounds: 1,
    large: 200_000,
    many: 50_000,
    seconds: 3,
};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|w| w != "--bench")
        .collect();
    let flag = |name: &str| words.iter().any(|word| word == name);
    let wanted: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .filter(|w| !w.starts_with("--"))
        .collect();
    if let Some(unknown) = wanted.iter().find(|word| !SECTIONS.contains(word)) {
        eprintln!("there is no section {unknown}: {}", SECTIONS.join(" "));
        return ExitCode::FAILURE;
    }
    let missing = match (postgres::programs(), server::binary()) {
        (None, _) => Some(("postgres", postgres::REMEDY)),
        (_, None) => Some(("redis", server::REMEDY)),
        _ => None,
    };
    if let Some((what, remedy)) = missing {
        println!("ignored: {remedy}");
        let required = std::env::var("WATCHKEEPER_REQUIRE").unwrap_or_default();
        let is_required = required.split(',').any(|word| word.trim() == what);
        return ExitCode::from(u8::from(is_required));
    }
    let plan = if flag("--quick") { QUICK } else { FULL };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let mut table = Table::default();
    for section in SECTIONS {
        if !wanted.is_empty() && !wanted.contains(&section) {
            continue;
        }
        match section {
            "beside" => runtime.block_on(beside::section(plan, &mut table)),
            "claims" => runtime.block_on(claims::section(plan, &mut table)),
            "crowd" => runtime.block_on(claims::crowd(plan, &mut table)),
            "rate" => runtime.block_on(beside::rate(plan, &mut table)),
            _ => runtime.block_on(large::section(plan, &mut table)),
        }
    }
    table.end("batches");
    ExitCode::from(u8::from(flag("--strict") && !table.meets_its_goals()))
}
