//! What a check has found: a list to which every rule adds, so that all faults are told at once.
//!
//! A rule knows keys of the settings that it checks, and neither the file that they stand in nor the section around them. Who
//! loaded the file makes a problem of a finding, which names one key from the top and the place where its value comes from.

/// Findings of one check, with keys relative to the settings that were checked.
#[derive(Clone, Debug, Default)]
pub struct Findings(Vec<Finding>);

/// One rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether it can be lived with.
    pub severity: Severity,
    /// The keys the rule is about, the one to change first.
    pub keys: Vec<String>,
    /// What is wrong, with the values.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Said, and lived with.
    Warning,
    /// Nothing starts.
    Error,
}

// === impl Findings ===

impl Findings {
    /// Adds an error about `keys`.
    pub fn error(&mut self, keys: &[&str], message: impl Into<String>, remedy: impl Into<String>) {
        self.add(Severity::Error, keys, message.into(), remedy.into());
    }

    /// Adds a warning about `keys`.
    pub fn warn(&mut self, keys: &[&str], message: impl Into<String>, remedy: impl Into<String>) {
        self.add(Severity::Warning, keys, message.into(), remedy.into());
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What was found, in the order of the rules.
    pub fn iter(&self) -> std::slice::Iter<'_, Finding> {
        self.0.iter()
    }

    /// Takes over the findings about a section of that name. An empty key is the section itself; a key that begins
    /// with a dot stands at the top.
    pub fn nest(&mut self, section: &str, inner: Self) {
        for mut finding in inner {
            for key in &mut finding.keys {
                *key = match (key.strip_prefix('.'), key.is_empty()) {
                    (Some(top), _) => top.to_owned(),
                    (None, true) => section.to_owned(),
                    (None, false) => format!("{section}.{key}"),
                };
            }
            self.0.push(finding);
        }
    }

    /// Adds what was found elsewhere.
    pub fn push(&mut self, finding: Finding) {
        self.0.push(finding);
    }

    fn add(&mut self, severity: Severity, keys: &[&str], message: String, remedy: String) {
        self.push(Finding {
            severity,
            keys: keys.iter().map(|&key| key.to_owned()).collect(),
            message,
            remedy,
        });
    }
}

impl IntoIterator for Findings {
    type Item = Finding;
    type IntoIter = std::vec::IntoIter<Finding>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Findings {
    type Item = &'a Finding;
    type IntoIter = std::slice::Iter<'a, Finding>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
