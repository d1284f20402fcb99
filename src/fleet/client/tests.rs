use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{Fleet, error::FleetError, handover::Until, locks::breakable};
use crate::{
    clock::Clock,
    fleet::{
        history::{RunRecord, Stage},
        intent::{Intent, TriggerState},
        presence::{pages::document_of, teller::write_all},
        status::{JobPresence, LockState, Presence},
    },
    job::Spec,
    ledger::params::TriggerParams,
    lock::{Broken, Locks},
    node::{Node, memory::MemoryNode},
};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A store of three nodes, and what a replica writes there.
struct Store(Locks);

impl Store {
    fn new() -> Self {
        let node = |n| Arc::new(MemoryNode::new(format!("n{n}"), Clock::system()));
        let nodes = (1..=3).map(|n| node(n) as Arc<dyn Node>).collect();
        Self(Locks::over(nodes).tag("aa").start().unwrap())
    }

    fn client(&self) -> Fleet {
        Fleet::over(&self.0, "ann")
    }

    /// In whose name nothing is waited for.
    fn hasty(&self) -> Fleet {
        let now = self.0.clock().now();
        self.client().no_later_than(now, now)
    }

    async fn tell(&self, presence: &Presence) {
        write_all(&self.0, presence, DAY).await;
    }
}

/// A replica that runs a job with a leader, and one in batches.
fn replica() -> Presence {
    let job = |name: &str, coordination: &str| JobPresence {
        name: name.to_owned(),
        coordination: coordination.to_owned(),
        schedule: "@hourly".to_owned(),
        ..JobPresence::default()
    };
    Presence {
        id: "h-1-x".to_owned(),
        tag: "aa".to_owned(),
        name: "w0".to_owned(),
        mode: "shared".to_owned(),
        jobs: vec![job("report", "leader"), job("mail", "batch")],
        rev: 1,
        ..Presence::default()
    }
}

#[tokio::test]
async fn the_status_names_the_replica_that_a_lock_names() {
    let store = Store::new();
    store.tell(&replica()).await;
    let lease = store.0.lock_key("job/report").acquire().await.unwrap();
    let seen = store.client().status().await.unwrap();
    let leader = seen.job("report").unwrap().leader.clone().unwrap();
    assert_eq!((leader.name.as_str(), leader.token), ("w0", lease.token()));
    assert_eq!(seen.nodes.len(), 3);
}

#[tokio::test]
async fn a_pause_says_which_replicas_have_heard_of_it() {
    let (store, at_once) = (Store::new(), Duration::ZERO);
    let mut replica = replica();
    store.tell(&replica).await;
    let client = store.client();
    let paused = client.pause("report", "it moves", at_once).await.unwrap();
    assert!(paused.changed && paused.known);
    assert_eq!(
        (paused.heard_by, paused.unheard_by),
        (vec![], vec!["w0".to_owned()])
    );
    replica.rev = 2;
    replica.jobs[0].paused = true;
    store.tell(&replica).await;
    let again = client.pause("report", "", at_once).await.unwrap();
    assert_eq!((again.changed, again.reason.as_str()), (false, "it moves"));
    assert_eq!(again.heard_by, ["w0"]);
    let seen = client.status().await.unwrap();
    assert_eq!(
        seen.job("report").unwrap().paused_by.as_deref(),
        Some("ann")
    );
    let resumed = client.resume("report", at_once).await.unwrap();
    assert!(resumed.changed && !resumed.paused);
}

#[tokio::test]
async fn a_trigger_is_listed_followed_and_withdrawn() {
    let (store, at_once) = (Store::new(), Duration::ZERO);
    store.tell(&replica()).await;
    let client = store.client();
    let params = TriggerParams::read(None, &["day=7".to_owned()]).unwrap();
    let first = client.trigger("report", params).await.unwrap();
    let second = client
        .trigger("report", TriggerParams::default())
        .await
        .unwrap();
    let listed = client.triggers(Some("report")).await.unwrap();
    let mut ids: Vec<&str> = listed.iter().map(|one| one.id.as_str()).collect();
    // Those of one millisecond have no order.
    ids.sort_unstable();
    let mut asked = [first.id.as_str(), second.id.as_str()];
    asked.sort_unstable();
    assert_eq!(ids, asked);
    let shown = listed.iter().find(|one| one.id == first.id).unwrap();
    assert_eq!(
        (shown.by.as_str(), shown.params.as_slice()),
        ("ann", &["day".to_owned()][..])
    );
    assert_eq!(shown.why, "no replica leads the job");

    let mut ended = first.clone();
    ended.state = TriggerState::Ended;
    ended.outcome = "done".to_owned();
    ended.ended = Some(store.0.wall());
    let doc = Intent::Trigger(ended).to_doc(TriggerState::Ended as u64);
    store
        .0
        .put_doc(&doc.name, doc.rev, DAY, doc.body)
        .await
        .unwrap();
    let known = client.follow(first.clone(), TriggerState::Ended, DAY).await;
    assert_eq!(known.outcome, "done");

    let withdrawn = client.withdraw(&second.id, at_once).await.unwrap().unwrap();
    assert_eq!(
        (withdrawn.state, withdrawn.withdrawn_by.as_str()),
        (TriggerState::Withdrawing, "ann")
    );
    assert_eq!(
        client.withdraw(&first.id, at_once).await.unwrap(),
        None,
        "it has ended"
    );
    let third = client
        .trigger("report", TriggerParams::default())
        .await
        .unwrap();
    let all = client.withdraw_all("report", at_once).await.unwrap();
    assert!(
        all.iter()
            .any(|one| one.id == third.id && one.withdrawn_by == "ann")
    );
}

#[tokio::test]
async fn a_leader_is_asked_to_resign_in_the_term_that_it_has() {
    let (store, at_once) = (Store::new(), Duration::ZERO);
    store.tell(&replica()).await;
    let refused = store.hasty().resign("report", None, at_once).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("no replica leads report"), "{refused}");
    let lease = store.0.lock_key("job/report").acquire().await.unwrap();
    let client = store.client();
    let answer = client.resign("report", None, at_once).await.unwrap();
    assert_eq!((answer.from.as_str(), answer.token), ("w0", lease.token()));
    assert_eq!(answer.leader, None, "it has not gone yet");
    let refused = store.hasty().resign("report", Some("w0"), at_once).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("w0 leads report already"), "{refused}");
}

#[tokio::test]
async fn a_replica_that_drains_has_heard_and_one_that_is_unknown_is_named() {
    let (store, at_once) = (Store::new(), Duration::ZERO);
    let mut replica = replica();
    store.tell(&replica).await;
    let client = store.client();
    let answer = client.drain("w0", Until::Heard, at_once).await.unwrap();
    assert!(!answer.heard && !answer.gone);
    replica.rev = 2;
    replica.draining = true;
    store.tell(&replica).await;
    let answer = client.drain("h-1-x", Until::Heard, at_once).await.unwrap();
    assert!(answer.heard && !answer.gone);
    let summary = document_of(&replica.id);
    store.0.remove_doc(&summary).await.unwrap();
    let error = store.hasty().drain("w0", Until::Gone, at_once).await;
    assert!(matches!(error, Err(FleetError::UnknownReplica { .. })));
}

#[tokio::test]
async fn the_history_is_what_replicas_have_written_newest_last() {
    let store = Store::new();
    store.tell(&replica()).await;
    for seq in [1, 2, 3] {
        let record = RunRecord {
            job: "report".to_owned(),
            started: Timestamp::from_second(i64::try_from(seq).unwrap()).ok(),
            outcome: "done".to_owned(),
            seq,
            ..RunRecord::default()
        };
        let (name, _) = RunRecord::documents("report", None, seq);
        let rev = RunRecord::revision(seq, Stage::Ended);
        store
            .0
            .put_doc(&name, rev, DAY, record.to_body())
            .await
            .unwrap();
    }
    let client = store.client();
    let runs = client.history("report", 2).await.unwrap();
    let seqs: Vec<u64> = runs.iter().map(|run| run.seq).collect();
    assert_eq!(seqs, [2, 3]);
    assert_eq!(
        client.history("mail", 2).await.unwrap(),
        [],
        "known, and nothing ran"
    );
}

#[tokio::test]
async fn a_tick_is_explained_by_what_the_store_keeps() {
    let store = Store::new();
    store.tell(&replica()).await;
    let client = store.client();
    let said = client.explain("report", None).await.unwrap();
    assert_eq!(said.verdict, "unseen", "{said:?}");
    let off = Spec::on("@hourly").enabled(false);
    let client = client.configured([("report".to_owned(), off)]);
    let said = client.explain("report", None).await.unwrap();
    assert_eq!(
        said.verdict, "disabled",
        "the configuration has the first word"
    );
}

#[tokio::test]
async fn no_verb_takes_a_job_that_is_not_known_and_a_batch_has_no_leader() {
    let (store, at_once) = (Store::new(), Duration::ZERO);
    store.tell(&replica()).await;
    let client = store.client();
    let none = TriggerParams::default;
    let asked = [
        client.pause("rapport", "", at_once).await.map(drop),
        client.resume("rapport", at_once).await.map(drop),
        client.trigger("rapport", none()).await.map(drop),
        client.resign("rapport", None, at_once).await.map(drop),
        client.history("rapport", 1).await.map(drop),
        client.explain("rapport", None).await.map(drop),
    ];
    for asked in asked {
        let error = asked.unwrap_err();
        assert!(matches!(error, FleetError::UnknownJob { .. }), "{error}");
        assert!(
            error.to_string().ends_with("known jobs: mail, report"),
            "{error}"
        );
    }
    for asked in [
        client.trigger("mail", none()).await.map(drop),
        client.resign("mail", None, at_once).await.map(drop),
    ] {
        assert!(matches!(asked, Err(FleetError::NotPossible(_))));
    }
    assert_eq!(client.outstanding(None).await.unwrap(), []);
}

#[tokio::test]
async fn a_lock_is_listed_with_its_holder_and_can_be_ended_by_force() {
    let store = Store::new();
    let client = store.client();
    assert_eq!(client.leaks("").await.unwrap().found, []);
    store.tell(&replica()).await;
    // Breaking it waits for its end.
    let short = store.0.lock_key("job/report").ttl(Duration::from_secs(1));
    let lease = short.acquire().await.unwrap();
    let rows = client.locks("job/").await.unwrap();
    assert_eq!(rows.len(), 1);
    assert!(rows[0].held);
    assert_eq!(rows[0].replica.as_deref(), Some("h-1-x"));
    assert_eq!(client.locks("lock/").await.unwrap(), []);
    let lock = client.lock("job/report").await.unwrap();
    assert_eq!((lock.state, lock.nodes), (LockState::Held, 3));
    let owner = breakable(&lock, None).unwrap();
    assert_eq!(owner, lease.view().owner());
    let report = client.break_lock("job/report", &owner, true).await.unwrap();
    assert_eq!(report.outcome(), Broken::Final);
    let lock = client.lock("job/report").await.unwrap();
    assert!(breakable(&lock, None).is_err(), "{lock:?}");
}

/// A replica that runs three shards.
fn sharded() -> Presence {
    let shard = |n: usize| JobPresence {
        name: format!("mail.{n}"),
        coordination: "leader".to_owned(),
        schedule: "@hourly".to_owned(),
        ..JobPresence::default()
    };
    Presence {
        jobs: (0..3).map(shard).collect(),
        ..replica()
    }
}

#[tokio::test]
async fn a_job_with_shards_is_commanded_by_its_name_and_a_shard_by_its_own() {
    let store = Store::new();
    store.tell(&sharded()).await;
    let (client, at_once) = (store.hasty(), Duration::ZERO);
    let client = Fleet {
        last: crate::clock::Moment::NEVER,
        ..client
    };
    let seen = client.status().await.unwrap();
    assert_eq!(seen.jobs.len(), 1);
    assert_eq!(seen.job("mail").unwrap().shards, Some(3));
    assert_eq!(seen.job("mail.2").unwrap().name, "mail.2");

    let error = client.pause("mail.3", "", at_once).await.unwrap_err();
    assert!(error.to_string().ends_with("known jobs: mail"), "{error}");
    assert!(
        client
            .pause("mail.1", "one", at_once)
            .await
            .unwrap()
            .changed
    );
    assert!(client.pause("mail", "all", at_once).await.unwrap().changed);
    let seen = client.status().await.unwrap();
    assert!(seen.job("mail").unwrap().paused);
    assert_eq!(
        seen.job("mail.1").unwrap().paused_why.as_deref(),
        Some("all")
    );
    let error = client.resume("mail.1", at_once).await.unwrap_err();
    assert!(error.to_string().contains("resume mail"), "{error}");
    assert!(client.resume("mail", at_once).await.unwrap().changed);
    let seen = client.status().await.unwrap();
    assert_eq!(
        seen.job("mail").unwrap().shards_paused,
        0,
        "also the one that was paused alone"
    );
    assert!(!client.resume("mail", at_once).await.unwrap().changed);

    let error = client.resign("mail", None, at_once).await.unwrap_err();
    assert!(error.to_string().contains("such as mail.0"), "{error}");
    assert!(client.history("mail", 10).await.unwrap().is_empty());
    let told = client.explain("mail", None).await.unwrap();
    assert_eq!(told.sentences[0], "mail has 3 shards.");
    assert!(
        told.sentences[1].starts_with("3 of 3 (mail.0, mail.1, mail.2): "),
        "{told:?}"
    );
}

#[tokio::test]
async fn one_trigger_starts_every_shard_once_and_is_withdrawn_from_all() {
    let store = Store::new();
    store.tell(&sharded()).await;
    let client = store.client();
    let asked = client
        .trigger("mail", TriggerParams::default())
        .await
        .unwrap();
    assert_eq!(asked.job, "mail");
    let waiting = client.triggers(Some("mail")).await.unwrap();
    let names: Vec<&str> = waiting.iter().map(|trigger| trigger.job.as_str()).collect();
    assert_eq!(names, ["mail.0", "mail.1", "mail.2"]);
    assert!(waiting.iter().all(|trigger| trigger.id == asked.id));
    assert_eq!(client.triggers(Some("mail.1")).await.unwrap().len(), 1);
    // It is as far as the last of them.
    let all = client.outstanding(Some("mail")).await.unwrap();
    for (n, mut trigger) in all.into_iter().enumerate() {
        let known = client
            .follow(asked.clone(), TriggerState::Ended, Duration::ZERO)
            .await;
        assert_eq!(known.state, TriggerState::Asked, "{n} of three have ended");
        trigger.state = TriggerState::Ended;
        trigger.outcome = if n == 1 { "failed" } else { "done" }.to_owned();
        client
            .write(trigger.revision(), &Intent::Trigger(trigger))
            .await
            .unwrap();
    }
    let known = client
        .follow(asked.clone(), TriggerState::Ended, Duration::ZERO)
        .await;
    assert_eq!(
        (known.state, known.outcome.as_str()),
        (TriggerState::Ended, "failed")
    );
    assert_eq!(known.detail, "1 of 3 shards, first mail.1");

    let second = client
        .trigger("mail", TriggerParams::default())
        .await
        .unwrap();
    let gone = client
        .withdraw(&second.id, Duration::ZERO)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (gone.job.as_str(), gone.state),
        ("mail", TriggerState::Withdrawing)
    );

    // Each shard answers for itself: one has started meanwhile, and the others are withdrawn.
    let third = client
        .trigger("mail", TriggerParams::default())
        .await
        .unwrap();
    let mut asked = client.outstanding(Some("mail")).await.unwrap();
    asked.retain(|trigger| trigger.id == third.id);
    let states = [
        TriggerState::Ended,
        TriggerState::Started,
        TriggerState::Ended,
    ];
    for (mut trigger, state) in asked.clone().into_iter().zip(states) {
        trigger.state = state;
        client
            .write(trigger.revision(), &Intent::Trigger(trigger))
            .await
            .unwrap();
    }
    let answers = client.withdraw_these(asked, Duration::ZERO).await.unwrap();
    let answers: Vec<_> = answers.iter().map(|t| (t.job.as_str(), t.state)).collect();
    let jobs = ["mail.0", "mail.1", "mail.2"];
    assert_eq!(answers, jobs.into_iter().zip(states).collect::<Vec<_>>());
    assert!(
        client
            .withdraw("none", Duration::ZERO)
            .await
            .unwrap()
            .is_none()
    );
}

/// Whatever its other shards do, it has started.
#[tokio::test]
async fn a_trigger_of_all_shards_is_not_called_withdrawn_when_some_have_started() {
    use TriggerState::{Ended, Started};
    let store = Store::new();
    store.tell(&sharded()).await;
    let client = store.client();
    for (far, detail) in [
        // Before it was withdrawn, or before its leader has heard of that.
        (
            &[(1, Ended, "done")][..],
            "1 of 3 shards have started, the others are to be withdrawn",
        ),
        (
            &[(1, Ended, "failed"), (2, Started, "")][..],
            "2 of 3 shards have started, the others are to be withdrawn",
        ),
        (
            &[(0, Started, ""), (1, Started, ""), (2, Started, "")][..],
            "3 of 3 shards have started",
        ),
    ] {
        let asked = client.trigger("mail", TriggerParams::default()).await;
        let id = asked.unwrap().id;
        let mut all = client.outstanding(Some("mail")).await.unwrap();
        all.retain(|trigger| trigger.id == id);
        for (n, state, outcome) in far {
            let mut shard = all[*n].clone();
            shard.state = *state;
            shard.outcome = (*outcome).to_owned();
            shard.run_id = format!("r{n}");
            let (rev, shard) = (shard.revision(), Intent::Trigger(shard));
            client.write(rev, &shard).await.unwrap();
        }
        let found = client.withdraw(&id, Duration::ZERO).await.unwrap().unwrap();
        assert_eq!(
            (found.job.as_str(), found.detail.as_str()),
            ("mail", detail)
        );
        let (n, state, outcome) = far[far.len() - 1];
        assert_eq!((found.state, found.outcome.as_str()), (state, outcome));
        let run_id = match far.len() {
            3 => "r0".to_owned(),
            _ => format!("r{n}"),
        };
        assert_eq!(found.run_id, run_id);
    }
}

#[tokio::test]
async fn what_would_be_asked_of_too_many_shards_is_refused() {
    let store = Store::new();
    let mut many = sharded();
    many.jobs = (0..1_001)
        .map(|n| JobPresence {
            name: format!("mail.{n}"),
            coordination: "leader".to_owned(),
            ..JobPresence::default()
        })
        .collect();
    store.tell(&many).await;
    let client = store.client();
    let given = TriggerParams::default();
    let error = client.trigger("mail", given.clone()).await.unwrap_err();
    assert!(
        error.to_string().contains("mail has 1001 shards"),
        "{error}"
    );
    let error = client.history("mail", 10).await.unwrap_err();
    assert!(error.to_string().contains("name one of them"), "{error}");
    assert!(client.explain("mail", None).await.is_err());
    assert!(client.trigger("mail.1000", given).await.is_ok());
}
