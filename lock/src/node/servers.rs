//! Which server each node of a fleet has reached: one that two addresses lead to would vote twice.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// What the nodes of one [`crate::Locks`] have reached, by their places. Cheap to clone.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, Default)]
pub struct Servers(Arc<Mutex<BTreeMap<usize, Reached>>>);

#[derive(Debug)]
struct Reached {
    /// Of the node.
    name: String,
    /// Of the server.
    identity: String,
}

impl Servers {
    /// The node at this place has reached this server, which counts from now on.
    ///
    /// # Errors
    /// The name of another node that has reached the same one, and counts.
    pub fn reached(&self, place: usize, name: &str, identity: &str) -> Result<(), String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let twin = all
            .iter()
            .find(|(at, reached)| **at != place && reached.identity == identity)
            .map(|(_, twin)| twin.name.clone());
        if let Some(twin) = twin {
            // What it led to before, it leads to no more.
            all.remove(&place);
            return Err(twin);
        }
        let (name, identity) = (name.to_owned(), identity.to_owned());
        all.insert(place, Reached { name, identity });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_server_is_reached_by_two_nodes() {
        let servers = Servers::default();
        assert_eq!(servers.reached(0, "a", "1"), Ok(()));
        assert_eq!(servers.reached(1, "b", "2"), Ok(()));
        assert_eq!(servers.reached(1, "b", "1"), Err("a".to_owned()));
        // Restarted, and reached anew.
        assert_eq!(servers.reached(0, "a", "3"), Ok(()));
        assert_eq!(servers.reached(1, "b", "1"), Ok(()));
        assert_eq!(servers.reached(1, "b", "1"), Ok(()));
    }

    #[test]
    fn what_an_address_led_to_before_may_be_reached_by_another() {
        let servers = Servers::default();
        assert_eq!(servers.reached(0, "a", "1"), Ok(()));
        assert_eq!(servers.reached(1, "b", "2"), Ok(()));
        assert!(servers.reached(1, "b", "1").is_err());
        assert_eq!(servers.reached(2, "c", "2"), Ok(()));
    }
}
