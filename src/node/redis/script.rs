//! The script's wire: a [`Call`] to its arguments, its answer to a [`Reply`]. Pure; `ops.lua` is the other side.

use std::{sync::LazyLock, time::Duration};

use deadpool_redis::redis::{Cmd, Script, Value};

use crate::node::{
    Admission, Answer, Call, Doc, Expiry, GuardSettings, Kind, NodeError, NodeMs, Op, Record,
    Reply, RestartGuard, Seen, Standing, Take, Token, Version, View, rules::ceil_ms,
};

/// Longer lives are cut to this (ten years), so that a time plus a life stays exact in the script.
const LONGEST_MS: u64 = 10 * 366 * 24 * 3600 * 1000;

const SOURCE: &str = include_str!("ops.lua");

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SOURCE));

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
    node_key: String,
    not_after: String,
    raw: bool,
    guard: GuardSettings,
    args: Vec<Vec<u8>>,
    ops: usize,
}

/// What a connection has learned of the marker: the incarnation under which its server was seen to be admitted.
pub(super) type Learned = Option<String>;

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
    pub(super) fn new(layout: &Layout, call: &Call) -> Self {
        let mut args = Args(Vec::with_capacity(call.ops.len() * 8));
        for op in &call.ops {
            args.op(op);
        }
        let not_after = call.not_after.map(|at| at.0.to_string());
        Self {
            node_key: layout.node_key.clone(),
            not_after: not_after.unwrap_or_default(),
            raw: layout.raw,
            guard: layout.guard.clone(),
            args: args.0,
            ops: call.ops.len(),
        }
    }

    /// The usual request: the script is known by its digest.
    pub(super) fn by_digest(&self, learned: &Learned) -> Cmd {
        self.command("EVALSHA", SCRIPT.get_hash(), learned)
    }

    /// The request that also teaches the server the script.
    pub(super) fn with_source(&self, learned: &Learned) -> Cmd {
        self.command("EVAL", SOURCE, learned)
    }

    fn command(&self, name: &str, script: &str, learned: &Learned) -> Cmd {
        let guard = match (self.guard.mode, learned) {
            (RestartGuard::Off, _) => String::new(),
            (RestartGuard::Connection, Some(inc)) => format!("={inc}"),
            (RestartGuard::Connection, None) | (RestartGuard::Call, _) => "?".to_owned(),
        };
        let mut cmd = Cmd::new();
        cmd.arg(name).arg(script).arg(1).arg(&self.node_key);
        cmd.arg(&self.not_after)
            .arg(if self.raw { "1" } else { "0" })
            .arg(guard)
            .arg(&self.guard.config);
        for arg in &self.args {
            cmd.arg(arg.as_slice());
        }
        cmd
    }

    /// Reads the script's answer to this call, and what it says of the marker.
    pub(super) fn decode(&self, value: Value) -> Result<(Reply, Learned), NodeError> {
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
        if answers.len() != self.ops {
            return Err(nonsense("another number of answers than operations"));
        }
        let wall_ms = i64::try_from(at).map_err(|_| nonsense("a clock out of range"))?;
        let (standing, learned) = match self.guard.mode {
            RestartGuard::Off => (Standing::Unguarded, None),
            RestartGuard::Connection | RestartGuard::Call => fields.standing()?,
        };
        let reply = Reply {
            at: NodeMs(at),
            wall_ms,
            standing,
            answers,
        };
        Ok((reply, learned))
    }
}

/// Teaches a server the script.
pub(super) fn load() -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg("SCRIPT").arg("LOAD").arg(SOURCE);
    cmd
}

// === encoding ===

struct Args(Vec<Vec<u8>>);

impl Args {
    fn op(&mut self, op: &Op) {
        match op {
            Op::Acquire {
                key,
                owner,
                kind,
                ttl,
                floor,
                take,
                clamp,
                ticket,
            } => {
                let (id, life, polite) = match ticket {
                    Some(ticket) => (
                        ticket.id.as_str(),
                        millis(ticket.life),
                        if ticket.polite { "1" } else { "0" },
                    ),
                    None => ("", String::new(), ""),
                };
                self.texts(&[
                    "acquire",
                    key,
                    owner,
                    word(*kind),
                    &millis(*ttl),
                    &count(*floor),
                    &taken(take),
                    &millis(*clamp),
                    id,
                ]);
                if ticket.is_some() {
                    self.texts(&[&life, polite]);
                }
            }
            Op::Leave { key, ticket } => self.texts(&["leave", key, ticket]),
            Op::Confirm {
                key,
                owner,
                kind,
                token,
                expiry,
            } => {
                let expiry = ends(*expiry);
                self.texts(&["confirm", key, owner, word(*kind), &count(*token), expiry]);
            }
            Op::Extend {
                key,
                owner,
                kind,
                seq,
                ttl,
                token,
                take,
            } => {
                let (seq, ttl, token) = (seq.to_string(), millis(*ttl), count(*token));
                let (kind, take) = (word(*kind), taken(take));
                self.texts(&["extend", key, owner, kind, &seq, &ttl, &token, &take]);
            }
            Op::Release {
                key,
                owner,
                kind,
                retention,
            } => {
                self.texts(&["release", key, owner, word(*kind), &millis(*retention)]);
            }
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
            Op::Admission => self.text("admission"),
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

    fn text(&mut self, text: &str) {
        self.0.push(text.as_bytes().to_vec());
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

/// What was seen, in the one way in which the script writes what stands there.
fn taken(take: &Take) -> String {
    match take {
        Take::Server => "s".to_owned(),
        Take::Observed(None) => "o".to_owned(),
        Take::Observed(Some(Seen { inc, owner, seq })) => {
            format!("o{seq} {} {owner}{inc}", owner.len())
        }
    }
}

/// Rounded up, as everywhere on nodes; Redis refuses a life of zero.
fn millis(life: Duration) -> String {
    ceil_ms(life).clamp(1, LONGEST_MS).to_string()
}

fn count(token: Token) -> String {
    token.0.to_string()
}

// === decoding ===

fn answer(value: Value) -> Result<Answer, NodeError> {
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

    fn standing(&mut self) -> Result<(Standing, Learned), NodeError> {
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
            &Layout::new("app", false, GuardSettings::default()),
            &Call {
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
    fn the_shortest_life_is_a_millisecond() {
        assert_eq!(millis(Duration::ZERO), "1");
        assert_eq!(millis(Duration::MAX), LONGEST_MS.to_string());
    }
}
