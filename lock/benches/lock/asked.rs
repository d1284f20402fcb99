//! What clients have asked of servers, as the servers count it.

use crate::server::RedisServer;

/// What clients have asked of some servers, and what it cost them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    /// Calls of scripts by clients; what scripts call themselves is not among them.
    pub(crate) scripts: u64,
    /// Processor time in those scripts, in microseconds.
    pub(crate) script_us: u64,
}

impl Asked {
    /// What was asked so far, of all these servers together.
    pub(crate) fn of(servers: &[RedisServer]) -> Self {
        let mut all = Self::default();
        for server in servers {
            let stats = server.raw(&["INFO", "commandstats"]);
            for line in stats.lines() {
                let script = ["cmdstat_evalsha:", "cmdstat_eval:"]
                    .iter()
                    .find_map(|name| line.strip_prefix(name));
                let Some(fields) = script else { continue };
                let field = |name: &str| {
                    let found = fields.split(',').find_map(|f| f.strip_prefix(name));
                    found.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
                };
                all.scripts += field("calls=");
                all.script_us += field("usec=");
            }
        }
        all
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            scripts: self.scripts - before.scripts,
            script_us: self.script_us - before.script_us,
        }
    }

    /// Microseconds of a server's time in one call.
    #[allow(dead_code, reason = "not every bench asks")]
    pub(crate) fn us_per_call(self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let (us, calls) = (self.script_us as f64, self.scripts as f64);
        us / calls.max(1.0)
    }
}
