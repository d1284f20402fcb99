//! Server expiry (`locks.expiry = "server"`): a lease ends by the node's own clock, as a single server and the embedded file
//! have it. What others have watched decides nothing; all else is as with observed expiry.
//!
//! A node's clock that goes forward lets others in early, which this mode does not promise to stand
//! (`a_clock_that_goes_forward_makes_two_holders`). One that goes back must bar no lock for as long: what is refused cuts what
//! outlives every lease (N10).

use crate::{
    bounds::{TABLE, acquires, asks, breaks_after, caught, decided_after, holds, holds_after},
    breaks,
    rules::Rule,
    world::{Bounds, Step},
};

const SERVER: Bounds = TABLE.by_clock();
const RAW: Bounds = SERVER.beside_a_stranger();
const TTLS: [u8; 3] = [3, 2, 2];

const TWO: &str = "two holders";
const FOREIGN: &str = "two holders, one of them foreign";
const FALLS: &str = "a token did not rise";
const REVIVED: &str = "a released lease was revived";
const EXTENDED: &str = "a broken lease was extended";
const STUCK: &str = "stuck";
const BARRED: &str = "a released lock is not free";

// === with every rule ===

#[test]
fn server_expiry_keeps_one_holder() {
    holds("server, an attempt each", &SERVER.live().late().deaf());
    holds("server, three attempts", &SERVER.live().three());
    holds("server, three clients", &SERVER.three_clients());
    holds("server, an extension each", &SERVER.live().extending(1, 1));
    holds("server, late, twice", &SERVER.twice());
    let restarts = SERVER.trying(2, 1).restarting();
    holds("server, started again, late", &restarts.late());
}

#[test]
fn the_servers_clock_keeps_one_holder_with_unequal_ttls() {
    let bounds = SERVER.with_ttls(TTLS);
    holds(
        "server, unequal ttls, an extension",
        &bounds.extending(1, 0),
    );
    holds("server, unequal ttls, three attempts", &bounds.trying(1, 2));
    holds("server, unequal ttls, a loss", &bounds.losing(1));
}

#[test]
fn server_expiry_keeps_tokens_rising() {
    let tokens = SERVER.counting();
    holds("server, tokens", &tokens.late().deaf());
    holds("server, tokens, three attempts", &tokens.three());
    let floors = tokens.with_floors().restarting();
    holds("server, tokens, floors that are forgotten", &floors);
    holds("server, tokens, swept", &tokens.swept_all());
    holds("server, tokens, a loss", &tokens.losing(1));
    holds("server, tokens, a copy", &tokens.copied());
}

#[test]
fn the_servers_clock_stands_a_break() {
    holds("server, break", &SERVER.live().breaking().extending(1, 0));
    holds("server, break, lost", &SERVER.live().breaking().deaf());
    holds("server, break, late", &SERVER.breaking().late());
    holds("server, break, tokens", &SERVER.breaking().counting());
    holds("server, break, a loss", &SERVER.breaking().losing(1));
    holds("server, break now", &SERVER.breaking_now());
    holds("server, verify, break", &SERVER.breaking().verifying());
    let now = SERVER.breaking_now().verifying();
    holds("server, verify, break now", &now);
}

#[test]
fn the_servers_clock_excludes_a_stranger() {
    holds("server, raw", &RAW.extending(2, 0));
    holds("server, raw, late", &RAW.late().extending(1, 0));
    holds("server, raw, break", &RAW.breaking().extending(1, 0));
}

#[test]
fn the_servers_clock_loses_no_wake_up() {
    holds("server, wake", &SERVER.waking().trying(1, 2));
    let crash = Bounds {
        crashes: 1,
        ..SERVER.waking()
    };
    holds("server, wake, a crash", &crash.swept_all());
}

/// A node whose clock goes back shows a lease for longer than any may last.
#[test]
fn the_servers_clock_may_go_back() {
    let back = SERVER.live().back(2);
    holds("server, two clocks go back", &back.extending(1, 0));
    holds("server, two clocks go back, late", &back.late());
    let ttls = SERVER.live().with_ttls(TTLS).back(2);
    holds("server, unequal ttls, two clocks go back", &ttls);
    holds("server, raw, two clocks go back", &RAW.back(2));
}

// === the clock ===

#[test]
fn a_clock_that_goes_forward_makes_two_holders() {
    let jump = SERVER.forward(1);
    breaks_after::<3>("server, a clock goes forward", &jump, &[], TWO);
    let raw = RAW.forward(1);
    breaks_after::<3>("server, raw, a clock goes forward", &raw, &[], FOREIGN);
    // Where the record is watched, only a stranger goes by the clock.
    holds(
        "observed, clocks go forward",
        &TABLE.forward(2).extending(1, 0),
    );
    let raw = TABLE.beside_a_stranger().forward(1);
    breaks_after::<3>("raw, a clock goes forward", &raw, &[], FOREIGN);
}

#[test]
fn n10_what_outlives_every_lease_is_cut() {
    caught(Rule::N10Clamp, SERVER.live().back(2), STUCK);
}

/// The clock decides nothing there, but what a client sees that tries once and leaves.
#[test]
fn n10_those_who_try_once_need_it_also_where_the_record_is_watched() {
    let back = TABLE.live().back(2);
    caught(Rule::N10Clamp, back, "stuck: a client that tries once");
    holds("observed, two clocks go back", &back.extending(1, 0));
}

/// The one with the short ttl is refused, which cuts what it found, and tries again.
#[test]
fn n10_no_living_lease_is_cut() {
    let again = SERVER.with_ttls(TTLS).trying(1, 2);
    caught(Rule::N10Longest, again, TWO);
}

// === taking, keeping, releasing ===

#[test]
fn r3_by_the_servers_clock() {
    caught(Rule::R3Validity, SERVER, TWO);
}

#[test]
fn r4_by_the_servers_clock() {
    caught(Rule::R4OneRound, SERVER.trying(2, 1), TWO);
}

#[test]
fn r5_a_lost_attempt_is_undone() {
    caught(Rule::O3MarkReleased, SERVER.freeing(), BARRED);
    caught(Rule::N4Ordered, SERVER.freeing().late(), BARRED);
    holds("server, free, late", &SERVER.freeing().late());
}

#[test]
fn r8_by_the_servers_clock() {
    let late = SERVER.late().extending(1, 1).without(Rule::N2Bound);
    caught(Rule::R8OldDeadline, late, "a lease went on");
    caught(Rule::R8NoForeignKey, RAW.extending(2, 0), FOREIGN);
}

/// With E3 alone no round writes over a grant that its contender could still win with: it is larger than the lease's token, or
/// has to be confirmed. Node 2 is ahead by what it forgot.
#[test]
fn r9_healing_follows_the_take_rule_or_e3() {
    for table in [SERVER, TABLE] {
        let bounds = Bounds {
            bumps: 1,
            ..table.trying(2, 1).extending(1, 0)
        };
        let mut ahead = vec![Step::Bumps(2)];
        ahead.extend(acquires(0, &[0, 1], false));
        ahead.extend([Step::Begins(1), Step::Asks(1, 2, true)]);
        holds_after::<3>("without R9Heal", &bounds.without(Rule::R9Heal), &ahead);
        let blind = bounds.without(Rule::E3Counter);
        decided_after::<3>(Rule::R9Heal, blind, &ahead, TWO);
    }
}

#[test]
fn r9_what_is_healed_could_count_at_once_by_the_servers_clock() {
    let blind = |bounds: Bounds| bounds.without(Rule::R9NextRound);
    holds(
        "server, without R9NextRound",
        &blind(SERVER.extending(2, 1)),
    );
    holds(
        "server, raw, without R9NextRound",
        &blind(RAW.extending(2, 0)),
    );
}

#[test]
fn r11_by_the_servers_clock() {
    caught(Rule::R11BeliefFirst, SERVER, TWO);
}

#[test]
fn a1_e2_nothing_is_revived_by_the_servers_clock() {
    caught(Rule::A1OwnOver, SERVER.twice(), REVIVED);
    caught(Rule::E2NoRevival, SERVER.late().extending(1, 0), REVIVED);
}

#[test]
fn n6_by_the_servers_clock() {
    caught(Rule::N6CompareOwner, SERVER.trying(1, 2), TWO);
}

#[test]
fn o6_by_the_servers_clock() {
    caught(Rule::O6NoForeign, RAW, "a foreign client's key");
}

#[test]
fn s1_s2_by_the_servers_clock() {
    caught(Rule::S1SweepCompares, SERVER.swept().trying(2, 1), TWO);
    caught(Rule::S2SweepWatched, SERVER.swept_all(), TWO);
}

// === tokens ===

#[test]
fn t1_t2_by_the_servers_clock() {
    caught(Rule::T1Raise, SERVER.counting(), FALLS);
    caught(Rule::T2Confirm, SERVER.counting().three(), FALLS);
}

/// A clock that goes forward breaks one holder itself: then at least no two hold the same token.
#[test]
fn t2_a_confirm_looks_at_the_grant() {
    let jump = Bounds {
        exclusion: false,
        ..SERVER.counting().deaf().forward(1)
    };
    caught(Rule::T2GrantCheck, jump, "a token was given twice");
    holds("with T2GrantCheck", &jump);
}

#[test]
fn t2_what_has_ended_could_be_confirmed() {
    let bounds = SERVER.counting().without(Rule::T2Living);
    holds("without T2Living", &bounds.three());
    holds("without T2Living, late", &bounds.late().deaf());
}

/// A node restarts empty while the lease stands on another; two rounds bring the lease to all.
#[test]
fn t3_extensions_carry_the_token_without_the_guard() {
    for table in [SERVER, TABLE] {
        let bounds = table.counting().unguarded().losing(1).extending(2, 0);
        let mut prefix = acquires(0, &[0, 1], false);
        prefix.extend([Step::Loses(0), Step::Extends(0)]);
        prefix.extend(asks(0, &[0, 1, 2]));
        prefix.extend([Step::Fails(0, false), Step::Extends(0)]);
        prefix.extend(asks(0, &[0, 1, 2]));
        prefix.push(Step::Wins(0, false));
        decided_after::<3>(Rule::T3Extend, bounds, &prefix, FALLS);
    }
}

#[test]
fn t4_counters_outlive_records_by_the_servers_clock() {
    let swept = SERVER.counting().swept();
    caught(Rule::C3SweepRaises, swept, FALLS);
    caught(Rule::C4FreshFromC, swept, FALLS);
}

// === lost memory ===

#[test]
fn g1_by_the_servers_clock() {
    caught(Rule::G1Marker, SERVER.losing(1), TWO);
    let ttls = SERVER.losing(1).with_ttls(TTLS);
    caught(Rule::G2LongestTtl, ttls, TWO);
    caught(Rule::G2Watch, SERVER.losing(1), TWO);
    caught(Rule::G2ReadAfter, SERVER.counting().losing(1), FALLS);
    caught(Rule::G2Majority, SERVER.counting().losing(1), FALLS);
}

#[test]
fn nothing_stands_a_lost_memory_without_the_guard() {
    for table in [SERVER, TABLE] {
        let open = table.unguarded().losing(1);
        breaks_after::<3>("a loss without the guard", &open, &[], TWO);
        let open = table.unguarded().copied();
        breaks_after::<3>("a copy without the guard", &open, &[], TWO);
    }
}

#[test]
fn a_stranger_is_not_safe_from_lost_memory() {
    for raw in [RAW, TABLE.beside_a_stranger()] {
        breaks_after::<3>("raw, a loss", &raw.losing(1), &[], FOREIGN);
    }
}

// === breaks ===

#[test]
fn n7_by_the_servers_clock() {
    caught(Rule::N7Marks, SERVER.breaking().extending(2, 0), EXTENDED);
    caught(Rule::B1Watched, SERVER.breaking(), TWO);
    caught(Rule::N7EndStays, SERVER.breaking(), TWO);
    caught(Rule::B5Taken, SERVER.live().breaking(), STUCK);
    caught(Rule::N7KeyStays, RAW.breaking(), FOREIGN);
}

#[test]
fn a_break_raises_the_next_token() {
    let promise = "a token is not above the one that the break took";
    for table in [SERVER, TABLE] {
        caught(Rule::BreakRaises, table.breaking().counting(), promise);
    }
}

#[test]
fn v1_by_the_servers_clock() {
    let promise = "a verification confirmed a broken lease";
    caught(Rule::V1Broken, SERVER.breaking().verifying(), promise);
    let bounds = SERVER.breaking_now().without(Rule::B6Waits);
    let promise = "a verification confirmed what another holds";
    let bounds = bounds.copied().verifying();
    decided_after::<3>(Rule::V1Named, bounds, &breaks::taken_over(), promise);
}
