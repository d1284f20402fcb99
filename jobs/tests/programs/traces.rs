//! A program under a lock as a part of its caller's trace.

use crate::{
    process::Running,
    scene::Scene,
    spans::{ENDPOINT, Spans, said, traceparent},
    store::Store,
};

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The caller's span is the parent of the program's, and the program's is that of whatever it starts.
pub(crate) fn a_program_under_a_lock_is_a_part_of_its_callers_trace(store: Store) {
    let receiver = Spans::receiver();
    let scene = Scene::new(store);
    let mut command = scene.command("lock backup", "echo \"$TRACEPARENT\" > $F/seen; exit 3");
    command.env(ENDPOINT, &receiver.endpoint);
    command.env("TRACEPARENT", CALLER);
    let done = Running::start(command).done();
    assert_eq!(done.code, Some(3), "{}", done.err);
    let span = receiver.wait("program", |span| span.name == "program");
    let [_, trace, parent, _] = CALLER.split('-').collect::<Vec<_>>()[..] else {
        panic!("four parts");
    };
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    assert_eq!(hex(&span.trace_id), trace);
    assert_eq!(hex(&span.parent_span_id), parent);
    assert_eq!(said(&span, "watchkeeper.key"), "backup");
    assert_eq!(span.status.clone().unwrap().message, "failed");
    assert_eq!(scene.lines("seen"), [traceparent(&span)]);
}

/// Without a receiver the program goes on in the trace of its caller, as it would without us.
pub(crate) fn without_a_receiver_the_callers_trace_is_passed_on(store: Store) {
    let scene = Scene::new(store);
    let mut command = scene.command("lock backup", "echo \"$TRACEPARENT\" > $F/seen");
    command.env("TRACEPARENT", CALLER);
    let done = Running::start(command).done();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(scene.lines("seen"), [CALLER]);
}
