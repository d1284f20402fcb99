//! `locks`: every lock, as the store shows it.

use super::super::{
    ask::{Limits, ask, no_store, nobody_was_here, place},
    failure::Failure,
    output::{print, print_json},
    table::Table,
};
use crate::{config::Config, fleet::status::LockStatus};

pub(super) fn list(config: &Config, prefix: &str, json: bool) -> Result<(), Failure> {
    if nobody_was_here(config) {
        if json {
            print_json(&Vec::<LockStatus>::new())?;
        }
        return Err(no_store(config));
    }
    let rows = ask(config, Limits::VIEW, |fleet| async move {
        fleet.locks(prefix).await
    })?;
    if json {
        return print_json(&rows);
    }
    if rows.is_empty() {
        print(&format!("no locks in {}", place(config)));
    } else {
        print(&show(&rows));
    }
    Ok(())
}

pub(in crate::cli) fn show(rows: &[LockStatus]) -> String {
    let mut table = Table::new(&["KEY", "STATE", "TOKEN", "REMAINING", "HOLDER", "OWNER"]);
    for row in rows {
        let state = match row {
            row if row.held => "held",
            row if row.released => "released",
            // It stands on too few of the nodes that answered: of a dead holder, or of one that others cannot see.
            row if row.remaining_ms.is_some() => "minority",
            _ => "free",
        };
        let remaining = row.remaining_ms.map(|ms| format!("{ms} ms"));
        table.row([
            row.key.clone(),
            state.to_owned(),
            row.token.0.to_string(),
            remaining.unwrap_or_default(),
            row.holder
                .as_ref()
                .map(|holder| holder.to_string())
                .unwrap_or_default(),
            row.owner.clone(),
        ]);
    }
    table.to_string()
}
