//! What `lock` and `elect` say themselves.

use std::fmt;

use watchkeeper::terminal;

use super::exit;

/// What we say ourselves, on standard error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Voice {
    pub(super) quiet: bool,
}

// === impl Voice ===

impl Voice {
    /// What must be known in any case.
    pub(super) fn say(self, what: &impl fmt::Display) {
        terminal::err(&format!("watchkeeper: {what}"));
    }

    /// What may be kept quiet.
    pub(super) fn mention(self, what: &impl fmt::Display) {
        if !self.quiet {
            self.say(what);
        }
    }

    pub(super) fn fail(self, why: &impl fmt::Display) -> u8 {
        self.say(why);
        exit::FAILED
    }
}
