//! Tests: whatever others write, the terminal is told nothing but text, and every row stays a row.

use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::{
    Failure, check, doctor, explain, history, jobs, json_text, listed, locks, orders, paragraph,
    status,
};
use crate::{
    chance::Chance,
    config::{Config, Flag, LoadOptions, Spec, load},
    intent::Trigger,
    lock::{BreakReport, BreakVote},
    node::{Expiry, NodeError, Token},
    status::{FleetStatus, LockDetail, LockStatus, RunRecord, leaks::Leak},
    terminal,
    worker::asking::{DrainAnswer, PauseAnswer, ResignAnswer, Until},
};

const STRINGS: u64 = 2_000;
/// Of these every one is as long as the longest: 100,000 characters.
const LONG: u64 = 500;
const LONGEST: usize = 100_000;

const PIECES: [&str; 30] = [
    "\u{1b}[2J",
    "\u{1b}[31m",
    "\u{1b}]0;name\u{7}",
    "\u{1b}]8;;http://a\u{1b}\\",
    "\u{1b}",
    "\u{9b}2J",
    "\u{90}q\u{9c}",
    "\n",
    "\r\n",
    "\r",
    "\t",
    "\u{b}",
    "\u{c}",
    "\u{8}",
    "\0",
    "\u{7f}",
    "\u{202e}",
    "\u{2066}",
    "\u{200e}",
    "\u{200b}",
    "\u{2028}",
    "\u{feff}",
    "\u{61c}",
    "\u{e0041}",
    "漢字",
    "e\u{301}",
    "{}{0}%s",
    "\"\\'",
    "name",
    " ",
];

/// What stands in the place of every text that somebody else can write.
fn text(chance: &Chance, number: u64) -> String {
    let piece = || PIECES[usize::try_from(chance.below(PIECES.len() as u64)).unwrap()];
    let mut text: String = (0..=chance.below(12)).map(|_| piece()).collect();
    if number.is_multiple_of(LONG) {
        text = text.chars().cycle().take(LONGEST).collect();
    }
    text
}

/// A value whose texts are all `text`: in the template they are `?`.
fn with<T: DeserializeOwned>(template: &str, text: &str) -> T {
    let text = serde_json::to_string(text).unwrap();
    serde_json::from_str(&template.replace("\"?\"", &text)).unwrap()
}

const FLEET: &str = r#"{
    "replicas": [
        {"id": "?", "name": "?", "host": "?", "version": "?", "unfit": "?", "admin": "?"},
        {"id": "?", "name": "?", "reload": {"ok": false, "error": "?", "changed": ["?"], "needs_restart": ["?"]}}
    ],
    "jobs": [{
        "name": "?", "coordination": "?", "schedule": "?", "zone": "?", "last_outcome": "?", "paused_why": "?",
        "leader": {"replica": "?", "name": "?", "host": "?"},
        "definitions": [{"definition": "?", "replicas": ["?"], "schedule": "?", "zone": "?"}],
        "running": [{"run_id": "?", "replica": "?", "batch": "?", "message": "?", "done": 1, "total": 2}]
    }],
    "nodes": [{"name": "?", "cause": "?", "error": "?"}]
}"#;

const LOCKS: &str = r#"[{"key": "?", "owner": "?", "replica": "?", "held": true, "remaining_ms": 5}, {"key": "?", "owner": "?"}]"#;

const LOCK: &str = r#"{
    "key": "?", "state": "held", "owner": "?", "nodes": 2, "needed": 2, "configured": 3,
    "replica": {"id": "?", "name": "?", "host": "?"}, "ledger": {"error": "?"},
    "by_node": [{"node": "?", "error": "?"}, {"node": "?", "holder": "?", "foreign": true, "owner": "?"}]
}"#;

const LEAKS: &str = r#"[{
    "key": "?", "kind": "endless", "owner": "?", "nodes": ["?", "?"], "remaining_ms": null, "finding": "?", "remedy": "?"
}]"#;

const RUNS: &str = r#"[{
    "run_id": "?", "job": "?", "tick": "2026-05-04T08:00:00.123456789Z", "replica": "?", "replica_name": "?", "outcome": "?",
    "detail": "?", "started": "2026-05-04T08:00:00.123456789Z", "took_ms": 5, "output": "?", "params": ["?"],
    "progress": {"done": 1, "message": "?"}
}]"#;

const TRIGGER: &str = r#"{"job": "?", "id": "?", "by": "?", "replica": "?", "run_id": "?", "outcome": "?", "detail": "?", "state": "ended"}"#;

/// Everything that a terminal shows, with the name of the place.
fn shown(text: &str) -> Vec<(&'static str, String)> {
    let config = Config::default();
    let now: Timestamp = "2026-05-04T08:01:30Z".parse().unwrap();
    let own = || text.to_owned();
    let fleet: FleetStatus = with(FLEET, text);
    let rows: Vec<LockStatus> = with(LOCKS, text);
    let lock: LockDetail = with(LOCK, text);
    let leaks: Vec<Leak> = with(LEAKS, text);
    let runs: Vec<RunRecord> = with(RUNS, text);
    let trigger: Trigger = with(TRIGGER, text);
    let broken = BreakReport {
        key: own(),
        owner: own(),
        token: Token(7),
        expiry: Expiry::default(),
        nodes: vec![(own(), BreakVote::Failed(NodeError::Unfit(own())))],
    };
    let pause = PauseAnswer {
        job: own(),
        paused: true,
        changed: true,
        reason: own(),
        heard_by: vec![own()],
        unheard_by: vec![own()],
        known: true,
    };
    let resign = ResignAnswer {
        job: own(),
        from: own(),
        token: Token(1),
        leader: Some(own()),
        leader_token: Some(Token(2)),
    };
    let drain = DrainAnswer {
        replica: own(),
        name: own(),
        heard: true,
        gone: false,
    };
    let said = |told: Result<String, String>| told.unwrap_or_else(|why| why);
    let sentence = |told| terminal::sentence(&said(told));
    let json = json_text(&(&fleet, &rows, &lock, &leaks, &runs, &pause)).unwrap_or_default();
    let spec = Spec {
        kind: Some(own()),
        ..Spec::continuous()
    };
    vec![
        ("status", status::show(&fleet, &config, now)),
        ("locks", status::show_locks(&rows)),
        ("locks show", locks::describe(&lock)),
        ("locks --leaked", locks::show_leaks(&leaks)),
        ("locks break", locks::node_results(&broken)),
        ("history", history::show(&runs, false)),
        ("jobs", jobs::show(&[jobs::row(text, &spec, now)])),
        (
            "doctor",
            doctor::show(&[doctor::Finding::error(text, text, text)]),
        ),
        ("explain", explain::in_lines(&[own(), own()])),
        (
            "trigger",
            sentence(orders::trigger_text(&trigger, text, true)),
        ),
        ("resign", sentence(orders::resign_text(&resign))),
        ("drain", sentence(orders::drain_text(&drain, Until::Heard))),
        ("json", json),
    ]
}

/// Where lines of the text itself stay lines.
fn with_lines(text: &str) -> Vec<(&'static str, String)> {
    let runs: Vec<RunRecord> = with(RUNS, text);
    let pause = PauseAnswer {
        job: text.to_owned(),
        paused: true,
        changed: true,
        reason: text.to_owned(),
        heard_by: vec![],
        unheard_by: vec![text.to_owned()],
        known: true,
    };
    vec![
        ("history --output", history::show(&runs, true)),
        ("pause", paragraph(&orders::paused_text(&pause))),
        ("failure", Failure::Failed(text.to_owned()).text()),
        ("usage", Failure::Usage(text.to_owned()).text()),
    ]
}

fn commands(c: char) -> bool {
    c.is_control() && c != '\n'
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[track_caller]
fn assert_tame(place: &str, text: &str, number: u64) {
    // As it goes out.
    let text = terminal::lines(text);
    let found = text.find(|c| commands(c) && !(c == '\t' && place.contains("--output")));
    if let Some(at) = found {
        let around: String = text[at..].chars().take(20).collect();
        panic!("string {number}, {place}: {around:?}");
    }
}

#[test]
fn two_thousand_hostile_strings_command_no_terminal() {
    let seed = std::env::var("WATCHKEEPER_TERMINAL_SEED");
    let seed = seed.ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("WATCHKEEPER_TERMINAL_SEED={seed}");
    let chance = Chance::seeded(seed);
    let lines: Vec<usize> = shown("x")
        .iter()
        .map(|(_, text)| text.lines().count())
        .collect();
    for number in 1..=STRINGS {
        let text = text(&chance, number);
        for ((place, shown), lines) in shown(&text).iter().zip(&lines) {
            assert_tame(place, shown, number);
            let found = shown.lines().count();
            assert_eq!(
                found,
                *lines,
                "string {number}, {place}:\n{}",
                terminal::cell(shown)
            );
        }
        for (place, shown) in with_lines(&text) {
            assert_tame(place, &shown, number);
        }
        let logged = terminal::log_line(&format!("{text}\n"), false).into_owned();
        assert_tame("log", &logged, number);
        assert_eq!(logged.lines().count(), 1, "string {number}");
    }
}

/// What is wrong with a configuration quotes it.
#[test]
fn a_hostile_configuration_commands_no_terminal() {
    let chance = Chance::seeded(2);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("watchkeeper.toml");
    for number in 1..=100 {
        let text = text(&chance, number);
        // As JSON it is a text of TOML, too.
        let quoted = serde_json::to_string(&text).unwrap();
        let toml = match number % 3 {
            0 => text.clone(),
            1 => format!("[worker]\n{quoted} = 1\n"),
            _ => {
                format!("[jobs.{quoted}]\nkind = {quoted}\nschedule = {quoted}\nzone = {quoted}\n")
            }
        };
        std::fs::write(&file, toml).unwrap();
        let value = |name: &str, key: &str| Flag {
            name: name.to_owned(),
            key: key.to_owned(),
            value: text.clone(),
        };
        let options = LoadOptions {
            root: folder.path().to_owned(),
            env: vec![
                (format!("WATCHKEEPER_JOBS__{text}__KIND"), text.clone()),
                ("WATCHKEEPER_LOCKS__TTL".to_owned(), text.clone()),
                (
                    "WATCHKEEPER_ADMIN__TOKEN_FILE".to_owned(),
                    text.replace('\0', "0"),
                ),
            ],
            flags: vec![
                value("--listen", "admin.listen"),
                value("--x", "locks.backend"),
            ],
            ..LoadOptions::default()
        };
        let Err(problems) = load(&options) else {
            panic!("string {number}: {text:?}");
        };
        let shown = listed(&problems);
        assert_eq!(shown.lines().count(), problems.len(), "string {number}");
        assert_tame("check", &shown, number);
        let json = json_text(&check::as_json(&problems, &[])).unwrap_or_default();
        assert_tame("check --json", &json, number);
        assert_tame("failure", &Failure::Config(problems).text(), number);
    }
}
