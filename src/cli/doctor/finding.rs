//! What a search for faults finds, and how it is shown.
//!
//! Not the [`Finding`](crate::finding::Finding) of a rule about settings: it is about a node, a job or a lock as often as about a
//! key, it may say that all is well, and its fields are those of `doctor --json`. Hence the third [`Severity`], `ok`, which a
//! configuration has no use for: a rule that holds says nothing.

use serde::Serialize;

use crate::terminal::{Ink, Paint, cell, sentence};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// As it should be.
    Ok,
    /// It works, with less safety or less to spare than it could have.
    Warning,
    /// Something does not work, or is not safe.
    Error,
}

/// Something that was found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::cli) struct Finding {
    pub(super) severity: Severity,
    /// A node, a job, a lock, a configuration key, or `fleet`.
    pub(super) subject: String,
    pub(super) finding: String,
    /// Empty when all is well.
    pub(super) remedy: String,
}

// === impl Finding ===

impl Finding {
    pub(super) fn ok(subject: &str, finding: impl Into<String>) -> Self {
        Self::new(Severity::Ok, subject, finding.into(), String::new())
    }

    pub(super) fn warning(
        subject: &str,
        finding: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Warning, subject, finding.into(), remedy.into())
    }

    pub(in crate::cli) fn error(
        subject: &str,
        finding: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Error, subject, finding.into(), remedy.into())
    }

    /// What is well needs none.
    #[cfg(test)]
    pub(super) fn has_its_remedy(&self) -> bool {
        self.severity == Severity::Ok || !self.remedy.is_empty()
    }

    fn new(severity: Severity, subject: &str, finding: String, remedy: String) -> Self {
        Self {
            severity,
            subject: subject.to_owned(),
            finding,
            remedy,
        }
    }
}

pub(in crate::cli) fn show(findings: &[Finding], paint: Paint) -> String {
    let mut text = String::new();
    for found in findings {
        let (ink, word) = match found.severity {
            Severity::Ok => (Ink::Good, "ok     "),
            Severity::Warning => (Ink::Care, "warning"),
            Severity::Error => (Ink::Bad, "error  "),
        };
        text += &format!(
            "{}  {}: {}\n",
            paint.ink(ink, word),
            cell(&found.subject),
            sentence(&found.finding)
        );
        if !found.remedy.is_empty() {
            text += &format!("         -> {}\n", sentence(&found.remedy));
        }
    }
    let of = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let (errors, warnings) = (of(Severity::Error), of(Severity::Warning));
    let some = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    text += &match (errors, warnings) {
        (0, 0) => "no fault found\n".to_owned(),
        (errors, warnings) => {
            format!("{}, {}\n", some(errors, "error"), some(warnings, "warning"))
        }
    };
    text
}
