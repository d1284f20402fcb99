//! The scripts' wire: a [`Call`] to its arguments, its answer to a [`Reply`]. Pure; `ops/*.lua` are the other side.
//!
//! There are four scripts. Redis runs one from its top at every call, so what it does not define costs nothing: one acquires
//! a lock, one releases a lock, one has what is done every day for many, with a quick way where nothing is out of the
//! ordinary, and the last one has everything.

mod decode;
mod encode;
mod peer;
mod row;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError},
};

use deadpool_redis::redis::{Cmd, Script, Value};
use tracing::warn;

use crate::{
    hash::fnv1a,
    node::{
        Call, Eligibility, GuardSettings, Kind, NodeError, NodeMs, Op, Refusal, Reply,
        RestartGuard, Servers,
        rules::{self, ceil_ms},
    },
};
pub(super) use decode::Marker;
use decode::{Form, Scene, key_of, nonsense};
use encode::Args;
pub(super) use peer::Peer;

/// Owners may be so long: what is longer in a plain key is a stranger's.
const LONGEST_OWNER: usize = 500;

/// So many keys of another type are told of.
const MISFITS: usize = 100;

/// Acquires one lock.
static ACQUIRE: LazyLock<Source> = LazyLock::new(|| Source::of(&[include_str!("ops/acquire.lua")]));

/// Releases one lock.
static RELEASE: LazyLock<Source> = LazyLock::new(|| Source::of(&[include_str!("ops/release.lua")]));

/// For calls of nothing but what is done every day.
static USUAL: LazyLock<Source> = LazyLock::new(|| {
    let (before, after) = around_the_quick_way();
    Source::of(&[
        before,
        include_str!("ops/quick.lua"),
        after,
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

/// What stands in the prologue before the place of `ops/quick.lua`, and after it.
fn around_the_quick_way() -> (&'static str, &'static str) {
    let prologue = include_str!("ops/prologue.lua");
    let parts = prologue.split_once("-- === the quick way ===");
    // Without the place there is no quick way: see the test.
    parts.unwrap_or((prologue, ""))
}

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
    /// Which servers its fleet has reached, and which of its nodes this is.
    place: OnceLock<(Servers, usize)>,
}

/// A call ready to be sent, by digest or with its source.
pub(super) struct Prepared {
    layout: Arc<Layout>,
    call: Arc<Call>,
    usual: bool,
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
            place: OnceLock::new(),
        }
    }

    /// Its place in a fleet; the first one counts.
    pub(super) fn join(&self, servers: &Servers, place: usize) {
        let _ = self.place.set((servers.clone(), place));
    }

    /// Refuses a server that another node of the fleet has reached: its vote would count twice.
    pub(super) fn reached(&self, name: &str, run_id: &str) -> Result<(), NodeError> {
        let Some((servers, place)) = self.place.get() else {
            return Ok(());
        };
        let reached = servers.reached(*place, name, run_id);
        reached.map_err(|other| NodeError::Refused {
            refusal: Refusal::Twin,
            said: format!("it is the same server as {other}"),
        })
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
    pub(super) fn new(layout: &Arc<Layout>, call: impl Into<Arc<Call>>) -> Self {
        let call = call.into();
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
                let server = self.asks_each_time().then_some(peer.server.as_str());
                encode::acquire(&mut cmd, op, server);
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

    /// Whether the server's incarnation is compared with every call.
    fn asks_each_time(&self) -> bool {
        self.layout.guard.mode == RestartGuard::Call
    }

    /// What the marker must be for a short script: none looks at plain keys.
    fn known<'a>(&self, peer: &'a Peer) -> Option<&'a str> {
        match (self.layout.raw, self.layout.guard.mode) {
            (false, RestartGuard::Off) if !self.layout.compares() => Some(""),
            (false, _) => peer.marker.as_deref(),
            (true, _) => None,
        }
    }

    fn many(&self, mut cmd: Cmd, peer: &Peer) -> Cmd {
        cmd.arg(if self.layout.raw {
            "1"
        } else if are_distinct(&self.call.ops) {
            "2"
        } else {
            "0"
        });
        match (self.layout.guard.mode, &peer.marker) {
            (RestartGuard::Off, _) if !self.layout.compares() => cmd.arg(""),
            (_, Some(marker)) => cmd.arg(&**marker),
            // Programs that only look make no fleet.
            (RestartGuard::Off, None) => cmd.arg(match self.call.ops.iter().any(rules::votes) {
                true => "+",
                false => "~",
            }),
            (_, None) => cmd.arg("?"),
        };
        cmd.arg(&peer.server).arg(self.layout.config());
        encode::fields(&mut cmd, &self.call.ops, self.asks_each_time());
        let mut args = Args(cmd);
        let mut rest = self.call.ops.as_slice();
        if !self.layout.raw && rest.iter().all(is_plain) && are_claimed_apart(rest) {
            args.plain(rest);
            return args.0;
        }
        while let Some(first) = rest.first() {
            let others = rest.iter().skip(1);
            let group = 1 + others.take_while(|op| joins(first, op)).count();
            let (group, after) = rest.split_at(group);
            args.group(first, group);
            rest = after;
        }
        args.0
    }

    /// Reads the script's answer to this call as it was sent there, and what it says of the marker.
    pub(super) fn decode(
        &self,
        value: Value,
        sent_to: &Peer,
    ) -> Result<(Reply, Marker), NodeError> {
        let compares = self.layout.compares();
        let told = match value {
            Value::BulkString(text) => decode::brief(&text)?,
            list => decode::told(list, self.call.ops.len())?,
        };
        let decode::RawReply {
            form,
            at,
            found,
            mut rest,
        } = told;
        let wall_ms = i64::try_from(at).map_err(|_| nonsense("a clock out of range"))?;
        if found.len() != self.call.ops.len() {
            return Err(nonsense("another number of answers than operations"));
        }
        let mut scene = Scene::new(at, &self.layout.table, self.layout.raw);
        let answers = found.into_iter().zip(&self.call.ops);
        let answers: Vec<_> = answers.map(|(value, op)| scene.answer(value, op)).collect();
        for key in scene.misfits {
            self.layout.tell_misfit(key);
        }
        let (eligibility, marker) = match (compares, form) {
            (false, _) => (Eligibility::Unguarded, Marker::Now(None)),
            (true, Form::Whole) => rest.eligibility(sent_to)?,
            (true, Form::Short) => rest.short_eligibility(&answers, sent_to),
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
            Op::Nominate { nonce, .. }
            | Op::Merge { nonce, .. }
            | Op::Close { nonce, .. }
            | Op::Admit { nonce, .. }
                if encode::inc(nonce).is_none() =>
            {
                return Err(nonsense("a nonce without letters, or of more than 16"));
            }
            // What stands in a plain key is not read farther.
            Op::Acquire { owner, .. } | Op::Extend { owner, .. } | Op::Break { owner, .. }
                if owner.len() > LONGEST_OWNER =>
            {
                return Err(nonsense("an owner of more than 500 letters"));
            }
            // Its holder would believe longer than others watch.
            Op::Acquire { ttl, .. } | Op::Extend { ttl, .. } | Op::Break { ttl, .. }
                if ceil_ms(*ttl) > rules::LONGEST_TTL_MS =>
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

/// Attempts at locks and claims and their releases, and extensions of locks, which have a shorter form, see `ops/quick.lua`.
fn is_plain(op: &Op) -> bool {
    match op {
        Op::Acquire { .. } => is_usual(op),
        Op::Extend { kind, .. } => *kind == Kind::Lock,
        Op::Release { .. } => true,
        _ => false,
    }
}

/// Whether these claims surely have an owner each: those of one are granted one number, and are told in fewer words together.
fn are_claimed_apart(ops: &[Op]) -> bool {
    let claimant = |op: &Op| match op {
        Op::Acquire {
            owner,
            kind: Kind::Claim,
            ..
        }
        | Op::Release {
            owner,
            kind: Kind::Claim,
            ..
        } => Some(fnv1a(owner.bytes())),
        _ => None,
    };
    let mut seen: Vec<u64> = ops.iter().filter_map(claimant).collect();
    seen.sort_unstable();
    seen.is_sorted_by(|one, next| one < next)
}

/// Whether these operations surely name each lock once.
fn are_distinct(ops: &[Op]) -> bool {
    let mut seen: Vec<u64> = ops.iter().map(|op| fnv1a(key_of(op).bytes())).collect();
    seen.sort_unstable();
    seen.is_sorted_by(|one, next| one < next)
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
