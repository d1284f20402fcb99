//! Orders as forms: what each would do, in words, before it is given; and what came of it.

use std::collections::BTreeMap;

use super::{
    super::html::Html,
    address::job_path,
    batches::can_be_named,
    block::{Block, Live, Page},
    view::View,
};
use crate::fleet::{
    intent::MOST_REASON,
    items::ItemState,
    status::{HeldItems, JobStatus},
};

/// What can be ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) enum Kind {
    Trigger,
    Pause,
    Resume,
    Resign,
    Drain,
    Withdraw,
    Break,
    Retry,
    Park,
    Discard,
    PauseAll,
    ResumeAll,
}

/// An order that is being filled in.
pub(in crate::admin) struct Form<'a> {
    pub(in crate::admin) kind: Kind,
    /// The job, replica, trigger or lock that it is about.
    pub(in crate::admin) of: &'a str,
    /// What makes it one of ours.
    pub(in crate::admin) seal: &'a str,
    /// As whose order it would be written down.
    pub(in crate::admin) who: &'a str,
    /// What stands in its fields.
    pub(in crate::admin) said: &'a BTreeMap<String, String>,
    /// What was wrong with it.
    pub(in crate::admin) trouble: Option<&'a str>,
}

// === impl Kind ===

impl Kind {
    const ALL: [Self; 12] = [
        Self::Trigger,
        Self::Pause,
        Self::Resume,
        Self::Resign,
        Self::Drain,
        Self::Withdraw,
        Self::Break,
        Self::Retry,
        Self::Park,
        Self::Discard,
        Self::PauseAll,
        Self::ResumeAll,
    ];

    /// The order of this word.
    pub(in crate::admin) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    pub(in crate::admin) fn word(self) -> &'static str {
        match self {
            Self::Trigger => "trigger",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Resign => "resign",
            Self::Drain => "drain",
            Self::Withdraw => "withdraw",
            Self::Break => "break",
            Self::Retry => "retry",
            Self::Park => "park",
            Self::Discard => "discard",
            Self::PauseAll => "pause_all",
            Self::ResumeAll => "resume_all",
        }
    }

    /// The field that says what it is about.
    pub(in crate::admin) fn field(self) -> &'static str {
        match self {
            Self::Trigger | Self::Pause | Self::Resume | Self::Resign => "job",
            // Which of its items stands in a field of its own.
            Self::Retry | Self::Park | Self::Discard => "job",
            Self::PauseAll | Self::ResumeAll => "all",
            Self::Drain => "replica",
            Self::Withdraw => "id",
            Self::Break => "key",
        }
    }

    /// Whether it must be said twice: it cannot be taken back.
    pub(in crate::admin) fn is_final(self) -> bool {
        matches!(
            self,
            Self::Drain
                | Self::Break
                | Self::Retry
                | Self::Discard
                | Self::PauseAll
                | Self::ResumeAll
        )
    }

    /// Whether it is about all jobs.
    pub(in crate::admin) fn is_of_all(self) -> bool {
        matches!(self, Self::PauseAll | Self::ResumeAll)
    }

    /// Whether something ends by it that does not begin again by itself.
    fn ends_something(self) -> bool {
        matches!(
            self,
            Self::Drain | Self::Break | Self::Discard | Self::PauseAll
        )
    }

    /// What it would do, in a few words. `said` is what stands in the fields of its form.
    fn title(self, view: &View<'_>, of: &str, said: &BTreeMap<String, String>) -> String {
        let of_items = || {
            let said = |name: &str| said.get(name).map_or("", |said| said.trim());
            match (said("id"), ItemState::of(said("all"))) {
                ("", Some(state)) => format!("all items of {of} that are {}", state.words()),
                ("", None) => format!("items of {of}"),
                (id, _) => format!("item {id} of {of}"),
            }
        };
        match self {
            Self::Trigger => format!("Run {of} now"),
            Self::Pause => format!("Pause {of}"),
            Self::Resume => format!("Resume {of}"),
            Self::Resign => format!("Hand over {of}"),
            Self::Drain => format!("Drain {}", view.name_of(of)),
            Self::Withdraw => format!("Withdraw trigger {of}"),
            Self::Break => format!("End the lease of {of}"),
            Self::Retry => format!("Send again {}", of_items()),
            Self::Park => format!("Put aside {}", of_items()),
            Self::Discard => format!("Discard {}", of_items()),
            Self::PauseAll => format!("Pause all {of}"),
            Self::ResumeAll => format!("Resume all {of}"),
        }
    }

    /// What a person agrees to where it must be said twice.
    fn agreed(self) -> &'static str {
        match self {
            Self::Drain => "Its process ends, and it is meant",
            Self::PauseAll => "Ticks that are skipped meanwhile never run, and it is meant",
            Self::ResumeAll => "Pauses that end begin again by a person alone, and it is meant",
            _ => "This cannot be taken back, and it is meant",
        }
    }
}

/// The form.
pub(in crate::admin) fn page(view: &View<'_>, form: &Form<'_>) -> Page {
    let mut h = Html::default();
    if let Some(trouble) = form.trouble {
        h.markup("<p class=\"bad\" role=\"alert\">").text(trouble);
        h.markup("</p>\n");
    }
    fields(&mut h, view, form);
    Page {
        title: form.kind.title(view, form.of, form.said),
        live: Live::Off,
        blocks: vec![Block::Plain(h)],
    }
}

/// What came of an order: whether it was given, and what is known of it. With the `rest` of an order about all of a state: which, and
/// behind which item.
pub(in crate::admin) fn answer(
    view: &View<'_>,
    (kind, of): (Kind, &str),
    said: &Result<String, String>,
    rest: Option<(&str, &str)>,
) -> Page {
    let mut h = Html::default();
    match said {
        Ok(what) => h.markup("<p class=\"good\" role=\"alert\">").text(what),
        Err(why) => h.markup("<p class=\"bad\" role=\"alert\">").text(why),
    };
    h.markup("</p>\n");
    if let Some((state, next)) = rest.filter(|(_, next)| can_be_named(next)) {
        let rest = [("after", next), ("all", state), ("job", of)];
        let path = view.address.to(&format!("/orders/{}", kind.word()), &rest);
        h.markup("<p>").link(&path, "order it for those behind it");
        h.markup("</p>\n");
    }
    back(&mut h, view, kind, of);
    Page {
        title: kind.title(view, of, &BTreeMap::new()),
        live: Live::Off,
        blocks: vec![Block::Plain(h)],
    }
}

fn fields(h: &mut Html, view: &View<'_>, form: &Form<'_>) {
    let said = |name: &str| form.said.get(name).map_or("", String::as_str);
    h.markup("<form class=\"order\" method=\"post\" action=\"/orders/");
    h.markup(form.kind.word());
    h.markup("\" autocomplete=\"off\">");
    for sentence in consequences(view, form) {
        h.markup("<p>").text(sentence).markup("</p>\n");
    }
    hidden(h, "seal", form.seal);
    hidden(h, form.kind.field(), form.of);
    match form.kind {
        Kind::Trigger => {
            h.markup("<label>Parameters for this run, as a JSON object <textarea name=\"params\" rows=\"4\" maxlength=\"4096\" spellcheck=\"false\" placeholder=\"{}\">");
            // A line feed right after the tag would be dropped.
            h.text(said("params").trim_start())
                .markup("</textarea></label>");
        }
        Kind::Resign => {
            h.markup("<label>To the replica <select name=\"to\"><option value=\"\">any that stands by</option>");
            for replica in &view.fleet.replicas {
                h.markup("<option value=\"").text(&replica.id).markup("\"");
                if replica.id == said("to") {
                    h.markup(" selected");
                }
                h.markup(">").text(&replica.name).markup(" on ");
                h.text(&replica.host).markup("</option>");
            }
            h.markup("</select></label>");
        }
        Kind::Break => hidden(h, "owner", said("owner")),
        Kind::Retry | Kind::Park | Kind::Discard => {
            hidden(h, "id", said("id"));
            hidden(h, "all", said("all"));
            hidden(h, "after", said("after"));
        }
        Kind::Pause
        | Kind::Resume
        | Kind::Drain
        | Kind::Withdraw
        | Kind::PauseAll
        | Kind::ResumeAll => {}
    }
    h.markup("<label>Why <input name=\"reason\" required maxlength=\"")
        .text(MOST_REASON);
    h.markup("\" value=\"");
    h.text(said("reason")).markup("\"></label>");
    h.markup("<p class=\"note\">It is written down as an order of ");
    h.text(form.who).markup(".</p>\n");
    if form.kind.is_final() {
        h.markup("<label class=\"check\"><input type=\"checkbox\" name=\"sure\" value=\"yes\" required> ");
        h.markup(form.kind.agreed()).markup("</label>");
    }
    h.markup(match form.kind.ends_something() {
        true => "<button class=\"bad\">",
        false => "<button>",
    });
    h.text(form.kind.title(view, form.of, form.said));
    h.markup("</button>");
    back(h, view, form.kind, form.of);
    h.markup("</form>\n");
}

fn hidden(h: &mut Html, name: &'static str, value: &str) {
    h.markup("<input type=\"hidden\" name=\"").markup(name);
    h.markup("\" value=\"").text(value).markup("\">");
}

fn back(h: &mut Html, view: &View<'_>, kind: Kind, of: &str) {
    let path = match (kind, kind.field()) {
        (Kind::Retry | Kind::Park | Kind::Discard, _) => {
            view.address.to("/batches", &[("job", of)])
        }
        (_, "job") => view.address.to(&job_path(of), &[]),
        (_, "replica") => view.address.to("/replicas", &[]),
        (_, "key") => view.address.to("/locks", &[]),
        (_, "all") => view.address.to("/", &[]),
        _ => view.address.to("/audit", &[]),
    };
    h.markup("<p class=\"orders\">").link(&path, "back");
    h.markup(" ")
        .link(&view.address.to("/audit", &[]), "all orders");
    h.markup("</p>\n");
}

// === consequences ===

fn consequences(view: &View<'_>, form: &Form<'_>) -> Vec<String> {
    let of = form.of;
    match form.kind {
        Kind::Drain => of_drain(view, of),
        Kind::Withdraw => vec![format!(
            "Trigger {of} does not start, unless its start stands in the ledger of its job already: then nothing is changed."
        )],
        Kind::Break => vec![
            format!(
                "The holder of {of} is told at its next renewal, within a third of its ttl, and stops its work. It may go on \
                 until then, and for the rest of its lease when it cannot be told."
            ),
            "No other process gets the lock before. Nothing of another owner is touched."
                .to_owned(),
        ],
        Kind::Retry | Kind::Park | Kind::Discard => of_items(view, form),
        Kind::PauseAll | Kind::ResumeAll => of_all(view, form.kind),
        Kind::Trigger | Kind::Pause | Kind::Resume | Kind::Resign => match view.job(of) {
            Some(job) => of_job(view, form.kind, job),
            None => vec![format!("No replica has {of} now.")],
        },
    }
}

fn of_job(view: &View<'_>, kind: Kind, job: &JobStatus) -> Vec<String> {
    let name = &job.name;
    let flying = match job.running.len() {
        0 => format!("Nothing of {name} is in flight."),
        1 => format!("1 run of {name} is in flight."),
        runs => format!("{runs} runs of {name} are in flight."),
    };
    let leader = job.leader.as_ref().map(|leader| leader.shown().to_owned());
    let said = match kind {
        Kind::Trigger => {
            let on = leader
                .map(|leader| format!(", on {leader}"))
                .unwrap_or_default();
            let times = match job.shards {
                Some(shards) => format!("Each of the {shards} shards of {name} runs once"),
                None => format!("{name} runs once"),
            };
            format!(
                "{times}, as soon as nothing else of it does{on}. It does so even during a pause."
            )
        }
        Kind::Pause => format!(
            "Nothing of {name} starts on any replica until it is resumed. What is in flight goes on. Ticks that fall due \
             meanwhile are skipped, and never run."
        ),
        Kind::Resume => match job.paused_why.as_deref().filter(|why| !why.is_empty()) {
            Some(why) => format!("{name} goes on with its next tick. It was paused because: {why}"),
            None => format!("{name} goes on with its next tick."),
        },
        _ => {
            let from = leader.unwrap_or_else(|| "its leader".to_owned());
            let others = view
                .fleet
                .replicas
                .iter()
                .filter(|replica| !replica.draining);
            format!(
                "{from} starts nothing more of {name}, ends what is in flight, and gives its term up. {} replicas of the fleet \
                 do not drain.",
                others.count()
            )
        }
    };
    vec![said, flying]
}

fn of_all(view: &View<'_>, kind: Kind) -> Vec<String> {
    let jobs = &view.all.jobs;
    let paused = jobs
        .iter()
        .filter(|job| job.paused || job.shards_paused > 0)
        .count();
    let running: usize = jobs.iter().map(|job| job.running.len()).sum();
    match kind {
        Kind::PauseAll => vec![
            format!(
                "Nothing of any job starts on any replica until it is resumed: {} jobs, of which {paused} are paused already.",
                jobs.len()
            ),
            format!(
                "What is in flight goes on: {running} runs and batches. Ticks that fall due meanwhile are skipped, and never run."
            ),
            "Each job gets a pause of its own. A job that comes later is not paused.".to_owned(),
        ],
        _ => vec![format!(
            "Every pause ends: {paused} jobs go on with their next ticks, also those that were paused alone, for reasons of \
                 their own."
        )],
    }
}

fn of_items(view: &View<'_>, form: &Form<'_>) -> Vec<String> {
    let job = form.of;
    let said = |name: &str| form.said.get(name).map_or("", |said| said.trim());
    let item = said("id");
    if form.kind == Kind::Park {
        return vec![
            format!(
                "Item {item} of {job} is put aside: it is not sent until a person has it sent again."
            ),
            "One that is being sent at the moment is left alone.".to_owned(),
        ];
    }
    let done = match form.kind {
        Kind::Discard => "discarded",
        _ => "sent again",
    };
    let which = match (item, ItemState::of(said("all"))) {
        ("", Some(state)) => {
            let held = view.job(job).and_then(|job| job.held);
            let counted = count(held.unwrap_or_default(), state);
            let counted = counted.map_or(String::new(), |n| format!(": {n} as last counted"));
            let behind = match said("after") {
                "" => String::new(),
                after => format!(", behind {after},"),
            };
            format!(
                "All items of {job} that are {}{behind} when it is carried out are {done}{counted}.",
                state.words()
            )
        }
        (item, _) => format!("Item {item} of {job} is {done}."),
    };
    if form.kind == Kind::Discard {
        return vec![
            which,
            "What is discarded is not sent, is counted no more, and waits for no person. Its row stays in the table, unsent."
                .to_owned(),
            "What it kept back in the order of its recipient goes within a second. A discarded item can be sent again as long as \
             its row is there, but then behind those."
                .to_owned(),
            "What is being sent at the moment is left alone.".to_owned(),
        ];
    }
    vec![
        which,
        "A sender finds it within a second, sends it with the same key as before, and counts its attempts anew. One that may \
         have been received stays listed as in doubt until it is sent."
            .to_owned(),
        "What is being sent at the moment is left alone.".to_owned(),
    ]
}

/// How many are in a state, where that is told.
fn count(held: HeldItems, state: ItemState) -> Option<u64> {
    match state {
        ItemState::Retry => Some(held.retry),
        ItemState::Dead => Some(held.dead),
        ItemState::InDoubt => Some(held.in_doubt),
        ItemState::Parked => Some(held.parked),
        ItemState::Discarded => None,
    }
}

fn of_drain(view: &View<'_>, replica: &str) -> Vec<String> {
    let name = view.name_of(replica);
    let (fleet, all) = (view.fleet, view.all);
    let rows = || {
        all.jobs
            .iter()
            .flat_map(|job| [job].into_iter().chain(&job.by_shard))
    };
    let led = rows().filter(|job| job.leader.as_ref().is_some_and(|l| l.replica == replica));
    let running = all.jobs.iter().flat_map(|job| &job.running);
    let running = running.filter(|run| run.replica == replica);
    let others = fleet.replicas.iter();
    let others = others.filter(|other| other.id != replica && !other.draining);
    vec![
        format!(
            "{name} starts nothing more, ends what is in flight, hands over what it leads, and its process ends, as with \
             SIGTERM. Whether it is started again is up to what started it."
        ),
        format!(
            "It leads {} jobs and has {} runs in flight. {} other replicas do not drain.",
            led.count(),
            running.count(),
            others.count()
        ),
    ]
}
