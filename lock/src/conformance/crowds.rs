//! Many operations, many clients.

use std::cell::Cell;

use futures_util::future::join_all;

use super::*;
use crate::{chance::Chance, node::Kind::Lock};

pub(crate) async fn the_operations_of_a_call_are_atomic_n1(lab: Lab) {
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(lab.client().await);
    }
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    let attempts = clients.iter().enumerate().map(|(index, client)| {
        let owner = format!("owner-{index}");
        let mut ops: Vec<Op> = keys.iter().map(|key| take(key, &owner)).collect();
        if index % 2 == 1 {
            ops.reverse();
        }
        ask_all(&**client, ops)
    });
    let won = join_all(attempts).await.into_iter().map(|reply| {
        reply
            .answers
            .iter()
            .filter(|answer| matches!(answer, Answer::Granted { .. }))
            .count()
    });
    let mut won: Vec<usize> = won.collect();
    won.sort_unstable();
    assert_eq!(won, [0, 0, 0, 0, 0, 20], "one takes all");
}

pub(crate) async fn answers_come_in_the_order_of_the_operations(lab: Lab) {
    let node = lab.client().await;
    let read = || Op::Read {
        key: "k".to_owned(),
    };
    let ops = vec![
        read(),
        take("k", "a"),
        read(),
        take("k", "b"),
        release(Lock, "k", "a"),
        read(),
        take("k", "b"),
    ];
    let answers = ask_all(&*node, ops).await.answers;
    let seen: Vec<String> = answers
        .iter()
        .map(|answer| match answer {
            Answer::View(view) => format!("{:?}", view.holder.as_deref()),
            Answer::Granted { .. } => "granted".to_owned(),
            Answer::Refused(_) => "refused".to_owned(),
            other => format!("{other:?}"),
        })
        .collect();
    let expected = [
        "None",
        "granted",
        "Some(\"a\")",
        "refused",
        "Done",
        "None",
        "granted",
    ];
    assert_eq!(seen, expected);
}

pub(crate) async fn a_call_may_hold_250_operations(lab: Lab) {
    let node = lab.client().await;
    let keys: Vec<String> = (0..250).map(|number| format!("k{number:03}")).collect();
    let ops = keys.iter().map(|key| take(key, "a")).collect();
    let grants = ask_all(&*node, ops).await.answers;
    assert!(
        grants
            .iter()
            .all(|answer| matches!(answer, Answer::Granted { .. }))
    );
    let ops = keys
        .iter()
        .map(|key| extend(Lock, key, "a", 1, 1_000))
        .collect();
    let kept = ask_all(&*node, ops).await.answers;
    assert!(
        kept.iter()
            .all(|answer| matches!(answer, Answer::Kept { .. }))
    );
    let ops = keys.iter().map(|key| release(Lock, key, "a")).collect();
    ask_all(&*node, ops).await;
    let views = list(&*node, "k").await;
    assert!(views.len() >= 250 && views.iter().all(|view| view.holder.is_none()));
}

pub(crate) async fn an_empty_call_tells_the_time(lab: Lab) {
    let (first, second) = (lab.client().await, lab.client().await);
    let before = ask_all(&*first, vec![]).await;
    let after = ask_all(&*second, vec![]).await;
    assert!(after.at >= before.at && after.at.0 - before.at.0 < 60_000);
    let here = Clock::system().wall().as_millisecond();
    assert!(
        (after.wall_ms - here).abs() < 60_000,
        "{} {here}",
        after.wall_ms
    );
}

pub(crate) async fn no_update_is_lost_under_the_lock(lab: Lab) {
    const TASKS: usize = 6;
    const ROUNDS: usize = 12;
    let seed = u64::from(std::process::id());
    let chance = Chance::seeded(seed);
    let clock = Clock::system();
    let shared = Cell::new(0);
    let last_token = Cell::new(Token(0));
    let task = async || {
        let node = lab.client().await;
        for _ in 0..ROUNDS {
            let owner = chance.id();
            let token = loop {
                // A busy file is an answer like another: try again.
                let call = Call {
                    not_after: None,
                    ops: vec![take("k", &owner)],
                };
                match node
                    .call(call)
                    .await
                    .map(|mut reply| reply.answers.remove(0))
                {
                    Ok(Answer::Granted { grant, .. }) => break grant,
                    _ => clock.sleep(chance.up_to(Duration::from_millis(4))).await,
                }
            };
            assert!(
                token > last_token.replace(token),
                "seed {seed}: tokens must rise"
            );
            let read = shared.get();
            clock.sleep(chance.up_to(Duration::from_millis(1))).await;
            shared.set(read + 1);
            let over = || Call {
                not_after: None,
                ops: vec![release(Lock, "k", &owner)],
            };
            while node.call(over()).await.is_err() {}
        }
    };
    soon(join_all((0..TASKS).map(|_| task()))).await;
    assert_eq!(
        shared.get(),
        TASKS * ROUNDS,
        "seed {seed}: an update was lost"
    );
}
