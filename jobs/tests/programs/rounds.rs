//! A service under `elect` whose active side is killed, frozen and told to go, again and again.

use std::time::Duration;

use rustix::process::Signal;
use watchkeeper::clock::Clock;

use crate::{
    process::Running,
    scene::Scene,
    store::Store,
    wait::{AT_ONCE, less, starved, takeover_limit, until},
};

const TTL: Duration = Duration::from_secs(2);
const ELECT: &str = "elect service --ttl 2s";
const ROUNDS: usize = 20;

/// Says when it begins and when it was told to end, and writes its token again and again, from two processes.
const SERVICE: &str = r#"
now() { date +%s%N; }
T=$WATCHKEEPER_TOKEN
trap 'sleep 0.1; echo end $T $(now) >> $F/log; exit 0' TERM
(trap - TERM; while :; do echo $T >> $F/tokens; sleep 0.02; done) &
echo begin $T $(now) >> $F/log
while :; do echo $T >> $F/tokens; sleep 0.02; done
"#;

/// What the service has said.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Said {
    begins: bool,
    token: u64,
    /// Nanoseconds of the wall clock.
    at: u64,
}

/// Whoever leads runs it, nobody else does, and it is never away for long.
pub(crate) fn twenty_rounds_of_faults_leave_one_service(store: Store) {
    let scene = Scene::new(store);
    let start = || scene.spawn(ELECT, SERVICE);
    let mut active = start();
    let mut token = begins(&scene, 0).token;
    let mut standby = start();
    standby.wait_for_line("standing by for service");
    let (mut takeovers, mut hand_overs, mut usual) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let from = scene.lines("log").len();
        let fault = [Signal::KILL, Signal::TERM, Signal::STOP][round % 3];
        let at = Clock::system().now();
        active.signal(fault);
        let next = begins(&scene, from);
        let began = Clock::system().now();
        let (gap, starved) = (began.since(at), starved(at, began));
        assert!(next.token > token, "{next:?} after {token}");
        if fault == Signal::TERM {
            let end = said(&scene)[from];
            assert_eq!((end.begins, end.token), (false, token));
            let gap = Duration::from_nanos(next.at.saturating_sub(end.at));
            hand_overs.push(gap);
            usual.push(less(gap, starved));
        } else {
            let most = takeover_limit(TTL) + starved;
            assert!(gap <= most, "{fault:?}: {gap:?}");
            takeovers.push(gap);
        }
        // Who stood by runs it now. The other one stands by, or somebody does in its place.
        let old = std::mem::replace(&mut active, standby);
        standby = match fault {
            Signal::STOP => {
                old.signal(Signal::CONT);
                old.wait_for_line("the command was stopped; standing by");
                old
            }
            Signal::TERM => {
                old.done().with(0);
                start()
            }
            _ => {
                old.kill();
                start()
            }
        };
        wait_for_standby(&standby);
        token = next.token;
    }
    let tokens: Vec<u64> = scene
        .lines("tokens")
        .iter()
        .map(|line| line.parse().expect("a token"))
        .collect();
    // In the order of their arrival in the file: whoever overlaps shows as a smaller one after a larger one.
    assert!(tokens.is_sorted(), "two at once: {tokens:?}");
    takeovers.sort_unstable();
    usual.sort_unstable();
    scene.measured("taken over after", &takeovers);
    scene.measured("handed over after the command's end", &hand_overs);
    // By its release, and not by the end of the lease: half of them, for a busy machine may delay one.
    assert!(usual[usual.len() / 2] < AT_ONCE, "{hand_overs:?}");
}

/// A candidate that starts says so after a second; one that was thawed has said so before.
fn wait_for_standby(candidate: &Running) {
    candidate.wait_for_line("standing by");
}

/// The first beginning after so many lines.
fn begins(scene: &Scene, from: usize) -> Said {
    let mut found = None;
    let began = until(|| {
        found = said(scene).into_iter().skip(from).find(|said| said.begins);
        found.is_some()
    });
    assert!(began, "no service begins: {:?}", scene.lines("log"));
    found.expect("it was found")
}

fn said(scene: &Scene) -> Vec<Said> {
    let parse = |line: &String| {
        let words: Vec<&str> = line.split(' ').collect();
        Said {
            begins: words[0] == "begin",
            token: words[1].parse().expect("a token"),
            at: words[2].parse().expect("nanoseconds"),
        }
    };
    scene.lines("log").iter().map(parse).collect()
}
