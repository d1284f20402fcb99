//! The rules of the protocol, each with a switch.

/// One rule. With all of them nothing goes wrong; the tests switch off one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A lease counts from before its round's first byte, and a round that took a ttl has lost.
    R3Validity,
    /// Votes are summed within one round, under an owner value of its own.
    R4OneRound,
    /// A lost attempt is undone on all nodes, also where no answer came.
    R5Undo,
    /// An extension counts only if the *old* deadline has not passed when its round completes.
    R8OldDeadline,
    /// A node is no vote for an extension while a foreign key stands on it.
    R8NoForeignKey,
    /// An extension writes anew what is not ours only where an acquire might.
    R9Heal,
    /// What an extension writes anew counts from the next round on.
    R9NextRound,
    /// A released record is never revived.
    R9NoRevival,
    /// Our own belief ends before the release leaves.
    R11BeliefFirst,
    /// A grant raises the node's counter.
    T1RaiseCounter,
    /// A grant is above the largest token that its client has seen.
    T1Floor,
    /// Where the grants differ, the token is confirmed before it is believed.
    T2Confirm,
    /// A node that granted this attempt a larger number answers a confirm with it.
    T2GrantCheck,
    /// A confirm needs a majority of the *configured* nodes, not of those that granted.
    T2Configured,
    /// Extensions raise counters to the token.
    T3Extend,
    /// The node's counter outlives a lock's record.
    T4NodeCounter,
    /// A node remembers who was released on it, also when the release came before what it releases.
    N4Remembered,
    /// A release touches only what its owner wrote.
    N6CompareOwner,
    /// A node that lost its memory, or shows an older one, does not vote before it is admitted.
    G1Marker,
    /// It is watched for `max_ttl` before it is admitted.
    G2Watch,
    /// Its counter is raised to what is read *after* that watch.
    G2ReadAfter,
    /// ... on at least N - q + 1 other admitted nodes.
    G2MergeMajority,
    /// The record that the caller watched is compared where it is replaced.
    O1Expected,
    /// A watch lasts the record's whole ttl.
    O2FullTtl,
    /// A watch begins when the reply has arrived, not when the question left.
    O2FromReply,
    /// Who is known to be over need not be watched.
    O2KnownOver,
    /// Only a release proves that an owner is over: silence proves nothing.
    O2NotBySilence,
    /// A failed attempt marks its record released.
    O3MarkReleased,
    /// A round that is not newer than the record's changes nothing.
    O5Seq,
    /// A foreign client's key is left alone.
    O6NoForeign,
    /// A key of ours that outlives max_ttl (its node's clock went back) is clamped to it.
    O6Clamp,
    /// ... to max_ttl, not to the shorter ttl of the client that was refused.
    O6ClampLongest,
    /// A watch lasts the ttl that the *record* names, not that of the watching client.
    O2RecordTtl,
    /// A node that lost its memory is watched for the longest ttl of all.
    G2LongestTtl,
    /// A `try` sits out an orphan: it watches a record whose holder has gone for its ttl, instead of leaving at once.
    O4SitOut,
    /// `locks break` marks the record broken, and remembers that its owner is over.
    BreakMarks,
    /// What is broken is not released: no client takes it before its holder has let go or it was watched for its ttl.
    N7BrokenIsWatched,
    /// A break leaves the key to run out.
    N7KeyStays,
    /// A short claim that is gone is not written anew by an extension.
    ClaimNotHealed,
    /// A short claim shares its owner's grant only with those of the same call; the nodes share it with all of the attempt.
    ClaimGrantIsFresh,
    /// A verification does not count a node whose record is of another incarnation.
    V1Named,
    /// ... nor one that shows the lease released or broken.
    V1Broken,
}

/// Which rules hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules(Option<Rule>);

// === impl Rules ===

impl Rules {
    pub(crate) const ALL: Self = Self(None);

    pub(crate) const fn without(rule: Rule) -> Self {
        Self(Some(rule))
    }

    pub(crate) fn has(self, rule: Rule) -> bool {
        self.0 != Some(rule)
    }
}
