//! Looks through a node's memory for what was changed or deleted by something else.
//!
//! A lock meets damage when it needs what is damaged, and is refused by name. This looks for it before, and changes nothing.

use std::future::Future;

use super::{
    Answer, Cursor, NodeError, Op, Refusal, Reply, Token, View,
    rules::{DOUBTED, LAST},
};

/// How much is looked at in one call.
const PAGE: u32 = 100;

/// More is not told one by one.
const MOST_TOLD: usize = 5;

/// What was found on one node.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Damage {
    /// What is damaged, the first of it.
    pub found: Vec<String>,
    /// How much more there is.
    pub more: usize,
    /// The largest number far above every count and clock, and where it stands: damage unless a majority of the nodes tells such
    /// numbers.
    pub far: Option<(Token, String)>,
}

/// Looks through all of a node's memory. What was found before an error stands in `damage`.
///
/// # Errors
/// The first [`NodeError`] that is none of damage.
pub async fn search<F>(damage: &mut Damage, ask: impl Fn(Vec<Op>) -> F) -> Result<(), NodeError>
where
    F: Future<Output = Result<Reply, NodeError>>,
{
    let ask = async |op| match ask(vec![op]).await {
        Ok(mut reply) => Ok(reply.answers.pop()),
        // Of one operation this is the same.
        Err(trouble @ NodeError::Refused { .. }) => Ok(Some(Answer::Failed(trouble))),
        Err(trouble) => Err(trouble),
    };
    match ask(Op::Admission).await? {
        Some(Answer::Admission(shown)) if shown.counter > LAST => {
            damage.add("its counter of what was forgotten is out of range".to_owned());
        }
        Some(Answer::Admission(shown)) => damage.was_told(shown.counter, || "its counter".into()),
        other => damage.judge(other.as_ref())?,
    }
    let mut next = Some(Cursor::default());
    while let Some(from) = next.take() {
        let (prefix, count) = (String::new(), PAGE);
        match ask(Op::List {
            prefix,
            from,
            count,
        })
        .await?
        {
            Some(Answer::Page(page)) => {
                page.views.iter().for_each(|view| damage.look(view));
                next = page.next;
            }
            other => damage.judge(other.as_ref())?,
        }
    }
    let mut next = Some(Cursor::default());
    while let Some(from) = next.take() {
        match ask(Op::Records { from, count: PAGE }).await? {
            Some(Answer::Page(page)) => {
                // Among them is what cannot be read.
                for key in page.large {
                    let read = ask(Op::Read { key }).await?;
                    damage.judge(read.as_ref())?;
                }
                next = page.next;
            }
            other => damage.judge(other.as_ref())?,
        }
    }
    Ok(())
}

// === impl Damage ===

impl Damage {
    fn add(&mut self, what: String) {
        if self.found.contains(&what) {
            return;
        }
        match self.found.len() < MOST_TOLD {
            true => self.found.push(what),
            false => self.more += 1,
        }
    }

    fn look(&mut self, view: &View) {
        match view.is_malformed() {
            true => self.add(malformed(&view.key)),
            false => self.was_told(view.token, || format!("the counter of `{}`", view.key)),
        }
    }

    fn was_told(&mut self, token: Token, of: impl Fn() -> String) {
        let largest = self.far.as_ref().map_or(Token(0), |(token, _)| *token);
        if token >= DOUBTED && token > largest {
            self.far = Some((token, of()));
        }
    }

    fn judge(&mut self, answer: Option<&Answer>) -> Result<(), NodeError> {
        match answer {
            Some(Answer::Failed(NodeError::Refused {
                refusal: Refusal::Damaged,
                said,
            })) => self.add(said.clone()),
            Some(Answer::Failed(trouble)) => return Err(trouble.clone()),
            _ => {}
        }
        Ok(())
    }
}

/// What is said of a lock whose row makes no sense.
pub(crate) fn malformed(key: &str) -> String {
    format!("the row of `{key}` is malformed")
}
