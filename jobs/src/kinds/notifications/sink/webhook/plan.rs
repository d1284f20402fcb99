//! What a webhook needs of the parameters, read and found right.

use std::path::PathBuf;

use reqwest::Url;
use watchkeeper::config::Findings;

use super::{secrets::read_all, signature::Keys};
use crate::{
    kinds::kind::take,
    notifications::{
        params::NotificationsParams,
        text::{Form, Text},
    },
};

/// A webhook to be.
pub(crate) struct Plan {
    /// The address for all, or for rows without one.
    pub(super) sink: Option<Url>,
    pub(super) url_column: Option<String>,
    pub(super) allow_private: bool,
    pub(super) text: Option<Text>,
    pub(super) keys: Keys,
    pub(super) secret_files: Vec<PathBuf>,
    pub(super) secret_column: Option<String>,
    pub(super) per_host: usize,
}

// === impl Plan ===

impl Plan {
    /// The plan for what goes to `sink`, or to the addresses in a column.
    pub(crate) fn read(
        sink: Option<Url>,
        params: &NotificationsParams,
        found: &mut Findings,
    ) -> Self {
        let mut keys = Keys::default();
        for secret in &params.secrets {
            let more = Keys::parse(secret.expose());
            let more = more.and_then(|more| keys.clone().and(more));
            keys = take(found, "secrets", more).unwrap_or(keys);
        }
        // They may change; what is wrong with them now is said now.
        take(found, "secret_files", read_all(&params.secret_files));
        let shared = !params.secrets.is_empty() || !params.secret_files.is_empty();
        if params.columns.url.is_some() && params.columns.secret.is_none() && shared {
            found.warn(
                &["secrets"],
                "are known to every receiver then, and each could sign for the others",
                "name a column with a secret for each row as `columns.secret`",
            );
        }
        let text = params.body.as_ref();
        let text = text.and_then(|text| take(found, "body", body(text.expose())));
        Self {
            sink,
            url_column: params.columns.url.clone(),
            allow_private: params.allow_private,
            text,
            keys,
            secret_files: params.secret_files.clone(),
            secret_column: params.columns.secret.clone(),
            per_host: params.per_host,
        }
    }
}

/// A body that begins with `{` or `[` is JSON.
fn body(text: &str) -> Result<Text, String> {
    // `${` is the beginning of a placeholder, and does not begin with `{`.
    let form = match text.trim_start().starts_with(['{', '[']) {
        true => Form::Json,
        false => Form::Plain,
    };
    Text::parse(text, form)
}
