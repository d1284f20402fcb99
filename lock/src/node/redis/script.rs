//! The scripts' wire: a [`Call`] to its arguments, its answer to a [`Reply`]. Pure; `ops/*.lua` are the other side.
//!
//! There are two scripts, which share all that they both do: the one of every day has nothing but acquiring, confirming,
//! extending and releasing, for what it does not define costs nothing.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use deadpool_redis::redis::{Cmd, Script, Value};
use tracing::warn;

use crate::node::{
    Call, Eligibility, GuardSettings, Kind, NodeError, NodeMs, Op, Reply, RestartGuard,
};
use decode::{Fields, answer, nonsense};
use encode::Args;

/// So many keys of another type are told of.
const MISFITS: usize = 100;

/// For calls of nothing but what is done every day.
static USUAL: LazyLock<Source> = LazyLock::new(|| {
    Source::of(&[
        include_str!("ops/prologue.lua"),
        include_str!("ops/loop.lua"),
    ])
});

/// For all others.
static WHOLE: LazyLock<Source> = LazyLock::new(|| {
    Source::of(&[
        include_str!("ops/prologue.lua"),
        include_str!("ops/rare.lua"),
        include_str!("ops/loop.lua"),
    ])
});

/// A script, and by what a server knows it.
struct Source {
    text: String,
    script: Script,
}

impl Source {
    /// Without what is there for readers.
    fn of(parts: &[&str]) -> Self {
        let lines = parts.iter().flat_map(|part| part.lines()).map(str::trim);
        let code: Vec<&str> = lines
            .filter(|line| !line.is_empty() && !line.starts_with("--"))
            .collect();
        let text = code.join("\n");
        let script = Script::new(&text);
        Self { text, script }
    }
}

/// Where a node's keys live and how lock keys are spelled.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// `{ns}:1:node`: the script derives every other key of ours from it.
    pub(super) node_key: String,
    /// `{ns}:1:ch`: release announcements.
    pub(super) channel: String,
    /// Lock keys stand verbatim.
    pub(super) raw: bool,
    /// Which incarnations may vote.
    pub(super) guard: GuardSettings,
    /// Keys of another type than ours that were told of: each of them once.
    misfits: Arc<Mutex<BTreeSet<String>>>,
}

/// A call ready to be sent, by digest or with its source.
pub(super) struct Prepared {
    layout: Arc<Layout>,
    call: Call,
    usual: bool,
}

/// What a connection knows of the server at its other end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) run_id: String,
    /// The marker's incarnation, once its server was seen to be admitted.
    pub(super) inc: Option<String>,
}

// === impl Layout ===

impl Layout {
    pub(super) fn new(namespace: &str, raw: bool, guard: GuardSettings) -> Self {
        Self {
            node_key: format!("{{{namespace}}}:1:node"),
            channel: format!("{{{namespace}}}:1:ch"),
            raw,
            guard,
            misfits: Arc::default(),
        }
    }

    fn tell_misfit(&self, key: String) {
        let mut told = self.misfits.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MISFITS && !told.contains(&key) {
            warn!(
                key,
                "not what watchkeeper writes there, and counts as absent: delete this key"
            );
            told.insert(key);
        }
    }

    /// What the names of lock keys begin with; `None` where they stand verbatim among those of others.
    pub(super) fn own_keys(&self) -> Option<String> {
        let base = self.node_key.trim_end_matches("node");
        (!self.raw).then(|| format!("{base}l:"))
    }

    /// All keys of ours, as `ACL SETUSER` takes them.
    pub(super) fn pattern(&self) -> String {
        format!("~{}*", self.node_key.trim_end_matches("node"))
    }
}

// === impl Prepared ===

impl Prepared {
    pub(super) fn new(layout: &Arc<Layout>, call: Call) -> Self {
        Self {
            layout: layout.clone(),
            usual: call.ops.iter().all(is_usual),
            call,
        }
    }

    fn source(&self) -> &'static Source {
        if self.usual { &USUAL } else { &WHOLE }
    }

    /// The usual request: the script is known by its digest.
    pub(super) fn by_digest(&self, peer: &Peer) -> Cmd {
        self.command("EVALSHA", self.source().script.get_hash(), peer)
    }

    /// The request that also teaches the server the script.
    pub(super) fn with_source(&self, peer: &Peer) -> Cmd {
        self.command("EVAL", &self.source().text, peer)
    }

    fn command(&self, name: &str, script: &str, peer: &Peer) -> Cmd {
        let ops = self.call.ops.len();
        let mut cmd = Cmd::with_capacity(16 + 4 * ops, 512 + 64 * ops);
        cmd.arg(name).arg(script).arg(1).arg(&self.layout.node_key);
        match self.call.not_after {
            Some(at) => cmd.arg(at.0),
            None => cmd.arg(""),
        };
        cmd.arg(if self.layout.raw { "1" } else { "0" });
        match (self.layout.guard.mode, &peer.inc) {
            (RestartGuard::Off, _) => cmd.arg(""),
            (RestartGuard::Connection, Some(inc)) => cmd.arg(format!("={inc}")),
            (RestartGuard::Connection, None) | (RestartGuard::Call, _) => cmd.arg("?"),
        };
        cmd.arg(&peer.run_id).arg(&self.layout.guard.config);
        let mut args = Args(cmd);
        let mut rest = self.call.ops.as_slice();
        while let Some(first) = rest.first() {
            let others = rest.iter().skip(1);
            let group = 1 + others.take_while(|op| joins(first, op)).count();
            let (group, after) = rest.split_at(group);
            args.group(first, group);
            rest = after;
        }
        args.0
    }

    /// Reads the script's answer to this call, and under which incarnation the server is admitted.
    pub(super) fn decode(&self, value: Value) -> Result<(Reply, Option<String>), NodeError> {
        let mut fields = Fields::of(value)?;
        let (in_time, at) = (fields.int()?, fields.unsigned()?);
        if in_time == 0 {
            return Err(NodeError::Late { at: NodeMs(at) });
        }
        let mut misfits = Vec::new();
        let answers = fields
            .list()?
            .into_iter()
            .map(|value| answer(value, &mut misfits))
            .collect::<Result<Vec<_>, _>>()?;
        for key in misfits {
            self.layout.tell_misfit(key);
        }
        if answers.len() != self.call.ops.len() {
            return Err(nonsense("another number of answers than operations"));
        }
        let wall_ms = i64::try_from(at).map_err(|_| nonsense("a clock out of range"))?;
        let (eligibility, inc) = match self.layout.guard.mode {
            RestartGuard::Off => (Eligibility::Unguarded, None),
            RestartGuard::Connection | RestartGuard::Call => fields.eligibility()?,
        };
        let reply = Reply {
            at: NodeMs(at),
            wall_ms,
            eligibility,
            answers,
        };
        Ok((reply, inc))
    }
}

/// Teach a server the scripts.
pub(super) fn load() -> [Cmd; 2] {
    [&USUAL, &WHOLE].map(|source| {
        let mut cmd = Cmd::new();
        cmd.arg("SCRIPT").arg("LOAD").arg(&source.text);
        cmd
    })
}

/// Lines are kept by the script that has everything.
fn is_usual(op: &Op) -> bool {
    match op {
        Op::Acquire { kind, ticket, .. } => *kind == Kind::Claim || ticket.is_none(),
        Op::Confirm { .. } | Op::Extend { .. } | Op::Release { .. } => true,
        _ => false,
    }
}

/// Whether an operation may follow another in its group: they share what stands at the group's head.
fn joins(first: &Op, next: &Op) -> bool {
    match (first, next) {
        (
            Op::Acquire {
                owner,
                kind: Kind::Claim,
                ttl,
                floor,
                clamp,
                ..
            },
            Op::Acquire {
                owner: o,
                kind: Kind::Claim,
                ttl: t,
                floor: f,
                clamp: c,
                ..
            },
        ) => (owner, ttl, floor, clamp) == (o, t, f, c),
        (
            Op::Extend {
                owner,
                kind,
                ttl,
                token,
                ..
            },
            Op::Extend {
                owner: o,
                kind: k,
                ttl: t,
                token: n,
                ..
            },
        ) => (kind, ttl) == (k, t) && (*kind == Kind::Lock || (owner, token) == (o, n)),
        (
            Op::Confirm {
                owner,
                kind,
                token,
                expiry,
                ..
            },
            Op::Confirm {
                owner: o,
                kind: k,
                token: t,
                expiry: e,
                ..
            },
        ) => (owner, kind, token, expiry) == (o, k, t, e),
        (
            Op::Release {
                owner,
                kind,
                retention,
                ..
            },
            Op::Release {
                owner: o,
                kind: k,
                retention: r,
                ..
            },
        ) => (owner, kind, retention) == (o, k, r),
        _ => false,
    }
}
