//! What a lock costs on real Redis servers, beside the same work written by hand, in one run.
//!
//! `cargo bench --bench lock` measures (under two minutes); `-- --quick` only checks that everything can be measured.
//! What is compared is interleaved in short blocks, so that a machine that grows busy slows both sides. The table is
//! for people; the last line is one JSON object. See `benches/README.md` for what the figures mean.
//!
//! Without a Redis server it says so and ends well, unless `WATCHKEEPER_REQUIRE` names redis.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench fails by panicking"
)]

use std::process::ExitCode;

#[path = "lock/figures.rs"]
mod figures;
#[path = "lock/frozen.rs"]
mod frozen;
#[path = "lock/healthy.rs"]
mod healthy;
#[path = "lock/raw.rs"]
mod raw;
#[path = "lock/scene.rs"]
mod scene;
#[path = "../tests/redis/server.rs"]
mod server;

use figures::Figures;

/// How much is measured.
#[derive(Clone, Copy)]
struct Plan {
    /// Interleaved blocks of each kind.
    blocks: usize,
    /// Acquisitions in a block.
    acquires: usize,
    /// Extensions in a block.
    extensions: usize,
    /// Cycles before the first that counts.
    warm_up: usize,
}

const FULL: Plan = Plan {
    blocks: 10,
    acquires: 200,
    extensions: 30,
    warm_up: 300,
};

const QUICK: Plan = Plan {
    blocks: 2,
    acquires: 10,
    extensions: 3,
    warm_up: 5,
};

/// The most that one frozen node of three may cost: median over median.
const GOAL: f64 = 1.3;

fn main() -> ExitCode {
    if server::binary().is_none() {
        println!("ignored: {}", server::REMEDY);
        return if server::required() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        };
    }
    // Only `cargo bench` says `--bench`: run by anything else this is a check.
    let said = |word: &str| std::env::args().any(|argument| argument == word);
    let quick = said("--quick") || !said("--bench");
    let plan = if quick { QUICK } else { FULL };

    // One thread for the caller, as for the hand-written client: the best case of the latter.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut figures = Figures::default();
    runtime.block_on(async {
        for nodes in [1, 3] {
            healthy::measure(nodes, plan, &mut figures).await;
        }
        frozen::measure(plan, &mut figures).await;
    });

    figures.print(quick, GOAL);
    // Few samples say nothing about time, but all of them must be there.
    if quick || figures.meets(GOAL) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
