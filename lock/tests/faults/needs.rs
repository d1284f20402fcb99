//! What a case needs of the machine. Where it is missing the case is ignored, with the reason beside its name;
//! `WATCHKEEPER_REQUIRE` (a list of words) makes that a failure.

use libtest_mimic::Trial;

#[cfg(feature = "sqlite")]
use crate::mounts;
use crate::{interop, server, shim};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// redis-server.
    Redis,
    /// A C compiler, for the clocks of servers.
    Clocks,
    /// The right to mount, in a namespace of one's own.
    #[cfg(feature = "sqlite")]
    Mounts,
    /// The right to give processes a clock of their own.
    #[cfg(feature = "sqlite")]
    Times,
    /// node, with redlock and ioredis.
    Node,
    /// python3, with redis and pottery.
    Python,
    /// rslock, built.
    Rust,
}

// === impl Need ===

impl Need {
    /// Why it is missing, with the remedy.
    fn missing(self) -> Option<String> {
        match self {
            Self::Redis => server::binary()
                .is_none()
                .then(|| server::REMEDY.to_owned()),
            Self::Clocks => shim::shim().err().map(str::to_owned),
            #[cfg(feature = "sqlite")]
            Self::Mounts => mounts::missing("--mount"),
            #[cfg(feature = "sqlite")]
            Self::Times => mounts::missing("--time"),
            Self::Node => interop::foreign::node().err().map(str::to_owned),
            Self::Python => interop::foreign::python().err().map(str::to_owned),
            Self::Rust => interop::foreign::rust().err().map(str::to_owned),
        }
    }

    /// Its word in `WATCHKEEPER_REQUIRE`.
    fn word(self) -> &'static str {
        match self {
            // A run that requires the servers wants all that is shown with them.
            Self::Redis | Self::Clocks => "redis",
            #[cfg(feature = "sqlite")]
            Self::Mounts | Self::Times => "mounts",
            Self::Node => "node",
            Self::Python => "python",
            Self::Rust => "rust",
        }
    }

    fn required(self) -> bool {
        std::env::var("WATCHKEEPER_REQUIRE")
            .is_ok_and(|list| list.split(',').any(|word| word.trim() == self.word()))
    }
}

/// One case for libtest-mimic: a panic is its failure.
pub(crate) fn trial(name: &str, needs: &[Need], case: impl FnOnce() + Send + 'static) -> Trial {
    let missing = needs.iter().find_map(|need| Some((need, need.missing()?)));
    let Some((need, why)) = missing else {
        return Trial::test(name, move || {
            case();
            Ok(())
        });
    };
    if need.required() {
        let why = format!("{why} (WATCHKEEPER_REQUIRE names {})", need.word());
        return Trial::test(name, || Err(why.into()));
    }
    // Also with `--ignored`, which runs it all the same, it must never count as passed.
    Trial::test(format!("{name} [{why}]"), || Err(why.into())).with_ignored_flag(true)
}
