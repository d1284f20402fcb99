//! Which sink the parameters ask for, and what is wrong with what they say of it.

use std::{path::PathBuf, sync::Arc};

use watchkeeper::{clock::Clock, config::Findings};

#[cfg(feature = "smtp")]
use super::smtp;
use super::{Sink, file::Lines, webhook};
use crate::notifications::params::{NotificationsParams, Target};

/// A sink to be.
pub(crate) enum Plan {
    /// Webhooks.
    Web(Box<webhook::Plan>),
    /// Mails.
    #[cfg(feature = "smtp")]
    Mail(Box<smtp::Plan>),
    /// Lines of a file.
    File(PathBuf),
}

// === impl Plan ===

impl Plan {
    /// Reads the parameters; nothing when there is no sink, which is told elsewhere.
    pub(crate) fn read(params: &NotificationsParams, found: &mut Findings) -> Option<Self> {
        let target = params.sink.target().ok();
        if matches!(target, Some(Target::Mail(_) | Target::File(_))) {
            for key in for_webhooks(params) {
                let why = "is for webhooks, and `sink` is none of http://… or https://…";
                found.error(&[key], why, "remove one of them");
            }
        }
        if !matches!(target, Some(Target::Mail(_))) && !params.mail.is_null() {
            found.error(
                &["mail"],
                "is for mails, and `sink` is none of smtp://… or smtps://…",
                "remove one of them",
            );
        }
        match target {
            Some(Target::Web(url)) => {
                let plan = webhook::Plan::read(Some(url), params, found);
                Some(Self::Web(Box::new(plan)))
            }
            None if params.columns.url.is_some() => {
                let plan = webhook::Plan::read(None, params, found);
                Some(Self::Web(Box::new(plan)))
            }
            #[cfg(feature = "smtp")]
            Some(Target::Mail(server)) => {
                let plan = smtp::Plan::read(server, params, found)?;
                Some(Self::Mail(Box::new(plan)))
            }
            #[cfg(not(feature = "smtp"))]
            Some(Target::Mail(_)) => {
                found.error(
                    &["sink"],
                    "is a mail server, and this program was built without mails",
                    "build it with the feature `smtp`",
                );
                None
            }
            Some(Target::File(path)) => Some(Self::File(path)),
            None => None,
        }
    }

    /// Makes the sink. Opens no connection.
    ///
    /// # Errors
    /// A sentence, for instance when the system has no root certificates.
    pub(crate) fn open(
        self,
        params: &NotificationsParams,
        clock: &Clock,
    ) -> Result<Arc<dyn Sink>, String> {
        let (timeout, clock) = (params.timeout.0, clock.clone());
        Ok(match self {
            Self::Web(plan) => {
                let hook = webhook::Webhook::new(*plan, timeout, clock);
                Arc::new(hook.map_err(|e| e.to_string())?)
            }
            #[cfg(feature = "smtp")]
            Self::Mail(plan) => Arc::new(smtp::Mailer::new(*plan, timeout, clock)?),
            Self::File(path) => Arc::new(Lines::new(path)),
        })
    }
}

/// Parameters that are given, and that webhooks alone have.
fn for_webhooks(params: &NotificationsParams) -> impl Iterator<Item = &'static str> {
    let columns = &params.columns;
    let all = [
        ("columns.url", columns.url.is_some()),
        ("columns.secret", columns.secret.is_some()),
        ("body", params.body.is_some()),
        ("secrets", !params.secrets.is_empty()),
        ("secret_files", !params.secret_files.is_empty()),
        ("allow_private", params.allow_private),
    ];
    all.into_iter()
        .filter(|(_, given)| *given)
        .map(|(key, _)| key)
}
