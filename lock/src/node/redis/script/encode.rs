//! Operations to arguments.

use std::time::Duration;

use deadpool_redis::redis::Cmd;

use crate::node::{Expiry, Kind, Op, Seen, Take, Token, Version, rules::ceil_ms};

/// Longer lives are cut to this (ten years), so that a time plus a life stays exact in the script.
pub(super) const LONGEST_MS: u64 = 10 * 366 * 24 * 3600 * 1000;

/// What is said of each operation of a group, after its head.
pub(super) struct Args(pub(super) Cmd);

impl Args {
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
                self.text("claim").text(owner).millis(*ttl).token(*floor);
                self.millis(*clamp).keys(group);
            }
            Op::Acquire {
                key,
                owner,
                ttl,
                floor,
                take,
                clamp,
                ticket,
                ..
            } => {
                self.text("acquire").text(key).text(owner).millis(*ttl);
                self.token(*floor).take(take).millis(*clamp);
                match ticket {
                    Some(ticket) => {
                        let polite = if ticket.polite { "1" } else { "0" };
                        self.text(&ticket.id).millis(ticket.life).text(polite);
                    }
                    None => drop(self.text("")),
                }
            }
            Op::Extend {
                owner,
                kind: Kind::Claim,
                ttl,
                token,
                ..
            } => {
                // A field is left empty, so that its head is like that of claims.
                self.text("extend_claim").text(owner).millis(*ttl);
                self.token(*token).text("").keys(group);
            }
            Op::Extend { ttl, .. } => {
                self.text("extend").millis(*ttl).number(group.len() as u64);
                for op in group {
                    if let Op::Extend {
                        key,
                        owner,
                        seq,
                        token,
                        take,
                        ..
                    } = op
                    {
                        self.text(key).text(owner).number(*seq);
                        self.token(*token).take(take);
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
                self.text("confirm").text(word(*kind)).text(owner);
                self.token(*token).text(ends(*expiry)).keys(group);
            }
            Op::Release {
                owner,
                kind,
                retention,
                ..
            } => {
                self.text("release").text(word(*kind)).text(owner);
                self.millis(*retention).keys(group);
            }
            other => self.rare(other),
        }
    }

    /// How many, and their keys.
    fn keys(&mut self, group: &[Op]) {
        self.number(group.len() as u64);
        for op in group {
            if let Op::Acquire { key, .. }
            | Op::Extend { key, .. }
            | Op::Confirm { key, .. }
            | Op::Release { key, .. } = op
            {
                self.text(key);
            }
        }
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
                retention,
                now,
            } => {
                let (token, ttl, retention) = (count(*token), millis(*ttl), millis(*retention));
                let now = if *now { "1" } else { "0" };
                self.texts(&["break", key, owner, &token, &ttl, &retention, now]);
            }
            Op::Write {
                key,
                owner,
                version,
                body,
                not_before,
                expiry,
            } => {
                let (token, rev) = (count(version.token), version.rev.to_string());
                let not_before = not_before.map(|at| at.to_string()).unwrap_or_default();
                let expiry = ends(*expiry);
                self.texts(&["write", key, owner, &token, &rev, body, &not_before, expiry]);
            }
            Op::Read { key } => self.texts(&["read", key]),
            Op::List { prefix } => self.texts(&["list", prefix]),
            Op::PutDoc {
                name,
                rev,
                ttl,
                body,
            } => {
                self.texts(&["put_doc", name, &rev.to_string(), &millis(*ttl), body]);
            }
            Op::Docs { dir } => self.texts(&["docs", dir]),
            Op::DocNames { dir, limit } => self.texts(&["doc_names", dir, &limit.to_string()]),
            Op::Doc { name } => self.texts(&["doc", name]),
            Op::RemoveDoc { name } => self.texts(&["remove_doc", name]),
            Op::Admission => self.texts(&["admission"]),
            Op::Nominate { nonce } => self.texts(&["nominate", nonce]),
            Op::Merge {
                nonce,
                key,
                counter,
                record,
            } => {
                let Version { token, rev } = record.version;
                let (counter, token, rev) = (count(*counter), count(token), rev.to_string());
                self.texts(&["merge", nonce, key, &counter, &token, &rev, &record.body]);
            }
            Op::Admit {
                nonce,
                config,
                counter,
                memory_loss,
            } => {
                let blank = memory_loss.map(|at| at.to_string()).unwrap_or_default();
                self.texts(&["admit", nonce, config, &count(*counter), &blank]);
            }
            Op::Records { after, limit } => {
                self.texts(&["records", after, &limit.to_string()]);
            }
        }
    }

    fn texts(&mut self, texts: &[&str]) {
        for text in texts {
            self.text(text);
        }
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.0.arg(text);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.arg(number);
        self
    }

    fn token(&mut self, token: Token) -> &mut Self {
        self.number(token.0)
    }

    fn millis(&mut self, life: Duration) -> &mut Self {
        self.number(whole_millis(life))
    }

    /// What was seen, in the one way in which the script writes what stands there.
    fn take(&mut self, take: &Take) -> &mut Self {
        match take {
            Take::Server => self.text("s"),
            Take::Observed(None) => self.text("o"),
            Take::Observed(Some(Seen { inc, owner, seq })) => {
                self.0.arg(format!("o{seq} {} {owner}{inc}", owner.len()));
                self
            }
        }
    }
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

/// Rounded up, as everywhere on nodes; Redis refuses a life of zero.
fn whole_millis(life: Duration) -> u64 {
    ceil_ms(life).clamp(1, LONGEST_MS)
}

pub(super) fn millis(life: Duration) -> String {
    whole_millis(life).to_string()
}

fn count(token: Token) -> String {
    token.0.to_string()
}
