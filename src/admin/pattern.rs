//! Paths with places for values, as `/api/v1/jobs/{job}/pause`, and texts in addresses.
//!
//! The words of a path are compared as they were sent: one that is written in another way is another path, here and where it is
//! decided who may ask.

use std::fmt::Write;

/// Whether the path has the form of the pattern.
pub(super) fn fits(pattern: &str, path: &str) -> bool {
    values(pattern, path).is_some()
}

/// What stands in the places of the pattern, decoded and in order; `None` for a path of another form, and for values that are
/// no text.
pub(super) fn values(pattern: &str, path: &str) -> Option<Vec<String>> {
    let (mut found, mut parts) = (Vec::new(), path.split('/'));
    for expected in pattern.split('/') {
        let part = parts.next()?;
        match expected.starts_with('{') {
            true => found.push(decoded(part).filter(|value| !value.is_empty())?),
            false if part == expected => {}
            false => return None,
        }
    }
    parts.next().is_none().then_some(found)
}

/// As one word of an address.
pub(super) fn encoded(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                word.push(char::from(byte));
            }
            // Writing to a string does not fail.
            _ => _ = write!(word, "%{byte:02X}"),
        }
    }
    word
}

fn decoded(word: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            plain => plain,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_gives_its_values_and_no_other_path_fits() {
        let pause = "/api/v1/jobs/{job}/pause";
        for (path, value) in [
            ("/api/v1/jobs/report/pause", Some("report")),
            ("/api/v1/jobs/a%2Fb%20c/pause", Some("a/b c")),
            ("/api/v1/jobs/%C3%A9/pause", Some("é")),
            ("/api/v1/jobs//pause", None),
            ("/api/v1/jobs/report/pause/", None),
            ("/api/v1/jobs/report/Pause", None),
            ("/api/v1/jobs/report/%70ause", None),
            ("/api/v1/jobs/report", None),
            ("/api/v1/jobs/%/pause", None),
            ("/api/v1/jobs/%4/pause", None),
            ("/api/v1/jobs/%zz/pause", None),
            ("/api/v1/jobs/%FF/pause", None),
        ] {
            let found = values(pause, path);
            let expected = value.map(|value| vec![value.to_owned()]);
            assert_eq!(found, expected, "{path}");
        }
        assert_eq!(values("/", "/"), Some(Vec::new()));
        assert!(!fits("/", "/x") && !fits("/x", "/"));
    }

    #[test]
    fn what_is_written_as_a_word_reads_back() {
        for text in ["report", "a/b c", "é&=?#%+", "\u{0}\n\"<>"] {
            let word = encoded(text);
            assert!(word.bytes().all(|b| b.is_ascii_graphic()), "{word}");
            assert!(!word.contains(['&', '/', '<', '>', '"', '+']), "{word}");
            assert_eq!(decoded(&word).as_deref(), Some(text));
        }
    }
}
