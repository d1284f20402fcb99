//! Which trace a piece of work belongs to, as W3C Trace Context says it: `00-TRACE-SPAN-01`.

use std::{fmt, future::Future};

use sha2::{Digest, Sha256};

/// A span within a trace: what is passed on to whatever is started or asked, so that its spans become children of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace: [u8; 16],
    span: [u8; 8],
    sampled: bool,
}

tokio::task_local! {
    /// Of the work that is polled right now: for what is called through an interface that knows no traces.
    static CURRENT: Option<TraceContext>;
}

/// Does `work` as a part of this span.
pub async fn within<T>(context: Option<TraceContext>, work: impl Future<Output = T>) -> T {
    CURRENT.scope(context, work).await
}

/// The span that the present work is a part of.
#[must_use]
pub fn current() -> Option<TraceContext> {
    CURRENT.try_with(|context| *context).ok().flatten()
}

// === impl TraceContext ===

impl TraceContext {
    /// The first span of a trace. The same parts make the same trace, on every replica; of all traces this share is kept.
    pub(super) fn computed(parts: &[&str], ratio: f64) -> Self {
        let digest = digest(parts);
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&digest[..16]);
        span.copy_from_slice(&digest[16..24]);
        Self {
            trace,
            span,
            sampled: is_kept(&trace, ratio),
        }
    }

    /// Another span of the trace, which these parts tell from its siblings.
    pub(super) fn child(self, parts: &[&str]) -> Self {
        let above = self.to_string();
        let all: Vec<&str> = [above.as_str()]
            .into_iter()
            .chain(parts.iter().copied())
            .collect();
        let mut span = [0; 8];
        span.copy_from_slice(&digest(&all)[..8]);
        Self { span, ..self }
    }

    /// What a caller says of itself; nothing where that makes no sense, or says of no span.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let version = bytes::<1>(parts.next()?)?;
        let trace = bytes::<16>(parts.next()?)?;
        let span = bytes::<8>(parts.next()?)?;
        let [flags] = bytes::<1>(parts.next()?)?;
        // A later version may say more behind it; this one may not.
        let fits = match version {
            [0] => parts.next().is_none(),
            [0xff] => false,
            _ => true,
        };
        let is_one = trace != [0; 16] && span != [0; 8];
        (fits && is_one).then_some(Self {
            trace,
            span,
            sampled: flags & 1 == 1,
        })
    }

    /// Whether its spans are kept. Where they are not, the context is passed on all the same, and says so.
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.sampled
    }

    /// The id of the trace as receivers show it, where it is kept.
    pub(crate) fn kept_id(self) -> Option<String> {
        let digits = |bytes: [u8; 16]| bytes.iter().map(|b| format!("{b:02x}")).collect();
        self.sampled.then(|| digits(self.trace))
    }

    pub(crate) fn trace_id(self) -> [u8; 16] {
        self.trace
    }

    pub(crate) fn span_id(self) -> [u8; 8] {
        self.span
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str("-")?;
        self.span.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        write!(f, "-{:02x}", u8::from(self.sampled))
    }
}

// === helpers ===

/// Of texts that may hold anything: their lengths go with them, so that no two lists of parts look alike.
fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

/// By the last 63 bits of the trace's id, as others decide it, too: all that see the trace come to the same.
fn is_kept(trace: &[u8; 16], ratio: f64) -> bool {
    let mut last = [0; 8];
    last.copy_from_slice(&trace[8..]);
    let drawn = u64::from_be_bytes(last) >> 1;
    let share = drawn as f64 / (1_u64 << 63) as f64;
    // The largest ids are rounded up to one.
    ratio >= 1.0 || share < ratio
}

/// Bytes from as many lower-case hexadecimal digits as they need.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if text.len() != 2 * N || !text.bytes().all(lower) {
        return None;
    }
    let mut found = [0; N];
    for (at, byte) in found.iter_mut().enumerate() {
        let digits = text.get(2 * at..2 * at + 2)?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(found)
}
