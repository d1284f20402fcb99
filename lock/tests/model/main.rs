//! An exhaustive model of the lock protocol: every schedule of a small machine, within stated bounds.
//!
//! The machine has three lock nodes (five where three are blind), two or three clients of ours, or one beside a foreign
//! client that knows only the key. One lock; a ttl of two ticks, or of three and two. Messages are lost, late, and may be executed without their
//! reply being heard; clients stop between any two steps; nodes lose their memory, come back as an older copy, and
//! have clocks that jump. What is searched is *our* protocol: [`node`] says what a node answers, as `src/node/rules`
//! and the Redis script do; [`world`] says what clients do, as `src/quorum`, `src/acquire` and `src/keeper` do.
//!
//! # Two modes
//! - *server expiry*: the key's time to live decides. Without the restart guard it stands neither a node's lost memory
//!   nor a node's clock that goes forward, and without the clamp of O6 clocks that go back on a majority block a lock
//!   for as long; the model shows all three.
//! - *observed expiry with the restart guard*: the record beside the key decides, keys may vanish at any moment any
//!   number of times, and a node that lost its memory is admitted again before it votes:
//!   [`node::Law::may_take`] is the take rule, [`node::Law::admission`] the admission.
//!
//! # What must be true in every state
//! - One holder at any instant; a token larger than every earlier one with each acquisition.
//! - A lease never goes on after another client held: a lost lease is final, and a second owner never extends.
//! - What was released on a node is never revived there; a broken lease is never extended or confirmed by a later
//!   round, and no client is let in early by a break.
//! - A verification never confirms what another, later holder has held all the while.
//! - A foreign client's key is never replaced, clamped or deleted by us.
//! - No client is stuck: with all others dead and the environment quiet, a newcomer acquires within a ttl; what was
//!   given up and undone, and what was seen released on any node, makes no client wait; clients that try once and
//!   leave get it, too.
//!
//! # Rules and the bounds in which their mutants are caught
//! All with two clients and one attempt each, unless said otherwise (`mutants`).
//!
//! | rule switched off | mode | bounds | what breaks |
//! | --- | --- | --- | --- |
//! | `R3Validity` | server | | two holders |
//! | `R4OneRound` | server | three attempts | two holders |
//! | `R5Undo` | server | | others wait for a lost attempt |
//! | `R8OldDeadline` | server | an extension each, late messages | a lease goes on over another holder's |
//! | `R8NoForeignKey` | both | a foreign client, two extensions | two holders, one of them foreign |
//! | `R9Heal` | both | directed: three attempts, one extension | two holders |
//! | `R9NoRevival` | server | one extension, late messages, releases forgotten | a released lease is revived |
//! | `R11BeliefFirst` | server | | two holders |
//! | `T1RaiseCounter` | server | tokens | a token does not rise |
//! | `T2Confirm` | server | tokens, three attempts | a token does not rise |
//! | `T2GrantCheck` | server | tokens, a clock goes forward | a token is given twice |
//! | `T2Configured` | server | directed, five nodes: three are blind | a token does not rise |
//! | `T3Extend` | server | directed: a node restarts empty without the guard | a token does not rise |
//! | `T4NodeCounter` | server | tokens, the retention ends on all nodes | a token does not rise |
//! | `N4Remembered` | server | late messages | a released lease is revived |
//! | `N6CompareOwner` | both | three attempts | two holders |
//! | `G1Marker` | both | a loss, or an older copy | two holders |
//! | `G2Watch` | observed | a loss | two holders |
//! | `G2ReadAfter`, `G2MergeMajority` | observed | tokens, a loss | a token does not rise |
//! | `O1Expected` | observed | | two holders |
//! | `O2FullTtl`, `O2NotBySilence` | observed | | two holders |
//! | `O2FromReply` | observed | explicit reads | two holders |
//! | `O2KnownOver`, `O3MarkReleased` | observed | | others wait for what is over |
//! | `O5Seq` | observed | directed: explicit reads, two extensions, a message executed twice | two holders |
//! | `O6NoForeign` | both | a foreign client | a foreign key is touched |
//! | `O6Clamp` | server | the clocks of two nodes go back | stuck |
//! | `O6ClampLongest` | server | ttls of 3 and 2, three attempts | two holders |
//! | `O2RecordTtl` | observed | ttls of 3 and 2 | two holders |
//! | `G2LongestTtl` | server | ttls of 3 and 2, a loss | two holders |
//! | `O4SitOut` | observed | | stuck, for those who try once |
//! | `BreakMarks` | both | a break, two extensions | a broken lease is extended |
//! | `N7BrokenIsWatched` | observed | a break | two holders |
//! | `N7KeyStays` | both | a break, observed beside a stranger | two holders |
//! | `V1Named` | both | directed: a break with `now`, an old copy | a verification confirms what another holds |
//! | `V1Broken` | both | a break | a verification confirms a broken lease |
//! | `ClaimNotHealed` | server | a claim, one extension, releases forgotten | a released lease is revived |
//! | `ClaimGrantIsFresh` | server | a claim in parts, tokens | a token does not rise |
//!
//! The last is a rule that the nodes do not keep: an owner's claims share one grant. So the keeper makes an attempt, with an
//! owner value of its own, of every call that it sends (`claims_of_one_attempt_come_in_one_call`).
//!
//! # Rules that safety does not rest on here
//! - `T1Floor` only saves the confirm (`a_floor_only_saves_a_round_trip`).
//! - N2, the latest time at which a call may act: every search lets late messages act at any time.
//! - `R9NextRound`: with the old deadline checked, what is written anew could count at once
//!   (`what_is_written_anew_could_count_at_once`).
//! - O4, look first, is about how long contenders get in each other's way, which this machine does not measure.
//! - R1, R2 and R6 say in which order nodes are asked and for whom one waits: here a client may ask in any order, and act
//!   on any subset of the answers, so that every schedule they allow is among those searched. What they save is shown by
//!   the tests of `src/quorum/attempt.rs`, and by `benches/lock`.
//! - R7, the fair queue, decides who is woken and never who may take: `tests/it/conformance/locks.rs`, `tests/it/locks/waiting.rs`.
//! - R10, the margin, is a number that is told: `src/keeper/renew.rs`.
//! - G3, a loss of memory, is about the ledgers of jobs: `src/due/memory_loss.rs` and `src/sim/runs.rs`. G4, a fleet of another
//!   configuration, is a node without a vote: `tests/it/conformance/admission.rs`. G5 is a cost: `tests/faults`.
//! - T6, arithmetic below 2^53, and T5, the floor after a majority has lost its memory, which is assumed good.
//!
//! # What is not in it
//! Different clock rates, more than one late message per kind and client, membership changes, record bodies
//! and ledgers, the fair queue. The simulation in `src/sim` has the real code.
//!
//! # Running it
//! `cargo test --test model` takes about a minute on two cores, and less than half a gigabyte: as a test of this
//! package it gets the little optimisation that the simulation has. The larger bounds take many minutes more:
//! `cargo test --test model -- --ignored`. With `--nocapture` each search
//! says how many states it visited, and each mutant shows its trace.

mod acts;
mod bounds;
mod broken;
mod claims;
mod deep;
mod holds;
mod mutants;
mod node;
mod quiet;
mod rules;
mod search;
#[path = "../shared/search.rs"]
mod shared;
mod steps;
mod tries;
mod ttls;
mod world;
