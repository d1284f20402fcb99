//! The rules of `[notices.NAME]` and of `notify`.

use super::{Config, LoadOptions, words::nearest};
use crate::{
    finding::Findings,
    job::{Coordination, Spec},
};

/// Receivers of one worker at most: each has a task and a queue.
const MOST: usize = 100;

/// Adds what is wrong with receivers, and with those that name them. Keys are from the top.
pub(super) fn check(config: &Config, options: &LoadOptions, found: &mut Findings) {
    for (name, settings) in &config.notices {
        let mut here = Findings::default();
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(fits) || name.contains("__") || name.len() > 100 {
            here.error(
                &[""],
                "this is no name for a notice",
                "use lower case letters, digits, '-' and single '_', 100 at most",
            );
        }
        match &options.check_notice {
            Some(check) => {
                for mut finding in check(settings) {
                    // What is missing is shown where the table stands.
                    finding.keys.push(String::new());
                    here.push(finding);
                }
            }
            None => here.error(
                &[""],
                "this program sends no notices",
                "have it know the stock jobs (watchkeeper_jobs::add_to), or leave the table out",
            ),
        }
        found.nest(&format!("notices.{name}"), here);
    }
    if config.notices.len() > MOST {
        found.error(
            &["notices"],
            format!("{} are more than {MOST}", config.notices.len()),
            "let several jobs name the same one",
        );
    }
    check_names(config, found);
}

/// Adds what is wrong with those that name receivers.
pub(super) fn check_names(config: &Config, found: &mut Findings) {
    name_known("worker.notify", &config.worker.notify, config, found);
    for (name, spec) in &config.jobs {
        let Some(named) = &spec.notify else { continue };
        let key = format!("jobs.{name}.notify");
        name_known(&key, named, config, found);
        if !named.is_empty() && is_never_told(spec) {
            found.warn(
                &[&key],
                "it has no effect: batches that fail are tried again, and no notice is sent of them",
                "leave notify out, and see the metric watchkeeper_batches_total",
            );
        }
    }
}

/// Batches have no ledger that says what was told of them.
fn is_never_told(spec: &Spec) -> bool {
    spec.coordination == Coordination::Batch
}

fn name_known(key: &str, named: &[String], config: &Config, found: &mut Findings) {
    for (at, name) in named.iter().enumerate() {
        if config.notices.contains_key(name) {
            continue;
        }
        let known: Vec<&str> = config.notices.keys().map(String::as_str).collect();
        let near = nearest(name, known.iter().copied());
        let shown = crate::escape::escape(name, crate::escape::is_obeyed);
        let remedy = match (near, known.is_empty()) {
            (Some(near), _) => format!("did you mean \"{near}\"?"),
            (None, true) => format!("add a table [notices.{shown}], or take the name out"),
            (None, false) => format!("known notices: {}", known.join(", ")),
        };
        found.error(
            &[&format!("{key}[{at}]"), key],
            format!("there is no notice \"{shown}\""),
            remedy,
        );
    }
}
