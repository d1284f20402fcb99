//! Who takes notices: people who are to hear of a job that has broken, by a webhook or a mail, and services that wait for the sign of
//! life of a job, by a ping. What is told, and when, is decided by the worker; this is how it gets there.
//!
//! # Invariants
//! - K1 What is wrong with a receiver is found before anything starts, each fault under its key.
//!   (`every_fault_of_a_receiver_is_found_under_its_key`)
//! - K2 No address, secret or password is in a fault or a reason.   (`no_secret_is_in_a_fault`)

#[cfg(feature = "smtp")]
mod mail;
mod ping;
mod send;
mod webhook;

use std::sync::Arc;

use watchkeeper::{
    clock::Clock,
    config::Findings,
    notice::{Carrier, NoticeKind, NoticeSettings, Receiver},
};

use self::{
    ping::Ping,
    send::{address, url_key},
    webhook::Webhook,
};
use super::kind::take;

/// Makes the receivers of all kinds.
pub(super) struct Carriers;

impl Carrier for Carriers {
    fn check(&self, settings: &NoticeSettings) -> Findings {
        let mut found = Findings::default();
        settings.check(&mut found);
        if !found.is_empty() {
            return found;
        }
        if let Some(address) = take(&mut found, url_key(settings), address(settings)) {
            match settings.kind {
                Some(NoticeKind::Webhook) => _ = webhook::read(settings, &address, &mut found),
                Some(NoticeKind::Ping) => ping::check(&address, url_key(settings), &mut found),
                #[cfg(feature = "smtp")]
                Some(NoticeKind::Mail) => _ = mail::read(settings, &address, &mut found),
                #[cfg(not(feature = "smtp"))]
                Some(NoticeKind::Mail) => found.error(
                    &["kind"],
                    "sends mails, and this program was built without them",
                    "build it with the feature `smtp`",
                ),
                None => {}
            }
        }
        found
    }

    fn open(&self, settings: &NoticeSettings, clock: &Clock) -> Result<Arc<dyn Receiver>, String> {
        let mut found = Findings::default();
        let address = address(settings)?;
        let made: Option<Result<Arc<dyn Receiver>, String>> = match settings.kind {
            Some(NoticeKind::Webhook) => webhook::read(settings, &address, &mut found)
                .map(|plan| Ok(Arc::new(Webhook::new(plan, clock.clone())?) as _)),
            Some(NoticeKind::Ping) => {
                Some(Ping::new(&address, clock.clone()).map(|ping| Arc::new(ping) as _))
            }
            #[cfg(feature = "smtp")]
            Some(NoticeKind::Mail) => mail::read(settings, &address, &mut found)
                .map(|plan| Ok(Arc::new(mail::Mails::new(plan, clock.clone())?) as _)),
            #[cfg(not(feature = "smtp"))]
            Some(NoticeKind::Mail) => None,
            None => None,
        };
        made.unwrap_or_else(|| {
            let told = found.iter();
            let told = told.map(|fault| format!("{} {}", fault.keys.join(", "), fault.message));
            Err(told.collect::<Vec<_>>().join("; "))
        })
    }
}

#[cfg(test)]
mod tests;
