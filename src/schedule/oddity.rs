//! What is odd about a tick near a change of the clocks, in words.

use std::fmt;

use jiff::civil::DateTime;

/// Why a tick of a cron expression is not simply at the time that is written there.
#[doc(hidden)] // for the commands
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Oddity {
    /// The clocks go forward over the time.
    Skipped {
        /// The first time that does not exist.
        time: DateTime,
        /// When the tick is instead.
        fires: DateTime,
    },
    /// The clocks go back: a fixed time comes twice, and this is the first, which alone counts.
    FirstPass {
        /// The time.
        time: DateTime,
    },
    /// The clocks go back: a repeating time comes twice, and each time counts.
    BothPasses {
        /// The time.
        time: DateTime,
    },
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped { time, fires } => {
                let (clock, date, fires) = (Clock(*time), time.date(), Clock(*fires));
                write!(f, "{clock} does not exist on {date}: fires at {fires}")
            }
            Self::FirstPass { time } => {
                let (clock, date) = (Clock(*time), time.date());
                write!(
                    f,
                    "{clock} comes twice on {date}: fires the first time only"
                )
            }
            Self::BothPasses { time } => {
                let (clock, date) = (Clock(*time), time.date());
                write!(f, "{clock} comes twice on {date}: fires both times")
            }
        }
    }
}

/// `02:30`, and seconds only where there are any.
struct Clock(DateTime);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.0;
        write!(f, "{:02}:{:02}", time.hour(), time.minute())?;
        match time.second() {
            0 => Ok(()),
            second => write!(f, ":{second:02}"),
        }
    }
}
