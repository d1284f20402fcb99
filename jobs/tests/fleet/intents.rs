//! What people ask of a fleet, by command and over HTTP.

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;

use crate::{
    beats::starts,
    fleet::{Fleet, TTL, pulse},
    store::Store,
    wait::{SOON, pause, soon},
};

/// No tick falls due: what runs was triggered.
const MANUAL: &str = r#"
[jobs.manual]
kind = "heartbeat"
schedule = "0 0 29 2 *"
retry = 20
params = { file = "$BEATS", work = "400ms" }
"#;

/// Every master comes back empty, one after the other, and then every replica that knew of the pause goes.
pub(crate) fn a_paused_job_stays_paused_through_a_rolling_restart_of_all_masters(store: Store) {
    let mut fleet = Fleet::of(2, store, &pulse());
    let beats = fleet.beats();
    beats.wait(SOON, "first tick", |b| b.event == "started");
    let said = fleet.command(&["pause", "pulse", "--reason", "the masters move"]);
    assert!(said.contains("heard by w0, w1"), "{said}");
    pause(Duration::from_millis(1500));
    let before = beats.of("pulse").len();
    for master in 0..fleet.store.masters_count() {
        fleet.store.restart(master);
        let said = fleet.command(&["doctor", "--wait-admitted", "--timeout", "30s"]);
        assert!(said.contains("every node votes"), "{said}");
    }
    let new = fleet.join();
    for old in [0, 1] {
        fleet.kill(old);
    }
    let led = || fleet.status()["jobs"][0]["leader"]["name"] == format!("w{new}");
    soon("leader that was not here when it was paused", led);
    pause(TTL);
    assert_eq!(beats.of("pulse").len(), before, "nothing has started since");
    let job = &fleet.status()["jobs"][0];
    assert_eq!(job["paused"], true);
    assert_eq!(job["paused_why"], "the masters move");
    let why = fleet.command(&["explain", "pulse"]);
    assert!(why.contains("is paused since"), "{why}");

    let said = fleet.command(&["resume", "pulse"]);
    assert!(said.contains("goes on with its next tick"), "{said}");
    soon("tick after the pause", || beats.of("pulse").len() > before);
    let since = beats.of("pulse").split_off(before);
    let resumed = since[0].at;
    // None from the time of the pause: that was a lot longer ago.
    let oldest = resumed.duration_since(since[0].tick);
    assert!(oldest.as_secs() <= 2, "{since:?}");
}

/// The leader is killed as soon as it has accepted, often while it runs.
pub(crate) fn a_trigger_runs_once_although_its_leader_is_killed_at_once(store: Store) {
    let mut fleet = Fleet::of(3, store, MANUAL);
    let beats = fleet.beats();
    let mut led = fleet.leader("manual");
    for round in 1..=4_usize {
        let said = fleet.command(&["trigger", "manual"]);
        assert!(said.starts_with(&format!("w{}", led.worker)), "{said}");
        pause(Duration::from_millis(60) * (u32::try_from(round).unwrap() - 1));
        let mark = fleet.log.mark();
        fleet.kill(led.worker);
        fleet.join();
        led = fleet.next_leader(mark, "manual");
        let ended = || -> BTreeSet<_> {
            let beats = beats.of("manual").into_iter();
            beats
                .filter(|b| b.event == "ended")
                .map(|b| b.tick)
                .collect()
        };
        soon("end of the run", || ended().len() >= round);
    }
    let said = fleet.command(&["trigger", "manual", "--wait=20s"]);
    assert!(said.contains("done"), "{said}");
    assert!(matches!(
        fleet.asks(led.worker, "POST", "/api/v1/jobs/manual/trigger"),
        200 | 202
    ));
    let ticks = || -> BTreeSet<_> {
        starts(&beats.of("manual"))
            .keys()
            .map(|(t, _)| *t)
            .collect()
    };
    soon("run of the sixth", || ticks().len() >= 6);
    pause(TTL * 2);
    let starts = starts(&beats.of("manual"));
    for ((tick, attempt), times) in &starts {
        assert_eq!(*times, 1, "attempt {attempt} of {tick}");
    }
    assert_eq!(ticks().len(), 6, "six were asked for: {starts:?}");
    let again = starts.keys().filter(|(_, attempt)| *attempt > 1).count();
    fleet.measured("attempts after an interruption", &again);
}

/// By name, by chance, and over HTTP.
pub(crate) fn a_job_is_handed_over_on_request(store: Store) {
    let fleet = Fleet::of(3, store, &pulse());
    let led = fleet.leader("pulse");
    let to = (led.worker + 1) % 3;
    let said = fleet.command(&["resign", "pulse", "--to", &format!("w{to}")]);
    assert!(said.starts_with(&format!("w{to} leads pulse")), "{said}");
    let said = fleet.command(&["resign", "pulse"]);
    assert!(said.contains(&format!("after w{to}")), "{said}");
    assert!(!said.starts_with(&format!("w{to} ")), "{said}");
    let mark = fleet.log.mark();
    let answer = fleet.orders(to, "/api/v1/jobs/pulse/resign");
    assert!(matches!(answer, 200 | 202), "{answer}");
    fleet.next_leader(mark, "pulse");
    assert_eq!(fleet.orders(to, "/api/v1/jobs/plse/resign"), 404);
    for ((tick, attempt), times) in starts(&fleet.beats().all()) {
        assert_eq!((attempt, times), (1, 1), "tick {tick}");
    }
}

/// A run that goes on, so that what is asked for waits.
const LONG: &str = r#"
[jobs.manual]
kind = "heartbeat"
schedule = "0 0 29 2 *"
timeout = "1h"
params = { file = "$BEATS", work = "30m" }
"#;

/// A thousand of 4 KB each, all of one job, as programs leave them that do not count: whoever counts is refused, and who reads
/// them reads names and few of them, so that leases are renewed as before.
pub(crate) fn a_thousand_triggers_that_wait_cost_no_lease_and_more_are_refused(store: Store) {
    let fleet = Fleet::of(2, store, &(pulse() + LONG));
    let led = fleet.leader("manual");
    fleet.leader("pulse");
    fleet.command(&["trigger", "manual"]);
    let beats = fleet.beats();
    beats.wait(SOON, "run that goes on", |b| {
        b.event == "started" && b.job == "manual"
    });
    let sent = || -> u64 {
        let info = fleet.store.servers()[0].raw(&["INFO", "stats"]);
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("total_net_output_bytes:"));
        line.and_then(|bytes| bytes.trim().parse().ok())
            .expect("a number of bytes")
    };
    let clock = watchkeeper::clock::Clock::system();
    let per_second = || {
        let (before, began) = (sent(), clock.now());
        pause(TTL * 3);
        (sent() - before) / clock.now().since(began).as_secs().max(1)
    };
    let calm = per_second();
    let mark = fleet.log.mark();
    let now = clock.wall();
    for server in fleet.store.servers() {
        let ms = now.as_millisecond();
        let id = format!("{:08x}-{:04x}", ms >> 16, ms & 0xffff);
        let said = server.raw(&["EVAL", PLANT, "0", &id, &now.to_string(), "1000"]);
        assert_eq!(said, ":1000\r\n");
    }
    soon("refusal", || {
        let status = fleet.asks(led.worker, "POST", "/api/v1/jobs/manual/trigger");
        // On a busy machine a majority may not answer in time.
        assert!(matches!(status, 429 | 503), "{status}");
        status == 429
    });
    let why = fleet.refusal(&["trigger", "manual"]);
    assert!(
        why.contains("manual has 1001 outstanding triggers"),
        "{why}"
    );
    assert!(why.contains("triggers withdraw manual --all"), "{why}");
    // What is followed is read, and told to be accepted.
    pause(TTL * 3);
    let full = per_second();
    fleet.measured(
        "bytes a second from one master to two replicas, calm",
        &calm,
    );
    fleet.measured(
        "bytes a second from one master to two replicas, full",
        &full,
    );
    // Four megabytes of bodies would be read by each of them every second.
    assert!(full < calm + 1_500_000, "{calm} {full}");
    // On a busy machine a round of extensions may fail; no lease is lost.
    let lost = ["standing by", "leading"];
    let since = fleet.log.since(mark);
    let trouble: Vec<_> = since.iter().filter(|l| lost.contains(&l.says())).collect();
    assert!(trouble.is_empty(), "{trouble:?}");
    let listed: Value =
        serde_json::from_str(&fleet.command(&["triggers", "manual", "--json"])).expect("JSON");
    let listed = listed.as_array().expect("a list");
    assert_eq!(listed.len(), 1001);
    assert_eq!(listed[0]["state"], "started");
}

/// Writes triggers of 4 KB past everybody who counts.
const PLANT: &str = r#"
local table = redis.call('KEYS', '*:2:t')[1]
local base, time = string.sub(table, 1, -2), redis.call('TIME')
local till = time[1] * 1000 + 86400000
local text = string.rep('x', 4000)
for n = 1, tonumber(ARGV[3]) do
  local id = string.format('%s-7000-8000-%012d', ARGV[1], n)
  local name = 'intent/trigger.manual.' .. id
  local body = string.format(
    '{"job":"manual","id":"%s","by":"test","asked":"%s","params":{"text":"%s"}}', id, ARGV[2], text)
  redis.call('HSET', base .. 'doc:' .. name, 'rev', '1', 'body', body)
  redis.call('PEXPIRE', base .. 'doc:' .. name, 86400000)
  redis.call('ZADD', base .. 'docs:intent/', string.format('%.0f', till), name)
end
redis.call('PEXPIRE', base .. 'docs:intent/', 86400000)
return tonumber(ARGV[3])
"#;
