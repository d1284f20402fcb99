//! Where items go: the seam between the method and a receiver.

pub(super) mod file;
mod hosts;
mod pace;
mod plan;
mod reach;
#[cfg(feature = "smtp")]
mod smtp;
mod webhook;

pub(super) use hosts::{Admission, Hosts, Permit};
#[cfg(test)]
pub(super) use pace::Heard;
pub(crate) use plan::Plan;
#[cfg(feature = "smtp")]
pub(crate) use smtp::Post;
pub(crate) use webhook::Keys;

use std::io;

use async_trait::async_trait;
use watchkeeper::node::Token;

use super::{delivery::Answer, source::Item};

/// Takes items one at a time. Implement it to send in a way of your own.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// A name for logs, without anything secret.
    fn name(&self) -> String;

    /// Sends one item, within a time limit of its own. `item.key` is the same each time the item is sent: give it to
    /// the receiver. `token` grows with every holder of the batch: a receiver may refuse smaller ones.
    ///
    /// When dropped, the item may or may not have been received.
    async fn send(&self, item: &Item, token: Token) -> Answer;

    /// The receivers behind this sink, if it keeps count of them; how many there are and how fast they are sent to is decided
    /// there.
    #[doc(hidden)] // for the sinks of this crate
    fn hosts(&self) -> Option<&Hosts> {
        None
    }

    /// Which of them an item goes to.
    #[doc(hidden)] // for the sinks of this crate
    fn host_of(&self, _item: &Item) -> String {
        String::new()
    }

    /// Makes sure that what was accepted stays accepted; called before items are marked.
    ///
    /// # Errors
    /// Any; the accepted items of the batch are in doubt then.
    async fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
