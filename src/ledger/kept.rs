//! What an open run keeps for its next attempt besides a checkpoint.

use jiff::Timestamp;

use super::params::TriggerParams;
use super::{Ledger, RunKey};

impl Ledger {
    /// Every attempt of this run gets these parameters. Nothing happens when it is not open.
    pub fn keep_given(&mut self, id: &str, given: &TriggerParams) {
        if let Some(run) = self.open.iter_mut().find(|run| run.id == id) {
            run.given = given.clone();
        }
    }

    /// The checkpoint of this attempt was saved at that time. Nothing happens when it is not open.
    pub fn note_checkpoint(&mut self, key: &RunKey, at: Timestamp) {
        if let Some(run) = self.open.iter_mut().find(|run| run.key() == *key) {
            run.checkpoint_at = Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::node::Token;

    #[test]
    fn what_a_trigger_gives_is_kept_for_every_attempt_and_shown_by_name() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut ledger = Ledger::default();
        ledger.first_sight(at(100)).unwrap();
        let key = ledger.start_trigger("t", at(110), Token(1)).unwrap().key();
        let given = TriggerParams::read(None, &["password=hunter2".to_owned()]).unwrap();
        ledger.keep_given("t", &given);
        ledger.save_checkpoint(&key, Token(1), json!(7)).unwrap();
        ledger.note_checkpoint(&key, at(115));
        ledger.interrupt(&key, Token(2), at(120)).unwrap();
        let mut read = Ledger::from_body(&ledger.to_body()).unwrap();
        assert_eq!(read, ledger);
        let again = read.start_again("t", Token(2)).unwrap();
        assert_eq!(
            again.given.over(&Value::Null),
            json!({"password": "hunter2"})
        );
        assert_eq!(again.checkpoint_at, Some(at(115)));
        assert!(!format!("{read:?}").contains("hunter2"));
    }
}
