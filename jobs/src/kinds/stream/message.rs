//! A message, and those that this replica has read and that are not settled yet.
//!
//! # Invariants
//! - S1 At most so many messages are kept as there is room for.      (no_more_is_read_than_there_is_room_for)

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::id::Id;

/// A message of a stream. What is no UTF-8 in it is replaced.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    pub(super) id: Id,
    pub(super) fields: Map<String, Value>,
}

/// Messages that were read and are not settled.
#[derive(Debug)]
pub(super) struct Window {
    messages: BTreeMap<Id, Message>,
    most: usize,
    /// Settled ones that the group has not been told of.
    settled: BTreeSet<Id>,
    /// Every message up to this one was read; nothing was before the first look.
    pub(super) position: Option<Id>,
}

// === impl Window ===

impl Window {
    pub(super) fn new(most: usize) -> Self {
        Self {
            messages: BTreeMap::new(),
            most,
            settled: BTreeSet::new(),
            position: None,
        }
    }

    /// How many more may be read.
    pub(super) fn room(&self) -> usize {
        self.most.saturating_sub(self.messages.len())
    }

    /// How many were read and are not settled.
    pub(super) fn waiting(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn add(&mut self, read: impl IntoIterator<Item = Message>) {
        let read = read.into_iter().map(|message| (message.id, message));
        self.messages.extend(read);
    }

    /// Their ids, the oldest first.
    pub(super) fn ids(&self, most: usize) -> Vec<String> {
        let ids = self.messages.keys().take(most);
        ids.map(Id::to_string).collect()
    }

    pub(super) fn get(&self, id: Id) -> Option<Message> {
        self.messages.get(&id).cloned()
    }

    /// It needs no work any more.
    pub(super) fn settle(&mut self, id: Id) {
        if self.messages.remove(&id).is_some() {
            self.settled.insert(id);
        }
    }

    /// Begins anew: what is young enough is read again. The group is still to be told of what is settled.
    pub(super) fn begin_anew(&mut self) {
        self.messages.clear();
        self.position = None;
    }

    /// Settled messages to tell the group of.
    pub(super) fn settled(&self) -> Vec<Id> {
        self.settled.iter().copied().collect()
    }

    /// The group was told of these.
    pub(super) fn told(&mut self, settled: &[Id]) {
        for id in settled {
            self.settled.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str) -> Message {
        Message {
            id: id.parse().unwrap(),
            fields: Map::new(),
        }
    }

    #[test]
    fn no_more_is_read_than_there_is_room_for() {
        let mut window = Window::new(3);
        window.add(["2-0", "10-0"].map(message));
        assert_eq!(
            (window.room(), window.ids(9)),
            (1, vec!["2-0".into(), "10-0".into()])
        );
        // One that comes again takes no more room.
        window.add([message("2-0")]);
        assert_eq!(window.room(), 1);
        window.settle("2-0".parse().unwrap());
        assert_eq!((window.room(), window.ids(1)), (2, vec!["10-0".to_owned()]));
    }

    #[test]
    fn what_is_settled_is_told_once_and_again_when_it_could_not_be() {
        let mut window = Window::new(3);
        window.add([message("1-0")]);
        for _ in 0..2 {
            window.settle("1-0".parse().unwrap());
        }
        let settled = window.settled();
        assert_eq!(settled.len(), 1);
        assert_eq!(window.settled(), settled, "nothing says that it was told");
        window.told(&settled);
        assert_eq!(window.settled(), []);
    }
}
