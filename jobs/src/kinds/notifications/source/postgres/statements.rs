//! Statements that a connection has prepared, so that the server reads and understands each text once and not for each batch.
//!
//! Only on a connection that is known to lead to one process of the server: behind a pooler that gives each transaction another
//! one, a name may stand for a statement of another client. What shows it is a setting of the connection's own, asked for in its
//! greeting ([`own_setting`]): a process that has it was started for that greeting.
//!
//! # Invariants
//! - Q1 Nothing is prepared behind a pooler.       (behind_a_pooler_no_statement_is_prepared)
//! - Q2 To prepare is no part of a transaction, in which statements are sent together: what is not prepared yet goes as its text.
//!   (what_is_asked_for_again_and_again_is_prepared_at_the_next_chance)
//! - Q3 None is older than [`LIFETIME`]: the server keeps the plan of a table as it was, which may have grown since.
//!   (what_is_prepared_does_not_get_old)
//!
//! # Not promised
//! A pooler that greets the server as its client has greeted it, and then gives that connection to other clients as well, is not
//! told from the server. None that we know does: they refuse the setting, or leave it out.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_postgres::{
    Client, Config, Statement,
    types::{ToSql, Type},
};
use watchkeeper::clock::Moment;

/// The setting.
const SETTING: &str = "watchkeeper.session";
/// What shows it.
pub(super) const SHOWN: &str = "current_setting('watchkeeper.session', true)";
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
pub(super) struct Statements(Mutex<BTreeMap<String, Known>>);

/// What is known of a text.
struct Known {
    /// How often it was asked for, up to [`OFTEN`].
    asked: u32,
    /// Of its parameters.
    types: Vec<Type>,
    /// When it was prepared; nothing where the server would not.
    prepared: Option<(Moment, Option<Statement>)>,
}

/// The same greeting with a setting of its own.
pub(super) fn own_setting(config: &Config, value: &str) -> Config {
    let mut config = config.clone();
    let own = format!("-c {SETTING}={value}");
    config.options(match config.get_options() {
        Some(options) => format!("{options} {own}"),
        None => own,
    });
    config
}

// === impl Statements ===

impl Statements {
    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
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
                let new = Known {
                    asked: 1,
                    types,
                    prepared: None,
                };
                known.insert(sql.to_owned(), new);
                None
            }
        }
    }

    /// Prepares what was asked for often, outside of any transaction. A text that is refused is sent as it is, and refused then.
    pub(super) async fn prepare(&self, client: &Client, now: Moment) {
        for (sql, types) in self.wanted(now) {
            let prepared = client.prepare_typed(&sql, &types).await;
            self.is_prepared(&sql, now, prepared.ok());
        }
    }

    fn wanted(&self, now: Moment) -> Vec<(String, Vec<Type>)> {
        let known = self.known();
        let wanted = known.iter().filter(|(_, known)| match &known.prepared {
            Some((at, _)) => now >= *at + LIFETIME,
            None => known.asked >= OFTEN,
        });
        wanted
            .map(|(sql, known)| (sql.clone(), known.types.clone()))
            .collect()
    }

    fn is_prepared(&self, sql: &str, now: Moment, statement: Option<Statement>) {
        if let Some(known) = self.known().get_mut(sql) {
            // The last one goes with its plan.
            known.prepared = Some((now, statement));
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

    #[test]
    fn options_of_the_address_stay() {
        let mut config = Config::new();
        assert_eq!(
            own_setting(&config, "x").get_options(),
            Some("-c watchkeeper.session=x")
        );
        config.options("-c search_path=app");
        assert_eq!(
            own_setting(&config, "x").get_options(),
            Some("-c search_path=app -c watchkeeper.session=x")
        );
    }
}
