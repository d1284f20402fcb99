use std::sync::{Arc, Mutex};

use super::*;
use crate::{
    chance::Chance,
    clock::Moment,
    fleet::{
        presence::{
            FRESH, INTERVAL, LIFETIME,
            teller::{Teller, write_all},
        },
        status::FleetStatus,
    },
    node::{Answer, Node, Op, memory::MemoryNode},
    sim_clock::SimTime,
    spawn::Spawn,
};

/// Three nodes, and replicas that tell of themselves there.
struct Store {
    locks: Locks,
    nodes: Vec<MemoryNode>,
}

impl Store {
    fn new() -> Self {
        let time = SimTime::new();
        let node = |n| MemoryNode::new(format!("n{n}"), time.sibling().clock());
        let nodes: Vec<MemoryNode> = (1..=3).map(node).collect();
        let links = nodes
            .iter()
            .map(|node| Arc::new(node.clone()) as Arc<dyn Node>);
        let locks = Locks::over(links.collect())
            .clock(time.clock())
            .chance(Chance::seeded(7))
            .keeper_here(Spawn::system());
        Self {
            locks: locks.start().unwrap(),
            nodes,
        }
    }

    async fn look(&self, known: &mut Replicas, wanted: Wanted<'_>) -> Vec<Presence> {
        known.look(&self.locks, wanted).await.unwrap();
        known.presences(self.locks.wall())
    }

    /// Looks as a replica does that has these definitions; says whether anything has moved.
    async fn look_as_peer(&self, known: &mut Replicas, hash: &str) -> bool {
        let looked = known
            .look(&self.locks, Wanted::Standings { hash, but: "" })
            .await;
        looked.unwrap()
    }

    async fn sleep(&self, pause: Duration) {
        self.locks.clock().sleep(pause).await;
    }

    async fn put(&self, name: &str, rev: u64, body: &str) {
        let put = self.locks.put_doc(name, rev, LIFETIME, body.to_owned());
        put.await.unwrap();
    }
}

fn replica(id: &str, rev: u64, jobs: usize) -> Presence {
    let job = |n| JobPresence {
        name: format!("job-{n}"),
        coordination: "leader".to_owned(),
        definition: "0f".to_owned(),
        ..JobPresence::default()
    };
    Presence {
        id: id.to_owned(),
        name: id.to_owned(),
        rev,
        jobs: (0..jobs).map(job).collect(),
        ..Presence::default()
    }
}

fn lead(replica: &mut Presence, job: usize, token: u64) {
    let job = &mut replica.jobs[job];
    (job.standing, job.token) = (JobStanding::Leading, Some(Token(token)));
}

fn of_late() -> Replicas {
    Replicas::within(LIFETIME - FRESH..LIFETIME)
}

#[tokio::test(start_paused = true)]
async fn all_that_replicas_tell_is_put_together() {
    let store = Store::new();
    let (mut a, b) = (replica("a", 1, 100), replica("b", 1, 3));
    lead(&mut a, 7, 5);
    a.name = "n".repeat(2_000);
    for replica in [&a, &b] {
        write_all(&store.locks, replica, LIFETIME).await;
    }
    let mut known = Replicas::default();
    let mut read = store.look(&mut known, Wanted::Jobs).await;
    for replica in &mut read {
        replica
            .jobs
            .sort_by_key(|job| job.name[4..].parse::<u32>().unwrap());
        replica.rev = 1;
        replica.written_at = Timestamp::default();
    }
    assert_eq!(read, [a, b]);
    assert_eq!(known.leader("job-7"), Some(Token(5)));
    assert_eq!(known.leader("job-8"), None);
}

#[tokio::test(start_paused = true)]
async fn each_document_is_read_once_per_revision() {
    let store = Store::new();
    let mut a = replica("a", 1, 200);
    write_all(&store.locks, &a, LIFETIME).await;
    let mut known = of_late();
    let hash = pages::hash_of(a.jobs.iter().map(|job| (&*job.name, "other")));
    assert!(store.look_as_peer(&mut known, &hash).await);
    assert!(!store.look_as_peer(&mut known, &hash).await);
    lead(&mut a, 7, 5);
    a.rev = 2;
    write_all(&store.locks, &a, LIFETIME).await;
    assert!(store.look_as_peer(&mut known, &hash).await);
    assert!(!store.look_as_peer(&mut known, &hash).await);
    assert_eq!(known.leader("job-7"), Some(Token(5)));
}

#[tokio::test(start_paused = true)]
async fn only_pages_that_have_moved_are_listed() {
    let store = Store::new();
    let mut replicas = [replica("a", 1, 200), replica("b", 1, 200)];
    for replica in &replicas {
        write_all(&store.locks, replica, LIFETIME).await;
    }
    let listed = Arc::new(Mutex::new(Vec::new()));
    let names = listed.clone();
    store.nodes[0].observe(move |executed| {
        let answers = executed.result.as_ref().map(|reply| &reply.answers);
        for answer in answers.into_iter().flatten() {
            let mut names = names.lock().unwrap();
            match answer {
                Answer::Lives { docs, .. } => {
                    names.extend(docs.iter().map(|life| life.name.clone()));
                }
                Answer::Page(page) => names.extend(page.docs.iter().map(|doc| doc.name.clone())),
                _ => {}
            }
        }
    });
    let mut known = Replicas::noting_jobs();
    let mut look = async || {
        listed.lock().unwrap().clear();
        known.look(&store.locks, Wanted::Jobs).await.unwrap();
        let listed = listed.lock().unwrap();
        let of = |id| listed.iter().filter(|name| name.starts_with(id)).count();
        let jobs = (known.names().count(), known.take_moved().len());
        let ends = known.told_of("job-7").into_iter();
        let ends = ends.filter(|(_, job)| job.last_outcome.is_some()).count();
        ([of("detail/a/"), of("detail/b/")], jobs, ends)
    };
    assert_eq!(look().await, ([13, 13], (200, 200), 0));
    assert_eq!(look().await, ([0, 0], (200, 0), 0));
    // A run that ended is told in a page, and in no summary.
    replicas[1].jobs[7].last_outcome = Some("done".to_owned());
    let mut teller = Teller::new(2_000_000);
    let told = teller.changes_of(&replicas[1], LIFETIME, Moment::ZERO);
    for (page, put) in told.pages {
        if page.kind == Kind::Runs {
            store.put(&put.name, put.rev, &put.body).await;
        }
    }
    assert_eq!(look().await, ([0, 13], (200, 1), 1));
    assert_eq!(look().await, ([0, 0], (200, 0), 1));
    // All of its pages are others now.
    replicas[1] = replica("b", 3, 500);
    write_all(&store.locks, &replicas[1], LIFETIME).await;
    let (listed, jobs, ends) = look().await;
    assert_eq!((listed[0], jobs, ends), (0, (500, 500), 0));
    assert_eq!(look().await, ([0, 0], (500, 0), 0));
}

#[tokio::test(start_paused = true)]
async fn some_jobs_are_read_without_the_pages_of_others() {
    let store = Store::new();
    let mut a = replica("a", 1, 200);
    write_all(&store.locks, &a, LIFETIME).await;
    let read = Arc::new(Mutex::new(0));
    let count = read.clone();
    store.nodes[0].observe(move |executed| {
        let is_page = |op: &&Op| matches!(op, Op::Doc { name } if name.starts_with("detail/"));
        *count.lock().unwrap() += executed.call.ops.iter().filter(is_page).count();
    });
    let mut known = Replicas::noting_jobs();
    let look = async |known: &mut Replicas, wanted: Wanted<'_>| {
        *read.lock().unwrap() = 0;
        known.look(&store.locks, wanted).await.unwrap();
        *read.lock().unwrap()
    };
    // One for the replica, and four of each kind.
    assert_eq!(look(&mut known, Wanted::Jobs).await, 13);
    let number = |n: &usize| Page::number_of(&format!("job-{n}"), 4);
    let other = (8..200).find(|n| number(n) != number(&7)).unwrap();
    lead(&mut a, 7, 5);
    lead(&mut a, other, 6);
    a.rev = 2;
    write_all(&store.locks, &a, LIFETIME).await;
    let mut before = known.clone();
    known.take_moved();
    let wanted = BTreeSet::from(["job-7"]);
    assert_eq!(look(&mut known, Wanted::Some(&wanted)).await, 7);
    let leaders = |known: &Replicas| {
        let leader = |n: usize| known.leader(&format!("job-{n}")).map(|token| token.0);
        (leader(7), leader(other))
    };
    assert_eq!(leaders(&known), (Some(5), Some(6)));
    assert_eq!(look(&mut known, Wanted::Some(&wanted)).await, 0);
    // Another reader has what was read here, and reads the rest.
    before.take_later(&known);
    assert_eq!(leaders(&before), (Some(5), Some(6)));
    assert_eq!(look(&mut known, Wanted::Jobs).await, 6);
    assert_eq!(leaders(&known), (Some(5), Some(6)));
    let moved = ["job-7".to_owned(), format!("job-{other}")];
    assert_eq!(known.take_moved(), BTreeSet::from(moved));
}

#[tokio::test(start_paused = true)]
async fn peers_with_the_same_jobs_tell_what_is_not_as_expected() {
    let store = Store::new();
    let mut a = replica("a", 1, 200);
    lead(&mut a, 7, 5);
    a.jobs[8].standing = JobStanding::Off;
    write_all(&store.locks, &a, LIFETIME).await;
    let own = Own::of(replica("me", 1, 200).jobs);
    let mut known = of_late();
    store.look_as_peer(&mut known, &own.hash).await;
    let told = known.telling("a", store.locks.wall(), &own).unwrap();
    assert!(told.others_rest);
    let mut named = told.presence.jobs;
    named.sort_by(|a, b| a.name.cmp(&b.name));
    let named = named.iter().map(|job| (&*job.name, job.standing));
    let not_at_rest = [("job-7", JobStanding::Leading), ("job-8", JobStanding::Off)];
    assert_eq!(named.collect::<Vec<_>>(), not_at_rest);
    let asked = ["job-7", "job-9"].map(str::to_owned).into();
    let about = known.about(&asked, store.locks.wall(), &own);
    let about: Vec<JobStanding> = about
        .flat_map(|told| told.jobs)
        .map(|job| job.standing)
        .collect();
    assert_eq!(about, [JobStanding::Leading, JobStanding::Standby]);
    let facts = |page: &&Page| page.kind == Kind::Facts;
    let pages = &known.by_id["a"].pages;
    assert_eq!(pages.keys().filter(facts).count(), 0, "they were not read");
}

#[tokio::test(start_paused = true)]
async fn whoever_touches_nothing_any_more_counts_as_gone() {
    let store = Store::new();
    write_all(&store.locks, &replica("a", 1, 1), LIFETIME).await;
    write_all(&store.locks, &replica("b", 1, 1), LIFETIME).await;
    let touched = vec![("presence/a".to_owned(), 1_000_005)];
    let mut known = of_late();
    let mut all = Replicas::default();
    for n in 0..10 {
        let touched = store.locks.touch_docs(touched.clone(), LIFETIME).await;
        assert!(touched.unwrap().is_empty());
        let there = store.look(&mut known, Wanted::Replicas).await.len();
        let gone = INTERVAL * n > FRESH;
        assert_eq!(there, if gone { 1 } else { 2 }, "after {n}");
        let shown = store.look(&mut all, Wanted::Replicas).await;
        let fleet = FleetStatus::from_presences(shown, Vec::new(), store.locks.wall());
        let silent = |id: &str| fleet.replica(id).map(|replica| replica.is_silent());
        assert_eq!(silent("a"), Some(false));
        let ended = INTERVAL * n > LIFETIME;
        assert_eq!(silent("b"), (!ended).then_some(n > 2), "after {n}");
        store.sleep(INTERVAL).await;
    }
    // The last word of a dead replica must not live for as long as a clock was set back.
    for node in &store.nodes {
        node.faults().clock_offset(-3_600_000);
    }
    assert_eq!(store.look(&mut known, Wanted::Replicas).await, []);
    store.locks.touch_docs(touched, LIFETIME).await.unwrap();
    assert_eq!(store.look(&mut known, Wanted::Replicas).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn pages_that_are_missing_old_or_damaged_are_not_known() {
    let store = Store::new();
    let mut a = replica("a", 1, 200);
    lead(&mut a, 7, 5);
    write_all(&store.locks, &a, LIFETIME).await;
    let all = async || {
        let read = store.look(&mut Replicas::default(), Wanted::Jobs).await;
        assert_eq!(read.len(), 1, "it is there all the same");
        read[0].jobs.len()
    };
    let page = |kind| Page {
        kind,
        number: Page::number_of("job-7", 4),
        of: 4,
    };
    let name = |kind| page(kind).document("a");
    assert_eq!(all().await, 200);
    // Missing.
    store.locks.remove_doc(&name(Kind::Facts)).await.unwrap();
    let known = all().await;
    assert!((100..180).contains(&known), "{known}");
    // Damaged, and none of ours.
    for body in ["", "[", "7", "[7]", "{}"] {
        store.locks.remove_doc(&name(Kind::Facts)).await.unwrap();
        store.put(&name(Kind::Facts), 1 << 40, body).await;
        assert_eq!(all().await, known, "{body}");
    }
    store.put("detail/a/facts.8.0", 1 << 40, "[]").await;
    store.put("detail/a/what", 1 << 40, "[]").await;
    assert_eq!(all().await, known);
    // Older than the summary says: what it leads is not known.
    let mut known = of_late();
    store
        .locks
        .remove_doc(&name(Kind::Standings))
        .await
        .unwrap();
    store.put(&name(Kind::Standings), 1, "[]").await;
    let hash = "none";
    store.look_as_peer(&mut known, hash).await;
    assert!(!known.by_id["a"].has(Kind::Standings));
    assert_eq!(known.leader("job-7"), None);
    // It is looked for again, and found.
    store
        .locks
        .remove_doc(&name(Kind::Standings))
        .await
        .unwrap();
    a.rev = 2;
    write_all(&store.locks, &a, LIFETIME).await;
    store.look_as_peer(&mut known, hash).await;
    assert!(known.by_id["a"].has(Kind::Standings));
    assert_eq!(known.leader("job-7"), Some(Token(5)));
}

#[tokio::test(start_paused = true)]
async fn summaries_that_make_no_sense_are_left_out() {
    let store = Store::new();
    for (name, body) in [("x", "{"), ("y", "{\"id\":\"z\"}"), ("", "{}"), ("w", "[]")] {
        store.put(&format!("presence/{name}"), 7, body).await;
    }
    let greedy = r#"{"id":"g","pages":4294967295,"standings":9}"#;
    // As the version before told of itself.
    let former = r#"{"id":"u","name":"u","jobs":[{"name":"report","standing":"leading"}]}"#;
    for (name, body) in [
        ("g", greedy),
        ("u", former),
        ("v", r#"{"id":"v","standings":9}"#),
    ] {
        store.put(&format!("presence/{name}"), 7, body).await;
    }
    let mut known = Replicas::default();
    for _ in 0..2 {
        let read = store.look(&mut known, Wanted::Jobs).await;
        let ids: Vec<_> = read.iter().map(|replica| &*replica.id).collect();
        assert_eq!((ids, read[0].jobs.len()), (vec!["v"], 0));
    }
    store.put("presence/w", 8, "{\"id\":\"w\"}").await;
    assert_eq!(store.look(&mut known, Wanted::Jobs).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_answer_hides_nothing() {
    let store = Store::new();
    write_all(&store.locks, &replica("a", 1, 10), LIFETIME).await;
    store.nodes[0].faults().fail_all();
    let read = store.look(&mut Replicas::default(), Wanted::Jobs).await;
    assert_eq!(read[0].jobs.len(), 10);
}
