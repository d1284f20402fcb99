//! What all programs of a fleet must have in common: it stands in the marker with which a node was admitted.

use std::{fmt, str::FromStr, time::Duration};

use super::{Backend, Expiry, LockSettings, RestartGuard, Timing};
use crate::{
    human::Span,
    node::{
        Admission, LAYOUT_OF_KEYS,
        guard::{FAILOVER, LATE, closed_by, closed_since},
    },
};

/// The layout of our keys on a node.
const LAYOUT: u32 = 2;

/// The part of the configuration that decides whether two programs exclude each other. A node votes for the one that it
/// was admitted for, and for no other.
///
/// As text, in a marker: `2 n=3 max_ttl=30000 expiry=observed gen=1 guard=call raw_keys=false drift=10000` (milliseconds, and
/// millionths).
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
    /// Whether a server that lost its memory is kept from voting: what a program without the guard has written is of no
    /// incarnation, and nothing to one with it.
    pub guard: RestartGuard,
    /// Whether leases show in plain keys: a program without them does not see those of foreign clients.
    pub raw_keys: bool,
    /// How far clocks may run apart, in millionths: how much longer than a lease its successor waits.
    pub drift_ppm: u32,
    /// Whether others take the place of its server, by Sentinel or in a Cluster: then the new one is watched for longer.
    #[doc(hidden)] // follows from the address
    pub failover: bool,
}

// === impl FleetConfig ===

impl FleetConfig {
    /// What these settings say.
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn of(settings: &LockSettings) -> Self {
        Self {
            layout: LAYOUT,
            nodes: match settings.backend {
                Backend::Redis => settings.redis.nodes.len(),
                Backend::Postgres | Backend::Etcd | Backend::Embedded | Backend::Memory => 1,
            },
            max_ttl: settings.max_ttl,
            expiry: settings.expiry(),
            generation: settings.redis.generation,
            guard: settings.restart_guard,
            raw_keys: settings.raw_keys,
            drift_ppm: ppm(settings.drift),
            failover: settings.fails_over(),
        }
    }

    /// For how long a node is watched before it votes again: until nothing that another life of it has granted can be held.
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn watched(&self) -> Duration {
        match self.failover {
            true => self.max_ttl.saturating_add(LATE),
            false => self.max_ttl,
        }
    }

    /// That of a program which names none: whatever it shares a node with must have the same times, and no guard.
    pub(crate) fn unguarded(nodes: usize, timing: &Timing, expiry: Expiry, raw_keys: bool) -> Self {
        Self {
            layout: LAYOUT,
            nodes,
            max_ttl: timing.max_ttl,
            expiry,
            generation: 1,
            guard: RestartGuard::Off,
            raw_keys,
            drift_ppm: ppm(timing.drift),
            failover: false,
        }
    }

    /// Whether its nodes are watched before they vote.
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.guard != RestartGuard::Off
    }

    /// The configuration of the other fleet that such a marker names, or that has closed the node for itself.
    pub(crate) fn other<'a>(&self, marker: &'a str) -> Option<&'a str> {
        let theirs = match closed_since(marker) {
            Some(_) => closed_by(marker)?,
            None => marker,
        };
        (theirs != self.to_string()).then_some(theirs)
    }

    /// The configuration of the other fleet that this node keeps locks for, if there is one. A marker of a life that is lost names
    /// none any more, unless one of both has no guard: then no program waits for what was forgotten.
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn stranger<'a>(&self, shown: &'a Admission) -> Option<&'a str> {
        let marker = shown.config.as_deref()?;
        let theirs = self.other(marker)?;
        // It keeps no locks: what another fleet has closed for itself is taken from it when nothing comes of that.
        let is_open = theirs == marker;
        // A server that was promoted is of another life for those that it was promoted by, too: who goes around them is none of them.
        let unlike = |text: &str| {
            text.parse::<Self>()
                .is_ok_and(|theirs| !theirs.is_guarded() || theirs.failover != self.failover)
        };
        let stands = is_open && shown.admitted || !self.is_guarded() || unlike(theirs);
        stands.then_some(theirs)
    }

    /// The configuration of the other fleet that has closed this node for itself, if one has.
    pub(crate) fn closed_by_other<'a>(&self, shown: &'a Admission) -> Option<&'a str> {
        let theirs = closed_by(shown.config.as_deref()?)?;
        (theirs != self.to_string()).then_some(theirs)
    }

    /// Whether this fleet has closed the node, to be founded anew.
    pub(crate) fn has_closed(&self, shown: &Admission) -> bool {
        let by = shown.config.as_deref().and_then(closed_by);
        by.is_some_and(|by| by == self.to_string())
    }

    /// The configuration of the other fleet that is about to admit this node, if one is.
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn rival<'a>(&self, shown: &'a Admission) -> Option<&'a str> {
        let theirs = shown.nominated_for.as_deref()?;
        let closed = shown.config.as_deref().and_then(closed_since).is_some();
        let open = !shown.admitted || closed;
        (open && theirs != self.to_string()).then_some(theirs)
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
        differ(LAYOUT_OF_KEYS, &there.layout, &self.layout);
        differ("the number of nodes", &there.nodes, &self.nodes);
        differ("max_ttl", &Span(there.max_ttl), &Span(self.max_ttl));
        differ("expiry", &word(there.expiry), &word(self.expiry));
        differ("redis.generation", &there.generation, &self.generation);
        differ("restart_guard", &mode(there.guard), &mode(self.guard));
        differ("raw_keys", &there.raw_keys, &self.raw_keys);
        differ("drift", &share(there.drift_ppm), &share(self.drift_ppm));
        differ(
            "Sentinel or Cluster in redis.nodes",
            &there.failover,
            &self.failover,
        );
        Some(found.join(", "))
    }

    /// For how long what a marker's configuration has granted may be held, when it can be read.
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn max_ttl_in(marker: &str) -> Option<Duration> {
        match closed_since(marker) {
            Some(ms) => Some(Duration::from_millis(ms)),
            None => Some(marker.parse::<Self>().ok()?.watched()),
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
            guard,
            raw_keys,
            drift_ppm,
            failover,
        } = self;
        let max_ttl = max_ttl.as_millis();
        let (expiry, guard) = (word(*expiry), mode(*guard));
        write!(
            f,
            "{layout} n={nodes} max_ttl={max_ttl} expiry={expiry} gen={generation} guard={guard} raw_keys={raw_keys} \
             drift={drift_ppm}{}",
            if *failover { FAILOVER } else { "" }
        )
    }
}

impl FromStr for FleetConfig {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (text, failover) = match text.strip_suffix(FAILOVER) {
            Some(text) => (text, true),
            None => (text, false),
        };
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
        let guard = match of("guard") {
            Some("off") => RestartGuard::Off,
            Some("connection") => RestartGuard::Connection,
            Some("call") => RestartGuard::Call,
            _ => return Err(()),
        };
        let raw_keys = of("raw_keys").and_then(|raw| raw.parse().ok()).ok_or(())?;
        let drift_ppm = of("drift").and_then(|ppm| ppm.parse().ok()).ok_or(())?;
        // What a later version says is not read by halves.
        if words.next().is_some() {
            return Err(());
        }
        Ok(Self {
            layout,
            nodes,
            max_ttl: Duration::from_millis(max_ttl),
            expiry,
            generation,
            guard,
            raw_keys,
            drift_ppm,
            failover,
        })
    }
}

/// A share in millionths.
fn ppm(share: f64) -> u32 {
    // Checked to lie from 0 to 0.5; what does not is cut.
    (share * 1e6).round() as u32
}

fn share(ppm: u32) -> f64 {
    f64::from(ppm) / 1e6
}

fn mode(guard: RestartGuard) -> &'static str {
    match guard {
        RestartGuard::Off => "off",
        RestartGuard::Connection => "connection",
        RestartGuard::Call => "call",
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
            guard: RestartGuard::Call,
            raw_keys: false,
            drift_ppm: 10_000,
            failover: false,
        }
    }

    #[test]
    fn g4_a_configuration_is_written_and_read_back() {
        let text = config().to_string();
        let written =
            "2 n=3 max_ttl=30000 expiry=observed gen=1 guard=call raw_keys=false drift=10000";
        assert_eq!(text, written);
        assert_eq!(text.parse(), Ok(config()));
        assert_eq!(config().differs_from(&text), None);
        assert_eq!(
            FleetConfig::max_ttl_in(&text),
            Some(Duration::from_secs(30))
        );
    }

    /// Who goes to the master itself would trust a promoted server too early, and ask an old one for too long.
    #[test]
    fn g4_who_goes_around_sentinel_is_of_another_fleet() {
        let through = FleetConfig {
            failover: true,
            ..config()
        };
        let text = through.to_string();
        assert!(text.ends_with(" drift=10000 failover"), "{text}");
        assert_eq!(text.parse(), Ok(through));
        let differs = config().differs_from(&text).unwrap();
        assert_eq!(
            differs,
            "Sentinel or Cluster in redis.nodes is true there and false here"
        );
        let watched = Some(through.max_ttl + LATE);
        assert_eq!(FleetConfig::max_ttl_in(&text), watched);
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
        let theirs = FleetConfig {
            guard: RestartGuard::Off,
            raw_keys: true,
            drift_ppm: ppm(0.02),
            ..config()
        };
        assert_eq!(
            config().differs_from(&theirs.to_string()).as_deref(),
            Some(
                "restart_guard is off there and call here, raw_keys is true there and false here, drift is 0.02 there and \
                 0.01 here"
            )
        );
        // A later version says more, or says it otherwise: it is another fleet's, and shown as it stands.
        let more = format!("{} more=1", config());
        assert_eq!(more.parse::<FleetConfig>(), Err(()));
        let both = format!("\"{more}\" there and \"{}\" here", config());
        assert_eq!(config().differs_from(&more), Some(both));
        let strange = config().differs_from("3 of another kind").unwrap();
        assert!(strange.contains("3 of another kind"), "{strange}");
        assert_eq!(FleetConfig::max_ttl_in("3 of another kind"), None);
    }
}
