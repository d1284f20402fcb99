//! The tag in an owner value: which process wrote it. The random part alone excludes others; the tag is for people.

/// Between the random part of an owner value and its tag.
const TAGGED: char = '.';

/// Whether this can be a tag: 1 to 32 letters, digits, hyphens and underscores.
pub(crate) fn is_tag(tag: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=32).contains(&tag.len()) && tag.chars().all(plain)
}

/// An owner value of a process with this tag.
pub(crate) fn tagged(random: String, tag: Option<&str>) -> String {
    match tag {
        Some(tag) => format!("{random}{TAGGED}{tag}"),
        None => random,
    }
}

/// The tag in an owner value; `None` without one, as in those of other Redlock clients.
#[doc(hidden)] // for the worker
pub fn tag_of(owner: &str) -> Option<&str> {
    let (random, tag) = owner.split_once(TAGGED)?;
    let random = random.len() == 32 && random.bytes().all(|b| b.is_ascii_hexdigit());
    (random && is_tag(tag)).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chance;

    #[test]
    fn an_owner_value_tells_its_process_and_a_foreign_one_none() {
        let random = Chance::seeded(1).id();
        let owner = tagged(random.clone(), Some("1f2e"));
        assert_eq!(tag_of(&owner), Some("1f2e"));
        assert_eq!(tag_of(&random), None);
        let spaced = format!("{random}.a b");
        let empty = format!("{random}.");
        for foreign in ["", ".x", "abc.1f2e", &spaced, &empty] {
            assert_eq!(tag_of(foreign), None, "{foreign}");
        }
    }
}
