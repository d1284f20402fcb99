//! Names and values of headers, from the configuration or from files.

use std::path::Path;

use reqwest::header::{HeaderName, HeaderValue};

use super::template::{Destination, Facts, Template};
use crate::web::read_secret;

/// Headers that belong to the connection: a wrong one would garble the request.
const OF_THE_CONNECTION: [&str; 8] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A header of this name, unless it cannot be sent or is `taken`.
pub(super) fn header_name(
    name: &str,
    taken: impl Fn(&HeaderName) -> bool,
) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "is no name of a header; write letters, digits and `-`")?;
    if OF_THE_CONNECTION.contains(&name.as_str()) {
        return Err("belongs to the connection, which sets it itself; leave it out".to_owned());
    }
    if taken(&name) {
        return Err("stands there twice: upper and lower case are the same; keep one".to_owned());
    }
    Ok(name)
}

/// The value of a header with its placeholders.
pub(super) fn header_template(text: &str) -> Result<Template, String> {
    let template = Template::parse(text)?;
    header_value(&template.fill(&Facts::sample(), Destination::Header))
        .ok_or("holds what a header cannot carry; use ASCII letters, digits and signs")?;
    Ok(template)
}

/// ASCII without control characters; the type itself takes other bytes, which services read in different ways.
pub(super) fn header_value(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(text).ok().filter(|_| text.is_ascii())
}

/// The value of a header that stands in a file. The error names the file and never what it holds.
pub(super) fn read_header(path: &Path) -> Result<HeaderValue, String> {
    let text = read_secret(path)?;
    let mut value = header_value(&text).ok_or_else(|| {
        let shown = path.display();
        format!("{shown} holds what a header cannot carry; one line of ASCII is wanted")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_a_header_is_told_without_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("value");
        for wrong in [
            "",
            " \n",
            "hunter2\nhunter2",
            "hunter\u{fc}",
            &"hunter2".repeat(5000),
        ] {
            std::fs::write(&file, wrong).unwrap();
            let text = read_header(&file).unwrap_err();
            assert!(text.contains("value") && !text.contains("hunter"), "{text}");
        }
        assert!(
            read_header(folder.path())
                .unwrap_err()
                .contains("not a file")
        );
        std::fs::write(&file, "\n hunter2 \n").unwrap();
        let value = read_header(&file).unwrap();
        assert_eq!(value, "hunter2");
        assert!(value.is_sensitive());
    }
}
