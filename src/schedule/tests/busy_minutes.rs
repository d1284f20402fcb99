//! Many jobs at the same minute.

use super::{
    super::busy_minute::{BusyMinute, busy_minutes},
    *,
};

fn jobs(of: &[(&str, usize)], jitter: Duration) -> Vec<(String, Schedule)> {
    let mut jobs = Vec::new();
    for (expr, count) in of {
        for n in 0..*count {
            let name = format!("job-{:02}-{n:02}", jobs.len());
            let s = schedule(expr, "UTC").with_jitter(&name, jitter);
            jobs.push((name, s));
        }
    }
    jobs
}

fn found(jobs: &[(String, Schedule)]) -> Vec<(String, usize)> {
    let named = jobs.iter().map(|(name, s)| (name.as_str(), s));
    let found = busy_minutes(named, at("2026-11-22T12:00:30Z"));
    let shown = |busy: BusyMinute| (busy.minute.to_string(), busy.jobs.len());
    found.into_iter().map(shown).collect()
}

#[test]
fn many_jobs_at_the_same_minute_are_found() {
    let jobs = jobs(
        &[("0 0 * * *", 13), ("30 0 0 * * *", 1), ("0 7 * * *", 9)],
        Duration::ZERO,
    );
    assert_eq!(found(&jobs), [("2026-11-23T00:00:00Z".to_owned(), 14)]);
}

#[test]
fn a_delay_disperses_a_crowd() {
    let jobs = jobs(&[("0 0 * * *", 14)], Duration::from_secs(1800));
    assert_eq!(found(&jobs), []);
}

#[test]
fn the_same_jobs_are_a_crowd_once_and_frequent_ones_are_none() {
    let jobs = jobs(&[("0 */6 * * *", 12), ("* * * * *", 20)], Duration::ZERO);
    assert_eq!(found(&jobs), [("2026-11-22T18:00:00Z".to_owned(), 12)]);
}
