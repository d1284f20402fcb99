//! Samples, and how they are shown.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

/// All samples of a run, by what was measured.
#[derive(Default)]
pub(crate) struct Figures {
    samples: BTreeMap<Row, Vec<Duration>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    state: &'static str,
    nodes: usize,
    what: &'static str,
}

/// Two rows whose medians are compared.
struct Pair {
    name: &'static str,
    nodes: usize,
    of: Row,
    to: Row,
    is_goal: bool,
}

impl Figures {
    pub(crate) fn add(
        &mut self,
        what: &'static str,
        nodes: usize,
        state: &'static str,
        took: Duration,
    ) {
        let row = Row { state, nodes, what };
        self.samples.entry(row).or_default().push(took);
    }

    /// Whether every ratio that has a goal keeps it.
    pub(crate) fn meets(&self, goal: f64) -> bool {
        pairs()
            .iter()
            .filter(|pair| pair.is_goal)
            .all(|pair| self.ratio(pair) <= goal)
    }

    /// A table for people, then one line for programs.
    pub(crate) fn print(&self, quick: bool, goal: f64) {
        println!(
            "{:12} {:>5}  {:16} {:>6} {:>10} {:>10}",
            "state", "nodes", "what", "n", "p50", "p99"
        );
        for (row, took) in &self.samples {
            let Row { state, nodes, what } = row;
            let (p50, p99) = (micros(took, 50), micros(took, 99));
            let n = took.len();
            println!("{state:12} {nodes:>5}  {what:16} {n:>6} {p50:>7.0} us {p99:>7.0} us");
        }
        println!("\nmedian over median");
        for pair in pairs() {
            let verdict = match pair.is_goal {
                true if quick => format!("goal {goal}; too few samples to judge"),
                true if self.ratio(&pair) <= goal => format!("goal {goal}: met"),
                true => format!("goal {goal}: MISSED"),
                false => String::new(),
            };
            let (name, nodes, ratio) = (pair.name, pair.nodes, self.ratio(&pair));
            println!("{name:38} N = {nodes}  {ratio:6.2}  {verdict}");
        }
        println!("{}", self.json(quick, goal));
    }

    fn json(&self, quick: bool, goal: f64) -> Value {
        let rows = self.samples.iter().map(|(row, took)| {
            json!({
                "state": row.state, "nodes": row.nodes, "what": row.what, "n": took.len(),
                "p50_us": micros(took, 50), "p99_us": micros(took, 99),
            })
        });
        let ratios = pairs().into_iter().map(|pair| {
            let goal = pair.is_goal.then_some(goal);
            json!({ "what": pair.name, "nodes": pair.nodes, "ratio": self.ratio(&pair), "goal": goal })
        });
        json!({
            "bench": "lock",
            "quick": quick,
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "rows": rows.collect::<Vec<_>>(),
            "ratios": ratios.collect::<Vec<_>>(),
        })
    }

    fn ratio(&self, pair: &Pair) -> f64 {
        self.median(pair.of) / self.median(pair.to)
    }

    fn median(&self, row: Row) -> f64 {
        let Row { state, nodes, what } = row;
        let took = self.samples.get(&row);
        let took = took.unwrap_or_else(|| panic!("nothing measured: {state} {nodes} {what}"));
        micros(took, 50)
    }
}

fn pairs() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for nodes in [1, 3] {
        for (name, of, to) in [
            ("acquire, to by hand", "acquire", "acquire by hand"),
            ("release, to by hand", "release", "release by hand"),
            ("cycle, to by hand", "cycle", "cycle by hand"),
            ("extend, to by hand", "extend", "extend by hand"),
            (
                "two hops, to an acquire by hand",
                "two thread hops",
                "acquire by hand",
            ),
        ] {
            let row = |what| Row {
                state: "healthy",
                nodes,
                what,
            };
            let (of, to) = (row(of), row(to));
            pairs.push(Pair {
                name,
                nodes,
                of,
                to,
                is_goal: false,
            });
        }
    }
    for (name, what, is_goal) in [
        ("acquire, one frozen to all answer", "acquire", true),
        ("extend, one frozen to all answer", "extend", true),
        ("release, one frozen to all answer", "release", false),
    ] {
        let row = |state| Row {
            state,
            nodes: 3,
            what,
        };
        let (of, to) = (row("one frozen"), row("all answer"));
        pairs.push(Pair {
            name,
            nodes: 3,
            of,
            to,
            is_goal,
        });
    }
    pairs
}

/// A percentile in microseconds.
fn micros(took: &[Duration], percent: usize) -> f64 {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent / 100).min(sorted.len() - 1);
    sorted[at].as_secs_f64() * 1e6
}
