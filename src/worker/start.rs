//! What a worker sets up and says when it starts: where its log goes, then version, store, jobs and page.

use jiff::Timestamp;

use super::{ready::Ready, replica::Replica};
use crate::{
    config::{Backend, Loaded, LockSettings, TelemetrySettings, shown_store_file},
    job::shard::{shard_of, whole},
};

/// So many jobs are shown with their next tick; the command `jobs` shows the others.
const SHOWN: usize = 10;

/// What is kept until the worker has ended.
#[cfg(feature = "log")]
pub(crate) type Log = Option<crate::telemetry::log::Flush>;
/// What is kept until the worker has ended.
#[cfg(not(feature = "log"))]
pub(crate) type Log = Option<()>;

/// Sets up the log where the program has none of its own. The last lines are written when the result is dropped.
#[cfg(feature = "log")]
pub(crate) fn log(telemetry: &TelemetrySettings) -> std::io::Result<Log> {
    let log = crate::telemetry::log::init_where_none_is(telemetry);
    log.map_err(std::io::Error::other)
}

/// Without a log of ours nothing would be said by a program that has none either: it says so, once for each worker.
#[cfg(not(feature = "log"))]
pub(crate) fn log(_: &TelemetrySettings) -> std::io::Result<Log> {
    use std::io::Write;
    if !tracing::dispatcher::has_been_set() {
        let _ = writeln!(
            std::io::stderr(),
            "watchkeeper: no log is written: install a subscriber of `tracing`, or build with the feature `log`"
        );
    }
    Ok(None)
}

/// The first lines, before anything is opened that may take its time.
pub(super) fn show_sources(loaded: &Loaded) {
    let config = &loaded.config;
    let configuration = loaded.file.as_ref().map(|file| file.display().to_string());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        store = store(&config.locks),
        namespace = config.worker.namespace,
        configuration,
        "starting"
    );
    if let Some(why) = loaded.store_by_default() {
        tracing::info!("{why}");
    }
}

/// The store in a few words, without secrets.
fn store(locks: &LockSettings) -> String {
    match locks.backend {
        Backend::Embedded => format!("embedded, {}", shown_store_file(locks)),
        Backend::Memory => "memory, this process alone".to_owned(),
        Backend::Redis => {
            let nodes: Vec<String> = locks.redis.nodes.iter().map(ToString::to_string).collect();
            format!("redis, {}", nodes.join(" "))
        }
        Backend::Postgres => format!("postgres, {}", database(locks)),
        Backend::Etcd => format!("etcd, {}", locks.etcd.endpoints.join(" ")),
    }
}

/// Where the database is.
fn database(locks: &LockSettings) -> String {
    let url = locks.postgres.url.as_ref();
    url.map(ToString::to_string).unwrap_or_default()
}

/// The replica that has started, and what it runs.
pub(super) fn show_replica(replica: &Replica) {
    let Replica { ctx, me, jobs, .. } = replica;
    tracing::info!(
        replica = me.id,
        name = me.name,
        mode = ctx.peers.mode(),
        jobs = jobs.len(),
        page = me.admin.as_ref().map(|at| format!("http://{at}/")),
        "worker started"
    );
    show_jobs(jobs, ctx.locks.wall());
}

/// Shows the jobs with their next ticks: a line each, also for one with shards, and one for all beyond the first ten.
fn show_jobs(jobs: &[Ready], now: Timestamp) {
    let first = |job: &&Ready| shard_of(&job.name).is_none_or(|(_, number)| number == 0);
    let enabled = || jobs.iter().filter(|job| job.spec.enabled).filter(first);
    for job in enabled().take(SHOWN) {
        let (schedule, next) = (job.schedule.to_string(), next(job, now));
        let shards = job.spec.shards;
        tracing::info!(job = whole(&job.name), shards, schedule, next, "job");
    }
    let more = enabled().count().saturating_sub(SHOWN);
    if more > 0 {
        tracing::info!("and {more} more; the command `jobs` lists them");
    }
}

/// When a job runs next.
fn next(job: &Ready, now: Timestamp) -> String {
    let schedule = &job.schedule;
    if job.body.is_batch() {
        return "as soon as there is work".to_owned();
    }
    if schedule.is_continuous() {
        return "as soon as it leads".to_owned();
    }
    match schedule.next_after(now) {
        Some(tick) => schedule.local(tick),
        None if schedule.has_ticks() => "never: no tick lies ahead".to_owned(),
        None => "when it is triggered".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        job::{JobError, Outcome, Run, Spec},
        worker::{function::Function, ready::Body},
    };

    fn ready(spec: Spec) -> Ready {
        let work = |_: Run| async { Ok::<_, JobError>(Outcome::Done) };
        Ready::new("job", Body::Job(Arc::new(Function(work))), Arc::new(spec)).unwrap()
    }

    #[test]
    fn the_start_says_of_each_job_when_it_runs_next() {
        let now = "2026-11-22T00:20:00Z".parse().unwrap();
        let said = |spec| next(&ready(spec), now);
        assert_eq!(
            said(Spec::cron("0 8 * * *").zone("Europe/Rome")),
            "Sun 2026-11-22 08:00:00 +01:00"
        );
        assert_eq!(said(Spec::continuous()), "as soon as it leads");
        assert_eq!(said(Spec::on("manual")), "when it is triggered");
        assert_eq!(
            said(Spec::on("at 2020-01-01T00:00")),
            "never: no tick lies ahead"
        );
    }

    #[test]
    fn the_store_is_named_without_its_password() {
        let locks = LockSettings::redis(["redis://me:hunter2@a", "redis://b"]);
        assert_eq!(store(&locks), "redis, redis://me:***@a redis://b");
        let locks = LockSettings::etcd(["http://a:2379", "http://b:2379"]);
        assert_eq!(store(&locks), "etcd, http://a:2379 http://b:2379");
    }

    #[test]
    #[cfg(feature = "log")]
    fn a_thousand_jobs_are_shown_by_ten_and_a_number() {
        let jobs: Vec<Ready> = (0..1_000).map(|_| ready(Spec::cron("@daily"))).collect();
        let lines = crate::telemetry::log::written_lines("info", || {
            show_jobs(&jobs, Timestamp::UNIX_EPOCH)
        });
        assert_eq!(lines.len(), 11, "{lines:?}");
        assert!(lines[0].contains("1970-01-02 00:00:00"), "{}", lines[0]);
        assert!(
            lines[10].contains("and 990 more; the command `jobs` lists them"),
            "{}",
            lines[10]
        );
    }
}
