//! What an answer of a mail server means: plain decisions, without I/O.

use std::time::Duration;

use super::super::pace::Heard;
use crate::notifications::delivery::Answer;

/// How far a mail came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It could not be written.
    Letter,
    /// No connection yet, or no greeting, encryption or password.
    Connection,
    /// The sender was named.
    Sender,
    /// The recipient was named.
    Recipient,
    /// The server was asked whether the text may come.
    Permission,
    /// The text has left, or a part of it.
    Text,
}

/// A mail was not sent, or perhaps not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) stage: Stage,
    /// What the server answered, if it did.
    pub(super) code: Option<u16>,
    /// In words, without secrets.
    pub(super) why: String,
}

/// How long items wait for a setting to be put right; the server is asked as seldom.
const WRONG_SETTING: Duration = Duration::from_secs(60);

// === impl Failure ===

impl Failure {
    /// The row cannot be a mail.
    pub(super) fn unfit(why: String) -> Self {
        Self {
            stage: Stage::Letter,
            code: None,
            why,
        }
    }
}

/// What becomes of the mail, and what is to be thought of the server.
pub(super) fn judge(failure: Option<Failure>) -> (Answer, Option<Heard>) {
    let Some(Failure { stage, code, why }) = failure else {
        return (Answer::Accepted, Some(Heard::Well));
    };
    let later = |why| Answer::Later { why, after: None };
    match (stage, code) {
        (Stage::Letter, _) => (Answer::Refused { why }, None),
        (_, Some(421 | 454)) => (later(why), Some(Heard::Busy(None))),
        // It wants another password or an encryption, whatever was being said.
        (_, Some(530 | 534 | 535 | 538)) | (Stage::Connection | Stage::Sender, Some(500..)) => (
            Answer::Waits {
                why: format!("the server takes no mail from us: {why}"),
                after: WRONG_SETTING,
            },
            Some(Heard::Closed),
        ),
        (_, Some(500..)) => (Answer::Refused { why }, Some(Heard::Well)),
        (_, Some(_)) => (later(why), Some(Heard::Well)),
        (Stage::Text, None) => (Answer::Unknown { why }, Some(Heard::Silence)),
        (_, None) => (later(why), Some(Heard::Silence)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [Stage; 5] = [
        Stage::Connection,
        Stage::Sender,
        Stage::Recipient,
        Stage::Permission,
        Stage::Text,
    ];

    fn of(stage: Stage, code: Option<u16>) -> (Answer, Option<Heard>) {
        let why = String::new();
        judge(Some(Failure { stage, code, why }))
    }

    #[test]
    fn only_the_text_leaves_doubt() {
        assert_eq!(judge(None).0, Answer::Accepted);
        for stage in STAGES {
            let (answer, heard) = of(stage, None);
            let doubt = matches!(answer, Answer::Unknown { .. });
            assert_eq!(doubt, stage == Stage::Text, "{stage:?}");
            assert_eq!(heard, Some(Heard::Silence));
        }
    }

    #[test]
    fn four_hundreds_are_later_and_two_of_them_slow_down() {
        for stage in STAGES {
            for code in [421, 450, 451, 452, 454] {
                let (answer, heard) = of(stage, Some(code));
                assert!(matches!(answer, Answer::Later { .. }), "{stage:?} {code}");
                let busy = matches!(code, 421 | 454);
                assert_eq!(heard == Some(Heard::Busy(None)), busy, "{stage:?} {code}");
            }
        }
    }

    #[test]
    fn a_wrong_setting_kills_no_mail() {
        for (stage, code) in [
            (Stage::Connection, 554),
            (Stage::Connection, 535),
            (Stage::Sender, 550),
            (Stage::Recipient, 530),
        ] {
            let (answer, heard) = of(stage, Some(code));
            assert!(matches!(answer, Answer::Waits { .. }), "{stage:?} {code}");
            assert_eq!(heard, Some(Heard::Closed));
        }
        for stage in [Stage::Recipient, Stage::Permission, Stage::Text] {
            assert!(
                matches!(of(stage, Some(550)).0, Answer::Refused { .. }),
                "{stage:?}"
            );
        }
    }
}
