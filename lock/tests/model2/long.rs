//! The larger bounds, for those who change the protocol, and each deep mutant once more without a prefix, so that its trace is
//! the shortest of all.

use crate::{
    bounds::{TABLE, breaks_after, caught, holds, holds_after},
    breaks, leases,
    rules::Rule,
    world::{Bounds, Step},
};

#[test]
#[ignore = "takes minutes: millions of states"]
fn one_holder_in_larger_bounds() {
    holds("late, an extension", &TABLE.late().extending(1, 0));
    holds(
        "late and lost, an extension",
        &TABLE.late().deaf().extending(1, 0),
    );
    holds("late, two extensions", &TABLE.late().extending(2, 0));
    holds("twice, an extension", &TABLE.twice().extending(1, 0));
    holds("three attempts, late", &TABLE.three().late());
    holds("three clients, late", &TABLE.three_clients().late());
    holds("an extension each, late", &TABLE.late().extending(1, 1));
    holds(
        "explicit watches, late",
        &TABLE.reading().late().extending(1, 0),
    );
    let ages = TABLE.late().without(Rule::N2Bound);
    holds("late at any age, an extension", &ages.extending(1, 0));
    let floors = Bounds {
        floors: true,
        restarts: true,
        ..TABLE.counting().trying(2, 1)
    };
    holds("floors that are forgotten, three attempts", &floors);
}

#[test]
#[ignore = "takes minutes: millions of states"]
fn one_holder_over_lost_memory_in_larger_bounds() {
    holds(
        "a loss, an extension, late",
        &TABLE.losing(1).late().extending(1, 0),
    );
    holds("two losses", &TABLE.losing(2));
    holds("a copy, two extensions", &TABLE.copied().extending(2, 0));
    holds(
        "unequal ttls, a loss, an extension",
        &TABLE.with_ttls([3, 2, 2]).losing(1).extending(1, 0),
    );
}

#[test]
#[ignore = "takes minutes: millions of states"]
fn sweeping_in_larger_bounds() {
    let swept = TABLE.swept_all();
    holds("swept, late, an extension", &swept.late().extending(1, 0));
    holds("swept, tokens, three attempts", &swept.counting().three());
    holds("swept, a loss", &swept.losing(1).counting());
    let free = TABLE.freeing().late().swept().extending(1, 0);
    holds("free, swept, late", &free);
}

#[test]
#[ignore = "takes minutes: millions of states"]
fn tokens_in_larger_bounds() {
    let tokens = TABLE.counting();
    holds("tokens, three attempts, late", &tokens.three().late());
    holds("tokens, a copy, three attempts", &tokens.copied().three());
    holds("tokens, two losses", &tokens.losing(2));
    let paged = Bounds {
        paged: true,
        ..tokens.losing(1).swept()
    };
    holds("tokens, a loss, paged", &paged);
    let bumps = Bounds {
        bumps: 2,
        ..tokens.three()
    };
    holds("tokens, three attempts, other locks", &bumps);
    caught(
        Rule::C1OldWithC,
        tokens.copied().trying(2, 1),
        "a token did not rise",
    );
    caught(Rule::G7RecordsFirst, paged, "a token did not rise");
}

#[test]
#[ignore = "takes minutes: millions of states"]
fn five_nodes_in_larger_bounds() {
    let five = Bounds {
        bumps: 1,
        ..TABLE.counting()
    };
    holds_after::<5>("five nodes, one ahead", &five, &[]);
    holds_after::<5>("five nodes, swept", &TABLE.counting().swept(), &[]);
    let lossy = TABLE.counting().losing(1);
    holds_after::<5>("five nodes, a loss", &lossy, &[Step::Loses(0)]);
    for rule in [Rule::T2Configured, Rule::T2Confirm] {
        let promise = "a token did not rise";
        breaks_after::<5>(
            &format!("five, without {rule:?}"),
            &five.without(rule),
            &[],
            promise,
        );
    }
}

#[test]
#[ignore = "takes minutes: millions of states"]
fn breaks_in_larger_bounds() {
    let extended = "a broken lease was extended";
    let break_late = TABLE.breaking().late();
    holds("break, two extensions", &TABLE.breaking().extending(2, 0));
    holds("break, late, an extension", &break_late.extending(1, 0));
    holds(
        "break, a loss, an extension",
        &TABLE.breaking().losing(1).extending(1, 0),
    );
    holds(
        "break now, two extensions",
        &TABLE.breaking_now().extending(2, 0),
    );
    holds(
        "break now, late, an extension",
        &TABLE.breaking_now().late().extending(1, 0),
    );
    holds("break, a loss, late", &break_late.losing(1));
    let swept = break_late.swept_all().extending(1, 0);
    holds("break, swept, late, an extension", &swept);
    let now = TABLE.breaking_now().late().swept_all();
    holds("break now, swept, late", &now);
    let ttls = TABLE.breaking().late().with_ttls([3, 2, 2]);
    holds("break, late, unequal ttls", &ttls.extending(1, 0));
    let at_once = TABLE.breaking_now().without(Rule::B6Waits);
    caught(
        Rule::B2Everywhere,
        TABLE.breaking().extending(2, 0),
        extended,
    );
    caught(Rule::B4NowEverywhere, at_once.extending(2, 0), extended);
    caught(Rule::E3Counter, at_once.extending(2, 0), extended);
    caught(
        Rule::B6Waits,
        TABLE.breaking_now().late().extending(1, 0),
        extended,
    );
    caught(Rule::N2Bound, break_late.extending(2, 0), extended);
}

#[test]
#[ignore = "takes minutes: millions of states"]
fn healing_in_larger_bounds() {
    let free = TABLE.freeing().late().extending(1, 0);
    holds("free, late, an extension", &free);
    caught(Rule::E3Counter, free, "a released lock is not free");
    caught(
        Rule::E1Incarnation,
        TABLE.copied().extending(2, 0),
        "two holders",
    );
    let twice = TABLE.reading().twice();
    let rounds = twice.extending(2, 0);
    holds_after::<3>("with O5Seq", &rounds, &leases::two_rounds());
    let round = twice.extending(1, 0);
    holds_after::<3>(
        "with A2NoRewrite",
        &round,
        &leases::a_round_and_a_late_acquire(),
    );
    let breaks = TABLE.breaking_now().late().extending(1, 0);
    holds_after::<3>("with B6Waits", &breaks, &breaks::under_way());
}

#[test]
#[ignore = "takes minutes: millions of states"]
fn wake_ups_in_larger_bounds() {
    let waits = TABLE.waking();
    let crash = Bounds {
        crashes: 1,
        ..waits
    };
    holds(
        "wake, three clients, four attempts",
        &Bounds {
            attempts: [1, 2, 1],
            total: 4,
            ..waits.three_clients()
        },
    );
    holds(
        "wake, a crash, swept, four attempts",
        &crash.swept_all().trying(2, 2),
    );
    holds("wake, a crash, three clients", &crash.three_clients());
    holds(
        "wake, break now, an extension",
        &waits.breaking_now().extending(1, 0),
    );
}
