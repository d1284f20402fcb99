//! The command while the lock is held.

use std::{env, ffi::OsString, time::Duration};

use crate::guard::{Cause, Command, End, Output, StartError};
use watchkeeper::{
    Locks,
    config::secret_variables,
    fleet::holding::{self, Holding},
    fleet::status::{HolderStatus, replica_id},
    human::Brief,
    lease::{LeaseView, Loss},
    spawn::Spawn,
    trace::{Piece, TraceContext, Tracer},
};

use super::{
    args::{Common, split},
    signals::{Answer, Signals, answer, shares_terminal},
    voice::Voice,
};

/// What to run, as often as it is our turn.
#[derive(Clone)]
pub(super) struct Program {
    command: Vec<OsString>,
    key: String,
    host: String,
    replica: String,
    grace: Duration,
    /// Where its runs are told, if they are.
    tracer: Tracer,
}

/// What programs know of the trace that they are a part of.
const TRACEPARENT: &str = "TRACEPARENT";

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ran {
    /// Whose end it was.
    pub(super) end: Whose,
    /// Whether a signal told us to end.
    pub(super) told: bool,
}

/// Whose end it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The command's own, or by our signal: its status counts.
    Its(u8),
    /// Ours: the command was stopped, or could not be watched any more.
    Ours(Why),
}

/// Why a command was stopped although no user wanted it to end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Why {
    /// Its lease was lost.
    #[error("{0}")]
    Lost(Loss),
    /// Its guard has died.
    #[error("the guard of the command has died")]
    Guard,
}

// === impl Program ===

impl Program {
    pub(super) fn new(common: &Common, nonce: &str, tracer: Tracer) -> Self {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        Self {
            command: common.command.clone(),
            key: common.key.clone(),
            replica: replica_id(&host, std::process::id(), nonce),
            host: host.into_owned(),
            grace: common.grace,
            tracer,
        }
    }

    /// Tells processes that find the lock held who holds it. Of the command its name alone: its arguments may be secret.
    pub(super) fn tell(&self, locks: &Locks) -> Holding {
        let (program, _) = split(&self.command);
        let name = std::path::Path::new(program).file_name();
        let name = name.unwrap_or(program).to_string_lossy().into_owned();
        let me = HolderStatus {
            id: self.replica.clone(),
            name: name.clone(),
            host: self.host.clone(),
            pid: std::process::id(),
            command: Some(name),
            since: Some(locks.wall()),
        };
        holding::tell(locks, &Spawn::system(), &me)
    }

    /// Runs the command under `lease` until it and all that it started is gone.
    ///
    /// # Errors
    /// [`StartError`]; nothing runs then.
    pub(super) async fn run(
        &self,
        lease: &LeaseView,
        signals: &mut Signals,
        voice: Voice,
    ) -> Result<Ran, StartError> {
        // A process that starts at the terminal's front is in its group for good.
        let beside = shares_terminal();
        let mut piece = self.piece(lease);
        let context = piece.as_ref().map(Piece::context);
        let guarded = self.command(lease, context);
        let guarded = guarded.start(vec![lease.clone()]).await?;
        tracing::info!(
            key = lease.key(),
            token = lease.token().0,
            pid = guarded.pid(),
            "command started"
        );
        let mut told = false;
        let mut loss = None;
        let end = loop {
            tokio::select! {
                // This order: a command that has ended by itself has ended in time, whatever came afterwards.
                biased;
                end = guarded.ended() => break end,
                why = lease.lost(), if loss.is_none() => {
                    // Another process may hold the lock by now: there is no time for a grace.
                    guarded.kill();
                    loss = Some(why);
                }
                heard = signals.next() => match answer(heard, beside && shares_terminal(), told) {
                    Answer::Leave => {}
                    Answer::Stop => {
                        told = true;
                        guarded.terminate(self.grace);
                    }
                    Answer::Kill => guarded.kill(),
                }
            }
        };
        tracing::info!(key = lease.key(), status = ?end.status, cause = ?end.cause, "command ended");
        if end.left_behind > 0 {
            voice.mention(&format_args!(
                "the command left {} behind, which ended with it",
                processes(end.left_behind)
            ));
        }
        if !end.overran.is_zero() {
            voice.mention(&format_args!(
                "the command outlived its lock by {}: the system let its guard wait for a processor; a longer ttl leaves it more time",
                Brief(end.overran)
            ));
        }
        let end = judge(&end, loss, || lease.loss().unwrap_or(Loss::Expired));
        if let Some(piece) = &mut piece {
            match &end {
                Whose::Its(0) => piece.well(),
                Whose::Its(_) => piece.fail("failed"),
                Whose::Ours(_) => piece.fail("stopped"),
            }
        }
        Ok(Ran { end, told })
    }

    /// The command as a part of the trace of the program that has called us, or as a trace of its own.
    fn piece(&self, lease: &LeaseView) -> Option<Piece> {
        let caller = env::var(TRACEPARENT).ok();
        let caller = caller.as_deref().and_then(TraceContext::parse);
        let mut piece = self.tracer.begin_for(caller, "program", lease.clock())?;
        piece.say("watchkeeper.key", self.key.as_str());
        piece.say("watchkeeper.replica", self.replica.as_str());
        piece.say("watchkeeper.token", lease.token().0);
        piece.fail("not started");
        Some(piece)
    }

    fn command(&self, lease: &LeaseView, context: Option<TraceContext>) -> Command {
        let (program, args) = split(&self.command);
        let set = [
            ("WATCHKEEPER_KEY", self.key.clone()),
            ("WATCHKEEPER_TOKEN", lease.token().0.to_string()),
            ("WATCHKEEPER_REPLICA", self.replica.clone()),
        ];
        Command {
            program: program.to_owned(),
            args: args.to_vec(),
            cwd: None,
            clear_env: false,
            // Where no traces are sent, what the caller has said of itself is passed on as it is.
            env: set
                .into_iter()
                .chain(context.map(|context| (TRACEPARENT, context.to_string())))
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            without_env: secret_variables(env::vars_os()),
            output: Output::Inherit,
            grace: self.grace,
        }
    }
}

/// Whose end it was. A loss that was noticed before the end makes it ours, also when the command ended with 0.
fn judge(end: &End, noticed: Option<Loss>, why: impl FnOnce() -> Loss) -> Whose {
    match (noticed, end.cause) {
        (Some(loss), _) => Whose::Ours(Why::Lost(loss)),
        (None, Cause::Deadline) => Whose::Ours(Why::Lost(why())),
        (None, Cause::GuardLost) => Whose::Ours(Why::Guard),
        (None, Cause::Itself | Cause::Asked) => Whose::Its(end.status.exit_code()),
    }
}

fn processes(count: usize) -> String {
    match count {
        1 => "a process".to_owned(),
        count => format!("{count} processes"),
    }
}

#[cfg(test)]
mod tests {
    use crate::guard::Status;

    use super::*;

    fn end(status: Status, cause: Cause) -> End {
        End {
            status,
            cause,
            left_behind: 0,
            overran: Duration::ZERO,
            output: String::new(),
            written: 0,
        }
    }

    fn judged(status: Status, cause: Cause, noticed: Option<Loss>) -> Whose {
        judge(&end(status, cause), noticed, || Loss::Expired)
    }

    #[test]
    fn a_status_that_came_before_a_loss_is_the_commands() {
        assert_eq!(judged(Status::Code(7), Cause::Itself, None), Whose::Its(7));
        assert_eq!(
            judged(Status::Signal(9), Cause::Itself, None),
            Whose::Its(137)
        );
    }

    #[test]
    fn a_command_that_we_told_to_stop_has_its_own_status() {
        assert_eq!(
            judged(Status::Signal(15), Cause::Asked, None),
            Whose::Its(143)
        );
        assert_eq!(judged(Status::Code(0), Cause::Asked, None), Whose::Its(0));
    }

    #[test]
    fn a_command_that_was_stopped_for_a_loss_has_not_succeeded() {
        let ended = Status::Code(0);
        let lost = |loss| Whose::Ours(Why::Lost(loss));
        assert_eq!(judged(ended, Cause::Deadline, None), lost(Loss::Expired));
        for cause in [Cause::Asked, Cause::Itself, Cause::GuardLost] {
            assert_eq!(judged(ended, cause, Some(Loss::Taken)), lost(Loss::Taken));
        }
        let ended = Status::Signal(9);
        assert_eq!(
            judged(ended, Cause::GuardLost, None),
            Whose::Ours(Why::Guard)
        );
    }
}
