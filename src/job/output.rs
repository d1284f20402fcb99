//! How much of what a run leaves to read is kept: the beginning and the end.

/// Bytes of a run's output that are kept, the line about what was left out included.
pub const MAX_OUTPUT: usize = 8 * 1024;

/// Room for the line about what was left out.
const LINE: usize = 64;

/// `text` as it is kept: whole when it is short enough, else its beginning and its end, with a line between them that
/// says how many bytes were left out. Never cuts a character.
pub(crate) fn bounded(text: String) -> String {
    cut(text, MAX_OUTPUT)
}

/// The same for another limit.
pub(crate) fn cut(text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let side = limit.saturating_sub(LINE) / 2;
    let head = &text[..boundary_before(&text, side)];
    let tail = &text[boundary_after(&text, text.len() - side)..];
    let left_out = text.len() - head.len() - tail.len();
    format!("{head}\n... {left_out} bytes left out ...\n{tail}")
}

fn boundary_before(text: &str, at: usize) -> usize {
    let place = (0..=at).rev().find(|place| text.is_char_boundary(*place));
    place.unwrap_or(0)
}

fn boundary_after(text: &str, at: usize) -> usize {
    let place = (at..text.len()).find(|place| text.is_char_boundary(*place));
    place.unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_output_is_kept_as_it_is() {
        for text in ["", "done\n", &"x".repeat(MAX_OUTPUT)] {
            assert_eq!(bounded(text.to_owned()), text);
        }
    }

    #[test]
    fn of_long_output_the_beginning_and_the_end_are_kept() {
        let text = format!("first{}last", "x".repeat(100_000));
        let kept = bounded(text.clone());
        assert!(kept.len() <= MAX_OUTPUT, "{}", kept.len());
        assert!(kept.starts_with("firstxxx") && kept.ends_with("xxxlast"));
        let line = kept.lines().nth(1).unwrap();
        let left_out: usize = line.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(line, format!("... {left_out} bytes left out ..."));
        let kept_of_it = kept.len() - line.len() - 2;
        assert_eq!(kept_of_it + left_out, text.len());
    }

    #[test]
    fn no_character_is_cut() {
        // Every shift of four-byte characters against both cuts, and one byte more than fits.
        for shift in 0..4 {
            let text = "a".repeat(shift) + &"\u{1f980}".repeat(3000);
            let kept = bounded(text);
            assert!(kept.len() <= MAX_OUTPUT);
            let (head, tail) = kept.split_once("\n... ").unwrap();
            let (_, tail) = tail.split_once(" ...\n").unwrap();
            assert!(
                head.trim_start_matches('a')
                    .chars()
                    .all(|c| c == '\u{1f980}')
            );
            assert!(tail.chars().all(|c| c == '\u{1f980}'));
        }
        let kept = bounded("x".repeat(MAX_OUTPUT + 1));
        assert!(kept.len() <= MAX_OUTPUT && kept.contains(" bytes left out ..."));
    }

    #[test]
    fn the_last_output_of_a_run_counts() {
        let clock = crate::clock::Clock::system();
        let facts = crate::job::RunFacts {
            job: "job".to_owned(),
            id: String::new(),
            tick: clock.wall(),
            attempt: 1,
            replica: String::new(),
            batch: None,
            shard: 0,
            shards: 1,
            params: serde_json::Value::Null,
            checkpoint: None,
        };
        let (never, now) = (crate::clock::Moment::NEVER, std::time::Duration::ZERO);
        let run = crate::Run::new(facts, clock, None, now, never);
        assert_eq!(run.kept_output(), None);
        run.keep_output("half way");
        run.keep_output("x".repeat(MAX_OUTPUT * 2));
        assert!(
            run.kept_output()
                .is_some_and(|kept| kept.len() <= MAX_OUTPUT)
        );
        run.clone().keep_output("done");
        assert_eq!(run.kept_output().as_deref(), Some("done"));
    }
}
