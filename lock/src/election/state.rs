//! What a candidate does next, as a plain function of what it sees.

use std::time::Duration;

use crate::expiry::LockState;

/// A candidate's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask the nodes for the lock.
    Bid,
    /// Look again after this pause, or when a release is announced.
    Watch {
        /// The pause.
        pause: Duration,
        /// Whether the moment matters: it is when the lock may be had. Others may be a little later.
        exact: bool,
    },
}

/// Look first: bid only when a majority looks takable; else wait for the end of the holder's life, but look at least
/// every `poll`, because an announcement may be lost and a node may come back.
pub(crate) fn next(seen: &LockState, poll: Duration) -> Next {
    if seen.looks_free() {
        return Next::Bid;
    }
    // With observed expiry the holder's signs of life are to be seen as they come.
    let poll = seen.look_in().map_or(poll, |look| look.min(poll));
    // A millisecond more: the key lives to the end of its last one.
    let life = seen.free_in().map(|life| life + Duration::from_millis(1));
    let (pause, exact) = match life {
        Some(life) if life <= poll => (life, true),
        Some(_) => (poll, false),
        None => (poll / 4, false),
    };
    Next::Watch { pause, exact }
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
        next(&LockState::new("k", nodes), Duration::from_secs(1))
    }

    #[test]
    fn a_candidate_bids_only_when_a_majority_looks_takable() {
        assert_eq!(see(vec![node(None), node(None), node(Some(5))]), Next::Bid);
        let ms = Duration::from_millis;
        assert_eq!(
            see(vec![node(None), node(Some(400)), node(Some(700))]),
            Next::Watch {
                pause: ms(401),
                exact: true
            }
        );
        let watch = |pause| Next::Watch {
            pause,
            exact: false,
        };
        assert_eq!(see(vec![node(Some(9_000)); 3]), watch(ms(1000)));
    }

    #[test]
    fn nodes_that_do_not_answer_are_asked_again_without_a_busy_loop() {
        let down = || Err(NodeError::Unreachable("test".into()));
        assert_eq!(
            see(vec![down(), down(), node(None)]),
            Next::Watch {
                pause: Duration::from_millis(250),
                exact: false
            }
        );
    }
}
