//! Calls that are larger than what etcd takes at a time: 128 writings, and 1.5 MiB.

use watchkeeper_lock::node::{Answer, Doc, Node, NodeError, Op};

use crate::{
    it::conformance::{LONG, ask, ask_all},
    proxy::{
        Asked::{Read, Write},
        Proxy,
    },
    scene::{fresh, node, put_doc, run, settings},
    server::EtcdServer,
};

fn put(name: &str, bytes: usize) -> Op {
    Op::PutDoc {
        name: name.to_owned(),
        rev: 1,
        ttl: LONG,
        body: "x".repeat(bytes),
    }
}

async fn doc(node: &dyn Node, name: &str) -> Vec<Doc> {
    let name = name.to_owned();
    match ask(node, Op::Doc { name }).await {
        Answer::Docs(docs) => docs,
        other => panic!("no document: {other:?}"),
    }
}

/// Each operation writes two keys: 500 in all.
pub(crate) fn a_call_of_many_writings_is_executed_in_parts(server: &EtcdServer) {
    run(async {
        let proxy = Proxy::start(server).await;
        let node = node(settings(&proxy.url(), &fresh()));
        ask_all(&node, vec![]).await;
        proxy.asked();
        let ops = (0..250).map(|n| put_doc(&format!("d{n:03}"), 1));
        let answers = ask_all(&node, ops.collect()).await.answers;
        assert!(answers.iter().all(|answer| *answer == Answer::Done));
        assert_eq!(proxy.asked(), [Read, Write].repeat(5));
        for n in [0, 59, 60, 119, 120, 179, 180, 239, 240, 249] {
            let found = doc(&node, &format!("d{n:03}")).await;
            assert_eq!(found.len(), 1, "{n}");
            assert_eq!(found[0].body, "of revision 1", "{n}");
        }
    });
}

/// Others are told what became of them, before it and after it.
pub(crate) fn a_part_that_is_refused_is_told_for_itself_alone(server: &EtcdServer) {
    run(async {
        let node = node(settings(&server.url(), &fresh()));
        let mut ops: Vec<Op> = (0..60).map(|n| put(&format!("d{n:03}"), 10)).collect();
        // More than the server takes in one request.
        ops.push(put("large", 1_900_000));
        ops.push(put("small", 10));
        let mut answers = ask_all(&node, ops).await.answers;
        assert_eq!(answers.pop(), Some(Answer::Done), "after it");
        let refused = answers.pop();
        assert!(
            matches!(refused, Some(Answer::Failed(NodeError::Protocol(_)))),
            "{refused:?}"
        );
        assert!(answers.iter().all(|answer| *answer == Answer::Done));
        for (name, count) in [("d000", 1), ("d059", 1), ("large", 0), ("small", 1)] {
            assert_eq!(doc(&node, name).await.len(), count, "{name}");
        }
    });
}
