//! The rules of layout 2, each with a switch.

/// One rule. With all of them nothing goes wrong; the tests switch off one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A1: an acquire whose own owner stands released or broken on the node is refused.
    A1OwnOver,
    /// A2: an acquire that finds itself held writes nothing, and is answered the grant that stands there.
    A2NoRewrite,
    /// E1: an extension keeps only what shows owner *and* incarnation.
    E1Incarnation,
    /// E2: an extension revives nothing: its own released or broken record refuses it.
    E2NoRevival,
    /// R9: an extension writes anew what is not its own only where an acquire might.
    R9Heal,
    /// E3: what another left standing is healed only while its counter is not above the lease's token.
    E3Counter,
    /// C1: a record of another incarnation counts together with `c`, the larger of both.
    C1OldWithC,
    /// C2: what is healed keeps the larger of the lease's token and what the node knew.
    C2HealBase,
    /// C3: a sweep raises `c` in the step that forgets the record.
    C3SweepRaises,
    /// C4: a fresh record starts above `c`.
    C4FreshFromC,
    /// T1: a grant raises the record's counter.
    T1Raise,
    /// T2: where the grants differ, the token is confirmed before it is believed.
    T2Confirm,
    /// T2: a confirm needs a majority of the *configured* nodes, not of those that granted.
    T2Configured,
    /// T2: a node that granted this attempt a larger number answers a confirm with it.
    T2GrantCheck,
    /// T2: what has ended by the node's clock is not confirmed.
    T2Living,
    /// T3: extensions raise the counter to the lease's token.
    T3Extend,
    /// N2: no acquire and no round acts a ttl after it was sent, or later.
    N2Bound,
    /// N2: at that very moment it is too late already.
    N2Exclusive,
    /// N4': a release follows its acquire, or comes when that acquire is too late.
    N4Ordered,
    /// N6: a release touches only what its owner wrote.
    N6CompareOwner,
    /// S0: a release is remembered until what was sent before it is too late.
    S0Retention,
    /// S1: a sweep compares what it read in the step that deletes.
    S1SweepCompares,
    /// S2: what is held or broken is swept only after a watch of its whole ttl.
    S2SweepWatched,
    /// G1: a node that lost its memory, or shows an older one, does not vote before it is admitted.
    G1Marker,
    /// G2: it is watched before it is admitted.
    G2Watch,
    /// G2: for the longest ttl of all.
    G2LongestTtl,
    /// G2: the counters of other nodes are read *after* that watch.
    G2ReadAfter,
    /// G2: of N - q + 1 others.
    G2Majority,
    /// G7: of each other node first the records are read, then its `c`.
    G7RecordsFirst,
    /// N7: a break marks the record of its target.
    N7Marks,
    /// A break raises the counter to the token that it takes.
    BreakRaises,
    /// B1: what is broken is watched for its ttl like what is held.
    B1Watched,
    /// B2: a break writes its mark also where nothing of its target stands.
    B2Everywhere,
    /// B3: a node that is not admitted is not told.
    B3Admitted,
    /// B4: so does a break with `now`.
    B4NowEverywhere,
    /// B5: what is broken may be taken after its watch.
    B5Taken,
    /// B6: a break with `now` breaks first, and frees only when the target's acquire is too late.
    B6Waits,
    /// W1: whatever writes over a held or broken record keeps its flag.
    W1KeepFlag,
    /// W2: a client sleeps only when N - q + 1 nodes have refused it.
    W2Enough,
    /// W2: the refusal of a node without a vote is none of them.
    W2Voters,
    /// W3: a refusal sets the flag in the same step.
    W3Atomic,
    /// W4: a sweep of what was watched announces it.
    W4SweepTells,
    /// W4: a break with `now` announces it.
    W4NowTells,
    /// W5: what is announced while an attempt is under way is remembered until it fails.
    W5Remembered,
    /// W6: a release announces it.
    W6ReleaseTells,
    /// O1: what the caller watched is compared in the step that replaces it.
    O1Expected,
    /// O2: a watch lasts the whole ttl.
    O2FullTtl,
    /// O2: a watch begins with the reply.
    O2FromReply,
    /// O2: silence proves nothing.
    O2NotBySilence,
    /// O2: a watch lasts the ttl that the record names.
    O2RecordTtl,
    /// O2: a release seen on any node counts on all.
    O2KnownOver,
    /// O3: a failed attempt is released on the nodes that granted it.
    O3MarkReleased,
    /// O4: a single try sits out an orphan.
    O4SitOut,
    /// O5: a round that is not newer than the record's changes nothing.
    O5Seq,
    /// R3: a lease counts from before its round's first byte.
    R3Validity,
    /// R4: votes are summed within one round, under an owner value of its own.
    R4OneRound,
    /// R8: an extension counts only before the old deadline.
    R8OldDeadline,
    /// R9: what an extension heals counts from the next round on.
    R9NextRound,
    /// R8: a node is no vote for an extension while a foreign key stands on it.
    R8NoForeignKey,
    /// O6: a foreign client's key is left alone.
    O6NoForeign,
    /// N7: a break leaves the raw key to run out.
    N7KeyStays,
    /// N7: a break leaves the record its end by the node's clock.
    N7EndStays,
    /// N10: what outlives every lease, because a clock went back, is cut.
    N10Clamp,
    /// N10: ... to the longest ttl, not to that of the client that was refused.
    N10Longest,
    /// V1: a client that verifies does not count a node whose record is of another incarnation.
    V1Named,
    /// V1: nor one that shows the lease released or broken.
    V1Broken,
    /// R11: belief ends before the release leaves.
    R11BeliefFirst,
}

/// Which rules hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules(u128);

// === impl Rules ===

impl Rules {
    pub(crate) const ALL: Self = Self(0);

    pub(crate) const fn without(self, rule: Rule) -> Self {
        Self(self.0 | 1 << rule as u32)
    }

    #[inline(always)]
    pub(crate) fn has(self, rule: Rule) -> bool {
        self.0 >> rule as u32 & 1 == 0
    }
}
