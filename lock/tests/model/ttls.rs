//! Leases of different ttls, and the clamp of keys that outlive them.
//!
//! The first client's leases have three ticks, the second's two. Each record is watched for its own ttl, a node that
//! lost its memory for the longest, and a key whose node's clock went back is cut to the longest, which no living lease
//! exceeds.

use crate::{
    bounds::{OBSERVED, SERVER, caught, holds},
    rules::Rule,
    world::Bounds,
};

const TTLS: [u8; 3] = [3, 2, 2];

fn unequal(bounds: Bounds) -> Bounds {
    bounds.with_ttls(TTLS).in_time()
}

/// The clocks of two nodes go back.
fn back(bounds: Bounds) -> Bounds {
    Bounds {
        back: true,
        vanish: false,
        jumps: 2,
        ..bounds
    }
}

/// An attempt each, an extension of the longer lease.
#[test]
fn unequal_ttls_keep_one_holder() {
    holds("server, unequal ttls", &unequal(SERVER).extending(1, 0));
    holds("observed, unequal ttls", &unequal(OBSERVED).extending(1, 0));
}

#[test]
#[ignore = "takes 30 s: more than half a million states each"]
fn unequal_ttls_in_larger_bounds() {
    let lossy = unequal(OBSERVED).losing(1);
    holds("observed, unequal ttls, a loss", &lossy);
    caught(Rule::G2LongestTtl, lossy, "two holders");
    let late = OBSERVED.with_ttls(TTLS).extending(1, 0).never_late();
    holds("observed, unequal ttls, replies lost", &late);
    let clocks = back(unequal(OBSERVED));
    holds("observed, unequal ttls, two clocks go back", &clocks);
}

#[test]
fn o2_the_records_ttl_counts_not_the_contenders() {
    caught(Rule::O2RecordTtl, unequal(OBSERVED), "two holders");
}

#[test]
fn g2_a_node_is_watched_for_the_longest_ttl() {
    let lossy = unequal(SERVER).losing(1);
    caught(Rule::G2LongestTtl, lossy, "two holders");
}

/// The one with the short ttl is refused, which cuts what it found, and tries again.
#[test]
fn o6_the_clamp_cuts_no_living_lease() {
    let again = Bounds {
        attempts: [1, 2, 0],
        total: 3,
        liveness: false,
        ..unequal(SERVER)
    };
    caught(Rule::O6ClampLongest, again, "two holders");
    holds("server, unequal ttls, three attempts", &again);
    let clocks = back(unequal(SERVER));
    holds("server, unequal ttls, two clocks go back", &clocks);
}

/// Where the record decides, a key that stays bars only those who try once: they see a holder and leave.
#[test]
fn o6_those_who_try_once_need_the_clamp_also_where_the_record_decides() {
    caught(
        Rule::O6Clamp,
        back(OBSERVED.in_time()),
        "stuck: whoever tries once",
    );
}
