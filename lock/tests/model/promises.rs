//! What must be true in every state, whatever happens next.

use crate::{
    node::{Expiry, Law, Mark, Node, Owner, client_of},
    rules::Rule,
    world::{Bounds, Phase, World},
};

/// The promise that this state breaks, if any.
pub(crate) fn check<const N: usize>(bounds: &Bounds, w: &World<N>) -> Option<&'static str> {
    if bounds.free && !is_free(&bounds.law, w) {
        return Some("a released lock is not free");
    }
    if bounds.wakes && (0..bounds.clients).any(|c| is_lost(w, c)) {
        return Some("a wake-up was lost");
    }
    if w.silent > bounds.silence && bounds.silence > 0 && is_barred(bounds, w) {
        return Some("an orphan bars the lock for too long");
    }
    bounds.liveness.then(|| quiet(bounds, w)).flatten()
}

/// Do so many nodes let a newcomer in that knows nothing, but for the leases of others that are not over?
fn is_free<const N: usize>(law: &Law, w: &World<N>) -> bool {
    let over = |own: Owner| w.clients[client_of(own)].free & 1 << (own & 3) != 0;
    let barred = |n: &&Node| law.stands(n) && over(n.own);
    N - w.nodes.iter().filter(barred).count() >= World::<N>::QUORUM
}

/// Would a newcomer be refused that has watched for as long as there was to see?
fn is_barred<const N: usize>(bounds: &Bounds, w: &World<N>) -> bool {
    let ripe = |n: &Node| match bounds.law.expiry {
        Expiry::Server => n.left == 0,
        Expiry::Observed => n.age >= bounds.law.ttl_of(n.own),
    };
    let open = |n: &&Node| n.admitted && (!n.is_taken() || ripe(n));
    w.nodes.iter().filter(open).count() < World::<N>::QUORUM
}

/// Does this client sleep although the lock is free, all others rest, and nothing is left that would tell it?
fn is_lost<const N: usize>(w: &World<N>, c: usize) -> bool {
    let k = &w.clients[c];
    if k.phase != Phase::Sleeping || k.called || k.crashed {
        return false;
    }
    let open = |n: &&Node| n.admitted && !n.is_taken();
    let rests = w.clients.iter().all(|k| k.rests());
    // The release of one that has not crashed is still to come.
    let owed = |n: &Node| n.is_taken() && !w.clients[client_of(n.own)].crashed;
    let free = w.nodes.iter().filter(open).count() >= World::<N>::QUORUM;
    free && rests && !w.nodes.iter().any(owed)
}

/// What is wrong with the wait that this state imposes on a newcomer once all others are dead, if anything.
fn quiet<const N: usize>(bounds: &Bounds, w: &World<N>) -> Option<&'static str> {
    let has = |rule| bounds.law.has(rule);
    let count = |barred: &dyn Fn(&&Node) -> bool| N - w.nodes.iter().filter(barred).count();
    let observed = bounds.law.expiry == Expiry::Observed;
    // N10: the first refusal cuts what would outlive every lease.
    let stays = |n: &Node| n.left.max(n.px) > bounds.law.longest() && !has(Rule::N10Clamp);
    // Whatever stands, stands still: a ttl later all of it was watched or has ended, and every node is admitted.
    let never = |n: &&Node| {
        n.is_taken() && (n.mark == Mark::Broken && !has(Rule::B5Taken) || !observed && stays(n))
    };
    if count(&never) < World::<N>::QUORUM {
        return Some("stuck: all others are dead for a ttl, and still a newcomer cannot acquire");
    }
    let ready = w.nodes.iter().filter(|n| n.admitted).count() >= World::<N>::QUORUM;
    if !observed {
        return None;
    }
    let taken = |n: &&Node| n.is_taken();
    // One that tries once sits out what no majority shows any more; it leaves where a holder seems to live.
    let lives = |n: &&Node| n.is_taken() && stays(n);
    if ready && count(&lives) < World::<N>::QUORUM {
        return Some("stuck: a client that tries once and leaves never acquires");
    }
    if ready && count(&taken) < World::<N>::QUORUM && !has(Rule::O4SitOut) {
        return Some("stuck: a client that tries once and leaves never acquires");
    }
    // All give up, and one node hears of each release: the others are taken by those who have seen it there.
    let told = usize::from(!has(Rule::O2KnownOver));
    let unknown = w.nodes.iter().filter(taken).count().saturating_sub(1) * told;
    if ready && N - unknown < World::<N>::QUORUM {
        return Some("slow: a release that was seen on another node still makes others wait");
    }
    None
}

/// Words for what a node shows.
pub(crate) fn shows(law: &Law, n: &Node) -> String {
    let mark = match n.mark {
        Mark::Nothing => return format!("nothing, c {}", n.forgot),
        Mark::Held => "H",
        Mark::Released => "R",
        Mark::Broken => "B",
    };
    let old = if n.current {
        ""
    } else {
        ", of another incarnation"
    };
    let flag = if n.flag { ", waited for" } else { "" };
    let who = format!("c{}.{}", client_of(n.own), n.own & 3);
    format!(
        "{mark}({who}, {}) counter {}{old}{flag}",
        n.seq,
        law.base(n)
    )
}
