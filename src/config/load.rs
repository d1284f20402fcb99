//! Puts the layers together: defaults, what code says, the file, the environment, flags.
//!
//! The values of all layers are read first, each on its own and by the type of its key; figment merges what fits; the
//! rules are applied to the result. Every step adds to one list, so that all faults are told at once.

use std::{collections::BTreeMap, path::Path};

use figment::{Figment, providers::Serialized};
use serde_json::Value;

use super::{
    Backend, Config, Spec, code, document, jobs,
    layer::Layer,
    loaded::Loaded,
    notices,
    options::{Chosen, LoadOptions, choose_file},
    problem::{Problems, Provenance, Source},
    settle, text,
};
use crate::{files, finding::Findings};

/// Reads and checks a configuration.
///
/// # Errors
/// All problems, warnings included, when at least one of them is an error.
pub fn load(options: &LoadOptions) -> Result<Loaded, Problems> {
    assemble(options, Jobs::Run)
}

/// As [`load`], but does not ask whether the parameters of jobs fit: for commands that ask something of a fleet,
/// whose jobs run elsewhere. A folder or program that is missing on this machine stops none of these commands.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_to_ask(options: &LoadOptions) -> Result<Loaded, Problems> {
    assemble(options, Jobs::Named)
}

/// What a configuration's jobs are wanted for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Jobs {
    /// To run them here: all must fit.
    Run,
    /// To know which there are.
    Named,
    /// Not at all.
    Left,
}

/// As [`load`], but leaves `jobs` alone, with all that may be wrong there: for programs that only want the locks, and may
/// not know the kinds of jobs of the program that owns the file. [`Config::jobs`] is empty then.
///
/// # Errors
/// As [`load`].
pub fn load_without_jobs(options: &LoadOptions) -> Result<Loaded, Problems> {
    let options = LoadOptions {
        specs: BTreeMap::new(),
        ..options.clone()
    };
    assemble(&options, Jobs::Left)
}

/// What programs have no use for that want the locks alone.
const OF_JOBS: [&str; 3] = ["jobs", "notices", "worker.notify"];

fn assemble(options: &LoadOptions, wanted: Jobs) -> Result<Loaded, Problems> {
    let with_jobs = wanted != Jobs::Left;
    let mut problems = Problems::default();
    let mut provenance = Provenance::default();
    let file = choose_file(options);

    provenance.overlay(options.code.places());
    provenance.overlay(code::places_of_jobs(&options.specs));
    let from_file = read_file(options, file.as_ref(), &mut problems);
    let named = [
        ("jobs", job_names(options, &from_file)),
        ("notices", names(&from_file, "notices")),
    ];
    let layers = [
        from_file,
        text::environment(&options.env, &options.root, &named, &mut problems),
        text::flags(&options.flags, &mut problems),
    ];
    for name in &options.env_no_text {
        text::no_text(name, &mut problems);
    }
    if !with_jobs {
        OF_JOBS.iter().for_each(|section| problems.forget(section));
    }
    let (untouched, overridden) = split(&options.specs, &layers);
    let base = Config {
        jobs: overridden,
        ..options.code.config()
    };
    let mut figment = Figment::from(Serialized::defaults(&base));
    for mut layer in layers {
        if !with_jobs {
            OF_JOBS.iter().for_each(|section| layer.forget(section));
        }
        figment = figment.merge(&layer);
        provenance.overlay(layer.places);
        provenance.underlay(layer.sections);
    }
    match figment.extract::<Config>() {
        Ok(mut config) => {
            config.jobs.extend(untouched);
            options.code.restore_secrets(&mut config, &provenance);
            settle::settle_params(&mut config, options, &provenance);
            // Rules between values mean nothing while a whole layer could not be read.
            if !problems.iter().any(|problem| problem.key.is_empty()) {
                let mut found = Findings::default();
                begin_at_the_file(&mut config, &provenance, &options.root);
                config.check(&options.root, &mut found);
                if wanted == Jobs::Named {
                    let mut options = options.clone();
                    options.check_params = None;
                    jobs::check(&config, &options, &mut found);
                } else {
                    jobs::check(&config, options, &mut found);
                    if with_jobs {
                        notices::check(&config, options, &mut found);
                    }
                }
                refuse_unchosen(&config, &provenance, &mut found);
                problems.adopt(found, &provenance);
                if with_jobs {
                    jobs::refuse_kindless(options, &mut problems);
                }
            }
            problems.sort();
            if problems.has_errors() {
                return Err(problems);
            }
            let file = file.map(|chosen| chosen.path);
            let looked_at = match file {
                Some(_) => Vec::new(),
                None => options.places.clone(),
            };
            Ok(Loaded {
                config,
                problems,
                provenance,
                file,
                looked_at,
            })
        }
        Err(errors) => {
            // Every value fits its key, so this is about a combination that only the whole can tell.
            for error in errors {
                let key = error.path.join(".");
                let source = provenance.of(&key);
                problems.error(key, source, error.kind.to_string(), "");
            }
            problems.sort();
            Err(problems)
        }
    }
}

/// A relative path of `[locks]` that stands in a file begins in the folder of that file: one file is one store, wherever it is
/// used. In code, the environment and flags it begins in the working directory.
fn begin_at_the_file(config: &mut Config, provenance: &Provenance, root: &Path) {
    let locks = &mut config.locks;
    let (redis, etcd) = (&mut locks.redis.tls, &mut locks.etcd.tls);
    let paths = [
        ("locks.embedded.path", Some(&mut locks.embedded.path)),
        ("locks.redis.tls.ca", redis.ca.as_mut()),
        ("locks.redis.tls.cert", redis.cert.as_mut()),
        ("locks.redis.tls.key", redis.key.as_mut()),
        ("locks.etcd.tls.ca", etcd.ca.as_mut()),
        ("locks.etcd.tls.cert", etcd.cert.as_mut()),
        ("locks.etcd.tls.key", etcd.key.as_mut()),
    ];
    for (key, path) in paths {
        if let (Source::File { path: file, .. }, Some(path)) = (provenance.of(key), path)
            && let Some(folder) = root.join(file).parent()
        {
            *path = folder.join(&*path);
        }
    }
}

/// Servers that are named and not used: each machine would have a store of its own, and lead.
fn refuse_unchosen(config: &Config, provenance: &Provenance, found: &mut Findings) {
    let locks = &config.locks;
    let by = provenance.of("locks.backend");
    let chosen = match locks.backend {
        Backend::Redis | Backend::Postgres | Backend::Etcd => true,
        Backend::Embedded | Backend::Memory => !matches!(by, Source::Default | Source::Code),
    };
    if chosen {
        return;
    }
    if !locks.redis.nodes.is_empty() {
        found.error(
            &["locks.redis.nodes", "locks.backend"],
            "nodes are named, but nothing says that they are to be used: each machine would have a store of its own",
            "set locks.backend = \"redis\" (WATCHKEEPER_LOCKS__BACKEND=redis), or leave the nodes out",
        );
    }
    if locks.postgres.url.is_some() {
        found.error(
            &["locks.postgres.url", "locks.backend"],
            "a database is named, but nothing says that it is to be used: each machine would have a store of its own",
            "set locks.backend = \"postgres\" (WATCHKEEPER_LOCKS__BACKEND=postgres), or leave the database out",
        );
    }
    if !locks.etcd.endpoints.is_empty() {
        found.error(
            &["locks.etcd.endpoints", "locks.backend"],
            "a cluster is named, but nothing says that it is to be used: each machine would have a store of its own",
            "set locks.backend = \"etcd\" (WATCHKEEPER_LOCKS__BACKEND=etcd), or leave the endpoints out",
        );
    }
}

/// Checks jobs that were read together with other settings than those of `config`.
///
/// # Errors
/// As [`load`].
pub(crate) fn check_jobs(
    config: &Config,
    options: &LoadOptions,
    provenance: &Provenance,
) -> Result<(), Problems> {
    let mut found = Findings::default();
    jobs::check(config, options, &mut found);
    notices::check_names(config, &mut found);
    let mut problems = Problems::default();
    problems.adopt(found, provenance);
    problems.sort();
    match problems.has_errors() {
        true => Err(problems),
        false => Ok(()),
    }
}

fn read_file(options: &LoadOptions, chosen: Option<&Chosen>, problems: &mut Problems) -> Layer {
    let Some(Chosen { path, by }) = chosen else {
        return Layer::named("file");
    };
    match files::read_to_string(&options.root.join(path)) {
        Ok(text) => document::read(path, &text, problems),
        Err(cause) => {
            let source = by
                .clone()
                .unwrap_or_else(|| Source::WholeFile(path.clone()));
            let message = format!("the file {} cannot be read: {cause}", path.display());
            problems.error("", source, message, text::remedy_of(&cause));
            Layer::named("file")
        }
    }
}

fn job_names(options: &LoadOptions, file: &Layer) -> Vec<String> {
    let in_file = names(file, "jobs");
    options.specs.keys().cloned().chain(in_file).collect()
}

/// Names of the tables in a section.
fn names(file: &Layer, section: &str) -> Vec<String> {
    let tables = file.values.get(section).and_then(Value::as_object);
    let tables = tables.into_iter().flat_map(|tables| tables.keys());
    tables.cloned().collect()
}

/// The jobs of code that no layer names, and the others: on its way through all layers a job takes ten times its room.
fn split(
    specs: &BTreeMap<String, Spec>,
    layers: &[Layer],
) -> (BTreeMap<String, Spec>, BTreeMap<String, Spec>) {
    let named = |job: &str| {
        let mut jobs = layers.iter().filter_map(|layer| layer.values.get("jobs"));
        jobs.any(|jobs| jobs.get(job).is_some())
    };
    let (mut untouched, mut overridden) = (BTreeMap::new(), BTreeMap::new());
    for (name, spec) in specs {
        // Read as it would be from a file; whatever cannot be is told with all other faults.
        match spec.merge(&serde_json::Map::new()) {
            Ok(read) if !named(name) => untouched.insert(name.clone(), read),
            _ => overridden.insert(name.clone(), spec.clone()),
        };
    }
    (untouched, overridden)
}
