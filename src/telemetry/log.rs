//! Where log lines go: to standard error, as text for people, as JSON for machines.
//!
//! Lines are written by a thread of their own: a reader of our standard error that stands still must not stop the
//! renewal of leases. Code that ends the process calls [`flush`] first, or lets go of the [`Flush`] of [`init`].

use std::{
    io::{self, IsTerminal},
    sync::OnceLock,
    time::Duration,
};

use tracing_subscriber::{
    EnvFilter, Layer, Registry, fmt::MakeWriter, layer::SubscriberExt, util::SubscriberInitExt,
};

mod behind;
pub(super) mod directives;
mod shown;

use super::TelemetrySettings;
use crate::terminal::{self, Paint};
use behind::Behind;
pub use directives::LogError;
use directives::filter;
use shown::Shown;

/// Writes what is still to be written when it is dropped; keep it until the end of `main`.
#[must_use]
#[derive(Debug)]
pub struct Flush(());

static BEHIND: OnceLock<Behind> = OnceLock::new();

/// How long the end of the process waits for a reader of its log.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Sends the log lines of this process to standard error from now on.
///
/// # Errors
/// [`LogError`]; lines go where they went before.
pub fn init(settings: &TelemetrySettings) -> Result<Flush, LogError> {
    let terminal = io::stderr().is_terminal();
    let json = settings.format.json(terminal);
    // A reader of JSON sees no colours.
    let colours = !json && Paint::of_errors().is_coloured();
    let filter = filter(&settings.log)?;
    let behind = Behind::new(io::stderr(), json).map_err(LogError::Thread)?;
    let to = behind.clone();
    let lines = lines(filter, json, colours, move || to.clone());
    let free = !tracing::dispatcher::has_been_set();
    match lines.try_init() {
        // A logger of the crate `log` was there before: its lines go where they went, those of `tracing` come to us.
        Err(_) if free => {}
        set => set.map_err(|_| LogError::Taken)?,
    }
    // Only the one log of this process comes here, so the place is free.
    BEHIND.get_or_init(|| behind);
    watchkeeper_lock::keeper::before_abort(flush_within);
    Ok(Flush(()))
}

/// The same, but leaves a program alone that has set up a log of its own, or has one by [`init`] already: then there is
/// nothing to keep.
///
/// # Errors
/// [`LogError`], but [`LogError::Taken`].
pub(crate) fn init_where_none_is(settings: &TelemetrySettings) -> Result<Option<Flush>, LogError> {
    if tracing::dispatcher::has_been_set() {
        return Ok(None);
    }
    match init(settings) {
        Ok(flush) => Ok(Some(flush)),
        Err(LogError::Taken) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits until every line so far is written, a second at most. Call it before the process ends in a hurry.
pub fn flush() {
    flush_within(LAST_LINES);
}

/// Says this on standard error behind the lines of the log, and waits until it is written, so long at most: for the end of a
/// process that must not wait for a reader. Without a log nothing is said.
#[doc(hidden)] // for the command
pub fn say_at_last(text: &str, limit: Duration) {
    if let Some(behind) = BEHIND.get() {
        behind.say(&terminal::lines(text), limit.min(LAST_LINES));
    }
}

fn flush_within(limit: Duration) {
    if let Some(behind) = BEHIND.get() {
        behind.flush(limit.min(LAST_LINES));
    }
}

fn lines<W>(
    filter: EnvFilter,
    json: bool,
    colours: bool,
    to: W,
) -> impl tracing::Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(Shown { to, colours })
        .with_target(json)
        .with_ansi(colours);
    let layer: Box<dyn Layer<Registry> + Send + Sync> = if json {
        layer
            .json()
            .flatten_event(true)
            // The innermost alone would hide the run behind a span of its job.
            .with_current_span(false)
            .with_span_list(true)
            .boxed()
    } else {
        layer.fmt_fields(shown::fields()).boxed()
    };
    tracing_subscriber::registry().with(layer.with_filter(filter))
}

impl Drop for Flush {
    fn drop(&mut self) {
        flush();
    }
}

#[cfg(test)]
pub(crate) use tests::written_lines;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        event::Event,
        lease::Loss,
        node::Token,
        telemetry::{
            LogFormat,
            event_log::{EventLog, dump},
            paper::{Paper, keep_a_second_subscriber},
        },
        trace::Tracer,
    };

    fn logged(directives: &str, json: bool, events: &[Event]) -> Vec<String> {
        written(directives, json, || {
            let mut log = EventLog::default();
            events.iter().for_each(|event| log.on(event));
        })
    }

    fn written(directives: &str, json: bool, work: impl FnOnce()) -> Vec<String> {
        seen(directives, json, false, work)
    }

    fn seen(directives: &str, json: bool, colours: bool, work: impl FnOnce()) -> Vec<String> {
        let settings = TelemetrySettings::log(directives);
        keep_a_second_subscriber();
        let paper = Paper::default();
        let to = paper.clone();
        let filter = filter(&settings.log).unwrap();
        let subscriber = lines(filter, json, colours, move || to.clone());
        tracing::subscriber::with_default(subscriber, work);
        paper.text().lines().map(str::to_owned).collect()
    }

    /// The lines of text that `work` logs, for tests of others.
    pub(crate) fn written_lines(directives: &str, work: impl FnOnce()) -> Vec<String> {
        written(directives, false, work)
    }

    fn attempt(outcome: &'static str) -> Event {
        Event::Acquire {
            resource: "report".into(),
            outcome,
            took: Duration::from_millis(3),
        }
    }

    #[test]
    fn a_change_of_standing_is_one_line_of_fields() {
        let events = [
            attempt("held"),
            Event::Leading {
                job: "report".into(),
                token: Token(7),
                leaderless: Some(Duration::from_millis(40)),
            },
            Event::StandingBy {
                job: "report".into(),
                why: Loss::Released,
            },
        ];
        let lines = logged("info", true, &events);
        assert_eq!(lines.len(), 2, "{lines:?}");
        let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(line["message"], "leading");
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["job"], "report");
        assert_eq!(line["token"], 7);
        assert_eq!(line["leaderless_ms"], 40);
        assert!(logged("debug", false, &events)[0].contains("attempt ended"));
    }

    /// A run that logs two lines, one of them within a span of its own.
    async fn logging_run(tracer: Tracer) {
        use crate::{
            clock::Clock,
            job::{Hooks, Outcome, Run, RunFacts, RunSetup},
            run::execute::{Limits, execute},
        };
        let clock = Clock::system();
        let facts = RunFacts {
            job: "report".to_owned(),
            id: "run-1".to_owned(),
            tick: "2026-05-04T08:00:00Z".parse().unwrap(),
            attempt: 2,
            replica: "host-1-a".to_owned(),
            batch: Some("cell-7".to_owned()),
            shard: 0,
            shards: 1,
            params: serde_json::json!({"password": "hunter2"}),
            checkpoint: Some("hunter2".into()),
        };
        let run = Run::of(RunSetup {
            trace: tracer.attempt("report", "2026-05-04T08:00:00Z", 2),
            ..RunSetup::new(facts, clock.clone())
        });
        let limits = Limits {
            grace: Duration::ZERO,
            abort_margin: Duration::ZERO,
            also: None,
            hooks: Hooks::default(),
        };
        let work = async {
            tracing::info!(target: "app", page = 1, "written");
            tracing::info_span!(target: "app", "mine", page = 2)
                .in_scope(|| tracing::warn!(target: "app", "slow"));
            Ok(Outcome::Done)
        };
        execute(work, &run, limits, &clock).await;
    }

    #[test]
    fn a_line_of_a_run_says_which_run_it_belongs_to_and_tells_no_parameter() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        let untraced = || logging_run(Tracer::default());
        let lines = written("info", true, || runtime.block_on(untraced()));
        assert_eq!(lines.len(), 2, "{lines:?}");
        for line in &lines {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let run = &line["spans"][0];
            assert_eq!(
                *run,
                serde_json::json!({
                    "name": "run", "job": "report", "run_id": "run-1", "attempt": 2, "token": 0,
                    "tick": "2026-05-04T08:00:00Z", "replica": "host-1-a", "batch": "cell-7",
                })
            );
        }
        let text = written("info", false, || runtime.block_on(untraced()));
        assert!(text[0].contains("run_id=\"run-1\""), "{text:?}");
        // Of a library that is logged less, the runs still stand with lines of the program.
        let quiet = "error,app=info";
        let fewer = written(quiet, true, || runtime.block_on(untraced()));
        assert!(fewer[0].contains("run-1"), "{fewer:?}");
        for line in lines.iter().chain(&text).chain(&fewer) {
            assert!(!line.contains("hunter2"), "{line}");
        }
    }

    #[test]
    fn a_line_of_a_traced_run_names_its_trace() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        let (tracer, _recorded) = Tracer::new("shop", "a", 1.0, 8);
        let run = tracer.run("report", "2026-05-04T08:00:00Z").unwrap();
        let lines = written("info", true, || {
            runtime.block_on(logging_run(tracer.clone()));
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        for line in &lines {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let trace = line["spans"][0]["trace_id"].as_str().unwrap();
            assert_eq!(format!("00-{trace}"), run.to_string()[..35]);
        }
    }

    #[test]
    fn a_dump_is_a_line_for_each_thing() {
        let fleet: crate::status::FleetStatus = serde_json::from_str(
            r#"{"replicas":[{"id":"a"}],"jobs":[{"name":"report","leader":{"name":"a","token":7}}],"nodes":[{"up":true}]}"#,
        )
        .unwrap();
        let lines = written("info", true, || dump(&fleet));
        assert_eq!(lines.len(), 3, "{lines:?}");
        let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(line["leader"], "a");
        assert_eq!(line["token"], 7);
    }

    #[test]
    fn trouble_that_repeats_is_said_when_it_begins_and_when_it_ends() {
        let events = ["no_quorum", "no_quorum", "no_quorum", "held", "held"].map(attempt);
        let lines = logged("info", false, &events);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("WARN") && lines[0].contains("no_quorum"));
        assert!(lines[1].contains("a majority answers again"));
    }

    #[test]
    fn a_line_of_a_hostile_text_stays_one_line() {
        let event = Event::Fitness {
            job: "report".into(),
            unfit: Some("first\nERROR second".into()),
        };
        for json in [true, false] {
            let lines = logged("info", json, std::slice::from_ref(&event));
            assert_eq!(lines.len(), 1, "{lines:?}");
        }
    }

    #[test]
    fn a_line_commands_no_terminal() {
        let hostile = "a\u{1b}[8m\u{1b}]0;b\u{7}\u{9b}2J\u{7f}\u{202e}\nc";
        let said = || {
            let span = tracing::info_span!("run", job = %hostile);
            span.in_scope(|| tracing::info!(node = %hostile, other = hostile, "said {hostile}"));
        };
        for (json, colours) in [(true, false), (false, false), (false, true)] {
            let lines = seen("info", json, colours, said);
            assert_eq!(lines.len(), 1, "{lines:?}");
            // Colours are the log's own: what says one is shown.
            assert!(!lines[0].contains("\u{1b}[8m"), "{lines:?}");
            let own = |at: usize| colours && lines[0][at..].starts_with("\u{1b}[");
            let commands = lines[0].char_indices().find(|(at, c)| {
                (c.is_control() && !own(*at)) || ('\u{200b}'..='\u{202e}').contains(c)
            });
            assert_eq!(commands, None, "{lines:?}");
            assert_eq!(lines[0].matches("202e").count(), 4, "{lines:?}");
        }
    }

    #[test]
    fn lines_are_json_unless_a_person_reads_them() {
        assert!(LogFormat::Auto.json(false));
        assert!(!LogFormat::Auto.json(true));
        assert!(!LogFormat::Text.json(false));
        assert!(LogFormat::Json.json(true));
    }

    #[test]
    fn a_word_that_is_no_level_silences_nothing_but_is_refused() {
        let check = |log: &str| filter(log).map(drop).map_err(|error| error.to_string());
        for fits in [
            "info",
            "WARN",
            "off",
            "info, watchkeeper=debug,",
            "[run]=debug",
            "a::b[s{job=1}]=trace",
        ] {
            assert_eq!(check(fits), Ok(()), "{fits}");
        }
        for (log, word) in [
            ("inof", "\"inof\""),
            ("info,watchkeeper", "\"watchkeeper\""),
            ("watchkeeper=", "\"watchkeeper=\""),
            ("[run]", "\"[run]\""),
            ("", "\"\""),
        ] {
            let said = check(log).unwrap_err();
            assert!(
                said.starts_with(word) && said.contains("info, debug"),
                "{said}"
            );
        }
        let lines = written("off, watchkeeper=info", false, || tracing::info!("said"));
        assert_eq!(lines.len(), 1, "blanks around a directive are none of it");
    }

    #[test]
    fn directives_that_cannot_be_read_are_refused_by_name() {
        let error = filter("watchkeeper=loud").unwrap_err().to_string();
        assert!(error.contains("watchkeeper=loud"), "{error}");
    }

    const CHILD: &str = "WATCHKEEPER_TEST_LOG_CHILD";

    /// Runs only in the child process of the test below.
    #[test]
    fn child() {
        if std::env::var_os(CHILD).is_some() {
            let _flush = init(&TelemetrySettings::default()).unwrap();
            tracing::info!(job = "report", "hello");
            assert!(matches!(
                init(&TelemetrySettings::default()),
                Err(LogError::Taken)
            ));
            assert!(matches!(
                init_where_none_is(&TelemetrySettings::default()),
                Ok(None)
            ));
        }
    }

    #[test]
    fn the_last_line_is_written_before_the_process_ends() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "telemetry::log::tests::child", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        let line: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(line["message"], "hello");
        assert_eq!(line["job"], "report");
    }
}
