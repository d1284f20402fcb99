//! Puts the layers together: defaults, what code says, the file, the environment, flags.
//!
//! The values of all layers are read first, each on its own and by the type of its key; figment merges what fits; the
//! rules are applied to the result. Every step adds to one list, so that all faults are told at once.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use figment::{Figment, providers::Serialized};
use serde_json::Value;

use super::{
    Backend, CodeSettings, Config, Spec, code, document, jobs,
    layer::Layer,
    problem::{Problems, Provenance, Source},
    render, text,
    text::Flag,
};
use crate::{clock::Clock, files, finding::Findings};

/// Asks the kind of a job what is wrong with its parameters. Keys are relative to `params`; an empty one is about all of
/// them.
pub type ParamCheck = Arc<dyn Fn(&str, &Value) -> Findings + Send + Sync>;

/// Says what is known of a job's work, by the name of the job and its spec; nothing when it is not known.
pub type WorkOf = Arc<dyn Fn(&str, &Spec) -> Option<WorkFacts> + Send + Sync>;

/// What a program knows of a job's work before any of it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkFacts {
    /// It comes in batches, which every replica claims.
    pub batches: bool,
    /// No run ever tells its progress ([`Run::progress`](crate::Run::progress)).
    pub tells_nothing: bool,
}

/// All that a configuration is made from. Nothing else is looked at.
#[derive(Clone)]
pub struct LoadOptions {
    /// `--config`: the file to read; when none is named the usual places are tried.
    pub file: Option<PathBuf>,
    /// The usual places: the first of these files that exists is read.
    pub places: Vec<PathBuf>,
    /// Settings that code says; the file overrides them key by key.
    pub code: CodeSettings,
    /// The environment.
    pub env: Vec<(String, String)>,
    /// Values from the command line.
    pub flags: Vec<Flag>,
    /// The directory that paths are relative to.
    pub root: PathBuf,
    /// The kinds of jobs this program knows.
    pub kinds: Vec<String>,
    /// Jobs that code registers; the file overrides them key by key.
    pub specs: BTreeMap<String, Spec>,
    /// Checks the parameters of a job of a known kind.
    pub check_params: Option<ParamCheck>,
    /// Knows the work of jobs: what does not fit it is told.
    pub work_of: Option<WorkOf>,
    /// Tells the time: jobs that have no tick ahead are told. Without it nobody knows of any.
    pub clock: Option<Clock>,
}

/// A configuration without errors.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration in effect.
    pub config: Config,
    /// Warnings.
    pub problems: Problems,
    /// Where each value comes from.
    pub provenance: Provenance,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Where a file was looked for, when none was found.
    pub looked_at: Vec<PathBuf>,
}

/// Where a file is looked for when none is named, in the working directory.
const USUAL_PLACES: [&str; 2] = ["./watchkeeper.toml", "./config/default.toml"];

/// Where the processes of this machine look for a file after that. Units and images keep it there.
pub const SYSTEM_PLACE: &str = "/etc/watchkeeper/watchkeeper.toml";

impl Default for LoadOptions {
    /// Nothing but the files in the usual places below `root`, of which this is the current directory.
    fn default() -> Self {
        Self {
            file: None,
            places: USUAL_PLACES.map(PathBuf::from).to_vec(),
            code: CodeSettings::default(),
            env: Vec::new(),
            flags: Vec::new(),
            root: PathBuf::new(),
            kinds: Vec::new(),
            specs: BTreeMap::new(),
            check_params: None,
            work_of: None,
            clock: None,
        }
    }
}

// === impl LoadOptions ===

impl LoadOptions {
    /// The environment, the working directory and the clocks of this process. Variables that are no Unicode are left out.
    #[must_use]
    pub fn from_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let mut options = Self::code_only(CodeSettings::default());
        options.env = std::env::vars_os().filter_map(text).collect();
        let usual = USUAL_PLACES.into_iter().chain([SYSTEM_PLACE]);
        options.places = usual.map(PathBuf::from).collect();
        options
    }

    /// What code says, and nothing else: no file is looked for, no environment read. The working directory and the clocks
    /// are those of this process.
    #[must_use]
    pub fn code_only(code: CodeSettings) -> Self {
        Self {
            places: Vec::new(),
            code,
            root: std::env::current_dir().unwrap_or_default(),
            clock: Some(Clock::system()),
            ..Self::default()
        }
    }
}

impl fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the environment: it holds other people's secrets, too.
        f.debug_struct("LoadOptions")
            .field("file", &self.file)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

// === impl Loaded ===

impl Loaded {
    /// The configuration in effect as TOML, without secrets; with `origin`, where each value comes from.
    #[must_use]
    pub fn render(&self, origin: bool) -> String {
        render::render(&self.config, origin.then_some(&self.provenance))
    }

    /// Which store is taken because nobody has named one, in a sentence; nothing when somebody has.
    #[must_use]
    pub fn store_by_default(&self) -> Option<String> {
        let named = |key: &str| self.provenance.of(key) != Source::Default;
        if named("locks.backend") || named("locks.embedded.path") {
            return None;
        }
        let why = match &self.file {
            Some(file) => format!("{} names no store", file.display()),
            None => self.no_file(),
        };
        let locks = &self.config.locks;
        let taken = match locks.backend {
            Backend::Embedded => {
                let path = &locks.embedded.path;
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                format!("the embedded store {}", path.display())
            }
            _ => "a store in memory, for this process alone".to_owned(),
        };
        Some(format!("{why}; using {taken}"))
    }

    /// `no configuration was found (looked at …)`
    pub(crate) fn no_file(&self) -> String {
        let places: Vec<String> = self
            .looked_at
            .iter()
            .map(|p| p.display().to_string())
            .collect();
        match places.is_empty() {
            true => "no store is named".to_owned(),
            false => format!("no configuration found (looked at {})", places.join(", ")),
        }
    }

    /// The same for a worker that is to run: one without any job is a mistake where nobody has configured anything, and
    /// worth a word elsewhere. A replica that is no candidate shows and commands the fleet without jobs of its own.
    ///
    /// # Errors
    /// The missing jobs.
    pub(crate) fn runnable(mut self) -> Result<Self, Problems> {
        if !self.config.jobs.is_empty() || !self.config.worker.candidate {
            return Ok(self);
        }
        let remedy = "add one in code (Worker::job) or as [jobs.NAME] in a file, named by --config or WATCHKEEPER_CONFIG \
                      where it is in no usual place";
        if self.store_by_default().is_some() && self.file.is_none() {
            let message = format!("there is no job, and {}", self.no_file());
            self.problems
                .error("jobs", Source::Default, message, remedy);
            return Err(self.problems);
        }
        let source = self.file.clone().map_or(Source::Default, Source::WholeFile);
        let message = "there is no job: this replica stands by for nothing";
        self.problems.warn("jobs", source, message, remedy);
        Ok(self)
    }
}

// === load ===

/// Reads and checks a configuration.
///
/// # Errors
/// All problems, warnings included, when at least one of them is an error.
pub fn load(options: &LoadOptions) -> Result<Loaded, Problems> {
    assemble(options, true)
}

/// As [`load`], but leaves `jobs` alone, with all that may be wrong there: for programs that only want the locks, and may
/// not know the kinds of jobs of whoever owns the file. [`Config::jobs`] is empty then.
///
/// # Errors
/// As [`load`].
pub fn load_without_jobs(options: &LoadOptions) -> Result<Loaded, Problems> {
    let options = LoadOptions {
        specs: BTreeMap::new(),
        ..options.clone()
    };
    assemble(&options, false)
}

fn assemble(options: &LoadOptions, with_jobs: bool) -> Result<Loaded, Problems> {
    let mut problems = Problems::default();
    let mut provenance = Provenance::default();
    let file = choose_file(options);

    provenance.overlay(options.code.places());
    provenance.overlay(code::places_of_jobs(&options.specs));
    let from_file = read_file(options, file.as_ref(), &mut problems);
    let jobs = job_names(options, &from_file);
    let layers = [
        from_file,
        text::environment(&options.env, &options.root, &jobs, &mut problems),
        text::flags(&options.flags, &mut problems),
    ];
    if !with_jobs {
        problems.forget("jobs");
    }
    let (untouched, overridden) = split(&options.specs, &layers);
    let base = Config {
        jobs: overridden,
        ..options.code.config()
    };
    let mut figment = Figment::from(Serialized::defaults(&base));
    for mut layer in layers {
        if !with_jobs {
            layer.forget("jobs");
        }
        figment = figment.merge(&layer);
        provenance.overlay(layer.places);
        provenance.underlay(layer.sections);
    }
    match figment.extract::<Config>() {
        Ok(mut config) => {
            config.jobs.extend(untouched);
            options.code.restore_secrets(&mut config, &provenance);
            jobs::settle_params(&mut config, options, &provenance);
            // Rules between values mean nothing while a whole layer could not be read.
            if !problems.iter().any(|problem| problem.key.is_empty()) {
                let mut found = Findings::default();
                config.check(&options.root, &mut found);
                jobs::check(&config, options, &mut found);
                problems.adopt(found, &provenance);
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
    let mut problems = Problems::default();
    problems.adopt(found, provenance);
    problems.sort();
    match problems.has_errors() {
        true => Err(problems),
        false => Ok(()),
    }
}

struct Chosen {
    path: PathBuf,
    /// Who named it; a file that somebody named must exist.
    by: Option<Source>,
}

fn choose_file(options: &LoadOptions) -> Option<Chosen> {
    if let Some(path) = &options.file {
        return Some(Chosen {
            path: path.clone(),
            by: Some(Source::Flag("--config".to_owned())),
        });
    }
    let named = options
        .env
        .iter()
        .find(|(name, value)| name == "WATCHKEEPER_CONFIG" && !value.is_empty());
    if let Some((name, value)) = named {
        return Some(Chosen {
            path: PathBuf::from(value),
            by: Some(Source::Env(name.clone())),
        });
    }
    let found = options.places.iter();
    let mut found = found.filter(|place| options.root.join(place).is_file());
    let path = found.next()?;
    // `watchkeeper.toml:3:1` is shorter to read.
    let path = path.strip_prefix("./").unwrap_or(path).to_owned();
    Some(Chosen { path, by: None })
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
            problems.error("", source, message, "check its path and permissions");
            Layer::named("file")
        }
    }
}

fn job_names(options: &LoadOptions, file: &Layer) -> Vec<String> {
    let in_file = file.values.get("jobs").and_then(Value::as_object);
    let in_file = in_file.into_iter().flat_map(|jobs| jobs.keys());
    options.specs.keys().chain(in_file).cloned().collect()
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

/// Adds an error when somebody else could have made or could change the file at `path`.
pub(super) fn check_owner(key: &str, path: &Path, root: &Path, found: &mut Findings) {
    if let Err(stranger) = crate::owned::store(&root.join(path)) {
        let text = stranger.to_string();
        let (message, remedy) = text.split_once("; ").unwrap_or((&text, ""));
        found.error(&[key], message, remedy);
    }
}

/// Adds an error when no file can be made at `path`, without making anything.
pub(super) fn check_writable(key: &str, path: &Path, root: &Path, found: &mut Findings) {
    let file = root.join(path);
    let shown = path.display();
    if file.is_dir() {
        found.error(
            &[key],
            format!("{shown} is a directory"),
            "name a file in it",
        );
        return;
    }
    if file.exists() && !file.is_file() {
        found.error(
            &[key],
            format!("{shown} is a pipe, a socket or a device"),
            "name a file",
        );
        return;
    }
    let mut nearest = file.as_path();
    while !nearest.exists() {
        let Some(above) = nearest
            .parent()
            .filter(|above| !above.as_os_str().is_empty())
        else {
            break;
        };
        nearest = above;
    }
    let nearest = if nearest.as_os_str().is_empty() {
        Path::new(".")
    } else {
        nearest
    };
    if nearest != file && nearest.exists() && !nearest.is_dir() {
        let message = format!(
            "{shown} cannot be made: {} is no directory",
            nearest.display()
        );
        found.error(&[key], message, "use another path");
        return;
    }
    // A store writes files beside its own, too.
    let beside = nearest.parent().filter(|_| nearest == file);
    for place in [Some(nearest), beside].into_iter().flatten() {
        if let Err(cause) = rustix::fs::access(place, rustix::fs::Access::WRITE_OK) {
            let message = format!("{shown} cannot be written: {}: {cause}", place.display());
            found.error(
                &[key],
                message,
                "use another path, or let this user write there",
            );
            return;
        }
    }
}
