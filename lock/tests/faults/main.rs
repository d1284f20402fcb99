//! Real faults on real Redis masters: memory lost, clocks stepped, failovers, chance; foreign Redlock clients on the
//! same keys; and mounts and namespaces about the embedded file. Costs about a minute.
//!
//! `cargo test --test faults [FILTER]`. What is missing on the machine ignores its cases, with the reason;
//! `WATCHKEEPER_REQUIRE=redis,node,python,rust,mounts` makes that a failure.
//!
//! Each fault is run with every combination of rules that stands in [`rules`]: where the rule against it is off it must do
//! its harm, if not at once, or the case shows nothing; where the rule is on it must do none. Masters are let in when they are new, without
//! a watch, as `doctor --bootstrap` does it; whatever they lose later is watched for.
//!
//! `WATCHKEEPER_TORTURE_SECS=60 WATCHKEEPER_TORTURE_SEED=7 cargo test --test faults torture` tortures for longer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use libtest_mimic::Trial;

mod client;
mod directed;
mod disturb;
mod fleets;
mod history;
mod interop;
mod lists;
mod masters;
mod mixed;
#[cfg(feature = "sqlite")]
mod mounts;
mod needs;
mod outage;
mod process;
mod rules;
#[path = "../redis/server.rs"]
mod server;
mod shim;
mod torture;

use history::Violation;
use interop::foreign::Peer;
use needs::{Need, trial};
use rules::{ALL_OFF, ALL_ON, COMBINATIONS, Cure, Rules};

/// Without its rule a fault must do its harm in one of so many attempts: on a busy machine a lease may be over before another client
/// comes, and then nothing is shown.
const ATTEMPTS: usize = 5;

/// What a fault does when nothing is done against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    TwoHolders,
    FallenToken,
    Stuck,
}

struct Fault {
    name: &'static str,
    case: fn(Rules) -> Vec<Violation>,
    harm: Harm,
    cure: Cure,
    needs: &'static [Need],
}

const SERVERS: &[Need] = &[Need::Redis];
#[cfg(feature = "sqlite")]
const MOUNTS: &[Need] = &[Need::Mounts];
#[cfg(feature = "sqlite")]
const TIMES: &[Need] = &[Need::Mounts, Need::Times];
const CLOCKS: &[Need] = &[Need::Redis, Need::Clocks];

macro_rules! fault {
    ($case:ident, $harm:ident, $cure:ident, $needs:ident) => {
        Fault {
            name: stringify!($case),
            case: directed::$case,
            harm: Harm::$harm,
            cure: Cure::$cure,
            needs: $needs,
        }
    };
}

const FAULTS: &[Fault] = &[
    fault!(
        a_node_restarts_empty_between_two_majorities,
        TwoHolders,
        Guard,
        SERVERS
    ),
    fault!(two_nodes_restart_empty, TwoHolders, Guard, SERVERS),
    fault!(two_nodes_are_flushed, TwoHolders, Guard, SERVERS),
    fault!(
        a_promoted_replica_lacks_the_lock,
        TwoHolders,
        Guard,
        SERVERS
    ),
    fault!(
        a_majority_forgets_how_far_it_has_counted,
        FallenToken,
        Guard,
        SERVERS
    ),
    fault!(
        two_node_clocks_jump_an_hour_ahead,
        TwoHolders,
        Expiry,
        CLOCKS
    ),
    fault!(two_node_clocks_go_back_an_hour, Stuck, Always, CLOCKS),
];

// === impl Fault ===

impl Fault {
    fn trial(&'static self, rules: Rules) -> Trial {
        let name = format!("directed::{}[{rules}]", self.name);
        trial(&name, self.needs, move || self.check(rules))
    }

    fn check(&self, rules: Rules) {
        let seen = self.strike(rules);
        if rules.cure(self.cure) {
            assert!(seen.is_empty(), "with the rule on: {seen:?}");
            return;
        }
        let mut all = vec![seen];
        while !all.iter().flatten().any(|seen| self.harm.is(seen)) {
            assert!(
                all.len() < ATTEMPTS,
                "with the rule off, not even {:?}: {all:?}",
                self.harm
            );
            all.push(self.strike(rules));
        }
    }

    fn strike(&self, rules: Rules) -> Vec<Violation> {
        let seen = (self.case)(rules);
        for violation in &seen {
            println!("{}[{rules}]: {violation}", self.name);
        }
        seen
    }
}

impl Harm {
    fn is(self, violation: &Violation) -> bool {
        self == match violation {
            Violation::TwoHolders { .. } => Self::TwoHolders,
            Violation::FallenToken { .. } => Self::FallenToken,
            Violation::Stuck { .. } => Self::Stuck,
        }
    }
}

/// Cases with each foreign client on so many masters, with every rule; some of them without any, too.
fn interop() -> Vec<Trial> {
    type Case = fn(Peer, usize, Rules);
    let cases: [(&str, &[Need], Case); 5] = [
        (
            "their_clock_goes_back",
            CLOCKS,
            interop::their_clock_goes_back,
        ),
        ("they_hold", SERVERS, interop::they_hold),
        ("we_hold", SERVERS, interop::we_hold),
        ("they_die", SERVERS, interop::they_die),
        ("both_count", SERVERS, interop::both_count),
    ];
    let control: (&str, &[Need], Case) = (
        "without_the_lock_updates_are_lost",
        SERVERS,
        interop::without_the_lock_updates_are_lost,
    );
    let named = |(name, needs, case): (&str, &[Need], Case), peer: Peer, nodes, rules| {
        let runtime = match peer {
            Peer::NodeRedlock => Need::Node,
            Peer::RedisPy | Peer::Pottery => Need::Python,
            Peer::Rslock => Need::Rust,
        };
        let name = format!("interop::{peer:?}::{name}[{nodes},{rules}]");
        trial(&name, &[needs, &[runtime]].concat(), move || {
            case(peer, nodes, rules)
        })
    };
    let mut trials = vec![
        named(control, Peer::NodeRedlock, 1, ALL_OFF),
        named(control, Peer::RedisPy, 1, ALL_OFF),
        named(control, Peer::Rslock, 1, ALL_OFF),
    ];
    let mut scene = |peer, nodes, rules, cases: &[_]| {
        trials.extend(cases.iter().map(|case| named(*case, peer, nodes, rules)));
    };
    for rules in [ALL_OFF, ALL_ON] {
        scene(Peer::NodeRedlock, 3, rules, &cases);
        scene(Peer::RedisPy, 1, rules, &cases);
        scene(Peer::Rslock, 3, rules, &cases);
        scene(Peer::Pottery, 3, rules, &cases[1..]);
    }
    let turns: [(&str, &[Need], Case); 2] = [
        ("we_get_our_share", SERVERS, interop::we_get_our_share),
        (
            "we_take_turns_in_unrest",
            SERVERS,
            interop::we_take_turns_in_unrest,
        ),
    ];
    scene(Peer::NodeRedlock, 3, ALL_ON, &turns);
    // What a clock does to a value does not depend on who wrote it.
    scene(Peer::NodeRedlock, 1, ALL_ON, &cases[1..]);
    scene(Peer::Rslock, 5, ALL_ON, &cases[1..]);
    trials
}

fn main() {
    #[cfg(feature = "sqlite")]
    if mounts::is_inner() {
        return;
    }
    if process::is_client() {
        return;
    }
    let mut arguments = libtest_mimic::Arguments::from_args();
    // Most of the time most of them wait for a lease to end.
    arguments.test_threads = arguments.test_threads.or(Some(8));
    let mut trials = Vec::new();
    for rules in COMBINATIONS.iter().filter(|rules| !rules.are_mixed()) {
        // First: it takes longest.
        let name = format!("torture[{rules}]");
        trials.push(trial(&name, CLOCKS, || torture::torture(*rules)));
        let name = format!("delays[{rules}]");
        trials.push(trial(&name, SERVERS, || torture::delays(*rules)));
    }
    trials.push(trial("torture::mixed", CLOCKS, torture::mixed));
    for rules in COMBINATIONS {
        trials.extend(FAULTS.iter().map(|fault| fault.trial(*rules)));
        let name = format!("directed::without_a_fault_nothing_happens[{rules}]");
        let case = || assert_eq!(directed::without_a_fault_nothing_happens(*rules), []);
        trials.push(trial(&name, SERVERS, case));
    }
    macro_rules! plain {
        ($($module:ident :: $case:ident: $needs:expr),+ $(,)?) => {
            vec![$(trial(concat!(stringify!($module), "::", stringify!($case)), $needs, $module::$case)),+]
        };
    }
    trials.extend(plain![
        outage::a_wait_ends_at_its_limit_whatever_the_nodes_do: SERVERS,
        outage::a_majority_that_stands_still_within_a_lease_costs_nothing: SERVERS,
        directed::a_server_goes_by_its_stepped_clock: CLOCKS,
        fleets::a_program_without_the_guard_takes_no_lock_of_a_guarded_fleet: SERVERS,
        fleets::a_program_without_the_guard_leaves_the_lost_nodes_of_a_guarded_fleet_alone: SERVERS,
        fleets::a_new_fleet_without_the_guard_comes_up_although_a_node_is_down: SERVERS,
        fleets::a_program_with_the_guard_takes_no_lock_of_an_unguarded_fleet: SERVERS,
        fleets::a_program_that_names_no_fleet_takes_no_lock_of_a_guarded_one: SERVERS,
        fleets::programs_that_name_no_fleet_and_have_the_same_times_are_one: SERVERS,
        fleets::programs_with_and_without_raw_keys_share_no_locks: SERVERS,
        fleets::a_newcomer_with_shorter_leases_comes_first_after_a_loss_and_gets_nothing: SERVERS,
        fleets::a_newcomer_does_not_admit_a_lost_node_of_another_fleet: SERVERS,
        lists::a_list_that_shares_a_node_with_a_fleet_is_refused_by_name: SERVERS,
        lists::of_two_new_lists_that_share_a_node_one_comes_up_at_most: SERVERS,
        lists::a_node_that_lost_its_memory_is_not_taken_by_another_list: SERVERS,
        lists::a_longer_list_is_refused_by_name: SERVERS,
        lists::a_list_in_another_order_is_the_same: SERVERS,
        lists::two_addresses_of_one_server_found_no_fleet: SERVERS,
        lists::an_address_that_leads_elsewhere_for_one_program_gives_no_two_holders: SERVERS,
        lists::an_address_that_leads_elsewhere_while_a_fleet_is_founded_gives_no_two_holders: SERVERS,
        lists::a_server_that_one_program_alone_is_led_to_has_no_vote: SERVERS,
        lists::without_rosters_a_server_that_one_program_alone_is_led_to_makes_two_holders: SERVERS,
        lists::without_rosters_lists_that_share_a_node_have_two_holders: SERVERS,
        history::leases_one_after_the_other_are_right: &[],
        history::leases_that_overlap_are_seen_in_pairs: &[],
        history::a_token_that_is_repeated_or_falls_is_seen: &[],
    ]);
    #[cfg(feature = "testing")]
    trials.extend(plain![
        fleets::a_program_without_the_guard_that_does_not_look_first_is_a_second_holder: SERVERS,
    ]);
    #[cfg(feature = "sqlite")]
    trials.extend(plain![
        mounts::a_file_that_is_mounted_alone_is_refused_and_its_folder_is_shared: MOUNTS,
        mounts::a_file_on_a_mount_that_is_read_only_is_refused: MOUNTS,
        mounts::a_disk_that_is_full_grants_nothing_until_there_is_room: MOUNTS,
        mounts::a_container_waits_for_the_processes_of_another_on_a_removed_file: MOUNTS,
        mounts::a_container_with_a_clock_of_its_own_ends_no_lease: TIMES,
    ]);
    trials.extend(interop());
    libtest_mimic::run(&arguments, trials).exit();
}
