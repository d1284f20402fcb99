//! What is asked of the server that keeps the stream, and how its answers are read.

use std::time::Duration;

use deadpool_redis::redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, ServerErrorKind, Value,
    aio::MultiplexedConnection, cmd,
};
use jiff::Timestamp;
use serde_json::{Map, Value as Json};

use super::{
    backlog::{Dealt, Size},
    id::Id,
    message::Message,
};

/// The server of a stream. Connects with the first question, and anew after a failure.
pub(super) struct Server {
    client: Client,
    /// Its name for people.
    name: String,
    connection: Option<MultiplexedConnection>,
    /// How long connecting may take, and an answer.
    pub(super) limit: Duration,
    /// Messages that are asked for at once: fewer where so many took too long.
    at_once: usize,
    /// Answers of so many messages since that last changed.
    full: u32,
}

/// What was taken over from other members.
#[derive(Debug, Default)]
pub(super) struct TakenOver {
    /// Where the search goes on.
    pub(super) next: String,
    pub(super) messages: Vec<Message>,
    /// Messages that were dealt out and not acknowledged, and are no longer in the stream.
    pub(super) removed: Vec<String>,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// There is no such group, or no stream.
    #[error("the stream has no such consumer group")]
    NoGroup,
    /// Anything else, with the server's name and without a secret.
    #[error("{0}")]
    Other(String),
}

const LIMIT: Duration = Duration::from_secs(5);
/// Messages that are asked for at once, at most: they may be large.
const AT_ONCE: usize = 128;
/// What a server says that is no master, or not the one of this key.
const NO_MASTER: [&str; 4] = ["READONLY", "MASTERDOWN", "MOVED", "CLUSTERDOWN"];
/// The remedy where it refuses the user.
const PASSWORD: &str = "it wants a user and a password, or other ones; put them into the address";
/// After so many answers that came in time twice as many messages are asked for.
const PATIENCE: u32 = 20;

// === impl Server ===

impl Server {
    pub(super) fn new(client: Client, name: String) -> Self {
        Self {
            client,
            name,
            connection: None,
            limit: LIMIT,
            at_once: AT_ONCE,
            full: 0,
        }
    }

    /// Messages of `stream` after `position`.
    pub(super) async fn read(
        &mut self,
        stream: &str,
        position: Id,
        most: usize,
    ) -> Result<Vec<Message>, Trouble> {
        let mut ask = cmd("XREAD");
        let most = most.min(self.at_once);
        ask.arg("COUNT").arg(most).arg("STREAMS").arg(stream);
        ask.arg(position.to_string());
        self.ask_for_messages(&ask, most, of_streams).await
    }

    /// Messages that the group deals out to this member.
    pub(super) async fn deal(
        &mut self,
        stream: &str,
        (group, member): (&str, &str),
        most: usize,
    ) -> Result<Vec<Message>, Trouble> {
        let mut ask = cmd("XREADGROUP");
        ask.arg("GROUP").arg(group).arg(member);
        let most = most.min(self.at_once);
        ask.arg("COUNT").arg(most).arg("STREAMS").arg(stream);
        ask.arg(">");
        self.ask_for_messages(&ask, most, of_streams).await
    }

    /// Takes over messages that no member has been given for so long, from this place in the list of those that are dealt out on.
    pub(super) async fn take_over(
        &mut self,
        stream: &str,
        (group, member): (&str, &str),
        idle: Duration,
        from: &str,
        most: usize,
    ) -> Result<TakenOver, Trouble> {
        let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        let mut ask = cmd("XAUTOCLAIM");
        ask.arg(stream).arg(group).arg(member).arg(idle_ms);
        let most = most.min(self.at_once);
        ask.arg(from).arg("COUNT").arg(most);
        let mut taken = TakenOver::default();
        let messages = |answer: &Value| {
            let parts = list(answer);
            let next = parts.first().and_then(text);
            taken.next = next.unwrap_or_else(|| START.to_owned());
            // The server has taken these out of the list; one before 7.0 does not, and shows an entry without content each time.
            let removed = parts.get(2).map(list).unwrap_or_default();
            taken.removed = removed.iter().filter_map(text).collect();
            parts.get(1).map(of_entries).unwrap_or_default()
        };
        taken.messages = self.ask_for_messages(&ask, most, messages).await?;
        Ok(taken)
    }

    /// Removes members that have asked for nothing for so long and hold no message: those of processes that have ended.
    pub(super) async fn forget_members(
        &mut self,
        stream: &str,
        group: &str,
        idle: Duration,
    ) -> Result<(), Trouble> {
        let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        let mut ask = cmd("EVAL");
        ask.arg(FORGET).arg(1).arg(stream).arg(group).arg(idle_ms);
        self.ask(&ask).await.map(drop)
    }

    /// Makes the group, and the stream if need be. It begins with messages after `from`. One that is there stays as it is.
    pub(super) async fn make_group(
        &mut self,
        stream: &str,
        group: &str,
        from: Id,
    ) -> Result<(), Trouble> {
        let mut ask = cmd("XGROUP");
        ask.arg("CREATE").arg(stream).arg(group);
        ask.arg(from.to_string()).arg("MKSTREAM");
        match self.exchange(&ask).await {
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
            other => other.map(drop).map_err(|error| self.trouble(&error)),
        }
    }

    /// Tells the group that these need no work any more.
    pub(super) async fn acknowledge(
        &mut self,
        stream: &str,
        group: &str,
        ids: &[Id],
    ) -> Result<(), Trouble> {
        let mut ask = cmd("XACK");
        ask.arg(stream).arg(group);
        for id in ids {
            ask.arg(id.to_string());
        }
        self.ask(&ask).await.map(drop)
    }

    /// Adds a message to a list of dead ones, which keeps about so many.
    pub(super) async fn bury(
        &mut self,
        list: &str,
        entries: &[(&str, String)],
        most: usize,
    ) -> Result<(), Trouble> {
        let mut ask = cmd("XADD");
        ask.arg(list).arg("MAXLEN").arg("~").arg(most).arg("*");
        for (name, value) in entries {
            ask.arg(name).arg(value);
        }
        self.ask(&ask).await.map(drop)
    }

    /// The largest id that the stream has ever had; `None` where there is no stream.
    pub(super) async fn last_id(&mut self, stream: &str) -> Result<Option<Id>, Trouble> {
        let size = self.size(stream).await?;
        Ok(size.map(|size| size.last))
    }

    /// What the server says of the stream; `None` where there is none.
    pub(super) async fn size(&mut self, stream: &str) -> Result<Option<Size>, Trouble> {
        let mut ask = cmd("XINFO");
        ask.arg("STREAM").arg(stream);
        let answer = match self.exchange(&ask).await {
            Ok(answer) => answer,
            Err(error)
                if error
                    .detail()
                    .is_some_and(|why| why.contains("no such key")) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(self.trouble(&error)),
        };
        Ok(Some(of_stream(&answer)))
    }

    /// What the server says of a group of the stream; `None` where there is none.
    pub(super) async fn dealt(
        &mut self,
        stream: &str,
        group: &str,
    ) -> Result<Option<Dealt>, Trouble> {
        let mut ask = cmd("XINFO");
        ask.arg("GROUPS").arg(stream);
        let answer = self.ask(&ask).await?;
        Ok(of_group(&answer, group))
    }

    /// What time it is there.
    pub(super) async fn time(&mut self) -> Result<Timestamp, Trouble> {
        let answer = self.ask(&cmd("TIME")).await?;
        let second = list(&answer).first().and_then(text);
        let second = second.and_then(|second| second.parse().ok());
        let time = second.and_then(|second| Timestamp::from_second(second).ok());
        time.ok_or_else(|| Trouble::Other(format!("the stream's server {}: no time", self.name)))
    }

    /// Asks for so many messages. When they do not come in time fewer are asked for: as many would not come, either.
    async fn ask_for_messages(
        &mut self,
        ask: &Cmd,
        most: usize,
        read: impl FnOnce(&Value) -> Vec<Message>,
    ) -> Result<Vec<Message>, Trouble> {
        // A server that cannot be reached says nothing about messages.
        match self.connected().await {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => return Err(self.trouble(&error)),
        }
        match self.exchange(ask).await {
            Ok(answer) => {
                let messages = read(&answer);
                self.full += u32::from(messages.len() >= self.at_once);
                if self.full >= PATIENCE {
                    (self.at_once, self.full) = ((self.at_once * 2).min(AT_ONCE), 0);
                }
                Ok(messages)
            }
            Err(error) => {
                if error.is_timeout() {
                    (self.at_once, self.full) = ((most / 2).max(1), 0);
                }
                Err(self.trouble(&error))
            }
        }
    }

    async fn ask(&mut self, ask: &Cmd) -> Result<Value, Trouble> {
        self.exchange(ask)
            .await
            .map_err(|error| self.trouble(&error))
    }

    async fn connected(&mut self) -> Result<MultiplexedConnection, RedisError> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let times = AsyncConnectionConfig::new()
            .set_response_timeout(Some(self.limit))
            .set_connection_timeout(Some(self.limit));
        let client = &self.client;
        client
            .get_multiplexed_async_connection_with_config(&times)
            .await
    }

    async fn exchange(&mut self, ask: &Cmd) -> Result<Value, RedisError> {
        let mut connection = self.connected().await?;
        let answer = connection
            .send_packed_command(ask)
            .await
            .and_then(Value::extract_error);
        let lives = match &answer {
            Ok(_) => true,
            // Another server may stand behind its name by now, to which only a new connection leads.
            Err(error) => error.code().is_some_and(|code| !NO_MASTER.contains(&code)),
        };
        if lives {
            self.connection = Some(connection);
        }
        answer
    }

    /// What went wrong, with the remedy where there is one.
    fn trouble(&self, error: &RedisError) -> Trouble {
        let name = &self.name;
        let why = match error.code() {
            Some("NOGROUP") => return Trouble::NoGroup,
            Some("WRONGTYPE") => {
                "the key of the stream holds something else; name another key, or remove it"
                    .to_owned()
            }
            Some("NOAUTH" | "WRONGPASS") => PASSWORD.to_owned(),
            // Said while connecting it has no code.
            None if error.kind() == ErrorKind::AuthenticationFailed => PASSWORD.to_owned(),
            Some("READONLY") => {
                "it is a replica; an address that leads to the master is wanted".to_owned()
            }
            Some("NOPERM") => {
                "the user may not do this; it needs +@stream on the keys, and +time".to_owned()
            }
            Some(code) => format!("{code} {}", error.detail().unwrap_or_default()),
            // The detail of what is no answer may repeat the address.
            None if error.is_timeout() => "no answer in time".to_owned(),
            None if matches!(
                error.kind(),
                ErrorKind::Server(ServerErrorKind::ResponseError)
            ) =>
            {
                error.detail().unwrap_or("it refuses").to_owned()
            }
            None => error.category().to_owned(),
        };
        Trouble::Other(format!("the stream's server {name}: {why}"))
    }
}

/// Where the list of messages that are dealt out begins.
pub(super) const START: &str = "0-0";

/// In one step: a member that is given a message meanwhile would lose it.
const FORGET: &str = r"
for _, member in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local of = {}
  for i = 1, #member, 2 do of[member[i]] = member[i + 1] end
  if of.pending == 0 and of.idle > tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], of.name)
  end
end";

// === answers ===

fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        _ => &[],
    }
}

/// Keys with their values: a list of both in turn, or what the third version of the protocol makes of it (`?protocol=resp3`).
fn pairs(value: &Value) -> Vec<(&Value, &Value)> {
    match value {
        Value::Map(pairs) => pairs.iter().map(|(key, value)| (key, value)).collect(),
        other => {
            let pairs = list(other).chunks_exact(2);
            pairs.map(|pair| (&pair[0], &pair[1])).collect()
        }
    }
}

/// The value of a key among them.
fn of_key<'v>(pairs: &[(&'v Value, &'v Value)], wanted: &str) -> Option<&'v Value> {
    let found = pairs
        .iter()
        .find(|(key, _)| text(key).as_deref() == Some(wanted));
    found.map(|(_, value)| *value)
}

fn as_number(value: &Value) -> Option<u64> {
    text(value)?.parse().ok()
}

fn as_id(value: &Value) -> Option<Id> {
    text(value)?.parse().ok()
}

/// What is said of a stream.
fn of_stream(value: &Value) -> Size {
    let said = pairs(value);
    Size {
        length: of_key(&said, "length").and_then(as_number).unwrap_or(0),
        added: of_key(&said, "entries-added").and_then(as_number),
        first: of_key(&said, "first-entry").and_then(|entry| as_id(list(entry).first()?)),
        last: of_key(&said, "last-generated-id")
            .and_then(as_id)
            .unwrap_or_default(),
    }
}

/// What is said of this group among the groups of a stream.
fn of_group(value: &Value, group: &str) -> Option<Dealt> {
    let mut groups = list(value).iter().map(pairs);
    let said = groups.find(|said| {
        let name = of_key(said, "name").and_then(text);
        name.as_deref() == Some(group)
    })?;
    Some(Dealt {
        pending: of_key(&said, "pending").and_then(as_number).unwrap_or(0),
        lag: of_key(&said, "lag").and_then(as_number),
        last: of_key(&said, "last-delivered-id")
            .and_then(as_id)
            .unwrap_or_default(),
    })
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The messages of all streams of an answer; there is one stream.
fn of_streams(value: &Value) -> Vec<Message> {
    if let Value::Map(streams) = value {
        return streams.iter().flat_map(|(_, of)| of_entries(of)).collect();
    }
    let streams = list(value).iter().filter_map(|stream| list(stream).get(1));
    streams.flat_map(of_entries).collect()
}

/// Entries without a content were removed from the stream.
fn of_entries(value: &Value) -> Vec<Message> {
    list(value).iter().filter_map(of_entry).collect()
}

fn of_entry(value: &Value) -> Option<Message> {
    let [id, Value::Array(fields)] = list(value) else {
        return None;
    };
    let pairs = fields.chunks_exact(2);
    let pairs = pairs.filter_map(|pair| Some((text(&pair[0])?, Json::from(text(&pair[1])?))));
    Some(Message {
        id: text(id)?.parse().ok()?,
        fields: pairs.collect::<Map<_, _>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn an_answer_is_read_without_what_was_removed_meanwhile() {
        let fields = Value::Array(["order", "7", "total", "3.50"].map(bulk).to_vec());
        let entry = Value::Array(vec![bulk("5-1"), fields]);
        let removed = Value::Array(vec![bulk("6-0"), Value::Nil]);
        let entries = Value::Array(vec![entry, removed, Value::Nil]);
        let answer = Value::Array(vec![Value::Array(vec![bulk("orders"), entries.clone()])]);
        let read = of_streams(&answer);
        assert_eq!(read.len(), 1);
        // With `?protocol=resp3` in the address.
        let answer = Value::Map(vec![(bulk("orders"), entries)]);
        assert_eq!(of_streams(&answer), read);
        assert_eq!(read[0].id.to_string(), "5-1");
        assert_eq!(
            Json::Object(read[0].fields.clone()),
            json!({"order": "7", "total": "3.50"})
        );
        assert_eq!(of_streams(&Value::Nil), []);
        assert_eq!(of_streams(&bulk("nonsense")), []);
    }

    #[test]
    fn keys_and_values_are_read_in_both_versions_of_the_protocol() {
        let [key, id] = [bulk("last-generated-id"), bulk("5-1")];
        let list = Value::Array(vec![key.clone(), id.clone()]);
        let map = Value::Map(vec![(key.clone(), id.clone())]);
        for answer in [list, map] {
            assert_eq!(pairs(&answer), [(&key, &id)]);
            assert_eq!(of_stream(&answer).last.to_string(), "5-1");
        }
        assert_eq!(pairs(&Value::Nil), []);
        assert_eq!(of_stream(&Value::Nil), Size::default());
    }

    #[test]
    fn what_a_server_counts_is_read_and_what_it_does_not_is_left_open() {
        let first = Value::Array(vec![bulk("5-1"), Value::Array(Vec::new())]);
        let said = [
            (bulk("length"), Value::Int(7)),
            (bulk("first-entry"), first),
            (bulk("last-generated-id"), bulk("9-0")),
        ];
        let size = of_stream(&Value::Map(said.to_vec()));
        let ids = (size.first.map(|id| id.to_string()), size.last.to_string());
        assert_eq!(ids, (Some("5-1".to_owned()), "9-0".to_owned()));
        assert_eq!((size.length, size.added), (7, None));

        let group = |name: &str, lag: Value| {
            Value::Map(vec![
                (bulk("name"), bulk(name)),
                (bulk("pending"), Value::Int(3)),
                (bulk("last-delivered-id"), bulk("8-0")),
                (bulk("lag"), lag),
            ])
        };
        let groups = Value::Array(vec![
            group("other", Value::Int(1)),
            group("shop", Value::Int(4)),
            group("new", Value::Nil),
        ]);
        let of = |name| of_group(&groups, name).map(|dealt| (dealt.pending, dealt.lag));
        assert_eq!(of("shop"), Some((3, Some(4))));
        assert_eq!(of("new"), Some((3, None)));
        assert_eq!(of("none"), None);
        assert_eq!(of_group(&bulk("nonsense"), "shop"), None);
    }
}
