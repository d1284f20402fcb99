//! The parts in which a large call is executed: etcd takes 128 writings at a time, and a request of 1.5 MiB.

use super::values::ROOM;
use crate::node::{Call, Op};

/// Operations that are executed together: each writes two keys at most, and etcd takes 128 writings at a time.
const TOGETHER: usize = 60;
// More grants would leave the counter behind.
const _: () = assert!((TOGETHER as i64) < ROOM);
/// Rows that a sweep looks at in one step.
const SWEPT: u32 = 50;
/// Bytes of texts that are written together: etcd takes a request of 1.5 MiB.
const MUCH: usize = 1_000_000;

/// The parts in which a call is executed.
pub(super) fn parts(call: &Call) -> Vec<Call> {
    let mut parts = Vec::new();
    let mut ops = Vec::new();
    let (mut weight, mut bytes) = (0, 0);
    for op in &call.ops {
        let (own, text) = match op {
            Op::Sweep { count, .. } => ((*count).min(SWEPT) as usize, 0),
            Op::Write { body, .. } => (1, body.len()),
            Op::Merge { record, .. } => (1, record.body.len()),
            Op::PutDoc { body, .. } => (1, body.len()),
            _ => (1, 0),
        };
        if !ops.is_empty() && (weight + own > TOGETHER || bytes + text > MUCH) {
            let ops = std::mem::take(&mut ops);
            parts.push(Call { ops, ..*call });
            (weight, bytes) = (0, 0);
        }
        (weight, bytes) = (weight + own, bytes + text);
        ops.push(match op {
            Op::Sweep { from, count } => Op::Sweep {
                from: from.clone(),
                count: (*count).min(SWEPT),
            },
            op => op.clone(),
        });
    }
    parts.push(Call { ops, ..*call });
    parts
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::node::Cursor;

    #[test]
    fn a_large_call_is_cut_where_the_server_would_refuse_it() {
        let read = || Op::Read {
            key: "k".to_owned(),
        };
        let text = |bytes| Op::PutDoc {
            name: "d".to_owned(),
            rev: 1,
            body: "x".repeat(bytes),
            ttl: Duration::from_secs(1),
        };
        let sweep = Op::Sweep {
            from: Cursor(String::new()),
            count: 1_000,
        };
        let sizes = |ops: Vec<Op>| -> Vec<usize> {
            let call = Call {
                not_after: None,
                ops,
            };
            parts(&call).iter().map(|part| part.ops.len()).collect()
        };
        assert_eq!(sizes(vec![read()]), [1]);
        assert_eq!(sizes((0..125).map(|_| read()).collect()), [60, 60, 5]);
        assert_eq!(sizes(vec![text(600_000), text(600_000), read()]), [1, 2]);
        assert_eq!(sizes(vec![text(2_000_000), read()]), [1, 1]);
        let mut mixed: Vec<Op> = (0..20).map(|_| read()).collect();
        mixed.push(sweep);
        assert_eq!(sizes(mixed.clone()), [20, 1]);
        let call = Call {
            not_after: None,
            ops: mixed,
        };
        let last = parts(&call).pop().unwrap().ops.pop().unwrap();
        assert!(matches!(last, Op::Sweep { count: SWEPT, .. }), "{last:?}");
    }
}
