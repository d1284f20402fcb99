//! The ticks of a job around now, each with what became of it or what is known of it: what a page shows of a schedule.
//!
//! Made of the same facts as an explanation of one tick, by the same rules. Why a tick did not run: `rule` in `../explain.rs`.

use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use super::{Explanation, Facts, StoredJob, shown_schedule};
use crate::{
    job::Spec,
    ledger::Ledger,
    schedule::{Schedule, before},
};

/// Ticks that are told of before now, and after it.
const LAST: usize = 15;
const NEXT: usize = 5;

/// How far back ticks are looked for: no further than it takes to find enough of them.
const BACK: [i64; 4] = [3600, 86_400, 40 * 86_400, 400 * 86_400];

/// A change of the clocks is told of for so long before it, and with what it does to ticks so close to it.
const AHEAD: SignedDuration = SignedDuration::from_hours(24 * 366);
const NEAR: SignedDuration = SignedDuration::from_hours(3);
/// Ticks near a change that are looked at, and what is odd about them that is told.
const LOOKED_AT: usize = 200;
const ODD: usize = 3;

/// A job's schedule, and its ticks around now.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct JobTicks {
    /// The schedule in words; empty where it has no ticks to tell of.
    pub(crate) words: String,
    /// The zone in which it is read, where that matters.
    pub(crate) zone: Option<String>,
    /// What the clocks of that zone do next, and to which ticks.
    pub(crate) changes: Vec<String>,
    /// Every tick up to here is decided.
    pub(crate) decided_upto: Option<Timestamp>,
    /// The last ticks, in order.
    pub(crate) last: Vec<TickStatus>,
    /// The next ones, in order.
    pub(crate) next: Vec<TickStatus>,
}

/// One tick.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct TickStatus {
    /// Its instant.
    pub(crate) at: Timestamp,
    /// The same in the zone of the job.
    pub(crate) local: String,
    /// What became of it: the word of an [`Explanation`].
    pub(crate) verdict: String,
    /// The same in sentences, which may quote what runs have said.
    pub(crate) sentences: Vec<String>,
    /// What a change of the clocks does to it.
    pub(crate) oddity: Option<String>,
}

/// The ticks of a job as the configuration and the store tell of it: the configuration has the first word on what it is.
///
/// # Errors
/// Its schedule or its ledger cannot be read.
pub(crate) fn ticks(
    job: &str,
    spec: Option<&Spec>,
    told: &StoredJob,
    now: Timestamp,
) -> Result<JobTicks, String> {
    let schedule = match spec {
        Some(spec) => spec.schedule_of(job),
        None => {
            let (text, zone) = told.schedule.clone().unwrap_or_default();
            shown_schedule(job, &text, zone.as_deref())
        }
    };
    let schedule = schedule.map_err(|error| error.to_string())?;
    let ledger = told.ledger.as_deref().map(Ledger::from_body).transpose();
    let ledger = ledger.map_err(|error| error.to_string())?;
    let coordination = spec.map(|spec| spec.coordination.to_string());
    let coordination = coordination.or_else(|| told.coordination.clone());
    let coordination = coordination.unwrap_or_default();
    let mut found = JobTicks {
        words: schedule.words(spec.and_then(|spec| spec.dialect)),
        zone: schedule.zone().map(str::to_owned),
        decided_upto: ledger.as_ref().and_then(Ledger::decided_upto),
        ..JobTicks::default()
    };
    if coordination == "batch" || !schedule.has_ticks() {
        found.zone = None;
        return Ok(found);
    }
    let facts = Facts {
        job,
        coordination: &coordination,
        enabled: spec.is_none_or(|spec| spec.enabled),
        schedule: &schedule,
        ledger: ledger.as_ref(),
        runs: &told.runs,
        pause: told.pause.as_ref(),
        leader: told.leader.as_deref(),
        at: now,
        now,
    };
    found.changes = changes(&schedule, now);
    found.last = last(&schedule, now)
        .into_iter()
        .map(|tick| facts.tick(tick))
        // Before the first of which something is known there may have been no such job.
        .skip_while(|tick| tick.verdict == "forgotten")
        .collect();
    found.next = schedule
        .between(now, Timestamp::MAX, NEXT)
        .into_iter()
        .map(|tick| facts.tick(tick))
        .collect();
    Ok(found)
}

impl Facts<'_> {
    /// What is known of a tick of the schedule.
    fn tick(&self, at: Timestamp) -> TickStatus {
        let mut answer = Explanation {
            job: self.job.to_owned(),
            at,
            tick: None,
            verdict: String::new(),
            sentences: Vec::new(),
        };
        let verdict = Self { at, ..*self }.judge(&mut answer);
        TickStatus {
            at,
            local: self.schedule.local(at),
            verdict,
            sentences: answer.sentences,
            oddity: self.schedule.oddity(at).map(|odd| odd.to_string()),
        }
    }
}

fn last(schedule: &Schedule, now: Timestamp) -> Vec<Timestamp> {
    let mut found = Vec::new();
    for seconds in BACK {
        let Ok(after) = now.checked_sub(SignedDuration::from_secs(seconds)) else {
            break;
        };
        found = schedule.latest(after, now, LAST);
        if found.len() >= LAST {
            break;
        }
    }
    found
}

/// The next change of the clocks in the zone of the schedule, and what it does to its ticks.
fn changes(schedule: &Schedule, now: Timestamp) -> Vec<String> {
    let Some(zone) = schedule.zone() else {
        return Vec::new();
    };
    let Ok(tz) = TimeZone::get(zone) else {
        return Vec::new();
    };
    let Some((at, then)) = tz
        .following(now)
        .next()
        .map(|change| (change.timestamp(), change.offset()))
        .filter(|(at, _)| at.duration_since(now) < AHEAD)
    else {
        return Vec::new();
    };
    let until_then = before(at).map(|at| tz.to_offset(at));
    let word = match until_then.is_some_and(|offset| offset < then) {
        true => "forward",
        false => "back",
    };
    let mut told = vec![format!(
        "The clocks of {zone} go {word} at {}.",
        schedule.local(at)
    )];
    let near = at.checked_sub(NEAR).ok().zip(at.checked_add(NEAR).ok());
    let near = near.map(|(from, to)| schedule.between(from, to, LOOKED_AT));
    for tick in near.unwrap_or_default() {
        let Some(odd) = schedule.oddity(tick).map(|odd| format!("{odd}.")) else {
            continue;
        };
        if !told.contains(&odd) && told.len() <= ODD {
            told.push(odd);
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::history::RunRecord;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn told(schedule: &str, zone: &str) -> StoredJob {
        StoredJob {
            coordination: Some("leader".to_owned()),
            schedule: Some((schedule.to_owned(), Some(zone.to_owned()))),
            ..StoredJob::default()
        }
    }

    #[test]
    fn ticks_around_now_are_told_with_what_became_of_them() {
        let now = at("2026-11-23T12:30:00Z");
        let mut ledger = Ledger::default();
        ledger.first_sight(at("2026-11-23T12:00:30Z")).unwrap();
        let told = StoredJob {
            ledger: Some(ledger.to_body()),
            runs: vec![RunRecord {
                tick: at("2026-11-23T12:00:00Z"),
                attempt: 1,
                outcome: "done".to_owned(),
                ..RunRecord::default()
            }],
            ..told("0 * * * *", "UTC")
        };
        let found = ticks("report", None, &told, now).unwrap();
        assert_eq!(found.words, "every hour");
        assert_eq!(found.decided_upto, Some(at("2026-11-23T12:00:30Z")));
        // Nothing is known of the hours before.
        assert_eq!((found.last.len(), found.next.len()), (1, NEXT));
        let noon = found.last.last().unwrap();
        assert_eq!(
            (noon.at, noon.verdict.as_str()),
            (at("2026-11-23T12:00:00Z"), "done")
        );
        assert!(noon.sentences[0].contains("ended as done"), "{noon:?}");
        let next = &found.next[0];
        assert_eq!(
            (next.at, next.verdict.as_str()),
            (at("2026-11-23T13:00:00Z"), "future")
        );
    }

    #[test]
    fn a_change_of_the_clocks_is_told_with_what_it_does() {
        let now = at("2026-03-28T12:00:00Z");
        let found = ticks("report", None, &told("30 2 * * *", "Europe/Rome"), now).unwrap();
        assert_eq!(found.zone.as_deref(), Some("Europe/Rome"));
        assert_eq!(
            found.changes,
            [
                "The clocks of Europe/Rome go forward at Sun 2026-03-29 03:00:00 +02:00.",
                "02:30 does not exist on 2026-03-29: fires at 03:00.",
            ]
        );
        assert_eq!(
            found.next[0].oddity.as_deref(),
            Some("02:30 does not exist on 2026-03-29: fires at 03:00")
        );
        // A zone whose clocks do not change has nothing to tell.
        let found = ticks("report", None, &told("30 2 * * *", "UTC"), now).unwrap();
        assert!(found.changes.is_empty(), "{:?}", found.changes);
    }

    #[test]
    fn a_job_without_ticks_has_words_alone() {
        let now = at("2026-03-28T12:00:00Z");
        let found = ticks("serve", None, &told("continuous", "UTC"), now).unwrap();
        assert!(found.last.is_empty() && found.next.is_empty());
        assert!(found.words.starts_with("all the time"), "{}", found.words);
        let batch = StoredJob {
            coordination: Some("batch".to_owned()),
            ..told("@every 1m", "UTC")
        };
        assert!(ticks("mail", None, &batch, now).unwrap().next.is_empty());
    }
}
