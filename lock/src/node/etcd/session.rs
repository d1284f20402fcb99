//! How a call becomes reads at one revision and a transaction that compares.

use std::{sync::Arc, time::Duration};

use tracing::debug;

use super::{
    allowance::longer,
    clean,
    error::Trouble,
    parts::parts,
    shared::Shared,
    view::{Reads, Unreadable, View},
    wire::{Compare, Done, Is, Range, Step, Target, Txn},
};
use crate::{
    clock::Moment,
    node::{
        Answer, Call, NodeError, NodeMs, Op, Refusal, Reply, announce,
        rules::{self, Gate, Guarded},
        sheet::{Sheet, Wanted},
    },
};

/// Reads of one call at most: each brings what the one before has missed.
const MOST_READS: usize = 1_000;
/// How often a call is tried while others are faster each time.
const TRIES: u32 = 24;
/// Those who want the same spread over as much more with each try.
const SPREAD: Duration = Duration::from_millis(2);

/// What is known from one call to the next.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The cluster that was met; none before the first answer, and after trouble.
    pub(super) cluster: Option<String>,
    clean_at: Option<Moment>,
}

/// Executes a call: as a whole, or, where it is large, in parts one after the other.
pub(super) async fn call(
    session: &mut Session,
    shared: &Arc<Shared>,
    call: &Call,
) -> Result<Reply, NodeError> {
    if let Some(why) = shared.furthest.gone() {
        return Err(NodeError::Gone(why.to_owned()));
    }
    let limit = shared.settings.node_timeout;
    // The first answer may take longer than that of a call.
    if let Err(why) = session.ready(shared).await {
        debug!(node = %shared.name, cause = why.cause(), %why, "not ready");
        return Err(why);
    }
    let executing = session.execute(shared, call);
    // What is under way has limits of its own.
    let done = shared.clock.timeout(limit * 8, executing).await;
    let done = done.unwrap_or(Err(NodeError::Timeout(limit)));
    if let Err(why) = &done {
        debug!(node = %shared.name, cause = why.cause(), %why, "call failed");
        // Its first key may be gone, or the members may be others.
        if !matches!(
            why,
            NodeError::Late { .. } | NodeError::Refused { .. } | NodeError::Protocol(_)
        ) {
            session.cluster = None;
        }
    }
    done
}

impl Session {
    /// Sees to it that the first key stands, and that this is no other node's cluster. Says which it is.
    pub(super) async fn ready(&mut self, shared: &Shared) -> Result<&str, NodeError> {
        if self.cluster.is_none() {
            // The first of all may wait for a connection, for TLS and for a login.
            let limit = shared.patience();
            // What is too old may take what is asked for something else.
            shared.client.is_new_enough(limit).await?;
            let look = Txn {
                success: vec![Step::Range(Range {
                    key: shared.keys.node(),
                    ..Range::default()
                })],
                ..Txn::default()
            };
            let mut done = shared.client.ask_txn(&look, limit).await?;
            // Nothing is written into a cluster that is not ours.
            let mut cluster = shared.met(&done)?;
            // A full store refuses whatever might write.
            let stands = |done: &Done| {
                let found = done.responses.first();
                found
                    .and_then(|one| one.response_range.as_ref())
                    .is_some_and(|r| !r.kvs.is_empty())
            };
            if !stands(&done) {
                let first = Txn {
                    compare: vec![Compare {
                        key: shared.keys.node(),
                        target: Target::Mod,
                        result: Is::Equal,
                        mod_revision: 0,
                    }],
                    success: vec![Step::Put(shared.keys.first_node(done.header.revision))],
                    ..Txn::default()
                };
                // Made twice it is made once.
                done = shared.client.ask_txn(&first, limit).await?;
                cluster = shared.met(&done)?;
            }
            if let Some((servers, place)) = shared.joined.get()
                && let Err(twin) = servers.reached(*place, &shared.name, &cluster)
            {
                return Err(NodeError::Refused {
                    refusal: Refusal::Twin,
                    said: format!("it is the cluster of {twin}, too"),
                });
            }
            self.cluster = Some(cluster);
        }
        Ok(self.cluster.as_deref().unwrap_or_default())
    }

    async fn execute(&mut self, shared: &Arc<Shared>, call: &Call) -> Result<Reply, NodeError> {
        let cluster = self.cluster.clone().unwrap_or_default();
        let parts = parts(call);
        let mut whole: Option<Reply> = None;
        for part in parts {
            let done = step(shared, &cluster, &part).await;
            let Some(reply) = &mut whole else {
                whole = Some(done?);
                continue;
            };
            match done {
                Ok(next) if next.eligibility == reply.eligibility => {
                    reply.answers.extend(next.answers);
                }
                // What was executed counts for another state than this one.
                Ok(_) | Err(NodeError::Timeout(_)) => {
                    return Err(NodeError::Timeout(shared.settings.node_timeout));
                }
                Err(why) => {
                    let failed = part.ops.iter().map(|_| Answer::Failed(why.clone()));
                    reply.answers.extend(failed);
                }
            }
        }
        let reply =
            whole.ok_or_else(|| NodeError::Protocol("a call without operations".to_owned()))?;
        let now = shared.clock.now();
        match self.clean_at {
            Some(at) if now < at => {}
            Some(_) => {
                self.clean_at = Some(now + clean::EVERY);
                let now = u64::try_from(reply.wall_ms).unwrap_or(0);
                clean::soon(shared, NodeMs(now));
            }
            None => self.clean_at = Some(now + clean::EVERY),
        }
        Ok(reply)
    }
}

/// Executes a part of a call as one step.
async fn step(shared: &Shared, cluster: &str, call: &Call) -> Result<Reply, NodeError> {
    let wanted = Wanted::by(call);
    let looks = call.ops.iter().all(rules::only_looks);
    // What the transaction has found in the place of what it compared.
    let mut found = None;
    let mut left = shared.client.members();
    for tries in 0..TRIES {
        let reads = Reads::first(wanted.clone());
        let (done, floor) = match found.take() {
            Some(found) => found,
            None => {
                // Before anything is asked: what is seen meanwhile says nothing of what this one is told.
                let floor = shared.furthest.so_far();
                (read(shared, &reads, 0).await?, floor)
            }
        };
        let decided = decide(shared, (cluster, call), reads, done, floor.as_ref()).await?;
        let Decided {
            reply,
            mut sheet,
            view,
            gate,
        } = decided;
        if looks {
            return Ok(reply);
        }
        let news = sheet.take_announced();
        let news = (!news.is_empty()).then(|| announce::written(&news));
        let changes = sheet.changes();
        let writes = !changes.is_empty() || gate.is_some() || news.is_some();
        if !writes && !promises(call, &reply) {
            return Ok(reply);
        }
        let (compare, mut success) = shared.keys.write(&view, &changes, gate, news);
        // Where that is little, what is read again comes with the refusal.
        let mut failure = match wanted.only_locks() {
            true => shared.keys.steps(&Reads::first(wanted.clone()), 0),
            false => Vec::new(),
        };
        let brings = !failure.is_empty();
        if !writes {
            // What was found is compared by a majority. Not by comparing alone: etcd answers that by a read.
            success.clear();
            failure.push(shared.keys.writes_nothing());
        }
        let txn = Txn {
            compare,
            success,
            failure,
        };
        let floor = shared.furthest.so_far();
        // It may have taken its time to decide.
        rules::admit(since_boot(shared), call)?;
        let done = match shared.commit(&txn).await {
            Ok(done) => done,
            // Nothing has left, and another member may serve.
            Err(Trouble::Elsewhere(_)) if left > 0 => {
                left -= 1;
                continue;
            }
            Err(trouble) => return Err(trouble.error()),
        };
        // What was decided on one memory counts for nothing in another. It is written there all the same.
        let same = match done.life() == cluster {
            true => not_from_before(shared, &done, floor.as_ref()).await,
            false => Err(another(shared, &done)),
        };
        match same {
            Ok(()) => {}
            Err(why @ NodeError::Gone(_)) => return Err(why),
            Err(_) if done.succeeded => {
                return Err(NodeError::Timeout(shared.settings.node_timeout));
            }
            Err(why) => return Err(why),
        }
        if done.succeeded {
            shared.furthest.has_seen(cluster, done.revision());
            return Ok(reply);
        }
        // The first time that is enough. Where many want the same they spread, and look again.
        match tries {
            0 if brings => found = Some((done, floor)),
            0 => {}
            _ => {
                let pause = shared.chance.up_to(SPREAD * tries.min(10));
                shared.clock.sleep(pause).await;
            }
        }
    }
    Err(NodeError::Unfit("others were faster each time".to_owned()))
}

/// Whether an answer grants or vouches for something.
fn promises(call: &Call, reply: &Reply) -> bool {
    let mut both = call.ops.iter().zip(&reply.answers);
    both.any(|(op, answer)| match op {
        Op::Acquire { .. } => matches!(answer, Answer::Granted { .. }),
        Op::Extend { .. } => matches!(answer, Answer::Kept { .. } | Answer::Healed { .. }),
        Op::Confirm { .. } | Op::Write { .. } => matches!(answer, Answer::Done),
        _ => false,
    })
}

struct Decided {
    reply: Reply,
    sheet: Sheet,
    view: View,
    gate: Option<String>,
}

/// What becomes of the call, by the rules. Reads what they miss, at the revision of the first read.
async fn decide(
    shared: &Shared,
    (cluster, call): (&str, &Call),
    mut reads: Reads,
    mut done: Done,
    floor: Option<&(String, u64)>,
) -> Result<Decided, NodeError> {
    let unreadable = |Unreadable(why)| NodeError::Protocol(why);
    let mut sheet = Sheet::default();
    let mut view = View::at(done.header.revision);
    if done.life() != cluster {
        return Err(another(shared, &done));
    }
    not_from_before(shared, &done, floor).await?;
    let reached = done.revision();
    let at = since_boot(shared);
    rules::admit(at, call)?;
    // A call is executed at one instant: that of its first look.
    let civil = shared.client.civil_ms(done.member);
    let (wall_ms, more) = civil.ok_or_else(|| {
        let member = shared.client.name_of(done.member);
        NodeError::Unfit(format!("{member}: its answers bear no date"))
    })?;
    let now = NodeMs(u64::try_from(wall_ms).unwrap_or(0));
    let call = &longer(call, more);
    let goes_through = call
        .ops
        .iter()
        .any(|op| matches!(op, Op::Records { .. } | Op::Sweep { .. } | Op::Docs { .. }));
    for _ in 0..MOST_READS {
        let answers = done.found();
        shared
            .keys
            .fill(&mut sheet, &mut view, &reads, &answers)
            .map_err(unreadable)?;
        let Some(head) = &view.head else {
            return Err(NodeError::Unfit(
                "the first key of its namespace was deleted".to_owned(),
            ));
        };
        if !head.is_known() {
            return Err(match head.layout {
                Some(layout) => NodeError::Unfit(format!(
                    "its keys are of layout {layout}, which this program does not know: use the version that wrote them, or give this \
                     one a namespace of its own and carry the ledgers over (`watchkeeper move --out FILE` of that version, `move --in \
                     FILE` of this one)"
                )),
                None => NodeError::Refused {
                    refusal: Refusal::WrongType,
                    said: format!("the key {} makes no sense", shared.keys.node_name()),
                },
            });
        }
        // Another cluster, or keys that were made again: what was granted before is not known here.
        let incarnation = format!("{cluster}/{}", head.made);
        sheet.begin_again();
        sheet.set_read_forgotten(head.forgotten(view.revision));
        let stood = Gate::read(&head.gate);
        let mut gate = stood.clone();
        let guarded = shared.compared.with().map(|(config, guarded)| Guarded {
            incarnation: if guarded { &incarnation } else { "" },
            config,
        });
        let executed = match guarded {
            Some(_) => rules::execute_guarded(&mut sheet, (&mut gate, guarded), now, wall_ms, call),
            None => rules::execute(&mut sheet, now, wall_ms, call),
        };
        match executed {
            Ok(reply) => {
                shared.furthest.has_seen(cluster, reached);
                return Ok(Decided {
                    reply: Reply { at, ..reply },
                    gate: (gate != stood).then(|| gate.written()),
                    sheet,
                    view,
                });
            }
            Err(missing) => reads = Reads::missed(missing, goes_through),
        }
        done = read(shared, &reads, view.revision).await?;
        if done.life() != cluster {
            return Err(another(shared, &done));
        }
    }
    Err(NodeError::Protocol("it has no end".to_owned()))
}

/// Not the cluster that was asked.
fn another(shared: &Shared, done: &Done) -> NodeError {
    let member = shared.client.name_of(done.member);
    NodeError::Unfit(format!("{member}: another cluster answers"))
}

/// Reads at one revision: the present one of the whole cluster, as no read is `serializable`, or that of an earlier read.
async fn read(shared: &Shared, reads: &Reads, at: i64) -> Result<Done, NodeError> {
    let txn = Txn {
        success: shared.keys.steps(reads, at),
        ..Txn::default()
    };
    let limit = shared.settings.node_timeout;
    shared.client.ask_txn(&txn, limit).await
}

/// A memory that ends before what was seen of it is a copy from before, once its members say so together: one alone that has stood
/// still may answer from before, too.
async fn not_from_before(
    shared: &Shared,
    done: &Done,
    floor: Option<&(String, u64)>,
) -> Result<(), NodeError> {
    let behind = |done: &Done| {
        floor.is_some_and(|(of, floor)| *of == done.life() && done.revision() < *floor)
    };
    if !behind(done) {
        return Ok(());
    }
    // A majority must agree on what might write, also where its condition cannot hold: no key has such a revision.
    let together = Txn {
        compare: vec![Compare {
            key: shared.keys.node(),
            target: Target::Mod,
            result: Is::Equal,
            mod_revision: -1,
        }],
        success: vec![Step::Put(shared.keys.sweep(NodeMs(0)))],
        ..Txn::default()
    };
    let limit = shared.settings.node_timeout;
    let told = shared.client.ask_txn(&together, limit).await?;
    if !behind(&told) {
        shared.client.leave(done.member);
        let member = shared.client.name_of(done.member);
        let why = format!("{member}: a member answered from before");
        return Err(NodeError::Unfit(why));
    }
    let floor = floor.map_or(0, |(_, floor)| *floor);
    let why = format!(
        "the cluster was restored from a copy from before (its revision is {}, {floor} was seen)",
        told.header.revision
    );
    Err(NodeError::Gone(shared.furthest.is_gone(why).to_owned()))
}

/// It is this process that acts: a call is too late by its clock.
fn since_boot(shared: &Shared) -> NodeMs {
    let since = shared.clock.now().since_boot().as_millis();
    NodeMs(u64::try_from(since).unwrap_or(u64::MAX))
}
