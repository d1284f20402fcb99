//! Whether text is coloured, and how.
//!
//! `--color` has the first word, then the environment: `NO_COLOR` takes colours away, `CLICOLOR_FORCE` gives them to a file or a
//! pipe, too. Without any of these a terminal has colours, unless `CLICOLOR=0` or `TERM=dumb` says that it has none.
//!
//! # Invariants
//! - S5 Colours change no word: without them a text is the same.   (colours_change_no_word)

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal},
    sync::atomic::{AtomicU8, Ordering},
};

/// When text is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum When {
    /// On a terminal, unless the environment says otherwise
    #[default]
    Auto,
    /// Everywhere
    Always,
    /// Nowhere
    Never,
}

/// How a word is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ink {
    /// As any other.
    #[default]
    Plain,
    /// A heading.
    Strong,
    /// As it should be.
    Good,
    /// Worth a look.
    Care,
    /// Not as it should be.
    Bad,
}

/// Colours, or none: decided once for a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paint(bool);

/// What ends every colour.
pub(super) const RESET: &str = "\u{1b}[0m";

/// What the command line says, for all of this process.
static SAID: AtomicU8 = AtomicU8::new(When::Auto as u8);

/// What there is to know of the other end and of the environment.
#[derive(Clone, Copy, Debug, Default)]
struct Surroundings {
    terminal: bool,
    /// `NO_COLOR`
    unwanted: bool,
    /// `CLICOLOR_FORCE`
    forced: bool,
    /// `CLICOLOR=0`
    off: bool,
    /// `TERM=dumb`, or none.
    dumb: bool,
}

/// Colours for this process from now on, as its command line says it.
pub fn prefer(when: When) {
    SAID.store(when as u8, Ordering::Relaxed);
}

/// Whether the terminal obeys nothing, colours and cursor alike.
pub(super) fn is_dumb() -> bool {
    Surroundings::read(true, |name| env::var_os(name)).dumb
}

fn preferred() -> When {
    let said = SAID.load(Ordering::Relaxed);
    let all = [When::Auto, When::Always, When::Never];
    let found = all.into_iter().find(|when| *when as u8 == said);
    found.unwrap_or_default()
}

fn decided(when: When, around: Surroundings) -> bool {
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto if around.unwanted => false,
        When::Auto if around.forced => true,
        When::Auto => around.terminal && !around.off && !around.dumb,
    }
}

// === impl Surroundings ===

impl Surroundings {
    fn read(terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let is = |name: &str, wanted: &str| variable(name).is_some_and(|value| value == wanted);
        let set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        Self {
            terminal,
            unwanted: set("NO_COLOR"),
            forced: set("CLICOLOR_FORCE") && !is("CLICOLOR_FORCE", "0"),
            off: is("CLICOLOR", "0"),
            dumb: !set("TERM") || is("TERM", "dumb"),
        }
    }
}

// === impl Ink ===

impl Ink {
    /// The number by which terminals know it; none for what is not coloured.
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Strong => Some("1"),
            Self::Good => Some("32"),
            Self::Care => Some("33"),
            Self::Bad => Some("31"),
        }
    }
}

// === impl Paint ===

impl Paint {
    /// No colours.
    pub const PLAIN: Self = Self(false);
    /// Colours.
    pub const COLOURED: Self = Self(true);

    /// As standard output has it.
    #[must_use]
    pub fn of_output() -> Self {
        Self::of(io::stdout().is_terminal())
    }

    /// As standard error has it.
    #[must_use]
    pub fn of_errors() -> Self {
        Self::of(io::stderr().is_terminal())
    }

    fn of(terminal: bool) -> Self {
        let around = Surroundings::read(terminal, |name| env::var_os(name));
        Self(decided(preferred(), around))
    }

    /// Whether there are colours.
    #[must_use]
    pub fn is_coloured(self) -> bool {
        self.0
    }

    /// `text` in this ink. What others wrote in it was escaped before: a colour of theirs would pass as ours.
    #[must_use]
    pub fn ink(self, ink: Ink, text: &str) -> String {
        match ink.code() {
            Some(code) if self.0 && !text.is_empty() => format!("\u{1b}[{code}m{text}{RESET}"),
            _ => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(terminal: bool, variables: &[(&str, &str)]) -> Surroundings {
        Surroundings::read(terminal, |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn a_terminal_has_colours_unless_it_or_its_user_says_otherwise() {
        const XTERM: (&str, &str) = ("TERM", "xterm");
        for (terminal, variables, expected) in [
            (true, &[XTERM][..], true),
            (false, &[XTERM], false),
            (true, &[("TERM", "dumb")], false),
            (true, &[], false),
            (true, &[XTERM, ("NO_COLOR", "1")], false),
            (true, &[XTERM, ("NO_COLOR", "")], true),
            (true, &[XTERM, ("CLICOLOR", "0")], false),
            (true, &[XTERM, ("CLICOLOR", "1")], true),
            (false, &[("CLICOLOR_FORCE", "1")], true),
            (false, &[("CLICOLOR_FORCE", "0")], false),
            (
                true,
                &[XTERM, ("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")],
                false,
            ),
        ] {
            let around = around(terminal, variables);
            assert_eq!(decided(When::Auto, around), expected, "{variables:?}");
            assert!(decided(When::Always, around), "{variables:?}");
            assert!(!decided(When::Never, around), "{variables:?}");
        }
    }

    #[test]
    fn colours_change_no_word() {
        for ink in [Ink::Plain, Ink::Strong, Ink::Good, Ink::Care, Ink::Bad] {
            assert_eq!(Paint::PLAIN.ink(ink, "done"), "done");
            let coloured = Paint::COLOURED.ink(ink, "done");
            assert!(coloured.contains("done"), "{coloured:?}");
            assert_eq!(Paint::COLOURED.ink(ink, ""), "");
        }
        assert_eq!(Paint::COLOURED.ink(Ink::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
    }
}
