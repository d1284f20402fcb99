//! What was wrong, in the words of the reader of a configuration, and what was meant.

/// The candidate with the fewest typing errors away from `word`, if that is near enough.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    let near = candidates
        .map(|candidate| (distance(word, candidate), candidate))
        .min()?;
    (near.0 <= limit).then_some(near.1)
}

/// Serde's message without the value it quotes.
pub(super) fn without_value(message: &str) -> String {
    match message.rsplit_once(", expected ") {
        Some((_, wanted)) if message.starts_with("invalid ") => {
            format!("this must be {}", in_words(wanted))
        }
        _ if message.starts_with("unknown variant ") => {
            let choices = message
                .split_once("expected ")
                .map_or("", |(_, choices)| choices);
            format!("this is not {}", choices.replace('`', ""))
        }
        // What a setting says of its own value quotes it.
        _ if message.starts_with('"') => "this does not fit here".to_owned(),
        _ => message.replace('`', "\""),
    }
}

/// Serde's message in our words, with a suggestion for a misspelt choice.
pub(super) fn explain(message: &str) -> String {
    let plain = message.replace('`', "\"");
    if let Some((found, wanted)) = plain.rsplit_once(", expected ")
        && let Some((_, found)) = found.split_once(": ")
    {
        return format!("{found} is not {}", in_words(wanted));
    }
    let Some((word, choices)) = plain
        .strip_prefix("unknown variant \"")
        .and_then(|rest| rest.split_once('"'))
    else {
        return plain;
    };
    let choices: Vec<&str> = choices.split('"').skip(1).step_by(2).collect();
    let near = nearest(word, choices.iter().copied());
    let hint = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
    format!("\"{word}\" is not one of {}{hint}", choices.join(", "))
}

/// What Rust calls a type, in the words of the author of a configuration.
fn in_words(wanted: &str) -> &str {
    match wanted {
        "usize" | "i32" | "u32" | "u64" => "a whole number",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "path string" => "a text in quotes",
        "a sequence" => "a list",
        "a map" => "a table",
        wanted if wanted.starts_with("struct ") => "a table",
        wanted => wanted,
    }
}

/// Typing errors between two words: letters added, left out, changed, or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
