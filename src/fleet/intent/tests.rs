use super::*;

fn pause(paused: bool) -> Intent {
    Intent::Pause(Pause {
        job: "report".to_owned(),
        paused,
        ..Pause::default()
    })
}

#[test]
fn what_is_said_later_wins() {
    let first = next_revision(None, u16::MAX);
    let second = next_revision(Some(first), 0);
    let third = next_revision(Some(second), u16::MAX);
    assert!(first < second && second < third);
    // As whole numbers they pass through every store.
    assert!(third < 1 << 53);
}

#[test]
fn one_of_two_said_at_a_time_wins() {
    let read = Some(next_revision(None, 7));
    assert!(next_revision(read, 1) < next_revision(read, 2));
    assert!(next_revision(read, u16::MAX) < next_revision(Some(next_revision(read, 0)), 0));
}

#[test]
fn ids_of_triggers_grow_with_time() {
    let id = |ms: u64, fill: u8| {
        uuid::Builder::from_unix_timestamp_millis(ms, &[fill; 10])
            .into_uuid()
            .to_string()
    };
    let ms = 1_800_000_000_000;
    let floor = trigger_floor(Timestamp::from_millisecond(1_800_000_000_000).unwrap());
    assert!(id(ms - 1, 255) < id(ms, 0));
    assert!(id(ms, 255) < floor, "{} {floor}", id(ms, 255));
    assert!(floor < id(ms + 1, 0), "{floor}");
}

#[test]
fn an_intent_reads_back_under_its_own_name_only() {
    let doc = pause(true).to_doc(7);
    assert_eq!(doc.name, "intent/pause.report");
    assert_eq!(Intent::from_doc(&doc), Some(pause(true)));
    let other = Doc {
        name: "intent/pause.mail".to_owned(),
        ..doc.clone()
    };
    assert_eq!(Intent::from_doc(&other), None);
    let newer = Doc {
        name: "intent/snooze.report".to_owned(),
        ..doc
    };
    assert_eq!(Intent::from_doc(&newer), None);
}

#[test]
fn a_later_state_of_a_trigger_is_newer() {
    use TriggerState::{Accepted, Asked, Ended, Started};
    let rev = |state| {
        let trigger = Trigger {
            state,
            ..Trigger::default()
        };
        trigger.revision()
    };
    let revs = [Asked, Accepted, Started, Ended].map(rev);
    assert!(revs.is_sorted() && revs[0] > 0, "{revs:?}");
}

#[test]
fn a_pause_has_no_end_and_a_trigger_has_one() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let later = |by: Duration| now.checked_add(by).unwrap();
    assert_eq!(pause(true).remaining(now), Some(LIFETIME));
    let trigger = Trigger {
        asked: now,
        ..Trigger::default()
    };
    assert!(!trigger.is_expired(later(TRIGGER_LIFETIME)));
    assert!(trigger.is_expired(later(TRIGGER_LIFETIME + Duration::from_secs(1))));
    let intent = Intent::Trigger(trigger);
    assert!(intent.remaining(later(TRIGGER_LIFETIME)).is_some());
    assert_eq!(intent.remaining(later(TRIGGER_LIFETIME * 2)), None);
    // Asked by a clock that is ahead.
    assert!(
        intent
            .remaining(now.checked_sub(TRIGGER_LIFETIME).unwrap())
            .is_some()
    );
}

#[test]
fn a_trigger_keeps_its_parameters_and_is_shown_with_their_names_alone() {
    let given = TriggerParams::read(None, &["password=hunter2".to_owned()]).unwrap();
    let trigger = Trigger {
        job: "report".to_owned(),
        id: "t".to_owned(),
        given,
        ..Trigger::default()
    };
    assert_eq!(trigger.shown()["params"], serde_json::json!(["password"]));
    for shown in [trigger.shown().to_string(), format!("{trigger:?}")] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let doc = Intent::Trigger(trigger.clone()).to_doc(1);
    assert_eq!(Intent::from_doc(&doc), Some(Intent::Trigger(trigger)));
    // Written by a version that knows of no parameters.
    let mut older: serde_json::Value = serde_json::from_str(&doc.body).unwrap();
    older.as_object_mut().unwrap().remove("params");
    let body = older.to_string();
    let read = Intent::from_doc(&Doc { body, ..doc });
    assert!(matches!(read, Some(Intent::Trigger(t)) if t.given.is_empty()));
}

#[test]
fn a_drain_names_one_process_and_is_over_after_a_while() {
    let at = Timestamp::from_second(1000).unwrap();
    let drain = Intent::Drain(Drain {
        replica: "host.example-17-ab12".to_owned(),
        at,
        ..Drain::default()
    });
    let doc = drain.to_doc(1);
    assert_eq!(doc.name, "intent/drain.host.example-17-ab12");
    assert_eq!(Intent::from_doc(&doc), Some(drain.clone()));
    assert_eq!(drain.remaining(at), Some(NEWS_LIFETIME));
    let later = Timestamp::from_second(1600).unwrap();
    assert_eq!(drain.remaining(later), None);
}
