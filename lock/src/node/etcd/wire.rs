//! What goes to etcd's HTTP gateway and comes back: JSON in which bytes are base64, and large numbers texts.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

/// Which number is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Target {
    #[serde(rename = "MOD")]
    Mod,
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Is {
    #[serde(rename = "EQUAL")]
    Equal,
    #[serde(rename = "LESS")]
    Less,
}

/// One condition of a transaction.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Compare {
    pub(super) key: Bytes,
    pub(super) target: Target,
    pub(super) result: Is,
    #[serde(serialize_with = "number_out")]
    pub(super) mod_revision: i64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Range {
    pub(super) key: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range_end: Option<Bytes>,
    #[serde(serialize_with = "number_out", skip_serializing_if = "is_zero")]
    pub(super) limit: i64,
    #[serde(serialize_with = "number_out", skip_serializing_if = "is_zero")]
    pub(super) revision: i64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Put {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct DeleteRange {
    pub(super) key: Bytes,
}

#[derive(Clone, Debug, Serialize)]
pub(super) enum Step {
    #[serde(rename = "request_range")]
    Range(Range),
    #[serde(rename = "request_put")]
    Put(Put),
    #[serde(rename = "request_delete_range")]
    Delete(DeleteRange),
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Txn {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) compare: Vec<Compare>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) success: Vec<Step>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) failure: Vec<Step>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    #[serde(deserialize_with = "unsigned_in")]
    pub(super) cluster_id: u64,
    #[serde(deserialize_with = "unsigned_in")]
    pub(super) member_id: u64,
    #[serde(deserialize_with = "number_in")]
    pub(super) revision: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
    #[serde(deserialize_with = "number_in")]
    pub(super) create_revision: i64,
    #[serde(deserialize_with = "number_in")]
    pub(super) mod_revision: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Found {
    pub(super) kvs: Vec<KeyValue>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Stepped {
    pub(super) response_range: Option<Found>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Done {
    /// Which of the endpoints has answered.
    #[serde(skip)]
    pub(super) member: usize,
    pub(super) header: Header,
    pub(super) succeeded: bool,
    pub(super) responses: Vec<Stepped>,
}

impl Done {
    /// Which memory has answered.
    pub(super) fn life(&self) -> String {
        format!("{:016x}", self.header.cluster_id)
    }

    pub(super) fn revision(&self) -> u64 {
        u64::try_from(self.header.revision).unwrap_or(0)
    }

    /// What was found, step by step.
    pub(super) fn found(self) -> Vec<Found> {
        let all = self.responses.into_iter();
        all.map(|one| one.response_range.unwrap_or_default())
            .collect()
    }
}

/// Why something was refused.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Refused {
    pub(super) code: i64,
    pub(super) error: String,
    pub(super) message: String,
}

/// What a member tells of its version.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Versions {
    pub(super) etcdserver: String,
}

#[derive(Serialize)]
pub(super) struct Login<'l> {
    pub(super) name: &'l str,
    pub(super) password: &'l str,
}

#[derive(Deserialize)]
pub(super) struct LoggedIn {
    pub(super) token: String,
}

#[derive(Serialize)]
pub(super) struct Watch {
    pub(super) create_request: WatchFrom,
}

#[derive(Serialize)]
pub(super) struct WatchFrom {
    pub(super) key: Bytes,
    #[serde(serialize_with = "number_out", skip_serializing_if = "is_zero")]
    pub(super) start_revision: i64,
}

/// A line of a watch.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Watched {
    pub(super) result: Option<WatchedResult>,
    /// What it says when it ends for a fault.
    pub(super) error: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchedResult {
    pub(super) header: Header,
    pub(super) created: bool,
    pub(super) canceled: bool,
    pub(super) cancel_reason: String,
    pub(super) events: Vec<WatchedEvent>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchedEvent {
    pub(super) kv: KeyValue,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) header: Header,
    pub(super) version: String,
    #[serde(rename = "dbSize", deserialize_with = "number_in")]
    pub(super) db_size: i64,
    #[serde(rename = "dbSizeInUse", deserialize_with = "number_in")]
    pub(super) db_size_in_use: i64,
    #[serde(deserialize_with = "unsigned_in")]
    pub(super) leader: u64,
    #[serde(rename = "isLearner")]
    pub(super) is_learner: bool,
    pub(super) errors: Vec<String>,
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD
            .decode(text.as_bytes())
            .map(Self)
            .map_err(D::Error::custom)
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

/// A number as it comes: a text, mostly.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Text(String),
    Number(i64),
}

fn number_in<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    match Number::deserialize(deserializer)? {
        Number::Number(number) => Ok(number),
        Number::Text(text) => text.parse().map_err(D::Error::custom),
    }
}

fn unsigned_in<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match Number::deserialize(deserializer)? {
        Number::Number(number) => u64::try_from(number).map_err(D::Error::custom),
        Number::Text(text) => text.parse().map_err(D::Error::custom),
    }
}

fn number_out<S: Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_base64_and_numbers_are_texts() {
        let txn = Txn {
            compare: vec![Compare {
                key: "k".into(),
                target: Target::Mod,
                result: Is::Less,
                mod_revision: 1 << 60,
            }],
            success: vec![Step::Put(Put {
                key: "k".into(),
                value: Bytes(vec![0, 255]),
            })],
            failure: vec![Step::Range(Range {
                key: "k".into(),
                ..Range::default()
            })],
        };
        assert_eq!(
            serde_json::to_string(&txn).unwrap(),
            "{\"compare\":[{\"key\":\"aw==\",\"target\":\"MOD\",\"result\":\"LESS\",\"mod_revision\":\"1152921504606846976\"}],\
             \"success\":[{\"request_put\":{\"key\":\"aw==\",\"value\":\"AP8=\"}}],\
             \"failure\":[{\"request_range\":{\"key\":\"aw==\"}}]}"
        );
    }

    #[test]
    fn an_answer_is_read_whatever_it_leaves_out() {
        let text = "{\"header\":{\"cluster_id\":\"14841639068965178418\",\"revision\":\"7\"},\"succeeded\":true,\"responses\":\
             [{\"response_range\":{\"header\":{},\"kvs\":[{\"key\":\"aw==\",\"mod_revision\":\"5\",\"value\":\"AP8=\"}],\"count\":\"1\"}},\
             {\"response_put\":{}}]}";
        let done: Done = serde_json::from_str(text).unwrap();
        assert_eq!(
            (done.header.cluster_id, done.header.revision, done.succeeded),
            (14_841_639_068_965_178_418, 7, true)
        );
        let found = done.responses[0].response_range.as_ref().unwrap();
        assert_eq!(found.kvs[0].value.0, [0, 255]);
        assert_eq!(found.kvs[0].mod_revision, 5);
        assert!(done.responses[1].response_range.is_none());
        let nothing: Done = serde_json::from_str("{}").unwrap();
        assert!(!nothing.succeeded);
        assert!(serde_json::from_str::<Found>("{\"kvs\":[{\"key\":\"?\"}]}").is_err());
    }
}
