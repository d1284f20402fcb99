//! The scripts' wire: a [`Call`] to its arguments, its answer to a [`Reply`]. Pure; `ops/*.lua` are the other side.
//!
//! There are two scripts, which share all that they both do: the one of every day has nothing but acquiring, confirming,
//! extending and releasing, for what it does not define costs nothing.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use deadpool_redis::redis::{Cmd, Script, Value};

use crate::node::{
    Admission, Answer, Call, Doc, Expiry, GuardSettings, Kind, NodeError, NodeMs, Op, Record,
    Reply, RestartGuard, Seen, Standing, Take, Token, Version, View, rules::ceil_ms,
};

/// Longer lives are cut to this (ten years), so that a time plus a life stays exact in the script.
const LONGEST_MS: u64 = 10 * 366 * 24 * 3600 * 1000;

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
        }
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
        let answers = fields
            .list()?
            .into_iter()
            .map(answer)
            .collect::<Result<Vec<_>, _>>()?;
        if answers.len() != self.call.ops.len() {
            return Err(nonsense("another number of answers than operations"));
        }
        let wall_ms = i64::try_from(at).map_err(|_| nonsense("a clock out of range"))?;
        let (standing, inc) = match self.layout.guard.mode {
            RestartGuard::Off => (Standing::Unguarded, None),
            RestartGuard::Connection | RestartGuard::Call => fields.standing()?,
        };
        let reply = Reply {
            at: NodeMs(at),
            wall_ms,
            standing,
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

// === encoding ===

/// What is said of each operation of a group, after its head.
struct Args(Cmd);

impl Args {
    fn group(&mut self, first: &Op, group: &[Op]) {
        match first {
            Op::Acquire {
                owner,
                kind: Kind::Claim,
                ttl,
                floor,
                clamp,
                ..
            } => {
                self.text("claim").text(owner).millis(*ttl).token(*floor);
                self.millis(*clamp).keys(group);
            }
            Op::Acquire {
                key,
                owner,
                ttl,
                floor,
                take,
                clamp,
                ticket,
                ..
            } => {
                self.text("acquire").text(key).text(owner).millis(*ttl);
                self.token(*floor).take(take).millis(*clamp);
                match ticket {
                    Some(ticket) => {
                        let polite = if ticket.polite { "1" } else { "0" };
                        self.text(&ticket.id).millis(ticket.life).text(polite);
                    }
                    None => drop(self.text("")),
                }
            }
            Op::Extend {
                owner,
                kind: Kind::Claim,
                ttl,
                token,
                ..
            } => {
                // A field is left empty, so that its head is like that of claims.
                self.text("extend_claim").text(owner).millis(*ttl);
                self.token(*token).text("").keys(group);
            }
            Op::Extend { ttl, .. } => {
                self.text("extend").millis(*ttl).number(group.len() as u64);
                for op in group {
                    if let Op::Extend {
                        key,
                        owner,
                        seq,
                        token,
                        take,
                        ..
                    } = op
                    {
                        self.text(key).text(owner).number(*seq);
                        self.token(*token).take(take);
                    }
                }
            }
            Op::Confirm {
                owner,
                kind,
                token,
                expiry,
                ..
            } => {
                self.text("confirm").text(word(*kind)).text(owner);
                self.token(*token).text(ends(*expiry)).keys(group);
            }
            Op::Release {
                owner,
                kind,
                retention,
                ..
            } => {
                self.text("release").text(word(*kind)).text(owner);
                self.millis(*retention).keys(group);
            }
            other => self.rare(other),
        }
    }

    /// How many, and their keys.
    fn keys(&mut self, group: &[Op]) {
        self.number(group.len() as u64);
        for op in group {
            if let Op::Acquire { key, .. }
            | Op::Extend { key, .. }
            | Op::Confirm { key, .. }
            | Op::Release { key, .. } = op
            {
                self.text(key);
            }
        }
    }

    /// What is asked for one by one.
    fn rare(&mut self, op: &Op) {
        match op {
            // In groups, above.
            Op::Acquire { .. } | Op::Confirm { .. } | Op::Extend { .. } | Op::Release { .. } => {}
            Op::Leave { key, ticket } => self.texts(&["leave", key, ticket]),
            Op::Break {
                key,
                owner,
                token,
                ttl,
                retention,
                now,
            } => {
                let (token, ttl, retention) = (count(*token), millis(*ttl), millis(*retention));
                let now = if *now { "1" } else { "0" };
                self.texts(&["break", key, owner, &token, &ttl, &retention, now]);
            }
            Op::Write {
                key,
                owner,
                version,
                body,
                not_before,
                expiry,
            } => {
                let (token, rev) = (count(version.token), version.rev.to_string());
                let not_before = not_before.map(|at| at.to_string()).unwrap_or_default();
                let expiry = ends(*expiry);
                self.texts(&["write", key, owner, &token, &rev, body, &not_before, expiry]);
            }
            Op::Read { key } => self.texts(&["read", key]),
            Op::List { prefix } => self.texts(&["list", prefix]),
            Op::PutDoc {
                name,
                rev,
                ttl,
                body,
            } => {
                self.texts(&["put_doc", name, &rev.to_string(), &millis(*ttl), body]);
            }
            Op::Docs { dir } => self.texts(&["docs", dir]),
            Op::Doc { name } => self.texts(&["doc", name]),
            Op::RemoveDoc { name } => self.texts(&["remove_doc", name]),
            Op::Admission => self.texts(&["admission"]),
            Op::Nominate { nonce } => self.texts(&["nominate", nonce]),
            Op::Merge {
                nonce,
                key,
                counter,
                record,
            } => {
                let Version { token, rev } = record.version;
                let (counter, token, rev) = (count(*counter), count(token), rev.to_string());
                self.texts(&["merge", nonce, key, &counter, &token, &rev, &record.body]);
            }
            Op::Admit {
                nonce,
                config,
                counter,
                blank_before,
            } => {
                let blank = blank_before.map(|at| at.to_string()).unwrap_or_default();
                self.texts(&["admit", nonce, config, &count(*counter), &blank]);
            }
            Op::Records { after, limit } => {
                self.texts(&["records", after, &limit.to_string()]);
            }
        }
    }

    fn texts(&mut self, texts: &[&str]) {
        for text in texts {
            self.text(text);
        }
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.0.arg(text);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.arg(number);
        self
    }

    fn token(&mut self, token: Token) -> &mut Self {
        self.number(token.0)
    }

    fn millis(&mut self, life: Duration) -> &mut Self {
        self.number(whole_millis(life))
    }

    /// What was seen, in the one way in which the script writes what stands there.
    fn take(&mut self, take: &Take) -> &mut Self {
        match take {
            Take::Server => self.text("s"),
            Take::Observed(None) => self.text("o"),
            Take::Observed(Some(Seen { inc, owner, seq })) => {
                self.0.arg(format!("o{seq} {} {owner}{inc}", owner.len()));
                self
            }
        }
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Lock => "lock",
        Kind::Claim => "claim",
    }
}

fn ends(expiry: Expiry) -> &'static str {
    match expiry {
        Expiry::Server => "s",
        Expiry::Observed => "o",
    }
}

/// Rounded up, as everywhere on nodes; Redis refuses a life of zero.
fn whole_millis(life: Duration) -> u64 {
    ceil_ms(life).clamp(1, LONGEST_MS)
}

fn millis(life: Duration) -> String {
    whole_millis(life).to_string()
}

fn count(token: Token) -> String {
    token.0.to_string()
}

// === decoding ===

fn answer(value: Value) -> Result<Answer, NodeError> {
    // What needs no more words.
    if let Value::Int(number) = value {
        return match u64::try_from(number) {
            Ok(0) => Ok(Answer::Done),
            Ok(grant) => Ok(Answer::Granted {
                grant: Token(grant),
                record: Record::default(),
            }),
            Err(_) if number == -1 => Ok(Answer::Kept {
                version: Version::default(),
            }),
            Err(_) => Err(nonsense("an unknown kind of answer")),
        };
    }
    let mut f = Fields::of(value)?;
    Ok(match f.int()? {
        1 => Answer::Granted {
            grant: f.token()?,
            record: f.record()?,
        },
        2 => Answer::Kept {
            version: f.version()?,
        },
        3 => Answer::Healed {
            version: f.version()?,
        },
        4 => Answer::Larger(f.token()?),
        5 => Answer::Refused(view(f.next()?)?),
        6 => Answer::TooEarly { wall_ms: f.int()? },
        7 => Answer::Done,
        8 => Answer::View(view(f.next()?)?),
        9 => Answer::Views(f.list()?.into_iter().map(view).collect::<Result<_, _>>()?),
        10 => Answer::Docs(f.list()?.into_iter().map(doc).collect::<Result<_, _>>()?),
        11 => Answer::Broken(view(f.next()?)?),
        12 => Answer::Unadmitted,
        13 => Answer::Admission(Admission {
            incarnation: f.text()?,
            nonce: f.optional()?,
            admitted: f.int()? == 1,
            inc: f.text()?,
            config: f.optional()?,
            counter: f.token()?,
            blank_before: match f.optional()?.filter(|at| !at.is_empty()) {
                Some(at) => Some(at.parse().map_err(|_| nonsense("a time out of range"))?),
                None => None,
            },
        }),
        _ => return Err(nonsense("an unknown kind of answer")),
    })
}

fn view(value: Value) -> Result<View, NodeError> {
    let mut f = Fields::of(value)?;
    let (key, holder) = (f.text()?, f.optional()?);
    // -1 is a key without a time to live, -2 no key.
    let remaining_ms = u64::try_from(f.int()?).ok();
    let (owner, seq, over) = (f.optional()?, f.unsigned()?, f.int()?);
    Ok(View {
        key,
        holder,
        remaining_ms,
        owner,
        seq,
        released: over == 1,
        broken: over == 2,
        token: f.token()?,
        record: f.record()?,
        ttl_ms: f.unsigned()?,
        named: f.int()? == 1,
        inc: f.text()?,
        foreign: f.int()? == 1,
        ahead: u32::try_from(f.int()?).ok(),
    })
}

fn doc(value: Value) -> Result<Doc, NodeError> {
    let mut f = Fields::of(value)?;
    Ok(Doc {
        name: f.text()?,
        rev: f.unsigned()?,
        body: f.text()?,
    })
}

/// The fields of one answer, taken from the left.
struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    fn of(value: Value) -> Result<Self, NodeError> {
        match value {
            Value::Array(fields) => Ok(Self(fields.into_iter())),
            _ => Err(nonsense("not a list")),
        }
    }

    fn next(&mut self) -> Result<Value, NodeError> {
        self.0.next().ok_or_else(|| nonsense("a field is missing"))
    }

    fn list(&mut self) -> Result<Vec<Value>, NodeError> {
        Self::of(self.next()?).map(|fields| fields.0.collect())
    }

    fn int(&mut self) -> Result<i64, NodeError> {
        match self.next()? {
            Value::Int(int) => Ok(int),
            _ => Err(nonsense("not an integer")),
        }
    }

    fn unsigned(&mut self) -> Result<u64, NodeError> {
        u64::try_from(self.int()?).map_err(|_| nonsense("a negative number"))
    }

    fn token(&mut self) -> Result<Token, NodeError> {
        self.unsigned().map(Token)
    }

    fn standing(&mut self) -> Result<(Standing, Option<String>), NodeError> {
        let (standing, inc, config) = (self.int()?, self.text()?, self.text()?);
        Ok(match standing {
            1 => (Standing::Admitted, Some(inc)),
            2 => (Standing::Unadmitted, None),
            3 => (Standing::Configured(config), Some(inc)),
            _ => return Err(nonsense("an unknown standing")),
        })
    }

    fn version(&mut self) -> Result<Version, NodeError> {
        Ok(Version {
            token: self.token()?,
            rev: self.unsigned()?,
        })
    }

    fn record(&mut self) -> Result<Record, NodeError> {
        Ok(Record {
            version: self.version()?,
            body: self.text()?,
        })
    }

    fn text(&mut self) -> Result<String, NodeError> {
        self.optional()?
            .ok_or_else(|| nonsense("a text is missing"))
    }

    /// A stranger's value may be any bytes: it is shown, never compared, so losing some of it does no harm.
    fn optional(&mut self) -> Result<Option<String>, NodeError> {
        match self.next()? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            _ => Err(nonsense("not a text")),
        }
    }
}

fn nonsense(what: &str) -> NodeError {
    NodeError::Protocol(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn prepared(ops: Vec<Op>) -> Prepared {
        Prepared::new(
            &Arc::new(Layout::new("app", false, GuardSettings::default())),
            Call {
                not_after: None,
                ops,
            },
        )
    }

    #[test]
    fn a_late_call_is_an_error_with_the_nodes_clock() {
        let reply = Value::Array(vec![Value::Int(0), Value::Int(1_795_189_257_541)]);
        let late = prepared(vec![Op::Read { key: "k".into() }]).decode(reply);
        assert_eq!(
            late,
            Err(NodeError::Late {
                at: NodeMs(1_795_189_257_541)
            })
        );
    }

    #[test]
    fn nonsense_is_a_protocol_error_and_never_a_panic() {
        let call = prepared(vec![Op::Read { key: "k".into() }]);
        for reply in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1), Value::Int(-4), Value::Array(vec![])]),
            Value::Array(vec![Value::Int(1), Value::Int(4), Value::Array(vec![])]),
            Value::Array(vec![
                Value::Int(1),
                Value::Int(4),
                Value::Array(vec![Value::Array(vec![Value::Int(8), bulk("x")])]),
            ]),
        ] {
            assert!(matches!(call.decode(reply), Err(NodeError::Protocol(_))));
        }
    }

    #[test]
    fn the_scripts_can_be_read_without_their_comments() {
        for source in [&USUAL, &WHOLE] {
            assert!(
                !source.text.contains("[["),
                "a line may not be part of a text"
            );
            assert!(
                !source.text.contains(" -- "),
                "comments stand in lines of their own"
            );
        }
    }

    #[test]
    fn what_shares_a_head_is_sent_as_a_group() {
        let claim = |key: &str, owner: &str| Op::Release {
            key: key.into(),
            owner: owner.into(),
            kind: Kind::Claim,
            retention: Duration::from_secs(1),
        };
        let call = prepared(vec![claim("a", "x"), claim("b", "x"), claim("c", "y")]);
        let packed = call.by_digest(&Peer::default()).get_packed_command();
        let words = String::from_utf8(packed).unwrap();
        let words: Vec<_> = words
            .split("\r\n")
            .filter(|w| !w.starts_with('$'))
            .collect();
        let sent = words.join(" ");
        assert!(
            sent.ends_with("release claim x 1000 2 a b release claim y 1000 1 c "),
            "{sent}"
        );
    }

    #[test]
    fn the_shortest_life_is_a_millisecond() {
        assert_eq!(millis(Duration::ZERO), "1");
        assert_eq!(millis(Duration::MAX), LONGEST_MS.to_string());
    }
}
