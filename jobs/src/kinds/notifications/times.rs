//! When a row may be sent: not before one time, and not after another.
//!
//! Rows that are not due are left out by the source (`columns.send_after`), which reads times in SQLite as it is done here; one that was
//! given a later time meanwhile waits. A row whose deadline has passed
//! (`columns.expires_at`) is dead, and was not sent: what comes too late is worth nothing. A value that is no time makes the row
//! dead as well, with the reason.
//!
//! # Invariants
//! - T1 No row is sent before its time, however that is written.   (`a_row_waits_for_its_time_however_that_is_written`)
//! - T2 A row that is not due keeps back none of its recipient, however its time is written.
//!   (`a_row_has_its_place_from_its_time_on_however_that_is_written`)

use std::time::Duration;

use jiff::{Timestamp, civil, tz::TimeZone};
use serde_json::{Map, Value};

use super::{delivery::Answer, params::Columns};

/// The columns that say it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    send_after: Option<String>,
    expires_at: Option<String>,
}

// === impl Times ===

impl Times {
    pub(crate) fn new(columns: &Columns) -> Self {
        Self {
            send_after: columns.send_after.clone(),
            expires_at: columns.expires_at.clone(),
        }
    }

    /// What becomes of a row that is not sent, now or ever.
    pub(crate) fn keep(&self, row: &Map<String, Value>, now: Timestamp) -> Option<Answer> {
        let of = |column: &Option<String>| {
            let column = column.as_deref()?;
            let value = row.get(column).filter(|value| !value.is_null())?;
            Some(time(value).ok_or_else(|| format!("column `{column}` holds no time")))
        };
        let refused = |why| Some(Answer::Refused { why });
        let send_after = of(&self.send_after);
        if let Some(Err(why)) = send_after {
            return refused(why);
        }
        match of(&self.expires_at) {
            Some(Ok(deadline)) if now >= deadline => {
                return refused(format!("its deadline {deadline} has passed"));
            }
            Some(Err(why)) => return refused(why),
            Some(Ok(_)) | None => {}
        }
        let Some(Ok(time)) = send_after else {
            return None;
        };
        let after = Duration::try_from(time.duration_since(now)).ok()?;
        (!after.is_zero()).then(|| Answer::Waits {
            why: "its time has not come".to_owned(),
            after,
        })
    }
}

/// Unix seconds, RFC 3339, or a date with or without a time, which is meant in UTC.
pub(crate) fn time(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Number(seconds) => Timestamp::from_second(seconds.as_i64()?).ok(),
        Value::String(text) => {
            let text = text.trim();
            if let Ok(time) = text.parse::<Timestamp>() {
                return Some(time);
            }
            let time = text.parse::<civil::DateTime>().ok();
            let time = time.or_else(|| Some(text.parse::<civil::Date>().ok()?.at(0, 0, 0, 0)))?;
            Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept(row: &Value) -> Option<Answer> {
        let times = Times {
            send_after: Some("after".to_owned()),
            expires_at: Some("until".to_owned()),
        };
        let now = "2026-03-27T12:00:00Z".parse().unwrap();
        times.keep(row.as_object().unwrap(), now)
    }

    fn refused(row: Value) -> Option<String> {
        match kept(&row)? {
            Answer::Refused { why } => Some(why),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_row_waits_for_its_time_however_that_is_written() {
        for after in [
            json!("2026-03-27T12:01:00Z"),
            json!("2026-03-27T13:01:00+0100"),
            json!("2026-03-27 12:01:00+00"),
            json!("2026-03-27t12:01:00z"),
            json!("2026-03-27T12:01:00Z[Europe/Rome]"),
            json!("2026-03-27 12:01"),
            json!(1_774_612_860),
        ] {
            let waits = Answer::Waits {
                why: "its time has not come".to_owned(),
                after: Duration::from_secs(60),
            };
            assert_eq!(kept(&json!({ "after": after })), Some(waits), "{after}");
        }
        for after in [
            json!("2026-03-27T12:00:00Z"),
            json!("2026-03-27"),
            json!(null),
        ] {
            assert_eq!(kept(&json!({ "after": after })), None, "{after}");
        }
        // What comes too late then is dead now.
        let row = json!({ "after": "2026-03-27T13:01:00+0100", "until": "2026-03-27" });
        assert!(refused(row).unwrap().starts_with("its deadline"));
    }

    #[test]
    fn a_row_is_sent_until_its_deadline() {
        for until in [
            json!(null),
            json!("2026-03-27T12:00:01Z"),
            json!("2026-03-27T14:00:01+02:00"),
            json!("2026-03-27 12:00:01"),
            json!("2026-03-28"),
            json!(1_774_612_801),
        ] {
            assert_eq!(refused(json!({ "until": until })), None, "{until}");
        }
        assert_eq!(refused(json!({})), None);
        for until in [
            json!("2026-03-27T12:00:00Z"),
            json!("2026-03-27"),
            json!(1_774_612_800),
            json!(0),
        ] {
            let why = refused(json!({ "until": until })).unwrap();
            assert!(why.starts_with("its deadline "), "{why}");
        }
    }

    #[test]
    fn what_is_no_time_is_named() {
        let why = refused(json!({ "until": "soon" })).unwrap();
        assert_eq!(why, "column `until` holds no time");
        let why = refused(json!({ "after": [1] })).unwrap();
        assert_eq!(why, "column `after` holds no time");
        assert_eq!(
            refused(json!({ "until": 1e30 })).unwrap(),
            "column `until` holds no time"
        );
    }
}
