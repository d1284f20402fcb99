//! What has happened, kept for a while, and clients that follow it, each at its own pace.
//!
//! A [`Ring`] keeps the last entries, each with a number. A [`Follower`] walks through them and has no queue of its own: what it
//! has not read yet is in the ring, or lost. So a client that reads slowly costs a number, and the teller never waits. A client that
//! has lost entries is sent away; it comes back with the id of the last one that it has got, and is told of the gap.
//!
//! [`answer`] makes server-sent events of it: what the API tells and what patches the pages have the same bounds.
//!
//! # Invariants
//! - A9 Telling waits for no follower, and a ring keeps no more than it may.      (a_ring_keeps_no_more_than_it_may)
//! - A10 A follower gets every entry once and in order, or is told that it has lost some.
//!   (a_follower_gets_every_entry_once_and_in_order, a_follower_that_is_too_slow_is_lost)
//! - A11 A client that comes back goes on behind the last entry that it has got, or is told of a gap.
//!   (who_comes_back_goes_on_or_is_told_of_a_gap)
//! - A12 No more clients follow at one time than there are places; a place is free again when its client has gone, and clients
//!   without the token take none from those who have it.
//!   (a_place_is_free_again_when_its_client_has_gone, no_more_follow_a_page_than_there_are_places)

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use futures_util::stream::unfold;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::{listener::Stay, rights::Seen};
use crate::clock::Clock;

/// Clients that follow at one time, whatever they follow, with the token and without it: well below the connections that the server
/// takes.
pub(super) const SLOTS: usize = 32;
pub(super) const OPEN_SLOTS: usize = 16;

/// After so much silence a comment is sent: a client that has gone is noticed, and a proxy keeps the connection.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Entries that go into one write.
const AT_ONCE: usize = 64;

/// When a browser whose stream has ended comes back.
const COME_BACK: &str = "retry: 2000\n\n";

/// The last entries of something that is told, with numbers that grow by one from 1 on. Clones are the same ring.
#[derive(Debug)]
pub(super) struct Ring<T>(Arc<Kept<T>>);

#[derive(Debug)]
struct Kept<T> {
    /// What its ids begin with: an id of another ring means nothing here.
    name: String,
    most: usize,
    entries: Mutex<Entries<T>>,
    /// Says that there is something new.
    moved: watch::Sender<()>,
    /// Says that nothing more is told, to those who wait for that alone.
    over: CancellationToken,
}

#[derive(Debug)]
struct Entries<T> {
    /// The number of the first that is kept, or of the next one where there is none.
    first: u64,
    kept: VecDeque<T>,
    closed: bool,
}

/// A place in a ring.
#[derive(Debug)]
pub(super) struct Follower<T> {
    ring: Ring<T>,
    /// The number of the next entry.
    next: u64,
    moved: watch::Receiver<()>,
}

/// What a follower comes to next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<T> {
    /// These, with their numbers: one at least.
    Entries(Vec<(u64, T)>),
    /// What would be next is not kept any more.
    Lost,
    /// Nothing more is told.
    Closed,
}

/// Slots for the clients that follow, or are sent much.
#[derive(Clone, Debug)]
pub(super) struct ClientSlots {
    /// Of those who have the token.
    token: Arc<Semaphore>,
    /// Of all others.
    open: Arc<Semaphore>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct ClientSlot(#[allow(dead_code, reason = "kept, not read")] OwnedSemaphorePermit);

// === impl Ring ===

impl<T> Clone for Ring<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Clone> Ring<T> {
    /// An empty ring for `most` entries. `name` must differ from that of the ring that another life of the process had.
    pub(super) fn new(name: impl Into<String>, most: usize) -> Self {
        let (moved, _) = watch::channel(());
        Self(Arc::new(Kept {
            name: name.into(),
            most: most.max(1),
            entries: Mutex::new(Entries {
                first: 1,
                kept: VecDeque::new(),
                closed: false,
            }),
            moved,
            over: CancellationToken::new(),
        }))
    }

    /// Adds an entry, in the place of the oldest one where the ring is full.
    pub(super) fn tell(&self, entry: T) {
        let mut entries = self.entries();
        if entries.kept.len() >= self.0.most {
            entries.kept.pop_front();
            entries.first += 1;
        }
        entries.kept.push_back(entry);
        drop(entries);
        self.0.moved.send_replace(());
    }

    /// Ends all who follow, once they have what is kept.
    pub(super) fn close(&self) {
        self.entries().closed = true;
        self.0.moved.send_replace(());
        self.0.over.cancel();
    }

    /// Cancelled when nothing more is told.
    pub(super) fn over(&self) -> CancellationToken {
        self.0.over.clone()
    }

    /// The id of the entry with this number.
    pub(super) fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.0.name)
    }

    /// Follows from now on; or, with the id of the last entry that a client has got, from behind that one. `true` when what came
    /// after it is not all kept: it goes on with the oldest that is.
    pub(super) fn follow(&self, after: Option<&str>) -> (Follower<T>, bool) {
        // Before the look, so that nothing told after it goes unnoticed.
        let moved = self.0.moved.subscribe();
        let entries = self.entries();
        let (first, end) = (entries.first, entries.end());
        drop(entries);
        let (next, gap) = match after.map(|id| self.number(id)) {
            None => (end, false),
            // `+ 1` is safe: it is below a number that was told.
            Some(Some(last)) if last < end && last + 1 >= first => (last + 1, false),
            Some(_) => (first, true),
        };
        let ring = self.clone();
        (Follower { ring, next, moved }, gap)
    }

    /// The number in an id of this ring.
    fn number(&self, id: &str) -> Option<u64> {
        let (name, number) = id.rsplit_once('-')?;
        let plain = number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|_| plain);
        number.filter(|_| name == self.0.name)
    }

    fn entries(&self) -> MutexGuard<'_, Entries<T>> {
        self.0
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Entries<T> {
    /// The number of the entry that will be told next.
    fn end(&self) -> u64 {
        self.first + self.kept.len() as u64
    }
}

// === impl Follower ===

impl<T: Clone> Follower<T> {
    /// What comes next, as soon as it is told: so many entries at most. Nothing is lost when this is dropped before its end.
    pub(super) async fn next(&mut self, most: usize) -> Next<T> {
        loop {
            // Before the look: what is told after it ends the wait below.
            self.moved.mark_unchanged();
            if let Some(next) = self.look(most) {
                return next;
            }
            if self.moved.changed().await.is_err() {
                return Next::Closed;
            }
        }
    }

    fn look(&mut self, most: usize) -> Option<Next<T>> {
        let entries = self.ring.entries();
        let Some(skip) = self.next.checked_sub(entries.first) else {
            return Some(Next::Lost);
        };
        let behind = usize::try_from(skip).unwrap_or(usize::MAX);
        let found = entries.kept.iter().skip(behind).take(most).cloned();
        let found: Vec<(u64, T)> = (self.next..).zip(found).collect();
        if found.is_empty() {
            return entries.closed.then_some(Next::Closed);
        }
        drop(entries);
        self.next += found.len() as u64;
        Some(Next::Entries(found))
    }
}

// === impl ClientSlots ===

impl ClientSlots {
    /// So many for those who have the token, and so many for all others.
    pub(super) fn new(token: usize, open: usize) -> Self {
        let slots = |most| Arc::new(Semaphore::new(most));
        Self {
            token: slots(token),
            open: slots(open),
        }
    }

    /// A slot for such a client, if one is free.
    pub(super) fn take(&self, seen: Seen) -> Option<ClientSlot> {
        let slots = if seen.token { &self.token } else { &self.open };
        slots.clone().try_acquire_owned().ok().map(ClientSlot)
    }
}

// === server-sent events ===

/// One event as it is sent. `kind` and `id` are words of ours, of one line each.
pub(super) fn frame(id: Option<&str>, kind: &str, data: &str) -> String {
    let mut text = String::with_capacity(data.len() + 64);
    if let Some(id) = id {
        text.extend(["id: ", id, "\n"]);
    }
    text.extend(["event: ", kind, "\n"]);
    // A carriage return ends a line as well.
    for line in data.split(['\n', '\r']) {
        text.extend(["data: ", line, "\n"]);
    }
    text.push('\n');
    text
}

/// Everything that one stream lives on.
struct Going<T, F> {
    clock: Clock,
    follower: Follower<T>,
    show: F,
    opening: Option<String>,
    _slot: ClientSlot,
}

/// An answer that goes on: `opening`, then what `show` makes of each entry; `None` for what this client does not want. It ends with
/// the ring, and for a client that has lost entries.
pub(super) fn answer<T, F>(
    clock: &Clock,
    (slot, stay): (ClientSlot, &Stay),
    follower: Follower<T>,
    opening: &str,
    show: F,
) -> Response
where
    T: Clone + Send + Sync + 'static,
    F: FnMut(u64, &T) -> Option<String> + Send + 'static,
{
    stay.for_a_stream();
    let going = Going {
        clock: clock.clone(),
        follower,
        show,
        opening: Some(format!("{COME_BACK}{opening}")),
        _slot: slot,
    };
    let mut answer = Response::new(Body::from_stream(unfold(going, sent)));
    let headers = answer.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    let kept = HeaderValue::from_static("no-store");
    headers.insert(header::CACHE_CONTROL, kept);
    // Nginx collects what it passes on unless it is told not to.
    let name = header::HeaderName::from_static("x-accel-buffering");
    headers.insert(name, HeaderValue::from_static("no"));
    answer
}

/// The next text that is sent.
async fn sent<T, F>(mut going: Going<T, F>) -> Option<(Result<String, Infallible>, Going<T, F>)>
where
    T: Clone,
    F: FnMut(u64, &T) -> Option<String>,
{
    if let Some(opening) = going.opening.take() {
        return Some((Ok(opening), going));
    }
    let due = going.clock.now() + HEARTBEAT;
    loop {
        let next = going.follower.next(AT_ONCE);
        let text: String = match going.clock.timeout_at(due, next).await {
            Ok(Next::Entries(entries)) => {
                let show = &mut going.show;
                entries.iter().filter_map(|(n, e)| show(*n, e)).collect()
            }
            Ok(Next::Lost | Next::Closed) => return None,
            Err(_) => String::new(),
        };
        // Entries that are not for this client are no sign of life for it.
        let text = match text.is_empty() {
            true if going.clock.now() < due => continue,
            true => ": still here\n\n".to_owned(),
            false => text,
        };
        return Some((Ok(text), going));
    }
}

#[cfg(test)]
mod tests {
    use axum::body::BodyDataStream;
    use futures_util::{FutureExt, StreamExt};

    use super::*;
    use crate::sim_clock::SimTime;

    const ANY: Seen = Seen { token: false };

    fn numbers(next: Next<u64>) -> Vec<u64> {
        match next {
            Next::Entries(entries) => {
                assert!(entries.iter().all(|(number, entry)| number == entry));
                entries.into_iter().map(|(number, _)| number).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn told(most: usize, last: u64) -> Ring<u64> {
        let ring = Ring::new("r", most);
        (1..=last).for_each(|n| ring.tell(n));
        ring
    }

    #[test]
    fn a_ring_keeps_no_more_than_it_may() {
        // This one never reads, and nothing is awaited to tell it.
        let ring = told(8, 0);
        let (follower, _) = ring.follow(None);
        (1..=1000).for_each(|n| ring.tell(n));
        assert_eq!(ring.entries().kept.len(), 8);
        assert_eq!((ring.entries().first, follower.next), (993, 1));
    }

    #[tokio::test]
    async fn a_follower_gets_every_entry_once_and_in_order() {
        let ring = told(8, 5);
        let (mut follower, gap) = ring.follow(None);
        assert!(!gap && follower.next(9).now_or_never().is_none());
        ring.tell(6);
        ring.tell(7);
        assert_eq!(numbers(follower.next(1).await), [6]);
        ring.tell(8);
        assert_eq!(numbers(follower.next(9).await), [7, 8]);
        // What is told while it waits wakes it.
        let teller = ring.clone();
        let (next, ()) = tokio::join!(follower.next(9), async move { teller.tell(9) });
        assert_eq!(numbers(next), [9]);
        ring.tell(10);
        ring.close();
        assert!(ring.over().is_cancelled());
        assert_eq!(numbers(follower.next(9).await), [10]);
        assert_eq!(follower.next(9).await, Next::Closed);
    }

    #[tokio::test]
    async fn a_follower_that_is_too_slow_is_lost() {
        let ring = told(8, 0);
        let (mut follower, _) = ring.follow(None);
        (1..=8).for_each(|n| ring.tell(n));
        assert_eq!(numbers(follower.next(3).await), [1, 2, 3]);
        (9..=11).for_each(|n| ring.tell(n));
        assert_eq!(numbers(follower.next(1).await), [4]);
        (12..=13).for_each(|n| ring.tell(n));
        assert_eq!(follower.next(9).await, Next::Lost);
    }

    #[tokio::test]
    async fn who_comes_back_goes_on_or_is_told_of_a_gap() {
        let ring = told(8, 20);
        for (after, gap, first) in [
            ("r-19", false, Some(20)),
            ("r-20", false, None),
            ("r-12", false, Some(13)),
            ("r-11", true, Some(13)),
            // Of a ring that is no more, from the future, and made up.
            ("q-19", true, Some(13)),
            ("r-21", true, Some(13)),
            ("r-18446744073709551615", true, Some(13)),
            ("r-99999999999999999999", true, Some(13)),
            ("r-+19", true, Some(13)),
            ("r--1", true, Some(13)),
            ("r-", true, Some(13)),
            ("", true, Some(13)),
        ] {
            let (mut follower, found) = ring.follow(Some(after));
            assert_eq!(found, gap, "{after}");
            let next = follower.next(1).now_or_never().map(numbers);
            assert_eq!(next.map(|next| next[0]), first, "{after}");
        }
        assert_eq!(ring.id(20), "r-20");
        // Before anything was told there is nothing to lose.
        let (_, gap) = told(8, 0).follow(Some("r-0"));
        assert!(!gap);
    }

    #[test]
    fn an_event_of_many_lines_stays_one_event() {
        assert_eq!(
            frame(Some("r-1"), "rows", "a\nb\r\nevent: evil\rid: 7"),
            "id: r-1\nevent: rows\ndata: a\ndata: b\ndata: \ndata: event: evil\ndata: id: 7\n\n"
        );
        assert_eq!(frame(None, "gap", "{}"), "event: gap\ndata: {}\n\n");
    }

    fn following(clock: &Clock, slots: &ClientSlots, ring: &Ring<u64>) -> BodyDataStream {
        let slot = slots.take(ANY).expect("a free place");
        let odd = |n: u64, _: &u64| (n % 2 == 1).then(|| format!("{n};"));
        let (follower, _) = ring.follow(None);
        let answer = answer(clock, (slot, &Stay::default()), follower, "hello;", odd);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream");
        answer.into_body().into_data_stream()
    }

    async fn text(body: &mut BodyDataStream) -> Option<String> {
        let next = body.next().await?.unwrap();
        Some(String::from_utf8(next.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_told_from_the_end_by_a_comment() {
        let (clock, ring) = (SimTime::new().clock(), told(8, 0));
        let mut body = following(&clock, &ClientSlots::new(0, 1), &ring);
        assert_eq!(
            text(&mut body).await.unwrap(),
            "retry: 2000\n\nhello;",
            "at once"
        );
        let began = clock.now();
        // It is of no interest to this client.
        ring.tell(1);
        ring.tell(2);
        assert_eq!(text(&mut body).await.unwrap(), "1;");
        ring.tell(3);
        assert_eq!(text(&mut body).await.unwrap(), "3;");
        ring.tell(4);
        assert_eq!(text(&mut body).await.unwrap(), ": still here\n\n");
        let silent = clock.now().since(began);
        assert!(silent >= HEARTBEAT && silent < HEARTBEAT * 2, "{silent:?}");
        ring.close();
        assert_eq!(text(&mut body).await, None);
    }

    #[tokio::test]
    async fn a_client_that_reads_too_slowly_is_sent_away() {
        let (clock, ring) = (Clock::system(), told(8, 0));
        let mut body = following(&clock, &ClientSlots::new(0, 1), &ring);
        assert!(text(&mut body).await.is_some());
        // The teller is not kept from anything meanwhile.
        (1..=100).for_each(|n| ring.tell(n));
        assert_eq!(text(&mut body).await, None);
    }

    #[tokio::test]
    async fn a_place_is_free_again_when_its_client_has_gone() {
        let (clock, ring, slots) = (Clock::system(), told(8, 0), ClientSlots::new(1, 2));
        let first = following(&clock, &slots, &ring);
        let _second = following(&clock, &slots, &ring);
        assert!(slots.take(ANY).is_none());
        let with_token = slots.take(Seen { token: true });
        assert!(with_token.is_some(), "of this none is taken");
        drop(first);
        assert!(slots.take(ANY).is_some());
    }
}
