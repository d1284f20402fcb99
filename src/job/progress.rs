//! How far a run is, as every surface shows it.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How far a run is, as it last said, and how it goes on from there.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunProgress {
    /// Items done; `null` when the job tells none.
    pub done: Option<u64>,
    /// Items in all; `null` when that is not known.
    pub total: Option<u64>,
    /// Items per second in the recent past; `null` before there is anything to measure.
    pub per_second: Option<Rate>,
    /// Time until all are done, at this pace; `null` where that would be a guess.
    pub left_ms: Option<u64>,
    /// What it is at, in the job's words.
    pub message: Option<String>,
}

/// A number per second, to the thousandth; a plain number in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Rate(u64);

// === impl Rate ===

impl Rate {
    /// So many per second; zero for what is no number, or less than none.
    #[doc(hidden)] // for the stock jobs
    #[must_use]
    pub fn new(per_second: f64) -> Self {
        // The conversion stops at the ends of the range.
        Self((per_second * 1000.0).round() as u64)
    }

    /// As a number per second.
    #[must_use]
    pub fn per_second(self) -> f64 {
        self.0 as f64 / 1000.0
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.per_second())
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        f64::deserialize(from).map(Self::new)
    }
}

/// For people: fast ones by the second, slow ones by the minute or the hour.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match self.0 {
            1000.. => (self.per_second(), "s"),
            17.. => (self.per_second() * 60.0, "min"),
            _ => (self.per_second() * 3600.0, "h"),
        };
        match number {
            10.0.. => write!(f, "{number:.0}/{unit}"),
            _ => write!(f, "{number:.1}/{unit}"),
        }
    }
}

// === impl RunProgress ===

impl RunProgress {
    /// Whether the run has told nothing.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How fast it goes and how long it will take, for people; empty when neither is known.
    #[must_use]
    pub(crate) fn pace(&self) -> String {
        let rate = self.per_second.map(|rate| rate.to_string());
        let left = self.left_ms.filter(|left| *left > 0);
        let left = left.map(|ms| {
            // Seconds say nothing of what takes hours.
            let secs = match ms.div_ceil(1000) {
                secs @ ..3600 => secs,
                secs => secs.div_ceil(60) * 60,
            };
            let left = humantime::format_duration(Duration::from_secs(secs));
            format!("about {left} left")
        });
        let said: Vec<String> = rate.into_iter().chain(left).collect();
        said.join(", ")
    }
}

/// One line: `120 of 400 (30 %), 2.5/s, about 1m 52s left: copying`.
impl fmt::Display for RunProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = match (self.done, self.total) {
            (Some(done), Some(total)) if total > 0 => {
                let share = u128::from(done.min(total)) * 100 / u128::from(total);
                Some(format!("{done} of {total} ({share} %)"))
            }
            (Some(done), Some(total)) => Some(format!("{done} of {total}")),
            (Some(done), None) => Some(format!("{done} done")),
            (None, _) => None,
        };
        let pace = Some(self.pace()).filter(|pace| !pace.is_empty());
        let numbers: Vec<String> = counted.into_iter().chain(pace).collect();
        f.write_str(&numbers.join(", "))?;
        match (&self.message, numbers.is_empty()) {
            (Some(message), true) => f.write_str(message),
            (Some(message), false) => write!(f, ": {message}"),
            (None, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halfway() -> RunProgress {
        RunProgress {
            done: Some(120),
            total: Some(400),
            per_second: Some(Rate::new(2.5)),
            left_ms: Some(111_900),
            message: Some("copying".to_owned()),
        }
    }

    #[test]
    fn progress_is_one_line_for_people() {
        assert_eq!(
            halfway().to_string(),
            "120 of 400 (30 %), 2.5/s, about 1m 52s left: copying"
        );
        let unknown = RunProgress {
            total: None,
            left_ms: None,
            message: None,
            ..halfway()
        };
        assert_eq!(unknown.to_string(), "120 done, 2.5/s");
        let words = RunProgress {
            message: Some("waiting".to_owned()),
            ..RunProgress::default()
        };
        assert_eq!(words.to_string(), "waiting");
        assert_eq!(RunProgress::default().to_string(), "");
        let odd = RunProgress {
            done: Some(3),
            total: Some(0),
            ..RunProgress::default()
        };
        assert_eq!(odd.to_string(), "3 of 0");
        let slow = RunProgress {
            left_ms: Some(7_199_000),
            per_second: Some(Rate::new(0.005)),
            ..RunProgress::default()
        };
        assert_eq!(slow.pace(), "18/h, about 2h left");
    }

    #[test]
    fn a_rate_is_a_number_in_json() {
        let json = serde_json::to_value(halfway()).unwrap();
        assert_eq!(json["per_second"], 2.5);
        assert_eq!(
            serde_json::from_value::<RunProgress>(json).unwrap(),
            halfway()
        );
        assert_eq!(Rate::new(f64::NAN), Rate::default());
        assert_eq!(Rate::new(-1.0), Rate::default());
    }
}
