//! The larger bounds, for those who change the protocol, and deep mutants once more without a prefix, so that their traces are
//! the shortest of all.
//!
//! Some stay with their prefix: A2 and O5, for one, need messages that come twice beside watches that are reads, which is too
//! much from the start.
//!
//! | search | states | steps of the trace |
//! | --- | --- | --- |
//! | free, late, an extension | 205,561 |  |
//! | without E3Counter, free | 140,584 | 16 |
//! | without E3Counter, `now` | 133,307 | 17 |
//! | without E1Incarnation | 343,139 | 23 |
//! | with O5Seq | 1,890,922 |  |
//! | with A2NoRewrite | 2,567,737 |  |
//! | with B6Waits | 845,885 |  |
//! | late, an extension | 61,792 |  |
//! | late and lost, an extension | 95,106 |  |
//! | late, two extensions | 312,442 |  |
//! | twice, an extension | 1,007,084 |  |
//! | three attempts, late | 52,592 |  |
//! | three clients, late | 41,973 |  |
//! | an extension each, late | 96,839 |  |
//! | explicit watches, late | 956,669 |  |
//! | late at any age, an extension | 153,021 |  |
//! | floors that are forgotten, three attempts | 505,920 |  |
//! | started again, explicit watches | 1,511,020 |  |
//! | a loss, an extension, late | 736,067 |  |
//! | two losses | 12,839 |  |
//! | a copy, two extensions | 259,582 |  |
//! | unequal ttls, a loss, an extension | 159,550 |  |
//! | swept, late, an extension | 421,653 |  |
//! | swept, tokens, three attempts | 298,697 |  |
//! | swept, a loss | 48,754 |  |
//! | free, swept, late | 399,952 |  |
//! | tokens, three attempts, late | 765,638 |  |
//! | tokens, a copy, three attempts | 1,657,064 |  |
//! | tokens, two losses | 111,286 |  |
//! | tokens, a loss, paged | 541,504 |  |
//! | tokens, three attempts, other locks | 1,566,295 |  |
//! | without C1OldWithC | 1,461,080 | 18 |
//! | without G7RecordsFirst | 410,102 | 18 |
//! | wake, three clients, four attempts | 2,972,917 |  |
//! | wake, a crash, swept, four attempts | 275,090 |  |
//! | wake, a crash, three clients | 206,956 |  |
//! | wake, break now, an extension | 502,124 |  |
//! | break, two extensions | 146,693 |  |
//! | break, late, an extension | 823,512 |  |
//! | break, a loss, an extension | 611,484 |  |
//! | break now, two extensions | 558,874 |  |
//! | break now, late, an extension | 1,565,044 |  |
//! | break, a loss, late | 532,010 |  |
//! | break, swept, late, an extension | 14,630,485 |  |
//! | break now, swept, late | 815,003 |  |
//! | break, late, unequal ttls | 2,095,337 |  |
//! | without B2Everywhere | 58,019 | 14 |
//! | without B4NowEverywhere | 59,964 | 14 |
//! | without B6Waits | 195,565 | 15 |
//! | without N2Bound | 5,272,447 | 21 |
//! | five nodes, one ahead | 279,065 |  |
//! | five nodes, swept | 124,448 |  |
//! | five nodes, a loss | 244,984 |  |
//! | five, without T2Configured | 256,208 | 18 |
//! | five, without T2Confirm | 35,057 | 12 |

use crate::{
    bounds::{TABLE, breaks_after, caught, holds, holds_after},
    breaks, leases,
    rules::Rule,
    world::{Bounds, Step},
};

#[test]
#[ignore = "takes 60 s: 3 million states"]
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
    let floors = TABLE.counting().trying(2, 1).with_floors();
    let floors = floors.restarting();
    holds("floors that are forgotten, three attempts", &floors);
    let watches = TABLE.trying(2, 1).reading().restarting();
    holds("started again, explicit watches", &watches);
    let each = TABLE.extending(1, 1);
    holds("lost, an extension each", &each.deaf());
    let ticks = each.with_ttls([3; 3]).deaf();
    holds("lost, an extension each, three ticks", &ticks);
    holds("lost, two extensions each", &TABLE.deaf().extending(2, 2));
    holds(
        "lost, unequal ttls",
        &TABLE.with_ttls([3, 2, 2]).extending(1, 0).deaf(),
    );
    holds(
        "raw, late",
        &TABLE.beside_a_stranger().late().extending(2, 0),
    );
}

#[test]
#[ignore = "takes MINUTES"]
fn one_client_alone_with_what_is_late() {
    for table in [TABLE, TABLE.by_clock()] {
        let alone = Bounds {
            total: 2,
            ..table.trying(2, 0).extending(1, 0).twice()
        };
        holds("twice, alone, a loss", &alone.losing(1));
        let broken = table.breaking().trying(1, 0).twice();
        holds("break, twice, alone", &broken.extending(2, 0));
    }
}

#[test]
#[ignore = "takes MINUTES"]
fn the_servers_clock_in_larger_bounds() {
    let server = TABLE.by_clock();
    let late = server.late();
    holds("server, late, an extension each", &late.extending(1, 1));
    holds(
        "server, twice, an extension",
        &server.twice().extending(1, 0),
    );
    holds("server, three attempts, late", &late.three());
    holds("server, three clients, late", &late.three_clients());
    holds("server, started again", &late.trying(2, 1).restarting());
    let tokens = server.counting();
    let each = tokens.deaf().extending(1, 1);
    holds("server, tokens, an extension each", &each);
    holds(
        "server, tokens, three attempts, late",
        &tokens.three().late(),
    );
    let floors = tokens.trying(2, 1).with_floors().restarting();
    holds("server, floors that are forgotten", &floors);
    let swept = server.swept_all().late().extending(1, 0);
    holds("server, swept, late, an extension", &swept);
    let lossy = server.losing(1).late().extending(1, 0);
    holds("server, a loss, late, an extension", &lossy);
    let breaks = server.breaking();
    holds(
        "server, break, late, an extension",
        &breaks.late().extending(1, 0),
    );
    holds("server, break, two extensions", &breaks.extending(2, 0));
    let lossy = breaks.losing(1).extending(1, 0);
    holds("server, break, a loss, an extension", &lossy);
    let raw = server.beside_a_stranger();
    holds(
        "server, raw, late, two extensions",
        &raw.late().extending(2, 0),
    );
    let back = server.live().with_ttls([3, 2, 2]).back(2);
    holds(
        "server, unequal ttls, two clocks go back, late",
        &back.late(),
    );
    let observed = TABLE.live().with_ttls([3, 2, 2]).back(2);
    holds(
        "unequal ttls, two clocks go back",
        &observed.extending(1, 0),
    );
}

#[test]
#[ignore = "takes 10 s: a million states"]
fn one_holder_over_lost_memory_in_larger_bounds() {
    holds(
        "a loss, an extension, late",
        &TABLE.losing(1).late().extending(1, 0),
    );
    holds(
        "a loss, an extension each",
        &TABLE.losing(1).extending(1, 1),
    );
    holds("two losses", &TABLE.losing(2));
    holds("a copy, two extensions", &TABLE.copied().extending(2, 0));
    holds(
        "unequal ttls, a loss, an extension",
        &TABLE.with_ttls([3, 2, 2]).losing(1).extending(1, 0),
    );
}

#[test]
#[ignore = "takes 10 s: a million states"]
fn sweeping_in_larger_bounds() {
    let swept = TABLE.swept_all();
    holds("swept, late, an extension", &swept.late().extending(1, 0));
    holds("swept, tokens, three attempts", &swept.counting().three());
    holds("swept, a loss", &swept.losing(1).counting());
    let free = TABLE.freeing().late().swept().extending(1, 0);
    holds("free, swept, late", &free);
}

#[test]
#[ignore = "takes 50 s: 7 million states"]
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
#[ignore = "takes 10 s: a million states"]
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
#[ignore = "takes 4 minutes and 2 gigabytes: 28 million states"]
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
#[ignore = "takes 40 s: 6 million states"]
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
#[ignore = "takes 80 s: 4 million states"]
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
