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

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio_postgres::{Client, Config, Statement, types::Type};

use super::session::Param;

/// The setting.
const SETTING: &str = "watchkeeper.session";
/// What shows it.
pub(super) const SHOWN: &str = "current_setting('watchkeeper.session', true)";
/// Statements of a connection at most. Ours are fewer; the server keeps a plan of each.
const MOST: usize = 64;
/// A text that was asked for so often will be again.
const OFTEN: u32 = 3;

/// The statements of one connection, by their texts.
#[derive(Default)]
pub(super) struct Statements(Mutex<BTreeMap<String, Known>>);

enum Known {
    /// So often, with parameters of these types.
    Asked(u32, Vec<Type>),
    Prepared(Statement),
    /// The server would not.
    Refused,
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
            Some(Known::Prepared(statement)) => return Some(statement.clone()),
            Some(Known::Asked(often, _)) => *often = often.saturating_add(1),
            Some(Known::Refused) => {}
            None if !is_full => {
                let types = params.iter().map(|(_, of)| of.clone());
                known.insert(sql.to_owned(), Known::Asked(1, types.collect()));
            }
            None => {}
        }
        None
    }

    /// Prepares what was asked for often, outside of any transaction. A text that is refused is sent as it is, and refused then.
    pub(super) async fn prepare(&self, client: &Client) {
        for (sql, types) in self.wanted() {
            let prepared = client.prepare_typed(&sql, &types).await;
            let now = prepared.map_or(Known::Refused, Known::Prepared);
            self.known().insert(sql, now);
        }
    }

    fn wanted(&self) -> Vec<(String, Vec<Type>)> {
        let known = self.known();
        let wanted = known.iter().filter_map(|(sql, known)| match known {
            Known::Asked(often, types) if *often >= OFTEN => Some((sql.clone(), types.clone())),
            _ => None,
        });
        wanted.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_again_and_again_is_prepared_at_the_next_chance() {
        let statements = Statements::default();
        let ask = |sql: &str| statements.of(sql, &[(&1_i64, Type::INT8)]).is_none();
        for _ in 0..OFTEN - 1 {
            assert!(ask("SELECT $1") && statements.wanted().is_empty());
        }
        assert!(ask("SELECT $1") && ask("SELECT 2"));
        let wanted = statements.wanted();
        assert_eq!(wanted, [("SELECT $1".to_owned(), vec![Type::INT8])]);
        statements
            .known()
            .insert("SELECT $1".to_owned(), Known::Refused);
        assert!(ask("SELECT $1") && statements.wanted().is_empty());
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
