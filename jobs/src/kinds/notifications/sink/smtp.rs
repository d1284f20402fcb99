//! Sends items as mails: one for each, many over one connection.
//!
//! A mail server knows no idempotency key. What may have been sent without an answer is in doubt, and repeated or parked as
//! `in_doubt` says, which must therefore be said. `Message-ID` depends on the item's key alone: some programs that read
//! mail show equal ones once.
//!
//! | answer | the mail | the server |
//! | --- | --- | --- |
//! | 2xx after the text | sent | |
//! | 421, 454 | later | is left alone for a growing while, then sent to at half the pace |
//! | another 4xx | later | |
//! | 5xx to the recipient or the text | dead | |
//! | 5xx to a greeting, a password or the sender, no encryption | waits | is left alone for a minute: a setting is wrong |
//! | no connection, or broken before the text | later | is left alone after five in a row |
//! | broken after the text was begun, or no answer in time | in doubt | the same |
//!
//! # Invariants
//! - M1 Nothing in a row can add a header or a recipient.          (`no_column_adds_a_header_or_a_recipient`)
//! - M2 From the first byte of the text on, a mail without an answer is in doubt.  (`only_the_text_leaves_doubt`)
//! - M3 A password is not sent in the clear to another machine, and never shown.  (`a_password_needs_encryption`)
//! - M4 Where encryption is wanted nothing but a greeting goes without it, and a server whose certificate is not trusted is told nothing.
//!   (`a_server_without_the_wanted_encryption_is_told_nothing`, `a_server_that_is_not_trusted_is_told_nothing_and_no_mail_is_lost`)
//!
//! # Not promised
//! With STARTTLS an attacker on the way can put words before the encryption that are read after it as answers of the server.
//! `smtps://` is encrypted from the first byte.

mod connection;
mod letter;
mod plan;
mod post;
mod reply;

pub(super) use plan::Plan;
pub(crate) use post::Post;

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use watchkeeper::{clock::Clock, node::Token};

use self::{
    connection::{Connection, Server},
    letter::Letter,
    reply::{Failure, Stage, judge},
};
use super::{Sink, hosts::Hosts};
use crate::notifications::{delivery::Answer, source::Item};

/// The sink.
pub(crate) struct Mailer {
    server: Server,
    letter: Letter,
    hosts: Hosts,
    /// Connections at a time.
    connections: usize,
    /// Connections that wait for the next mail.
    idle: Mutex<Vec<Connection>>,
    timeout: Duration,
    clock: Clock,
}

/// A server may close a connection that is idle for longer.
const IDLE_FOR: Duration = Duration::from_secs(20);
/// Many servers end a connection after some hundred mails.
const MAILS: u32 = 100;

// === impl Mailer ===

impl Mailer {
    /// Sends as planned, within `timeout` each.
    ///
    /// # Errors
    /// A sentence, for instance when the system has no root certificates.
    pub(super) fn new(plan: Plan, timeout: Duration, clock: Clock) -> Result<Self, String> {
        let server = Server::new(plan.server, clock.clone())?;
        Ok(Self {
            letter: plan.letter,
            hosts: Hosts::single(&server.shown(), plan.connections),
            server,
            connections: plan.connections,
            idle: Mutex::default(),
            timeout,
            clock,
        })
    }

    /// One mail, on a connection that is there or a new one. The mail's connection comes back if it is still good.
    async fn deliver(&self, item: &Item) -> Result<(), Failure> {
        let letter = self.letter.write(item).map_err(Failure::unfit)?;
        let now = self.clock.now();
        let deadline = now + self.timeout;
        let mut kept = self.idle().pop();
        if let Some(old) =
            kept.take_if(|kept| now.since(kept.used) > IDLE_FOR || kept.mails >= MAILS)
        {
            // Before the mail: a farewell after it could leave a mail in doubt that was taken.
            old.quit().await;
        }
        let fresh = kept.is_none();
        let mut connection = match kept {
            Some(kept) => kept,
            None => self.server.connect(deadline).await?,
        };
        let mut sent = connection.send(&letter, deadline).await;
        // The server may have closed it meanwhile, which is no trouble: nothing of the mail was said.
        if let Err(failure) = &sent
            && !fresh
            && failure.stage == Stage::Sender
            && matches!(failure.code, None | Some(421))
        {
            connection = self.server.connect(deadline).await?;
            sent = connection.send(&letter, deadline).await;
        }
        if connection.is_good() {
            connection.used = self.clock.now();
            let mut idle = self.idle();
            if idle.len() < self.connections {
                idle.push(connection);
            }
        }
        sent
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Sink for Mailer {
    fn name(&self) -> String {
        self.server.shown()
    }

    fn hosts(&self) -> Option<&Hosts> {
        Some(&self.hosts)
    }

    async fn send(&self, item: &Item, _token: Token) -> Answer {
        let left = self.clock.now();
        let delivered = self.deliver(item).await;
        let (answer, heard) = judge(delivered.err());
        if let Some(heard) = heard {
            let why = match &answer {
                Answer::Later { why, .. } | Answer::Unknown { why } | Answer::Waits { why, .. } => {
                    why
                }
                _ => "",
            };
            self.hosts.heard("", left, heard, why, self.clock.now());
        }
        answer
    }
}
