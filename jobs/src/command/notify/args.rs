//! The command lines of `notify`.

use crate::notifications::delivery::State;
use clap::{Args, Subcommand, builder::PossibleValuesParser, builder::TypedValueParser};

/// Show notifications that do not go by themselves, send them again, put them aside or discard them
///
/// For jobs of the kind "notifications" in the configuration. Works on the side tables in the job's own database, beside
/// running senders or without any: those find what was changed at their next look, within a second. What is being sent
/// at the moment is left alone. JOB may be left out where only one such job is configured.
#[derive(Clone, Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct NotifyArgs {
    #[command(subcommand)]
    pub(super) command: NotifyCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum NotifyCommand {
    /// Count what waits, is dead, parked or in doubt
    ///
    /// Exits with 1 when a table cannot be read.
    Status(StatusArgs),
    /// List the dead and the parked ones, with the reason
    ///
    /// In the order of their ids; `--after` goes on behind the last one. Writes nothing.
    Dead(DeadArgs),
    /// Send items again, with the same key as before; their attempts are counted anew
    ///
    /// Exits with 0 when all that were named are sent again or wait to be sent anyway, with 1 when there was nothing to
    /// send or one of them was left alone, as what is being sent at the moment is. What may have been received stays
    /// listed as in doubt until it is sent. Items whose rows were deleted or marked as sent by another hand are listed no
    /// more.
    Retry(OrderArgs),
    /// Put items aside: they are not sent until `retry` asks for them
    ///
    /// Also rows that no sender has begun yet. Exits with 1 when one of them was left alone, because it was sent, is being
    /// sent, or is not there.
    Park(ParkArgs),
    /// Discard items: they are not sent, and wait for nothing any more
    ///
    /// Their rows stay as they are, unsent, and `dead --state discarded` lists them. What they kept back in the order of their
    /// recipient goes at once. `retry` has a discarded item sent after all, as long as its row is there. Exits with 1 when one of
    /// them was left alone, because it was sent, is being sent, or is not there, or when there was nothing to discard.
    Discard(OrderArgs),
    /// Put the rows of a file into the table
    ///
    /// CSV with the names of columns in its first line, or JSON lines with an object each. Rows go in by short transactions, so
    /// that senders begin with the first of them at once. A file that cannot be read to its end changes nothing. Rows whose id
    /// is there already are left out and counted: a file that has ids can be given again.
    Import(ImportArgs),
    /// Print the SQL that makes the side tables, and the index that the search for work goes by
    ///
    /// For teams whose own migrations make tables (`side_tables.create = false`). With `listen` also a trigger that announces
    /// new rows. Changes nothing. Asks PostgreSQL which schema the table is in.
    Schema(SchemaArgs),
}

#[derive(Clone, Debug, Args)]
pub(super) struct StatusArgs {
    /// The job [default: all of this kind]
    #[arg(value_name = "JOB")]
    pub(super) job: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(super) struct ImportArgs {
    /// The job, then the file; the job may be left out where there is only one
    #[arg(value_name = "JOB|FILE", required = true, num_args = 1..=2)]
    pub(super) words: Vec<String>,
    /// What the file holds [default: by its name, .csv or .jsonl]
    #[arg(long, value_name = "FORMAT")]
    pub(super) format: Option<Format>,
    /// A field of CSV that reads so is null
    #[arg(long, value_name = "WORD", default_value = "")]
    pub(super) null: String,
    /// Leave out the rows up to this line, which were imported before
    #[arg(long, value_name = "LINE", default_value_t = 0)]
    pub(super) after_line: u64,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What a file of rows holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// Values with commas, names in the first line
    Csv,
    /// An object in each line
    Jsonl,
}

#[derive(Clone, Debug, Args)]
pub(super) struct SchemaArgs {
    /// The job
    #[arg(value_name = "JOB")]
    pub(super) job: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(super) struct DeadArgs {
    /// The job
    #[arg(value_name = "JOB")]
    pub(super) job: Option<String>,
    /// Items in this state; repeat it for more [default: dead and parked]
    #[arg(long, value_name = "STATE", value_parser = state(), value_delimiter = ',')]
    pub(super) state: Vec<State>,
    /// Show this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) limit: u32,
    /// Go on behind this id
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    pub(super) after: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(super) struct OrderArgs {
    /// The job, then ids as `notify dead` lists them; those that begin with a hyphen after --
    #[arg(value_name = "JOB|ID", allow_negative_numbers = true)]
    pub(super) words: Vec<String>,
    /// All that are dead or parked
    #[arg(long, conflicts_with = "state")]
    pub(super) all: bool,
    /// All in this state; repeat it for more
    #[arg(long, value_name = "STATE", value_parser = state(), value_delimiter = ',')]
    pub(super) state: Vec<State>,
    /// Do not ask
    #[arg(long, short)]
    pub(super) yes: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(super) struct ParkArgs {
    /// The job, then ids; those that begin with a hyphen after --
    #[arg(value_name = "JOB|ID", required = true, allow_negative_numbers = true)]
    pub(super) words: Vec<String>,
    /// Do not ask
    #[arg(long, short)]
    pub(super) yes: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

fn state() -> impl TypedValueParser<Value = State> {
    PossibleValuesParser::new(State::ALL.map(State::word))
        .try_map(|word| State::parse(&word).ok_or("no such state"))
}
