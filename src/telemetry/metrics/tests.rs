use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn wall() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn rendered(metrics: &Metrics) -> String {
    metrics.render(Exposition::OpenMetrics)
}

fn shows(metrics: &Metrics, sample: &str) {
    let text = rendered(metrics);
    assert!(text.lines().any(|line| line == sample), "{sample}\n{text}");
}

fn run_ended(outcome: &'static str) -> Event {
    Event::RunEnded {
        job: "report".into(),
        run_id: "r1".into(),
        tick: wall(),
        attempt: 1,
        outcome,
        detail: "a secret\"text".into(),
        took: Duration::from_secs(2),
    }
}

#[test]
fn every_node_and_every_pause_has_a_series_from_the_start() {
    let metrics = Metrics::new("1");
    metrics.on(
        &Event::NodeUp {
            node: "told".into(),
            up: false,
            cause: "timeout",
        },
        wall(),
    );
    let what = "a counter".to_owned();
    let damaged = |node: &str| Event::NodeDamaged {
        node: node.into(),
        what: what.clone(),
    };
    metrics.on(&damaged("told"), wall());
    metrics.on(&damaged("emptied"), wall());
    metrics.on(
        &Event::NodeUp {
            node: "emptied".into(),
            up: true,
            cause: "",
        },
        wall(),
    );
    metrics.declare_node("told", true);
    metrics.declare_node("silent", true);
    metrics
        .asks()
        .paused
        .of(|| vec![("a".into(), true), ("b".into(), false)]);
    let text = metrics.render(Exposition::Prometheus);
    for line in [
        "distributed_lock_node_up{node=\"told\"} 0",
        "distributed_lock_node_up{node=\"silent\"} 1",
        "distributed_lock_node_damaged{node=\"told\"} 1",
        "distributed_lock_node_damaged{node=\"emptied\"} 0",
        "distributed_lock_node_damaged{node=\"silent\"} 0",
        "watchkeeper_job_paused{job=\"a\"} 1",
        "watchkeeper_job_paused{job=\"b\"} 0",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn lock_metrics_have_their_promised_names() {
    let metrics = Metrics::new("1.2.3");
    for outcome in ["acquired", "held", "no_quorum"] {
        metrics.on(
            &Event::Acquire {
                resource: "report".into(),
                outcome,
                took: Duration::from_micros(1_500),
            },
            wall(),
        );
    }
    shows(
        &metrics,
        "distributed_lock_failures_total{resource=\"report\",op=\"acquire\",cause=\"no_quorum\"} 1",
    );
    let bucket = |le, n| {
        format!(
            "distributed_lock_wait_seconds_bucket{{le=\"{le}\",resource=\"report\",outcome=\"held\"}} {n}"
        )
    };
    shows(&metrics, &bucket("0.001", 0));
    shows(&metrics, &bucket("0.0025", 1));
    shows(&metrics, &bucket("10.0", 1));
    assert!(!rendered(&metrics).contains("cause=\"held\""));
    shows(&metrics, "watchkeeper_build_info{version=\"1.2.3\"} 1");
}

#[test]
fn a_term_is_counted_from_its_beginning_to_its_end() {
    let metrics = Metrics::new("1");
    let job = "report".to_owned();
    metrics.declare_job("report", true);
    shows(&metrics, "watchkeeper_leader{job=\"report\"} 0");
    metrics.on(
        &Event::Leading {
            job: job.clone(),
            token: Token(7),
            leaderless: Some(Duration::from_secs(3)),
        },
        wall(),
    );
    shows(&metrics, "watchkeeper_leader{job=\"report\"} 1");
    shows(&metrics, "watchkeeper_fencing_token{job=\"report\"} 7");
    shows(
        &metrics,
        "watchkeeper_leaderless_seconds_sum{job=\"report\"} 3.0",
    );
    let why = Loss::Unfit("a text with no end".into());
    metrics.on(&Event::StandingBy { job, why }, wall());
    shows(&metrics, "watchkeeper_leader{job=\"report\"} 0");
    for reason in ["elected", "unfit"] {
        shows(
            &metrics,
            &format!(
                "watchkeeper_leadership_changes_total{{job=\"report\",reason=\"{reason}\"}} 1"
            ),
        );
    }
}

#[test]
fn a_job_of_which_there_is_nothing_to_say_has_few_series() {
    let metrics = Metrics::new("1");
    let series = |metrics: &Metrics| {
        let text = rendered(metrics);
        let of = text.lines().filter(|line| line.contains("\"report\""));
        of.map(str::to_owned).collect::<Vec<_>>()
    };
    metrics.declare_job("report", true);
    metrics.expect_success("report");
    let idle = series(&metrics);
    assert_eq!(idle.len(), 8, "{idle:#?}");
    // What alerts are made on is there before it happens.
    for zero in [
        "watchkeeper_job_runs_total{job=\"report\",outcome=\"timeout\"} 0",
        "watchkeeper_job_runs_total{job=\"report\",outcome=\"panicked\"} 0",
        "watchkeeper_ticks_skipped_total{job=\"report\",why=\"unknown\"} 0",
        "watchkeeper_engine_deaths_total{job=\"report\"} 0",
    ] {
        shows(&metrics, zero);
    }
    // A job that never succeeds has succeeded long ago: an alert on the time since then fires.
    let never = "watchkeeper_job_last_success_timestamp_seconds{job=\"report\"} 0.0";
    assert!(idle.iter().any(|line| line == never), "{idle:#?}");
    // The zeros of what may fail come with the first attempt, and before the first failure.
    let took = Duration::from_millis(1);
    let resource = || "report".to_owned();
    metrics.on(
        &Event::Acquire {
            resource: resource(),
            outcome: "acquired",
            took,
        },
        wall(),
    );
    metrics.on(
        &Event::Renewed {
            resource: resource(),
            took,
            ok: true,
            margin: 1,
        },
        wall(),
    );
    for (op, cause) in [
        ("acquire", "no_quorum"),
        ("renew", "no_quorum"),
        ("renew", "expired"),
    ] {
        let zero = format!(
            "distributed_lock_failures_total{{resource=\"report\",op=\"{op}\",cause=\"{cause}\"}} 0"
        );
        shows(&metrics, &zero);
    }
    // Asked for again, it does not begin anew.
    metrics.on(&run_ended("done"), wall());
    metrics.expect_success("report");
    shows(
        &metrics,
        "watchkeeper_job_last_success_timestamp_seconds{job=\"report\"} 1700000000.0",
    );
}

#[test]
fn a_scrape_asks_who_leads() {
    let metrics = Metrics::new("1");
    let leads = Arc::new(AtomicBool::new(true));
    let source = leads.clone();
    metrics.asks().terms.of(move || {
        let term = HeldTerm {
            job: "report".into(),
            token: Token(9),
            remaining: Duration::from_millis(6_500),
            margin: -1,
        };
        source
            .load(Ordering::SeqCst)
            .then_some(term)
            .into_iter()
            .collect()
    });
    shows(&metrics, "watchkeeper_leader{job=\"report\"} 1");
    shows(
        &metrics,
        "watchkeeper_lease_remaining_seconds{job=\"report\"} 6.5",
    );
    shows(&metrics, "watchkeeper_lease_margin{job=\"report\"} -1");
    leads.store(false, Ordering::SeqCst);
    shows(&metrics, "watchkeeper_leader{job=\"report\"} 0");
    assert!(!rendered(&metrics).contains("lease_remaining_seconds{"));
    assert!(!rendered(&metrics).contains("lease_margin{"));
    shows(&metrics, "watchkeeper_fencing_token{job=\"report\"} 9");
}

#[test]
fn a_tick_that_nobody_decides_is_overdue_until_it_is_not_this_replicas_business() {
    let metrics = Metrics::new("1");
    assert!(!rendered(&metrics).contains("tick_overdue_seconds{"));
    let late = Arc::new(AtomicBool::new(true));
    let source = late.clone();
    metrics
        .asks()
        .overdue
        .of(move || match source.load(Ordering::SeqCst) {
            true => vec![("report".into(), Duration::from_millis(90_500))],
            false => Vec::new(),
        });
    shows(
        &metrics,
        "watchkeeper_tick_overdue_seconds{job=\"report\"} 90.5",
    );
    late.store(false, Ordering::SeqCst);
    assert!(!rendered(&metrics).contains("tick_overdue_seconds{"));
}

#[test]
fn only_a_run_that_is_done_is_a_success() {
    let metrics = Metrics::new("1");
    metrics.on(&run_ended("failed"), wall());
    assert!(!rendered(&metrics).contains("last_success_timestamp_seconds{"));
    metrics.on(&run_ended("done"), wall());
    shows(
        &metrics,
        "watchkeeper_job_last_success_timestamp_seconds{job=\"report\"} 1700000000.0",
    );
    for outcome in ["done", "failed"] {
        shows(
            &metrics,
            &format!("watchkeeper_job_runs_total{{job=\"report\",outcome=\"{outcome}\"}} 1"),
        );
    }
    assert!(!rendered(&metrics).contains("secret"), "no text in a label");
}

#[test]
fn work_and_nodes_are_counted() {
    let metrics = Metrics::new("1");
    let job = "mail".to_owned();
    for event in [
        Event::Items {
            job: job.clone(),
            outcome: "sent",
            count: 40,
        },
        Event::Items {
            job: job.clone(),
            outcome: "sent",
            count: 2,
        },
        Event::Backlog {
            job: job.clone(),
            items: 17,
            since: None,
        },
        Event::HeldItems {
            job: job.clone(),
            retry: 3,
            dead: 6,
            in_doubt: 0,
            parked: 1,
        },
        Event::NodeUp {
            node: "redis-1".into(),
            up: false,
            cause: "timeout",
        },
        Event::Renewed {
            resource: job.clone(),
            took: Duration::from_millis(1),
            ok: false,
            margin: 0,
        },
        Event::LeaseEnded {
            resource: job.clone(),
            loss: Loss::Expired,
            held: Duration::from_secs(8),
        },
        Event::Definitions {
            job: job.clone(),
            count: 2,
        },
        Event::Reloaded {
            ok: true,
            at: wall(),
        },
        Event::Reloaded {
            ok: false,
            at: Timestamp::MAX,
        },
        Event::TicksSkipped {
            job,
            first: wall(),
            last: wall(),
            count: 3,
            why: "misfire",
        },
    ] {
        metrics.on(&event, wall());
    }
    shows(
        &metrics,
        "watchkeeper_notifications_total{job=\"mail\",outcome=\"sent\"} 42",
    );
    shows(
        &metrics,
        "watchkeeper_notification_backlog{job=\"mail\"} 17",
    );
    for (state, items) in [("retry", 3), ("dead", 6), ("in_doubt", 0), ("parked", 1)] {
        let line =
            format!("watchkeeper_notification_items{{job=\"mail\",state=\"{state}\"}} {items}");
        shows(&metrics, &line);
    }
    shows(&metrics, "distributed_lock_node_up{node=\"redis-1\"} 0");
    shows(
        &metrics,
        "distributed_lock_failures_total{resource=\"mail\",op=\"renew\",cause=\"no_quorum\"} 1",
    );
    shows(
        &metrics,
        "distributed_lock_failures_total{resource=\"mail\",op=\"renew\",cause=\"expired\"} 1",
    );
    shows(
        &metrics,
        "distributed_lock_hold_seconds_sum{resource=\"mail\"} 8.0",
    );
    shows(
        &metrics,
        "watchkeeper_ticks_skipped_total{job=\"mail\",why=\"misfire\"} 3",
    );
    shows(&metrics, "watchkeeper_job_definitions{job=\"mail\"} 2");
    shows(&metrics, "watchkeeper_config_reload_successful 0");
    let read = wall().as_duration().as_secs_f64();
    shows(
        &metrics,
        &format!("watchkeeper_config_reload_timestamp_seconds {read:?}"),
    );
}

#[test]
fn both_formats_show_the_same_samples() {
    let metrics = Metrics::new("1");
    metrics.declare_job("report", true);
    metrics.on(&run_ended("done"), wall());
    let samples = |text: &str| -> Vec<String> {
        text.lines()
            .filter(|l| !l.starts_with('#') && !l.starts_with("process_"))
            .map(str::to_owned)
            .collect()
    };
    let open = metrics.render(Exposition::OpenMetrics);
    let plain = metrics.render(Exposition::Prometheus);
    assert_eq!(samples(&open), samples(&plain));
    assert!(open.ends_with("# EOF\n"));
    assert!(open.contains("# TYPE watchkeeper_job_runs counter\n"));
    assert!(!plain.contains("# EOF") && !plain.contains("# UNIT"));
    assert!(plain.contains("# HELP watchkeeper_job_runs_total Runs that ended.\n# TYPE watchkeeper_job_runs_total counter\n"));
    assert!(plain.contains("# TYPE watchkeeper_build_info gauge\n"));
    // Every sample belongs to the type line above it.
    let mut family = String::new();
    for line in plain.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap().to_owned();
        } else if !line.starts_with('#') {
            assert!(line.starts_with(&family), "{line} under {family}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_is_measured() {
    let text = rendered(&Metrics::new("1"));
    for name in [
        "process_resident_memory_bytes ",
        "process_open_fds ",
        "process_cpu_seconds_total ",
        "process_start_time_seconds ",
    ] {
        assert!(text.lines().any(|l| l.starts_with(name)), "{name}\n{text}");
    }
}

#[test]
fn the_accept_header_chooses_the_format() {
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;q=0.5,*/*;q=0.1";
    for (accept, format) in [
        (prometheus, Exposition::OpenMetrics),
        ("", Exposition::Prometheus),
        ("*/*", Exposition::Prometheus),
        ("text/html", Exposition::Prometheus),
        ("application/openmetrics-text;q=0", Exposition::Prometheus),
    ] {
        assert_eq!(Exposition::for_accept(accept), format, "{accept}");
    }
}

#[tokio::test]
async fn events_that_were_missed_are_counted() {
    let events = Events::default();
    let metrics = Metrics::new("1");
    let stop = CancellationToken::new();
    let task = metrics.follow(&events, &Clock::system(), &Spawn::system(), stop.clone());
    for _ in 0..4_097 {
        events.tell(run_ended("done"));
    }
    stop.cancel();
    task.await.unwrap();
    shows(&metrics, "watchkeeper_events_missed_total 1");
    shows(
        &metrics,
        "watchkeeper_job_runs_total{job=\"report\",outcome=\"done\"} 4096",
    );
}

#[test]
fn shards_are_counted_in_the_series_of_their_job() {
    let metrics = Metrics::new("1");
    for n in 0..1_000 {
        metrics.declare_job(&format!("mail.{n}"), true);
        metrics.expect_success(&format!("mail.{n}"));
    }
    for job in ["mail.3", "mail.4", "mail.3"] {
        metrics.on(
            &Event::Leading {
                job: job.to_owned(),
                token: Token(7),
                leaderless: None,
            },
            wall(),
        );
    }
    // A lock of the program is none of them.
    for resource in ["order.7", "mail.4"] {
        metrics.on(
            &Event::Acquire {
                resource: resource.to_owned(),
                outcome: "acquired",
                took: Duration::from_millis(1),
            },
            wall(),
        );
    }
    let term = |job: &str, token, secs, margin| HeldTerm {
        job: job.to_owned(),
        token: Token(token),
        remaining: Duration::from_secs(secs),
        margin,
    };
    metrics
        .asks()
        .terms
        .of(move || vec![term("mail.3", 7, 5, 1), term("mail.4", 9, 4, 0)]);
    metrics.asks().overdue.of(|| {
        let late = |n: u64| (format!("mail.{n}"), Duration::from_secs(n));
        vec![late(1), late(3), late(2)]
    });
    metrics
        .asks()
        .paused
        .of(|| vec![("mail.1".into(), true), ("mail.2".into(), false)]);
    let text = metrics.render(Exposition::Prometheus);
    for line in [
        "watchkeeper_shards{job=\"mail\"} 1000",
        "watchkeeper_shards_led{job=\"mail\"} 2",
        "watchkeeper_fencing_token{job=\"mail\"} 9",
        "watchkeeper_job_paused{job=\"mail\"} 0",
        "resource=\"order.7\"",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(
        !text.contains("mail.") && !text.contains("watchkeeper_leader{"),
        "{text}"
    );
    assert!(text.lines().count() < 200, "{}", text.lines().count());
}

/// Lines of gauges, whose names end with no word of a count or a histogram.
fn gauges_of(metrics: &Metrics, job: &str) -> Vec<String> {
    let text = rendered(metrics);
    let named = text
        .lines()
        .filter(|line| line.contains(&format!("{{job=\"{job}\"")));
    let ends = ["_total", "_sum", "_count", "_bucket"];
    let gauges = named.filter(|line| {
        let name = line.split('{').next().unwrap_or_default();
        !ends.iter().any(|end| name.ends_with(end))
    });
    gauges.map(str::to_owned).collect()
}

fn leading(job: &str) -> Event {
    Event::Leading {
        job: job.to_owned(),
        token: Token(7),
        leaderless: None,
    }
}

fn standing_by(job: &str) -> Event {
    Event::StandingBy {
        job: job.to_owned(),
        why: Loss::Released,
    }
}

#[test]
fn a_job_that_has_left_keeps_no_gauge() {
    let metrics = Metrics::new("1");
    let left: Arc<Mutex<Vec<&str>>> = Arc::default();
    let all = ["gone", "stays", "mail.0", "mail.1"];
    metrics.asks().left.of({
        let left = left.clone();
        move || {
            let left = left.lock().unwrap();
            let one = |job: &str| (job.to_owned(), left.contains(&job));
            all.into_iter().map(one).collect()
        }
    });
    metrics.asks().terms.of(Vec::new);
    for job in all {
        metrics.declare_job(job, true);
        metrics.expect_success(job);
    }
    let tell = |event: Event| metrics.on(&event, wall());
    tell(leading("gone"));
    tell(Event::Definitions {
        job: "gone".into(),
        count: 2,
    });
    tell(Event::Backlog {
        job: "gone".into(),
        items: 7,
        since: None,
    });
    tell(Event::HeldItems {
        job: "gone".into(),
        retry: 1,
        dead: 2,
        in_doubt: 3,
        parked: 4,
    });
    assert_eq!(gauges_of(&metrics, "gone").len(), 9);
    assert!(!gauges_of(&metrics, "mail").is_empty());
    // One of several shards: the others are still here.
    *left.lock().unwrap() = vec!["mail.1"];
    assert!(!gauges_of(&metrics, "mail").is_empty());
    *left.lock().unwrap() = vec!["gone", "mail.0", "mail.1"];
    assert_eq!(gauges_of(&metrics, "gone"), [""; 0]);
    assert_eq!(gauges_of(&metrics, "mail"), [""; 0]);
    // The last word of its engine comes late.
    tell(standing_by("gone"));
    tell(standing_by("mail.1"));
    assert_eq!(gauges_of(&metrics, "gone"), [""; 0]);
    assert_eq!(gauges_of(&metrics, "mail"), [""; 0]);
    assert_eq!(gauges_of(&metrics, "mail.1"), [""; 0]);
    shows(&metrics, "watchkeeper_leader{job=\"stays\"} 0");
    shows(&metrics, "watchkeeper_engine_deaths_total{job=\"gone\"} 0");
    // It comes back.
    *left.lock().unwrap() = Vec::new();
    metrics.declare_job("gone", true);
    shows(&metrics, "watchkeeper_leader{job=\"gone\"} 0");
}

#[test]
fn a_job_without_a_leader_any_more_is_not_shown_as_unled() {
    let metrics = Metrics::new("1");
    let held = Arc::new(AtomicBool::new(true));
    metrics.asks().terms.of({
        let held = held.clone();
        move || {
            let term = |job: &str| HeldTerm {
                job: job.to_owned(),
                token: Token(7),
                remaining: Duration::from_secs(5),
                margin: 1,
            };
            let held = held.load(Ordering::SeqCst);
            held.then(|| term("each")).into_iter().collect()
        }
    });
    for job in ["each", "split"] {
        metrics.declare_job(job, true);
        metrics.on(&leading(job), wall());
    }
    metrics.declare_job("each", false);
    metrics.declare_job("split.0", true);
    // Its last run goes on under its term.
    shows(&metrics, "watchkeeper_leader{job=\"each\"} 1");
    held.store(false, Ordering::SeqCst);
    metrics.on(&standing_by("each"), wall());
    metrics.on(&standing_by("split"), wall());
    assert_eq!(gauges_of(&metrics, "each"), [""; 0]);
    let text = rendered(&metrics);
    assert!(!text.contains("watchkeeper_leader{job=\"split\""), "{text}");
    shows(&metrics, "watchkeeper_shards{job=\"split\"} 1");
    metrics.declare_job("each", true);
    shows(&metrics, "watchkeeper_leader{job=\"each\"} 0");
}

#[test]
fn a_hundred_thousand_jobs_have_no_more_series_than_ten_thousand() {
    const ALL: usize = 100_000;
    let metrics = Metrics::new("1");
    let name = |n: usize| format!("job-{n:06}");
    for n in 0..ALL {
        metrics.declare_job(&name(n), true);
    }
    let held = |remaining| HeldTerm {
        job: name(ALL - remaining),
        token: Token(7),
        remaining: Duration::from_secs(u64::try_from(remaining).unwrap()),
        margin: 1,
    };
    let terms: Arc<Mutex<Vec<HeldTerm>>> = Arc::default();
    metrics.asks().terms.of({
        let terms = terms.clone();
        move || terms.lock().unwrap().clone()
    });
    *terms.lock().unwrap() = vec![held(3), held(2)];
    for n in [0, ALL - 2, ALL - 1] {
        metrics.on(&leading(&name(n)), wall());
        for event in [
            Event::BatchEnded {
                job: name(n),
                batch: "b".into(),
                outcome: "done",
                took: Duration::from_secs(1),
            },
            Event::Backlog {
                job: name(n),
                items: 7,
                since: None,
            },
            Event::HeldItems {
                job: name(n),
                retry: 1,
                dead: 2,
                in_doubt: 3,
                parked: 4,
            },
            Event::Definitions {
                job: name(n),
                count: 2,
            },
        ] {
            metrics.on(&event, wall());
        }
    }
    let text = rendered(&metrics);
    let jobs = text.lines().filter_map(|line| {
        let (_, of) = line.split_once("{job=\"")?;
        Some(of.split('"').next().unwrap())
    });
    let jobs: BTreeSet<&str> = jobs.collect();
    assert_eq!(jobs.len(), MOST_NAMED + 1);
    assert!(text.lines().count() < MOST_NAMED * 20, "of 100,000 jobs");
    for line in [
        "watchkeeper_batches_total{job=\"_other\",outcome=\"done\"} 2",
        "watchkeeper_batches_total{job=\"job-000000\",outcome=\"done\"} 1",
        "watchkeeper_notification_backlog{job=\"job-000000\"} 7",
        // The first that would end, of all of them.
        "watchkeeper_lease_remaining_seconds{job=\"_other\"} 2.0",
        "watchkeeper_job_runs_total{job=\"_other\",outcome=\"failed\"} 0",
    ] {
        assert!(text.contains(line), "{line}");
    }
    // What one job alone could say is said of none of them.
    for family in [
        "watchkeeper_leader{",
        "watchkeeper_fencing_token{",
        "watchkeeper_notification_backlog{",
        "watchkeeper_notification_items{",
        "watchkeeper_job_definitions{",
    ] {
        let others = format!("{family}job=\"_other\"");
        assert!(!text.contains(&others), "{others}");
    }
    terms.lock().unwrap().clear();
    let text = rendered(&metrics);
    assert!(
        !text.contains("lease_remaining_seconds{"),
        "no term is left"
    );
}

#[test]
fn how_long_the_oldest_item_waits_is_asked_at_each_scrape() {
    let metrics = Metrics::new("1");
    let waiting: Arc<Mutex<Vec<(String, Duration)>>> = Arc::default();
    metrics.asks().waiting.of({
        let waiting = waiting.clone();
        move || waiting.lock().unwrap().clone()
    });
    for job in ["mail", "split.0", "split.1"] {
        metrics.declare_job(job, false);
    }
    *waiting.lock().unwrap() = [("mail", 7), ("split.0", 8), ("split.1", 9)]
        .map(|(job, secs)| (job.to_owned(), Duration::from_secs(secs)))
        .into();
    shows(
        &metrics,
        "watchkeeper_notification_oldest_seconds{job=\"mail\"} 7.0",
    );
    shows(
        &metrics,
        "watchkeeper_notification_oldest_seconds{job=\"split\"} 9.0",
    );
    waiting.lock().unwrap().clear();
    let text = rendered(&metrics);
    assert!(!text.contains("notification_oldest_seconds{"), "{text}");
}

#[test]
fn a_job_that_rests_here_shows_no_backlog() {
    let metrics = Metrics::new("1");
    let resting: Arc<Mutex<Vec<&str>>> = Arc::default();
    metrics.asks().resting.of({
        let resting = resting.clone();
        move || {
            let resting = resting.lock().unwrap();
            let one = |job: &str| (job.to_owned(), resting.contains(&job));
            ["mail", "split.0", "split.1"].map(one).into()
        }
    });
    for job in ["mail", "split.0", "split.1"] {
        metrics.declare_job(job, false);
        metrics.on(
            &Event::Backlog {
                job: job.to_owned(),
                items: 7,
                since: None,
            },
            wall(),
        );
    }
    *resting.lock().unwrap() = vec!["mail", "split.0"];
    let text = rendered(&metrics);
    assert!(!text.contains("backlog{job=\"mail\"}"), "{text}");
    shows(
        &metrics,
        "watchkeeper_notification_backlog{job=\"split\"} 7",
    );
}
