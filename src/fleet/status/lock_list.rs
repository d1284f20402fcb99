//! Every lock as its nodes show it: their views put together by key. Pure.

use std::collections::BTreeMap;

use super::{LockStatus, locks::tally};
use crate::node::View;

// === impl LockStatus ===

impl LockStatus {
    /// What the nodes show of their locks, by key: one list of views for each node that answered, of `configured`
    /// nodes.
    #[must_use]
    pub(crate) fn from_views(answers: &[Vec<View>], configured: usize) -> Vec<Self> {
        let mut by_key: BTreeMap<&str, Vec<&View>> = BTreeMap::new();
        for view in answers.iter().flatten() {
            by_key.entry(&view.key).or_default().push(view);
        }
        let majority = configured / 2 + 1;
        by_key.values().map(|views| lock(views, majority)).collect()
    }
}

/// `views` is never empty.
fn lock(views: &[&View], majority: usize) -> LockStatus {
    let shown_on = |owner: &str| {
        let shown = views
            .iter()
            .filter(move |v| v.holder.as_deref() == Some(owner));
        shown.copied().collect::<Vec<_>>()
    };
    // The owner in most keys; in none, the owner of the latest lease.
    let holders = views.iter().filter_map(|v| v.holder.as_deref());
    let latest = || views.iter().max_by_key(|v| (v.token, &v.owner));
    let owner = holders
        .max_by_key(|owner| (shown_on(owner).len(), *owner))
        .or_else(|| latest().and_then(|v| v.owner.as_deref()))
        .unwrap_or_default();
    let keys = shown_on(owner);
    let held = keys.len() >= majority;
    let left = keys.iter().filter_map(|v| v.remaining_ms);
    let remaining_ms = tally(left, if held { majority } else { 1 });
    let theirs: Vec<_> = views
        .iter()
        .filter(|v| v.holder.as_deref().or(v.owner.as_deref()) == Some(owner))
        .collect();
    LockStatus {
        key: views.first().map(|v| v.key.clone()).unwrap_or_default(),
        owner: owner.to_owned(),
        token: theirs.iter().map(|v| v.token).max().unwrap_or_default(),
        remaining_ms,
        held,
        nodes: keys.len(),
        released: keys.is_empty() && theirs.iter().any(|v| v.released),
        replica: None,
        holder: None,
    }
}
