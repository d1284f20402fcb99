//! Tests: whatever others write, the terminal is told nothing but text, and every row stays a row.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde_json::json;

use crate::cli::{
    check, commands,
    doctor::{self, finding},
    explain,
    failure::{Failure, listed, paragraph},
    follow::story,
    history, jobs, locks,
    output::json_text,
    status, triggers, watch,
};
use crate::{
    chance::Chance,
    config::{Config, Flag, LoadOptions, Spec, load},
    fleet::{
        DrainAnswer, PauseAnswer, ResignAnswer, Trigger, TriggerParams, TriggerState, Until,
        WaitingTrigger,
        history::{BatchCounts, Resumed, RunRecord},
        status::{
            DefinitionStatus, FleetStatus, HeldItems, HolderStatus, JobPresence, JobStanding,
            JobStatus, JobTrouble, LastSeen, LeaderStatus, LockDetail, LockState, LockStatus,
            NodeStatus, NoticeStatus, Presence, Rate, ReloadStatus, ReplicaStatus, Role,
            RunProgress, RunStatus,
            leaks::{Leak, LeakKind},
            locks::{LedgerStatus, NodeLock},
        },
    },
    lock::{BreakReport, BreakVote},
    node::{Expiry, NodeError, Token},
    terminal::{self, Paint, Size},
};

/// A fortieth of them every day.
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

/// What stands in the place of every text that others can write.
fn text(chance: &Chance, number: u64) -> String {
    let piece = || PIECES[usize::try_from(chance.below(PIECES.len() as u64)).unwrap()];
    let mut text: String = (0..=chance.below(12)).map(|_| piece()).collect();
    if number.is_multiple_of(LONG) {
        text = text.chars().cycle().take(LONGEST).collect();
    }
    text
}

/// Values in which every text is the hostile one. They name each field, so that a new one is missed by the compiler.
struct Of<'a>(&'a str);

impl Of<'_> {
    fn own(&self) -> String {
        self.0.to_owned()
    }

    fn some(&self) -> Option<String> {
        Some(self.own())
    }

    fn several(&self) -> Vec<String> {
        vec![self.own(), self.own()]
    }

    fn at() -> Timestamp {
        "2026-05-04T08:00:00.123456789Z".parse().unwrap()
    }

    fn reload(&self, ok: bool) -> ReloadStatus {
        ReloadStatus {
            at: Self::at(),
            ok,
            error: self.some().filter(|_| !ok),
            needs_restart: self.several(),
        }
    }

    fn replica(&self, unfit: bool, reloaded: bool) -> ReplicaStatus {
        ReplicaStatus {
            id: self.own(),
            name: self.own(),
            host: self.own(),
            pid: 7,
            version: self.own(),
            mode: self.own(),
            role: Role::Standby,
            priority: 0,
            draining: false,
            fit: !unfit,
            unfit: self.some().filter(|_| unfit),
            started: Self::at(),
            seen_ms_ago: 5,
            admin: self.some(),
            reload: Some(self.reload(reloaded)),
            notices: vec![self.notice()],
        }
    }

    fn notice(&self) -> NoticeStatus {
        NoticeStatus {
            name: self.own(),
            waiting: 5,
            sent: Some(Self::at()),
            failing: Some(Self::at()),
        }
    }

    fn run(&self, batch: bool) -> RunStatus {
        RunStatus {
            run_id: self.own(),
            replica: self.own(),
            tick: Self::at(),
            attempt: 1,
            token: Some(Token(7)),
            started: Self::at(),
            batch: self.some().filter(|_| batch),
            done: Some(1),
            total: Some(2),
            per_second: Some(Rate::new(0.5)),
            left_ms: Some(5),
            message: self.some(),
        }
    }

    fn job(&self, led: bool) -> JobStatus {
        let leader = LeaderStatus {
            replica: self.own(),
            name: self.own(),
            host: self.own(),
            pid: 7,
            token: Token(7),
            since: Some(Self::at()),
            remaining_ms: Some(5),
            margin: Some(1),
        };
        let last_seen = LastSeen {
            replica: self.own(),
            name: self.own(),
            host: self.own(),
            pid: 7,
            token: Token(7),
            at: Self::at(),
            ms_ago: 5,
        };
        let definition = DefinitionStatus {
            definition: self.own(),
            replicas: self.several(),
            loaded: Some(Self::at()),
            leads: led,
            stands_back: self.some(),
        };
        JobStatus {
            trouble: Some(JobTrouble {
                replicas: vec![self.own()],
                why: self.own(),
            }),
            name: self.own(),
            coordination: self.own(),
            schedule: self.own(),
            zone: self.some(),
            definitions: vec![definition],
            leader: Some(leader).filter(|_| led),
            leader_known: led,
            last_seen: Some(last_seen).filter(|_| !led),
            last_tick: Some(Self::at()),
            next_tick: Some(Self::at()),
            last_outcome: self.some(),
            last_ended: Some(Self::at()),
            paused: true,
            paused_why: self.some(),
            paused_by: self.some(),
            paused_since: Some(Self::at()),
            backlog: Some(5),
            backlog_since: Some(Self::at()),
            held: Some(Self::held()),
            running: vec![self.run(false), self.run(true)],
            shards: None,
            shards_led: 0,
            shards_failing: 0,
            shards_paused: 0,
            by_shard: Vec::new(),
        }
    }

    fn held() -> HeldItems {
        HeldItems {
            retry: 1,
            dead: 2,
            in_doubt: 3,
            parked: 4,
        }
    }

    fn node(&self) -> NodeStatus {
        NodeStatus {
            name: self.own(),
            up: true,
            votes: false,
            votes_in_ms: Some(5),
            cause: self.some(),
            error: self.some(),
            rtt_us: Some(5),
            offset_ms: Some(5),
        }
    }

    fn fleet(&self) -> FleetStatus {
        FleetStatus {
            replicas: vec![self.replica(true, false), self.replica(false, false)],
            jobs: vec![self.job(true), self.job(false)],
            nodes: vec![self.node()],
        }
    }

    /// What a replica tells, where its engine has died or it is unfit, and what becomes of that.
    fn told(&self, died: bool) -> Presence {
        let job = JobPresence {
            name: self.own(),
            coordination: self.own(),
            schedule: self.own(),
            zone: self.some(),
            definition: format!("{}{died}", self.0),
            loaded: Some(Self::at()),
            disputed: false,
            stands_back: self.some(),
            engine_died: self.some(),
            trouble: self.some(),
            standing: JobStanding::Standby,
            token: Some(Token(7)),
            since: Some(Self::at()),
            remaining_ms: Some(5),
            margin: Some(1),
            lasts_ms: Some(5),
            last_tick: Some(Self::at()),
            next_tick: Some(Self::at()),
            paused: true,
            last_outcome: self.some(),
            last_ended: Some(Self::at()),
            backlog: Some(5),
            backlog_since: Some(Self::at()),
            held: Some(Self::held()),
            running: vec![self.run(true)],
        };
        Presence {
            id: format!("{}{died}", self.0),
            tag: self.own(),
            name: self.own(),
            host: self.own(),
            pid: 7,
            version: self.own(),
            started: Self::at(),
            mode: self.own(),
            role: Role::Standby,
            priority: 0,
            draining: false,
            unfit: self.some().filter(|_| !died),
            cut_off: false,
            admin: self.some(),
            reload: Some(self.reload(died)),
            notices: vec![self.notice()],
            watches: Vec::new(),
            jobs: vec![job],
            rev: 1,
            written_at: Self::at(),
        }
    }

    fn holder(&self, program: bool) -> HolderStatus {
        HolderStatus {
            id: self.own(),
            name: self.own(),
            host: self.own(),
            pid: 7,
            command: self.some().filter(|_| program),
            since: Some(Self::at()),
        }
    }

    fn row(&self, program: bool) -> LockStatus {
        LockStatus {
            key: self.own(),
            owner: self.own(),
            token: Token(7),
            remaining_ms: Some(5),
            held: true,
            nodes: 2,
            released: false,
            replica: self.some(),
            holder: Some(self.holder(program)),
        }
    }

    fn lock(&self, program: bool) -> LockDetail {
        let node = |error: bool, foreign| NodeLock {
            node: self.own(),
            error: self.some().filter(|_| error),
            holder: self.some(),
            foreign,
            remaining_ms: Some(5),
            endless: false,
            owner: self.some(),
            seq: 7,
            watched_ms: Some(5),
            token: Token(7),
            released: false,
            body_token: Token(7),
            rev: 1,
        };
        LockDetail {
            key: self.own(),
            state: LockState::Held,
            owner: self.some(),
            token: Token(7),
            remaining_ms: Some(5),
            nodes: 2,
            needed: 2,
            configured: 3,
            margin: Some(0),
            holder: Some(self.holder(program)),
            ledger: Some(LedgerStatus {
                decided_upto: Some(Self::at()),
                open: 1,
                waiting: 1,
                error: self.some(),
            }),
            by_node: vec![node(true, false), node(false, true), node(false, false)],
        }
    }

    /// A record whose ticks are decided far ahead.
    fn ahead(&self) -> LockDetail {
        LockDetail {
            key: format!("job/{}", self.0),
            ledger: Some(LedgerStatus {
                decided_upto: Some(Self::at()),
                ..LedgerStatus::default()
            }),
            ..LockDetail::default()
        }
    }

    fn leak(&self) -> Leak {
        Leak {
            key: self.own(),
            kind: LeakKind::Endless,
            owner: self.own(),
            nodes: self.several(),
            remaining_ms: None,
            finding: self.own(),
            remedy: self.own(),
        }
    }

    fn record(&self, batch: bool, batches: bool) -> RunRecord {
        RunRecord {
            run_id: self.own(),
            job: self.own(),
            tick: Self::at(),
            attempt: 1,
            token: Some(Token(7)),
            replica: self.own(),
            replica_name: self.own(),
            outcome: self.own(),
            detail: self.own(),
            started: Some(Self::at()),
            ended: Some(Self::at()),
            took_ms: Some(5),
            output: self.some(),
            output_bytes: 5,
            params: self.several(),
            resumed: Some(Resumed {
                bytes: 5,
                saved: Some(Self::at()),
            }),
            progress: Some(RunProgress {
                done: Some(1),
                total: Some(2),
                per_second: Some(Rate::new(0.5)),
                left_ms: Some(5),
                message: self.some(),
            }),
            seq: 7,
            batch: self.some().filter(|_| batch),
            batches: batches.then_some(BatchCounts {
                done: 1,
                skipped: 2,
                failed: 3,
            }),
            items: BTreeMap::from([(self.own(), 1)]),
            trace_id: self.some(),
        }
    }

    fn trigger(&self, state: TriggerState) -> Trigger {
        Trigger {
            job: self.own(),
            id: self.own(),
            by: self.own(),
            // A reader of it takes what others wrote.
            given: serde_json::from_value::<TriggerParams>(json!({ (self.0): self.0 })).unwrap(),
            asked: Self::at(),
            withdrawn_by: self.own(),
            state,
            replica: self.own(),
            run_id: self.own(),
            outcome: self.own(),
            detail: self.own(),
            ended: Some(Self::at()),
        }
    }
}

const STATES: [TriggerState; 5] = [
    TriggerState::Asked,
    TriggerState::Accepted,
    TriggerState::Withdrawing,
    TriggerState::Started,
    TriggerState::Ended,
];

/// What is drawn again and again: a store that answered once, and does not answer any more.
fn watched(fleet: &FleetStatus, text: &str, now: Timestamp) -> String {
    let size = Size {
        columns: 120,
        rows: 40,
    };
    let mut state = watch::WatchState::new(now);
    state.hear(Ok(fleet.clone()), now);
    state.hear(Err(text.to_owned()), now);
    let (config, every) = (Config::default(), Duration::from_secs(2));
    watch::drawn(&state, &config, now, every, size, Paint::PLAIN)
}

/// Everything that a terminal shows, with the name of the place.
fn shown(text: &str) -> Vec<(&'static str, String)> {
    let (config, plain) = (Config::default(), Paint::PLAIN);
    let now: Timestamp = "2026-05-04T08:01:30Z".parse().unwrap();
    let own = || text.to_owned();
    let of = Of(text);
    let fleet = of.fleet();
    let merged = FleetStatus::from_presences([of.told(true), of.told(false)], vec![of.node()], now);
    let rows = vec![of.row(true), of.row(false)];
    let (lock, replicas) = (of.lock(true), of.lock(false));
    let leaks = vec![of.leak()];
    let runs = vec![
        of.record(false, false),
        of.record(true, false),
        of.record(false, true),
    ];
    let trigger = of.trigger(TriggerState::Ended);
    let asked = STATES.map(|state| of.trigger(state));
    let waiting = STATES.map(|state| WaitingTrigger::of(of.trigger(state), &fleet, Some(true)));
    let unknown = FleetStatus::default();
    let unrun = STATES.map(|state| WaitingTrigger::of(of.trigger(state), &unknown, Some(false)));
    let long_ago = now - Duration::from_secs(36_000);
    let ahead = doctor::ahead(&[of.ahead()], long_ago, Duration::from_secs(1));
    assert_eq!(ahead.len(), 1);
    let broken = BreakReport {
        key: own(),
        owner: own(),
        token: Token(7),
        expiry: Expiry::default(),
        nodes: vec![(own(), BreakVote::Failed(NodeError::Unfit(own())))],
        released: None,
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
    let json = json_text(&(
        &fleet, &merged, &rows, &lock, &leaks, &runs, &pause, &waiting,
    ))
    .unwrap_or_default();
    let found = doctor::judge(&fleet, &[lock.clone(), replicas.clone()]);
    let spec = Spec {
        kind: Some(own()),
        ..Spec::continuous()
    };
    vec![
        ("status", status::show(&fleet, &config, now, plain)),
        ("locks", locks::show_locks(&rows)),
        (
            "status, of documents",
            status::show(&merged, &config, now, plain),
        ),
        ("status --watch", watched(&fleet, text, now)),
        ("locks show", locks::describe(&lock)),
        ("locks show, of a replica", locks::describe(&replicas)),
        ("locks --leaked", locks::show_leaks(&leaks)),
        ("locks break", locks::node_results(&broken)),
        ("history", history::show(&runs, false, plain)),
        ("history of all", history::show_all(&runs, false, plain)),
        ("history --follow", followed(&runs, plain)),
        ("history, how far", how_far(&runs, now)),
        ("trigger --follow", told_of_states(&asked, text)),
        ("jobs", jobs::show(&[jobs::row(text, &spec, now)])),
        (
            "doctor",
            finding::show(&[finding::Finding::error(text, text, text)], plain),
        ),
        ("doctor, ledgers", finding::show(&ahead, plain)),
        ("doctor, fleet", finding::show(&found, plain)),
        ("triggers", triggers::show(&waiting)),
        ("triggers of nobody", triggers::show(&unrun)),
        ("triggers withdraw", triggers::all_told(&asked)),
        ("explain", explain::in_lines(&[own(), own()])),
        (
            "trigger",
            sentence(commands::trigger_text(&trigger, text, true)),
        ),
        ("resign", sentence(commands::resign_text(&resign))),
        (
            "drain",
            sentence(commands::drain_text(&drain, Until::Heard)),
        ),
        ("json", json),
    ]
}

fn followed(runs: &[RunRecord], paint: Paint) -> String {
    let lines = runs.iter().map(|run| story::line(run, paint) + "\n");
    lines.collect()
}

fn how_far(runs: &[RunRecord], now: Timestamp) -> String {
    let running = runs.iter().map(|run| RunRecord {
        outcome: "running".to_owned(),
        ..run.clone()
    });
    let running: Vec<RunRecord> = running.collect();
    let far = story::how_far(&running, now);
    far.map(|far| far.text).unwrap_or_default()
}

fn told_of_states(asked: &[Trigger], replica: &str) -> String {
    let states = asked.iter().filter_map(|t| story::state(t, replica));
    let left = asked
        .iter()
        .map(|t| terminal::sentence(&story::left(t, "is left")));
    states.chain(left).map(|line| line + "\n").collect()
}

/// The same in colours, as it goes out.
fn coloured(text: &str) -> Vec<(&'static str, String)> {
    let now: Timestamp = "2026-05-04T08:01:30Z".parse().unwrap();
    let (of, config, paint) = (Of(text), Config::default(), Paint::COLOURED);
    let (fleet, runs) = (of.fleet(), vec![of.record(false, false)]);
    let shown = [
        ("status", status::show(&fleet, &config, now, paint)),
        ("history --output", history::show(&runs, true, paint)),
        ("history --follow", followed(&runs, paint)),
    ];
    let painted = shown.map(|(place, text)| (place, terminal::painted(&text, true).into_owned()));
    painted.into()
}

/// Where lines of the text itself stay lines.
fn with_lines(text: &str) -> Vec<(&'static str, String)> {
    let (of, plain) = (Of(text), Paint::PLAIN);
    let runs = vec![of.record(false, false), of.record(true, false)];
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
        ("history --output", history::show(&runs, true, plain)),
        ("pause", paragraph(&commands::paused_text(&pause))),
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
    let long = std::env::var_os("WATCHKEEPER_LONG").is_some();
    let step = if long { 1 } else { 40 };
    for number in (0..=STRINGS).step_by(step).skip(1) {
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
        // A colour of theirs would be one more.
        let colours = |text: &str| text.matches('\u{1b}').count();
        for ((place, shown), (_, tame)) in coloured(&text).iter().zip(coloured("x")) {
            let expected = colours(&tame);
            assert_eq!(colours(shown), expected, "string {number}, {place}");
            assert_tame(place, &shown.replace('\u{1b}', ""), number);
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
        assert_eq!(
            shown.lines().count(),
            problems.iter().len(),
            "string {number}"
        );
        assert_tame("check", &shown, number);
        let json = json_text(&check::as_json(&problems, &[])).unwrap_or_default();
        assert_tame("check --json", &json, number);
        assert_tame("failure", &Failure::Config(problems).text(), number);
    }
}
