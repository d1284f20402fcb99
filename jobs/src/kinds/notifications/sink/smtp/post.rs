//! Single mails that are no rows: what a program has to say to its operators. A connection for each.

use lettre::{
    Message,
    message::{
        Mailbox, SinglePart,
        header::{HeaderName, HeaderValue},
    },
};
use watchkeeper::{
    clock::{Clock, Moment},
    config::Findings,
};

use super::{
    connection::{Server, Settings},
    letter::{Written, mailbox},
    plan::settings,
    reply::{Failure, judge},
};
use crate::{
    kinds::kind::take,
    notifications::{
        delivery::Answer,
        params::{MailParams, MailServer},
    },
};

/// No machine answers such a mail (RFC 3834).
const AUTOMATIC: HeaderName = HeaderName::new_from_ascii_str("Auto-Submitted");

/// Where such mails go, and from whom.
pub(crate) struct Post {
    from: Mailbox,
    server: Stage,
}

enum Stage {
    Planned(Box<Settings>),
    Ready(Box<Server>),
}

// === impl Post ===

impl Post {
    /// Reads what is said of the server and of the sender. Keys are those of `mail`.
    pub(crate) fn read(
        server: MailServer,
        params: &MailParams,
        found: &mut Findings,
    ) -> Option<Self> {
        let before = found.iter().count();
        let from = mailbox(&params.from)
            .ok_or("must be the sender: jobs@example.org, or Jobs <jobs@example.org>".to_owned());
        let from = take(found, "mail.from", from);
        let settings = settings(server, params, found);
        let post = Self {
            from: from?,
            server: Stage::Planned(Box::new(settings)),
        };
        (found.iter().count() == before).then_some(post)
    }

    /// Whether mails can go there.
    pub(crate) fn is_address(text: &str) -> bool {
        mailbox(text).is_some()
    }

    /// Ready to send. Opens no connection.
    ///
    /// # Errors
    /// A sentence, for instance when the system has no root certificates.
    pub(crate) fn ready(self, clock: Clock) -> Result<Self, String> {
        let server = match self.server {
            Stage::Planned(settings) => Stage::Ready(Box::new(Server::new(*settings, clock)?)),
            ready => ready,
        };
        Ok(Self { server, ..self })
    }

    /// Sends one mail: recipient, subject and text. Mails with the same id have the same `Message-ID`.
    pub(crate) async fn send(
        &self,
        letter: (&str, String, String),
        id: &str,
        deadline: Moment,
    ) -> Answer {
        judge(self.deliver(letter, id, deadline).await.err()).0
    }

    async fn deliver(
        &self,
        (to, subject, text): (&str, String, String),
        id: &str,
        deadline: Moment,
    ) -> Result<(), Failure> {
        let Stage::Ready(server) = &self.server else {
            return Err(Failure::unfit(
                "the mail server was not made ready".to_owned(),
            ));
        };
        let to = mailbox(to).ok_or_else(|| Failure::unfit("no address of a mail".to_owned()))?;
        let domain = self.from.email.domain();
        let message = Message::builder()
            .from(self.from.clone())
            .to(to.clone())
            .subject(subject)
            .message_id(Some(format!("<{id}@{domain}>")))
            .raw_header(HeaderValue::new(AUTOMATIC, "auto-generated".to_owned()))
            .singlepart(SinglePart::plain(text));
        let message = message.map_err(|error| Failure::unfit(error.to_string()))?;
        let written = Written {
            from: self.from.email.clone(),
            to: to.email,
            text: message.formatted(),
        };
        let mut connection = server.connect(deadline).await?;
        let sent = connection.send(&written, deadline).await;
        connection.quit().await;
        sent
    }
}
