//! Times and lengths of time for people: how long ago, and when, in the zone that the reader has asked for.
//!
//! What grows older by itself stands in `<time>`, so that the script can count it on, and is no reason to send a row again.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use super::super::html::Html;

/// The zone in which times are written.
#[derive(Clone, Debug)]
pub(in crate::admin) struct Zone(TimeZone);

/// Now, and the zone in which times are written.
#[derive(Clone, Debug)]
pub(in crate::admin) struct Times {
    pub(in crate::admin) now: Timestamp,
    zone: Zone,
}

// === impl Zone ===

impl Zone {
    pub(in crate::admin) fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// A zone of the time zone database.
    pub(in crate::admin) fn named(name: &str) -> Option<Self> {
        TimeZone::get(name).ok().map(Self)
    }

    /// An instant, or a time or a day of this zone; a day alone is its beginning.
    pub(super) fn moment(&self, said: &str) -> Option<Timestamp> {
        if let Ok(at) = said.parse() {
            return Some(at);
        }
        let local: DateTime = said.parse().ok()?;
        let zoned = local.to_zoned(self.0.clone()).ok()?;
        Some(zoned.timestamp())
    }
}

// === impl Times ===

impl Times {
    pub(in crate::admin) fn new(now: Timestamp, zone: Zone) -> Self {
        Self { now, zone }
    }

    /// To the second.
    pub(super) fn at(&self, at: Timestamp) -> String {
        match self.zone.0 == TimeZone::UTC {
            true => at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            false => {
                let zoned = at.to_zoned(self.zone.0.clone());
                zoned.strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
            }
        }
    }

    /// The same, without what it has in common with the present moment, which stands on every page: the day and the zone.
    pub(super) fn short(&self, at: Timestamp) -> String {
        let zoned = |at: Timestamp| at.to_zoned(self.zone.0.clone());
        let (then, now) = (zoned(at), zoned(self.now));
        match (then.offset() == now.offset(), then.date() == now.date()) {
            (true, true) => then.strftime("%H:%M:%S").to_string(),
            (true, false) => then.strftime("%Y-%m-%d %H:%M:%S").to_string(),
            // The clocks were changed in between.
            (false, _) => self.at(at),
        }
    }

    /// A sentence with the moments in it as they are written here.
    pub(super) fn told(&self, sentence: &str) -> String {
        let word = |word: &str| {
            let (open, rest) = word.split_at(word.find(|c| c != '(').unwrap_or(0));
            let bare = rest.trim_end_matches(['.', ',', ';', ':', ')']);
            match bare.parse::<Timestamp>() {
                Ok(at) => format!("{open}{}{}", self.short(at), &rest[bare.len()..]),
                Err(_) => word.to_owned(),
            }
        };
        let words: Vec<String> = sentence.split(' ').map(word).collect();
        words.join(" ")
    }

    /// How long ago or how soon, and when.
    pub(super) fn moment(&self, h: &mut Html, at: Option<Timestamp>) {
        let Some(at) = at else {
            h.markup("–");
            return;
        };
        self.relative(h, at);
        h.markup("<small title=\"").text(self.at(at)).markup("\">");
        h.text(self.short(at)).markup("</small>");
    }

    /// How long ago or how soon.
    pub(super) fn relative(&self, h: &mut Html, at: Timestamp) {
        h.markup("<time class=\"rel\" datetime=\"").text(at);
        h.markup("\">");
        let (ahead, ago) = (millis(self.now, at), millis(at, self.now));
        match ahead.max(ago) {
            0..1000 => h.markup("now"),
            _ if ahead > 0 => h.markup("in ").text(span(ahead)),
            _ => h.text(span(ago)).markup(" ago"),
        };
        h.markup("</time>");
    }

    /// How long since.
    pub(super) fn since(&self, h: &mut Html, at: Timestamp) {
        h.markup("<time class=\"for\" datetime=\"").text(at);
        h.markup("\">").text(between(at, self.now));
        h.markup("</time>");
    }
}

/// What remains, which gets less by itself.
pub(super) fn left(h: &mut Html, ms: u64) {
    h.markup("<time class=\"left\" data-left=\"").text(ms);
    h.markup("\">").text(span(ms)).markup("</time>");
}

/// A figure that is another one at every look: no reason to send a row again.
pub(super) fn fading(h: &mut Html, text: impl std::fmt::Display) {
    h.markup("<span class=\"fade\">").text(text);
    h.markup("</span>");
}

/// A number, with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped
}

pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "–".into(), |value| value.to_string())
}

/// A length of time that was measured, for people.
pub(super) fn measured(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => span(ms),
    }
}

/// A length of time for people, which goes on: in whole seconds.
pub(super) fn span(ms: u64) -> String {
    match ms / 1000 {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

fn between(earlier: Timestamp, later: Timestamp) -> String {
    span(millis(earlier, later))
}

/// Zero where they are not in that order.
pub(super) fn millis(earlier: Timestamp, later: Timestamp) -> u64 {
    u64::try_from(later.as_millisecond() - earlier.as_millisecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_the_zone_that_was_asked_for() {
        let at: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
        let utc = Times::new(at, Zone::utc());
        assert_eq!(utc.at(at), "2026-11-23 12:00:00 UTC");
        let rome = Times::new(at, Zone::named("Europe/Rome").unwrap());
        assert_eq!(rome.at(at), "2026-11-23 13:00:00 +01:00");
        assert!(Zone::named("Europe/Atlantis").is_none());
    }

    #[test]
    fn what_a_time_has_in_common_with_the_present_is_left_out() {
        let now: Timestamp = "2026-10-25T12:00:00Z".parse().unwrap();
        let utc = Times::new(now, Zone::utc());
        let rome = Times::new(now, Zone::named("Europe/Rome").unwrap());
        for (at, in_utc, in_rome) in [
            ("2026-10-25T11:59:59Z", "11:59:59", "12:59:59"),
            ("2026-10-25T23:30:00Z", "23:30:00", "2026-10-26 00:30:00"),
            (
                "2026-10-24T12:00:00Z",
                "2026-10-24 12:00:00",
                "2026-10-24 14:00:00 +02:00",
            ),
            // The day of now, before the clocks went back.
            (
                "2026-10-25T00:30:00Z",
                "00:30:00",
                "2026-10-25 02:30:00 +02:00",
            ),
        ] {
            let at: Timestamp = at.parse().unwrap();
            assert_eq!((&*utc.short(at), &*rome.short(at)), (in_utc, in_rome));
        }
        let said =
            "It ended at 2026-10-25T11:59:59.006Z, and (2026-10-25T11:59:58Z) is not 2026 or x.";
        assert_eq!(
            rome.told(said),
            "It ended at 12:59:59, and (12:59:58) is not 2026 or x."
        );
        let mut h = Html::default();
        utc.moment(&mut h, Some(now));
        let html = h.into_string();
        assert!(
            html.ends_with("<small title=\"2026-10-25 12:00:00 UTC\">12:00:00</small>"),
            "{html}"
        );
    }

    #[test]
    fn thousands_stand_apart() {
        for (number, said) in [(0, "0"), (999, "999"), (1_000, "1\u{202f}000")] {
            assert_eq!(grouped(number), said);
        }
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
    }

    #[test]
    fn lengths_of_time_are_told_as_people_say_them() {
        for (ms, said) in [
            (0, "0 s"),
            (9_990, "9 s"),
            (60_500, "60 s"),
            (3_600_000, "60 min"),
            (7_200_000, "2 h"),
            (172_800_000, "2 d"),
        ] {
            assert_eq!(span(ms), said);
        }
        assert_eq!(
            (measured(4), measured(1_040), measured(10_500)),
            ("4 ms".to_owned(), "1.0 s".to_owned(), "10 s".to_owned())
        );
    }
}
