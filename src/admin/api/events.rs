//! What happens in this replica, as it happens: server-sent events.
//!
//! # Not promised
//! A replica tells what happens in itself. Who wants to see all of a fleet follows every replica: `GET /api/v1/replicas` has their
//! addresses.

use axum::response::Response;

use super::{
    super::{
        ask::Ask,
        event_documents::{GAP, RecordedEvent, gap},
        problem::{Kind, Problem},
        schema::{Field, Schema, Variant, field},
        stream::{self, frame},
    },
    jobs::HELD_FIELDS,
};

/// The types of events.
pub(super) const TYPES: &[&str] = &[
    "backlog",
    "batch_claimed",
    "batch_ended",
    "definitions",
    "draining",
    "engine_died",
    "fitness",
    "gap",
    "held_items",
    "items",
    "leading",
    "node",
    "node_damaged",
    "notice",
    "reloaded",
    "run_ended",
    "run_started",
    "standing_by",
    "ticks_skipped",
];

/// What is the same for all of them.
const AROUND: &[Field] = &[
    field(
        "id",
        "Where a client that comes back goes on; `null` for a gap that was found when it came back.",
        Schema::OrNull(&Schema::Text),
    ),
    field("type", "What has happened.", Schema::Text),
    field("time", "When, by the fleet's time.", Schema::Time),
    field(
        "replica",
        "The id of the replica in which it has happened.",
        Schema::Text,
    ),
    field(
        "job",
        "The job that it is about; `null` for what is about none.",
        Schema::OrNull(&Schema::Text),
    ),
    field("data", "What there is to say of it.", Schema::Any),
];

const RUN: Field = field("run_id", "The run.", Schema::Text);
const TICK: Field = field("tick", "The scheduled instant.", Schema::Time);
const ATTEMPT: Field = field("attempt", "1 for the first.", Schema::Count);
const TOKEN: Field = field("token", "The fencing token.", Schema::Count);
const BATCH: Field = field("batch", "The batch.", Schema::Text);
const OUTCOME: Field = field("outcome", "As in the history.", Schema::Text);
const TOOK: Field = field("took_ms", "How long it took.", Schema::Count);
const NODE: Field = field("node", "The name of the node.", Schema::Text);

const fn variant(word: &'static str, about: &'static str, data: &'static [Field]) -> Variant {
    Variant {
        word,
        about,
        around: AROUND,
        data,
    }
}

/// Each type, in the order of [`TYPES`].
const EACH: &[Variant] = &[
    variant(
        "backlog",
        "What is still to be done, as last seen by this replica.",
        &[
            field("items", "Items.", Schema::Count),
            field(
                "since",
                "Since when the oldest of them could go; `null` where that is not known.",
                Schema::OrNull(&Schema::Time),
            ),
        ],
    ),
    variant("batch_claimed", "A batch was claimed.", &[BATCH, TOKEN]),
    variant(
        "batch_ended",
        "A batch was processed or given up.",
        &[BATCH, OUTCOME, TOOK],
    ),
    variant(
        "definitions",
        "The replicas have begun or ceased to disagree on the definition of a job.",
        &[field(
            "count",
            "How many definitions there are; 1 when they agree.",
            Schema::Count,
        )],
    ),
    variant("draining", "The replica drains: nothing new starts.", &[]),
    variant(
        "engine_died",
        "The engine of a job has died of a panic, and begins again after the pause.",
        &[
            field("why", "What the panic said.", Schema::Text),
            field("pause_ms", "Until it begins again.", Schema::Count),
        ],
    ),
    variant(
        "fitness",
        "The replica, or a job on it, became unfit or fit again.",
        &[field(
            "unfit",
            "Why it is unfit; `null` when it is fit.",
            Schema::OrNull(&Schema::Text),
        )],
    ),
    variant(
        GAP,
        "Events are missing here: read the state anew.",
        &[field(
            "missed",
            "How many; `null` where that is not known.",
            Schema::OrNull(&Schema::Count),
        )],
    ),
    variant(
        "held_items",
        "Items that do not go by themselves, or not at once.",
        HELD_FIELDS,
    ),
    variant(
        "items",
        "Items of a batch were delivered, repeated or given up.",
        &[OUTCOME, field("count", "How many.", Schema::Count)],
    ),
    variant(
        "leading",
        "The replica leads a job from now on.",
        &[
            TOKEN,
            field(
                "leaderless_ms",
                "How long no replica led it, as far as this one has seen.",
                Schema::OrNull(&Schema::Count),
            ),
        ],
    ),
    variant(
        "node",
        "A lock node changed between answering and not answering.",
        &[
            NODE,
            field("up", "Whether it answers.", Schema::Flag),
            field(
                "cause",
                "Why it does not, in a word; empty when it does.",
                Schema::Text,
            ),
        ],
    ),
    variant(
        "node_damaged",
        "A part of what a lock node remembers was changed by something else.",
        &[
            NODE,
            field("what", "The first that was found.", Schema::Text),
        ],
    ),
    variant(
        "notice",
        "A notice of a job has reached its receiver, or has not.",
        &[
            field(
                "notice",
                "The name of the receiver, as in the configuration.",
                Schema::Text,
            ),
            field(
                "about",
                "`failed`, `missed`, `recovered`, or `ended` for receivers that hear of every run.",
                Schema::Text,
            ),
            field("outcome", "`sent`, `failed` or `dropped`.", Schema::Text),
            field("why", "Why it was not sent; else empty.", Schema::Text),
        ],
    ),
    variant(
        "reloaded",
        "The configuration was read again.",
        &[
            field("ok", "Whether it is in effect.", Schema::Flag),
            field("at", "When.", Schema::Time),
        ],
    ),
    variant(
        "run_ended",
        "A run has ended.",
        &[
            RUN,
            TICK,
            ATTEMPT,
            OUTCOME,
            field(
                "detail",
                "Why; empty when there is nothing to say.",
                Schema::Text,
            ),
            TOOK,
        ],
    ),
    variant(
        "run_started",
        "A run has started.",
        &[
            RUN,
            TICK,
            ATTEMPT,
            TOKEN,
            field("delay_ms", "How late it started.", Schema::Count),
        ],
    ),
    variant(
        "standing_by",
        "The replica no longer leads a job.",
        &[
            field("why", "Why the term ended, in a word.", Schema::Text),
            field("detail", "The same in a sentence.", Schema::Text),
        ],
    ),
    variant(
        "ticks_skipped",
        "Ticks that will not run.",
        &[
            field("first", "The first of them.", Schema::Time),
            field("last", "The last of them.", Schema::Time),
            field("count", "How many.", Schema::Count),
            field("why", "Why, in a word.", Schema::Text),
        ],
    ),
];

/// The document of one event.
pub(super) const EVENT: Schema = Schema::OneOf(EACH);

/// What one client wants to hear of.
struct Filter {
    types: Option<Vec<String>>,
    job: Option<String>,
}

pub(super) async fn follow(ask: Ask) -> Result<Response, Problem> {
    let shared = &ask.shared;
    let Some(slot) = shared.slots.take(ask.seen) else {
        let why = "no more clients can follow this replica at one time";
        return Err(Problem::new(Kind::TooManyStreams, why));
    };
    // What is no text is no id of ours: it leads to a gap.
    let last = ask.headers.get("last-event-id");
    let last = last.map(|id| id.to_str().unwrap_or_default());
    let (follower, missed) = shared.events.follow(last.or(ask.asked.text("after")));
    let (ring, replica) = (shared.events.clone(), shared.admin.source.replica());
    let opening = match missed {
        true => {
            let told = gap(&replica, shared.admin.source.wall());
            frame(None, told.kind(), &told.to_json())
        }
        false => String::new(),
    };
    let filter = Filter::of(&ask);
    let show = move |number: u64, event: &RecordedEvent| {
        filter.wants(event).then(|| {
            let id = ring.id(number);
            let document = event.document(&id, &replica);
            frame(Some(&id), document.kind(), &document.to_json())
        })
    };
    let clock = &shared.admin.clock;
    Ok(stream::answer(
        clock,
        (slot, &ask.stay),
        follower,
        &opening,
        show,
    ))
}

// === impl Filter ===

impl Filter {
    fn of(ask: &Ask) -> Self {
        let types = ask.asked.text("type");
        Self {
            types: types.map(|types| types.split(',').map(str::to_owned).collect()),
            job: ask.asked.text("job").map(str::to_owned),
        }
    }

    /// Whether the client wants this one. What is missing may be anything.
    fn wants(&self, event: &RecordedEvent) -> bool {
        let of_type = |types: &Vec<String>| types.iter().any(|wanted| wanted == event.kind());
        let of_job = |wanted: &String| event.job().is_some_and(|job| is_of(job, wanted));
        event.kind() == GAP
            || self.types.as_ref().is_none_or(of_type) && self.job.as_ref().is_none_or(of_job)
    }
}

/// Whether this is the job, or a shard of it.
fn is_of(job: &str, wanted: &str) -> bool {
    match job.strip_prefix(wanted) {
        Some("") => true,
        Some(rest) => {
            let number = rest.strip_prefix('.').unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_described_and_can_be_asked_for() {
        let described: Vec<&str> = EACH.iter().map(|variant| variant.word).collect();
        assert_eq!(described, TYPES);
    }

    #[test]
    fn a_job_is_followed_with_its_shards() {
        for (job, of) in [
            ("mail", true),
            ("mail.7", true),
            ("mail.", false),
            ("mail.x", false),
            ("mailer", false),
            ("mai", false),
        ] {
            assert_eq!(is_of(job, "mail"), of, "{job}");
        }
    }
}
