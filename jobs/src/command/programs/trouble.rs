//! Which trouble with the store is worth a line: what lasts longer than making a connection.

use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use watchkeeper::{
    clock::Clock,
    event::{Event, Events},
    spawn::Spawn,
    telemetry::event_log::EventLog,
};

/// A short command is over before a slow node is news.
const SILENCE: Duration = Duration::from_secs(1);

/// Writes what happens to the log, for as long as the process lives: of the first moments only the trouble that they
/// left behind, unless everything is wanted.
pub(super) fn follow(events: &Events, clock: &Clock, everything: bool) {
    let mut stream = events.observe();
    let clock = clock.clone();
    let from = clock.now() + if everything { Duration::ZERO } else { SILENCE };
    Spawn::system().spawn(async move {
        let mut log = EventLog::default();
        let mut early = Vec::new();
        let mut waiting = !everything;
        loop {
            let event = tokio::select! {
                biased;
                () = clock.sleep_until(from), if waiting => {
                    waiting = false;
                    left(std::mem::take(&mut early)).iter().for_each(|event| log.on(event));
                    continue;
                }
                event = stream.recv() => event,
            };
            match event {
                Ok(event) if waiting && may_pass(&event) => early.push(event),
                Ok(event) => log.on(&event),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    });
}

/// Whether it is about the store, and may be over in a moment.
fn may_pass(event: &Event) -> bool {
    matches!(event, Event::NodeUp { .. } | Event::Acquire { .. })
}

/// What is still true in the end: nodes that do not answer, and the last attempt.
fn left(early: Vec<Event>) -> Vec<Event> {
    let mut last: Vec<Event> = Vec::new();
    for event in early {
        last.retain(|other| match (other, &event) {
            (Event::NodeUp { node: a, .. }, Event::NodeUp { node: b, .. }) => a != b,
            (Event::Acquire { .. }, Event::Acquire { .. }) => false,
            _ => true,
        });
        last.push(event);
    }
    last.retain(|event| !matches!(event, Event::NodeUp { up: true, .. }));
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, up: bool) -> Event {
        Event::NodeUp {
            node: name.to_owned(),
            up,
            cause: "unreachable",
        }
    }

    #[test]
    fn a_node_that_was_only_slow_at_first_is_no_news() {
        let early = [("a", false), ("b", false), ("a", true)].map(|(name, up)| node(name, up));
        assert_eq!(left(early.into()), [node("b", false)]);
    }
}
