//! What a candidate does next, as a plain function of what it sees.

use std::time::Duration;

use crate::lock::Sighting;

/// A candidate's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask the nodes for the lock.
    Bid,
    /// Look again after this pause, or when a release is announced.
    Watch(Duration),
}

/// Look first: bid only when a majority looks takable; else wait for the end of the holder's life, but look at least
/// every `poll`, because an announcement may be lost and a node may come back.
pub(crate) fn next(sighting: &Sighting, poll: Duration) -> Next {
    if sighting.looks_free() {
        return Next::Bid;
    }
    // With observed expiry the holder's signs of life are to be seen as they come.
    let poll = sighting.look_in().map_or(poll, |look| look.min(poll));
    match sighting.free_in() {
        // A millisecond more: the key lives to the end of its last one.
        Some(life) => Next::Watch((life + Duration::from_millis(1)).min(poll)),
        None => Next::Watch(poll / 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{NodeError, View};

    fn node(ms: Option<u64>) -> Result<View, NodeError> {
        let holder = ms.map(|_| "a".to_owned());
        Ok(View {
            holder,
            remaining_ms: ms,
            ..View::default()
        })
    }
    fn see(nodes: Vec<Result<View, NodeError>>) -> Next {
        next(&Sighting::new("k", nodes), Duration::from_secs(1))
    }

    #[test]
    fn a_candidate_bids_only_when_a_majority_looks_takable() {
        assert_eq!(see(vec![node(None), node(None), node(Some(5))]), Next::Bid);
        let ms = Duration::from_millis;
        assert_eq!(
            see(vec![node(None), node(Some(400)), node(Some(700))]),
            Next::Watch(ms(401))
        );
        assert_eq!(see(vec![node(Some(9_000)); 3]), Next::Watch(ms(1000)));
    }

    #[test]
    fn nodes_that_do_not_answer_are_asked_again_without_a_busy_loop() {
        let down = || Err(NodeError::Unreachable("test".into()));
        assert_eq!(
            see(vec![down(), down(), node(None)]),
            Next::Watch(Duration::from_millis(250))
        );
    }
}
