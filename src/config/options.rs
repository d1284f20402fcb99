//! What a configuration is made from.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use serde_json::Value;

use super::{CodeSettings, Findings, Flag, Source, Spec, text};
use crate::{clock::Clock, notice::NoticeSettings};

/// All that a configuration is made from. Nothing else is looked at.
#[derive(Clone)]
pub struct LoadOptions {
    /// `--config`: the file to read; when none is named the usual places are tried.
    pub file: Option<PathBuf>,
    /// The usual places: the first of these files that exists is read.
    pub places: Vec<PathBuf>,
    /// Settings that code says; the file overrides them key by key. [`Worker::builder`](crate::Worker::builder) fills it in.
    #[doc(hidden)] // the worker fills it in
    pub code: CodeSettings,
    /// The environment.
    pub env: Vec<(String, String)>,
    /// Names of variables of ours in it that are no text: each is a fault.
    pub env_no_text: Vec<String>,
    /// Values from the command line.
    #[doc(hidden)] // the commands fill it in
    pub flags: Vec<Flag>,
    /// The directory that paths are relative to.
    pub root: PathBuf,
    /// The kinds of jobs this program knows. The worker fills it in.
    #[doc(hidden)] // the worker fills it in
    pub kinds: Vec<String>,
    /// Calls about kinds that the program did not know when it made them. The worker fills it in.
    #[doc(hidden)] // the worker fills it in
    pub kindless: Vec<KindlessCall>,
    /// Jobs that code registers; the file overrides them key by key. The worker fills it in.
    #[doc(hidden)] // the worker fills it in
    pub specs: BTreeMap<String, Spec>,
    /// Checks the parameters of a job of a known kind. The worker fills it in.
    #[doc(hidden)] // the worker fills it in
    pub check_params: Option<ParamCheck>,
    /// Knows the work of jobs: what does not fit it is told. The worker fills it in.
    #[doc(hidden)] // the worker fills it in
    pub work_of: Option<WorkOf>,
    /// Checks the settings of a receiver of notices. The worker fills it in; without it the program has none.
    #[doc(hidden)] // the worker fills it in
    pub check_notice: Option<NoticeCheck>,
    /// Tells the time: jobs that have no tick ahead are told. Without it none is known.
    pub clock: Option<Clock>,
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
            env_no_text: Vec::new(),
            flags: Vec::new(),
            root: PathBuf::new(),
            kinds: Vec::new(),
            kindless: Vec::new(),
            specs: BTreeMap::new(),
            check_params: None,
            work_of: None,
            check_notice: None,
            clock: None,
        }
    }
}

/// A call of the program about a kind of job that it had not registered by then: it had no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindlessCall {
    /// The method that was called.
    pub call: &'static str,
    /// The kind that it names.
    pub kind: String,
}

/// Asks the kind of a job what is wrong with its parameters. Keys are relative to `params`; an empty one is about all of
/// them.
pub type ParamCheck = Arc<dyn Fn(&str, &Value) -> Findings + Send + Sync>;

/// Says what is wrong with the settings of a receiver of notices. Keys are those of its table.
pub type NoticeCheck = Arc<dyn Fn(&NoticeSettings) -> Findings + Send + Sync>;

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

// === impl LoadOptions ===

impl LoadOptions {
    /// The environment, the working directory and the clocks of this process. Variables of others that are no Unicode are left
    /// out.
    #[must_use]
    pub fn from_process() -> Self {
        let mut options = Self::code_only(CodeSettings::default());
        for (name, value) in std::env::vars_os() {
            let shown = name.to_string_lossy().into_owned();
            match (name.into_string(), value.into_string()) {
                (Ok(name), Ok(value)) => options.env.push((name, value)),
                _ if text::is_ours(&shown) => options.env_no_text.push(shown),
                _ => {}
            }
        }
        let usual = USUAL_PLACES.into_iter().chain([SYSTEM_PLACE]);
        options.places = usual.map(PathBuf::from).collect();
        options
    }

    /// What code says, and nothing else: no file is looked for, no environment read. The working directory and the clocks
    /// are those of this process.
    #[must_use]
    pub(crate) fn code_only(code: CodeSettings) -> Self {
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

/// The file to read.
pub(super) struct Chosen {
    pub(super) path: PathBuf,
    /// Who named it; a file that was named must exist.
    pub(super) by: Option<Source>,
}

/// The file that is named, else the first of the usual places that is there.
pub(super) fn choose_file(options: &LoadOptions) -> Option<Chosen> {
    if let Some(path) = &options.file {
        return Some(Chosen {
            path: path.clone(),
            by: Some(Source::Flag("--config".to_owned())),
        });
    }
    let named = options
        .env
        .iter()
        .find(|(name, value)| name == text::FILE && !value.is_empty());
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
