//! Locks that nothing will release, or may not. Pure: two looks a few seconds apart in, what is left behind out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::locks::{LockDetail, LockState};

/// A lock that nothing will release, or may not, as `locks --leaked` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// The lock.
    pub key: String,
    /// What kind of leak.
    pub kind: LeakKind,
    /// Whose value or record it is.
    pub owner: String,
    /// The nodes that show it.
    pub nodes: Vec<String>,
    /// When it ends by itself; `null` when it does not.
    pub remaining_ms: Option<u64>,
    /// What it means.
    pub finding: String,
    /// What to do about it.
    pub remedy: String,
}

/// How a lock can be left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LeakKind {
    /// A key of ours without a time to live.
    Endless,
    /// A foreign key without a time to live.
    ForeignEndless,
    /// A job's lock whose holder is no living replica, and which is not extended.
    NoReplica,
    /// A lock of a program, of which nothing tells whether it lives; it was not extended while it was watched.
    UnknownHolder,
    /// A value that stands on a minority only.
    Minority,
    /// A record whose holder has gone without releasing; the lock is free, or will be when that holder was watched for its ttl.
    Unreleased,
}

/// Whether a second look, after a while, would tell more of this lock: a presence document is written a moment after
/// a lock is taken, and a holder that extends its lock lives.
#[must_use]
pub(crate) fn wants_second_look(lock: &LockDetail) -> bool {
    lock.state == LockState::Minority || lock.is_held() && lock.holder.is_none()
}

/// Which locks nothing will release, or may not: what stood in `then` and stands `now`, a few seconds later.
#[must_use]
pub(crate) fn leaks(then: &[LockDetail], now: &[LockDetail]) -> Vec<Leak> {
    let earlier: BTreeMap<&str, &LockDetail> = then.iter().map(|d| (d.key.as_str(), d)).collect();
    let mut found: Vec<Leak> = now
        .iter()
        .flat_map(|lock| leaks_of(lock, earlier.get(lock.key.as_str()).copied()))
        .collect();
    found.sort_by(|a, b| (a.kind, &a.key).cmp(&(b.kind, &b.key)));
    found
}

fn leaks_of(lock: &LockDetail, then: Option<&LockDetail>) -> Vec<Leak> {
    let mut found = Vec::new();
    let leak = |kind, owner: &str, nodes, remaining_ms, finding: String, remedy: String| Leak {
        key: lock.key.clone(),
        kind,
        owner: owner.to_owned(),
        nodes,
        remaining_ms,
        finding,
        remedy,
    };
    let mut endless: BTreeMap<(&str, bool), Vec<String>> = BTreeMap::new();
    for node in lock.by_node.iter().filter(|n| n.endless) {
        let owner = node.holder.as_deref().unwrap_or_default();
        let nodes = endless.entry((owner, node.foreign)).or_default();
        nodes.push(node.node.clone());
    }
    for ((owner, foreign), nodes) in endless {
        let on = nodes.join(", ");
        found.push(if foreign {
            leak(
                LeakKind::ForeignEndless,
                owner,
                nodes,
                None,
                format!("a foreign value without a time to live stands on {on}: it never ends"),
                "find the program that wrote it; it is waited for, and never taken by us: when that program has gone, \
                 remove the key by hand with DEL"
                    .to_owned(),
            )
        } else {
            leak(
                LeakKind::Endless,
                owner,
                nodes,
                None,
                format!("the key has no time to live on {on}: it outlives its holder"),
                format!("watchkeeper locks break {} --owner {}", word(&lock.key), word(owner)),
            )
        });
    }
    let owner = lock.owner.as_deref().unwrap_or_default();
    if lock.state == LockState::Orphaned {
        found.push(leak(
            LeakKind::Unreleased,
            owner,
            lock.showing(|n| n.stands() == Some(owner)),
            lock.remaining_ms,
            format!(
                "its holder, under token {}, shows no life on a majority, and never released it",
                lock.token
            ),
            "nothing to do: the next candidate watches for the holder's ttl, and takes the lock over if the holder is dead"
                .to_owned(),
        ));
        return found;
    }
    let stays = then.is_none_or(|then| then.owner == lock.owner && !lock.extended_since(then));
    let nodes = lock.showing(|n| n.holder.as_deref() == Some(owner));
    let ends = lock
        .remaining_ms
        .map(|ms| format!("it ends by itself in {}", span(ms)));
    let Some(ends) = ends else {
        if lock.state == LockState::Unreleased {
            found.push(leak(
                LeakKind::Unreleased,
                owner,
                lock.showing(|n| n.owner.as_deref() == Some(owner)),
                None,
                format!("its last holder, under token {}, went without releasing it; no process holds it", lock.token),
                "nothing to do: the next holder takes it over; the record stays, so that tokens go on growing"
                    .to_owned(),
            ));
        }
        return found;
    };
    let force = format!(
        "{ends}; sooner: watchkeeper locks break {}",
        word(&lock.key)
    );
    let (kind, finding, remedy) = match lock.state {
        LockState::Minority if stays => (
            LeakKind::Minority,
            format!(
                "it stands on {} of {} nodes only: an attempt or a dead holder left it, and it excludes no candidate",
                lock.nodes, lock.configured
            ),
            ends,
        ),
        LockState::Held if lock.holder.is_some() || !stays => return found,
        LockState::Held if lock.key.starts_with("job/") => (
            LeakKind::NoReplica,
            "no running replica says that it holds it, and it is not extended: its holder is dead or frozen".to_owned(),
            force,
        ),
        LockState::Held => (
            LeakKind::UnknownHolder,
            "unknown holder: no program says that it holds it, and it was not extended while it was watched".to_owned(),
            force,
        ),
        _ => return found,
    };
    found.push(leak(kind, owner, nodes, lock.remaining_ms, finding, remedy));
    found
}

/// As one word of a shell: the remedies are there to be copied, and any program may have chosen the names.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// `2.5 s`
fn span(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}

#[cfg(test)]
pub(super) mod tests {
    use super::{
        super::locks::tests::{detail, free, ours},
        *,
    };
    use crate::node::View;

    pub(in crate::fleet::status) fn kinds(then: &LockDetail, now: &LockDetail) -> Vec<LeakKind> {
        let found = leaks(std::slice::from_ref(then), std::slice::from_ref(now));
        found.into_iter().map(|leak| leak.kind).collect()
    }

    #[test]
    fn a_remedy_can_be_copied_whatever_the_name() {
        assert_eq!(word("job/nightly-report"), "job/nightly-report");
        assert_eq!(word("x; rm -rf ~"), "'x; rm -rf ~'");
        assert_eq!(word("it's"), "'it'\\''s'");
    }

    #[test]
    fn whoever_extends_a_lock_lives() {
        let held = |seq, ms| {
            detail(
                "job/x",
                [ours("o", seq, Some(ms)), ours("o", seq, Some(ms)), free()],
            )
        };
        assert!(wants_second_look(&held(1, 900)));
        assert_eq!(kinds(&held(1, 900), &held(1, 400)), [LeakKind::NoReplica]);
        assert_eq!(kinds(&held(1, 900), &held(2, 950)), []);
        let held = |ms| {
            detail(
                "lock/x",
                [ours("o", 1, Some(ms)), ours("o", 1, Some(ms)), free()],
            )
        };
        let found = leaks(&[held(900)], &[held(400)]);
        assert_eq!(found[0].kind, LeakKind::UnknownHolder);
        assert!(found[0].remedy.contains("in 0.4 s"), "{}", found[0].remedy);
    }

    #[test]
    fn a_key_without_end_names_the_break_that_ends_it() {
        let lock = detail(
            "lock/x",
            [ours("o", 1, None), ours("o", 1, Some(9)), free()],
        );
        let found = leaks(&[], &[lock]);
        let endless: Vec<_> = found
            .iter()
            .filter(|l| l.kind == LeakKind::Endless)
            .collect();
        assert_eq!(endless[0].nodes, ["a"]);
        assert!(endless[0].remedy.ends_with("locks break lock/x --owner o"));
    }

    #[test]
    fn leftovers_and_old_records_are_told_apart() {
        let left = detail("job/x", [ours("o", 1, Some(900)), free(), free()]);
        assert_eq!(kinds(&left, &left), [LeakKind::Minority]);
        let record = ours("o", 1, None).map(|view| View {
            holder: None,
            ..view
        });
        let gone = detail("job/x", [record, free(), free()]);
        assert_eq!(gone.state, LockState::Unreleased);
        assert_eq!(kinds(&gone, &gone), [LeakKind::Unreleased]);
    }
}
