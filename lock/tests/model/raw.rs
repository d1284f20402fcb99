//! Raw keys: the plain key stands for foreign clients, its record in the table. The record decides among our own; the key
//! keeps a stranger out, and a stranger's keeps us out.

use crate::{
    bounds::{TABLE, acquires, breaks_after, caught, holds},
    rules::Rule,
    world::Bounds,
};

const RAW: Bounds = TABLE.beside_a_stranger();
const FOREIGN: &str = "two holders, one of them foreign";

/// Beside one more client of ours.
const BETWEEN: Bounds = Bounds {
    attempts: [1, 1, 1],
    total: 3,
    ..RAW
};

#[test]
fn raw_keys_exclude_a_stranger() {
    holds("raw", &RAW.extending(2, 0));
    holds("raw, between two of ours", &BETWEEN);
    holds("raw, break", &RAW.breaking());
    holds("raw, swept", &BETWEEN.swept_all());
}

/// The key stands on, and lets no stranger in; without the record none of ours is granted.
#[test]
fn raw_keys_stand_a_lost_table() {
    let lost = Bounds { tables: 1, ..RAW };
    holds("raw, a lost table", &lost);
    let lost = Bounds {
        tables: 1,
        attempts: [1, 1, 0],
        ..RAW
    };
    holds("raw, a lost table, two of ours", &lost);
}

/// What the record says of our own leases does not hang on the key.
#[test]
fn raw_keys_that_vanish_let_none_of_ours_in() {
    let vanish = Bounds {
        evictions: 2,
        attempts: [1, 1, 0],
        ..RAW
    };
    holds("raw, keys vanish", &vanish);
}

#[test]
fn r8_a_strangers_key_is_no_vote() {
    caught(
        Rule::R8NoForeignKey,
        Bounds {
            evictions: 1,
            ..RAW.extending(2, 0)
        },
        FOREIGN,
    );
}

#[test]
fn o6_a_strangers_key_is_left_alone() {
    caught(Rule::O6NoForeign, RAW, "a foreign client's key");
}

#[test]
fn n7_a_break_leaves_the_plain_key() {
    caught(Rule::N7KeyStays, RAW.breaking(), FOREIGN);
}

/// A plain key is all that a stranger goes by.
#[test]
fn a_stranger_is_not_safe_where_keys_vanish_early() {
    let vanish = Bounds {
        evictions: 1,
        ..RAW
    };
    let prefix = acquires(0, &[0, 1], false);
    breaks_after::<3>("raw, a key vanishes", &vanish, &prefix, FOREIGN);
}
