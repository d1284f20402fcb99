//! The worker's side of a guard: a thread per command that passes deadlines on, reads the output, and waits for the end.
//!
//! A thread of its own, because the worker's runtime may be busy with other jobs while a lease is extended. It holds the
//! leases' work marks until nothing of the command is left. Should the guard die, or not act in time, it takes over:
//! every process of the command carries a mark in its environment, and is in the guard's session unless a terminal is
//! shared.

use std::{
    io::{self, Read},
    os::{fd::AsFd, unix::net::UnixStream},
    process::{Child, Command},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, Signal},
};
use tokio::sync::{oneshot, watch};
use watchkeeper::{
    clock::{Clock, Moment},
    lease::{LeaseView, Work},
    lock::settings::abort_margin,
};

use super::{
    capture::Capture,
    end::End,
    message::{Failure, FromGuard, Order, Step, Times, ToGuard, receive, send_now, send_order},
    procs::marked,
    timespec::timespec,
};

/// What a handle holds: the way to the guard, and by when it was told to end. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Leash(Arc<Ends>);

#[derive(Debug)]
struct Ends {
    socket: UnixStream,
    clock: Clock,
    kill_at: Mutex<Moment>,
}

/// One command, watched.
pub(super) struct Watch {
    leash: Leash,
    leases: Vec<LeaseView>,
    /// Kept until nothing of the command is left.
    works: Vec<Work>,
    output: Option<io::PipeReader>,
    written: Written,
    buffer: Vec<u8>,
    mark: String,
    /// When the guard was last told to have killed the command by.
    kill_at: Moment,
}

/// What a command has written so far. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Written(Arc<Mutex<Capture>>);

/// What the guard has said at last.
type Started = oneshot::Sender<Result<u32, Failure>>;

/// The longest and the shortest time between two looks at the leases.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// Reads that empty the largest pipe.
const DRAINED: usize = 32;
/// Between two looks for what is still to be killed.
const AGAIN: Duration = Duration::from_millis(2);
/// A guard that has not ended a command so long after it was to be killed is given up, where no lease is about to end.
/// Under a lease half its abort margin counts (`slack`), from that time or from when the guard was last told, whichever is later.
const PATIENCE: Duration = Duration::from_secs(2);

// === impl Leash ===

impl Leash {
    pub(super) fn new(socket: UnixStream) -> Self {
        let clock = Clock::system();
        let kill_at = Mutex::new(Moment::NEVER);
        Self(Arc::new(Ends {
            socket,
            clock,
            kill_at,
        }))
    }

    /// Ends the command within `grace`; the earliest of several times counts.
    pub(super) fn stop(&self, grace: Duration) {
        let kill_at = self.0.clock.now() + grace;
        {
            let mut known = self.known();
            *known = kill_at.min(*known);
        }
        self.tell(ToGuard::Stop { kill_at });
    }

    fn stops_at(&self) -> Moment {
        *self.known()
    }

    fn known(&self) -> MutexGuard<'_, Moment> {
        // Changed in one step.
        self.0
            .kill_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A guard that cannot be told anything ends its command: the socket is closed for it.
    fn tell(&self, message: ToGuard) {
        if send_now(&self.0.socket, &message).is_err() {
            // It may be gone already.
            let _ = self.0.socket.shutdown(std::net::Shutdown::Write);
        }
    }
}

// === impl Written ===

impl Written {
    pub(super) fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(Capture::new(limit))))
    }

    /// Bytes in all, and the last line of them.
    pub(super) fn last_line(&self) -> (u64, Option<String>) {
        let capture = self.capture();
        (capture.written(), capture.last_line())
    }

    /// All of it that is kept, with a line about what was left out.
    pub(super) fn text(&self) -> String {
        self.capture().text()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.capture().written()
    }

    fn capture(&self) -> MutexGuard<'_, Capture> {
        // Whoever panicked has left it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Watch ===

impl Watch {
    pub(super) fn new(
        leash: Leash,
        leases: Vec<LeaseView>,
        works: Vec<Work>,
        output: Option<io::PipeReader>,
        written: Written,
        mark: String,
    ) -> Self {
        Self {
            leash,
            leases,
            works,
            // As much as a pipe holds.
            buffer: vec![0; if output.is_some() { 64 * 1024 } else { 0 }],
            output,
            written,
            mark,
            kill_at: Moment::NEVER,
        }
    }

    /// Starts the guard, gives it the order, and stays until nothing of the command is left.
    pub(super) fn run(
        mut self,
        mut guard: Command,
        mut order: Order,
        started: Started,
        end: &watch::Sender<Option<End>>,
    ) {
        order.times = times(&self.leases, order.grace);
        let mut started = Some(started);
        let last = match self.start(&mut guard, &order) {
            Ok(mut child) => {
                // Our copies of its ends, or they would never close.
                drop(guard);
                let last = self.follow(&mut child, &order, &mut started);
                if !is_last(&last) {
                    tracing::error!("a guard process has died: its command is killed");
                    // It may live and have lost its words. Not waited for yet: its number is that of the session.
                    let _ = child.kill();
                    self.sweep(order.group.is_none().then(|| Pid::from_child(&child)));
                }
                if let (None, Some(FromGuard::Failed(failure))) = (&started, &last) {
                    tracing::error!(why = %failure.why, "a guard process has failed, and has killed its command");
                }
                if let Some(FromGuard::Ended {
                    trouble: Some(why), ..
                }) = &last
                {
                    tracing::error!(
                        why,
                        "a guard process has failed after the end of its command, and has killed what that had left"
                    );
                }
                // Its end is known, or it is killed; a child of ours can always be waited for.
                let _ = child.wait();
                last
            }
            Err(error) => Some(FromGuard::Failed(Failure::new(Step::Guard, &error))),
        };
        self.drain();
        let ended = self.end(&last);
        if !ended.overran.is_zero() {
            tracing::error!(
                overran = ?ended.overran,
                "a command has outlived its lease: its guard had to wait for a processor; a longer ttl leaves it more time"
            );
        }
        // Nothing is left: the next holder may have the leases.
        self.works.clear();
        end.send_replace(Some(ended));
        if let (Some(started), Some(FromGuard::Failed(failure))) = (started, last) {
            // The caller waits for it no more when the start was given up.
            let _ = started.send(Err(failure));
        }
    }

    fn start(&self, guard: &mut Command, order: &Order) -> io::Result<Child> {
        let mut child = guard.spawn()?;
        // A captured command has no input; the others have ours.
        let sent = if self.output.is_some() {
            let nothing = std::fs::File::open("/dev/null")?;
            send_order(&self.leash.0.socket, order, nothing.as_fd())
        } else {
            send_order(&self.leash.0.socket, order, io::stdin().as_fd())
        };
        if let Err(error) = sent {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        Ok(child)
    }

    /// Until the guard has said its last word, or is given up.
    fn follow(
        &mut self,
        guard: &mut Child,
        order: &Order,
        started: &mut Option<Started>,
    ) -> Option<FromGuard> {
        let ttl = self.leases.iter().map(LeaseView::ttl).min();
        let look = ttl.map_or(LOOK.1, |ttl| (ttl / 12).clamp(LOOK.0, LOOK.1));
        let slack = ttl.map_or(PATIENCE, |ttl| abort_margin(ttl) / 2);
        let (mut told, mut told_at) = (order.times, self.leash.0.clock.now());
        loop {
            let now = self.leash.0.clock.now();
            let times = times(&self.leases, order.grace);
            if times != told {
                self.leash.tell(ToGuard::Times(times));
                (told, told_at) = (times, now);
            }
            self.kill_at = told.kill_at;
            // A lease that is lost early ends without notice: the guard has its slack from when it was told.
            let overdue = told.kill_at.max(told_at) + slack;
            if now >= overdue.min(self.leash.stops_at() + PATIENCE) {
                // Frozen, perhaps. Its death is heard of below.
                let _ = guard.kill();
            }
            if !self.heard(look) {
                continue;
            }
            match receive(&self.leash.0.socket) {
                Ok(Some(FromGuard::Started { pid })) => {
                    if let Some(started) = started.take() {
                        // The caller waits for it no more when the start was given up; then it is being ended.
                        let _ = started.send(Ok(pid.unsigned_abs()));
                    }
                }
                Ok(last) => return last,
                Err(_) => return None,
            }
        }
    }

    /// Waits for a message, and takes in output meanwhile; true when there is a message, or the end of them.
    fn heard(&mut self, limit: Duration) -> bool {
        let mut fds = vec![PollFd::new(&self.leash.0.socket, PollFlags::IN)];
        if let Some(output) = &self.output {
            fds.push(PollFd::new(output, PollFlags::IN));
        }
        if poll(&mut fds, Some(&timespec(limit))).is_err() {
            return false;
        }
        let heard = !fds[0].revents().is_empty();
        if fds.get(1).is_some_and(|fd| !fd.revents().is_empty()) {
            self.take_output();
        }
        heard
    }

    /// Takes what has been written; there is something, or the end.
    fn take_output(&mut self) {
        let Some(output) = &mut self.output else {
            return;
        };
        match output.read(&mut self.buffer) {
            Ok(0) | Err(_) => self.output = None,
            Ok(n) => self.written.capture().take(&self.buffer[..n]),
        }
    }

    /// Takes what is still in the pipe, but does not wait for a stranger who holds its other end.
    fn drain(&mut self) {
        let at_once = timespec(Duration::ZERO);
        // No pipe holds more; a stranger may write for ever.
        for _ in 0..DRAINED {
            let Some(output) = &self.output else { return };
            let mut fds = [PollFd::new(output, PollFlags::IN)];
            match poll(&mut fds, Some(&at_once)) {
                Ok(n) if n > 0 => self.take_output(),
                _ => return,
            }
        }
    }

    /// Kills all that carries our mark or is in the guard's own session, until there is none. Not being able to look is
    /// not the same: then it looks again.
    fn sweep(&self, session: Option<Pid>) {
        let mut told = false;
        loop {
            match marked(&self.mark, session) {
                Ok(left) if left.is_empty() => return,
                Ok(left) => {
                    for process in left {
                        // One that has ended meanwhile is what we want.
                        let _ = process.signal(Signal::KILL);
                    }
                }
                Err(error) => {
                    if !told {
                        tracing::error!(
                            %error,
                            "what a command without its guard has left cannot be looked for: its lease is held until it can"
                        );
                    }
                    told = true;
                }
            }
            let _ = poll(&mut [], Some(&timespec(AGAIN)));
        }
    }

    /// From the time at which a command is to be killed to the end of its lease.
    fn leeway(&self) -> Duration {
        let ttl = self.leases.iter().map(LeaseView::ttl).min();
        ttl.map_or(Duration::MAX, |ttl| abort_margin(ttl) * 2)
    }

    fn end(&self, last: &Option<FromGuard>) -> End {
        let mut end = End::lost();
        if let Some(FromGuard::Ended {
            status,
            cause,
            left_behind,
            late,
            ..
        }) = last
        {
            (end.status, end.cause, end.left_behind) = (*status, *cause, *left_behind);
            end.overran = late.saturating_sub(self.leeway());
        } else {
            // Nothing is left since just now, and nobody has told how late that is.
            let late = self.leash.0.clock.now().since(self.kill_at);
            end.overran = late.saturating_sub(self.leeway());
        }
        let capture = self.written.capture();
        end.output = capture.text();
        end.written = capture.written();
        drop(capture);
        end
    }
}

/// Whether the guard has said how it ended.
fn is_last(said: &Option<FromGuard>) -> bool {
    matches!(said, Some(FromGuard::Ended { .. } | FromGuard::Failed(_)))
}

/// By when a command ends, as its leases stand: it is told a quarter of a ttl before their end, or its grace when that
/// is shorter, and killed two abort margins before, so that it is gone when the worker gives up on its run.
fn times(leases: &[LeaseView], grace: Duration) -> Times {
    let each = leases.iter().map(|lease| {
        let (end, ttl) = (lease.valid_until(), lease.ttl());
        times_before(end, ttl, grace)
    });
    each.fold(Times::NEVER, |all, one| Times {
        term_at: all.term_at.min(one.term_at),
        kill_at: all.kill_at.min(one.kill_at),
    })
}

fn times_before(end: Moment, ttl: Duration, grace: Duration) -> Times {
    let margin = abort_margin(ttl);
    let kill_at = end.back(margin * 2);
    let term_at = end.back(grace.min(ttl / 4)).min(kill_at.back(margin));
    Times { term_at, kill_at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_a_quarter_of_a_ttl_before_the_end_and_killed_two_margins_before() {
        let end = Moment::from_boot(Duration::from_secs(100));
        let before = |ttl: u64, grace: u64| {
            let ms = Duration::from_millis;
            let times = times_before(end, ms(ttl), ms(grace));
            (
                end.since(times.term_at).as_millis(),
                end.since(times.kill_at).as_millis(),
            )
        };
        assert_eq!(before(10_000, 10_000), (2500, 1000));
        assert_eq!(before(2000, 10_000), (500, 200));
        // A grace of its own, but never less than the time it takes to kill.
        assert_eq!(before(10_000, 2000), (2000, 1000));
        assert_eq!(before(10_000, 0), (1500, 1000));
        assert_eq!(before(500, 10_000), (300, 200));
    }
}
