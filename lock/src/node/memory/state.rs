//! A node's whole state as one value, changed by [`NodeState::apply`] alone: no clock, no I/O, no chance.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    ops::Bound,
    time::Duration,
};

use crate::node::{
    Announcement, Call, NodeError, NodeMs, Reply, Token, rules,
    rules::{Claimant, Gate, Guarded, Rows, Stored, Waiter},
};

pub use crate::node::rules::{Entry, Key};

/// Rows that have ended are removed about this often (in node time); until then they merely count as absent.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Everything a node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    counter: Token,
    keys: BTreeMap<String, Key>,
    entries: BTreeMap<String, Entry>,
    claimants: BTreeMap<String, Claimant>,
    over: BTreeMap<(String, String), NodeMs>,
    docs: BTreeMap<String, Stored>,
    queues: BTreeMap<String, Vec<Waiter>>,
    gate: Gate,
    announced: Vec<Announcement>,
    sweep_at: NodeMs,
}

// === impl NodeState ===

impl NodeState {
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
        self.sweep(now);
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

    /// The node's own counter: no grant here was ever above it.
    #[must_use]
    pub fn counter(&self) -> Token {
        self.counter
    }

    /// The value that stands in a key at `now`, if any.
    #[must_use]
    pub fn holder(&self, key: &str, now: NodeMs) -> Option<&str> {
        let row = self.keys.get(key)?;
        row.until
            .is_none_or(|until| now < until)
            .then_some(row.value.as_str())
    }

    /// All keys, including those that have ended and are not yet removed.
    pub fn keys(&self) -> impl Iterator<Item = (&str, &Key)> {
        self.keys.iter().map(|(name, row)| (name.as_str(), row))
    }

    /// All records, including those that have ended and are not yet removed.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(name, row)| (name.as_str(), row))
    }

    /// Writes a key as a foreign client would: no record, no counter.
    pub fn plant(&mut self, key: &str, row: Key) {
        self.keys.insert(key.to_owned(), row);
    }

    fn sweep(&mut self, now: NodeMs) {
        // A clock that was set back must not put the next sweep far away.
        let ahead = self.sweep_at.0.saturating_sub(now.0);
        if ahead > 0 && ahead <= rules::ceil_ms(SWEEP_EVERY) {
            return;
        }
        self.sweep_at = rules::later(now, SWEEP_EVERY);
        self.keys
            .retain(|_, row| row.until.is_none_or(|until| now < until));
        self.entries
            .retain(|_, row| row.until.is_none_or(|until| now < until));
        self.claimants.retain(|_, row| now < row.until);
        self.over.retain(|_, until| now < *until);
        self.docs.retain(|_, row| now < row.until);
        self.queues
            .retain(|_, queue| queue.iter().any(|w| now < w.until));
    }
}

fn starting_with<'a, V>(
    map: &'a BTreeMap<String, V>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a String, &'a V)> {
    map.range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
        .take_while(move |(name, _)| name.starts_with(prefix))
}

impl Rows for NodeState {
    type Error = Infallible;

    fn counter(&mut self) -> Result<Token, Infallible> {
        Ok(self.counter)
    }

    fn set_counter(&mut self, counter: Token) -> Result<(), Infallible> {
        self.counter = counter;
        Ok(())
    }

    fn key(&mut self, key: &str) -> Result<Option<Key>, Infallible> {
        Ok(self.keys.get(key).cloned())
    }

    fn put_key(&mut self, key: &str, row: &Key) -> Result<(), Infallible> {
        self.keys.insert(key.to_owned(), row.clone());
        Ok(())
    }

    fn drop_key(&mut self, key: &str) -> Result<(), Infallible> {
        self.keys.remove(key);
        Ok(())
    }

    fn entry(&mut self, key: &str) -> Result<Option<Entry>, Infallible> {
        Ok(self.entries.get(key).cloned())
    }

    fn put_entry(&mut self, key: &str, row: &Entry) -> Result<(), Infallible> {
        self.entries.insert(key.to_owned(), row.clone());
        Ok(())
    }

    fn names(&mut self, prefix: &str) -> Result<Vec<String>, Infallible> {
        let keys = starting_with(&self.keys, prefix).map(|(name, _)| name);
        let entries = starting_with(&self.entries, prefix).map(|(name, _)| name);
        let names: BTreeSet<String> = keys.chain(entries).cloned().collect();
        Ok(names.into_iter().collect())
    }

    fn claimant(&mut self, owner: &str) -> Result<Option<Claimant>, Infallible> {
        Ok(self.claimants.get(owner).copied())
    }

    fn put_claimant(&mut self, owner: &str, row: Claimant) -> Result<(), Infallible> {
        self.claimants.insert(owner.to_owned(), row);
        Ok(())
    }

    fn over(&mut self, key: &str, owner: &str) -> Result<Option<NodeMs>, Infallible> {
        Ok(self.over.get(&(key.to_owned(), owner.to_owned())).copied())
    }

    fn put_over(&mut self, key: &str, owner: &str, until: NodeMs) -> Result<(), Infallible> {
        self.over.insert((key.to_owned(), owner.to_owned()), until);
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

    fn docs(&mut self, dir: &str) -> Result<Vec<(String, Stored)>, Infallible> {
        let docs = starting_with(&self.docs, dir).filter(|(name, _)| rules::directory(name) == dir);
        Ok(docs
            .map(|(name, row)| (name.clone(), row.clone()))
            .collect())
    }

    fn doc_names(
        &mut self,
        dir: &str,
        now: NodeMs,
        limit: usize,
    ) -> Result<Vec<(String, u64)>, Infallible> {
        let here =
            |(name, row): &(&String, &Stored)| rules::directory(name) == dir && now < row.until;
        let docs = starting_with(&self.docs, dir).filter(here).take(limit);
        Ok(docs.map(|(name, row)| (name.clone(), row.rev)).collect())
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
