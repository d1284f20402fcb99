//! Text of others, with what a terminal would obey written out: the module `terminal` says why. Pure.

use std::{borrow::Cow, fmt::Write};

/// `text` with what a terminal would obey written out; lines and tabs stay.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_obeyed(c) && c != '\n' && c != '\t')
}

/// `text` with the characters written out that are `wrong`.
pub(crate) fn escape(text: &str, wrong: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&wrong) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match wrong(c) {
            true => push_escaped(&mut shown, c),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// As JSON writes it.
pub(crate) fn push_escaped(to: &mut String, c: char) {
    match c {
        '\n' => to.push_str("\\n"),
        '\r' => to.push_str("\\r"),
        '\t' => to.push_str("\\t"),
        c => {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                // Writing to a text cannot fail.
                let _ = write!(to, "\\u{unit:04x}");
            }
        }
    }
}

/// What a terminal acts on, what turns the direction of the text around it, and what is not seen at all.
pub(crate) fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}
