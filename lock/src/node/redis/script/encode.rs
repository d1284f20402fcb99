//! Operations to arguments.

use std::{borrow::Cow, ops::Deref, time::Duration};

use deadpool_redis::redis::Cmd;

use crate::node::{
    Card, Expiry, Kind, NodeMs, Op, Seen, Take, Token, Version,
    rules::{LONGEST_TTL_MS, ceil_ms},
};

/// Longer lives are cut to this (ten years), so that a time plus a life keeps its width in the table.
pub(super) const LONGEST_MS: u64 = 10 * 366 * 24 * 3600 * 1000;

/// Rows that a page looks at: so many take a server a fraction of a millisecond.
pub(super) const PAGE: u32 = 25;

/// Most names of fields are shorter.
const NAME: usize = 64;

/// Digits of a time.
pub(super) const TIME: usize = 13;
/// The same of names of documents, and of documents.
const NAMES: u32 = 250;
const DOCS: u32 = 100;

/// Letters of an incarnation in the table: a nonce is filled up with `-`.
const INC: usize = 16;

/// No time of any node is later.
const NEVER_MS: u64 = 9_999_999_999_999;

/// What is said of each operation of a group, after its head.
pub(super) struct Args(pub(super) Cmd);

/// A number in decimal digits, which is written without a place of its own in memory.
pub(super) struct Digits {
    text: [u8; MOST_DIGITS],
    from: usize,
}

/// Those of the largest number.
const MOST_DIGITS: usize = 20;

// === impl Digits ===

impl Digits {
    /// At least so many.
    fn of(mut number: u64, least: usize) -> Self {
        let (mut text, mut from) = ([b'0'; MOST_DIGITS], MOST_DIGITS);
        for (at, digit) in text.iter_mut().enumerate().rev() {
            if number == 0 && MOST_DIGITS - from >= least {
                break;
            }
            // Less than ten.
            *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
            (number, from) = (number / 10, at);
        }
        Self { text, from }
    }
}

impl Deref for Digits {
    type Target = str;
    fn deref(&self) -> &str {
        // Digits are always text.
        std::str::from_utf8(&self.text[self.from..]).unwrap_or_default()
    }
}

/// By when a call is too late.
pub(super) fn not_after(cmd: &mut Cmd, not_after: Option<NodeMs>) {
    let last = not_after.map_or(NEVER_MS, |at| at.0.min(NEVER_MS));
    cmd.arg(&*Digits::of(last, TIME));
}

/// For the script that acquires one lock, which asks this server for its incarnation.
pub(super) fn acquire(cmd: &mut Cmd, op: &Op, server: Option<&str>) {
    if let Op::Acquire {
        key,
        owner,
        ttl,
        floor,
        take,
        clamp,
        waits,
        ..
    } = op
    {
        cmd.arg(key).arg(&*least(*floor));
        cmd.arg(&*life(*ttl)).arg(owner);
        let seen = seen(take);
        let mut refused = String::with_capacity(2 * TIME + seen.len());
        refused.push_str(&Digits::of(wait_ms(*waits), TIME));
        refused.push_str(&Digits::of(life_ms(*clamp), TIME));
        refused.push_str(&seen);
        cmd.arg(refused);
        if let Some(server) = server {
            cmd.arg(server);
        }
    }
}

/// For the script that releases one lock.
pub(super) fn release(cmd: &mut Cmd, op: &Op) {
    if let Op::Release {
        key,
        owner,
        marked,
        retention,
        ..
    } = op
    {
        cmd.arg(key).arg(owner);
        cmd.arg(&*millis(*marked)).arg(&*millis(*retention));
    }
}

/// How many fields of the table these operations read one after the other, and which; at their end when the incarnation was
/// compared, where that is done with every call.
pub(super) fn fields(cmd: &mut Cmd, ops: &[Op], compares: bool) {
    let count: usize = ops.iter().map(|op| fields_of(op).1.len()).sum();
    cmd.arg(count + usize::from(compares));
    let mut name = String::with_capacity(NAME);
    for op in ops {
        let (key, kinds) = fields_of(op);
        for kind in kinds.chars() {
            name.clear();
            name.push(kind);
            name.push_str(key);
            cmd.arg(&name);
        }
    }
    if compares {
        cmd.arg("i");
    }
}

/// The lock that an operation reads, and which fields of it.
fn fields_of(op: &Op) -> (&str, &'static str) {
    match op {
        Op::Acquire {
            key,
            kind: Kind::Lock,
            ..
        } => (key, "le"),
        Op::Acquire { key, .. }
        | Op::Extend { key, .. }
        | Op::Confirm { key, .. }
        | Op::Release { key, .. } => (key, "l"),
        _ => ("", ""),
    }
}

impl Args {
    /// Attempts at locks and claims and their releases, and extensions of locks: what is alike once for all that follow each
    /// other.
    pub(super) fn plain(&mut self, mut ops: &[Op]) {
        while let Some(first) = ops.first() {
            let alike = 1 + ops
                .iter()
                .skip(1)
                .take_while(|op| is_alike(first, op))
                .count();
            let (group, rest) = ops.split_at(alike);
            match first {
                Op::Acquire {
                    kind: Kind::Claim,
                    ttl,
                    floor,
                    clamp,
                    ..
                } => self.texts(&["claims", &life(*ttl), &wide(floor.0), &millis(*clamp)]),
                Op::Release {
                    kind: Kind::Claim, ..
                } => self.texts(&["unclaims"]),
                Op::Acquire {
                    ttl,
                    floor,
                    take,
                    clamp,
                    waits,
                    ..
                } => {
                    self.texts(&["acquires", &life(*ttl), &least(*floor), &seen(take)]);
                    self.texts(&[&millis(*clamp), &wait(*waits)]);
                }
                Op::Extend { ttl, take, .. } => {
                    self.texts(&["extends", &life(*ttl), &seen(take)]);
                }
                Op::Release {
                    marked, retention, ..
                } => self.texts(&["releases", &millis(*marked), &millis(*retention)]),
                // Sent in another form.
                _ => {}
            }
            self.count(group);
            for op in group {
                match op {
                    Op::Acquire { owner, .. } | Op::Release { owner, .. } => {
                        self.0.arg(owner);
                    }
                    Op::Extend {
                        owner, seq, token, ..
                    } => {
                        self.0.arg(owner).arg(pair(*seq, token.0));
                    }
                    _ => {}
                }
            }
            ops = rest;
        }
    }

    pub(super) fn group(&mut self, first: &Op, group: &[Op]) {
        match first {
            Op::Acquire {
                owner,
                kind: Kind::Claim,
                ttl,
                floor,
                clamp,
                ..
            } => {
                self.texts(&["claim", owner, &life(*ttl), &wide(floor.0), &millis(*clamp)]);
                self.count(group);
            }
            Op::Acquire {
                owner,
                ttl,
                floor,
                take,
                clamp,
                ticket,
                waits,
                ..
            } => {
                self.texts(&["acquire", owner, &life(*ttl), &least(*floor), &seen(take)]);
                self.texts(&[&millis(*clamp), &wait(*waits)]);
                match ticket {
                    Some(ticket) => {
                        let polite = if ticket.polite { "1" } else { "0" };
                        self.texts(&[&ticket.id, &millis(ticket.life), polite]);
                    }
                    None => self.texts(&[""]),
                }
            }
            Op::Extend {
                owner,
                kind: Kind::Claim,
                ttl,
                token,
                ..
            } => {
                self.texts(&["extend_claim", owner, &life(*ttl), &wide(token.0)]);
                self.count(group);
            }
            Op::Extend { ttl, .. } => {
                self.texts(&["extend", &life(*ttl)]);
                self.count(group);
                for op in group {
                    if let Op::Extend {
                        owner,
                        seq,
                        token,
                        take,
                        ..
                    } = op
                    {
                        self.texts(&[owner, &wide(*seq), &wide(token.0), &seen(take)]);
                    }
                }
            }
            Op::Confirm {
                owner,
                kind,
                token,
                expiry,
                ..
            } => {
                let ends = ends(*expiry);
                self.texts(&["confirm", word(*kind), owner, &wide(token.0), ends]);
                self.count(group);
            }
            Op::Release {
                owner,
                kind,
                marked,
                retention,
                ..
            } => {
                let (marked, kept) = (millis(*marked), millis(*retention));
                self.texts(&["release", word(*kind), owner, &marked, &kept]);
                self.count(group);
            }
            other => self.rare(other),
        }
    }

    fn count(&mut self, group: &[Op]) {
        self.0.arg(group.len());
    }

    /// What is asked for one by one.
    fn rare(&mut self, op: &Op) {
        match op {
            // In groups, above.
            Op::Acquire { .. } | Op::Confirm { .. } | Op::Extend { .. } | Op::Release { .. } => {}
            Op::Leave { key, ticket } => self.texts(&["leave", key, ticket]),
            Op::Break {
                key,
                owner,
                token,
                ttl,
                marked,
                retention,
                now,
            } => {
                let (marked, kept) = (millis(*marked), millis(*retention));
                let now = if *now { "1" } else { "0" };
                self.texts(&["break", key, owner, &wide(token.0), &life(*ttl)]);
                self.texts(&[&marked, &kept, now]);
            }
            Op::Write {
                key,
                owner,
                version,
                body,
                not_before,
                expiry,
            } => {
                let from = not_before.and_then(|at| u64::try_from(at).ok());
                let from = format!("{:013}", from.unwrap_or_default().min(NEVER_MS));
                self.texts(&["write", key, owner, &both(*version), body]);
                self.texts(&[&from, ends(*expiry)]);
            }
            Op::Read { key } => self.texts(&["read", key]),
            Op::List {
                prefix,
                from,
                count,
            } => {
                let pattern = format!("l{}*", literal(prefix));
                self.texts(&["list", cursor(&from.0), &page(*count, PAGE), &pattern]);
            }
            Op::PutDoc {
                name,
                rev,
                ttl,
                body,
            } => {
                self.texts(&["put_doc", name, &rev.to_string(), &millis(*ttl), body]);
            }
            Op::Docs { dir, from, count } => {
                self.texts(&["docs", dir, cursor(&from.0), &page(*count, DOCS)]);
            }
            Op::DocNames { dir, from, count } => {
                self.texts(&["doc_names", dir, cursor(&from.0), &page(*count, NAMES)]);
            }
            Op::TouchDoc { name, rev, ttl } => {
                self.texts(&["touch_doc", name, &rev.to_string(), &millis(*ttl)]);
            }
            Op::Living {
                dir,
                least,
                most,
                known,
            } => {
                let (least, most) = (millis(*least), millis(*most));
                let known: Vec<String> = known.iter().map(u64::to_string).collect();
                self.texts(&["living", dir, &least, &most, &known.join(" ")]);
            }
            Op::Doc { name } => self.texts(&["doc", name]),
            Op::RemoveDoc { name } => self.texts(&["remove_doc", name]),
            Op::Admission => self.texts(&["admission"]),
            Op::Nominate { nonce, over } => {
                let over = over.as_deref().map(nominated).unwrap_or_default();
                self.texts(&["nominate", &nominated(nonce), &over]);
            }
            Op::Merge {
                nonce,
                key,
                record,
                retention,
            } => {
                let (version, kept) = (both(record.version), millis(*retention));
                self.texts(&["merge", &nominated(nonce), key, &version]);
                self.texts(&[&record.body, &kept]);
            }
            Op::Enrol { was, roster } => {
                self.texts(&["enrol"]);
                self.card(was);
                self.texts(&[roster]);
            }
            Op::Close {
                was,
                nonce,
                config,
                forgets,
            } => {
                self.texts(&["close"]);
                self.card(was);
                let forgets = if *forgets { "1" } else { "0" };
                self.texts(&[&nominated(nonce), config, forgets]);
            }
            Op::Admit {
                nonce,
                config,
                roster,
                counter,
                memory_loss,
            } => {
                let lost = memory_loss.map(|at| at.to_string()).unwrap_or_default();
                self.texts(&["admit", &nominated(nonce), config, roster]);
                self.texts(&[&wide(counter.0), &lost]);
            }
            Op::Records { from, count } => {
                self.texts(&["records", cursor(&from.0), &page(*count, PAGE)]);
            }
            Op::Sweep { from, count } => {
                self.texts(&["sweep", cursor(&from.0), &page(*count, PAGE)])
            }
            Op::Forget {
                key,
                seen,
                retention,
            } => self.texts(&["forget", key, &exactly(seen), &millis(*retention)]),
        }
    }

    /// What was read of a node, as it stands there.
    fn card(&mut self, was: &Card) {
        let Card {
            marker,
            nonce,
            id,
            roster,
        } = was;
        let padded = |text: &str| match text {
            "" => String::new(),
            nonce => nominated(nonce),
        };
        self.texts(&[marker, &padded(nonce), &padded(id), roster]);
    }

    fn texts(&mut self, texts: &[&str]) {
        for text in texts {
            self.0.arg(*text);
        }
    }
}

/// Whether an attempt, or a release or extension, shares all with another but the lock, the owner, and the round of the lease.
fn is_alike(first: &Op, next: &Op) -> bool {
    match (first, next) {
        (
            Op::Acquire {
                kind: Kind::Claim,
                ttl,
                floor,
                clamp,
                ..
            },
            Op::Acquire {
                kind: Kind::Claim,
                ttl: t,
                floor: f,
                clamp: c,
                ..
            },
        ) => (ttl, floor, clamp) == (t, f, c),
        (
            Op::Release {
                kind: Kind::Claim, ..
            },
            Op::Release {
                kind: Kind::Claim, ..
            },
        ) => true,
        (
            Op::Acquire {
                kind,
                ttl,
                floor,
                take,
                clamp,
                waits,
                ..
            },
            Op::Acquire {
                kind: n,
                ttl: t,
                floor: f,
                take: k,
                clamp: c,
                waits: w,
                ..
            },
        ) => (kind, ttl, floor, take, clamp, waits) == (n, t, f, k, c, w),
        (
            Op::Release {
                kind,
                marked,
                retention,
                ..
            },
            Op::Release {
                kind: n,
                marked: m,
                retention: r,
                ..
            },
        ) => (kind, marked, retention) == (n, m, r),
        (
            Op::Extend { ttl, take, .. },
            Op::Extend {
                ttl: t, take: k, ..
            },
        ) => (ttl, take) == (t, k),
        _ => false,
    }
}

/// A nonce as it stands in the table, empty without a guard; `None` for one that cannot.
pub(super) fn inc(nonce: &str) -> Option<String> {
    // As an identity it stands in a roster, in a list; and what begins with `-` is no marker of a guarded fleet.
    let apart = |c: char| c == '-' || c.is_ascii_alphanumeric();
    let fits = nonce.len() <= INC && nonce.chars().all(apart);
    let fits = fits && !nonce.starts_with('-') && !nonce.ends_with('-');
    fits.then(|| format!("{nonce:-<INC$}"))
}

/// What does not fit was refused before it came here.
fn nominated(nonce: &str) -> String {
    inc(nonce).unwrap_or_default()
}

/// As a row ends: what was seen is compared in one step. By the server's clock nothing was.
fn seen(take: &Take) -> Cow<'static, str> {
    match take {
        Take::Server => "s".into(),
        Take::Observed(None) => "".into(),
        Take::Observed(Some(seen)) => exactly(seen).into(),
    }
}

/// Empty for what stands in no table.
fn exactly(
    Seen {
        inc: nonce,
        owner,
        seq,
    }: &Seen,
) -> String {
    inc(nonce).map_or_else(String::new, |inc| format!("{}{inc}{owner}", &*wide(*seq)))
}

/// A number that is compared.
fn wide(number: u64) -> Digits {
    Digits::of(number, 16)
}

/// The least that may be granted of a lock whose largest known token this is.
fn least(Token(floor): Token) -> Digits {
    wide(floor.saturating_add(1))
}

fn both(
    Version {
        token: Token(token),
        rev,
    }: Version,
) -> String {
    pair(token, rev)
}

fn pair(one: u64, other: u64) -> String {
    let mut both = String::with_capacity(2 * MOST_DIGITS);
    both.push_str(&wide(one));
    both.push_str(&wide(other));
    both
}

/// The ttl of a lease.
pub(super) fn life(ttl: Duration) -> Digits {
    Digits::of(ceil_ms(ttl).clamp(1, LONGEST_TTL_MS), 10)
}

/// Rounded up, as everywhere on nodes; Redis refuses a life of zero.
pub(super) fn millis(life: Duration) -> Digits {
    Digits::of(life_ms(life), 1)
}

fn life_ms(life: Duration) -> u64 {
    ceil_ms(life).clamp(1, LONGEST_MS)
}

fn wait(waits: Duration) -> Digits {
    Digits::of(wait_ms(waits), 1)
}

fn wait_ms(waits: Duration) -> u64 {
    ceil_ms(waits).min(LONGEST_MS)
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Lock => "lock",
        Kind::Claim => "claim",
    }
}

fn ends(expiry: Expiry) -> &'static str {
    match expiry {
        Expiry::Server => "s",
        Expiry::Observed => "o",
    }
}

fn cursor(from: &str) -> &str {
    if from.is_empty() { "0" } else { from }
}

fn page(count: u32, most: u32) -> Digits {
    Digits::of(count.clamp(1, most).into(), 1)
}

/// A pattern that means exactly this text.
pub(super) fn literal(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '^' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
