//! Which process holds a lock: the tag in its value, and who has that tag.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::presence::Presence;
use crate::node::{Doc, tag::tag_of};

/// What the names of documents begin with in which programs under a lock tell of themselves.
pub(crate) const HOLDER_PREFIX: &str = "holder/";

/// A process that holds a lock: a worker, or a program under `lock` or `elect`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HolderStatus {
    /// Unique: host, process id, nonce.
    pub id: String,
    /// A replica's configured name; a program's own name.
    pub name: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// What runs under the lock, by its name alone, since its arguments may be secret; `null` for a worker.
    pub command: Option<String>,
    /// Since when it holds the lock, by its own clock, where it tells.
    pub since: Option<Timestamp>,
}

/// Every process that tells of itself, by its tag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holders(BTreeMap<String, HolderStatus>);

// === impl HolderStatus ===

impl HolderStatus {
    /// The name of the document in which a program with this tag (`LocksBuilder::tag`) tells of itself.
    #[must_use]
    pub(crate) fn document_name(tag: &str) -> String {
        format!("{HOLDER_PREFIX}{tag}")
    }

    /// The document's content.
    #[must_use]
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn of_replica(presence: &Presence) -> Self {
        Self {
            id: presence.id.clone(),
            name: presence.name.clone(),
            host: presence.host.clone(),
            pid: presence.pid,
            command: None,
            since: None,
        }
    }
}

impl std::fmt::Display for HolderStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            name, pid, host, ..
        } = self;
        match &self.command {
            Some(command) => write!(f, "{command}, run by process {pid} on {host}"),
            None => write!(f, "{name}, process {pid} on {host}"),
        }
    }
}

// === impl Holders ===

impl Holders {
    /// Those of these documents, which may be of any kind.
    pub(crate) fn of<'a>(presences: &[Presence], docs: impl IntoIterator<Item = &'a Doc>) -> Self {
        let told = |doc: &'a Doc| {
            let tag = doc.name.strip_prefix(HOLDER_PREFIX)?;
            let holder = serde_json::from_str(&doc.body).ok()?;
            Some((tag.to_owned(), holder))
        };
        let mut all: BTreeMap<String, HolderStatus> = docs.into_iter().filter_map(told).collect();
        let replicas = presences.iter().filter(|p| !p.tag.is_empty());
        all.extend(replicas.map(|p| (p.tag.clone(), HolderStatus::of_replica(p))));
        Self(all)
    }

    /// Whose value this is.
    pub(crate) fn holder(&self, owner: &str) -> Option<&HolderStatus> {
        self.0.get(tag_of(owner)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_its_process_whether_replica_or_program() {
        let replica = Presence {
            id: "h-7-aa".into(),
            tag: "aa".into(),
            ..Presence::default()
        };
        let program = HolderStatus {
            id: "h-8-bb".into(),
            host: "h".into(),
            pid: 8,
            command: Some("backup.sh".into()),
            ..HolderStatus::default()
        };
        let doc = |name: &str, body: &str| Doc {
            name: name.into(),
            rev: 1,
            body: body.into(),
        };
        let docs = [
            doc("holder/bb", &program.to_json()),
            doc("holder/cc", "no json"),
        ];
        let holders = Holders::of(&[replica], &docs);
        let random = "0".repeat(32);
        let of = |tag: &str| holders.holder(&format!("{random}.{tag}")).cloned();
        assert_eq!(of("aa").unwrap().id, "h-7-aa");
        assert_eq!(
            of("bb").unwrap().to_string(),
            "backup.sh, run by process 8 on h"
        );
        assert_eq!(
            (of("cc"), of("dd"), holders.holder("aa")),
            (None, None, None)
        );
    }
}
