//! What an answer means, and how much of it may be repeated.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use reqwest::{
    Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName},
};
use serde_json::Value;
use watchkeeper::{
    job::{JobError, Outcome},
    secret::tells,
};

use super::expected::Expected;
use crate::web::{self, Beginning, Meaning};

/// What becomes of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is done.
    Done,
    /// Not now, as the service says: again after this pause.
    Later { why: String, after: Duration },
    /// Not now: again after the pauses of `retry`.
    Retry(String),
    /// Never.
    Fatal(String),
}

/// What names say of a value of JSON.
#[derive(Clone, Copy)]
enum Under {
    /// Nothing.
    Plain,
    /// Its own name tells of a secret.
    Telling,
    /// It is somewhere in what has such a name: what is short there is a word.
    Within,
}

/// Texts that must not be repeated, because a service may repeat what it was sent.
#[derive(Default)]
pub(super) struct Hidden(Vec<String>);

/// The longest pause a service can ask for: an attempt that waits longer keeps its tick open for too long.
const MAX_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);
/// Characters of an answer in an error.
const QUOTED: usize = 200;
/// Parts of a value that are shorter are words, not secrets.
const SECRET_LEN: usize = 8;
/// Parts of a path that are this long are secrets, not words.
const SECRET_SEGMENT_LEN: usize = 20;

/// What a status means, with `text` as the beginning of the answer.
pub(super) fn verdict(
    status: u16,
    expected: &Expected,
    after: Option<Duration>,
    origin: &str,
    text: &str,
) -> Verdict {
    if expected.holds(status) {
        return Verdict::Done;
    }
    let said = quoted(text);
    let why = format!("{origin} answered {status}{said}");
    match web::meaning(status) {
        Meaning::Later => match after {
            Some(after) => Verdict::Later {
                why,
                after: after.min(MAX_PAUSE),
            },
            None => Verdict::Retry(why),
        },
        Meaning::Moved => Verdict::Retry(format!(
            "{origin} answered {status}, a redirection: name the new address as `url`{said}"
        )),
        Meaning::Good | Meaning::Refused | Meaning::Unknown => Verdict::Fatal(format!(
            "{origin} answered {status}, expected was {expected}{said}"
        )),
    }
}

/// The beginning of an answer for an error: one line, and not much of it.
fn quoted(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.replace(char::is_control, "\u{fffd}");
    match line.char_indices().nth(QUOTED) {
        _ if line.is_empty() => String::new(),
        None => format!(": {line}"),
        Some((end, _)) => format!(": {}…", &line[..end]),
    }
}

// === impl Verdict ===

impl Verdict {
    /// The same as the end of a run.
    pub(super) fn into_end(self) -> Result<Outcome, JobError> {
        match self {
            Self::Done => Ok(Outcome::Done),
            Self::Later { after, .. } => Ok(Outcome::RetryAfter(after)),
            Self::Retry(why) => Err(JobError::retry(why)),
            Self::Fatal(why) => Err(JobError::fatal(why)),
        }
    }
}

// === impl Hidden ===

impl Hidden {
    /// What is secret in this request: credentials, telling headers and parameters, long parts of the path; of a body what
    /// telling names have in JSON or a form, and all of it where it is neither. `token` is the fencing token, which is none.
    pub(super) fn of(url: &Url, headers: &HeaderMap, body: &[u8], token: &str) -> Self {
        let mut hidden = Self::default();
        let decoded = |text: &str| percent_decoded(text);
        match url.password() {
            Some(password) => hidden.add(&[password.to_owned(), decoded(password)]),
            // A key without a password comes as the name.
            None => hidden.add(&[url.username().to_owned(), decoded(url.username())]),
        }
        for (name, value) in url.query_pairs() {
            if tells(&name) || value.len() >= SECRET_SEGMENT_LEN {
                hidden.add(&[value.into_owned()]);
            }
        }
        // The same as it stands there: encoded.
        for pair in url.query().into_iter().flat_map(|query| query.split('&')) {
            let (name, value) = pair.split_once('=').unwrap_or(("", pair));
            if tells(name) || value.len() >= SECRET_SEGMENT_LEN {
                hidden.add(&[value.to_owned()]);
            }
        }
        for segment in url.path_segments().into_iter().flatten() {
            if segment.len() >= SECRET_SEGMENT_LEN {
                hidden.add(&[segment.to_owned(), decoded(segment)]);
            }
        }
        for (name, value) in headers {
            if !value.is_sensitive() && !is_secret(name) {
                continue;
            }
            hidden.add_with_parts(&String::from_utf8_lossy(value.as_bytes()));
        }
        let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], |v| v.as_bytes());
        hidden.add_body(&String::from_utf8_lossy(body), content_type);
        hidden.0.retain(|text| text != token);
        hidden.0.sort();
        hidden.0.dedup();
        hidden
    }

    fn add_body(&mut self, body: &str, content_type: &[u8]) {
        let content_type = content_type.to_ascii_lowercase();
        if content_type.starts_with(b"application/x-www-form-urlencoded") {
            for pair in body.split('&') {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                if tells(&percent_decoded(name)) {
                    let decoded = percent_decoded(&value.replace('+', " "));
                    self.add(&[value.to_owned(), decoded]);
                }
            }
            return;
        }
        // Also several, one after the other.
        let values = serde_json::Deserializer::from_str(body).into_iter::<Value>();
        match values.collect::<Result<Vec<_>, _>>() {
            Ok(values) => values
                .iter()
                .for_each(|value| self.add_json(value, Under::Plain)),
            // Less is a word.
            Err(_) if body.trim().len() < SECRET_LEN => {}
            Err(_) => self.add(&[body.to_owned(), body.trim().to_owned()]),
        }
    }

    /// The texts under telling names, however deep.
    fn add_json(&mut self, value: &Value, under: Under) {
        match value {
            Value::String(text) => {
                let least = match under {
                    Under::Plain => return,
                    Under::Telling => 0,
                    Under::Within => SECRET_LEN,
                };
                if text.len() >= least {
                    self.add_with_parts(text);
                    // The same as it stands there, or as others write it.
                    self.add(&spellings(value));
                }
            }
            Value::Array(values) => {
                values.iter().for_each(|value| self.add_json(value, under));
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    let under = match under {
                        _ if tells(name) => Under::Telling,
                        Under::Plain => Under::Plain,
                        Under::Telling | Under::Within => Under::Within,
                    };
                    self.add_json(value, under);
                }
            }
            _ => {}
        }
    }

    /// A value, which may come back in parts: `Bearer …` without its first word, and a cookie without its name.
    fn add_with_parts(&mut self, value: &str) {
        self.add(&[value.to_owned()]);
        for part in value.split([' ', ';', ',', '"']) {
            let inner = part.split_once('=').map_or("", |(_, inner)| inner);
            let parts = [part, inner]
                .into_iter()
                .filter(|part| part.len() >= SECRET_LEN);
            self.0.extend(parts.map(str::to_owned));
        }
    }

    fn add(&mut self, texts: &[String]) {
        self.0
            .extend(texts.iter().filter(|text| !text.is_empty()).cloned());
    }

    /// The beginning of an answer as text, with `***` for each secret.
    pub(super) fn mask(&self, answer: &Beginning) -> String {
        let said = String::from_utf8_lossy(&answer.bytes);
        // All are looked for in what was said, and none in what is put in their place.
        let found = self.0.iter().flat_map(|secret| {
            let places = said.match_indices(secret.as_str());
            places.map(|(at, secret)| (at, at + secret.len()))
        });
        let mut found: Vec<(usize, usize)> = found.collect();
        found.sort_unstable();
        let (mut text, mut shown) = (String::with_capacity(said.len()), 0);
        for (from, to) in found {
            if from >= shown {
                text.push_str(&said[shown..from]);
                text.push_str("***");
            }
            shown = shown.max(to);
        }
        text.push_str(&said[shown..]);
        if answer.cut {
            // What was cut may be half of a secret.
            let halves = self.0.iter().map(|secret| shared_end(&text, secret));
            text.truncate(text.len() - halves.max().unwrap_or(0));
        }
        text
    }
}

/// How a text is written in JSON, without the quotes: as it stands in a body, and as libraries write it that escape more.
fn spellings(text: &Value) -> Vec<String> {
    let quoted = text.to_string();
    let plain = quoted.get(1..quoted.len() - 1).unwrap_or_default();
    let mut all = Vec::new();
    for kind in 0..16_u8 {
        let has = |bit: u8| kind & bit != 0;
        let mut spelt = String::with_capacity(plain.len());
        for c in plain.chars() {
            match c {
                '/' if has(1) => spelt.push_str("\\/"),
                '<' | '>' | '&' if has(2) => spelt.push_str(&escaped(c, has(8))),
                _ if has(4) && !c.is_ascii() => spelt.push_str(&escaped(c, has(8))),
                _ => spelt.push(c),
            }
        }
        if !all.contains(&spelt) {
            all.push(spelt);
        }
    }
    all
}

/// `é` as `\u00e9`, or with capital letters.
fn escaped(c: char, capital: bool) -> String {
    let units = c.encode_utf16(&mut [0; 2]).to_vec();
    let spelt = units.iter().map(|unit| match capital {
        true => format!("\\u{unit:04X}"),
        false => format!("\\u{unit:04x}"),
    });
    spelt.collect()
}

/// Whether a header of this name is likely to hold a secret.
fn is_secret(name: &HeaderName) -> bool {
    let name = name.as_str();
    tells(name) && name != "watchkeeper-token"
}

/// How many bytes at the end of `text` are the beginning of `secret`.
fn shared_end(text: &str, secret: &str) -> usize {
    let starts = secret.char_indices().map(|(at, _)| at).skip(1);
    starts
        .filter(|at| text.ends_with(&secret[..*at]))
        .max()
        .unwrap_or(0)
}

/// `%41` as `A`.
fn percent_decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(url: &str, headers: &[(&'static str, &'static str)]) -> Hidden {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        Hidden::of(&Url::parse(url).unwrap(), &headers.collect(), b"", "7")
    }

    fn hidden_in(kind: &'static str, body: &str) -> Hidden {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, kind.parse().unwrap());
        let url = Url::parse("http://h/").unwrap();
        Hidden::of(&url, &headers, body.as_bytes(), "7")
    }

    #[test]
    fn a_service_that_repeats_a_body_betrays_no_secret_of_it() {
        let json = r#"{"user": "me", "password": "a\"b", "auth_tokens": [{"v": "Bearer abcdefgh12345678"}], "token": "7", "text": "as it is"}"#;
        let json = hidden_in("application/json", json);
        let form = hidden_in(
            "application/x-www-form-urlencoded",
            "user=me&api_key=k%2Fe+y&page=2",
        );
        let text = hidden_in("text/plain", " open sesame\n");
        let lines = hidden_in("application/x-ndjson", "{\"n\": 1}\n{\"secret\": \"s3\"}\n");
        for (hidden, said, shown) in [
            (
                &json,
                r#"no {"user":"me","password":"a\"b"}"#,
                r#"no {"user":"me","password":"***"}"#,
            ),
            (&json, r#"a"b of me"#, "*** of me"),
            (&json, "no abcdefgh12345678", "no ***"),
            (&json, "token 7, as it is", "token 7, as it is"),
            (
                &form,
                "user=me&api_key=k%2Fe+y&page=2",
                "user=me&api_key=***&page=2",
            ),
            (&form, "key k/e y", "key ***"),
            (&text, "what is open sesame?", "what is ***?"),
            (&lines, "s3 is old", "*** is old"),
        ] {
            assert_eq!(masked(hidden, said, false), shown);
        }
    }

    #[test]
    fn a_secret_is_hidden_however_it_is_escaped() {
        let json = hidden_in("application/json", r#"{"key": "a/<é😀>/b\""}"#);
        for said in [
            r#"{"key":"a/<é😀>/b\""}"#,
            r#"{"key":"a/<\u00e9\ud83d\ude00>/b\""}"#,
            r#"{"key":"a\/<\u00e9\ud83d\ude00>\/b\""}"#,
            r#"{"key":"a/\u003cé😀\u003e/b\""}"#,
            r#"{"key":"a/\u003C\u00E9\uD83D\uDE00\u003E/b\""}"#,
        ] {
            assert_eq!(masked(&json, said, false), r#"{"key":"***"}"#, "{said}");
        }
        let form = hidden_in("Application/X-WWW-Form-Urlencoded", "user=me&api_key=k1");
        assert_eq!(masked(&form, "me has k1", false), "me has ***");
    }

    #[test]
    fn what_is_hidden_makes_an_answer_no_longer_than_its_secrets() {
        let many =
            r#""*", "r", "*", "r", "*", "r", "*", "r", "*", "r", "*", "r", "*", "r", "*", "r""#;
        let json = hidden_in("application/json", &format!(r#"{{"bypass": [{many}]}}"#));
        assert_eq!(json.0, ["*", "r"]);
        assert_eq!(masked(&json, "a * or r", false), "a *** o*** ***");
        // In what has a telling name short texts are words, but for those that have one themselves.
        let words =
            r#"{"credentials": {"kind": "user", "password": "me", "data": {"v": "abcdefgh"}}}"#;
        let words = hidden_in("application/json", words);
        let said = "a user called me with abcdefgh";
        assert_eq!(masked(&words, said, false), "a user called *** with ***");
        // Secrets that overlap are hidden together.
        let both = hidden_in("application/json", r#"{"key": "abcd", "token": "cdef"}"#);
        assert_eq!(masked(&both, "abcdef abcd, cdef", false), "*** ***, ***");
    }

    fn masked(hidden: &Hidden, text: &str, cut: bool) -> String {
        hidden.mask(&Beginning {
            bytes: text.as_bytes().to_vec(),
            cut,
        })
    }

    #[test]
    fn a_service_that_repeats_a_request_betrays_no_secret() {
        let url = "http://me:p%40ss@h/services/T0123456789012345678901?page=2&api_key=k%2Fey";
        let hidden = hidden(
            url,
            &[
                ("authorization", "Bearer abcdefgh12345678"),
                ("cookie", "sid=sessionsession; theme=dark"),
                ("watchkeeper-token", "7"),
                ("x-plain", "as it is"),
            ],
        );
        for (said, shown) in [
            (
                "Cannot POST /services/T0123456789012345678901",
                "Cannot POST /services/***",
            ),
            ("who is me:p@ss?", "who is me:***?"),
            ("page=2&api_key=k%2Fey", "page=2&api_key=***"),
            ("key k/ey", "key ***"),
            ("auth: Bearer abcdefgh12345678", "auth: ***"),
            ("no such token: abcdefgh12345678", "no such token: ***"),
            ("sessionsession is over", "*** is over"),
            ("token 7, as it is", "token 7, as it is"),
        ] {
            assert_eq!(masked(&hidden, said, false), shown);
        }
    }

    #[test]
    fn half_a_secret_at_the_end_of_what_was_read_is_left_out() {
        let hidden = hidden("http://me:hunter2hunter2@h/", &[]);
        assert_eq!(masked(&hidden, "it was hunter2hun", true), "it was ");
        assert_eq!(
            masked(&hidden, "it was hunter2hun", false),
            "it was hunter2hun"
        );
    }

    #[test]
    fn what_is_quoted_is_one_short_line() {
        assert_eq!(quoted("\n  "), "");
        assert_eq!(
            quoted("<h1>\n  No\u{7}\t such</h1>\n"),
            ": <h1> No\u{fffd} such</h1>"
        );
        let long = quoted(&"ü".repeat(1000));
        assert_eq!(long.chars().count(), QUOTED + 3);
    }
}
