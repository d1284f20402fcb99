//! From asking for a lock to holding it, or to knowing why not.

use std::time::Duration;

use futures_util::{TryFutureExt, future};
use watchkeeper::{
    Elector, Locks,
    clock::Moment,
    fleet::holding,
    fleet::status::HolderStatus,
    lease::Lease,
    lock::{LockError, LockState},
    node::NodeError,
    terminal,
    worker::store,
};

use super::{
    signals::{Heard, Signals},
    voice::Voice,
};

/// Nothing is said of a wait that is over so soon.
const SILENCE: Duration = Duration::from_secs(1);

/// Nodes get this long to answer also when the wait is shorter: connections have to be made first. And so long the
/// lock is tried for while it is free: several that try at once may get a node each.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// From the end of a node's watch to its first vote.
const SLACK: Duration = Duration::from_secs(3);

/// The shortest wait where the limit is not zero: without a wait an attempt sits out the time of a holder that has gone, for a
/// whole ttl of it.
pub(super) const BRIEFLY: Duration = Duration::from_millis(1);

/// Until nodes that have not told for which fleet they keep locks are asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Pauses between attempts that met no holder.
const RETRY: Duration = Duration::from_millis(40);

/// Why the lock is not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotHeld {
    /// Another process holds it, and the wait is over; which, where that process tells.
    Taken(Option<Box<HolderStatus>>),
    /// Its last holder has gone without releasing it, and must be watched for so much longer.
    Orphaned(Duration),
    /// Too few nodes answer.
    Unreachable(String),
    /// It cannot be had in this way at all.
    Impossible(String),
    /// We were told to end.
    Told(Heard),
}

/// What an attempt without success means, by what the nodes show afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// A majority shows one holder.
    Held,
    /// A majority answers, and it is free there: programs that tried stood in each other's way.
    Split,
    /// No majority answers.
    Silence,
}

/// Waits for the lock of `key`, which people know as `what`, as long as `limit` says, else as long as it takes.
/// Cancelled or not, a failure leaves nothing in the store, once it has settled.
pub(super) async fn acquire(
    locks: &Locks,
    key: &str,
    what: &str,
    limit: Option<Duration>,
    signals: &mut Signals,
    voice: Voice,
) -> Result<Lease, NotHeld> {
    let acquired = patiently(locks, key, what, limit, voice);
    until_told(where_nodes_fit(locks, acquired), signals).await
}

/// Stands by until this process leads what people know as `name`. Trouble with the store is waited out.
pub(super) async fn campaign(
    locks: &Locks,
    elector: &Elector,
    name: &str,
    signals: &mut Signals,
    voice: Voice,
) -> Result<Lease, NotHeld> {
    let led = async {
        let mut campaign = std::pin::pin!(elector.campaign_timed());
        let soon = locks.clock().timeout(SILENCE, &mut campaign).await;
        let elected = match soon {
            Ok(elected) => elected,
            Err(_) => {
                voice.mention(&format_args!("standing by for {name}"));
                campaign.await
            }
        };
        let elected = elected.map_err(|error| NotHeld::Impossible(error.to_string()))?;
        if let Some(leaderless) = elected.leaderless {
            let seconds = leaderless.as_secs_f64();
            voice.mention(&format_args!(
                "leading {name}, after {seconds:.3}s without a leader"
            ));
        }
        Ok(elected.term.into_lease())
    };
    until_told(where_nodes_fit(locks, led), signals).await
}

async fn until_told<T>(
    work: impl Future<Output = Result<T, NotHeld>>,
    signals: &mut Signals,
) -> Result<T, NotHeld> {
    tokio::select! {
        biased;
        heard = signals.next() => Err(NotHeld::Told(heard)),
        done = work => done,
    }
}

/// What `work` gets of nodes that fit: two addresses of one server would count twice towards the majority, and a fleet that is
/// configured differently would not be excluded. Its nodes give no vote to `work`, so what is had needs no second word of them.
async fn where_nodes_fit<T>(
    locks: &Locks,
    work: impl Future<Output = Result<T, NotHeld>>,
) -> Result<T, NotHeld> {
    let impossible = |error: watchkeeper::Error| NotHeld::Impossible(error.to_string());
    let twins = store::refuse_twins(locks).map_err(impossible);
    tokio::select! {
        biased;
        done = future::try_join(work, twins) => done.map(|(done, ())| done),
        error = strangers(locks) => Err(impossible(error)),
    }
}

/// Ends when a majority keeps locks for others: nodes that are slow to tell are asked until they have.
async fn strangers(locks: &Locks) -> watchkeeper::Error {
    loop {
        match store::refuse_strangers(locks).await {
            Ok(false) => locks.clock().sleep(ASK_AGAIN).await,
            Ok(true) => future::pending().await,
            Err(error) => return error,
        }
    }
}

async fn patiently(
    locks: &Locks,
    key: &str,
    what: &str,
    limit: Option<Duration>,
    voice: Voice,
) -> Result<Lease, NotHeld> {
    let clock = locks.clock();
    let start = clock.now();
    let given = start + limit.unwrap_or(Duration::MAX);
    let mut until = given;
    let timing = locks.timing();
    let watched = start + timing.watch_time(timing.max_ttl) + SLACK;
    let sits_out = limit.is_some_and(|limit| limit.is_zero());
    let mut ends = Ends {
        given,
        least: given.max(start + LEAST_PATIENCE),
        watched: sits_out.then_some(watched),
        forgotten: false,
    };
    let mut spoken = false;
    loop {
        let left = until.since(clock.now());
        let whole = spoken && until == given;
        let slice = slice(left, whole, sits_out);
        let error = match locks.lock_key(key).wait(slice).acquire().await {
            Ok(lease) => return Ok(lease),
            Err(LockError::Closed | LockError::TtlTooLong { .. }) => {
                return Err(NotHeld::Impossible("the lock service has ended".to_owned()));
            }
            Err(error) => error,
        };
        let patience;
        (until, patience) = ends.after(&error);
        let over = sits_out && is_held(&error, async || look(locks, key).await, locks.tag()).await;
        if clock.now() < until && !over {
            if !spoken {
                voice.mention(&format_args!("waiting for the {what}: {error}"));
            }
            spoken = true;
            continue;
        }
        let seen = look(locks, key).await;
        let judge = |seen| judge(seen, locks.tag());
        let verdict = match seen.as_ref().map_or(Verdict::Silence, judge) {
            // They answer, and do not vote: they have lost their memory, or cannot write. No process holds it, and none can.
            Verdict::Split if matches!(error, LockError::NoQuorum(_)) => Verdict::Silence,
            verdict => verdict,
        };
        if let Some(why) = give_up(verdict, clock.now(), patience) {
            return Err(match why {
                Verdict::Held | Verdict::Split => {
                    let gone = seen.as_ref().filter(|seen| seen.is_orphaned());
                    match gone.and_then(LockState::free_in) {
                        Some(rest) => NotHeld::Orphaned(rest),
                        None => NotHeld::Taken(by_whom(locks, seen.as_ref()).await),
                    }
                }
                Verdict::Silence => {
                    let mut why = nodes_in_trouble(locks, &error).await;
                    if forgetful(&error) && clock.now() < watched {
                        let all = watched.since(start).as_secs() + 1;
                        why += &format!(
                            "; the nodes are being admitted, and this wait was too short for it: wait for {all}s \
                             (--wait {all}s), or once with --wait 0s or `watchkeeper doctor --wait-admitted`, which wait \
                             for that"
                        );
                    }
                    NotHeld::Unreachable(why)
                }
            });
        }
        let pause = RETRY / 4 + locks.chance().up_to(RETRY);
        clock.sleep(pause).await;
    }
}

async fn look(locks: &Locks, key: &str) -> Option<LockState> {
    let seen = locks.look(vec![key.to_owned()]).await;
    seen.unwrap_or_default().into_iter().next()
}

/// Whether nodes vote, and show a holder that may live: a try waits no longer for what they may have forgotten. It may have been
/// this process alone, too, that did not know them yet.
async fn is_held(
    error: &LockError,
    look: impl AsyncFnOnce() -> Option<LockState>,
    tag: Option<&str>,
) -> bool {
    if !matches!(error, LockError::Held { .. }) {
        return false;
    }
    let seen = look().await;
    seen.is_some_and(|seen| seen.shows_life() && judge(&seen, tag) == Verdict::Held)
}

/// When a wait ends.
struct Ends {
    /// As the caller has said.
    given: Moment,
    /// So long nodes get to answer.
    least: Moment,
    /// Of a try. It waits for no holder, but for nodes that may have forgotten one: were it to give up, the next would begin anew.
    /// A caller with a limit is told instead.
    watched: Option<Moment>,
    /// Whether nodes were ever seen to have lost their memory.
    forgotten: bool,
}

impl Ends {
    /// When to try no more after this failure, and when to give up where it is not clear who holds the lock. An answer that comes late
    /// on a busy machine does not undo what an earlier one has told of lost memory.
    fn after(&mut self, error: &LockError) -> (Moment, Moment) {
        self.forgotten |= forgetful(error);
        match self.watched.filter(|_| self.forgotten) {
            Some(watched) => (watched, watched),
            None => (self.given, self.least),
        }
    }
}

/// How long one attempt may wait, where so much of the limit is left: `whole` when nothing is to be said meanwhile.
fn slice(left: Duration, whole: bool, sits_out: bool) -> Duration {
    let slice = if whole { left } else { left.min(SILENCE) };
    match sits_out {
        true => slice,
        // The limit may be over by now.
        false => slice.max(BRIEFLY),
    }
}

/// Who holds the lock, as far as the holder tells. The answer is not waited for.
async fn by_whom(locks: &Locks, seen: Option<&LockState>) -> Option<Box<HolderStatus>> {
    let owner = seen?.holder()?;
    let limit = locks.timing().node_timeout * 4;
    let told = locks
        .clock()
        .timeout(limit, holding::holder(locks, &owner))
        .await;
    told.ok().flatten().map(Box::new)
}

/// Whether a majority is missing only until nodes are admitted that have lost their memory, or are new.
fn forgetful(error: &LockError) -> bool {
    let LockError::NoQuorum(troubles) = error else {
        return false;
    };
    let returns = |trouble: &NodeError| matches!(trouble, NodeError::Unadmitted { .. });
    let (back, gone): (Vec<_>, Vec<_>) = troubles.nodes.iter().partition(|(_, why)| returns(why));
    !back.is_empty() && gone.len() + troubles.needed <= troubles.configured
}

/// Whether to give up after the wait, and why.
fn give_up(verdict: Verdict, now: Moment, patience: Moment) -> Option<Verdict> {
    (verdict == Verdict::Held || now >= patience).then_some(verdict)
}

/// `tag` is what our own values end with: of an attempt that was lost some nodes may have heard late, and not yet that it
/// was taken back.
fn judge(seen: &LockState, tag: Option<&str>) -> Verdict {
    let answered = seen.nodes.iter().filter(|node| node.is_ok()).count();
    let ours = |holder: &str| tag.is_some_and(|tag| holder.ends_with(tag));
    if seen.holder().is_some_and(|holder| !ours(&holder)) {
        Verdict::Held
    } else if answered > seen.nodes.len() / 2 {
        Verdict::Split
    } else {
        Verdict::Silence
    }
}

/// Which nodes do not answer, and why not.
async fn nodes_in_trouble(locks: &Locks, error: &LockError) -> String {
    let nodes = locks.nodes().await.unwrap_or_default();
    let silent = nodes
        .iter()
        .filter_map(|node| Some(format!("; {}: {}", node.name, node.trouble.as_ref()?)));
    let silent: Vec<String> = silent.collect();
    if silent.is_empty() {
        return error.to_string();
    }
    let (answer, all) = (nodes.len() - silent.len(), nodes.len());
    format!(
        "{answer} of {all} nodes answer, {} needed{}",
        all / 2 + 1,
        silent.concat()
    )
}

/// Which process holds the lock, in a sentence.
fn taken(what: &str, who: Option<&HolderStatus>) -> String {
    // What others wrote stays within it.
    let who = who.map(|who| terminal::cell(&who.to_string()));
    let who = who.as_deref().unwrap_or("another process");
    format!("the {what} is held by {who}; nothing was run")
}

// === impl NotHeld ===

impl NotHeld {
    /// Says why, and answers with the exit status. `not_held` is that of a lock which another process holds; `told`, that
    /// of an end by signal.
    pub(super) fn tell(&self, what: &str, voice: Voice, not_held: u8, told: fn(Heard) -> u8) -> u8 {
        match self {
            Self::Taken(who) => {
                voice.mention(&taken(what, who.as_deref()));
                not_held
            }
            Self::Orphaned(rest) => {
                let seconds = rest.as_secs() + 1;
                voice.mention(&format_args!(
                    "the {what} was not released by its last holder, who has gone: a process that watches it for another \
                     {seconds}s gets it (--wait {seconds}s or more, or 0s, which waits for that); nothing was run"
                ));
                not_held
            }
            Self::Unreachable(why) => voice.fail(&format_args!(
                "the {what} cannot be had: {why}; the command was not started"
            )),
            Self::Impossible(why) => {
                voice.fail(&format_args!("{why}; the command was not started"))
            }
            Self::Told(heard) => told(*heard),
        }
    }
}

#[cfg(test)]
mod tests {
    use watchkeeper::node::View;

    use super::*;

    fn seen(holders: [Result<Option<&str>, ()>; 3]) -> LockState {
        let node = |holder: Result<Option<&str>, ()>| match holder {
            Ok(holder) => Ok(View {
                holder: holder.map(str::to_owned),
                remaining_ms: holder.map(|_| 500),
                ..View::default()
            }),
            Err(()) => Err(NodeError::Unreachable("test".to_owned())),
        };
        LockState::new("k", holders.map(node).into())
    }

    #[test]
    fn only_a_holder_on_a_majority_ends_a_try_at_once() {
        let held = [Ok(Some("a")), Ok(Some("a")), Err(())];
        assert_eq!(judge(&seen(held), Some(".tag")), Verdict::Held);
        let late = [Ok(Some("x.tag")), Ok(Some("x.tag")), Ok(Some("a"))];
        assert_eq!(judge(&seen(late), Some(".tag")), Verdict::Split, "our own");
        for split in [
            [Ok(Some("a")), Ok(Some("b")), Ok(Some("c"))],
            [Ok(None), Ok(Some("b")), Err(())],
            [Ok(None); 3],
        ] {
            assert_eq!(judge(&seen(split), None), Verdict::Split);
        }
        assert_eq!(
            judge(&seen([Ok(Some("a")), Err(()), Err(())]), None),
            Verdict::Silence
        );
    }

    #[test]
    fn a_node_gets_a_moment_to_answer_also_without_a_wait() {
        let (now, patience) = (Moment::ZERO, Moment::ZERO + LEAST_PATIENCE);
        assert_eq!(give_up(Verdict::Held, now, patience), Some(Verdict::Held));
        assert_eq!(give_up(Verdict::Split, now, patience), None);
        assert_eq!(give_up(Verdict::Silence, now, patience), None);
        assert_eq!(
            give_up(Verdict::Silence, patience, patience),
            Some(Verdict::Silence)
        );
    }

    #[test]
    fn a_limit_that_is_over_does_not_sit_out_a_holder_that_has_gone() {
        let hour = Duration::from_secs(3600);
        for whole in [false, true] {
            assert!(!slice(Duration::ZERO, whole, false).is_zero());
            assert!(slice(Duration::ZERO, whole, true).is_zero());
        }
        assert_eq!(slice(hour, false, false), SILENCE);
        assert_eq!(slice(hour, true, false), hour);
    }

    #[test]
    fn a_longer_wait_is_advised_only_where_it_would_help() {
        use watchkeeper::lock::NodeTroubles;
        let lost = NodeError::Unadmitted { left: None };
        let silent = NodeError::Unreachable("test".to_owned());
        let other = NodeError::Configured {
            differs: "test".to_owned(),
        };
        let helps = |troubles: &[&NodeError]| {
            let node = |why: &&NodeError| ("n".to_owned(), (*why).clone());
            forgetful(&LockError::NoQuorum(NodeTroubles {
                nodes: troubles.iter().map(node).collect(),
                configured: 3,
                needed: 2,
            }))
        };
        assert!(helps(&[&lost, &lost, &lost]) && helps(&[&lost, &lost, &other]));
        assert!(helps(&[&lost, &silent]));
        assert!(!helps(&[&lost, &other, &other]) && !helps(&[&silent, &silent]));
    }

    #[test]
    fn a_late_answer_does_not_end_a_try_that_sits_out_lost_memory() {
        use watchkeeper::lock::NodeTroubles;
        let failed = |why: NodeError| {
            LockError::NoQuorum(NodeTroubles {
                nodes: vec![("n".to_owned(), why)],
                configured: 1,
                needed: 1,
            })
        };
        let at = |secs| Moment::ZERO + Duration::from_secs(secs);
        let mut ends = Ends {
            given: at(0),
            least: at(1),
            watched: Some(at(2)),
            forgotten: false,
        };
        let late = failed(NodeError::Unreachable("no answer in time".to_owned()));
        assert_eq!(ends.after(&late), (at(0), at(1)));
        let lost = failed(NodeError::Unadmitted { left: None });
        assert_eq!(ends.after(&lost), (at(2), at(2)));
        assert_eq!(ends.after(&late), (at(2), at(2)));
        // A caller with a limit is told.
        ends.watched = None;
        assert_eq!(ends.after(&lost), (at(0), at(1)));
    }

    #[tokio::test]
    async fn a_try_that_waits_for_forgetful_nodes_waits_for_no_holder() {
        let by = |holder: Option<&'static str>| seen([Ok(holder), Ok(holder), Err(())]);
        let over = async |error: &LockError, shown| is_held(error, async || shown, None).await;
        let held = LockError::Held {
            by: Some("a".to_owned()),
            for_at_most: None,
        };
        assert!(over(&held, Some(by(Some("a")))).await);
        assert!(!over(&held, Some(by(None))).await, "it may have gone");
        assert!(!over(&held, None).await);
        // What does not vote says nothing of a holder.
        assert!(!over(&LockError::TooSlow, Some(by(Some("a")))).await);
    }

    #[test]
    fn the_holder_of_a_lock_commands_no_terminal() {
        let own = |text: &str| text.to_owned();
        for hostile in [
            "a\u{1b}[2J\u{9b}31m",
            "a\nb\u{202e}",
            "\u{2028}\u{e0041}\u{ad}",
        ] {
            for command in [None, Some(own(hostile))] {
                let who = HolderStatus {
                    id: own(hostile),
                    name: own(hostile),
                    host: own(hostile),
                    command,
                    ..HolderStatus::default()
                };
                let said = taken("lock x", Some(&who));
                assert_eq!(terminal::line(&said), said);
                assert!(said.starts_with("the lock x is held by "), "{said}");
                assert!(said.ends_with("; nothing was run"), "{said}");
            }
        }
        assert_eq!(
            taken("lock x", None),
            "the lock x is held by another process; nothing was run"
        );
    }
}
