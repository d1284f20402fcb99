//! From when and until when a schedule fires.

use jiff::{
    Timestamp,
    civil::{Date, DateTime},
};

use super::{error::ScheduleError, instant::before, zone::Zone};

/// The instants between which ticks count; both ends belong to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) starting: Option<Timestamp>,
    pub(super) until: Option<Timestamp>,
}

impl Bounds {
    pub(super) fn parse(
        starting: Option<&str>,
        until: Option<&str>,
        zone: &Zone,
    ) -> Result<Self, Vec<ScheduleError>> {
        let mut wrong = Vec::new();
        let mut bound = |key, text: Option<&str>| {
            let read = |text: &str| {
                instant(text.trim(), zone, key == "until").ok_or_else(|| ScheduleError::Bound {
                    key,
                    value: text.trim().to_owned(),
                })
            };
            match text.map(read).transpose() {
                Ok(bound) => bound,
                Err(error) => {
                    wrong.push(error);
                    None
                }
            }
        };
        let bounds = Self {
            starting: bound("starting", starting),
            until: bound("until", until),
        };
        match (bounds.starting, bounds.until, starting, until) {
            (Some(from), Some(to), Some(starting), Some(until)) if to < from => {
                wrong.push(ScheduleError::UntilBeforeStarting {
                    starting: starting.to_owned(),
                    until: until.to_owned(),
                });
            }
            _ => {}
        }
        match wrong.is_empty() {
            true => Ok(bounds),
            false => Err(wrong),
        }
    }
}

/// An instant: in RFC 3339, or civil time of a zone in brackets or of `zone`. A date alone is the beginning of that day, or
/// its end where `whole` days are meant.
pub(super) fn instant(text: &str, zone: &Zone, whole: bool) -> Option<Timestamp> {
    if let Some((civil, name)) = text.strip_suffix(']').and_then(|t| t.split_once('[')) {
        return instant(civil, &Zone::parse(Some(name)).ok()?, whole);
    }
    if text.len() == 10 {
        let date: Date = text.parse().ok()?;
        return match whole {
            true => before(zone.instant(date.tomorrow().ok()?.at(0, 0, 0, 0))?),
            false => zone.instant(date.at(0, 0, 0, 0)),
        };
    }
    if let Ok(instant) = text.parse() {
        return Some(instant);
    }
    zone.instant(text.parse::<DateTime>().ok()?)
}
