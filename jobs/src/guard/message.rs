//! What worker, guard and shim say to each other over a unix socket: a length of four bytes, then JSON. The first
//! message carries the command's input as a descriptor beside it.

use std::{
    ffi::{OsStr, OsString},
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            net::UnixStream,
        },
    },
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use watchkeeper::clock::Moment;

use super::end::{Cause, Status};

/// The command, as the guard hands it to the shim, and the times by which it must end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) program: Text,
    pub(super) args: Vec<Text>,
    pub(super) cwd: Option<Text>,
    pub(super) clear_env: bool,
    pub(super) env: Vec<(Text, Text)>,
    pub(super) without_env: Vec<Text>,
    /// The process group of the terminal's user; none: a session of its own, without a terminal.
    pub(super) group: Option<i32>,
    pub(super) times: Times,
    pub(super) grace: Duration,
    /// The process that must live on, or the command does not start.
    pub(super) parent: i32,
}

/// Bytes that need not be Unicode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Text(Vec<u8>);

/// By when a command ends, as things stand. Each message replaces the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Times {
    /// When it is told to.
    #[serde(with = "moment")]
    pub(super) term_at: Moment,
    /// When it is killed.
    #[serde(with = "moment")]
    pub(super) kill_at: Moment,
}

/// From the worker to the guard, after the order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum ToGuard {
    Times(Times),
    Stop {
        #[serde(with = "moment")]
        kill_at: Moment,
    },
}

/// From the guard to the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum FromGuard {
    Started {
        pid: i32,
    },
    Failed(Failure),
    Ended {
        status: Status,
        cause: Cause,
        left_behind: usize,
        /// How long after it was to be killed nothing of it was left.
        late: Duration,
        /// Why the guard could not go on, after the command had ended.
        trouble: Option<String>,
    },
}

/// Why the command did not start; from the shim to the guard, and on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) step: Step,
    pub(super) kind: Kind,
    pub(super) why: String,
}

/// Where a start went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Step {
    Directory,
    Exec,
    Guard,
    /// The lease was about to end before the command began.
    Lease,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    NotFound,
    Other,
}

/// No message is longer; what claims to be is no message.
const LONGEST: usize = 16 << 20;

// === impl Order ===

impl Order {
    /// Whether the command would be told to end as soon as it began: its worker or its guard was frozen on the way.
    pub(super) fn is_late(&self, now: Moment) -> bool {
        now >= self.times.term_at
    }
}

// === impl Text ===

impl Text {
    pub(super) fn to_os(&self) -> OsString {
        OsString::from_vec(self.0.clone())
    }
}

impl From<&OsStr> for Text {
    fn from(text: &OsStr) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

// === impl Times ===

impl Times {
    pub(super) const NEVER: Self = Self {
        term_at: Moment::NEVER,
        kill_at: Moment::NEVER,
    };
}

// === impl Failure ===

impl Failure {
    pub(super) fn new(step: Step, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => Kind::NotFound,
            _ => Kind::Other,
        };
        let why = error.to_string();
        Self { step, kind, why }
    }
}

// === on the wire ===

/// A message as it is sent.
pub(super) fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend(body);
    Ok(frame)
}

/// Waits for room.
pub(super) fn send(mut to: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&frame(message)?)
}

/// Does not wait: a frame that finds no room is an error, and so is a socket that takes only a part of it.
pub(super) fn send_now(to: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let frame = frame(message)?;
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = rustix::net::send(to, &frame, flags)?;
    if sent < frame.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(())
}

/// The next message; none when the other side has gone.
pub(super) fn receive<T: DeserializeOwned>(mut from: &UnixStream) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    Ok(Some(body(from, length)?))
}

/// Sends the order, and the command's input beside it.
pub(super) fn send_order(to: &UnixStream, order: &Order, input: BorrowedFd<'_>) -> io::Result<()> {
    let frame = frame(order)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let fds = [input];
    if !beside.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    let slices = [IoSlice::new(&frame)];
    let sent = rustix::net::sendmsg(to, &slices, &mut beside, SendFlags::NOSIGNAL)?;
    let mut to = to;
    to.write_all(&frame[sent..])
}

/// Receives the order and the command's input.
pub(super) fn receive_order(from: &UnixStream) -> io::Result<(Order, OwnedFd)> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::net::recvmsg(
        from.as_fd(),
        &mut [IoSliceMut::new(&mut length)],
        &mut beside,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let input = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let mut rest = from;
    rest.read_exact(&mut length[got.bytes..])?;
    let input = input.ok_or_else(|| io::Error::other("no descriptor came with the order"))?;
    Ok((body(from, length)?, input))
}

fn body<T: DeserializeOwned>(mut from: &UnixStream, length: [u8; 4]) -> io::Result<T> {
    let length = u32::from_be_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

/// Moments of the boot clock, which all processes of a machine share, in nanoseconds.
mod moment {
    use super::{Deserialize, Duration, Moment};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(moment: &Moment, to: S) -> Result<S::Ok, S::Error> {
        let nanos = u64::try_from(moment.since_boot().as_nanos());
        to.serialize_u64(nanos.unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Moment, D::Error> {
        let nanos = u64::deserialize(from)?;
        Ok(match nanos {
            u64::MAX => Moment::NEVER,
            nanos => Moment::from_boot(Duration::from_nanos(nanos)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> Order {
        Order {
            program: Text(vec![b'/', 0xff]),
            args: vec![Text(vec![b'x'; 300_000])],
            cwd: None,
            clear_env: true,
            env: vec![(Text(b"A".to_vec()), Text(vec![0xfe]))],
            without_env: Vec::new(),
            group: None,
            times: Times::NEVER,
            grace: Duration::from_secs(1),
            parent: 1,
        }
    }

    #[test]
    fn an_order_arrives_as_it_was_sent_with_the_input_beside_it() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let order = order();
        let (mut kept, input) = UnixStream::pair().unwrap();
        let sent = order.clone();
        let sender = std::thread::spawn(move || send_order(&ours, &sent, input.as_fd()).unwrap());
        let (received, input) = receive_order(&theirs).unwrap();
        sender.join().unwrap();
        assert_eq!(received, order);
        kept.write_all(b"x").unwrap();
        let mut byte = [0];
        UnixStream::from(input).read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
    }

    #[test]
    fn an_order_is_late_when_its_command_would_be_told_to_end() {
        let at = |secs| Moment::from_boot(Duration::from_secs(secs));
        let mut order = order();
        assert!(!order.is_late(at(1_000_000)));
        order.times.term_at = at(10);
        assert!(!order.is_late(at(9)) && order.is_late(at(10)));
    }

    #[test]
    fn a_moment_survives_the_wire_and_never_stays_never() {
        let at = Moment::from_boot(Duration::from_nanos(123_456_789_012_345));
        for kill_at in [at, Moment::NEVER, Moment::ZERO] {
            let text = serde_json::to_string(&ToGuard::Stop { kill_at }).unwrap();
            let back: ToGuard = serde_json::from_str(&text).unwrap();
            assert_eq!(back, ToGuard::Stop { kill_at });
        }
    }

    #[test]
    fn the_end_of_the_other_side_is_no_message() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(ours);
        assert_eq!(receive::<ToGuard>(&theirs).unwrap(), None);
    }
}
