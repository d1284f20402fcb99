//! Replicas that disagree on a job: whose definition counts, and for how long that of a dead one does.

use std::time::Duration;

use serde_json::json;

use super::{
    acts::{leader, ms},
    reload::{Diary, Line},
    world::TTL,
};
use crate::{
    due::{Misfire, Overlap},
    job::{Coordination, Disagreement, Spec},
    status::JobStanding,
    testing::{cluster::Cluster, members::Member},
    worker::ready::Body,
};

const SECOND: Duration = Duration::from_secs(1);
/// When all know what a replica has loaded.
const KNOWN: Duration = Duration::from_secs(3);
/// How long the definition of a dead replica counts at most.
const FORGOTTEN: Duration = Duration::from_secs(7);

/// A fleet with one job, and what its runs note.
struct Scene {
    fleet: Cluster,
    diary: Diary,
    spec: Spec,
}

// === impl Scene ===

impl Scene {
    /// A late leader makes up for every tick, also for one that falls due while it does: what is lost shows.
    fn new(coordination: Coordination, rule: Disagreement) -> Self {
        let spec = Spec::every(SECOND * 2).misfire(Misfire::All);
        let spec = spec.overlap(Overlap::Queue);
        Self {
            fleet: Cluster::new(3),
            diary: Diary::default(),
            spec: spec.coordination(coordination).definition(rule),
        }
    }

    fn jobs(&self, word: &str) -> Vec<(&'static str, Body, Spec)> {
        let spec = self.spec.clone().params(json!(word));
        vec![("job", self.diary.job(self.fleet.clock(), ms(200)), spec)]
    }

    fn join(&self, name: &str, word: &str) -> Member {
        let member = self.fleet.join_with(name, self.jobs(word), false);
        member.publish();
        member
    }

    async fn reload(&self, member: &Member, word: &str) {
        assert_eq!(member.reload(self.jobs(word)).await.changed, ["job"]);
    }

    /// Crashes it between two runs.
    async fn crash(&self, member: &Member) {
        while self
            .diary
            .all()
            .last()
            .is_some_and(|line| line.what == "began")
        {
            self.fleet.sleep(ms(20)).await;
        }
        member.tasks.crash();
    }

    /// Who begins which runs in the next twenty seconds: these replicas and no others, under this definition.
    async fn only(&self, word: &str, names: &[&str]) {
        let mark = self.diary.len();
        self.fleet.sleep(SECOND * 20).await;
        let lines: Vec<Line> = self.diary.all().split_off(mark);
        let began: Vec<&Line> = lines.iter().filter(|line| line.what == "began").collect();
        assert!(began.len() >= 9, "{} of 10 runs", began.len());
        for line in began {
            assert_eq!(line.params, json!(word), "{line:?}");
            assert!(names.contains(&line.replica.as_str()), "{line:?}");
        }
    }

    /// Every tick since the first one was run, once.
    fn assert_no_tick_lost(&self) {
        let lines = self.diary.all().into_iter();
        let mut seconds: Vec<i64> = lines
            .filter(|l| l.what == "began")
            .map(|l| l.second)
            .collect();
        seconds.sort_unstable();
        let gaps = seconds.windows(2).all(|pair| pair[1] - pair[0] == 2);
        assert!(gaps, "lost or run twice: {seconds:?}");
    }
}

fn stands_back(member: &Member) -> bool {
    let jobs = member.ctx.local_status.jobs();
    assert_eq!(
        jobs[0].stands_back.is_some(),
        jobs[0].standing == JobStanding::Off
    );
    jobs[0].stands_back.is_some()
}

// === jobs whose lock is taken for each tick ===

#[tokio::test(start_paused = true)]
async fn with_newest_whoever_has_the_newest_definition_takes_the_ticks() {
    let scene = Scene::new(Coordination::Tick, Disagreement::Newest);
    let [a, b, c] = ["a", "b", "c"].map(|name| scene.join(name, "old"));
    scene.fleet.sleep(SECOND * 9).await;
    scene.reload(&c, "new").await;
    scene.fleet.sleep(KNOWN).await;
    assert_eq!([&a, &b, &c].map(stands_back), [true, true, false]);
    scene.only("new", &["c"]).await;
    // No replica is left that has it: the job goes on.
    scene.crash(&c).await;
    scene.fleet.sleep(FORGOTTEN + SECOND).await;
    scene.only("old", &["a", "b"]).await;
    scene.reload(&a, "newer").await;
    scene.reload(&b, "newer").await;
    scene.fleet.sleep(KNOWN).await;
    scene.only("newer", &["a", "b"]).await;
    scene.assert_no_tick_lost();
}

/// It lives, and what it tells is read; it can take no lock.
#[tokio::test(start_paused = true)]
async fn with_newest_a_replica_that_reaches_too_few_nodes_keeps_none_from_leading() {
    let scene = Scene::new(Coordination::Tick, Disagreement::Newest);
    let [a, b, c] = ["a", "b", "c"].map(|name| scene.join(name, "old"));
    scene.fleet.sleep(SECOND * 9).await;
    scene.reload(&c, "new").await;
    scene.fleet.sleep(KNOWN).await;
    assert_eq!([&a, &b].map(stands_back), [true, true]);
    c.cut_to_a_minority();
    scene.fleet.sleep(FORGOTTEN).await;
    assert_eq!([&a, &b].map(stands_back), [false, false]);
    scene.only("old", &["a", "b"]).await;
    scene.assert_no_tick_lost();
}

/// One replica went back to the old definition after another one had loaded a new one: the old one counts, also for the one that has
/// had it all the time.
#[tokio::test(start_paused = true)]
async fn with_newest_what_was_loaded_again_counts_for_all_that_have_it() {
    let scene = Scene::new(Coordination::Tick, Disagreement::Newest);
    let [a, b, c] = ["a", "b", "c"].map(|name| scene.join(name, "old"));
    scene.fleet.sleep(SECOND * 9).await;
    scene.reload(&b, "new").await;
    scene.reload(&c, "new").await;
    scene.fleet.sleep(KNOWN).await;
    assert_eq!([&a, &b, &c].map(stands_back), [true, false, false]);
    scene.reload(&b, "old").await;
    scene.fleet.sleep(KNOWN * 2).await;
    assert_eq!([&a, &b, &c].map(stands_back), [false, false, true]);
    scene.only("old", &["a", "b"]).await;
    // It has loaded the old one last, and goes: what it has loaded counts no more.
    scene.crash(&b).await;
    scene.fleet.sleep(FORGOTTEN + SECOND).await;
    assert_eq!([&a, &c].map(stands_back), [true, false]);
    scene.only("new", &["c"]).await;
    scene.assert_no_tick_lost();
}

#[tokio::test(start_paused = true)]
async fn with_refuse_a_new_definition_takes_no_tick_before_all_have_it() {
    let scene = Scene::new(Coordination::Tick, Disagreement::Refuse);
    let [a, b, c] = ["a", "b", "c"].map(|name| scene.join(name, "old"));
    scene.fleet.sleep(SECOND * 9).await;
    scene.reload(&c, "new").await;
    scene.fleet.sleep(KNOWN).await;
    assert_eq!([&a, &b, &c].map(stands_back), [false, false, true]);
    scene.only("old", &["a", "b"]).await;
    scene.reload(&b, "new").await;
    scene.only("old", &["a"]).await;
    scene.reload(&a, "new").await;
    scene.fleet.sleep(KNOWN).await;
    assert_eq!([&a, &b, &c].map(stands_back), [false; 3]);
    scene.only("new", &["a", "b", "c"]).await;
    // The ledger remembers, also when the lock is free and the newcomer was loaded last.
    let d = scene.join("d", "old");
    scene.only("new", &["a", "b", "c"]).await;
    assert!(stands_back(&d));
    scene.assert_no_tick_lost();
}

/// Those that are left agree on another one: it takes effect when the last one with the old one is gone.
#[tokio::test(start_paused = true)]
async fn with_refuse_those_that_are_left_take_the_ticks_when_they_agree() {
    let scene = Scene::new(Coordination::Tick, Disagreement::Refuse);
    let [a, b, c] = ["a", "b", "c"].map(|name| scene.join(name, "old"));
    scene.fleet.sleep(SECOND * 9).await;
    scene.reload(&b, "new").await;
    scene.reload(&c, "new").await;
    scene.fleet.sleep(KNOWN).await;
    scene.only("old", &["a"]).await;
    scene.crash(&a).await;
    scene.fleet.sleep(FORGOTTEN + SECOND).await;
    scene.only("new", &["b", "c"]).await;
    scene.assert_no_tick_lost();
}

// === leaders ===

/// Who has read the new file when the leader dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    None,
    Leader,
    /// The leader last of all, just before its death.
    All,
}

/// Whatever the time between the last reload and the death; without a change the next one leads within a ttl and a half.
#[tokio::test(start_paused = true)]
async fn a_definition_that_died_with_its_leader_counts_for_seven_seconds_at_most() {
    for (rule, read) in [
        (Disagreement::Newest, Read::Leader),
        (Disagreement::Refuse, Read::All),
        (Disagreement::Refuse, Read::None),
    ] {
        let mut longest = Duration::ZERO;
        // The shortest time is too short to tell the others.
        for after in [5, 60, 110, 700, 1300, 1900, 2500] {
            let scene = Scene::new(Coordination::Leader, rule);
            let members = ["a", "b", "c"].map(|name| scene.join(name, "old"));
            let first = leader(&scene.fleet, &[&members[0], &members[1], &members[2]]).await;
            scene.fleet.sleep(SECOND * 5).await;
            for other in members.iter().filter(|_| read == Read::All) {
                if other.ctx.replica != first.ctx.replica {
                    scene.reload(other, "new").await;
                }
            }
            scene.fleet.sleep(KNOWN).await;
            if read != Read::None {
                scene.reload(first, "new").await;
            }
            scene.fleet.sleep(ms(after)).await;
            assert!(first.leads(), "{rule:?}, {read:?}: it leads to its end");
            first.tasks.crash();
            let died = scene.fleet.time.elapsed();
            leader(&scene.fleet, &[&members[0], &members[1], &members[2]]).await;
            longest = longest.max(scene.fleet.time.elapsed() - died);
        }
        println!("{rule:?}, {read:?}: {longest:?} without a leader at most");
        let limit = if read == Read::None { TTL } else { FORGOTTEN };
        assert!(
            longest <= limit + TTL / 2,
            "{rule:?}, {read:?}: {longest:?}"
        );
        // What is awaited is the last word of the dead one, and no more than that.
        assert!(
            read == Read::None || longest > TTL * 2,
            "{rule:?}: {longest:?}"
        );
    }
}

/// It was loaded last, and the ledger says what the job was led under.
#[tokio::test(start_paused = true)]
async fn with_refuse_a_replica_that_starts_with_an_old_file_does_not_lead() {
    let scene = Scene::new(Coordination::Leader, Disagreement::Refuse);
    let (a, b) = (scene.join("a", "new"), scene.join("b", "new"));
    leader(&scene.fleet, &[&a, &b]).await;
    scene.fleet.sleep(SECOND * 5).await;
    let c = scene.join("c", "old");
    scene.only("new", &["a", "b"]).await;
    assert!(stands_back(&c));
    let (first, other) = if a.leads() { (&a, "b") } else { (&b, "a") };
    scene.crash(first).await;
    scene.fleet.sleep(TTL * 2).await;
    scene.only("new", &[other]).await;
    scene.assert_no_tick_lost();
}
