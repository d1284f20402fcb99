//! The configuration in effect, as a file that could be loaded again once the secrets are filled in.

use std::fmt::Write;

use serde_json::Value;

use super::{Config, problem::Provenance};
use crate::secret::{redact, tells};

/// Comments begin here, unless the value is longer.
const COMMENTS_AT: usize = 44;

/// `config` as TOML without secrets; with `provenance`, a comment at each value says where it comes from.
pub(super) fn render(config: &Config, provenance: Option<&Provenance>) -> String {
    let mut config = config.clone();
    from_the_root(&mut config);
    for spec in config.jobs.values_mut() {
        mask(&mut spec.params);
    }
    let plain = match toml::to_string(&config) {
        Ok(plain) => plain,
        Err(cause) => return format!("# cannot be written as TOML: {cause}\n"),
    };
    let Some(provenance) = provenance else {
        return plain;
    };
    let mut out = String::new();
    let mut section = String::new();
    for line in plain.lines() {
        let header = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Some(header) = header.filter(|header| !header.starts_with('[')) {
            section = header.replace('"', "");
        }
        // The writer puts one key to a line, lists included; within a list of tables nothing is known.
        match line.split_once(" = ") {
            Some((key, _)) if !line.starts_with(char::is_whitespace) => {
                let key = format!("{section}.{}", key.trim_matches('"'));
                let _ = writeln!(out, "{line:<COMMENTS_AT$}  # {}", provenance.of(&key));
            }
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

/// A relative path would begin in the folder of the file that this is written to.
fn from_the_root(config: &mut Config) {
    let locks = &mut config.locks;
    let files = [&mut locks.redis.tls, &mut locks.etcd.tls];
    let files = files.map(|tls| [&mut tls.ca, &mut tls.cert, &mut tls.key]);
    let paths = files.into_iter().flatten().filter_map(Option::as_mut);
    for path in paths.chain([&mut locks.embedded.path]) {
        if let Ok(whole) = std::path::absolute(&*path) {
            *path = whole;
        }
    }
}

/// Parameters are the jobs' own business: what looks like a secret there is masked. Values that TOML cannot write go.
fn mask(value: &mut Value) {
    match value {
        Value::Object(table) => {
            table.retain(|_, inner| !inner.is_null());
            for (key, inner) in table {
                // A file that holds a secret is none itself.
                if key.ends_with("_file") || key.ends_with("_files") {
                    continue;
                }
                if key == "command" {
                    mask_arguments(inner);
                } else if key == "env" && inner.is_object() {
                    mask_all(inner);
                } else if (key == "body" || key != "key" && tells(key))
                    && (inner.is_string() || inner.is_array())
                {
                    *inner = Value::String("***".to_owned());
                } else {
                    mask(inner);
                }
            }
        }
        Value::Array(list) => {
            list.retain(|inner| !inner.is_null());
            list.iter_mut().for_each(mask);
        }
        Value::String(text) if authorizes(text) => *text = "***".to_owned(),
        Value::String(text) if text.contains("://") => *text = redact(text),
        _ => {}
    }
}

/// Whatever a program is given may be a secret; which program it is, is none.
fn mask_arguments(command: &mut Value) {
    let Value::Array(parts) = command else {
        return mask(command);
    };
    parts.retain(|part| !part.is_null());
    parts.iter_mut().skip(1).for_each(mask_all);
}

fn mask_all(value: &mut Value) {
    match value {
        Value::Object(table) => table.values_mut().for_each(mask_all),
        other => *other = Value::String("***".to_owned()),
    }
}

/// Whether this is what a header for credentials holds, whatever its name.
fn authorizes(text: &str) -> bool {
    let scheme = text.split_once(' ').map_or("", |(scheme, _)| scheme);
    ["basic", "bearer"].contains(&scheme.to_ascii_lowercase().as_str())
}
