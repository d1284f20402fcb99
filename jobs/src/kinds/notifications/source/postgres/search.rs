//! The search for cells with work, in bounded steps, however many rows there are and however many wait for a person.
//!
//! A look walks along the index of unsent rows: from one cell with work to the next, and row by row past those that the side
//! table holds back. It begins behind rows that are known to be held back, so that new ones are found at once whatever lies
//! before them. A second walk goes through those in portions, one for each look: a row that was committed late among them, or
//! that a person has freed, is found when its turn has come. What waits for its time is found by that time.
//!
//! # Invariants
//! - L1 A look examines a bounded number of rows.           (a_look_takes_few_steps_past_many_rows_that_are_held_back)
//! - L2 Every unsent row is examined again and again.       (the_sweep_comes_to_every_row_before_the_frontier)
//! - L3 Items whose rows are gone, or were marked by another hand, hide none whose time has come.
//!   (items_without_rows_hide_none_whose_time_has_come)
//! - L4 A cell is told with the first of its rows that were seen, in the order of the database.
//!   (an_ordered_bucket_of_texts_is_sent_behind_however_many_rows_at_rest)

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::types::Type;

use super::{
    session::{Param, Session, get},
    side::count,
    table::{IdType, Table},
};
use crate::notifications::{
    cell::{ItemId, Layout},
    source::Result,
};

/// Where the walks are. Kept between looks, and harmless when it is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Search {
    /// All unsent rows up to this one were held back when they were seen.
    frontier: Option<ItemId>,
    /// The rows up to this one were seen again since.
    swept: Option<ItemId>,
    /// Where the walk ahead goes on, where rows of a few buckets fill what a look sees.
    ahead: Option<ItemId>,
    /// So many looks found work at the same place of the sweep.
    stayed: u32,
    /// The look before this one asked for the items that have waited longest, and not for those whose time has come last.
    asked_for_first: bool,
    /// Up to which item the side table is brought up to another division into cells; empty where none is to come.
    pub(super) brought_up: String,
}

/// What one walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Walk {
    /// Cells with work, each with the first row that was seen there.
    pub(super) cells: Vec<(i64, ItemId)>,
    /// The last of the rows that are held back before the first with work.
    held: Option<ItemId>,
    /// The last row that was examined, when the walk ended before the last row of the table.
    stopped: Option<ItemId>,
}

/// Rows that a walk from cell to cell examines, and rows that one through buckets does.
const STEPS: i64 = 2_000;
const ROWS: i64 = 10_000;
/// Looks that the sweep spends at one place where there is work.
const STAYS: u32 = 100;
/// Items whose time has come that a look asks for, and among how many it looks for those that can be sent.
const DUE: usize = 1_000;
const AMONG: i64 = 10_000;

// === impl Search ===

impl Search {
    /// Takes note of the walk behind the frontier.
    fn went_on(&mut self, walk: &Walk) {
        if let Some(held) = &walk.held {
            self.frontier = Some(held.clone());
        }
    }

    /// Takes note of the walk before it. Where there is work the next look comes again, as not all of it may be claimed now;
    /// but not for ever, as it may be work that always fails.
    fn swept(&mut self, walk: &Walk) {
        if !walk.cells.is_empty() && self.stayed < STAYS {
            self.stayed += 1;
            return;
        }
        self.stayed = 0;
        self.swept.clone_from(&walk.stopped);
    }

    /// Cells with work, at most `limit`, each with the first of its rows that were seen.
    pub(super) async fn look(
        &mut self,
        session: &Session,
        table: &Table,
        layout: Layout,
        now_ms: i64,
        limit: usize,
    ) -> Result<Vec<(i64, ItemId)>> {
        let walk = Along {
            session,
            table,
            layout,
            now_ms,
            limit,
        };
        let (from, upto) = (self.frontier.clone(), self.frontier.clone());
        let on = walk.walk(from.as_ref(), None).await?;
        self.went_on(&on);
        let mut cells = on.cells;
        // Rows of few recipients may stand before all others, and those that have one lock for all of theirs go slowly.
        if let (Layout::Key(..), Some(stopped)) = (layout, on.stopped)
            && cells.len() < limit
        {
            let from = self.ahead.take().unwrap_or(stopped);
            let ahead = walk.walk(Some(&from), None).await?;
            self.ahead = ahead.stopped;
            cells.extend(ahead.cells);
        }
        if upto.is_some() {
            let again = walk.walk(self.swept.as_ref(), upto.as_ref()).await?;
            self.swept(&again);
            cells.extend(again.cells);
            // Where there are too many for a look, of which nothing can be sent, it is one end and then the other. What is in between is
            // found by the sweep.
            self.asked_for_first = !self.asked_for_first;
            cells.extend(walk.due(self.asked_for_first).await?);
        }
        let mut cells = walk.first_of_each(cells).await?;
        cells.truncate(limit);
        Ok(cells)
    }
}

/// What all walks of a look have in common.
struct Along<'l> {
    session: &'l Session,
    table: &'l Table,
    layout: Layout,
    now_ms: i64,
    limit: usize,
}

// === impl Along ===

impl Along<'_> {
    async fn walk(&self, behind: Option<&ItemId>, upto: Option<&ItemId>) -> Result<Walk> {
        match self.layout {
            Layout::Range(size) => self.by_cells(i64::from(size.max(1)), behind, upto).await,
            Layout::Hash(_) | Layout::Opaque(_) | Layout::Key(..) => {
                match self.table.sql_bucket(self.layout) {
                    Some(bucket) => self.by_rows(&bucket, behind, upto).await,
                    // Rows of a column that this replica is not told of are left to those that are.
                    None => Ok(Walk::default()),
                }
            }
        }
    }

    /// From the first row with work of a cell to the next cell. Each step is one entry into the index of unsent rows, and one
    /// into the side table.
    async fn by_cells(
        &self,
        size: i64,
        behind: Option<&ItemId>,
        upto: Option<&ItemId>,
    ) -> Result<Walk> {
        let number = |id: Option<&ItemId>, otherwise| match id {
            Some(ItemId::Int(id)) => *id,
            _ => otherwise,
        };
        let Some(first) = number(behind, i64::MIN).checked_add(i64::from(behind.is_some())) else {
            return Ok(Walk::default());
        };
        let table = self.table;
        let (id, read, held) = (&table.sql_id, table.sql_read_id(), table.sql_held());
        let sql = format!(
            "WITH RECURSIVE walk (step, found, id, held, next) AS (
                 SELECT 0, 0, NULL::bigint, true, $3::bigint
                 UNION ALL
                 SELECT w.step + 1, w.found + (NOT coalesce(f.held, true))::int, f.id, f.held,
                     CASE WHEN f.held AND f.id < 9223372036854775807 THEN f.id + 1
                          WHEN NOT f.held AND f.id <= 9223372036854775807 - $4::bigint
                          THEN f.id + ($4 - (f.id % $4 + $4) % $4) END
                 FROM walk AS w LEFT JOIN LATERAL (
                     SELECT {read} AS id, {held} AS held FROM {rows}
                     WHERE n.{sent} IS NULL AND n.{id} >= w.next AND n.{id} <= $5 ORDER BY n.{id} LIMIT 1) AS f ON true
                 WHERE w.next IS NOT NULL AND w.step < $6 AND w.found < $7)
             SELECT id, held FROM walk WHERE id IS NOT NULL ORDER BY step",
            rows = table.sql_rows,
            sent = table.sql_sent_at,
        );
        let (last, limit) = (number(upto, i64::MAX), count(self.limit));
        let found = self
            .session
            .query(
                &sql,
                &self.params(&[
                    (&first, Type::INT8),
                    (&size, Type::INT8),
                    (&last, Type::INT8),
                    (&STEPS, Type::INT8),
                    (&limit, Type::INT8),
                ]),
            )
            .await?;
        let mut walk = Walk::default();
        for row in &found {
            let id = ItemId::Int(get(row, 0)?);
            let held: bool = get(row, 1)?;
            match self.layout.cell_of(&id).filter(|_| !held) {
                Some(cell) => walk.cells.push((cell, id.clone())),
                None if walk.cells.is_empty() => walk.held = Some(id.clone()),
                None => {}
            }
            walk.stopped = Some(id);
        }
        if count(found.len()) < STEPS && walk.cells.len() < self.limit {
            walk.stopped = None;
        }
        Ok(walk)
    }

    /// Through the next rows, in the order of their ids: which buckets have work.
    async fn by_rows(
        &self,
        bucket: &str,
        behind: Option<&ItemId>,
        upto: Option<&ItemId>,
    ) -> Result<Walk> {
        let table = self.table;
        let (id, written_as) = (&table.sql_id, table.id.written_as());
        let above = behind.map_or(String::new(), |_| format!("AND n.{id} > $3::{written_as}"));
        let below = upto.map_or(String::new(), |_| {
            let at = if behind.is_some() { 4 } else { 3 };
            format!("AND n.{id} <= ${at}::{written_as}")
        });
        let sql = format!(
            "WITH w AS MATERIALIZED (
                 SELECT n.{id} AS id, {bucket} AS bucket, {held} AS held FROM {rows}
                 WHERE n.{sent} IS NULL AND n.{id} IS NOT NULL {above} {below} ORDER BY n.{id} LIMIT {ROWS}),
             r AS (SELECT id, bucket, held, row_number() OVER (ORDER BY id) AS place,
                       row_number() OVER (PARTITION BY bucket, held ORDER BY id) AS of_bucket FROM w)
             SELECT id::{read_as}, bucket, held, (SELECT count(*) FROM w) FROM r
             WHERE (NOT held AND of_bucket = 1) OR place = (SELECT count(*) FROM w)
                 OR place = (SELECT min(place) - 1 FROM r WHERE NOT held)
             ORDER BY place",
            held = table.sql_held(),
            rows = table.sql_rows,
            sent = table.sql_sent_at,
            read_as = table.id.read_as(),
        );
        let (behind, upto) = (
            behind.map(ToString::to_string),
            upto.map(ToString::to_string),
        );
        let places = [&behind, &upto].into_iter().flatten();
        let places: Vec<Param<'_>> = places.map(|text| (text as _, Type::TEXT)).collect();
        let found = self.session.query(&sql, &self.params(&places)).await?;
        let mut walk = Walk::default();
        for row in &found {
            let id = table.id.get(row, 0)?;
            let (bucket, held, all): (i64, bool, i64) = (get(row, 1)?, get(row, 2)?, get(row, 3)?);
            if !held && !walk.cells.iter().any(|(known, _)| *known == bucket) {
                walk.cells.push((bucket, id.clone()));
            } else if held && walk.cells.is_empty() {
                walk.held = Some(id.clone());
            }
            walk.stopped = (all >= ROWS).then_some(id);
        }
        walk.cells.truncate(self.limit);
        Ok(walk)
    }

    /// Cells of items that waited for their time, which has come: of those that have waited longest, or of those whose time has come last.
    async fn due(&self, first: bool) -> Result<Vec<(i64, ItemId)>> {
        let table = self.table;
        let bucket = match (self.layout, table.sql_bucket(self.layout)) {
            (Layout::Range(_), _) => "0::bigint".to_owned(),
            (_, Some(bucket)) => bucket,
            (_, None) => return Ok(Vec::new()),
        };
        let goes = match &table.order {
            None => format!("NOT {}", table.sql_waits()),
            // What a dead sender had begun may stand behind a row that waits for a person: nothing can be done with it, and it must
            // not take the place of what can be sent.
            Some(_) => format!("NOT {}", table.sql_held()),
        };
        let sql = format!(
            "SELECT {read}, {bucket} FROM (
                 SELECT d.item, d.number, d.not_before, d.digest FROM {delivery} AS d
                 WHERE d.source = $1 AND d.state IN ('retry', 'in_doubt') AND d.not_before <= $2
                 ORDER BY d.not_before {towards} LIMIT {AMONG}) AS d
             JOIN {rows} ON n.{id} = {item} AND n.{sent} IS NULL
             WHERE {goes} ORDER BY d.not_before LIMIT $3",
            read = table.sql_read_id(),
            delivery = table.delivery,
            towards = if first { "ASC" } else { "DESC" },
            rows = table.sql_rows,
            id = table.sql_id,
            item = table.sql_id_of_item(),
            sent = table.sql_sent_at,
        );
        let most = count(DUE);
        let found = self
            .session
            .query(&sql, &self.params(&[(&most, Type::INT8)]))
            .await?;
        let mut cells = Vec::new();
        for row in &found {
            let id = table.id.get(row, 0)?;
            let cell = match self.layout {
                Layout::Range(_) => self.layout.cell_of(&id),
                _ => Some(get(row, 1)?),
            };
            cells.extend(cell.map(|cell| (cell, id)));
        }
        Ok(cells)
    }

    /// Each cell once, with the first of its rows.
    async fn first_of_each(&self, found: Vec<(i64, ItemId)>) -> Result<Vec<(i64, ItemId)>> {
        let mut cells: BTreeMap<i64, BTreeSet<ItemId>> = BTreeMap::new();
        for (cell, id) in found {
            cells.entry(cell).or_default().insert(id);
        }
        let several = cells.values().filter(|ids| ids.len() > 1).flatten();
        let places = match self.table.id {
            IdType::Text => self.places(several.cloned().collect()).await?,
            IdType::Int | IdType::Uuid => BTreeMap::new(),
        };
        let place = |id: &ItemId| places.get(id).copied().unwrap_or(usize::MAX);
        let first = |(cell, ids): (i64, BTreeSet<ItemId>)| {
            let first = ids.into_iter().min_by_key(place)?;
            Some((cell, first))
        };
        Ok(cells.into_iter().filter_map(first).collect())
    }

    /// The order of texts is that of the column's collation, which only the database knows: where these rows stand in it.
    async fn places(&self, ids: Vec<ItemId>) -> Result<BTreeMap<ItemId, usize>> {
        let table = self.table;
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let sql = format!(
            "SELECT {read} FROM {rows} WHERE n.{id} = {these} ORDER BY n.{id}",
            read = table.sql_read_id(),
            rows = table.sql_rows,
            id = table.sql_id,
            these = table.sql_any(1),
        );
        let ids = table.id.many(&ids);
        let found = self
            .session
            .query(&sql, &[(&*ids, table.id.array())])
            .await?;
        let ids = found.iter().map(|row| table.id.get(row, 0));
        let places = ids.zip(0..).map(|(id, place)| Ok((id?, place)));
        places.collect()
    }

    fn params<'p>(&'p self, more: &[Param<'p>]) -> Vec<Param<'p>> {
        let mut params: Vec<Param<'p>> =
            vec![(&self.table.source, Type::TEXT), (&self.now_ms, Type::INT8)];
        params.extend_from_slice(more);
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(held: Option<i64>, stopped: Option<i64>) -> Walk {
        Walk {
            cells: Vec::new(),
            held: held.map(ItemId::Int),
            stopped: stopped.map(ItemId::Int),
        }
    }

    #[test]
    fn the_frontier_moves_past_what_is_held_back_and_never_returns() {
        let mut search = Search::default();
        search.went_on(&walk(None, None));
        assert_eq!(search.frontier, None, "there is work before all else");
        search.went_on(&walk(Some(17), Some(17)));
        search.went_on(&walk(None, None));
        assert_eq!(search.frontier, Some(ItemId::Int(17)));
    }

    #[test]
    fn the_sweep_comes_to_every_row_before_the_frontier() {
        let mut search = Search::default();
        search.swept(&walk(Some(5), Some(5)));
        assert_eq!(search.swept, Some(ItemId::Int(5)), "goes on there");
        search.swept(&walk(Some(9), None));
        assert_eq!(search.swept, None, "begins anew");
    }

    #[test]
    fn the_sweep_stays_where_there_is_work_and_not_for_ever() {
        let mut search = Search::default();
        let found = Walk {
            cells: vec![(0, ItemId::Int(3))],
            ..walk(Some(2), Some(9))
        };
        for _ in 0..STAYS {
            search.swept(&found);
            assert_eq!(search.swept, None);
        }
        search.swept(&found);
        assert_eq!((search.swept, search.stayed), (Some(ItemId::Int(9)), 0));
    }
}
