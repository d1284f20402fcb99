//! What the keeper does for others, one short task per request.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::StreamExt;
use tokio::sync::oneshot;

use super::{
    command::{Command, DocsRead, NodeReport},
    lease_table::next_renewal,
    shared::Shared,
};
use crate::{
    admission::{AdmissionReport, AdmissionState},
    backoff::Backoff,
    clock::Moment,
    event::Event,
    expiry::LockState,
    lease::{Lease, LeaseView, NewLease},
    node::{Answer, Doc, NodeError, Op, Record, Token, Version, View},
    quorum::{
        BreakReport, BreakVote, Claim, Claimed, LockError, NodeTroubles, WriteError,
        claim::{Attempt, AttemptMode, Gone, QueuePosition, Tried, Win},
        link::{Link, MOST_OPS},
        tally::{Ballot, RoundResult, majority, round_result},
    },
};

impl Shared {
    /// Each kind of request has a box of its own: a thousand candidates ask at a time, and none needs room for the largest.
    pub(super) async fn serve(self, command: Command) {
        // A caller that has gone needs no answer; a lease that it did not take is released by its drop.
        match command {
            Command::Acquire { claims, reply } => {
                // A lease that is not taken any more is released: the end of the process waits for that as well.
                let _busy = self.cluster.busy();
                drop(reply.send(Box::pin(self.acquire(&claims)).await));
            }
            Command::Try { claim, mode, reply } => {
                // Its place may have been given up before this was read: to try now would take it again.
                if reply.is_closed() {
                    return;
                }
                let _busy = self.cluster.busy();
                let gone = || reply.is_closed();
                let tried = Box::pin(self.try_once(&claim, &mode, &gone)).await;
                drop(reply.send(tried));
            }
            Command::Look { keys, reply } => Box::pin(self.look_together(keys, reply)).await,
            Command::List { prefix, reply } => drop(reply.send(Box::pin(self.list(prefix)).await)),
            Command::Break {
                key,
                owner,
                now,
                reply,
            } => drop(reply.send(Box::pin(self.break_lease(key, owner, now)).await)),
            Command::Write {
                view,
                body,
                not_before,
                reply,
            } => {
                Box::pin(self.write(view, body, not_before, reply)).await;
            }
            Command::PutDoc {
                name,
                rev,
                ttl,
                body,
                reply,
            } => {
                let op = Op::PutDoc {
                    name,
                    rev,
                    ttl,
                    body,
                };
                let told = Box::pin(self.anywhere(op)).await;
                drop(reply.send(told.map(|answers| answers.len())));
            }
            Command::RemoveDoc { name, reply } => {
                let told = Box::pin(self.anywhere(Op::RemoveDoc { name })).await;
                drop(reply.send(told.map(drop)));
            }
            Command::Docs { which, reply } => drop(reply.send(Box::pin(self.docs(which)).await)),
            Command::Nodes { reply } => drop(reply.send(self.nodes())),
            Command::Admissions { reply } => drop(reply.send(Box::pin(self.admissions()).await)),
            Command::Identities { reply } => {
                let links = &self.cluster.links;
                let asked = links.iter().map(|link| link.node().identity());
                drop(reply.send(futures_util::future::join_all(asked).await));
            }
            Command::Endless { reply } => {
                let links = &self.cluster.links;
                let asked = links.iter().map(|link| link.node().endless());
                drop(reply.send(futures_util::future::join_all(asked).await));
            }
            Command::Settle { reply } => {
                // Whatever was handed back before this request is being released by now.
                self.ring();
                loop {
                    self.cluster.settled().await;
                    // A lease that was not taken is on its way back to the keeper: let it begin the release.
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                    if *self.cluster.busy.borrow() == 0 {
                        break;
                    }
                }
                let _ = reply.send(());
            }
        }
    }

    async fn acquire(&self, claims: &[Claim]) -> Vec<Claimed> {
        let cluster = &self.cluster;
        let start = cluster.clock.now();
        // A lock that is named twice is held by its first claim: one attempt has one owner value, so that the nodes
        // would grant it to both.
        let mut named = BTreeSet::new();
        let (mut once, mut first) = (Vec::new(), Vec::new());
        for claim in claims {
            first.push(named.insert(&claim.key));
            if first.last() == Some(&true) {
                once.push(claim.clone());
            }
        }
        // An owner value and a call for as many as fit into one: a node remembers one grant per owner of claims, and what
        // came with a later call would be held under a number that others have passed by then.
        let mode = AttemptMode::default();
        let parts = once
            .chunks(MOST_OPS)
            .map(|part| cluster.attempt(part, &mode, &|| false));
        let parts = futures_util::future::join_all(parts).await;
        let mut attempts = parts.into_iter().flatten();
        let claimed = claims.iter().zip(first).map(|(claim, first)| {
            let tried = if first { attempts.next() } else { None };
            let attempt = tried.map_or(
                Attempt::Held {
                    by: None,
                    for_at_most: None,
                },
                |tried| tried.attempt,
            );
            self.claimed(claim, attempt, start)
        });
        claimed.collect()
    }

    async fn try_once(
        &self,
        claim: &Claim,
        mode: &AttemptMode,
        gone: Gone<'_>,
    ) -> (Claimed, LockState, QueuePosition) {
        let start = self.cluster.clock.now();
        let claims = std::slice::from_ref(claim);
        let tried = self.cluster.attempt(claims, mode, gone).await;
        // A caller that went during the attempt has given up its place, but a node may have been down then.
        if let Some(ticket) = mode.ticket.as_ref().filter(|_| gone()) {
            self.leave(claim.key.clone(), ticket.id.clone());
        }
        match tried.into_iter().next() {
            Some(Tried {
                attempt,
                mut seen,
                position,
            }) => {
                seen.vacant_since = self.watchlist.vacant_since(&claim.key);
                let claimed = self.claimed(claim, attempt, start);
                if let (Claimed::Acquired(lease), true) = (&claimed, mode.ticket.is_some()) {
                    lease.view().came_from_queue();
                }
                (claimed, seen, position)
            }
            None => (
                Claimed::TooSlow,
                LockState::new(claim.key.clone(), Vec::new()),
                QueuePosition::default(),
            ),
        }
    }

    fn claimed(&self, claim: &Claim, attempt: Attempt, start: Moment) -> Claimed {
        let outcome = match &attempt {
            Attempt::Won(_) => "acquired",
            Attempt::Held { .. } => "held",
            Attempt::NoQuorum(_) => "no_quorum",
            Attempt::TooSlow => "too_slow",
        };
        let took = self.cluster.clock.now().since(start);
        let resource = self.cluster.events.resource(&claim.key);
        self.cluster.events.tell(Event::Acquire {
            resource,
            outcome,
            took,
        });
        match attempt {
            Attempt::Won(win) => self.won(claim, win, start),
            Attempt::Held { by, for_at_most } => Claimed::Held { by, for_at_most },
            Attempt::NoQuorum(nodes) => Claimed::NoQuorum(self.troubles(nodes)),
            Attempt::TooSlow => Claimed::TooSlow,
        }
    }

    fn won(&self, claim: &Claim, win: Win, start: Moment) -> Claimed {
        let cluster = &self.cluster;
        let ttl = claim.ttl_or(&cluster.timing);
        let new = NewLease {
            key: claim.key.clone(),
            owner: win.owner,
            token: win.token,
            kind: claim.kind,
            ttl,
            valid_until: win.valid_until,
            margin: cluster.margin(win.kept),
        };
        let view = LeaseView::new(new, cluster.clock.clone(), self.handle(ttl));
        let early = cluster.chance.up_to(cluster.timing.renew_early(ttl));
        let renew_at = next_renewal(start, ttl, &cluster.timing, early);
        self.table()
            .adopt(view.clone(), win.record.clone(), renew_at);
        self.watchlist.taken(&claim.key, view.owner());
        self.ring();
        Claimed::Acquired(Lease::new(view, win.record))
    }

    /// One number for all nodes, above every token they show, so that the next acquisition needs no second round.
    async fn break_lease(&self, key: String, owner: String, now: bool) -> BreakReport {
        let seen = self.look(vec![key.clone()]).await;
        let largest = seen.first().map(LockState::token).unwrap_or_default();
        let (timing, links) = (&self.cluster.timing, &self.cluster.links);
        let token = Token(largest.0 + 1);
        let answers = self.ask_all(vec![Op::Break {
            key: key.clone(),
            owner: owner.clone(),
            token,
            ttl: timing.max_ttl,
            retention: timing.retention_of(&key),
            now,
        }]);
        let answers = answers.await.into_iter().map(|result| match result {
            Ok(answers) => match answers.into_iter().next() {
                Some(Answer::Broken(view)) => BreakVote::Over(view),
                Some(Answer::Refused(view)) => BreakVote::Refused(view),
                other => {
                    BreakVote::Failed(NodeError::Protocol(format!("answer to break: {other:?}")))
                }
            },
            Err(trouble) => BreakVote::Failed(trouble),
        });
        let names = links.iter().map(|link| link.name().to_owned());
        BreakReport {
            key,
            owner,
            token,
            expiry: self.cluster.expiry,
            nodes: names.zip(answers).collect(),
        }
    }

    async fn list(&self, prefix: String) -> Result<Vec<Vec<View>>, LockError> {
        let answers = self.anywhere(Op::List { prefix }).await?;
        let mut by_key: BTreeMap<String, Vec<View>> = BTreeMap::new();
        for answer in answers {
            if let Answer::Views(views) = answer {
                for view in views {
                    by_key.entry(view.key.clone()).or_default().push(view);
                }
            }
        }
        Ok(by_key.into_values().collect())
    }

    async fn docs(&self, which: Op) -> Result<DocsRead, LockError> {
        let answers = self.anywhere(which).await?;
        let answered = answers.len();
        let mut newest: BTreeMap<String, (Doc, usize)> = BTreeMap::new();
        for answer in answers {
            let Answer::Docs(docs) = answer else { continue };
            for doc in docs {
                match newest.get_mut(&doc.name) {
                    Some((known, _)) if known.rev > doc.rev => {}
                    Some((known, shown)) if known.rev == doc.rev => *shown += 1,
                    _ => drop(newest.insert(doc.name.clone(), (doc, 1))),
                }
            }
        }
        Ok(DocsRead {
            docs: newest.into_values().collect(),
            answered,
        })
    }

    fn nodes(&self) -> Vec<NodeReport> {
        let report = |link: &Link| NodeReport {
            name: link.name().to_owned(),
            trouble: link.trouble().or_else(|| link.no_vote()),
            answers: link.trouble().is_none(),
            round_trip: link.last_round_trip(),
            ahead_ms: link.ahead_ms(),
            watched: link.watched(),
        };
        self.cluster.links.iter().map(report).collect()
    }

    /// Asks all nodes whether they vote.
    async fn admissions(&self) -> Vec<AdmissionReport> {
        let asked = self.ask_all(vec![Op::Admission]).await;
        let guard = self.guard.as_ref();
        let links = self.cluster.links.iter().zip(asked);
        let report = |(link, result): (&Link, Result<Vec<Answer>, NodeError>)| {
            let shown = result.map(|answers| answers.into_iter().next());
            let (state, memory_loss, nomination) = match shown {
                Ok(Some(Answer::Admission(shown))) => {
                    let fleet = guard.map(|guard| &guard.fleet);
                    let limit = fleet.map_or(self.cluster.timing.max_ttl, |fleet| fleet.max_ttl);
                    let at_most = self.cluster.timing.watch_time(limit);
                    let state = AdmissionState::of(&shown, fleet, link.counts_in(), at_most);
                    (state, shown.memory_loss, shown.nonce)
                }
                Ok(other) => {
                    let why = NodeError::Protocol(format!("answer to admission: {other:?}"));
                    (AdmissionState::Silent(why), None, None)
                }
                Err(trouble) => (AdmissionState::Silent(trouble), None, None),
            };
            AdmissionReport {
                name: link.name().to_owned(),
                state,
                memory_loss,
                nomination,
            }
        };
        links.map(report).collect()
    }

    /// Writes a record's body on q nodes, again and again while the lease is held.
    async fn write(
        &self,
        view: LeaseView,
        body: String,
        not_before: Option<i64>,
        mut reply: oneshot::Sender<Result<(), WriteError>>,
    ) {
        let version = match self.table().find(&view) {
            Some(held) => {
                held.rev += 1;
                Version {
                    token: view.token(),
                    rev: held.rev,
                }
            }
            None => {
                let loss = view.loss().unwrap_or(crate::lease::Loss::Released);
                drop(reply.send(Err(WriteError::Lost(loss))));
                return;
            }
        };
        let cluster = &self.cluster;
        let op = Op::Write {
            key: view.key().to_owned(),
            owner: view.owner().to_owned(),
            version,
            body: body.clone(),
            not_before: not_before.map(|ms| ms - millis(cluster.timing.skew)),
            expiry: cluster.expiry_of(view.kind()),
        };
        let mut backoff = Backoff::new(Duration::from_millis(5), cluster.timing.node_timeout * 2);
        let result = loop {
            if let Some(loss) = view.loss() {
                break Err(WriteError::Lost(loss));
            }
            match self.write_round(&op, not_before).await {
                // The end check: what q nodes took counts only while the lease is held.
                Ok(RoundResult::Carried) if view.is_held() => {
                    if let Some(held) = self.table().find(&view)
                        && held.record.version < version
                    {
                        held.record = Record { version, body };
                    }
                    break Ok(());
                }
                Err(early) => break Err(early),
                Ok(_) => {}
            }
            let pause = backoff.next(&cluster.chance);
            tokio::select! {
                biased;
                () = reply.closed() => return,
                _ = view.lost() => {}
                () = cluster.clock.sleep(pause) => {}
            }
        };
        drop(reply.send(result));
    }

    async fn write_round(
        &self,
        op: &Op,
        not_before: Option<i64>,
    ) -> Result<RoundResult, WriteError> {
        let mut ballots = vec![Ballot::Open; self.cluster.links.len()];
        let mut early = Vec::new();
        let mut sent = self.cluster.send_to_all(std::slice::from_ref(op));
        while round_result(&ballots) == RoundResult::Open {
            let Some((node, result)) = sent.next().await else {
                break;
            };
            ballots[node] = match result.as_ref().map(|answers| answers.first()) {
                Ok(Some(Answer::Done)) => Ballot::Yes,
                Ok(Some(Answer::TooEarly { wall_ms })) => {
                    early.push(not_before.unwrap_or(0) - wall_ms);
                    Ballot::No
                }
                Ok(Some(Answer::Refused(_))) => Ballot::No,
                Ok(_) | Err(_) => Ballot::Failed,
            };
        }
        if early.len() >= majority(ballots.len()) {
            early.sort_unstable();
            let ahead = early.get(early.len() / 2).copied().unwrap_or(0);
            let ahead = Duration::from_millis(u64::try_from(ahead).unwrap_or(0));
            return Err(WriteError::TooEarly { ahead });
        }
        Ok(round_result(&ballots))
    }

    /// Asks all nodes and waits for all of them, each at most its timeout.
    async fn ask_all(&self, ops: Vec<Op>) -> Vec<Result<Vec<Answer>, NodeError>> {
        let unanswered = || Err(NodeError::Timeout(self.cluster.timing.node_timeout));
        let mut results: Vec<_> = self.cluster.links.iter().map(|_| unanswered()).collect();
        let mut sent = self.cluster.send_to_all(&ops);
        while let Some((node, result)) = sent.next().await {
            results[node] = result;
        }
        results
    }

    /// One operation on all nodes; an answer of any node will do.
    async fn anywhere(&self, op: Op) -> Result<Vec<Answer>, LockError> {
        let results = self.ask_all(vec![op]).await;
        let mut answers = Vec::new();
        let mut failed = Vec::new();
        for (result, link) in results.into_iter().zip(&self.cluster.links) {
            match result {
                Ok(some) => answers.extend(some),
                Err(trouble) => failed.push((link.name().to_owned(), trouble)),
            }
        }
        if answers.is_empty() {
            Err(LockError::NoQuorum(self.troubles(failed)))
        } else {
            Ok(answers)
        }
    }

    fn troubles(&self, nodes: Vec<(String, NodeError)>) -> NodeTroubles {
        let configured = self.cluster.links.len();
        NodeTroubles {
            nodes,
            configured,
            needed: majority(configured),
        }
    }
}

fn millis(d: Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX)
}
