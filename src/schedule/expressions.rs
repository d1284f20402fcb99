//! The expressions of one schedule, as they are written: one, or a list of them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// One or several expressions of one schedule: it fires at every instant that any of them names, once.
///
/// In configuration a text, or a list of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expressions(Vec<String>);

// === impl Expressions ===

impl Expressions {
    /// Each of them, in order.
    #[must_use]
    pub(crate) fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Whether this is `word` alone, such as `continuous`.
    #[must_use]
    pub(crate) fn is(&self, word: &str) -> bool {
        matches!(self.0.as_slice(), [only] if only.trim() == word)
    }
}

impl fmt::Display for Expressions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl From<&str> for Expressions {
    fn from(expression: &str) -> Self {
        Self(vec![expression.to_owned()])
    }
}

impl From<String> for Expressions {
    fn from(expression: String) -> Self {
        Self(vec![expression])
    }
}

impl<T: Into<String>> From<Vec<T>> for Expressions {
    fn from(expressions: Vec<T>) -> Self {
        Self(expressions.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<String>, const N: usize> From<[T; N]> for Expressions {
    fn from(expressions: [T; N]) -> Self {
        Self(expressions.into_iter().map(Into::into).collect())
    }
}

impl Serialize for Expressions {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [only] => to.serialize_str(only),
            several => several.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Expressions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextOrList;

        impl<'de> de::Visitor<'de> for TextOrList {
            type Value = Expressions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Expressions, E> {
                // From the environment a list comes as a text, and is read as a list when it is no text.
                if text.trim_start().starts_with('[') {
                    return Err(E::invalid_type(de::Unexpected::Str(text), &self));
                }
                Ok(text.into())
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Expressions, A::Error> {
                let mut expressions = Vec::new();
                while let Some(expression) = seq.next_element::<String>()? {
                    // None begins so: a list within a list that came as a text.
                    if expression.trim_start().starts_with('[') {
                        return Err(de::Error::invalid_type(
                            de::Unexpected::Str(&expression),
                            &"a text in quotes",
                        ));
                    }
                    expressions.push(expression);
                }
                Ok(Expressions(expressions))
            }
        }

        from.deserialize_any(TextOrList)
    }
}
