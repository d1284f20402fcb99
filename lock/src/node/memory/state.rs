//! A node's whole state as one value, changed by [`NodeState::apply`] alone: no clock, no I/O, no chance. A store that compares and
//! writes one value keeps it as a text ([`NodeState::read`], [`NodeState::written`]), and needs no rules of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    ops::Bound,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::node::{
    Announcement, Call, NodeError, NodeMs, Refusal, Reply, Token, rules,
    rules::{Body, DocName, Gate, Guarded, Rows, Stored, Waiter},
};

pub use crate::node::rules::{Claim, Entry, Key, Row, State};

/// Documents, places in queues and plain keys that have ended are removed about this often (in node time); until then they
/// merely count as absent.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What the fields below mean, in the text: a program that means something else by them has another number.
const LAYOUT: u32 = 1;

/// Everything a node knows.
#[doc(hidden)] // for the tests, the testing kit, and those who write a node
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeState {
    forgotten: Token,
    rows: BTreeMap<String, Row>,
    bodies: BTreeMap<String, Body>,
    /// Plain keys: of foreign clients, and, where `raw`, of every lease.
    plain: BTreeMap<String, Key>,
    raw: bool,
    docs: BTreeMap<String, Stored>,
    queues: BTreeMap<String, Vec<Waiter>>,
    gate: Gate,
    #[serde(skip)]
    announced: Vec<Announcement>,
    #[serde(skip)]
    sweep_at: NodeMs,
}

/// A state as it is written.
#[derive(Serialize, Deserialize)]
struct Written<S> {
    layout: u32,
    state: S,
}

// === impl NodeState ===

impl NodeState {
    /// What [`NodeState::written`] has made; an empty text is an empty node.
    ///
    /// # Errors
    /// [`NodeError::Unfit`] for the text of a program with another layout, [`NodeError::Refused`] for what is none of ours. Neither is
    /// to be written over.
    pub fn read(text: &str) -> Result<Self, NodeError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        match serde_json::from_str::<Written<Self>>(text) {
            Ok(written) if written.layout == LAYOUT => Ok(written.state),
            _ => Err(unreadable(text)),
        }
    }

    /// All of it as a text, in JSON: the same text for the same state. What is still to be announced is not in it.
    ///
    /// # Errors
    /// [`NodeError::Unfit`] for what cannot be written, which is nothing that a call leaves.
    pub fn written(&self) -> Result<String, NodeError> {
        let written = Written {
            layout: LAYOUT,
            state: self,
        };
        serde_json::to_string(&written).map_err(|why| NodeError::Unfit(why.to_string()))
    }

    /// Executes a call at `now` on the node's clock and `wall_ms` on its wall clock.
    ///
    /// # Errors
    /// [`NodeError::Late`] past `not_after`, [`NodeError::Protocol`] for numbers of 2^53 and more. Nothing has been
    /// executed then.
    pub fn apply(&mut self, now: NodeMs, wall_ms: i64, call: &Call) -> Result<Reply, NodeError> {
        self.apply_guarded(None, now, wall_ms, call)
    }

    /// As [`NodeState::apply`], on a node that votes only as an admitted incarnation.
    pub(super) fn apply_guarded(
        &mut self,
        guarded: Option<Guarded<'_>>,
        now: NodeMs,
        wall_ms: i64,
        call: &Call,
    ) -> Result<Reply, NodeError> {
        rules::admit(now, call)?;
        self.clean(now);
        let mut gate = std::mem::take(&mut self.gate);
        let executed = rules::execute_guarded(self, (&mut gate, guarded), now, wall_ms, call);
        self.gate = gate;
        match executed {
            Ok(reply) => Ok(reply),
            Err(never) => match never {},
        }
    }

    /// The releases since the last time this was asked, in order.
    pub fn take_announced(&mut self) -> Vec<Announcement> {
        std::mem::take(&mut self.announced)
    }

    /// An empty node on which every lease of a named lock shows in a plain key, too, as on Redis with raw keys.
    #[must_use]
    pub fn raw() -> Self {
        Self {
            raw: true,
            ..Self::default()
        }
    }

    /// The largest counter of what was forgotten here, and of what was granted to claims.
    #[must_use]
    pub fn forgotten(&self) -> Token {
        self.forgotten
    }

    /// Whose lease stands at `now`: what shows in the plain key, else the owner of a record or claim that has not ended.
    #[must_use]
    pub fn holder(&self, key: &str, now: NodeMs) -> Option<&str> {
        let plain = self.plain.get(key);
        let plain = plain.filter(|k| k.until.is_none_or(|until| now < until));
        let row = match self.rows.get(key) {
            Some(Row::Record(e)) => (e.stands() && now < e.until).then_some(e.owner.as_str()),
            Some(Row::Claim(claim)) => (now < claim.until).then_some(claim.owner.as_str()),
            Some(Row::Malformed(_)) | None => None,
        };
        plain.map(|k| k.value.as_str()).or(row)
    }

    /// The record or claim of a lock.
    #[must_use]
    pub fn row(&self, key: &str) -> Option<&Row> {
        self.rows.get(key)
    }

    /// All records and claims, including those that have ended and are not yet swept.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &Row)> {
        self.rows.iter().map(|(name, row)| (name.as_str(), row))
    }

    /// The documents by name, with the lengths of their bodies.
    pub fn documents(&self) -> impl Iterator<Item = (&str, usize)> {
        let docs = self.docs.iter();
        docs.map(|(name, doc)| (name.as_str(), doc.body.len()))
    }

    /// The bodies of locks by key, with their lengths.
    pub fn bodies(&self) -> impl Iterator<Item = (&str, usize)> {
        let bodies = self.bodies.iter();
        bodies.map(|(key, body)| (key.as_str(), body.record.body.len()))
    }

    /// Names of all locks in which a lease stands, ended or not.
    pub fn held(&self) -> impl Iterator<Item = &str> {
        let rows = self.rows().filter(|(_, row)| match row {
            Row::Record(entry) => entry.stands(),
            Row::Claim(_) | Row::Malformed(_) => true,
        });
        let plain = self.plain.keys().map(String::as_str);
        let names: BTreeSet<&str> = rows.map(|(name, _)| name).chain(plain).collect();
        names.into_iter()
    }

    /// Writes a plain key as a foreign client would: no record, no counter.
    pub fn plant(&mut self, key: &str, row: Key) {
        self.plain.insert(key.to_owned(), row);
    }

    fn clean(&mut self, now: NodeMs) {
        // A clock that was set back must not put the next one far away.
        let ahead = self.sweep_at.0.saturating_sub(now.0);
        if ahead > 0 && ahead <= rules::ceil_ms(SWEEP_EVERY) {
            return;
        }
        self.sweep_at = rules::later(now, SWEEP_EVERY);
        self.plain
            .retain(|_, row| row.until.is_none_or(|until| now < until));
        self.docs.retain(|_, row| now < row.until);
        self.queues
            .retain(|_, queue| queue.iter().any(|w| now < w.until));
    }
}

/// Why a text is no state.
fn unreadable(text: &str) -> NodeError {
    #[derive(Deserialize)]
    struct Layout {
        layout: u32,
    }
    match serde_json::from_str(text) {
        Ok(Layout { layout }) if layout != LAYOUT => NodeError::Unfit(format!(
            "its memory is of layout {layout}, which this program does not know: upgrade it"
        )),
        _ => NodeError::Refused {
            refusal: Refusal::WrongType,
            said: "its memory makes no sense".to_owned(),
        },
    }
}

/// What starts with `prefix`, in order, from `from` on.
fn starting_with<'a, V>(
    map: &'a BTreeMap<String, V>,
    prefix: &'a str,
    from: &'a str,
) -> impl Iterator<Item = (&'a String, &'a V)> {
    map.range::<str, _>((Bound::Included(from.max(prefix)), Bound::Unbounded))
        .take_while(move |(name, _)| name.starts_with(prefix))
}

impl Rows for NodeState {
    type Error = Infallible;

    fn forgotten(&mut self) -> Result<Token, Infallible> {
        Ok(self.forgotten)
    }

    fn set_forgotten(&mut self, counter: Token) -> Result<(), Infallible> {
        self.forgotten = counter;
        Ok(())
    }

    fn row(&mut self, key: &str) -> Result<Option<Row>, Infallible> {
        Ok(self.rows.get(key).cloned())
    }

    fn put_row(&mut self, key: &str, row: &Row) -> Result<(), Infallible> {
        self.rows.insert(key.to_owned(), row.clone());
        Ok(())
    }

    fn drop_row(&mut self, key: &str) -> Result<(), Infallible> {
        self.rows.remove(key);
        Ok(())
    }

    fn body(&mut self, key: &str) -> Result<Option<Body>, Infallible> {
        Ok(self.bodies.get(key).cloned())
    }

    fn put_body(&mut self, key: &str, body: &Body) -> Result<(), Infallible> {
        self.bodies.insert(key.to_owned(), body.clone());
        Ok(())
    }

    fn keep_body(
        &mut self,
        key: &str,
        now: NodeMs,
        until: Option<NodeMs>,
    ) -> Result<(), Infallible> {
        let body = self.bodies.get_mut(key);
        if let Some(body) = body.filter(|b| b.until.is_none_or(|until| now < until)) {
            body.until = until;
        }
        Ok(())
    }

    fn drop_body(&mut self, key: &str) -> Result<(), Infallible> {
        self.bodies.remove(key);
        Ok(())
    }

    fn names(&mut self, prefix: &str, from: &str, count: usize) -> Result<Vec<String>, Infallible> {
        let rows = starting_with(&self.rows, prefix, from).map(|(name, _)| name);
        let bodies = starting_with(&self.bodies, prefix, from).map(|(name, _)| name);
        let names: BTreeSet<&String> = rows.take(count).chain(bodies.take(count)).collect();
        Ok(names.into_iter().take(count).cloned().collect())
    }

    fn is_raw(&self) -> bool {
        self.raw
    }

    fn plain(&mut self, key: &str) -> Result<Option<Key>, Infallible> {
        Ok(self.plain.get(key).cloned())
    }

    fn put_plain(&mut self, key: &str, row: &Key) -> Result<(), Infallible> {
        self.plain.insert(key.to_owned(), row.clone());
        Ok(())
    }

    fn drop_plain(&mut self, key: &str) -> Result<(), Infallible> {
        self.plain.remove(key);
        Ok(())
    }

    fn doc(&mut self, name: &str) -> Result<Option<Stored>, Infallible> {
        Ok(self.docs.get(name).cloned())
    }

    fn put_doc(&mut self, name: &str, row: &Stored) -> Result<(), Infallible> {
        self.docs.insert(name.to_owned(), row.clone());
        Ok(())
    }

    fn drop_doc(&mut self, name: &str) -> Result<(), Infallible> {
        self.docs.remove(name);
        Ok(())
    }

    fn doc_names(
        &mut self,
        prefix: &str,
        from: &str,
        count: usize,
    ) -> Result<Vec<DocName>, Infallible> {
        let docs = starting_with(&self.docs, prefix, from).take(count);
        let shown = docs.map(|(name, row)| DocName {
            name: name.clone(),
            rev: row.rev,
            until: row.until,
        });
        Ok(shown.collect())
    }

    fn waiters(&mut self, key: &str) -> Result<Vec<Waiter>, Infallible> {
        Ok(self.queues.get(key).cloned().unwrap_or_default())
    }

    fn put_waiters(&mut self, key: &str, waiters: &[Waiter]) -> Result<(), Infallible> {
        if waiters.is_empty() {
            self.queues.remove(key);
        } else {
            self.queues.insert(key.to_owned(), waiters.to_vec());
        }
        Ok(())
    }

    fn announce(&mut self, news: Announcement) -> Result<(), Infallible> {
        self.announced.push(news);
        Ok(())
    }
}
