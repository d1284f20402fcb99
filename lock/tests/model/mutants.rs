//! With one rule switched off, a promise breaks: each trace is the shortest within its bounds.

use crate::{
    bounds::{OBSERVED, SERVER, asks, breaks, breaks_after, caught, holds, holds_after},
    node::owner,
    rules::Rule,
    world::{Bounds, Step},
};

const READS: Bounds = Bounds {
    reads: true,
    liveness: false,
    ..OBSERVED
};

/// The same from a prefix; with the rule in force everything after it must hold.
fn caught_after<const N: usize>(rule: Rule, bounds: Bounds, prefix: &[Step], promise: &str) {
    breaks_after::<N>(
        &format!("without {rule:?}"),
        &bounds.without(rule),
        prefix,
        promise,
    );
    holds_after::<N>(&format!("with {rule:?}"), &bounds, prefix);
}

// === the lease ===

#[test]
fn r3_a_lease_counts_from_before_the_first_byte() {
    caught(Rule::R3Validity, SERVER.in_time(), "two holders");
}

#[test]
fn r4_votes_of_two_rounds_are_not_summed() {
    let retries = Bounds {
        attempts: [2, 1, 0],
        total: 3,
        ..SERVER
    };
    caught(Rule::R4OneRound, retries.in_time(), "two holders");
}

#[test]
fn r5_a_lost_attempt_is_undone() {
    caught(Rule::R5Undo, SERVER, "slow");
}

#[test]
fn r8_the_old_deadline_ends_the_round() {
    caught(
        Rule::R8OldDeadline,
        SERVER.extending(1, 1),
        "a lease went on",
    );
}

#[test]
fn r8_a_foreign_key_is_no_vote() {
    let px = Bounds {
        vanish: false,
        liveness: false,
        ..OBSERVED
    }
    .beside_a_stranger();
    caught(
        Rule::R8NoForeignKey,
        px.extending(2, 0).in_time(),
        "two holders, one of them foreign",
    );
    let server = SERVER.beside_a_stranger();
    caught(
        Rule::R8NoForeignKey,
        server.extending(2, 0).in_time(),
        "two holders, one of them foreign",
    );
}

#[test]
fn r9_healing_follows_the_take_rule() {
    let again = |b: Bounds| {
        Bounds {
            attempts: [2, 1, 0],
            total: 3,
            ..b
        }
        .extending(1, 0)
        .in_time()
    };
    let mut prefix = vec![Step::Begins(0)];
    prefix.extend(asks(0, &[0, 1]));
    prefix.extend([Step::Wins(0, 0), Step::Begins(1)]);
    prefix.extend(asks(1, &[2]));
    let mut observed = prefix.clone();
    observed.push(Step::KeyEnds(2));
    for mut prefix in [prefix, observed] {
        let bounds = if prefix.last() == Some(&Step::KeyEnds(2)) {
            OBSERVED
        } else {
            SERVER
        };
        prefix.push(Step::Extends(0));
        prefix.extend(asks(0, &[0, 1, 2]));
        prefix.push(Step::Wins(0, 0));
        caught_after::<3>(Rule::R9Heal, again(bounds), &prefix, "two holders");
    }
}

#[test]
fn r9_a_released_record_is_not_revived() {
    let late = SERVER.forgetful().extending(1, 0);
    caught(Rule::R9NoRevival, late, "a released lease was revived");
}

#[test]
fn r11_belief_ends_before_the_release_leaves() {
    caught(Rule::R11BeliefFirst, SERVER.in_time(), "two holders");
}

#[test]
fn n4_a_release_is_remembered() {
    caught(Rule::N4Remembered, SERVER, "a released lease was revived");
}

#[test]
fn n6_a_release_compares_the_owner() {
    let retries = |b: Bounds| {
        Bounds {
            attempts: [1, 2, 0],
            total: 3,
            ..b
        }
        .in_time()
    };
    caught(Rule::N6CompareOwner, retries(SERVER), "two holders");
    caught(Rule::N6CompareOwner, retries(OBSERVED), "two holders");
}

#[test]
fn a_break_marks_the_record() {
    let breaks = |b: Bounds| Bounds { breaks: true, ..b }.extending(2, 0).in_time();
    caught(
        Rule::BreakMarks,
        breaks(SERVER),
        "a broken lease was extended",
    );
    caught(
        Rule::BreakMarks,
        breaks(OBSERVED),
        "a broken lease was extended",
    );
}

// === tokens ===

#[test]
fn t1_a_grant_raises_the_counter() {
    caught(
        Rule::T1RaiseCounter,
        SERVER.counting().in_time(),
        "a token did not rise",
    );
}

#[test]
fn t2_differing_grants_are_confirmed() {
    caught(
        Rule::T2Confirm,
        SERVER.counting().three().in_time(),
        "a token did not rise",
    );
}

#[test]
fn t2_a_confirm_looks_at_the_grant() {
    // A clock that jumps breaks server expiry itself: then at least no two may hold the same token.
    let jump = Bounds {
        jumps: 1,
        exclusion: false,
        liveness: false,
        ..SERVER.counting()
    };
    caught(
        Rule::T2GrantCheck,
        jump.never_late(),
        "a token was given twice",
    );
    holds("with T2GrantCheck", &jump.never_late());
}

/// Five nodes: an earlier attempt has raised node 2 alone, so that the next grants there and on nodes 0 and 1 differ.
#[test]
fn t2_a_confirm_needs_a_majority_of_the_configured_nodes() {
    let bounds = Bounds {
        attempts: [2, 1, 0],
        total: 3,
        ..SERVER.counting()
    }
    .in_time();
    let mut prefix = vec![Step::Begins(0)];
    prefix.extend(asks(0, &[2]));
    prefix.extend([
        Step::Fails(0, 0),
        Step::Releases(owner(0, 1), 2),
        Step::Begins(0),
    ]);
    prefix.extend(asks(0, &[0, 1, 2]));
    prefix.push(Step::Wins(0, 0));
    prefix.extend(asks(0, &[0, 2]));
    caught_after::<5>(Rule::T2Configured, bounds, &prefix, "a token did not rise");
}

#[test]
fn t2_three_nodes_cannot_tell_which_majority() {
    let bounds = SERVER.counting().three().in_time();
    holds(
        "three nodes, without T2Configured",
        &bounds.without(Rule::T2Configured),
    );
}

/// Without the guard a node restarts empty while the lease stands on another; two rounds bring the lease to all.
#[test]
fn t3_extensions_carry_the_token() {
    let bounds = Bounds {
        guard: false,
        losses: 1,
        ..SERVER.counting()
    }
    .extending(2, 0)
    .in_time();
    let mut prefix = vec![Step::Begins(0)];
    prefix.extend(asks(0, &[0, 1]));
    prefix.extend([Step::Wins(0, 0), Step::Loses(0), Step::Extends(0)]);
    prefix.extend(asks(0, &[0, 1, 2]));
    prefix.extend([Step::Fails(0, 0), Step::Extends(0)]);
    prefix.extend(asks(0, &[0, 1, 2]));
    prefix.push(Step::Wins(0, 0));
    caught_after::<3>(Rule::T3Extend, bounds, &prefix, "a token did not rise");
}

#[test]
fn t4_the_nodes_counter_outlives_the_record() {
    let forgets = Bounds {
        forgets: 3,
        ..SERVER.counting()
    };
    caught(
        Rule::T4NodeCounter,
        forgets.in_time(),
        "a token did not rise",
    );
}

// === the restart guard ===

#[test]
fn g1_a_node_that_lost_its_memory_does_not_vote() {
    caught(Rule::G1Marker, OBSERVED.losing(1).in_time(), "two holders");
    caught(Rule::G1Marker, SERVER.losing(1).in_time(), "two holders");
}

#[test]
fn g1_an_older_copy_does_not_vote() {
    let saves = Bounds {
        saves: 1,
        ..OBSERVED
    };
    caught(Rule::G1Marker, saves.in_time(), "two holders");
}

#[test]
fn g2_a_node_is_watched_for_max_ttl() {
    caught(Rule::G2Watch, OBSERVED.losing(1).in_time(), "two holders");
}

#[test]
fn g2_counters_are_read_after_the_watch() {
    caught(
        Rule::G2ReadAfter,
        OBSERVED.counting().losing(1).in_time(),
        "a token did not rise",
    );
}

#[test]
fn g2_counters_of_enough_nodes_are_merged() {
    caught(
        Rule::G2MergeMajority,
        OBSERVED.counting().losing(1).in_time(),
        "a token did not rise",
    );
}

// === observed expiry ===

#[test]
fn o1_what_was_watched_is_compared() {
    caught(Rule::O1Expected, OBSERVED.in_time(), "two holders");
}

#[test]
fn o2_a_watch_lasts_the_whole_ttl() {
    caught(Rule::O2FullTtl, OBSERVED.in_time(), "two holders");
}

#[test]
fn o2_a_watch_begins_with_the_reply() {
    caught(
        Rule::O2FromReply,
        READS.extending(1, 0).in_time(),
        "two holders",
    );
}

#[test]
fn o2_silence_proves_nothing() {
    caught(Rule::O2NotBySilence, OBSERVED.in_time(), "two holders");
}

#[test]
fn o2_a_release_seen_anywhere_counts_everywhere() {
    caught(Rule::O2KnownOver, OBSERVED, "slow");
}

#[test]
fn o3_a_failed_attempt_marks_its_record() {
    caught(Rule::O3MarkReleased, OBSERVED, "slow");
}

/// The first round's message to node 0 was executed, and sent again after a broken connection.
#[test]
fn o5_rounds_only_grow() {
    let bounds = Bounds {
        twice: true,
        late: true,
        lost: false,
        ..READS
    }
    .extending(2, 0);
    let mut prefix = vec![Step::Begins(0)];
    prefix.extend(asks(0, &[0, 1]));
    prefix.extend([Step::Wins(0, 0), Step::Extends(0)]);
    prefix.extend(asks(0, &[0, 1]));
    prefix.extend([
        Step::Wins(0, 1),
        Step::Reads(1, 0),
        Step::Tick,
        Step::Extends(0),
    ]);
    prefix.extend(asks(0, &[0, 1]));
    prefix.push(Step::Wins(0, 0));
    caught_after::<3>(Rule::O5Seq, bounds, &prefix, "two holders");
}

#[test]
fn o6_a_foreign_key_is_left_alone() {
    for bounds in [SERVER, OBSERVED] {
        caught(
            Rule::O6NoForeign,
            bounds.beside_a_stranger(),
            "a foreign client's key",
        );
    }
}

#[test]
fn o6_our_own_keys_are_clamped() {
    let back = Bounds {
        back: true,
        jumps: 2,
        ..SERVER
    };
    caught(Rule::O6Clamp, back.in_time(), "stuck");
}

// === what these protocols do not promise ===

#[test]
fn server_expiry_does_not_survive_a_clock_that_goes_forward() {
    let jump = Bounds { jumps: 1, ..SERVER };
    breaks(
        "server, a clock goes forward",
        &jump.in_time(),
        "two holders",
    );
}

#[test]
fn nothing_survives_a_lost_memory_without_the_guard() {
    for bounds in [SERVER, OBSERVED] {
        let open = Bounds {
            guard: false,
            ..bounds.losing(1)
        };
        breaks("a loss without the guard", &open.in_time(), "two holders");
    }
}

#[test]
fn a_stranger_is_not_safe_from_clocks_and_losses() {
    let px = Bounds {
        vanish: false,
        liveness: false,
        ..OBSERVED
    }
    .beside_a_stranger();
    let jump = Bounds { jumps: 1, ..px };
    breaks(
        "foreign, a clock goes forward",
        &jump.in_time(),
        "two holders, one of them foreign",
    );
    let loss = px.losing(1);
    breaks(
        "foreign, a loss",
        &loss.in_time(),
        "two holders, one of them foreign",
    );
}

// === what safety does not rest on ===

#[test]
fn a_floor_only_saves_a_round_trip() {
    let floors = Bounds {
        floors: true,
        ..SERVER.counting()
    };
    holds("without T1Floor", &floors.in_time().without(Rule::T1Floor));
}

#[test]
fn what_is_written_anew_could_count_at_once() {
    let blind = |b: Bounds| b.without(Rule::R9NextRound).in_time();
    holds(
        "server, without R9NextRound",
        &blind(SERVER.extending(2, 1)),
    );
    holds(
        "observed, without R9NextRound",
        &blind(OBSERVED.extending(2, 0)),
    );
    let foreign = SERVER.beside_a_stranger().extending(2, 0);
    holds("server, foreign, without R9NextRound", &blind(foreign));
}
