//! `locks`: every lock, as the store shows it.

use super::super::{
    ask::{Limits, ask, place, refuse_nowhere},
    failure::Failure,
    output::print_as,
    table::Table,
};
use crate::{config::Config, fleet::status::LockStatus};

pub(super) fn list(config: &Config, prefix: &str, json: bool) -> Result<(), Failure> {
    refuse_nowhere(config, json, &Vec::<LockStatus>::new())?;
    let rows = ask(config, Limits::VIEW, |fleet| async move {
        fleet.locks(prefix).await
    })?;
    print_as(json, &rows, || match rows.is_empty() {
        true => format!("no locks in {}", place(config)),
        false => show(&rows),
    })
}

pub(in crate::cli) fn show(rows: &[LockStatus]) -> String {
    let cells = |row: &LockStatus| {
        let state = match row {
            row if row.held => "held",
            row if row.released => "released",
            // It stands on too few of the nodes that answered: of a dead holder, or of one that others cannot see.
            row if row.remaining_ms.is_some() => "minority",
            _ => "free",
        };
        let holder = row.holder.as_ref().map(ToString::to_string);
        let remaining = row.remaining_ms.map(|ms| format!("{ms} ms"));
        [
            row.key.clone(),
            state.to_owned(),
            row.token.0.to_string(),
            remaining.unwrap_or_default(),
            holder.unwrap_or_default(),
            row.owner.clone(),
        ]
    };
    let header = "KEY | STATE | TOKEN | REMAINING | HOLDER | OWNER";
    Table::text(header, rows.iter().map(cells))
}
