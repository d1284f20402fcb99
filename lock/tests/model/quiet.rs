//! No client is stuck: from every reachable state, once all others are dead and the environment is quiet, a newcomer
//! acquires in bounded time.

use crate::{
    node::{Expiry, NOBODY, Node, client_of},
    rules::Rule,
    world::{Bounds, World},
};

/// What is wrong with the wait that this state imposes on a newcomer, if anything.
pub(crate) fn check<const N: usize>(bounds: &Bounds, world: &World<N>) -> Option<&'static str> {
    if after_crashes(bounds, world).is_none() {
        return Some("stuck: everybody else is dead for a ttl, and still nobody can acquire");
    }
    let ready = |n: &&Node| n.admitted && !bounds.law.is_foreign(n.key);
    if world.nodes.iter().filter(ready).count() < World::<N>::QUORUM {
        return None;
    }
    if bounds.law.expiry == Expiry::Observed && !tries_succeed(bounds, world) {
        return Some(
            "stuck: whoever tries once and leaves never acquires, although everybody else is dead",
        );
    }
    if takable(bounds, &undone(bounds, world)) < World::<N>::QUORUM {
        return Some("slow: what was given up and undone still makes others wait");
    }
    if bounds.law.expiry == Expiry::Observed
        && takable(bounds, &told(bounds, world)) < World::<N>::QUORUM
    {
        return Some("slow: a release that was seen on another node still makes others wait");
    }
    None
}

/// Every process dies, no message arrives: the ticks until a newcomer who watched can acquire, a ttl at most.
fn after_crashes<const N: usize>(bounds: &Bounds, world: &World<N>) -> Option<u8> {
    let mut quiet = *world;
    let ttl = bounds.law.longest();
    for n in &mut quiet.nodes {
        // Foreign keys go by their own time to live, which is not kept where keys may vanish at any time.
        if bounds.vanish && bounds.law.is_foreign(n.key) {
            n.key = NOBODY;
        }
        // The newcomer's first try: what outlives max_ttl is clamped, if it is ours.
        if n.px > ttl && !bounds.law.is_foreign(n.key) && bounds.law.rules.has(Rule::O6Clamp) {
            n.px = ttl;
        }
    }
    for waited in 0..=ttl {
        if takable(bounds, &quiet) >= World::<N>::QUORUM {
            return Some(waited);
        }
        for n in &mut quiet.nodes {
            n.age = (n.age + 1).min(ttl);
            n.px = n.px.saturating_sub(1);
            if n.px == 0 && !bounds.vanish {
                n.key = NOBODY;
            }
            if !n.admitted {
                n.watched += 1;
                n.admitted = n.watched >= ttl;
                n.named &= !n.admitted;
            }
        }
    }
    None
}

/// Every process dies. From then on one fresh client after the other tries: it is refused, sits out what looks like an
/// orphan, or leaves and takes with it what it has seen. One of them acquires within two ttls.
fn tries_succeed<const N: usize>(bounds: &Bounds, world: &World<N>) -> bool {
    let mut quiet = *world;
    let (ttl, foreign) = (bounds.law.longest(), |n: &Node| {
        bounds.law.is_foreign(n.key)
    });
    for waited in 0..=2 * ttl {
        let ready = |n: &&Node| n.admitted && !foreign(n);
        let cold = |n: &&Node| ready(n) && (n.own == NOBODY || !n.named || n.released);
        let keyless = |n: &&Node| ready(n) && (n.key == NOBODY || cold(n));
        let count = |what: &dyn Fn(&&Node) -> bool| quiet.nodes.iter().filter(what).count();
        if count(&cold) >= World::<N>::QUORUM {
            return true;
        }
        // What it watches stands still for its ttl: there is no other client.
        if count(&keyless) >= World::<N>::QUORUM && bounds.law.rules.has(Rule::O4SitOut) {
            return true;
        }
        for n in &mut quiet.nodes {
            let clamped = !foreign(n) && bounds.law.rules.has(Rule::O6Clamp);
            n.px = if clamped { n.px.min(ttl) } else { n.px };
            n.px = n.px.saturating_sub(1);
            // Keys that may vanish at any time have done so by now, if they are ours.
            if n.px == 0 && (!bounds.vanish || waited >= ttl) {
                n.key = NOBODY;
            }
        }
    }
    false
}

/// All clients give up, and every release that the rules ask for has arrived.
fn undone<const N: usize>(bounds: &Bounds, world: &World<N>) -> World<N> {
    let mut quiet = *world;
    let has = |rule| bounds.law.rules.has(rule);
    for n in &mut quiet.nodes {
        let own = if bounds.law.claim { n.key } else { n.own };
        if own == NOBODY || bounds.law.is_foreign(own) {
            continue;
        }
        let won = world.clients[client_of(own)].won & (1 << (own & 3)) != 0;
        if !won && !has(Rule::R5Undo) {
            continue;
        }
        let released = n.released;
        bounds.law.release(n, own);
        if !won && !has(Rule::O3MarkReleased) {
            n.released = released;
        }
    }
    quiet
}

/// Nodes that would grant a client that has watched for as long as there was to see.
fn takable<const N: usize>(bounds: &Bounds, world: &World<N>) -> usize {
    let takable = |n: &&Node| {
        let watched = n.own != NOBODY && n.age >= bounds.law.ttl_of(n.own);
        let nobody = n.own == NOBODY || !n.named || n.released || watched;
        n.admitted
            && match bounds.law.expiry {
                Expiry::Server => n.key == NOBODY,
                Expiry::Observed => !bounds.law.is_foreign(n.key) && nobody,
            }
    };
    world.nodes.iter().filter(takable).count()
}

/// All clients give up; one node has heard of each release, the others are taken by clients that know it from there.
fn told<const N: usize>(bounds: &Bounds, world: &World<N>) -> World<N> {
    let mut quiet = *world;
    if bounds.law.rules.has(Rule::O2KnownOver) {
        for n in quiet.nodes.iter_mut().filter(|n| n.own != NOBODY) {
            n.released = true;
        }
    } else if let Some(n) = quiet.nodes.iter_mut().find(|n| n.own != NOBODY) {
        n.released = true;
    }
    quiet
}
