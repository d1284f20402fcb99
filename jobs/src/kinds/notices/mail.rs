//! A mail for each change, to each recipient.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use watchkeeper::{
    clock::Clock,
    config::Findings,
    notice::{Notice, NoticeSettings, NoticeTls, Receiver, Unsent},
};

use super::send::{TIMEOUT, as_text, url_key};
use crate::kinds::{
    kind::take,
    notifications::{
        delivery::Answer,
        params::{MailParams, MailServer, Tls},
        sink::Post,
    },
};

/// Mails that are remembered as sent, for the time in which others of the same notice are tried again.
const REMEMBERED: usize = 1000;

/// The receiver.
pub(super) struct Mails {
    post: Post,
    to: Vec<String>,
    /// Notices, and the recipient of each who has it.
    sent: Mutex<VecDeque<(String, usize)>>,
    clock: Clock,
}

/// Mails to be.
pub(super) struct Plan {
    post: Post,
    to: Vec<String>,
}

/// Reads and checks the settings.
pub(super) fn read(settings: &NoticeSettings, address: &str, found: &mut Findings) -> Option<Plan> {
    let server = match address.starts_with("smtp://") || address.starts_with("smtps://") {
        true => MailServer::parse(address),
        false => Err("is none of smtps://HOST and smtp://HOST".to_owned()),
    };
    let server = take(found, url_key(settings), server)?;
    let params = MailParams {
        from: settings.from.clone().unwrap_or_default(),
        tls: settings.tls.map(|tls| match tls {
            NoticeTls::Required => Tls::Required,
            NoticeTls::Optional => Tls::Optional,
            NoticeTls::Off => Tls::Off,
        }),
        tls_ca: settings.tls_ca.clone(),
        username: settings.username.clone(),
        password: settings.password.clone(),
        password_file: settings.password_file.clone(),
        ..MailParams::default()
    };
    // What it finds of a notification stands in a table of its own there.
    let mut inner = Findings::default();
    let post = Post::read(server, &params, &mut inner);
    for mut finding in inner {
        for key in &mut finding.keys {
            *key = key.trim_start_matches("mail.").to_owned();
        }
        finding.remedy = finding.remedy.replace("mail.", "");
        found.push(finding);
    }
    let mut fits = true;
    for (at, to) in settings.to.as_slice().iter().enumerate() {
        if !Post::is_address(to) {
            fits = false;
            found.error(
                &[&format!("to[{at}]"), "to"],
                "is no address of a mail",
                "write ops@example.org, or Operators <ops@example.org>; several as a list",
            );
        }
    }
    Some(Plan {
        post: post?,
        to: settings.to.as_slice().to_vec(),
    })
    .filter(|_| fits)
}

impl Mails {
    pub(super) fn new(plan: Plan, clock: Clock) -> Result<Self, String> {
        Ok(Self {
            post: plan.post.ready(clock.clone())?,
            to: plan.to,
            sent: Mutex::default(),
            clock,
        })
    }

    fn has(&self, notice: &Notice, recipient: usize) -> bool {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.iter()
            .any(|(id, to)| *id == notice.id && *to == recipient)
    }

    fn remember(&self, notice: &Notice, recipient: usize) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.len() >= REMEMBERED {
            sent.pop_front();
        }
        sent.push_back((notice.id.clone(), recipient));
    }
}

#[async_trait]
impl Receiver for Mails {
    /// One recipient that is refused keeps no other one from it.
    async fn send(&self, notice: &Notice) -> Result<(), Unsent> {
        let deadline = self.clock.now() + TIMEOUT;
        let text = as_text(notice);
        let mut failed: Option<Unsent> = None;
        for (recipient, to) in self.to.iter().enumerate() {
            if self.has(notice, recipient) {
                continue;
            }
            let letter = (to.as_str(), notice.title(), text.clone());
            match self.post.send(letter, &notice.id, deadline).await {
                Answer::Accepted | Answer::Duplicate => self.remember(notice, recipient),
                Answer::Refused { why } => {
                    // The others may still be tried again.
                    failed.get_or_insert_with(|| Unsent::never(why));
                }
                Answer::Later { why, after } => {
                    let after = after.or_else(|| failed.as_ref().and_then(|f| f.after));
                    failed = Some(Unsent {
                        after,
                        ..Unsent::later(why)
                    });
                }
                Answer::Waits { why, .. } | Answer::Unknown { why } | Answer::CutOff { why } => {
                    failed = Some(Unsent::later(why));
                }
            }
        }
        match failed {
            Some(unsent) => Err(Unsent {
                heard: (0..self.to.len()).any(|recipient| self.has(notice, recipient)),
                ..unsent
            }),
            None => Ok(()),
        }
    }
}
