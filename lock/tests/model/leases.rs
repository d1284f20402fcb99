//! Taking, keeping and watching: A1, A2, E1 to E3, N2 to N6, O1 to O5, R3 to R11.

use crate::{
    bounds::{
        TABLE, acquires, asks, breaks_after, caught, caught_after, decided_after, extends, holds,
        holds_after,
    },
    node::owner,
    rules::Rule,
    world::{Bounds, Step},
};

const LIVE: Bounds = TABLE.live();

// === acquire ===

#[test]
fn a1_an_owner_that_is_over_here_is_not_granted_again() {
    caught(
        Rule::A1OwnOver,
        TABLE.twice(),
        "a released lease was revived",
    );
}

/// c1 has read the first round, c0's second one was kept, and its acquire may come again.
pub(crate) fn a_round_and_a_late_acquire() -> Vec<Step> {
    let mut prefix = acquires(0, &[0, 1], true);
    prefix.extend([Step::Reads(1, 0), Step::Tick]);
    prefix.extend(extends(0, &[0, 1], true));
    prefix
}

/// Between two connections a round may arrive before the acquire that it follows. Written back to the first round, the
/// record shows a watcher what it has seen before.
#[test]
fn a2_an_acquire_that_finds_itself_writes_nothing() {
    let bounds = TABLE.reading().twice().extending(1, 0);
    let prefix = a_round_and_a_late_acquire();
    caught_after::<3>(Rule::A2NoRewrite, bounds, &prefix, "two holders");
}

// === extend ===

/// c0 holds all three nodes; node 0 comes back as a copy of itself, and c0 keeps the others.
fn back_as_a_copy() -> Vec<Step> {
    let mut prefix = acquires(0, &[0, 1, 2], false);
    prefix.extend([Step::Saves(0), Step::Restores(0), Step::Tick]);
    prefix.extend(extends(0, &[1, 2], false));
    prefix
}

#[test]
fn e1_an_extension_compares_the_incarnation() {
    let bounds = TABLE.copied().extending(2, 0);
    decided_after::<3>(
        Rule::E1Incarnation,
        bounds,
        &back_as_a_copy(),
        "two holders",
    );
}

#[test]
fn e2_an_extension_revives_nothing() {
    let bounds = TABLE.late().extending(1, 0);
    caught(Rule::E2NoRevival, bounds, "a released lease was revived");
}

/// A late round of c0, which has released everywhere, finds node 2 empty and node 0 taken and released by c1.
#[test]
fn e3_a_late_round_heals_nothing_that_a_later_lease_has_left() {
    let bounds = TABLE.freeing().late().extending(1, 0);
    let mut prefix = acquires(0, &[0, 1], true);
    prefix.extend([Step::Extends(0), Step::Fails(0, true)]);
    let promise = "a released lock is not free";
    decided_after::<3>(Rule::E3Counter, bounds, &prefix, promise);
}

/// Broken with `now` on nodes 0 and 2; c1 takes node 0 and leaves it; c0's rounds heal it and count it.
#[test]
fn e3_a_break_with_now_is_not_undone_by_healing() {
    let bounds = TABLE.breaking_now().without(Rule::B6Waits).extending(2, 0);
    let mut prefix = acquires(0, &[0, 1], false);
    prefix.extend([Step::Breaks(0), Step::NowReaches(0), Step::NowReaches(2)]);
    let promise = "a broken lease was extended";
    decided_after::<3>(Rule::E3Counter, bounds, &prefix, promise);
}

// === late calls ===

/// c0 holds nodes 0 and 1, its acquire is under way to node 2, and there the break has arrived.
fn broken_before_the_acquire() -> Vec<Step> {
    let mut prefix = acquires(0, &[0, 1], true);
    prefix.extend([Step::Breaks(0), Step::BreakReaches(2), Step::Tick]);
    prefix.extend(extends(0, &[0, 1], true));
    prefix
}

#[test]
fn n2_late_calls_have_an_end() {
    let bounds = TABLE.breaking().late().extending(2, 0);
    let prefix = broken_before_the_acquire();
    let promise = "a broken lease was extended";
    decided_after::<3>(Rule::N2Bound, bounds, &prefix, promise);
}

/// Acquire and break at one moment: at the last moment of the watch the acquire must be too late already.
#[test]
fn n2_the_limit_itself_is_too_late() {
    let bounds = TABLE.breaking().late().extending(2, 0);
    let prefix = broken_before_the_acquire();
    let promise = "a broken lease was extended";
    caught_after::<3>(Rule::N2Exclusive, bounds, &prefix, promise);
}

#[test]
fn n2_one_holder_does_not_need_it() {
    let ages = |b: Bounds| b.late().without(Rule::N2Bound);
    holds("without N2Bound", &ages(TABLE));
    holds("without N2Bound, tokens", &ages(TABLE.counting()));
}

#[test]
fn n4_a_release_follows_its_acquire() {
    let bounds = TABLE.freeing().late();
    caught(Rule::N4Ordered, bounds, "a released lock is not free");
}

#[test]
fn n6_a_release_compares_its_owner() {
    caught(Rule::N6CompareOwner, TABLE.trying(1, 2), "two holders");
}

// === the watch ===

#[test]
fn o1_what_was_watched_is_compared_where_it_is_replaced() {
    caught(Rule::O1Expected, TABLE, "two holders");
}

#[test]
fn o2_a_watch_is_as_long_as_the_ttl() {
    caught(Rule::O2FullTtl, TABLE, "two holders");
}

#[test]
fn o2_a_watch_counts_from_the_reply() {
    let bounds = TABLE.reading().extending(1, 0);
    caught(Rule::O2FromReply, bounds, "two holders");
}

/// c1 comes cold, is refused, watches from there on, and tries again.
#[test]
fn o2_a_cold_client_watches_from_its_refusal() {
    let cold = TABLE.reading().trying(1, 2);
    let mut prefix = acquires(0, &[0, 1], false);
    prefix.push(Step::Begins(1));
    prefix.extend(asks(1, &[0, 1]));
    prefix.push(Step::Fails(1, false));
    decided_after::<3>(Rule::O2FromReply, cold, &prefix, "two holders");
}

#[test]
fn o2_a_silent_holder_is_not_over() {
    caught(Rule::O2NotBySilence, TABLE, "two holders");
}

#[test]
fn o2_the_ttl_is_that_of_the_record() {
    let bounds = TABLE.with_ttls([3, 2, 2]);
    caught(Rule::O2RecordTtl, bounds, "two holders");
}

#[test]
fn o2_a_release_seen_once_spares_the_watch() {
    caught(Rule::O2KnownOver, LIVE, "slow");
    holds("without O2KnownOver", &TABLE.without(Rule::O2KnownOver));
}

#[test]
fn o3_a_failed_attempt_is_released() {
    caught(
        Rule::O3MarkReleased,
        TABLE.freeing(),
        "a released lock is not free",
    );
}

#[test]
fn o4_a_single_try_sits_out_what_is_orphaned() {
    caught(Rule::O4SitOut, LIVE, "stuck: a client that tries once");
}

/// c0's first round is late at node 0, which has its second one; c1 has read the first.
pub(crate) fn two_rounds() -> Vec<Step> {
    let mut prefix = acquires(0, &[0, 1], true);
    prefix.extend(extends(0, &[0, 1], true));
    prefix.extend([Step::Reads(1, 0), Step::Tick]);
    prefix.extend(extends(0, &[0, 1], false));
    prefix
}

#[test]
fn o5_an_old_round_changes_nothing() {
    let bounds = TABLE.reading().twice().extending(2, 0);
    caught_after::<3>(Rule::O5Seq, bounds, &two_rounds(), "two holders");
}

// === belief ===

#[test]
fn r3_a_lease_is_as_old_as_its_request() {
    caught(Rule::R3Validity, TABLE, "two holders");
}

/// c0's acquire is as late as it may be without N2: it lands where c1 has held and gone, and the round counts it.
#[test]
fn r4_votes_of_two_rounds_are_not_one_majority() {
    caught(Rule::R4OneRound, TABLE, "two holders");
}

#[test]
fn r8_a_round_counts_before_the_old_deadline() {
    let bounds = TABLE.late().extending(1, 0);
    let promise = "a lease went on";
    caught(Rule::R8OldDeadline, bounds.without(Rule::N2Bound), promise);
}

/// Within N2 it takes a round that heals what was swept, and another that counts it.
#[test]
fn r8_the_deadline_is_needed_with_n2_where_records_are_swept() {
    let kept = TABLE.late().extending(1, 1);
    let kept = kept.without(Rule::R8OldDeadline);
    holds("without R8OldDeadline, nothing swept", &kept);
    let bounds = TABLE.late().swept().extending(2, 0);
    let mut prefix = acquires(0, &[0, 1], true);
    prefix.extend([Step::Tick, Step::Extends(0), Step::Fails(0, true)]);
    prefix.extend([Step::Extends(0), Step::Asks(0, 0, true), Step::Tick]);
    caught_after::<3>(Rule::R8OldDeadline, bounds, &prefix, "a lease went on");
}

#[test]
fn r9_what_is_healed_could_count_at_once() {
    let bounds = TABLE.extending(2, 1).without(Rule::R9NextRound);
    holds("without R9NextRound", &bounds);
}

#[test]
fn r11_a_holder_stops_believing_before_it_releases() {
    caught(Rule::R11BeliefFirst, TABLE, "two holders");
}

// === how long others are made to wait ===

/// All clients stop: what stands is ripe after a ttl, and what is still under way has arrived before that.
#[test]
fn an_orphan_bars_the_lock_for_less_than_two_ttls() {
    let silence = |ticks| Bounds {
        silence: ticks,
        ..TABLE.late().extending(1, 0)
    };
    let prefix = acquires(0, &[0, 1], true);
    holds_after::<3>("silence, 3 ticks", &silence(3), &prefix);
    let promise = "an orphan bars the lock for too long";
    breaks_after::<3>("silence, 2 ticks", &silence(2), &prefix, promise);
    caught_after::<3>(Rule::N2Bound, silence(3), &prefix, promise);
}

#[test]
fn a_release_is_free_whatever_was_late() {
    let bounds = TABLE.freeing().late();
    holds("free, late", &bounds);
    let prefix = acquires(0, &[0, 1], true);
    holds_after::<3>("free, late, an extension", &bounds.extending(1, 0), &prefix);
}

/// A copy of the machine without any rule of late calls must be seen to break, or nothing here asks it.
#[test]
fn a_late_acquire_without_order_or_end_blocks_the_lock() {
    let bounds = TABLE.freeing().late().without(Rule::N2Bound);
    let bounds = bounds.without(Rule::N4Ordered);
    let mut prefix = vec![Step::Begins(0)];
    prefix.extend(asks(0, &[]));
    prefix.push(Step::Fails(0, true));
    prefix.extend([0, 1, 2].map(|i| Step::Releases(owner(0, 1), i)));
    prefix.extend([Step::Tick, Step::Tick]);
    let promise = "a released lock is not free";
    breaks_after::<3>("neither N2 nor N4'", &bounds, &prefix, promise);
}
