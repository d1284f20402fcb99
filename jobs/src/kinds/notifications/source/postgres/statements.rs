//! Statements that a connection has prepared, so that the server reads and understands each text once and not for each batch.
//!
//! Only on a connection that is known to lead to one process of the server: behind a pooler that gives each transaction another
//! one, a name may stand for a statement of another client. What shows it is a setting of the connection's own, asked for in its
//! greeting ([`watchkeeper::node::postgres::connect`]): a process that has it was started for that greeting. Each transaction makes
//! sure that it is in that process still, and fails in any other.
//!
//! # Invariants
//! - Q1 Nothing is prepared behind a pooler.       (behind_a_pooler_no_statement_is_prepared)
//! - Q4 No name is used in another process than the one that has prepared it, whatever a pooler passes on.
//!   (a_pooler_that_passes_the_greeting_on_is_found_out_before_a_name_is_used)
//! - Q2 To prepare is no part of a transaction, in which statements are sent together: what is not prepared yet goes as its text.
//!   (what_is_asked_for_again_and_again_is_prepared_at_the_next_chance)
//! - Q5 To prepare is a transaction of its own, and waits for no other session without an end.
//!   (to_prepare_waits_for_no_other_session_without_an_end)
//! - Q6 Where what was prepared is taken away between two transactions, a call fails and is tried again, and from then on nothing is
//!   prepared. (a_pooler_that_takes_away_what_was_prepared_is_found_out)
//! - Q3 None is older than [`LIFETIME`]: the server keeps the plan of a table as it was, which may have grown since.
//!   (what_is_prepared_does_not_get_old)

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_postgres::{
    Statement,
    types::{ToSql, Type},
};
use watchkeeper::clock::Moment;

/// Statements of a connection at most. Ours are fewer; the server keeps a plan of each.
const MOST: usize = 64;
/// A text that was asked for so often will be again.
const OFTEN: u32 = 3;

/// How long one is used.
const LIFETIME: Duration = Duration::from_secs(60);

/// A parameter of a statement, with its type.
pub(super) type Param<'p> = (Value<'p>, Type);
pub(super) type Value<'p> = &'p (dyn ToSql + Sync);

/// The statements of one connection, by their texts.
#[derive(Default)]
pub(super) struct Statements(Mutex<BTreeMap<String, CachedStatement>>);

/// What is known of a text.
struct CachedStatement {
    /// How often it was asked for since it was prepared, up to [`OFTEN`].
    asked: u32,
    /// Of its parameters.
    types: Vec<Type>,
    /// When it was prepared; nothing where the server would not.
    prepared: Option<(Moment, Option<Statement>)>,
}

// === impl Statements ===

impl Statements {
    fn known(&self) -> MutexGuard<'_, BTreeMap<String, CachedStatement>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The statement of this text, where it is prepared.
    pub(super) fn of(&self, sql: &str, params: &[Param<'_>]) -> Option<Statement> {
        let mut known = self.known();
        let is_full = known.len() >= MOST;
        match known.get_mut(sql) {
            Some(known) => {
                known.asked = OFTEN.min(known.asked + 1);
                known.prepared.as_ref()?.1.clone()
            }
            None if is_full => None,
            None => {
                let types = params.iter().map(|(_, of)| of.clone()).collect();
                let new = CachedStatement {
                    asked: 1,
                    types,
                    prepared: None,
                };
                known.insert(sql.to_owned(), new);
                None
            }
        }
    }

    /// What was asked for often, and is not prepared, or was so long ago; and used since.
    pub(super) fn wanted(&self, now: Moment) -> Vec<(String, Vec<Type>)> {
        let known = self.known();
        let wanted = known.iter().filter(|(_, known)| match &known.prepared {
            Some((at, _)) => known.asked > 0 && now >= *at + LIFETIME,
            None => known.asked >= OFTEN,
        });
        wanted
            .map(|(sql, known)| (sql.clone(), known.types.clone()))
            .collect()
    }

    /// It is prepared from now on, or will not be.
    pub(super) fn is_prepared(&self, sql: &str, now: Moment, statement: Option<Statement>) {
        if let Some(known) = self.known().get_mut(sql) {
            // The last one goes with its plan.
            known.prepared = Some((now, statement));
            known.asked = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_again_and_again_is_prepared_at_the_next_chance() {
        let statements = Statements::default();
        let ask = |sql: &str| statements.of(sql, &[(&1_i64, Type::INT8)]).is_none();
        let now = Moment::from_boot(LIFETIME);
        for _ in 0..OFTEN - 1 {
            assert!(ask("SELECT $1") && statements.wanted(now).is_empty());
        }
        assert!(ask("SELECT $1") && ask("SELECT 2"));
        let wanted = statements.wanted(now);
        assert_eq!(wanted, [("SELECT $1".to_owned(), vec![Type::INT8])]);
        statements.is_prepared("SELECT $1", now, None);
        assert!(ask("SELECT $1") && statements.wanted(now).is_empty());
    }

    #[test]
    fn what_is_prepared_does_not_get_old() {
        let statements = Statements::default();
        let at = |seconds| Moment::from_boot(Duration::from_secs(seconds));
        assert!(statements.of("SELECT 1", &[]).is_none());
        statements.is_prepared("SELECT 1", at(5), None);
        // What nobody has asked for since is not needed.
        assert!(statements.wanted(at(65)).is_empty());
        assert!(statements.of("SELECT 1", &[]).is_none());
        assert!(statements.wanted(at(64)).is_empty());
        assert_eq!(statements.wanted(at(65)), [("SELECT 1".to_owned(), vec![])]);
    }

    #[test]
    fn no_more_texts_are_kept_than_there_is_room_for() {
        let statements = Statements::default();
        for n in 0..1000 {
            assert!(statements.of(&format!("SELECT {n}"), &[]).is_none());
        }
        assert_eq!(statements.known().len(), MOST);
    }
}
