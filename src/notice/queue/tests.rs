//! Receivers that fail, are slow, or find no room, in virtual time.

use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use tokio::sync::broadcast;

use super::*;
use crate::{ledger::Became, sim_clock::SimTime};

/// Fails so often, then takes what comes; or never answers.
#[derive(Default)]
struct Ears {
    heard: Mutex<Vec<String>>,
    fails: AtomicU32,
    tries: AtomicU32,
    never: bool,
    dead: bool,
    every_end: bool,
}

#[async_trait]
impl Receiver for Ears {
    fn wants_every_end(&self) -> bool {
        self.every_end
    }

    async fn send(&self, notice: &Notice) -> Result<(), Unsent> {
        self.tries.fetch_add(1, Ordering::Relaxed);
        if self.dead {
            std::future::pending::<()>().await;
        }
        let left = self.fails.load(Ordering::Relaxed);
        if left > 0 {
            self.fails.store(left - 1, Ordering::Relaxed);
            return Err(match self.never {
                true => Unsent::never("answered 400"),
                false => Unsent::later("answered 503"),
            });
        }
        let said = format!("{} {}", notice.job, notice.what);
        self.heard.lock().unwrap().push(said);
        Ok(())
    }
}

struct Scene {
    notices: Notices,
    clock: Clock,
    events: broadcast::Receiver<Event>,
    _senders: Vec<AbortOnDropHandle<()>>,
}

fn scene(receivers: &[(&str, Arc<Ears>)]) -> Scene {
    let (clock, events) = (SimTime::new().clock(), Events::default());
    let all = receivers.iter();
    let posts = Posts {
        namespace: "ns".to_owned(),
        usual: receivers
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect(),
        receivers: all
            .map(|(name, ears)| ((*name).to_owned(), ears.clone() as _))
            .collect(),
    };
    let heard = events.observe();
    let notices = Notices::new(posts, "a", clock.clone(), events);
    Scene {
        _senders: notices.follow(&Spawn::system()),
        notices,
        clock,
        events: heard,
    }
}

fn trouble(what: Became, second: i64) -> Trouble {
    let at = Timestamp::from_second(second).unwrap();
    Trouble {
        what,
        at,
        since: at,
        by: Cause {
            tick: at,
            last: None,
            count: 0,
            run: String::new(),
            attempt: 1,
            outcome: "failed".to_owned(),
            detail: String::new(),
        },
        done: Vec::new(),
        told: false,
        unheard: false,
    }
}

impl Scene {
    /// How often each outcome was told of.
    fn outcomes(&mut self) -> BTreeMap<&'static str, usize> {
        let mut all = BTreeMap::new();
        while let Ok(event) = self.events.try_recv() {
            if let Event::Notice { outcome, .. } = event {
                *all.entry(outcome).or_default() += 1;
            }
        }
        all
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_told_of_one_job_keeps_its_order() {
    let ears = Arc::new(Ears::default());
    // The first of them has to be said again, and the second waits for it.
    ears.fails.store(2, Ordering::Relaxed);
    let mut scene = scene(&[("ops", ears.clone())]);
    scene.notices.tell("a", None, &trouble(Became::Failed, 1));
    scene
        .notices
        .tell("a", None, &trouble(Became::Recovered, 2));
    // Asked again for the same change: that is being told.
    scene
        .notices
        .tell("a", None, &trouble(Became::Recovered, 2));
    scene.notices.flush(Duration::from_secs(60)).await;
    assert_eq!(*ears.heard.lock().unwrap(), ["a failed", "a recovered"]);
    assert_eq!(scene.outcomes(), BTreeMap::from([("sent", 2)]));
}

#[tokio::test(start_paused = true)]
async fn how_it_stands_with_a_receiver_is_known() {
    let ears = Arc::new(Ears::default());
    ears.fails.store(2, Ordering::Relaxed);
    let scene = scene(&[("ops", ears), ("others", Arc::default())]);
    let standing = || scene.notices.standings().remove(0);
    let began = scene.clock.wall();
    let none = Standing {
        name: "ops".to_owned(),
        waiting: 0,
        sent: None,
        failing: None,
    };
    assert_eq!(standing(), none);
    let to_ops = ["ops".to_owned()];
    let failed = trouble(Became::Failed, 1);
    scene.notices.tell("a", Some(&to_ops), &failed);
    // Tried at once and after one second, in vain, and then after five.
    scene.clock.sleep(Duration::from_secs(3)).await;
    let told = standing();
    assert_eq!((told.waiting, told.sent), (1, None));
    assert_eq!(told.failing, Some(began), "since the first of them");
    scene.notices.flush(Duration::from_secs(60)).await;
    let told = standing();
    assert_eq!((told.waiting, told.failing), (0, None));
    assert!(told.sent > Some(began), "{told:?}");
    let other = scene.notices.standings().remove(1);
    assert_eq!((other.name.as_str(), other.sent), ("others", None));
}

#[tokio::test(start_paused = true)]
async fn a_dead_receiver_delays_no_other_one() {
    let (dead, well) = (
        Arc::new(Ears {
            dead: true,
            ..Ears::default()
        }),
        Arc::new(Ears::default()),
    );
    let scene = scene(&[("dead", dead), ("well", well.clone())]);
    let change = trouble(Became::Failed, 1);
    scene.notices.tell("a", None, &change);
    scene.clock.sleep(Duration::from_millis(10)).await;
    assert_eq!(*well.heard.lock().unwrap(), ["a failed"]);
    let Told::Underway { done, news } = scene.notices.told("a", change.at) else {
        panic!("one of the two does not have it");
    };
    assert_eq!(done, ["well"]);
    // Of the one that has it, then of the one that is given up.
    news.notified().await;
    news.notified().await;
    assert!(matches!(
        scene.notices.told("a", change.at),
        Told::Settled { heard: true }
    ));
}

/// What an earlier leader has told some of them.
#[tokio::test(start_paused = true)]
async fn who_knows_a_change_is_not_told_again() {
    let (one, two) = (Arc::new(Ears::default()), Arc::new(Ears::default()));
    let scene = scene(&[("one", one.clone()), ("two", two.clone())]);
    let change = Trouble {
        done: vec!["one".to_owned()],
        ..trouble(Became::Failed, 1)
    };
    scene.notices.tell("a", None, &change);
    scene.notices.flush(Duration::from_secs(5)).await;
    assert!(one.heard.lock().unwrap().is_empty());
    assert_eq!(*two.heard.lock().unwrap(), ["a failed"]);
    let all = Trouble {
        done: vec!["one".to_owned(), "two".to_owned()],
        ..trouble(Became::Recovered, 2)
    };
    scene.notices.tell("a", None, &all);
    assert!(matches!(
        scene.notices.told("a", all.at),
        Told::Settled { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_fails_is_asked_so_often_and_no_more() {
    for (never, tries) in [(false, 7), (true, 1)] {
        let ears = Arc::new(Ears {
            fails: AtomicU32::new(1000),
            never,
            ..Ears::default()
        });
        let mut scene = scene(&[("ops", ears.clone())]);
        scene.notices.tell("a", None, &trouble(Became::Failed, 1));
        scene.notices.flush(Duration::from_secs(3600)).await;
        assert_eq!(ears.tries.load(Ordering::Relaxed), tries);
        assert_eq!(scene.outcomes(), BTreeMap::from([("failed", 1)]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_and_counts() {
    let dead = Arc::new(Ears {
        dead: true,
        ..Ears::default()
    });
    let mut scene = scene(&[("ops", dead)]);
    let most = MOST_WAITING + 10;
    let change = trouble(Became::Failed, 1);
    for job in 0..most {
        scene.notices.tell(&format!("job-{job}"), None, &change);
    }
    assert_eq!(scene.outcomes(), BTreeMap::from([("dropped", 10)]));
    // Nobody waits for what was dropped.
    let last = format!("job-{}", most - 1);
    assert!(matches!(
        scene.notices.told(&last, change.at),
        Told::Settled { heard: false }
    ));
    assert!(matches!(
        scene.notices.told("job-0", change.at),
        Told::Underway { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_job_tells_those_whom_it_names() {
    let (one, two) = (Arc::new(Ears::default()), Arc::new(Ears::default()));
    let scene = scene(&[("one", one.clone()), ("two", two.clone())]);
    let named = ["two".to_owned(), "gone".to_owned()];
    assert!(scene.notices.has_any(None) && scene.notices.has_any(Some(&named)));
    assert!(!scene.notices.has_any(Some(&[])));
    scene
        .notices
        .tell("a", Some(&named), &trouble(Became::Missed, 1));
    scene.notices.flush(Duration::from_secs(5)).await;
    assert!(one.heard.lock().unwrap().is_empty());
    assert_eq!(*two.heard.lock().unwrap(), ["a missed"]);
}

#[tokio::test(start_paused = true)]
async fn a_ping_of_a_failure_is_sent_though_the_job_was_well_since() {
    for (ends, sent) in [
        // The first is on its way, and fails for a while; the others wait.
        ("wwfww", "ended failed ended"),
        ("wwffwfw", "ended failed ended"),
        ("wfwf", "ended failed"),
        ("wwwww", "ended ended"),
    ] {
        let ears = Arc::new(Ears {
            every_end: true,
            fails: AtomicU32::new(2),
            ..Ears::default()
        });
        let scene = scene(&[("ping", ears.clone())]);
        let by = trouble(Became::Failed, 1).by;
        for (second, end) in (1..).zip(ends.chars()) {
            let at = Timestamp::from_second(second).unwrap();
            scene.notices.ended("a", None, (end == 'w', at), &by);
            while ears.tries.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
        }
        let began = scene.clock.now();
        scene.notices.flush(Duration::from_secs(60)).await;
        // It knows that nothing is left.
        assert!(scene.clock.now().since(began) < Duration::from_secs(60));
        let heard = ears.heard.lock().unwrap().join(" ");
        assert_eq!(heard.replace("a ", ""), sent, "{ends}");
    }
}
