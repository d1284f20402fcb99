//! An exhaustive model of the lock protocol, in which a node's memory is one value (*layout 2*): every schedule of a small
//! machine, within stated bounds.
//!
//! The machine has three lock nodes (five where three are blind) and two or three clients; one lock; a ttl of two ticks, or of
//! three and two. Messages are late, repeated, and may be executed without their reply being heard; clients stop between any
//! two steps; nodes lose their memory or come back as an older copy; records are swept; leases are broken; clients sleep until
//! they are told. [`node`] says what a node answers, [`world`] and [`acts`] what clients do, [`promises`] what must be true of
//! every state. Beside it stand three small machines: [`fleets`], of programs that are configured differently, [`roster`], of who
//! the nodes of a fleet are, and [`claims`].
//!
//! # Two ways to end a lease
//! With *observed expiry* a contender takes what it has watched standing still for its ttl, whatever the node's clock says. With
//! *server expiry* (`locks.expiry = "server"`, a single server, the embedded file) the end that stands in the record decides, by the
//! node's own clock. All else is the same, and [`server_clock`] searches it for both: without the restart guard neither stands a lost
//! memory, and server expiry does not stand a clock that goes forward.
//!
//! # Layout 2
//! A node keeps, for a namespace, one hash: a record for each lock, `c`, which is the largest counter of all records that were
//! forgotten, and the marker of the incarnation that was admitted. A record is a state (H held, R released, B broken), the owner,
//! the number of its round, its ttl, its grant, the counter, the incarnation, and a flag that says whether a client waits.
//! With it stands when the record ends by the node's clock.
//! Nothing else is remembered: no marks of owners that are over. What arrives late for one of them can make others wait, and
//! can let no other in.
//!
//! *Base* is the counter that a grant must exceed: the record's where one stands, `c` where none does, and the larger of both
//! where the record is of another incarnation. A record of another incarnation names no owner.
//!
//! # What must be true in every state
//! - One holder at any instant. A lease never goes on after another client held.
//! - A token is larger than every earlier one, and than the one that a break took before its attempt began.
//! - A round that begins after a majority was told of a break is never won, and no verification confirms what is broken or what
//!   another, later holder has held all the while.
//! - What was released on a node is never revived there by its owner.
//! - A lock whose releases have been answered is free: no majority shows an owner that is over.
//! - No wake-up is lost: while a client sleeps and all others rest, the lock is not free, or the client has been told.
//! - The lock is never stuck: with all others dead, a newcomer acquires within a ttl, also one that tries once and leaves, and also
//!   where clocks of nodes have gone back.
//! - A stranger's key is never touched.
//!
//! # The rules
//! Each is switched off in a test whose name begins with its letters, and then that search must find what the third column says. The last
//! one has the states that it visited and the steps of its trace, which is a shortest one: of all, or (*) of those that begin
//! like the story that the test tells. [`long`] has some of these without their beginning.
//!
//! | rule | says | without it | found |
//! | --- | --- | --- | --- |
//! | `A1OwnOver` | An acquire is refused where its own owner stands released or broken. | A late or repeated acquire takes its own release again: no client holds, and the lock is barred for a ttl. | 110 (5) |
//! | `A2NoRewrite` | An acquire that finds itself held writes nothing, and is answered the grant that stands there. | It writes the first round over the second; a client that has watched the first takes over a living lease: two holders. | 87,972 (19)* |
//! | `E1Incarnation` | An extension keeps only what shows owner and incarnation. | A node that came back as a copy counts for its old holder and lets others in: two holders. | 4,077 (23)* |
//! | `E2NoRevival` | An extension that finds its own owner released or broken is refused. | A late round revives what was released. | 3,617 (9) |
//! | `E3Counter` | What does not show the holder is written anew by the take rule, and a record of this incarnation only if its counter is not above the lease's token. | Late rounds write a dead owner over what others took and left, until a majority shows it; and `now` is undone by the holder's next rounds. | 71,872 (17)*, 9,312 (17)* |
//! | `C1OldWithC` | A record of another incarnation counts together with `c`. | A copy that was admitted grants a token for the second time. | 402 (18)* |
//! | `C2HealBase` | Healing writes the larger of base and token. | A late round of a dead lease lowers what its successor raised. | 3,260 (24)* |
//! | `C3SweepRaises` | A sweep raises `c` in the step that deletes. | The next token is an old one. | 2,279 (11) |
//! | `C4FreshFromC` | A fresh record starts above `c`. | The same. | 2,871 (11) |
//! | `T1Raise` | A grant raises the record's counter. | The next token is the same. | 933 (9) |
//! | `T2Confirm` | Where grants differ, the largest is confirmed before it is believed. | A minority knows the token alone. | 26,559 (12) |
//! | `T2Configured` | A confirm needs a majority of the configured nodes, and not of those that granted. | Of five nodes two confirm, and the next majority does without them. | 44,914 (18)* |
//! | `T2GrantCheck` | A node that granted this attempt a larger number answers a confirm with it. | Where a clock goes forward, a token is given twice. | 31,752 (19) |
//! | `T3Extend` | Extensions carry the token. | Without the guard, a node that restarts empty is told of the lease and not of its token. | 276 (21)* |
//! | `R9Heal` | What is not ours is written anew only where an acquire might. | Two holders, where E3 is off as well. | 19,016 (23)* |
//! | `N2Bound` | No acquire and no round acts a ttl after it was sent. | An acquire lands where the break's mark was taken and left again, and the broken lease goes on. | 54,620 (21)* |
//! | `N2Exclusive` | At that very moment it is too late already. | The same, where the lease is broken at the moment in which it was acquired. | 63,169 (21)* |
//! | `N4Ordered` | A release goes out behind its acquire, on one connection, or when that acquire is too late. | It finds nothing, is answered, and then the acquire lands: all is released, and a majority bars the lock. | 2,314 (7) |
//! | `N6CompareOwner` | A release touches only what its owner wrote. | It releases a successor. | 8,097 (11) |
//! | `S0Retention` | A release is kept for the longest ttl before it is swept. | A late round finds nothing, heals it, and a majority shows a dead owner; and what `now` has released goes on. One holder and tokens do not need it. | 9,555 (15)*, 1,353 (14)* |
//! | `S1SweepCompares` | A sweep compares what it has read in the step that deletes. | It deletes a lease that came between. | 23,048 (14) |
//! | `S2SweepWatched` | What is held or broken is swept only after a watch of its ttl. | A clock that is wrong ends a living lease. | 1,455 (9) |
//! | `G1Marker` | A node that lost its memory, or shows an older one, does not vote before it is admitted. | Two holders. | 4,995 (9), 7,848 (10) |
//! | `G2Watch`, `G2LongestTtl` | It is watched for the longest ttl of all before. | Two holders. | 4,436 (10), 19,232 (12) |
//! | `G2ReadAfter`, `G2Majority` | Its `c` is raised to what N - q + 1 others show, read after that watch. | A token is given again. | 12,150 (12), 13,616 (12) |
//! | `G7RecordsFirst` | Of each of them the records are read first, and then `c`. | A record is swept between the two, and is in neither. | 2,983 (19)* |
//! | `N7Marks` | A break marks the record of its target. | Its rounds go on. | 10,768 (11) |
//! | `BreakRaises` | A break raises the counter to the token that it takes. | The next token is not above it. | 8,977 (13) |
//! | `N7EndStays` | A break leaves the record its end by the node's clock. | Two holders, with server expiry. | 3,039 (11) |
//! | `B1Watched` | What is broken is watched for its ttl like what is held. | Two holders. | 3,373 (11) |
//! | `B2Everywhere` | A break writes its mark also where nothing of its target stands. | The next round heals that node, and the one after it counts it. | 9,909 (14)* |
//! | `B3Admitted` | A node that is not admitted is not told. | Its mark is of an incarnation that will not count. | 67,134 (22)* |
//! | `B4NowEverywhere` | `now` writes the release also where nothing of its target stands. | As without `B2Everywhere`. | 11,974 (14)* |
//! | `B5Taken` | What is broken may be taken after its watch. | The lock is stuck for ever. | 735 (7) |
//! | `B6Waits` | `now` breaks first, and writes the release only when no acquire of its target can act any more. | One lands where another client has taken and left the node, and the next round counts it. | 89,794 (15)* |
//! | `W1KeepFlag` | Whatever writes over a held or broken record keeps its flag. | Of two that wait for an orphan one takes over, and the other is never told. | 51,343 (19)* |
//! | `W2Enough` | A client sleeps only when N - q + 1 nodes have refused it and it has heard them. | The flag stands on an orphan, while the lock is free elsewhere. | 769 (6) |
//! | `W2Voters` | The refusal of a node without a vote is none of them. | The same. | 7,147 (11)* |
//! | `W3Atomic` | A refusal sets the flag in the same step. | The release comes between. | 5,199 (12) |
//! | `W4SweepTells`, `W4NowTells` | A sweep of a lease, and a break with `now`, tell those who wait. | They sleep on. | 6,243 (11), 28,522 (14) |
//! | `W5Remembered` | What is told while an attempt is under way is remembered until it has failed. | The client goes to sleep behind its call. | 2,802 (10) |
//! | `W6ReleaseTells` | A release tells those who wait. | They sleep on. | 2,788 (10) |
//! | `O1Expected` | What the caller has watched is compared in the step that replaces it. | Two holders. | 1,233 (8) |
//! | `O2FullTtl`, `O2FromReply`, `O2RecordTtl` | A watch lasts the whole ttl that the record names, from the reply that showed it. | Two holders. | 721 (9), 6,189 (11), 2,938 (10) |
//! | `O2NotBySilence` | Only a release proves that an owner is over. | Two holders. | 589 (8) |
//! | `O2KnownOver` | A release that was seen on any node counts on all. | Others wait for what is over. | 61 (4) |
//! | `O3MarkReleased` | A failed attempt is released like a lease. | It bars the lock. | 72 (4) |
//! | `O4SitOut` | A single try sits out an orphan. | Clients that try once never acquire. | 22 (3) |
//! | `O5Seq` | A round that is not newer than the record's changes nothing. | A late round puts back what a client has watched: two holders. | 84,502 (23)* |
//! | `R3Validity` | A lease counts from before its round's first byte. | Two holders. | 1,754 (10) |
//! | `R4OneRound` | Votes are summed within one round, under an owner value of its own. | Two holders. | 4,813 (12) |
//! | `R8OldDeadline` | An extension counts only before the old deadline. | A lease goes on over another holder's. | 240,679 (19) |
//! | `R11BeliefFirst` | Belief ends before the release leaves. | Two holders. | 868 (9) |
//! | `V1Named`, `V1Broken` | A verification counts only nodes that vote and show the lease held, in their incarnation. | It confirms what another holds, or what was broken. | 799 (18)*, 5,601 (11) |
//! | `R8NoForeignKey` | On raw keys, a node is no vote for an extension while a stranger's key stands on it. | Two holders, one of them foreign. | 3,687 (9) |
//! | `O6NoForeign` | A stranger's key is left alone. | It is overwritten. | 50 (4) |
//! | `N7KeyStays` | A break leaves the plain key to run out. | Two holders, one of them foreign. | 3,012 (10) |
//! | `N10Clamp` | What outlives every lease, because a clock went back, is cut. | The lock is stuck for as long as the clock says; and with observed expiry for those who try once. | 197 (5), 223 (5) |
//! | `N10Longest` | It is cut to the longest ttl, not to that of the client that was refused. | A living lease ends: two holders. | 16,794 (12) |
//!
//! # Rules that safety does not rest on here
//! - `T2GrantCheck`, where no clock goes forward: a larger grant that went unheard has raised its node's counter all the same
//!   (`t2_a_larger_grant_need_not_be_told_to_three_nodes`).
//! - `T2Living`: what has ended by the node's clock, and shows its owner still, could be confirmed
//!   (`t2_what_has_ended_could_be_confirmed`).
//! - `R9Heal` or `E3Counter`, as long as the other is on (`r9_healing_follows_the_take_rule_or_e3`): a grant that a contender could
//!   still win with is larger than the lease's token, or must be confirmed.
//! - T1, a grant above the largest token that its client has seen: searches count tokens without it and with it (`floors`).
//! - `T3Extend`, as long as the guard is on (`t3_extensions_need_not_carry_the_token_under_the_guard`); E3 needs the token.
//! - `R9NextRound`: with the old deadline checked, what is healed could count at once (`r9_what_is_healed_could_count_at_once`).
//! - `O2KnownOver` spares a watch. So does `S0Retention`, but for what `now` has released
//!   (`s0_what_now_has_released_is_kept_for_a_ttl`).
//! - The end of late calls, N2, is for breaks, and to bound a wait: one holder and tokens stand messages of any age
//!   (`n2_one_holder_does_not_need_it`).
//! - The old deadline, R8, follows from R3 and N2, unless records are swept while a holder may still send rounds
//!   (`r8_the_deadline_is_needed_with_n2_where_records_are_swept`).
//!
//! # How long others wait for nothing
//! With all clients dead, a newcomer that watches acquires less than two ttls later: what is under way arrives within one (N2),
//! and whatever it has written is ripe after another. It may take more than one
//! (`an_orphan_bars_the_lock_for_less_than_two_ttls`).
//!
//! # Where it is searched
//! | what | where |
//! | --- | --- |
//! | fleets that are configured differently, and `max_ttl` that differ | [`fleets`]; five nodes: `an_admission_asks_all_other_nodes` |
//! | lists of nodes that differ; addresses that lead elsewhere | [`roster`], with two lists of five; [`fleets`] |
//! | leases that end by the servers' clocks, and clocks that jump | [`server_clock`], [`long`] |
//! | nodes without the restart guard | [`server_clock`] |
//! | short claims | [`claims`] |
//! | raw keys, and foreign clients | [`raw`] |
//! | unequal ttls, clients that start again | [`holds`], [`long`] |
//! | sweeping | [`sweeping`], [`counters`], [`long`] |
//! | the waiting flag | [`wakes`], [`long`] |
//! | T2 on five nodes | [`five`] |
//!
//! The real code under delay, loss, crashes, freezes, lost memory and clocks of other rates: `src/sim/locks.rs`, over three and
//! five nodes.
//!
//! # What is not in it
//! - Different clock rates; allowances for them are numbers.
//! - More than one late acquire and one late round of a client. A message that was executed before may come again, and several
//!   nodes may get the same one late.
//! - Retries of a break by an operator who has gone, and two breaks at once.
//! - Losses of memory beside waiting clients: a flag that is lost with its node is left to polling, as is a lost subscription.
//! - Records of several locks in one table, but for `c` that rises by itself; bodies and ledgers beside the table; the line (R7);
//!   membership that changes while programs run. Who is woken in a line decides never who may take: `src/conformance/locks.rs`.
//! - When fewer than N - q + 1 other nodes can be read, the floor from outside is taken as good (T5).
//! - Whether HSCAN returns all that stands: taken from its documentation.
//! - R1, R2 and R6, in which order nodes are asked and for whom one waits: here a client may ask in any order, and act on any subset
//!   of the answers. What they save is shown by the tests of `src/quorum/attempt.rs`, and by `benches/lock`.
//! - R10, the margin, is a number that is told: `src/keeper/renew.rs`. G3, a loss of memory, is about the ledgers of jobs:
//!   `src/due/memory_loss.rs` and `src/sim/runs.rs`; G5 is a cost: `tests/faults`. T6 is arithmetic below 2^53.
//!
//! # Running it
//! `cargo test --test model` takes about ten seconds on two cores. The larger bounds take some minutes more:
//! `cargo test --test model -- --ignored`; the head of [`long`] lists their states. With `--nocapture` each search says how
//! many states it visited, and each mutant shows its trace.

mod acts;
mod bounds;
mod breaks;
mod claims;
mod counters;
mod five;
mod fleets;
mod holds;
mod leases;
mod long;
mod machine;
mod node;
mod promises;
mod raw;
mod roster;
mod rules;
mod server_clock;
#[path = "../shared/search.rs"]
mod shared;
mod steps;
mod sweeping;
mod wakes;
mod world;
