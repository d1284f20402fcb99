//! What came of it, and whether that is what was promised.

use serde::Serialize;

/// Beyond the ttl a takeover may take this long.
const SLACK_MS: u64 = 1_000;

/// The tally. The fields and their names are a public interface: `demo --json` ends with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    /// From the kill until another replica led; nothing when it did not come to that.
    pub(crate) takeover_ms: Option<u64>,
    pub(crate) ttl_ms: u64,
    pub(crate) notifications: u64,
    /// Taken by the receiver.
    pub(crate) accepted: u64,
    /// Taken by the receiver although it had them. Must be zero.
    pub(crate) accepted_twice: u64,
    /// Never arrived. Must be zero.
    pub(crate) lost: u64,
    /// Sent again after the kill, and recognised by their key.
    pub(crate) repeats_recognised: u64,
    pub(crate) ticks_fired: u64,
    pub(crate) ticks_repeated: u64,
    pub(crate) ticks_missed: u64,
    /// Items listed in doubt: the most that may be repeated.
    #[serde(skip)]
    pub(crate) doubted: u64,
    /// Rows without `sent_at`.
    #[serde(skip)]
    pub(crate) unsent: u64,
    /// Attempts of a tick that were started twice. Must be zero.
    #[serde(skip)]
    pub(crate) doubled: u64,
    /// Which ticks were missed, and why.
    #[serde(skip)]
    pub(crate) missed: Vec<String>,
    /// What else went wrong.
    #[serde(skip)]
    pub(crate) mishaps: Vec<String>,
}

impl Summary {
    /// Everything that is not as promised, a sentence each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let limit = self.ttl_ms + SLACK_MS;
        let takeover = match self.takeover_ms {
            None => Some("no replica was seen to take over".to_owned()),
            Some(took) if took <= limit => None,
            Some(took) => Some(format!("the takeover took {took} ms, {limit} are promised")),
        };
        let (repeats, doubted) = (self.repeats_recognised, self.doubted);
        let unlisted =
            format!("notifications were repeated, but only {doubted} were listed in doubt");
        let counts = [
            (self.lost, 0, "notifications never arrived"),
            (self.unsent, 0, "rows are not marked as sent"),
            (self.accepted_twice, 0, "notifications were accepted twice"),
            (repeats, doubted, unlisted.as_str()),
            (self.doubled, 0, "runs were started twice in one attempt"),
        ];
        let counts = counts.iter().filter(|(count, most, _)| count > most);
        let counts = counts.map(|(count, _, what)| format!("{count} {what}"));
        let mishaps = self.mishaps.iter().cloned();
        mishaps.chain(takeover).chain(counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Summary {
        Summary {
            takeover_ms: Some(2_100),
            ttl_ms: 2_000,
            notifications: 10,
            accepted: 10,
            repeats_recognised: 3,
            doubted: 4,
            ticks_fired: 9,
            ticks_repeated: 1,
            ..Summary::default()
        }
    }

    #[test]
    fn a_kept_promise_has_no_problems() {
        assert_eq!(good().problems(), Vec::<String>::new());
    }

    #[test]
    fn every_broken_promise_is_a_problem() {
        let broken: [fn(&mut Summary); 8] = [
            |s| s.takeover_ms = None,
            |s| s.takeover_ms = Some(3_001),
            |s| s.lost = 1,
            |s| s.unsent = 1,
            |s| s.accepted_twice = 1,
            |s| s.repeats_recognised = 5,
            |s| s.doubled = 1,
            |s| s.mishaps.push("replica-1 did not end".to_owned()),
        ];
        for spoil in broken {
            let mut summary = good();
            spoil(&mut summary);
            assert_eq!(summary.problems().len(), 1, "{summary:?}");
        }
    }

    #[test]
    fn the_line_of_json_has_exactly_the_promised_names() {
        let line = serde_json::to_string(&good()).unwrap();
        let names: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        let promised = [
            "takeover_ms",
            "ttl_ms",
            "notifications",
            "accepted",
            "accepted_twice",
            "lost",
            "repeats_recognised",
            "ticks_fired",
            "ticks_repeated",
            "ticks_missed",
        ];
        assert_eq!(names, promised);
    }
}
