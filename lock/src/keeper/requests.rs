//! What the keeper does for others, one short task per request.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    ops::Range,
    time::Duration,
};

use futures_util::StreamExt;
use tokio::sync::oneshot;

use super::{
    command::{Command, DocsRead, LiveDocs, Lives, NodeReport, Which},
    shared::Shared,
};
use crate::{
    admission,
    admission::{AdmissionReport, AdmissionState, Membership},
    backoff::Backoff,
    expiry::LockState,
    lease::LeaseView,
    node::{
        Admission, Answer, Cursor, Doc, NodeError, Op, Record, Token, Version, View, gather,
        rules::{DOUBTED, LAST},
        sum_of,
    },
    quorum::{
        BreakReport, BreakVote, LockError, NodeTroubles, WriteError,
        link::Link,
        tally::{Ballot, RoundResult, majority, round_result},
    },
    settings::FleetConfig,
};

/// How much of a node's memory is listed at once: the server does nothing else meanwhile.
const LISTED: u32 = 500;

/// The same of documents with their bodies.
const READ: u32 = 100;

/// So much of what the nodes list is put together at once: this thread has leases to renew.
const TOGETHER: usize = 500;

/// In so many parts at most a directory is compared in which something has changed.
const MOST_PARTS: usize = 64;

/// Documents that are touched in one call.
const TOUCHED: usize = 250;

/// What callers have begun is waited for so long at most, in node timeouts: an attempt and a release take a quarter of it.
const LONGEST_BUSY: u32 = 40;

impl Shared {
    /// Each kind of request has a box of its own: a thousand candidates ask at a time, and none needs room for the largest.
    pub(super) async fn serve(self, command: Command) {
        // A caller that has gone needs no answer; a lease that it did not take is released by its drop.
        match command {
            Command::Look { keys, reply } => Box::pin(self.look_together(keys, reply)).await,
            Command::List { prefix, reply } => answer(reply, Box::pin(self.list(prefix))).await,
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
            Command::TouchDocs { docs, ttl, reply } => {
                drop(reply.send(Box::pin(self.touch_docs(docs, ttl)).await));
            }
            Command::Living {
                dir,
                life,
                known,
                reply,
            } => drop(reply.send(Box::pin(self.living(&dir, life, known)).await)),
            Command::RemoveDoc { name, reply } => {
                let told = Box::pin(self.anywhere(Op::RemoveDoc { name })).await;
                drop(reply.send(told.map(drop)));
            }
            Command::Docs { which, reply } => answer(reply, Box::pin(self.docs(which))).await,
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
                let settled = async {
                    loop {
                        self.cluster.settled().await;
                        // A lease that was not taken is on its way back to the keeper: let it begin the release.
                        tokio::task::yield_now().await;
                        tokio::task::yield_now().await;
                        if self.cluster.is_settled() {
                            break;
                        }
                    }
                };
                // A caller may hold on to an attempt without looking at it: it is not waited for as long as it likes.
                let limit = self.cluster.timing.node_timeout * LONGEST_BUSY;
                let _ = self.cluster.clock.timeout(limit, settled).await;
                let _ = reply.send(());
            }
        }
    }

    /// One number for all nodes, above every token they show, so that the next acquisition needs no second round.
    ///
    /// With `now` the release follows when no acquire of the lease can act any more, a ttl after the last node was told (B6). By
    /// then it could land where another client has taken the lock and left, and the next round would count it.
    async fn break_lease(&self, key: String, owner: String, now: bool) -> BreakReport {
        let cluster = &self.cluster;
        let seen = self.look(vec![key.clone()]).await;
        let largest = seen.first().map(LockState::token).unwrap_or_default();
        // Another's break may have no room above it.
        let mut token = Token(largest.0 + 1).min(LAST);
        let longest = seen.first().and_then(|seen| seen.ttl_of(&owner));
        let ttl = longest.unwrap_or(cluster.timing.max_ttl);
        let op = |token, now| Op::Break {
            key: key.clone(),
            owner: owner.clone(),
            token,
            ttl,
            marked: cluster.timing.marked(),
            retention: cluster.timing.retention_of(&key),
            now,
        };
        let mut nodes = self.break_round(op(token, false)).await;
        // What the look has not shown, because a node was silent for a moment: a receiver that is told the token is to refuse that holder.
        if let Some(above) = told_by(&nodes).filter(|above| *above >= token) {
            token = Token(above.0.saturating_add(1)).min(LAST);
            let again = self.break_round(op(token, false)).await;
            for ((_, before), (_, now)) in nodes.iter_mut().zip(again) {
                // What was told once stays so.
                if matches!(now, BreakVote::Over(_)) || !matches!(before, BreakVote::Over(_)) {
                    *before = now;
                }
            }
        }
        let mut report = BreakReport {
            key: key.clone(),
            owner: owner.clone(),
            token,
            expiry: cluster.expiry,
            nodes,
            released: None,
        };
        if now && report.is_told() {
            let longest = report.ttl().map_or(ttl, |told| told.max(ttl));
            #[cfg(any(test, feature = "testing"))]
            let longest = match cluster.mutant.break_now {
                true => Duration::ZERO,
                false => longest,
            };
            let over = cluster.clock.now() + cluster.timing.watch_time(longest);
            cluster.clock.sleep_until(over).await;
            report.released = Some(self.break_round(op(token, true)).await);
        }
        report
    }

    /// Each node's name and answer.
    async fn break_round(&self, op: Op) -> Vec<(String, BreakVote)> {
        let answers = self.ask_all(vec![op]).await;
        let votes = answers.into_iter().enumerate().map(|(node, result)| {
            let answers = match result {
                Ok(answers) => answers,
                Err(trouble) => return BreakVote::Failed(trouble),
            };
            match answers.into_iter().next() {
                Some(Answer::Broken(view)) => BreakVote::Over(view),
                Some(Answer::Refused(view)) => BreakVote::Refused(view),
                // B3: its mark would be of an incarnation that will not count.
                Some(Answer::Unadmitted) => BreakVote::Failed(self.cluster.no_vote(node)),
                Some(Answer::Failed(trouble)) => BreakVote::Failed(trouble),
                other => {
                    BreakVote::Failed(NodeError::Protocol(format!("answer to break: {other:?}")))
                }
            }
        });
        let names = self.cluster.links.iter().map(|link| link.name().to_owned());
        names.zip(votes).collect()
    }

    async fn list(&self, prefix: String) -> Result<Vec<Vec<View>>, LockError> {
        let links = &self.cluster.links;
        let asked = links.iter().map(|link| list_all(link, &prefix));
        let asked = futures_util::future::join_all(asked).await;
        let mut by_key: BTreeMap<String, Vec<View>> = BTreeMap::new();
        let mut failed = Vec::new();
        for (link, shown) in links.iter().zip(asked) {
            match shown {
                Ok(views) => {
                    for (n, (key, view)) in views.into_iter().enumerate() {
                        let_others_go_first(n).await;
                        by_key.entry(key).or_default().push(view);
                    }
                }
                Err(trouble) => failed.push((link.name().to_owned(), trouble)),
            }
        }
        if failed.len() == links.len() {
            return Err(LockError::NoQuorum(self.troubles(failed)));
        }
        Ok(by_key.into_values().collect())
    }

    async fn docs(&self, which: Which) -> Result<DocsRead, LockError> {
        let links = &self.cluster.links;
        let asked = links.iter().map(|link| docs_of(link, &which));
        let asked = futures_util::future::join_all(asked).await;
        let mut newest: BTreeMap<String, (Doc, usize)> = BTreeMap::new();
        let (mut answered, mut failed) = (0, Vec::new());
        for (link, docs) in links.iter().zip(asked) {
            let docs = match docs {
                Ok(docs) => docs,
                Err(trouble) => {
                    failed.push((link.name().to_owned(), trouble));
                    continue;
                }
            };
            answered += 1;
            for (n, doc) in docs.into_iter().enumerate() {
                let_others_go_first(n).await;
                match newest.get_mut(&doc.name) {
                    Some((known, _)) if known.rev > doc.rev => {}
                    Some((known, shown)) if known.rev == doc.rev => *shown += 1,
                    _ => drop(newest.insert(doc.name.clone(), (doc, 1))),
                }
            }
        }
        if answered == 0 {
            return Err(LockError::NoQuorum(self.troubles(failed)));
        }
        Ok(DocsRead {
            docs: newest.into_values().collect(),
            answered,
        })
    }

    /// Which of these do not stand on a node that has answered.
    async fn touch_docs(
        &self,
        docs: Vec<(String, u64)>,
        ttl: Duration,
    ) -> Result<Vec<usize>, LockError> {
        let mut missing = BTreeSet::new();
        for (page, some) in docs.chunks(TOUCHED).enumerate() {
            let touch = |(name, rev): &(String, u64)| Op::TouchDoc {
                name: name.clone(),
                rev: *rev,
                ttl,
            };
            let (mut answered, mut failed) = (false, Vec::new());
            let results = self.ask_all(some.iter().map(touch).collect()).await;
            for (result, link) in results.into_iter().zip(&self.cluster.links) {
                let answers = match result {
                    Ok(answers) => answers,
                    Err(trouble) => {
                        failed.push((link.name().to_owned(), trouble));
                        continue;
                    }
                };
                answered = true;
                let lacks = |(_, answer): &(usize, Answer)| *answer != Answer::Done;
                let lacking = answers.into_iter().enumerate().filter(lacks);
                missing.extend(lacking.map(|(n, _)| page * TOUCHED + n));
            }
            if !answered {
                return Err(LockError::NoQuorum(self.troubles(failed)));
            }
        }
        Ok(missing.into_iter().collect())
    }

    async fn living(
        &self,
        dir: &str,
        life: Range<Duration>,
        mut known: Lives,
    ) -> Result<Lives, LockError> {
        let links = &self.cluster.links;
        known.nodes.resize(links.len(), None);
        let asked = links
            .iter()
            .zip(&mut known.nodes)
            .map(async |(link, known)| {
                let told = who_lives(link, dir, &life, known.take()).await;
                told.map(|told| *known = Some(told))
                    .map_err(|trouble| (link.name().to_owned(), trouble))
            });
        let answers = futures_util::future::join_all(asked).await;
        let failed = answers.into_iter().filter_map(Result::err).collect();
        match known.nodes.iter().any(Option::is_some) {
            true => Ok(known),
            false => Err(LockError::NoQuorum(self.troubles(failed))),
        }
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
        let shown: Vec<_> = asked
            .into_iter()
            .map(|result| match result?.into_iter().next() {
                Some(Answer::Admission(shown)) => Ok(shown),
                other => {
                    let why = format!("answer to admission: {other:?}");
                    Err(NodeError::Protocol(why))
                }
            })
            .collect();
        let fleet = self.guard.as_ref().map(|guard| &guard.fleet);
        let names = self
            .cluster
            .links
            .iter()
            .map(Link::name)
            .collect::<Vec<_>>();
        let known: Vec<_> = shown
            .iter()
            .map(|shown| shown.as_ref().ok().cloned())
            .collect();
        let memberships = fleet.map(|fleet| admission::memberships(&names, &known, fleet));
        let limit = fleet.map_or(self.cluster.timing.max_ttl, FleetConfig::watched);
        let at_most = self.cluster.timing.watch_time(limit);
        let report = |(node, (link, shown)): (usize, (&Link, Result<Admission, NodeError>))| {
            let (state, memory_loss, nomination) = match shown {
                Ok(shown) => {
                    let membership = memberships.as_ref().and_then(|all| all.get(node).cloned());
                    let own = AdmissionState::of(&shown, fleet, link.counts_in(), at_most);
                    let state = match membership.unwrap_or(Membership::Own) {
                        Membership::Own => own,
                        Membership::Elsewhere => match own {
                            AdmissionState::Admitted => AdmissionState::Elsewhere,
                            // Not by programs that were given these addresses.
                            AdmissionState::Watched { .. } => {
                                AdmissionState::Watched { left: None }
                            }
                            own => own,
                        },
                        Membership::Other { differs } => AdmissionState::Configured { differs },
                        Membership::Waits { waits_for } => match own {
                            AdmissionState::Admitted | AdmissionState::Watched { .. } => {
                                AdmissionState::Waits { waits_for }
                            }
                            own => own,
                        },
                    };
                    (state, shown.memory_loss, shown.nonce)
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
        self.cluster
            .links
            .iter()
            .zip(shown)
            .enumerate()
            .map(report)
            .collect()
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

    pub(super) fn troubles(&self, nodes: Vec<(String, NodeError)>) -> NodeTroubles {
        let configured = self.cluster.links.len();
        NodeTroubles {
            nodes,
            configured,
            needed: majority(configured),
        }
    }
}

/// Asks on for as long as the caller waits for the answer: a list of much is not read to its end for one that has gone.
async fn answer<T>(mut reply: oneshot::Sender<T>, asked: impl Future<Output = T>) {
    tokio::select! {
        biased;
        () = reply.closed() => {}
        found = asked => drop(reply.send(found)),
    }
}

/// Lets others of this thread do their part between two parts of what one list comes to.
async fn let_others_go_first(n: usize) {
    if n % TOGETHER == TOGETHER - 1 {
        tokio::task::yield_now().await;
    }
}

/// All that one node lists, page by page. What comes or goes meanwhile may be on two pages; the last one counts.
async fn list_all(link: &Link, prefix: &str) -> Result<BTreeMap<String, View>, NodeError> {
    let mut all = BTreeMap::new();
    let mut next = Some(Cursor::default());
    while let Some(from) = next {
        let op = Op::List {
            prefix: prefix.to_owned(),
            from,
            count: LISTED,
        };
        next = match link.send(vec![op]).await?.into_iter().next() {
            Some(Answer::Page(page)) => {
                all.extend(page.views.into_iter().map(|view| (view.key.clone(), view)));
                page.next
            }
            other => return Err(NodeError::Protocol(format!("answer to list: {other:?}"))),
        };
    }
    Ok(all)
}

/// What one node shows of documents, page by page.
async fn docs_of(link: &Link, which: &Which) -> Result<Vec<Doc>, NodeError> {
    let (mut all, mut next) = (BTreeMap::new(), Some(Cursor::default()));
    while let Some(from) = next.take() {
        let op = match which {
            Which::One(name) => Op::Doc { name: name.clone() },
            Which::Names(dir) => Op::DocNames {
                dir: dir.clone(),
                from,
                count: LISTED,
            },
            Which::Directory(dir) => Op::Docs {
                dir: dir.clone(),
                from,
                count: READ,
            },
        };
        match link.send(vec![op]).await?.into_iter().next() {
            Some(Answer::Docs(docs)) => gather(&mut all, docs),
            Some(Answer::Page(page)) => {
                gather(&mut all, page.docs);
                next = page.next;
                for name in page.large {
                    match link.send(vec![Op::Doc { name }]).await?.into_iter().next() {
                        Some(Answer::Docs(docs)) => gather(&mut all, docs),
                        other => return Err(no_docs(&other)),
                    }
                }
            }
            other => return Err(no_docs(&other)),
        }
    }
    Ok(all.into_values().collect())
}

/// Which documents of a directory live on one node, after what was known of it: names of those parts alone in which anything has
/// changed, or of all where it has told others than are known.
async fn who_lives(
    link: &Link,
    dir: &str,
    life: &Range<Duration>,
    known: Option<LiveDocs>,
) -> Result<LiveDocs, NodeError> {
    let ask = async |known: Vec<u64>| {
        let op = Op::Living {
            dir: dir.to_owned(),
            least: life.start,
            most: life.end,
            known,
        };
        match link.send(vec![op]).await?.into_iter().next() {
            Some(Answer::Lives { sum, parts, docs }) => Ok((parts, LiveDocs { sum, docs })),
            other => Err(no_docs(&other)),
        }
    };
    let Some(mut known) = known else {
        return ask(Vec::new()).await.map(|(_, told)| told);
    };
    if ask(vec![known.sum]).await?.1.sum == known.sum {
        return Ok(known);
    }
    if sum_of(known.docs.iter().map(|life| life.rev)) != known.sum {
        return ask(Vec::new()).await.map(|(_, told)| told);
    }
    let of = (known.docs.len() / 4)
        .next_power_of_two()
        .clamp(2, MOST_PARTS) as u64;
    let sum_in = |part| {
        let revisions = known.docs.iter().map(|life| life.rev);
        sum_of(revisions.filter(|rev| rev % of == part))
    };
    let (parts, told) = ask((0..of).map(sum_in).collect()).await?;
    known.docs.retain(|life| !parts.contains(&(life.rev % of)));
    known.docs.extend(told.docs);
    known.sum = told.sum;
    Ok(known)
}

fn no_docs(answer: &Option<Answer>) -> NodeError {
    match answer {
        Some(Answer::Failed(trouble)) => trouble.clone(),
        other => NodeError::Protocol(format!("answer to documents: {other:?}")),
    }
}

fn millis(d: Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX)
}

/// The largest token that these nodes have told of the lease that was broken. One that is out of range counts where most of them tell such.
fn told_by(nodes: &[(String, BreakVote)]) -> Option<Token> {
    let tokens = || {
        nodes.iter().filter_map(|(_, vote)| match vote {
            BreakVote::Over(view) => Some(view.token),
            _ => None,
        })
    };
    let doubted = tokens().filter(|token| *token >= DOUBTED).count();
    let believed = doubted >= majority(nodes.len());
    tokens().filter(|token| believed || *token < DOUBTED).max()
}
