//! How a row becomes a mail.

use lettre::{
    Address, Message,
    message::{
        Mailbox, MultiPart, SinglePart,
        header::{HeaderName, HeaderValue},
    },
};

use super::super::webhook::message_id;
use crate::notifications::{source::Item, text::Text};

/// What all mails of a job have in common.
pub(super) struct Letter {
    pub(super) from: Mailbox,
    pub(super) to: Text,
    pub(super) subject: Text,
    pub(super) text: Option<Text>,
    pub(super) html: Option<Text>,
}

/// A mail as it goes over the wire.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) from: Address,
    pub(super) to: Address,
    pub(super) text: Vec<u8>,
}

/// A larger mail is not sent.
const MOST: usize = 1_000_000;
/// By which a person finds the row.
const KEY: HeaderName = HeaderName::new_from_ascii_str("X-Entity-Ref-ID");

// === impl Letter ===

impl Letter {
    /// The mail of one row.
    ///
    /// # Errors
    /// A sentence about what this row has and a mail cannot, without the value.
    pub(super) fn write(&self, item: &Item) -> Result<Written, String> {
        let to = mailbox(&self.to.fill(&item.columns)?)
            .ok_or("the row names no recipient that could be one")?;
        let subject = self.subject.fill(&item.columns)?;
        let fill = |text: &Option<Text>| {
            text.as_ref()
                .map(|text| text.fill(&item.columns))
                .transpose()
        };
        let (plain, html) = (fill(&self.text)?, fill(&self.html)?);
        let size = [&plain, &html]
            .into_iter()
            .flatten()
            .map(String::len)
            .sum::<usize>();
        if size > MOST {
            return Err(format!(
                "its text has {size} bytes, and no more than {MOST} are sent"
            ));
        }
        let domain = self.from.email.domain();
        let message = Message::builder()
            .from(self.from.clone())
            .to(to.clone())
            .subject(subject)
            .message_id(Some(format!("<{}@{domain}>", message_id(&item.key))))
            .raw_header(HeaderValue::new(KEY, item.key.clone()));
        let message = match (plain, html) {
            (Some(plain), Some(html)) => {
                message.multipart(MultiPart::alternative_plain_html(plain, html))
            }
            (None, Some(html)) => message.singlepart(SinglePart::html(html)),
            (plain, None) => message.singlepart(SinglePart::plain(plain.unwrap_or_default())),
        };
        let message = message.map_err(|e| e.to_string())?;
        Ok(Written {
            from: self.from.email.clone(),
            to: to.email,
            text: message.formatted(),
        })
    }
}

/// One address, with or without a name.
pub(super) fn mailbox(text: &str) -> Option<Mailbox> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::notifications::{cell::ItemId, text::Form};

    fn letter() -> Letter {
        let text = |text, form| Text::parse(text, form).unwrap();
        Letter {
            from: mailbox("Shop <shop@example.org>").unwrap(),
            to: text("${to}", Form::Header),
            subject: text("Order ${n}", Form::Header),
            text: Some(text("Dear ${name}", Form::Plain)),
            html: Some(text("<p>Dear ${name}</p>", Form::Html)),
        }
    }

    fn written(columns: &Value) -> Result<Written, String> {
        letter().write(&Item {
            id: ItemId::Int(1),
            key: "d/t/1".to_owned(),
            body: serde_json::Map::new(),
            columns: columns.as_object().unwrap().clone(),
            prior: None,
            is_repeat: false,
            members: Vec::new(),
            digest: None,
        })
    }

    #[test]
    fn a_row_becomes_a_mail_with_its_key() {
        let mail =
            written(&json!({"to": "Zoë <zoe@example.com>", "n": "7 €", "name": "<b>"})).unwrap();
        assert_eq!(mail.to.to_string(), "zoe@example.com");
        let text = String::from_utf8(mail.text).unwrap();
        let id = message_id("d/t/1");
        assert!(
            text.contains(&format!("Message-ID: <{id}@example.org>\r\n")),
            "{text}"
        );
        assert!(text.contains("X-Entity-Ref-ID: d/t/1\r\n"), "{text}");
        assert!(
            text.contains("Dear <b>") && text.contains("<p>Dear &lt;b&gt;</p>"),
            "{text}"
        );
        assert!(text.is_ascii(), "{text}");
    }

    #[test]
    fn no_column_adds_a_header_or_a_recipient() {
        for (column, value) in [
            ("n", "7\r\nBcc: all@example.org"),
            ("n", "7\nX-Spam: no"),
            ("to", "a@example.com\r\nRCPT TO:<b@example.com>"),
            ("to", "a@example.com, b@example.com"),
            ("to", "a@example.com> SIZE=1\r\n"),
            ("to", "<a@example.com>,<b@example.com>"),
            ("to", "a b@example.com"),
            ("to", ""),
        ] {
            let mut row = json!({"to": "a@example.com", "n": 7, "name": "x"});
            row[column] = value.into();
            let error = written(&row).unwrap_err();
            assert!(!error.contains("example.com"), "{error}");
        }
        // In the text a line is a line, and a dot alone does not end it: the connection sees to that.
        let mail = written(
            &json!({"to": "a@example.com", "n": 7, "name": "x\r\n.\r\nRCPT TO:<b@example.com>"}),
        );
        let text = String::from_utf8(mail.unwrap().text).unwrap();
        let head = text.split("\r\n\r\n").next().unwrap();
        assert!(!head.contains("b@example.com"), "{head}");
    }

    #[test]
    fn a_text_that_is_too_large_is_told() {
        let name = "x".repeat(600_000);
        let error = written(&json!({"to": "a@example.com", "n": 7, "name": name})).unwrap_err();
        assert!(error.contains("1200017 bytes"), "{error}");
    }
}
