//! A time as people say it on a command line.

use jiff::{Timestamp, civil, tz::TimeZone};

use super::failure::Failure;
use crate::human::duration;

/// An instant in RFC 3339, or a time or a day of this machine's zone; a day alone is its beginning.
pub(super) fn moment(text: &str) -> Result<Timestamp, Failure> {
    let wrong = || {
        Failure::Usage(format!(
            "{text:?} is no time: write 2026-05-04T08:00:00Z, or 2026-05-04T08:00 or 2026-05-04 for this machine's time zone"
        ))
    };
    let said = text.trim();
    if let Ok(at) = said.parse() {
        return Ok(at);
    }
    let local: civil::DateTime = said.parse().map_err(|_| wrong())?;
    let zoned = local.to_zoned(TimeZone::system()).map_err(|_| wrong())?;
    Ok(zoned.timestamp())
}

/// The same, or how long before `now` it was.
pub(super) fn moment_or_age(text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    match duration::parse(text) {
        Ok(age) => Ok(now.checked_sub(age).unwrap_or(Timestamp::MIN)),
        Err(_) => moment(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_an_instant_or_a_local_time() {
        let at = moment("2026-05-04T08:00:00Z").ok().unwrap();
        assert_eq!(at.to_string(), "2026-05-04T08:00:00Z");
        assert!(moment("2026-05-04T08:00").is_ok());
        assert!(moment("2026-05-04 08:00").is_ok());
        assert!(
            matches!(moment("ten o'clock"), Err(Failure::Usage(why)) if why.contains("2026-05-04T08:00"))
        );
    }

    #[test]
    fn a_day_is_its_beginning() {
        let day = moment("2026-05-04").ok().unwrap();
        assert_eq!(Some(day), moment(" 2026-05-04T00:00 ").ok());
    }

    #[test]
    fn a_moment_may_be_said_by_its_age() {
        let now: Timestamp = "2026-05-04T08:00:00Z".parse().unwrap();
        let said = |text: &str| moment_or_age(text, now).ok().map(|at| at.to_string());
        assert_eq!(said("90m").as_deref(), Some("2026-05-04T06:30:00Z"));
        assert_eq!(
            said("2026-05-04T07:00:00Z").as_deref(),
            Some("2026-05-04T07:00:00Z")
        );
        assert_eq!(said("7"), None, "without a unit");
    }
}
