//! What the process asks of its keeper, and the reports that it gets.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use tokio::sync::oneshot;

use crate::{
    admission::AdmissionReport,
    expiry::LockState,
    lease::LeaseView,
    node::{Doc, Life, NodeError, View},
    quorum::{BreakReport, LockError, WriteError},
};

/// What the process asks of its keeper.
pub(crate) enum Command {
    Look {
        keys: Vec<String>,
        reply: oneshot::Sender<Vec<LockState>>,
    },
    List {
        prefix: String,
        reply: oneshot::Sender<Result<Vec<Vec<View>>, LockError>>,
    },
    Break {
        key: String,
        owner: String,
        now: bool,
        reply: oneshot::Sender<BreakReport>,
    },
    Write {
        view: LeaseView,
        body: String,
        not_before: Option<i64>,
        reply: oneshot::Sender<Result<(), WriteError>>,
    },
    PutDoc {
        name: String,
        rev: u64,
        ttl: Duration,
        body: String,
        reply: oneshot::Sender<Result<usize, LockError>>,
    },
    TouchDocs {
        docs: Vec<(String, u64)>,
        ttl: Duration,
        reply: oneshot::Sender<Result<Vec<usize>, LockError>>,
    },
    Living {
        dir: String,
        life: Range<Duration>,
        known: Lives,
        reply: oneshot::Sender<Result<Lives, LockError>>,
    },
    RemoveDoc {
        name: String,
        reply: oneshot::Sender<Result<(), LockError>>,
    },
    Docs {
        which: Which,
        reply: oneshot::Sender<Result<DocsRead, LockError>>,
    },
    Nodes {
        reply: oneshot::Sender<Vec<NodeReport>>,
    },
    Admissions {
        reply: oneshot::Sender<Vec<AdmissionReport>>,
    },
    Identities {
        reply: oneshot::Sender<Vec<Option<String>>>,
    },
    Endless {
        reply: oneshot::Sender<Vec<Result<Vec<String>, NodeError>>>,
    },
    Settle {
        reply: oneshot::Sender<()>,
    },
}

/// Which documents are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// All of a directory.
    Directory(String),
    /// Those without their bodies.
    Names(String),
    /// The one of this name.
    One(String),
}

/// Documents as the nodes that answered show them.
#[doc(hidden)] // for the worker
#[derive(Clone, Debug, Default)]
pub struct DocsRead {
    /// The newest revision of each, and how many nodes show that one.
    pub docs: Vec<(Doc, usize)>,
    /// How many nodes answered.
    pub answered: usize,
}

/// Which documents of a directory live, as each node has told last: what has not changed is not told again.
#[doc(hidden)] // for the worker
#[derive(Clone, Debug, Default)]
pub struct Lives {
    /// By node; `None` where it has not answered.
    pub(super) nodes: Vec<Option<LiveDocs>>,
}

/// What one node has told of a directory.
#[derive(Clone, Debug)]
pub(super) struct LiveDocs {
    /// Over the revisions of all that live there.
    pub(super) sum: u64,
    /// None of them where their names are forgotten.
    pub(super) docs: Vec<Life>,
}

impl Lives {
    /// The newest revision of each, and how much longer it lived when that was told.
    #[must_use]
    pub fn newest(&self) -> BTreeMap<&str, (u64, Duration)> {
        let mut newest: BTreeMap<&str, (u64, Duration)> = BTreeMap::new();
        for life in self.nodes.iter().flatten().flat_map(|told| &told.docs) {
            let told = (life.rev, Duration::from_millis(life.left_ms));
            let known = newest.entry(&life.name).or_insert(told);
            *known = (*known).max(told);
        }
        newest
    }

    /// The names are forgotten, and what they came to is not: the next look names the documents of those nodes where they come
    /// to something else.
    pub fn forget_names(&mut self) {
        for told in self.nodes.iter_mut().flatten() {
            told.docs = Vec::new();
        }
    }

    /// Nothing of it is taken as known at the next look: every name is told, and how long it lives.
    pub fn forget(&mut self) {
        self.nodes.clear();
    }
}

/// How one node does, as its keeper sees it.
#[doc(hidden)] // for the worker and the commands
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// The node's name.
    pub name: String,
    /// Why it does not answer, or does not vote; `None` while it does both.
    pub trouble: Option<NodeError>,
    /// Whether it answers, whether it votes or not.
    pub answers: bool,
    /// Round trip of the last call that it answered.
    pub round_trip: Option<Duration>,
    /// How far its wall clock is ahead of this machine's, in milliseconds; `None` before it has answered lately.
    pub ahead_ms: Option<i64>,
    /// While this process watches it on its way back to its vote: the nomination that is watched, and how much longer.
    pub watched: Option<(String, Duration)>,
}
