//! The table: what was measured, beside what, and against which goal.

use std::time::Duration;

use serde_json::{Value, json};

/// What was measured so far. Rows are printed as they come.
#[derive(Default)]
pub(crate) struct Table {
    section: &'static str,
    /// More columns of this section.
    columns: &'static [&'static str],
    rows: Vec<(&'static str, Row)>,
}

/// One line: ours, what it is compared with, and the figure that counts.
pub(crate) struct Row {
    what: String,
    nodes: usize,
    ours: String,
    beside: String,
    figure: Option<f64>,
    goal: Option<Goal>,
    columns: Vec<String>,
    more: Value,
}

/// What the figure should be.
#[allow(dead_code, reason = "every bench uses its own part")]
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

// === impl Table ===

impl Table {
    pub(crate) fn section(&mut self, name: &'static str, columns: &'static [&'static str]) {
        (self.section, self.columns) = (name, columns);
        let all = ["what", "N", "ours", "beside", "figure", "goal", ""];
        let all: Vec<_> = all.iter().chain(columns).copied().collect();
        println!("\n{name}\n\n| {} |", all.join(" | "));
        println!("| {} |", vec!["---"; all.len()].join(" | "));
    }

    pub(crate) fn add(&mut self, row: Row) {
        let Row {
            what,
            nodes,
            ours,
            beside,
            figure,
            goal,
            ..
        } = &row;
        let figure = figure.map_or_else(String::new, short);
        let goal = goal.map_or_else(String::new, Goal::text);
        let verdict = row.verdict();
        let more = (0..self.columns.len()).map(|i| {
            let cell = row.columns.get(i).map_or("", String::as_str);
            format!(" {cell} |")
        });
        let more: String = more.collect();
        println!("| {what} | {nodes} | {ours} | {beside} | {figure} | {goal} | {verdict} |{more}");
        self.rows.push((self.section, row));
    }

    pub(crate) fn meets_its_goals(&self) -> bool {
        self.rows.iter().all(|(_, row)| row.is_met() != Some(false))
    }

    /// One line for programs.
    pub(crate) fn end(&self, bench: &str) {
        let rows = self.rows.iter().map(|(section, row)| {
            json!({
                "section": section, "what": row.what, "nodes": row.nodes, "ours": row.ours, "beside": row.beside,
                "figure": row.figure, "goal": row.goal.map(Goal::text), "met": row.is_met(), "more": row.more,
            })
        });
        let rows: Vec<_> = rows.collect();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        println!(
            "\n{}",
            json!({ "bench": bench, "cores": cores, "rows": rows })
        );
    }
}

// === impl Row ===

impl Row {
    pub(crate) fn new(what: impl Into<String>, nodes: usize) -> Self {
        Self {
            what: what.into(),
            nodes,
            ours: String::new(),
            beside: String::new(),
            figure: None,
            goal: None,
            columns: Vec::new(),
            more: Value::Null,
        }
    }

    pub(crate) fn ours(mut self, ours: impl Into<String>) -> Self {
        self.ours = ours.into();
        self
    }

    pub(crate) fn beside(mut self, beside: impl Into<String>) -> Self {
        self.beside = beside.into();
        self
    }

    pub(crate) fn figure(mut self, figure: f64) -> Self {
        self.figure = Some(figure);
        self
    }

    pub(crate) fn goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self
    }

    /// What stands in the section's own columns.
    #[allow(dead_code, reason = "every bench uses its own part")]
    pub(crate) fn columns(mut self, columns: impl Into<Vec<String>>) -> Self {
        self.columns = columns.into();
        self
    }

    /// What only programs are told.
    pub(crate) fn more(mut self, more: Value) -> Self {
        self.more = more;
        self
    }

    fn is_met(&self) -> Option<bool> {
        // A figure that is not a number meets no goal.
        Some(match (self.figure?, self.goal?) {
            (figure, Goal::AtLeast(goal)) => figure >= goal,
            (figure, Goal::AtMost(goal)) => figure <= goal,
        })
    }

    fn verdict(&self) -> &'static str {
        match self.is_met() {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "",
        }
    }
}

// === impl Goal ===

impl Goal {
    fn text(self) -> String {
        match self {
            Self::AtLeast(goal) => format!(">= {goal}"),
            Self::AtMost(goal) => format!("<= {goal}"),
        }
    }
}

// === figures ===

/// A percentile; zero of nothing.
pub(crate) fn percentile(took: &[Duration], percent: usize) -> Duration {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

pub(crate) fn p50(took: &[Duration]) -> Duration {
    percentile(took, 50)
}

pub(crate) fn p99(took: &[Duration]) -> Duration {
    percentile(took, 99)
}

/// The middle one.
#[allow(dead_code, reason = "every bench uses its own part")]
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
}

/// A duration for people.
pub(crate) fn time(took: Duration) -> String {
    match micros(took) {
        us if us < 1_000.0 => format!("{us:.0} us"),
        us if us < 100_000.0 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.0} ms", us / 1e3),
    }
}

fn short(figure: f64) -> String {
    if figure.abs() < 100.0 {
        format!("{figure:.2}")
    } else {
        format!("{figure:.0}")
    }
}
