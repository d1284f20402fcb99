//! Jobs whose last tick lies behind us.

use jiff::Timestamp;

use crate::{finding::Findings, job::Spec, schedule::Schedule};

/// Adds a warning when no tick of the job `name`, which has this schedule, lies ahead of `now`. Keys are those of the job.
pub(super) fn check(
    name: &str,
    spec: &Spec,
    schedule: Schedule,
    now: Timestamp,
    found: &mut Findings,
) {
    let schedule = schedule.of_job(name, spec.jitter.unwrap_or_default());
    if !spec.enabled || !schedule.has_ticks() || schedule.next_after(now).is_some() {
        return;
    }
    let last = schedule.latest_upto(Timestamp::UNIX_EPOCH, now);
    // Its jitter may hold it back until after now.
    if last.is_some_and(|last| schedule.starts(last) > now) {
        return;
    }
    let last = last.map_or_else(String::new, |last| {
        format!(", the last one was {}", schedule.local(last))
    });
    let for_ever = Spec {
        until: None,
        ..spec.clone()
    };
    let ahead = for_ever.schedule_of(name);
    let cut_off = ahead.is_ok_and(|schedule| schedule.next_after(now).is_some());
    match spec.until.as_deref().filter(|_| cut_off) {
        Some(until) => found.warn(
            &["until"],
            format!("\"{until}\" has passed: no tick lies ahead{last}"),
            "write a later time, or enabled = false",
        ),
        None => found.warn(
            &["schedule"],
            format!("it has passed: no tick lies ahead{last}"),
            "write a later time, \"manual\" to keep the job for triggers, or enabled = false",
        ),
    }
}
