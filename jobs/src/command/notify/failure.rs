//! Why a command did not do what it was asked for.

use crate::notifications::source::SourceError;
use watchkeeper::Error;

/// Why a command did not do what it was asked for.
pub(super) enum Failure {
    /// The command line or the configuration, in a sentence; nothing was changed.
    Usage(String),
    /// Something else, in a sentence.
    Failed(String),
    /// It was said already.
    Told,
}

// === impl Failure ===

impl Failure {
    pub(super) fn text(self) -> String {
        match self {
            Self::Usage(why) | Self::Failed(why) => why,
            Self::Told => String::new(),
        }
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        Self::Failed(format!("{error}{}", cause.unwrap_or_default()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Config(problems) => Self::Usage(format!("{problems}\nnothing was done")),
            other => Self::Failed(other.to_string()),
        }
    }
}
