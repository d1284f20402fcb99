//! What every [`Node`] must do, written once, for those who write one.
//!
//! # Trying a store
//! Write `async fn make() -> Lab` that starts an *empty* node (an own namespace will do) and knows how to connect clients to it.
//! Every case becomes a test `name::group::case`. The feature `testing` brings the suite; no other crate is needed for it.
//!
//! ```
//! use std::sync::Arc;
//! use watchkeeper_lock::{clock::Clock, conformance::Lab, node::{Node, memory::MemoryNode}};
//!
//! async fn make() -> Lab {
//!     let node = MemoryNode::new("mine", Clock::system());
//!     Lab::new((), move || {
//!         let client: Arc<dyn Node> = Arc::new(node.clone());
//!         Box::pin(async move { client })
//!     })
//! }
//!
//! watchkeeper_lock::conformance!(mine, crate::make);
//! ```
//!
//! Where a server may be missing, one attribute for all of the tests says so:
//! `conformance!(mine, crate::make, #[cfg_attr(not(there), ignore = "there is no server")])`. A harness that makes its tests itself
//! goes through [`names`], and plays each with [`play`].
//!
//! # Adding a case
//! Write `pub(crate) async fn the_promise_as_a_sentence(lab: Lab)` in one of the groups and name it in `every_case` below; a case
//! that is not named there is reported as dead code.
//!
//! Time is real, because a Redis is: leases that must end live for [`SHORT`] and are waited for by asking the node.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    reason = "a test fails by panicking, and its name says what it holds"
)]

use std::{
    any::Any,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures_util::future::{BoxFuture, LocalBoxFuture};
use tokio::runtime::Builder;

use crate::{
    clock::Clock,
    node::{
        Announcements, Answer, Call, Cursor, Expiry, Kind, Node, NodeMs, Op, Page, Record, Reply,
        Seen, Take, Token, Version, View,
    },
};

pub mod admission;
mod breaks;
mod claims;
mod crowds;
mod late;
mod locks;
mod observed;
mod records;
mod sweeps;
mod waits;

/// Hands the names of all cases to another macro: `emit! { with: group: [case, ...], ... }`. A macro of another crate stands in
/// brackets.
#[doc(hidden)] // for those who write a node
#[macro_export]
macro_rules! every_case {
    ($emit:ident $($with:tt)*) => {
        $crate::every_case! { [$emit] $($with)* }
    };
    ([$($emit:tt)*] $($with:tt)*) => {
        $($emit)*! { $($with)*:
            locks: [
                an_absent_key_is_granted_and_a_held_one_refused_n3,
                the_same_attempt_sent_again_gets_the_same_grant_a2,
                an_attempt_sent_again_shortens_nothing_a2,
                a_late_call_changes_nothing_n2,
                a_call_at_its_very_end_is_late_n2,
                tokens_rise_over_release_expiry_and_retention_n5,
                strangers_change_nothing_n6,
                a_grant_is_above_the_floor,
                a_lease_ends_after_its_ttl,
                confirm_raises_the_counter,
                confirm_tells_a_larger_grant,
                extend_keeps_a_held_lease,
                extend_wants_a_newer_round,
                extend_keeps_an_expired_lease_that_nobody_took,
                extend_heals_a_lost_lease_and_keeps_it_next_time,
                whoever_is_polite_lets_those_before_him_pass_r7,
            ],
            late: [
                a1_an_owner_that_let_go_is_not_granted_again,
                a1_an_owner_that_was_broken_is_not_granted_again,
                a2_an_acquire_behind_a_round_undoes_nothing,
                e2_a_round_revives_nothing,
                e3_a_round_heals_nothing_that_was_granted_later,
                e3_a_round_heals_what_was_granted_before,
                e3_a_release_now_is_not_undone_where_another_has_left,
                c2_what_is_healed_keeps_the_larger_counter,
                c4_a_new_lock_begins_above_what_was_forgotten,
            ],
            breaks: [
                a_broken_lease_is_over_but_its_key_stays_n7,
                a_broken_lease_goes_now_when_asked_n7,
                a_break_touches_no_successor_n6,
                b1_what_is_broken_is_watched_like_what_is_held,
                b2_a_break_is_written_where_nothing_of_its_target_stands,
                b2_a_break_is_written_over_the_release_of_another,
                b4_a_break_now_is_written_where_nothing_of_its_target_stands,
                b5_what_is_broken_is_taken_when_its_time_is_up,
                a_break_leaves_what_was_let_go,
            ],
            claims: [
                claims_of_one_owner_in_a_call_share_one_grant,
                a_held_claim_is_refused_and_the_others_granted,
                a_released_claim_is_nobodys,
                a_claim_is_kept_while_held_and_never_healed,
                a_claim_is_not_broken_n7,
                a_grant_of_claims_is_above_the_floor,
                claims_are_confirmed_like_locks,
                claims_raise_what_new_locks_begin_above,
                a_claim_and_a_lock_of_one_name_bar_each_other,
            ],
            observed: [
                an_observed_lease_outlives_its_end_by_the_nodes_clock_n8,
                what_was_seen_must_stand_there_exactly_n8,
                a_released_record_is_free_for_all_n8,
                an_observed_lease_is_kept_past_its_end_by_the_nodes_clock_r8,
                an_ended_record_is_of_its_owner_alone_n6,
                a_released_record_is_nobodys_to_confirm_or_write_n4,
                a_round_heals_by_the_take_rule_r9,
                the_clock_alone_decides_when_the_server_expires,
                a_broken_lease_is_not_free_before_it_let_go_or_was_watched_n7,
                only_what_ends_by_the_clock_is_cut_to_the_longest_life_n10,
                what_nobody_guards_votes_and_needs_no_admission,
            ],
            sweeps: [
                s0_a_release_is_kept_for_as_long_as_its_sender_said,
                s1_a_sweep_judges_what_stands_and_deletes_no_lease,
                s2_a_lease_is_forgotten_where_exactly_what_was_watched_stands,
                s2_what_was_let_go_is_no_lease_to_forget,
                c3_what_is_forgotten_is_remembered_as_a_number,
                ended_claims_are_swept,
                a_body_is_kept_for_its_retention,
                a_walk_shows_everything_page_by_page,
                records_are_read_with_their_bodies_page_by_page,
            ],
            waits: [
                w1_whatever_takes_the_place_of_a_record_keeps_the_wait,
                w3_a_refusal_says_that_a_client_waits,
                w4_what_is_forgotten_or_broken_now_is_announced,
                w6_a_release_is_announced_to_every_client,
                a_release_that_no_client_waits_for_is_announced_to_none,
                w9_a_waiter_that_is_gone_is_passed_by_and_forgotten,
                whoever_is_still_in_the_queue_goes_on_waiting_w1,
            ],
            records: [
                a_record_is_handed_to_the_successor,
                writes_are_ordered_by_version,
                a_write_before_its_time_is_too_early,
                only_the_holder_writes_n6,
                the_largest_revision_of_a_document_wins,
                a_document_ends_after_its_lifetime_or_when_removed,
                documents_lie_in_directories,
                the_names_of_a_directory_are_listed_without_what_they_hold,
                a_directory_is_read_page_by_page,
                large_documents_are_read_whole_and_apart,
                one_document_is_read_by_its_name,
                a_directory_outlives_its_short_lived_documents,
                a_touched_document_lives_on_and_says_what_it_said,
                what_cannot_be_touched_has_to_be_stored_anew,
                a_directory_tells_who_lives_and_at_rest_a_sum_alone,
                of_a_directory_those_parts_are_named_in_which_anything_has_changed,
                a_list_shows_locks_and_claims_by_prefix,
                reading_changes_nothing,
                names_and_bodies_may_contain_anything,
            ],
            crowds: [
                the_operations_of_a_call_are_atomic_n1,
                answers_come_in_the_order_of_the_operations,
                a_call_may_hold_250_operations,
                an_empty_call_tells_the_time,
                no_update_is_lost_under_the_lock,
            ],
        }
    };
}

/// Makes a test of every case for one store: `conformance!(name, path::to::make);`, with the whole path, because the tests lie in
/// modules. One attribute may follow, which each of them gets: `#[cfg_attr(not(there), ignore = "there is no server")]`.
#[doc(hidden)] // for those who write a node
#[macro_export]
macro_rules! conformance {
    ($store:ident, $make:path) => {
        $crate::conformance! { $store, $make, #[doc = "What every node must do."] }
    };
    ($store:ident, $make:path, #$attribute:tt) => {
        $crate::every_case! { [$crate::conformance] $store, $make, #$attribute }
    };
    ($store:ident, $make:path, #$attribute:tt: $($group:ident: [$($case:ident,)*],)*) => {
        mod $store {
            $(mod $group {
                $(#[test]
                #$attribute
                fn $case() {
                    let case = concat!(stringify!($group), "::", stringify!($case));
                    $crate::conformance::run(case, $make);
                })*
            })*
        }
    };
}

/// A case, as `group::name`.
struct Case {
    name: &'static str,
    play: fn(Lab) -> LocalBoxFuture<'static, ()>,
}

macro_rules! table {
    (: $($group:ident: [$($case:ident,)*],)*) => {
        &[$($(Case {
            name: concat!(stringify!($group), "::", stringify!($case)),
            play: |lab| Box::pin($group::$case(lab)),
        },)*)*]
    };
}

const CASES: &[Case] = every_case!(table);

/// For leases that must not end during a test.
pub const LONG: Duration = Duration::from_secs(20);

/// For leases that must end during a test.
pub const SHORT: Duration = Duration::from_millis(150);

/// No key of ours lives longer.
pub const MAX_TTL: Duration = Duration::from_secs(30);

/// How long a release and a body are kept where that does not matter.
pub const RETENTION: Duration = Duration::from_secs(20);

/// Above whatever a store has granted by itself: counters of some begin higher, and grow by more than one.
pub const FAR: u64 = 1_000_000_000;

/// How much longer than asked what ends by the node's clock may last: what a store does not know of its time.
pub fn unknown_time(node: &dyn Node) -> Duration {
    match node.is_approximate() {
        true => Duration::from_millis(1_100),
        false => Duration::ZERO,
    }
}

/// The grant is the next one after this counter; of a store whose counter grows by itself, a later one.
pub fn is_next(node: &dyn Node, grant: Token, counter: u64) {
    match node.is_approximate() {
        true => assert!(grant.0 > counter, "{grant} after {counter}"),
        false => assert_eq!(grant.0, counter + 1),
    }
}

/// What is counted is exactly this; of a store whose counter grows by itself, at least this.
pub fn is_counted(node: &dyn Node, counter: Token, exactly: u64) {
    match node.is_approximate() {
        true => assert!(counter.0 >= exactly, "{counter} of {exactly}"),
        false => assert_eq!(counter.0, exactly),
    }
}

/// Waiting longer than this is a failure.
const PATIENCE: Duration = Duration::from_secs(10);

/// An empty node and the way to it.
pub struct Lab {
    connect: Box<dyn Fn() -> BoxFuture<'static, Arc<dyn Node>> + Send + Sync>,
    announces: bool,
    _alive: Box<dyn Any + Send + Sync>,
}

// === impl Lab ===

impl Lab {
    /// `alive` is dropped when the test ends: a folder, a server process.
    pub fn new(
        alive: impl Any + Send + Sync,
        connect: impl Fn() -> BoxFuture<'static, Arc<dyn Node>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            connect: Box::new(connect),
            announces: true,
            _alive: Box::new(alive),
        }
    }

    /// Of a store that has no announcements: its clients look again and again.
    #[must_use]
    pub fn without_announcements(mut self) -> Self {
        self.announces = false;
        self
    }

    /// Another client of the node.
    pub async fn client(&self) -> Arc<dyn Node> {
        (self.connect)().await
    }

    /// What a client is told from now on; `None` of a store that has no announcements.
    async fn news(&self, client: &dyn Node) -> Option<Announcements> {
        let news = client.announcements().await;
        assert_eq!(news.is_some(), self.announces, "announcements");
        news
    }
}

// === playing ===

/// The names of all cases.
pub fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.name)
}

/// Plays the case of this name.
pub async fn play(name: &str, lab: Lab) {
    let case = CASES.iter().find(|case| case.name == name);
    let case = case.unwrap_or_else(|| panic!("there is no case {name}"));
    (case.play)(lab).await;
}

/// The same on a runtime of its own, on which the node is made.
pub fn run<F: Future<Output = Lab>>(name: &str, make: impl FnOnce() -> F) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    // One kind of future for all cases of a store, or the runtime would be built once for each.
    let case: Pin<&mut dyn Future<Output = ()>> = pin!(async { play(name, make().await).await });
    runtime.block_on(case);
}

// === asking ===

/// Executes the operations as one call.
pub async fn ask_all(node: &dyn Node, ops: Vec<Op>) -> Reply {
    let count = ops.len();
    let reply = node
        .call(Call {
            not_after: None,
            ops,
        })
        .await
        .unwrap();
    assert_eq!(reply.answers.len(), count);
    reply
}

/// Executes one operation.
pub async fn ask(node: &dyn Node, op: Op) -> Answer {
    ask_all(node, vec![op]).await.answers.remove(0)
}

/// Acquires and expects a grant.
pub async fn granted(node: &dyn Node, op: Op) -> (Token, Record) {
    match ask(node, op).await {
        Answer::Granted { grant, record } => (grant, record),
        other => panic!("not granted: {other:?}"),
    }
}

/// Executes one operation and expects a refusal.
pub async fn refused(node: &dyn Node, op: Op) -> View {
    match ask(node, op.clone()).await {
        Answer::Refused(view) => view,
        other => panic!("not refused: {other:?} to {op:?}"),
    }
}

/// What the node shows of a lock.
pub async fn view(node: &dyn Node, key: &str) -> View {
    match ask(
        node,
        Op::Read {
            key: key.to_owned(),
        },
    )
    .await
    {
        Answer::View(view) => view,
        other => panic!("not a view: {other:?}"),
    }
}

/// Waits until `key` is free in the node's own view.
pub async fn wait_until_free(node: &dyn Node, key: &str) {
    wait_until(node, key, |view| view.holder.is_none()).await;
}

/// Waits until the node's view of `key` is as wanted.
pub async fn wait_until(node: &dyn Node, key: &str, wanted: impl Fn(&View) -> bool) {
    let clock = Clock::system();
    let end = clock.now() + PATIENCE;
    loop {
        let view = view(node, key).await;
        if wanted(&view) {
            return;
        }
        assert!(clock.now() < end, "waited in vain: {view:?}");
        clock.sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for `work` with patience.
pub async fn soon<T>(work: impl Future<Output = T>) -> T {
    Clock::system()
        .timeout(PATIENCE, work)
        .await
        .expect("waited in vain")
}

// === operations ===

/// Takes a named lock for [`LONG`].
pub fn take(key: &str, owner: &str) -> Op {
    take_for(key, owner, LONG)
}

/// Takes a named lock.
pub fn take_for(key: &str, owner: &str, ttl: Duration) -> Op {
    acquire(Kind::Lock, key, owner, ttl)
}

/// Takes a short claim.
pub fn claim_for(key: &str, owner: &str, ttl: Duration) -> Op {
    acquire(Kind::Claim, key, owner, ttl)
}

fn acquire(kind: Kind, key: &str, owner: &str, ttl: Duration) -> Op {
    let (key, owner) = (key.to_owned(), owner.to_owned());
    Op::Acquire {
        key,
        owner,
        kind,
        ttl,
        floor: Token(0),
        take: Take::Server,
        clamp: MAX_TTL,
        ticket: None,
        waits: Duration::ZERO,
    }
}

/// Confirms a token.
pub fn confirm(kind: Kind, key: &str, owner: &str, token: u64) -> Op {
    Op::Confirm {
        key: key.to_owned(),
        owner: owner.to_owned(),
        kind,
        token: Token(token),
        expiry: Expiry::Server,
    }
}

/// Round `seq` of a lease.
pub fn extend(kind: Kind, key: &str, owner: &str, seq: u64, token: u64) -> Op {
    let (key, owner, token) = (key.to_owned(), owner.to_owned(), Token(token));
    Op::Extend {
        key,
        owner,
        kind,
        seq,
        ttl: LONG,
        token,
        take: Take::Server,
    }
}

/// The same attempt by the record.
pub fn observed_take(attempt: Op, seen: Option<Seen>) -> Op {
    with(attempt, |take, _| *take = Take::Observed(seen))
}

/// The same attempt of a client that waits for so long.
pub fn waiting(attempt: Op, life: Duration) -> Op {
    with(attempt, |_, waits| *waits = life)
}

fn with(mut attempt: Op, change: impl FnOnce(&mut Take, &mut Duration)) -> Op {
    if let Op::Acquire { take, waits, .. } = &mut attempt {
        change(take, waits);
    }
    attempt
}

/// Takes a named lock by its record.
pub fn observe(key: &str, owner: &str, seen: Option<Seen>) -> Op {
    observed_take(take(key, owner), seen)
}

/// A round of an observed lease.
pub fn round(key: &str, owner: &str, seq: u64, token: u64, seen: Option<Seen>) -> Op {
    Op::Extend {
        key: key.to_owned(),
        owner: owner.to_owned(),
        kind: Kind::Lock,
        seq,
        ttl: LONG,
        token: Token(token),
        take: Take::Observed(seen),
    }
}

/// What a contender that looks now has seen.
pub fn seen_in(view: &View) -> Seen {
    Seen {
        inc: view.inc.clone(),
        owner: view.owner.clone().unwrap(),
        seq: view.seq,
    }
}

pub fn is_kept(answer: &Answer) -> bool {
    matches!(answer, Answer::Kept { .. })
}

pub fn is_healed(answer: &Answer) -> bool {
    matches!(answer, Answer::Healed { .. })
}

/// Ends a lease or an attempt.
pub fn release(kind: Kind, key: &str, owner: &str) -> Op {
    release_for(kind, key, owner, RETENTION, RETENTION)
}

/// Ends a lease or an attempt.
pub fn release_for(
    kind: Kind,
    key: &str,
    owner: &str,
    marked: Duration,
    retention: Duration,
) -> Op {
    Op::Release {
        key: key.to_owned(),
        owner: owner.to_owned(),
        kind,
        marked,
        retention,
    }
}

/// Forgets a lease.
pub fn forget(key: &str, seen: Seen) -> Op {
    Op::Forget {
        key: key.to_owned(),
        seen,
        retention: RETENTION,
    }
}

/// Everything that a walk shows, in pages of about two, by key: nodes may walk in any order.
pub async fn walk(node: &dyn Node, op: impl Fn(Cursor, u32) -> Op) -> Page {
    let (mut all, mut from) = (Page::default(), Some(Cursor::default()));
    while let Some(cursor) = from {
        let page = match ask(node, op(cursor, 2)).await {
            Answer::Page(page) => page,
            other => panic!("not a page: {other:?}"),
        };
        all.views.extend(page.views);
        all.bodies.extend(page.bodies);
        all.forgotten += page.forgotten;
        from = page.next;
    }
    all.views.sort_by(|a, b| a.key.cmp(&b.key));
    all.bodies.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// All locks and claims whose key starts so.
pub async fn list(node: &dyn Node, prefix: &str) -> Vec<View> {
    let prefix = prefix.to_owned();
    let list = |from, count| Op::List {
        prefix: prefix.clone(),
        from,
        count,
    };
    walk(node, list).await.views
}

/// Sweeps the whole memory: the keys of the leases that look orphaned, and how much was forgotten.
pub async fn swept(node: &dyn Node) -> (Vec<String>, u32) {
    let page = walk(node, |from, count| Op::Sweep { from, count }).await;
    let keys = page.views.into_iter().map(|view| view.key).collect();
    (keys, page.forgotten)
}

/// Waits until so much time has passed by the node's clock.
pub async fn pass(node: &dyn Node, by: Duration) {
    let clock = Clock::system();
    let by = by + unknown_time(node);
    let end = ask_all(node, vec![]).await.at.0 + u64::try_from(by.as_millis()).unwrap();
    while ask_all(node, vec![]).await.at < NodeMs(end) {
        clock.sleep(Duration::from_millis(5)).await;
    }
}

/// Replaces a record's body.
pub fn write(key: &str, owner: &str, version: (u64, u64), body: &str) -> Op {
    Op::Write {
        key: key.to_owned(),
        owner: owner.to_owned(),
        version: Version {
            token: Token(version.0),
            rev: version.1,
        },
        body: body.to_owned(),
        not_before: None,
        expiry: Expiry::Server,
    }
}

/// Ends a lease by force and takes `token`.
pub fn force(key: &str, owner: &str, token: u64, now: bool) -> Op {
    Op::Break {
        key: key.to_owned(),
        owner: owner.to_owned(),
        token: Token(token),
        ttl: SHORT,
        marked: RETENTION,
        retention: RETENTION,
        now,
    }
}

/// Breaks a lease, expects that it is over, and answers what stood there before.
pub async fn broken(node: &dyn Node, op: Op) -> View {
    match ask(node, op).await {
        Answer::Broken(view) => view,
        other => panic!("not broken: {other:?}"),
    }
}
