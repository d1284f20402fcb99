//! Where the lock lives: flags first, then the configuration, but never a place that is not named anywhere.

use std::time::Duration;

use rustix::event::poll;
use watchkeeper::{
    Error, Locks,
    chance::Chance,
    cli::Global,
    clock::Clock,
    config::{
        Backend, Config, Flag, LoadOptions, Loaded, LogFormat, Source, TelemetrySettings,
        load_without_jobs,
    },
    event::Events,
    fleet::status::replica_id,
    human::duration,
    lease::LeaseView,
    lock::keeper::for_last_words,
    telemetry::{
        log::{self, Flush},
        traces::{Origin, Traces},
    },
    terminal,
    worker::store,
};

use super::{args::Common, exit, trouble, voice::Voice};
use crate::guard::timespec;

/// Releases that are still on their way are waited for at most this long; after it their leases expire.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Between two tries of a file that another process keeps locked. Each takes most of a second.
const AGAIN: Duration = Duration::from_millis(50);

/// A process that was frozen beyond its lease hears so late at most that its command has ended. The guard has ended it in time, or, if it
/// was frozen as well, is killed with all that it has by its watch: neither waits for us.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// Between two looks for that.
const LOOK: Duration = Duration::from_millis(5);

/// A configuration that says where the lock lives.
pub(super) struct Settings {
    config: Config,
    format: LogFormat,
}

/// The lock service of this process.
pub(super) struct Open {
    pub(super) locks: Locks,
    /// Of this process alone: the values of its locks end with it.
    pub(super) nonce: String,
    /// The key in the store's own terms.
    pub(super) raw: bool,
    /// Where its traces are sent, if they are.
    pub(super) traces: Option<Traces>,
}

/// Reads what flags and configuration say. The jobs in a file are of no interest here.
pub(super) fn settings(global: &Global, common: &Common) -> Result<Settings, String> {
    let mut options = LoadOptions::from_process();
    options.file.clone_from(&global.config);
    let loaded = load(options, common)?;
    place_is_named(&loaded)?;
    let config = loaded.config;
    if common.raw {
        raw_makes_sense(&config, &common.key)?;
    }
    // JSON on standard error is for the logs of services; a user who wants it here says so.
    let format = match config.telemetry.format {
        LogFormat::Json => LogFormat::Json,
        LogFormat::Auto | LogFormat::Text => LogFormat::Text,
    };
    Ok(Settings { config, format })
}

fn load(mut options: LoadOptions, common: &Common) -> Result<Loaded, String> {
    options.flags = flags(common);
    let longer = |limit: Duration| {
        let ttl = common.ttl.as_deref();
        ttl.is_some_and(|ttl| duration::parse(ttl).is_ok_and(|ttl| ttl > limit))
    };
    // A ttl beyond the default limit raises the limit.
    if longer(Config::default().locks.max_ttl) {
        let mut without = options.clone();
        without.flags.retain(|flag| flag.key != "locks.ttl");
        let free = load_without_jobs(&without)
            .is_ok_and(|loaded| loaded.provenance.of("locks.max_ttl") == Source::Default);
        if let Some(ttl) = common.ttl.as_ref().filter(|_| free) {
            options.flags.push(flag("--ttl", "locks.max_ttl", ttl));
        }
    }
    load_without_jobs(&options).map_err(|problems| {
        let lines = problems.iter();
        let lines = lines.map(|problem| terminal::sentence(&problem.to_string()));
        lines.collect::<Vec<_>>().join("\nwatchkeeper: ")
    })
}

fn flags(common: &Common) -> Vec<Flag> {
    let mut flags = common.place.flags();
    if common.raw {
        flags.push(flag("--raw", "locks.raw_keys", "true"));
    }
    if let Some(ttl) = &common.ttl {
        flags.push(flag("--ttl", "locks.ttl", ttl));
    }
    flags
}

fn flag(name: &str, key: &str, value: &str) -> Flag {
    Flag {
        name: name.to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

/// Refuses the store that each process would have in its own directory: it would exclude no other.
fn place_is_named(loaded: &Loaded) -> Result<(), String> {
    let said = |key: &str| loaded.provenance.of(key) != Source::Default;
    match loaded.config.locks.backend {
        Backend::Redis | Backend::Postgres | Backend::Etcd => Ok(()),
        Backend::Embedded if said("locks.backend") || said("locks.embedded.path") => Ok(()),
        Backend::Memory if said("locks.backend") => Err(
            "the backend \"memory\" belongs to each process alone, so a lock in it excludes no other process; \
             use --nodes, --postgres, --etcd or --embedded"
                .to_owned(),
        ),
        Backend::Embedded | Backend::Memory => Err(
            "nothing says where the lock lives; name Redis masters with --nodes URL,…, a database with --postgres URL, \
             a cluster with --etcd URL, a file of this machine with --embedded PATH, or a configuration with --config FILE \
             (also WATCHKEEPER_CONFIG and WATCHKEEPER_LOCKS__…)"
                .to_owned(),
        ),
    }
}

fn raw_makes_sense(config: &Config, key: &str) -> Result<(), String> {
    match config.locks.backend {
        Backend::Redis => {}
        Backend::Embedded | Backend::Memory | Backend::Postgres | Backend::Etcd => {
            return Err("--raw shares a lock with other Redlock clients on Redis; \
                        other stores have no such clients, so leave it out"
                .to_owned());
        }
    }
    let ours = format!("{{{}}}:", config.worker.namespace);
    if key.starts_with(&ours) {
        return Err(format!(
            "--raw: keys that begin with {ours} hold what belongs to the locks; use another"
        ));
    }
    Ok(())
}

// === impl Settings ===

impl Settings {
    /// Sends log lines to standard error.
    pub(super) fn log(&self, common: &Common) -> Result<Flush, String> {
        let level = common.log.clone();
        let quiet = if common.quiet { "error" } else { "warn" };
        let lines = level.unwrap_or_else(|| quiet.to_owned());
        let settings = TelemetrySettings::log(lines).format(self.format);
        log::init(&settings).map_err(|error| format!("--log: {error}"))
    }

    /// Opens the store. Servers are reached when they are needed; a file that another process keeps locked is waited
    /// for, as long as for the lock. Cancel-safe.
    pub(super) async fn open(self, common: &Common, voice: Voice) -> Result<Open, String> {
        let clock = Clock::system();
        let events = Events::default();
        trouble::follow(&events, &clock, common.log.is_some());
        let Config {
            locks,
            worker,
            telemetry,
            ..
        } = &self.config;
        let chance = Chance::system();
        let nonce: String = chance.id().chars().take(8).collect();
        let traces = traces(telemetry, &worker.namespace, &nonce);
        let given = clock.now() + common.wait.unwrap_or(Duration::MAX);
        let mut said = false;
        let opened = loop {
            match store::open_aside(locks, &worker.namespace, &clock, common.grace).await {
                Err(error @ Error::StoreLocked { .. }) if clock.now() < given => {
                    if !said {
                        voice.mention(&format_args!("waiting for the store: {error}"));
                    }
                    said = true;
                    clock.sleep(AGAIN).await;
                }
                opened => break opened.map_err(|error| error.to_string())?,
            }
        };
        let locks = opened
            .chance(chance)
            .tag(&nonce)
            .events(events.of_locks())
            .on_unstoppable(move |lease| {
                if ends_yet(lease, LAST_MOMENT) {
                    return;
                }
                // Not as all else is said: a reader that stands still must not keep this process beyond its lease.
                let what = format!(
                    "watchkeeper: the lease of {} is over and the command not known to have ended: giving up, its guard ends it",
                    lease.key()
                );
                log::say_at_last(&what, for_last_words(lease));
                std::process::exit(exit::FAILED.into());
            })
            .start()
            .map_err(|error| format!("the lock service cannot be started: {error}"))?;
        Ok(Open {
            locks,
            nonce,
            raw: common.raw,
            traces,
        })
    }
}

// === impl Open ===

impl Open {
    /// The lock behind `key` of one of the families `lock` and `elect`.
    pub(super) fn key(&self, family: &str, key: &str) -> String {
        if self.raw {
            key.to_owned()
        } else {
            format!("{family}/{key}")
        }
    }

    /// Waits until whatever was handed back is released, and then until what was told of it is sent.
    pub(super) async fn settle(self) {
        let clock = self.locks.clock();
        let _ = clock.timeout(LAST_WORDS, self.locks.settle()).await;
        if let Some(traces) = self.traces {
            traces.finish(clock).await;
        }
    }
}

/// Whether the work under a lease that is over ends within this time. Where the lease is not over yet there is no time to wait for it.
fn ends_yet(lease: &LeaseView, within: Duration) -> bool {
    let clock = lease.clock();
    let until = clock.now() + within;
    loop {
        if lease.work_in_flight() == 0 {
            return true;
        }
        let now = clock.now();
        if now < lease.deadline() || now >= until {
            return false;
        }
        let _ = poll(&mut [], Some(&timespec(LOOK)));
    }
}

/// Where spans are sent, if they are. Without them the program runs the same.
fn traces(telemetry: &TelemetrySettings, namespace: &str, nonce: &str) -> Option<Traces> {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let origin = Origin {
        namespace: namespace.to_owned(),
        replica: replica_id(&host, std::process::id(), nonce),
        host,
    };
    let begun = Traces::begin(telemetry, &origin, Box::new(|_, _| {}));
    begun.unwrap_or_else(|error| {
        tracing::error!(%error, "no traces are sent");
        None
    })
}

#[cfg(test)]
mod tests;
