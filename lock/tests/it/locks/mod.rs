//! What [`Locks`] must do over every store, with one node and with several, and in both modes of expiry: written once.
//!
//! # Adding a store
//! Implement [`Stage`] and make [`Scene`]s over it; see `stages.rs`, and `tests/redis/locks.rs` for real servers.
//!
//! # Adding a case
//! Write `pub(crate) async fn the_promise_as_a_sentence(scene: Scene)` in one of the groups and name it in the macro below:
//! under `every` if all stores can play it, under `faulty` if it needs the verbs of [`Faults`]. In all cases two leases of
//! one lock that are held at once, or a token that does not rise, are a failure: clients take locks through
//! [`Client::take`], which looks.
//!
//! # What it does not show
//! Clients that miss a rule by a hair: no confirmation of grants that differ, a deadline that counts from the reply, a lost
//! attempt that is not undone pass all cases. The simulation has these as mutants (`src/quorum/mutant.rs`), and must find them.
//! What each node answers is held case by case in `watchkeeper_lock::conformance`.
//!
//! # What it costs
//! In memory nothing: time is paused. On SQLite and Redis time is real; leases that must end live for half a second, the
//! longest cases take two. About 20 s for Redis in six threads on two busy cores, nearly all of it waiting.

use std::time::Duration;

pub(crate) mod breaking;
pub(crate) mod counter;
pub(crate) mod dying;
pub(crate) mod faulty;
pub(crate) mod holding;
mod scene;
mod stages;
pub(crate) mod waiting;
mod wire;

#[allow(unused_imports, reason = "other suites use the rest")]
pub(crate) use scene::{Client, Scene, Time};
#[cfg(feature = "sqlite")]
#[allow(unused_imports, reason = "other suites use the rest")]
pub(crate) use stages::sqlite;
#[allow(unused_imports, reason = "other suites use the rest")]
pub(crate) use stages::{Faults, Stage, memory};

/// Hands the names of all cases to another macro.
macro_rules! every_lock_case {
    ($emit:ident $($with:tt)*) => {
        $emit! { $($with)*:
            every: [
                holding::a_lock_has_one_holder,
                holding::tokens_rise_with_every_lease,
                holding::a_try_against_a_living_holder_is_refused_at_once,
                holding::a_dropped_lease_is_released_in_the_background,
                holding::the_last_of_several_hands_releases,
                holding::slots_are_never_more_than_their_number,
                dying::a_dead_holder_is_followed_within_its_ttl,
                dying::a_holder_that_dies_after_a_sign_of_life_is_followed_as_soon,
                dying::a_try_after_a_crash_succeeds_within_one_ttl,
                dying::a_short_ttl_robs_nobody_with_a_long_one,
                breaking::a_broken_lease_is_final_and_lets_nobody_in_before_its_end_n7,
                breaking::what_is_broken_now_is_released_when_nothing_of_it_can_act_b6,
                waiting::those_who_wait_are_served_in_the_order_in_which_they_came,
                waiting::a_place_whose_owner_died_holds_nobody_up_for_long,
                waiting::a_release_before_a_waiter_hears_of_any_is_found_when_it_does,
                waiting::an_acquire_that_is_cancelled_leaves_nothing,
                waiting::a_wait_that_is_cancelled_leaves_nothing,
                waiting::one_of_a_line_that_is_cancelled_holds_nobody_up,
                waiting::a_wait_for_slots_that_is_cancelled_leaves_nothing,
                waiting::a_try_that_is_cancelled_while_it_sits_out_an_orphan_leaves_nothing,
                counter::no_update_is_lost,
            ],
            faulty: [
                faulty::a_foreign_value_is_never_replaced_cut_or_broken_o6,
                faulty::a_key_that_vanishes_ends_no_observed_lease_r8,
                faulty::an_orphan_that_would_live_for_an_hour_is_taken_within_max_ttl,
                faulty::a_node_that_missed_rounds_is_healed,
                faulty::what_the_dead_left_on_some_nodes_is_taken,
                counter::no_update_is_lost_while_nodes_come_and_go,
            ],
        }
    };
}

/// Instantiates every case for one store, one number of nodes and one mode of expiry.
macro_rules! lock_conformance {
    ($name:ident, $test:meta, $make:expr, faults: $faults:tt) => {
        every_lock_case! { lock_conformance $name, $test, $make, $faults }
    };
    ($name:ident, $test:meta, $make:expr, true:
        every: [$($module:ident::$case:ident,)*], faulty: [$($bad_module:ident::$bad:ident,)*],) => {
        lock_conformance! { $name, $test, $make => [$($module::$case,)* $($bad_module::$bad,)*] }
    };
    ($name:ident, $test:meta, $make:expr, false:
        every: [$($module:ident::$case:ident,)*], faulty: [$($bad_module:ident::$bad:ident,)*],) => {
        lock_conformance! { $name, $test, $make => [$($module::$case,)*] }
    };
    ($name:ident, $test:meta, $make:expr => [$($module:ident::$case:ident,)*]) => {
        mod $name {
            $(#[$test]
            async fn $case() {
                $crate::locks::$module::$case($make).await;
            })*
        }
    };
}

/// The lock of most cases.
pub(crate) const NAME: &str = "k";

/// Its key on the nodes.
pub(crate) const KEY: &str = "lock/k";

/// For leases that must not end during a test.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// No lease lives longer.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(30);

/// Waiting longer than this is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);
