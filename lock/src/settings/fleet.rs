//! What all programs of a fleet must have in common: it stands in the marker with which a node was admitted.

use std::{fmt, str::FromStr, time::Duration};

use super::{Expiry, LockSettings};
use crate::{human::Span, node::guard::closed_since};

/// The layout of our keys on a node.
const LAYOUT: u32 = 2;

/// The part of the configuration that decides whether two programs exclude each other. A node votes for the one that it
/// was admitted for, and for no other.
///
/// As text, in a marker: `2 n=3 max_ttl=30000 expiry=observed gen=1` (milliseconds).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// Version of the layout of our keys.
    pub layout: u32,
    /// Nodes configured.
    pub nodes: usize,
    /// The longest lease: how long a node is watched before it votes again.
    pub max_ttl: Duration,
    /// What ends the lease of a silent holder.
    pub expiry: Expiry,
    /// Raised whenever other nodes take the place of the present ones.
    pub generation: u32,
}

// === impl FleetConfig ===

impl FleetConfig {
    /// What these settings say.
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn of(settings: &LockSettings) -> Self {
        Self {
            layout: LAYOUT,
            nodes: settings.redis.nodes.len(),
            max_ttl: settings.max_ttl,
            expiry: settings.expiry(),
            generation: settings.redis.generation,
        }
    }

    /// How a fleet with the configuration `theirs` differs from this one, in words; `None` when it does not.
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn differs_from(&self, theirs: &str) -> Option<String> {
        if theirs == self.to_string() {
            return None;
        }
        let Ok(there) = theirs.parse::<Self>() else {
            return Some(format!("\"{theirs}\" there and \"{self}\" here"));
        };
        let mut found = Vec::new();
        let mut differ = |key: &str, there: &dyn fmt::Display, here: &dyn fmt::Display| {
            let (there, here) = (there.to_string(), here.to_string());
            if there != here {
                found.push(format!("{key} is {there} there and {here} here"));
            }
        };
        differ("the layout of keys", &there.layout, &self.layout);
        differ("the number of nodes", &there.nodes, &self.nodes);
        differ("max_ttl", &Span(there.max_ttl), &Span(self.max_ttl));
        differ("expiry", &word(there.expiry), &word(self.expiry));
        differ("redis.generation", &there.generation, &self.generation);
        Some(found.join(", "))
    }

    /// The longest lease of a marker's configuration, when it can be read.
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn max_ttl_in(marker: &str) -> Option<Duration> {
        match closed_since(marker) {
            Some(ms) => Some(Duration::from_millis(ms)),
            None => Some(marker.parse::<Self>().ok()?.max_ttl),
        }
    }
}

impl fmt::Display for FleetConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            layout,
            nodes,
            max_ttl,
            expiry,
            generation,
        } = self;
        let max_ttl = max_ttl.as_millis();
        let expiry = word(*expiry);
        write!(
            f,
            "{layout} n={nodes} max_ttl={max_ttl} expiry={expiry} gen={generation}"
        )
    }
}

impl FromStr for FleetConfig {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let layout = words.next().and_then(|word| word.parse().ok()).ok_or(())?;
        let mut of = |key: &str| {
            let word = words.next()?;
            word.strip_prefix(key)?.strip_prefix('=')
        };
        let nodes = of("n").and_then(|n| n.parse().ok()).ok_or(())?;
        let max_ttl = of("max_ttl").and_then(|ms| ms.parse().ok()).ok_or(())?;
        let expiry = match of("expiry") {
            Some("server") => Expiry::Server,
            Some("observed") => Expiry::Observed,
            _ => return Err(()),
        };
        let generation = of("gen").and_then(|g| g.parse().ok()).ok_or(())?;
        Ok(Self {
            layout,
            nodes,
            max_ttl: Duration::from_millis(max_ttl),
            expiry,
            generation,
        })
    }
}

fn word(expiry: Expiry) -> &'static str {
    match expiry {
        Expiry::Server => "server",
        Expiry::Observed => "observed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> FleetConfig {
        FleetConfig {
            layout: LAYOUT,
            nodes: 3,
            max_ttl: Duration::from_secs(30),
            expiry: Expiry::Observed,
            generation: 1,
        }
    }

    #[test]
    fn g4_a_configuration_is_written_and_read_back() {
        let text = config().to_string();
        assert_eq!(text, "2 n=3 max_ttl=30000 expiry=observed gen=1");
        assert_eq!(text.parse(), Ok(config()));
        assert_eq!(config().differs_from(&text), None);
        assert_eq!(
            FleetConfig::max_ttl_in(&text),
            Some(Duration::from_secs(30))
        );
    }

    #[test]
    fn g4_what_differs_is_named_with_both_values() {
        let theirs = FleetConfig {
            max_ttl: Duration::from_secs(5),
            expiry: Expiry::Server,
            ..config()
        };
        assert_eq!(
            config().differs_from(&theirs.to_string()).as_deref(),
            Some("max_ttl is 5s there and 30s here, expiry is server there and observed here")
        );
        let strange = config().differs_from("3 of another kind").unwrap();
        assert!(strange.contains("3 of another kind"), "{strange}");
        assert_eq!(FleetConfig::max_ttl_in("3 of another kind"), None);
    }
}
