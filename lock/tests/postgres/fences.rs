//! Fences in PostgreSQL, under leases of the embedded store.

use tokio_postgres::error::SqlState;
use watchkeeper_lock::{fence::FenceError, node::Token};

use crate::{
    bank::{Bank, assert_serialization_failure, assert_stale, run},
    holders::{ACCOUNT, Holders},
    server::PostgresServer,
};

/// The stale holder's last write comes after one of its successor. `$set` is a form of writing.
macro_rules! refuses_the_stale {
    ($bank:ident, $holders:expr, $set:ident) => {{
        let Holders { stale, present } = $holders;
        let (mut late, mut successor) = ($bank.session().await, $bank.session().await);
        late.$set(stale, 90).await.unwrap();
        successor.$set(present.token(), 80).await.unwrap();
        assert_stale(&late.$set(stale, 0).await.unwrap_err(), stale);
        assert_eq!(late.balance().await, 80);
        successor.$set(present.token(), 70).await.unwrap();
        assert_eq!(late.balance().await, 70);
        present.release().await;
    }};
}

pub(crate) fn a_stale_holder_is_refused(server: &PostgresServer) {
    run(async {
        let bank = Bank::open(server, "expired").await;
        refuses_the_stale!(bank, bank.frozen().await, set);
    });
}

pub(crate) fn a_holder_that_was_stale_by_its_release_is_refused(server: &PostgresServer) {
    run(async {
        let bank = Bank::open(server, "released").await;
        refuses_the_stale!(bank, bank.released().await, set);
    });
}

pub(crate) fn a_stale_holder_is_refused_by_the_column(server: &PostgresServer) {
    run(async {
        let bank = Bank::open(server, "by_column").await;
        refuses_the_stale!(bank, bank.frozen().await, set_by_column);
    });
}

pub(crate) fn a_stale_holder_is_refused_by_the_column_of_a_new_row(server: &PostgresServer) {
    run(async {
        let bank = Bank::open(server, "new_row").await;
        bank.session().await.execute("DELETE FROM account").await;
        refuses_the_stale!(bank, bank.frozen().await, put_by_column);
    });
}

pub(crate) fn without_the_fence_the_stale_write_goes_through(server: &PostgresServer) {
    run(async {
        let bank = Bank::open(server, "unfenced").await;
        let holders = bank.frozen().await;
        let (late, mut successor) = (bank.session().await, bank.session().await);
        successor.set(holders.present.token(), 80).await.unwrap();
        // The same write, by the holder whose lease is over.
        late.execute("UPDATE account SET balance = 0 WHERE id = 7")
            .await;
        assert_eq!(successor.balance().await, 0);
    });
}

pub(crate) fn a_stale_holder_waits_for_its_successor_and_is_refused(server: &PostgresServer) {
    run(async {
        let bank = Bank::open(server, "successor_first").await;
        let Holders { stale, present } = bank.frozen().await;
        let (late, successor) = (bank.session().await, bank.session().await);
        // Also where both meet at a resource that was never written.
        successor.execute("BEGIN").await;
        successor.check(present.token()).await.unwrap().unwrap();
        late.execute("BEGIN").await;
        let pid = late.pid().await;
        let watcher = bank.session().await;
        let (checked, ()) = tokio::join!(late.check(stale), async {
            watcher.until_blocked(pid).await;
            successor
                .execute("UPDATE account SET balance = 80; COMMIT")
                .await;
        });
        assert_stale(&checked.unwrap().unwrap_err(), stale);
        late.execute("ROLLBACK").await;
        assert_eq!(late.balance().await, 80);
    });
}

pub(crate) fn a_successor_waits_for_the_open_transaction_and_comes_last(server: &PostgresServer) {
    run(async {
        let bank = Bank::open(server, "late_first").await;
        let Holders { stale, present } = bank.frozen().await;
        let (mut late, successor) = (bank.session().await, bank.session().await);
        late.execute("BEGIN").await;
        late.check(stale).await.unwrap().unwrap();
        successor.execute("BEGIN").await;
        let pid = successor.pid().await;
        let watcher = bank.session().await;
        let (checked, ()) = tokio::join!(successor.check(present.token()), async {
            watcher.until_blocked(pid).await;
            late.execute("UPDATE account SET balance = balance - 10; COMMIT")
                .await;
        });
        checked.unwrap().unwrap();
        // It sees what the other has left.
        successor
            .execute("UPDATE account SET balance = balance - 10; COMMIT")
            .await;
        assert_eq!(successor.balance().await, 80);
        assert_stale(&late.set(stale, 0).await.unwrap_err(), stale);
    });
}

pub(crate) fn a_successor_that_gives_up_leaves_no_trace(server: &PostgresServer) {
    run(async {
        let bank = Bank::open(server, "gives_up").await;
        let Holders { stale, present } = bank.frozen().await;
        let (late, successor) = (bank.session().await, bank.session().await);
        successor.execute("BEGIN").await;
        successor.check(present.token()).await.unwrap().unwrap();
        late.execute("BEGIN").await;
        let pid = late.pid().await;
        let watcher = bank.session().await;
        let (checked, ()) = tokio::join!(late.check(stale), async {
            watcher.until_blocked(pid).await;
            successor.execute("ROLLBACK").await;
        });
        checked.unwrap().unwrap();
    });
}

pub(crate) fn writers_of_one_row_are_compared_with_what_the_other_left(server: &PostgresServer) {
    run(async {
        let bank = Bank::open(server, "row").await;
        let Holders { stale, present } = bank.frozen().await;
        let (mut late, mut successor) = (bank.session().await, bank.session().await);
        successor.execute("BEGIN").await;
        successor.set_by_column(present.token(), 80).await.unwrap();
        let pid = late.pid().await;
        let watcher = bank.session().await;
        let (refused, ()) = tokio::join!(late.set_by_column(stale, 0), async {
            watcher.until_blocked(pid).await;
            successor.execute("COMMIT").await;
        });
        assert_stale(&refused.unwrap_err(), stale);
        assert_eq!(late.balance().await, 80);
    });
}

/// With a snapshot from before the other's commit: an error first, the verdict with a new snapshot.
pub(crate) fn under_stricter_isolation_a_conflict_is_an_error_and_then_a_refusal(
    server: &PostgresServer,
) {
    run(async {
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            // The first write ever to the resource, and one to a row that was there.
            for seen in [false, true] {
                let name = format!("{}_{seen}", level.to_lowercase().replace(' ', "_"));
                let bank = Bank::open(server, &name).await;
                let Holders { stale, present } = bank.frozen().await;
                let (mut late, mut successor) = (bank.session().await, bank.session().await);
                if seen {
                    late.set(stale, 90).await.unwrap();
                }
                let begin = format!("BEGIN ISOLATION LEVEL {level}");
                late.execute(&begin).await;
                late.balance().await;
                successor.set(present.token(), 80).await.unwrap();
                let conflict = late.check(stale).await.unwrap_err();
                assert_serialization_failure(&conflict);
                late.execute("ROLLBACK").await;

                late.execute(&begin).await;
                assert_stale(&late.check(stale).await.unwrap().unwrap_err(), stale);
                late.execute("ROLLBACK").await;
                assert_eq!(late.balance().await, 80);
            }
        }
    });
}

/// The conflict says nothing about the token: a writer that meets it tries again, and the present holder passes.
pub(crate) fn under_stricter_isolation_the_present_holder_passes_at_its_next_attempt(
    server: &PostgresServer,
) {
    run(async {
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            let name = format!("passes_{}", level.to_lowercase().replace(' ', "_"));
            let bank = Bank::open(server, &name).await;
            let Holders { stale, present } = bank.frozen().await;
            let (late, successor) = (bank.session().await, bank.session().await);
            let begin = format!("BEGIN ISOLATION LEVEL {level}");
            late.execute(&begin).await;
            late.check(stale).await.unwrap().unwrap();
            successor.execute(&begin).await;
            let pid = successor.pid().await;
            let watcher = bank.session().await;
            let (checked, ()) = tokio::join!(successor.check(present.token()), async {
                watcher.until_blocked(pid).await;
                late.execute("UPDATE account SET balance = balance - 10; COMMIT")
                    .await;
            });
            assert_serialization_failure(&checked.unwrap_err());
            successor.execute("ROLLBACK").await;

            successor.execute(&begin).await;
            successor.check(present.token()).await.unwrap().unwrap();
            successor
                .execute("UPDATE account SET balance = balance - 10; COMMIT")
                .await;
            assert_eq!(successor.balance().await, 80);
        }
    });
}

/// Both sides of the documentation's advice on holders that freeze inside their transaction.
pub(crate) fn a_session_that_the_server_ends_lets_its_successor_in(server: &PostgresServer) {
    run(async {
        let bank = Bank::open(server, "frozen_inside").await;
        let Holders { stale, present } = bank.frozen().await;
        let (late, successor) = (bank.session().await, bank.session().await);
        late.execute("BEGIN").await;
        late.check(stale).await.unwrap().unwrap();
        late.execute("UPDATE account SET balance = 0").await;
        successor.execute("SET lock_timeout = '20ms'").await;
        let refused = successor.check(present.token()).await.unwrap_err();
        assert_eq!(refused.code(), Some(&SqlState::LOCK_NOT_AVAILABLE));
        successor.execute("RESET lock_timeout").await;
        let pid = late.pid().await;
        let ended = format!("SELECT pg_terminate_backend({pid}::int)::int::bigint");
        assert_eq!(successor.number(&ended).await, 1);
        successor.check(present.token()).await.unwrap().unwrap();
        assert_eq!(successor.balance().await, 100);
    });
}

pub(crate) fn a_job_without_a_lock_is_refused_here_and_by_the_table(server: &PostgresServer) {
    run(async {
        let bank = Bank::open(server, "no_token").await;
        let mut session = bank.session().await;
        let refused = session.set(Token(0), 0).await.unwrap_err();
        assert!(matches!(refused, FenceError::NoToken { .. }), "{refused:?}");
        session.set(Token(5), 80).await.unwrap();
        for token in [0, -1] {
            for resource in [ACCOUNT, "new"] {
                let refused = session.rows(resource, token).await.unwrap_err();
                assert_eq!(refused.code(), Some(&SqlState::CHECK_VIOLATION));
            }
        }
        assert_eq!(session.balance().await, 80);
    });
}

pub(crate) fn resources_are_fenced_apart(server: &PostgresServer) {
    run(async {
        let bank = Bank::open(server, "apart").await;
        let session = bank.session().await;
        let largest = (1 << 53) - 1;
        for (resource, token, rows) in [
            ("one", 9, 1),
            ("two", 3, 1),
            ("one", 3, 0),
            ("one", 10, 1),
            ("one", largest, 1),
            ("one", largest - 1, 0),
            ("two", 3, 1),
        ] {
            let got = session.rows(resource, token).await.unwrap();
            assert_eq!(got, rows, "{resource} {token}");
        }
    });
}
