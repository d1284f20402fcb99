//! The scripts' wire: a [`Call`] to its arguments, its answer to a [`Reply`]. Pure; `ops/*.lua` are the other side.
//!
//! There are four scripts. Redis runs one from its top at every call, so what it does not define costs nothing: one acquires
//! a lock, one releases a lock, one has what is done every day for many, and the last one has everything.

mod decode;
mod encode;
mod row;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError},
};

use deadpool_redis::redis::{Cmd, Script, Value};
use tracing::warn;

use crate::node::{
    Call, Eligibility, GuardSettings, Kind, NodeError, NodeMs, Op, Reply, RestartGuard,
    rules::{self, ceil_ms},
};
pub(super) use decode::Marker;
use decode::{Fields, Scene, nonsense};
use encode::Args;

/// So many keys of another type are told of.
const MISFITS: usize = 100;

/// Acquires one lock.
static ACQUIRE: LazyLock<Source> = LazyLock::new(|| Source::of(&[include_str!("ops/acquire.lua")]));

/// Releases one lock.
static RELEASE: LazyLock<Source> = LazyLock::new(|| Source::of(&[include_str!("ops/release.lua")]));

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
    /// `{ns}:2:t`: the scripts derive every other key of ours from it.
    pub(super) table: String,
    /// `{ns}:2:ch`: release announcements.
    pub(super) channel: String,
    /// Every lease shows in a plain key, too.
    pub(super) raw: bool,
    /// Which incarnations may vote.
    guard: GuardSettings,
    /// What is compared where the settings name no configuration.
    agreed: OnceLock<String>,
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
            table: format!("{{{namespace}}}:2:t"),
            channel: format!("{{{namespace}}}:2:ch"),
            raw,
            guard,
            agreed: OnceLock::new(),
            misfits: Arc::default(),
        }
    }

    /// What the programs of its fleet have in common, where the settings name nothing. Whether it is compared.
    pub(super) fn agree(&self, config: &str) -> bool {
        let GuardSettings {
            mode,
            config: named,
        } = &self.guard;
        *mode == RestartGuard::Off
            && named.is_empty()
            && self.agreed.get_or_init(|| config.to_owned()) == config
    }

    /// What is compared; empty for nothing.
    fn config(&self) -> &str {
        match self.agreed.get() {
            Some(agreed) => agreed,
            None => &self.guard.config,
        }
    }

    /// Whether the marker is compared at all.
    fn compares(&self) -> bool {
        self.guard.mode != RestartGuard::Off || !self.config().is_empty()
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

    /// All keys of ours, as `ACL SETUSER` takes them.
    pub(super) fn pattern(&self) -> String {
        format!("~{}*", self.table.trim_end_matches('t'))
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

    /// The usual request: the script is known by its digest.
    pub(super) fn by_digest(&self, peer: &Peer) -> Cmd {
        self.command("EVALSHA", |source| source.script.get_hash(), peer)
    }

    /// The request that also teaches the server the script.
    pub(super) fn with_source(&self, peer: &Peer) -> Cmd {
        self.command("EVAL", |source| &source.text, peer)
    }

    fn command(&self, name: &str, script: fn(&Source) -> &str, peer: &Peer) -> Cmd {
        let ops = self.call.ops.len();
        let mut cmd = Cmd::with_capacity(16 + 6 * ops, 512 + 96 * ops);
        cmd.arg(name);
        let mut begin = |source: &Source| {
            cmd.arg(script(source)).arg(1).arg(&self.layout.table);
            encode::not_after(&mut cmd, self.call.not_after);
        };
        match (self.call.ops.as_slice(), self.known(peer)) {
            ([op @ Op::Acquire { .. }], Some(inc)) if self.usual && is_of_a_lock(op) => {
                begin(&ACQUIRE);
                cmd.arg(inc);
                encode::acquire(&mut cmd, op);
            }
            ([op @ Op::Release { .. }], Some(inc)) if is_of_a_lock(op) => {
                begin(&RELEASE);
                cmd.arg(inc);
                encode::release(&mut cmd, op);
            }
            _ => {
                begin(if self.usual { &USUAL } else { &WHOLE });
                return self.many(cmd, peer);
            }
        }
        cmd
    }

    /// What the marker must be for a short script: it neither asks for incarnations nor looks at plain keys.
    fn known<'a>(&self, peer: &'a Peer) -> Option<&'a str> {
        match (self.layout.raw, self.layout.guard.mode) {
            (false, RestartGuard::Off) if !self.layout.compares() => Some(""),
            (false, RestartGuard::Off | RestartGuard::Connection) => peer.inc.as_deref(),
            _ => None,
        }
    }

    fn many(&self, mut cmd: Cmd, peer: &Peer) -> Cmd {
        cmd.arg(if self.layout.raw { "1" } else { "0" });
        match (self.layout.guard.mode, &peer.inc) {
            (RestartGuard::Off, _) if !self.layout.compares() => cmd.arg(""),
            (RestartGuard::Off | RestartGuard::Connection, Some(inc)) => cmd.arg(inc),
            // Programs that only look make no fleet.
            (RestartGuard::Off, None) => cmd.arg(match self.call.ops.iter().any(rules::votes) {
                true => "+",
                false => "~",
            }),
            (RestartGuard::Connection, None) | (RestartGuard::Call, _) => cmd.arg("?"),
        };
        cmd.arg(&peer.run_id).arg(self.layout.config());
        encode::fields(&mut cmd, &self.call.ops);
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

    /// Reads the script's answer to this call, and what it says of the marker.
    pub(super) fn decode(&self, value: Value) -> Result<(Reply, Marker), NodeError> {
        let mut fields = Fields::of(value)?;
        let (form, at) = (fields.int()?, fields.unsigned()?);
        let wall_ms = i64::try_from(at).map_err(|_| nonsense("a clock out of range"))?;
        let compares = self.layout.compares();
        let found = match form {
            0 => return Err(NodeError::Late { at: NodeMs(at) }),
            1 => fields.list()?,
            _ => vec![fields.next()?],
        };
        if found.len() != self.call.ops.len() {
            return Err(nonsense("another number of answers than operations"));
        }
        let mut scene = Scene::new(at, self.layout.raw);
        let answers = found.into_iter().zip(&self.call.ops);
        let answers = answers
            .map(|(value, op)| scene.answer(value, op))
            .collect::<Result<Vec<_>, _>>()?;
        for key in scene.misfits {
            self.layout.tell_misfit(key);
        }
        let (eligibility, marker) = match (compares, form) {
            (false, _) => (Eligibility::Unguarded, Marker::Now(None)),
            (true, 1) => fields.eligibility()?,
            (true, _) => fields.short_eligibility(&answers),
        };
        let reply = Reply {
            at: NodeMs(at),
            wall_ms,
            eligibility,
            answers,
        };
        Ok((reply, marker))
    }
}

/// Refuses what a server cannot keep.
pub(super) fn check(call: &Call) -> Result<(), NodeError> {
    for op in &call.ops {
        match op {
            Op::Nominate { nonce, .. } | Op::Merge { nonce, .. } | Op::Admit { nonce, .. }
                if encode::inc(nonce).is_none() =>
            {
                return Err(nonsense("a nonce of more than 16 letters"));
            }
            // Its holder would believe longer than others watch.
            Op::Acquire { ttl, .. } | Op::Extend { ttl, .. } | Op::Break { ttl, .. }
                if ceil_ms(*ttl) > encode::LONGEST_TTL_MS =>
            {
                return Err(nonsense("a ttl of more than 115 days"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Teach a server the scripts.
pub(super) fn load() -> [Cmd; 4] {
    [&ACQUIRE, &RELEASE, &USUAL, &WHOLE].map(|source| {
        let mut cmd = Cmd::new();
        cmd.arg("SCRIPT").arg("LOAD").arg(&source.text);
        cmd
    })
}

/// Queues are kept by the script that has everything.
fn is_usual(op: &Op) -> bool {
    match op {
        Op::Acquire { kind, ticket, .. } => *kind == Kind::Claim || ticket.is_none(),
        Op::Confirm { .. } | Op::Extend { .. } | Op::Release { .. } => true,
        _ => false,
    }
}

fn is_of_a_lock(op: &Op) -> bool {
    matches!(
        op,
        Op::Acquire {
            kind: Kind::Lock,
            ..
        } | Op::Release {
            kind: Kind::Lock,
            ..
        }
    )
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
                marked,
                retention,
                ..
            },
            Op::Release {
                owner: o,
                kind: k,
                marked: m,
                retention: r,
                ..
            },
        ) => (owner, kind, marked, retention) == (o, k, m, r),
        _ => false,
    }
}
