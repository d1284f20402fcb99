use super::{
    leaders::{Holding, Reading},
    merge::{Merged, Seen, Words, definitions_of},
    *,
};
use std::collections::{BTreeMap, BTreeSet};

use crate::node::View;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

fn presence(name: &str, rev: u64) -> Presence {
    Presence {
        id: replica_id("host", 7, name),
        tag: name.into(),
        name: name.into(),
        host: "host".into(),
        pid: 7,
        rev,
        written_at: at(1_000),
        ..Presence::default()
    }
}

fn leads(mut presence: Presence, job: &str, token: u64) -> Presence {
    presence.role = Role::Leader;
    presence.jobs.push(JobPresence {
        name: job.into(),
        coordination: "leader".into(),
        standing: JobStanding::Leading,
        token: Some(Token(token)),
        since: Some(at(500)),
        remaining_ms: Some(9_000),
        ..JobPresence::default()
    });
    presence
}

fn stands_by(mut presence: Presence, job: &str) -> Presence {
    presence.jobs.push(JobPresence {
        name: job.into(),
        coordination: "leader".into(),
        ..JobPresence::default()
    });
    presence
}

/// An owner value of this replica.
fn value(name: &str) -> String {
    format!("{:032x}.{name}", 7)
}

fn held(name: &str, token: u64) -> Reading {
    Reading::Held(Holding {
        owner: value(name),
        token: Token(token),
        at_most: Token(token),
        remaining_ms: Some(8_000),
        margin: 1,
        orphaned: false,
        foreign: false,
    })
}

fn seen(reading: Reading) -> Seen<'static> {
    Seen {
        records: [("report".to_owned(), reading)].into(),
        ..Seen::default()
    }
}

fn by_record(docs: &[Presence], reading: Reading, now: i64) -> JobStatus {
    let fleet = FleetStatus::merged(docs.to_vec(), vec![], at(now), &seen(reading));
    fleet.jobs[0].clone()
}

const NOBODY: Reading = Reading::Nobody { forgotten: false };

#[test]
fn the_newest_revision_of_a_replica_counts() {
    let docs = [
        leads(presence("a", 2), "report", 5),
        stands_by(presence("a", 3), "report"),
        leads(presence("a", 1), "report", 4),
    ];
    let fleet = FleetStatus::from_presences(docs, vec![], at(1_500));
    assert_eq!(fleet.replicas.len(), 1);
    assert_eq!(fleet.replicas[0].seen_ms_ago, 500);
    assert_eq!(fleet.job("report").unwrap().last_seen, None);
}

#[test]
fn the_leader_is_whom_the_lock_names_whatever_documents_say() {
    // The dead one's last document, and the successor's from before the takeover.
    let docs = [
        leads(presence("a", 9), "report", 5),
        stands_by(presence("b", 1), "report"),
    ];
    let job = by_record(&docs, held("b", 6), 2_000);
    let leader = job.leader.unwrap();
    assert_eq!((leader.name.as_str(), leader.token), ("b", Token(6)));
    assert_eq!((leader.since, leader.remaining_ms), (None, Some(8_000)));
    assert!(job.leader_known);
    // It tells of its term.
    let docs = [docs[0].clone(), leads(presence("b", 2), "report", 6)];
    let fleet = FleetStatus::merged(docs.clone(), vec![], at(2_000), &seen(held("b", 6)));
    assert_eq!(fleet.jobs[0].leader.as_ref().unwrap().since, Some(at(500)));
    let role = |id: &str| fleet.replica(id).unwrap().role;
    assert_eq!(
        (role("host-7-a"), role("host-7-b")),
        (Role::Standby, Role::Leader)
    );
    // A replica of which no document tells.
    let leader = by_record(&docs, held("c", 7), 2_000).leader.unwrap();
    assert_eq!(
        (leader.shown(), leader.token),
        ("a replica not yet heard of", Token(7))
    );
    // Released, or run out.
    let job = by_record(&docs, NOBODY, 2_000);
    assert!(job.leader.is_none() && job.leader_known && job.last_seen.is_none());
}

#[test]
fn documents_alone_tell_who_was_last_seen() {
    let mut docs = vec![
        leads(presence("a", 1), "report", 5),
        stands_by(presence("b", 1), "report"),
    ];
    let job = by_record(&docs, Reading::Unknown, 4_000);
    assert!(job.leader.is_none() && !job.leader_known);
    let last = job.last_seen.unwrap();
    assert_eq!(
        (last.name.as_str(), last.token, last.ms_ago),
        ("a", Token(5), 3_000)
    );
    // What the asker remembers counts when the documents are gone.
    docs.remove(0);
    let mut seen = seen(Reading::Unknown);
    seen.remembered.insert("report".into(), last);
    let fleet = FleetStatus::merged(docs.clone(), vec![], at(9_000), &seen);
    let last = fleet.jobs[0].last_seen.as_ref().unwrap();
    assert_eq!((last.name.as_str(), last.ms_ago), ("a", 8_000));
    let alone = FleetStatus::from_presences(docs, vec![], at(4_000));
    assert!(!alone.jobs[0].leader_known);
}

#[test]
fn a_replica_knows_of_its_own_term_until_its_lease_ends() {
    let docs = [leads(presence("a", 1), "report", 5)];
    let shown = |now| {
        let seen = Seen {
            me: Some("host-7-a"),
            ..Seen::default()
        };
        let fleet = FleetStatus::merged(docs.clone(), vec![], at(now), &seen);
        fleet.jobs[0].leader.as_ref().map(|leader| leader.token)
    };
    assert_eq!(shown(9_999), Some(Token(5)));
    assert_eq!(shown(10_000), None);
}

#[test]
fn an_orphaned_record_is_believed_with_its_owners_word() {
    let orphan = || {
        let Reading::Held(held) = held("a", 5) else {
            panic!("held");
        };
        Reading::Held(Holding {
            orphaned: true,
            ..held
        })
    };
    let docs = [leads(presence("a", 1), "report", 5)];
    assert!(by_record(&docs, orphan(), 9_000).leader.is_some());
    let job = by_record(&docs, orphan(), 10_000);
    assert!(job.leader.is_none() && job.leader_known);
}

#[test]
fn nodes_that_have_forgotten_a_leader_cannot_say_that_there_is_none() {
    let docs = [leads(presence("a", 1), "report", 5)];
    let lost = Reading::Nobody { forgotten: true };
    assert!(!by_record(&docs, lost.clone(), 9_000).leader_known);
    assert!(
        by_record(&docs, lost, 10_000).leader_known,
        "nobody can believe it any more"
    );
    assert!(by_record(&docs, NOBODY, 9_000).leader_known);
}

#[test]
fn a_run_under_an_earlier_term_is_not_under_way() {
    let mut docs = [
        leads(presence("a", 9), "report", 5),
        stands_by(presence("b", 1), "report"),
    ];
    docs[0].jobs[0].running.push(RunStatus {
        token: Some(Token(5)),
        ..RunStatus::default()
    });
    assert_eq!(by_record(&docs, held("a", 5), 2_000).running.len(), 1);
    assert_eq!(by_record(&docs, held("b", 6), 2_000).running, []);
}

#[test]
fn the_order_of_documents_changes_nothing() {
    let mut docs = vec![
        leads(presence("a", 2), "report", 5),
        leads(presence("b", 1), "report", 5),
        stands_by(presence("a", 2), "mail"),
        stands_by(presence("c", 4), "mail"),
    ];
    docs[2].written_at = at(999);
    let forth = FleetStatus::from_presences(docs.clone(), vec![], at(1_000));
    docs.reverse();
    let back = FleetStatus::from_presences(docs, vec![], at(1_000));
    assert_eq!(forth, back);
}

#[test]
fn ticks_and_runs_of_all_replicas_meet_in_the_job() {
    let mut a = leads(presence("a", 1), "report", 5);
    a.jobs[0].next_tick = Some(at(60_000));
    let mut b = stands_by(presence("b", 1), "report");
    b.jobs[0].next_tick = Some(at(30_000));
    b.jobs[0].last_tick = Some(at(900));
    b.jobs[0].last_outcome = Some("done".into());
    b.jobs[0].running.push(RunStatus {
        run_id: "r1".into(),
        done: Some(3),
        total: Some(10),
        ..RunStatus::default()
    });
    let job = &by_record(&[a, b], held("a", 5), 1_000);
    assert_eq!(job.next_tick, Some(at(60_000)), "the leader decides");
    assert_eq!(job.last_tick, Some(at(900)));
    assert_eq!(job.last_outcome.as_deref(), Some("done"));
    assert_eq!(job.running[0].replica, "host-7-b");
}

#[test]
fn the_json_has_the_promised_shape() {
    let node = NodeStatus {
        name: "embedded".into(),
        up: true,
        ..NodeStatus::default()
    };
    let docs = [leads(presence("a", 1), "report", 5)];
    let fleet = FleetStatus::merged(docs, vec![node], at(1_000), &seen(held("a", 5)));
    let json = serde_json::to_value(&fleet).unwrap();
    for field in ["id", "name", "host", "pid", "version", "role", "draining"] {
        assert!(json["replicas"][0].get(field).is_some(), "{field}");
    }
    let job = &json["jobs"][0];
    for field in [
        "name",
        "coordination",
        "last_tick",
        "next_tick",
        "paused",
        "leader_known",
    ] {
        assert!(job.get(field).is_some(), "{field}");
    }
    assert_eq!(job["leader"]["token"], 5);
    assert_eq!(job["leader"]["since"], "1970-01-01T00:00:00.5Z");
    assert_eq!(json["replicas"][0]["role"], "leader");
    assert_eq!(json["nodes"][0]["up"], true);
}

#[test]
fn margin_counts_configured_nodes() {
    let fleet = |up: &[bool]| FleetStatus {
        nodes: up
            .iter()
            .map(|up| NodeStatus {
                up: true,
                votes: *up,
                ..NodeStatus::default()
            })
            .collect(),
        ..FleetStatus::default()
    };
    assert_eq!(fleet(&[]).node_margin(), None);
    assert_eq!(fleet(&[true]).node_margin(), Some(0));
    assert_eq!(
        fleet(&[true, true, true, false, true]).node_margin(),
        Some(1)
    );
    assert_eq!(fleet(&[true, false, false]).node_margin(), Some(-1));
}

#[test]
fn a_lock_names_its_process_while_anything_is_left_of_it() {
    let holders = Holders::of(&[presence("a", 1)], &[]);
    let lock = |owner: &str, remaining_ms| LockStatus {
        owner: owner.into(),
        remaining_ms,
        ..LockStatus::default()
    };
    let replica = |lock: LockStatus| lock.with_holder(&holders).replica;
    assert_eq!(
        replica(lock(&value("a"), Some(5))).as_deref(),
        Some("host-7-a")
    );
    assert_eq!(replica(lock(&value("a"), None)), None);
    assert_eq!(replica(lock(&value("b"), Some(5))), None);
}

fn view(holder: Option<&str>, owner: &str, token: u64, remaining_ms: u64) -> View {
    View {
        key: "job/report".into(),
        holder: holder.map(str::to_owned),
        remaining_ms: holder.map(|_| remaining_ms),
        owner: Some(owner.into()),
        token: Token(token),
        ..View::default()
    }
}

#[test]
fn a_lock_is_held_by_whom_a_majority_shows_for_as_long_as_a_majority_does() {
    let answers = [
        vec![view(Some("a"), "a", 7, 9_000)],
        vec![view(Some("a"), "a", 7, 8_000)],
        vec![view(Some("old"), "old", 9, 100)],
    ];
    let locks = LockStatus::from_views(&answers, 3);
    let expected = LockStatus {
        key: "job/report".into(),
        owner: "a".into(),
        token: Token(7),
        remaining_ms: Some(8_000),
        held: true,
        nodes: 2,
        released: false,
        replica: None,
        holder: None,
    };
    assert_eq!(locks, [expected]);
    let of_five = LockStatus::from_views(&answers, 5);
    assert!(
        !of_five[0].held,
        "configured nodes count, not those that answered"
    );
    assert_eq!(of_five[0].remaining_ms, Some(9_000));
}

#[test]
fn a_released_lock_names_its_last_owner() {
    let mut released = view(None, "b", 8, 0);
    released.released = true;
    let answers = [vec![released], vec![view(None, "a", 7, 0)], vec![]];
    let lock = &LockStatus::from_views(&answers, 3)[0];
    assert_eq!((lock.owner.as_str(), lock.nodes), ("b", 0));
    assert!(lock.released && !lock.held);
    assert_eq!(lock.remaining_ms, None);
}

// === definitions

fn defines(name: &str, definition: &str, loaded: i64) -> Presence {
    Presence {
        id: name.to_owned(),
        name: name.to_owned(),
        jobs: vec![JobPresence {
            name: "job".to_owned(),
            definition: definition.to_owned(),
            loaded: Timestamp::from_second(loaded).ok(),
            ..JobPresence::default()
        }],
        ..Presence::default()
    }
}

fn rows(all: &[Presence]) -> Vec<(String, String)> {
    let reports = all.iter().map(|p| (p, &p.jobs[0]));
    let rows = definitions_of(reports).into_iter();
    rows.map(|row| (row.definition, row.replicas.join(",")))
        .collect()
}

#[test]
fn a_disagreement_is_shown_with_who_has_which_the_newest_first() {
    let all = [
        defines("c", "x", 10),
        defines("b", "y", 20),
        defines("a", "x", 5),
    ];
    let shown = |definition: &str, names: &str| (definition.to_owned(), names.to_owned());
    assert_eq!(rows(&all), [shown("y", "b"), shown("x", "a,c")]);
}

#[test]
fn replicas_that_agree_or_do_not_tell_show_nothing() {
    assert_eq!(rows(&[defines("a", "x", 1), defines("b", "x", 2)]), []);
    assert_eq!(rows(&[defines("a", "x", 1), defines("b", "", 2)]), []);
}

// === merged again

/// A fleet of two replicas that is looked at again and again by one of them.
struct Looks {
    merged: Merged,
    /// Jobs of which the other one has told something new.
    moved: BTreeSet<String>,
    me: Presence,
    other: Presence,
    records: BTreeMap<String, Reading>,
    now: i64,
}

impl Looks {
    /// The other replica leads jobs 0 to 49.
    fn new() -> Self {
        let (mut me, mut other) = (presence("me", u64::MAX), presence("b", 1));
        let (mut moved, mut records) = (BTreeSet::new(), BTreeMap::new());
        for n in 0..100 {
            let name = format!("job-{n}");
            me = stands_by(me, &name);
            (other, records) = match n < 50 {
                true => {
                    records.insert(name.clone(), held("b", 5));
                    (leads(other, &name, 5), records)
                }
                false => {
                    records.insert(name.clone(), NOBODY);
                    (stands_by(other, &name), records)
                }
            };
            let told = other.jobs.last_mut().unwrap();
            told.next_tick = Some(at(60_000));
            moved.insert(name);
        }
        Self {
            merged: Merged::default(),
            moved,
            me,
            other,
            records,
            now: 2_000,
        }
    }

    fn tell(&mut self, job: usize, change: impl Fn(&mut JobPresence)) {
        change(&mut self.other.jobs[job]);
        self.moved.insert(self.other.jobs[job].name.clone());
    }

    /// How many jobs were put together anew; all is as if it were merged for the first time.
    fn anew(&mut self) -> usize {
        let before = self.merged.anew;
        let head = Presence {
            jobs: Vec::new(),
            ..self.other.clone()
        };
        let seen = Seen {
            records: self.records.clone(),
            me: Some(&self.me.id),
            ..Seen::default()
        };
        let now = at(self.now);
        let of = |job: &str| {
            let told = self.other.jobs.iter().filter(|told| told.name == job);
            told.map(|told| (self.other.id.as_str(), told.clone()))
                .collect()
        };
        let others = Words {
            names: self.other.jobs.iter().map(|job| &*job.name).collect(),
            moved: std::mem::take(&mut self.moved),
            told: &of,
        };
        let again = self
            .merged
            .again(&[head], &others, &self.me, vec![], now, &seen);
        let first = FleetStatus::merged([self.me.clone(), self.other.clone()], vec![], now, &seen);
        assert_eq!(again, first);
        self.merged.anew - before
    }
}

#[test]
fn what_is_merged_again_is_what_has_moved() {
    let mut looks = Looks::new();
    assert_eq!(looks.anew(), 100);
    looks.now += 1_000;
    assert_eq!(looks.anew(), 0);
    looks.tell(7, |job| job.last_outcome = Some("done".to_owned()));
    looks.tell(70, |job| job.paused = true);
    assert_eq!(looks.anew(), 2);
    // A lease that is renewed is no news.
    for reading in looks.records.values_mut() {
        if let Reading::Held(held) = reading {
            held.remaining_ms = Some(9_999);
        }
    }
    assert_eq!(looks.anew(), 0);
    looks.records.insert("job-7".to_owned(), held("me", 6));
    looks.me.jobs[8].last_tick = Some(at(1_000));
    assert_eq!(looks.anew(), 2);
    // Which tick is the next follows from the time.
    looks.tell(9, |job| job.next_tick = Some(at(3_500)));
    assert_eq!(looks.anew(), 1);
    looks.now += 1_000;
    assert_eq!(looks.anew(), 1);
    // Who leads is not known: what is shown changes as time goes by.
    looks.records.insert("job-7".to_owned(), Reading::Unknown);
    looks.now += 1_000;
    assert_eq!((looks.anew(), looks.anew()), (1, 1));
    looks.other.name = "renamed".to_owned();
    assert_eq!(looks.anew(), 100);
}
