//! In which order a replica asks for batches: its own first, so that replicas seldom meet.

use crate::hash::liking;

/// Rendezvous order (Thaler and Ravishankar, 1998): each replica sorts the batches by a hash of both names.
pub(crate) fn rendezvous(replica: &str, batches: &mut [String]) {
    batches.sort_by_cached_key(|batch| liking(replica, batch));
}

/// Whether this replica begins with the batch before any of the `others`.
pub(crate) fn is_first(replica: &str, others: &[String], batch: &str) -> bool {
    let mine = liking(replica, batch);
    others.iter().all(|other| mine < liking(other, batch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_begin_with_different_batches_and_agree_with_themselves() {
        let batches: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        let firsts = ["a", "b", "c"].map(|replica| {
            let (mut one, mut two) = (batches.clone(), batches.clone());
            two.reverse();
            rendezvous(replica, &mut one);
            rendezvous(replica, &mut two);
            assert_eq!(one, two);
            one[..20].to_vec()
        });
        let shared = firsts[0].iter().filter(|b| firsts[1].contains(b)).count();
        assert!(shared < 10, "{shared} of 20 first choices are shared");
    }
}
