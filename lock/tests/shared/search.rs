//! Breadth-first search through every state of a machine, so that the first violation found is a shortest one.
//!
//! Of a visited state only a 64-bit hash is kept (two of ten million states collide with a chance of about 1 in 400,000),
//! and which state came before it; a trace is found by walking forward again. A machine gives one hash to states that
//! differ only in names.

use std::{
    collections::HashSet,
    fmt::Debug,
    hash::{BuildHasherDefault, Hasher},
};

/// What can be searched.
pub(crate) trait Machine {
    type State: Copy;
    type Step: Copy + PartialEq + Debug;

    fn start(&self) -> Self::State;

    /// The steps that are possible in a state.
    fn steps(&self, state: &Self::State, out: &mut Vec<Self::Step>);

    /// The state after a step, or the promise that it broke.
    fn act(&self, state: &Self::State, step: Self::Step) -> Result<Self::State, &'static str>;

    /// The promise that this state breaks.
    fn check(&self, state: &Self::State) -> Option<&'static str>;

    /// The same for states that count as one.
    fn name(&self, state: &Self::State) -> u64;

    /// A line about a step.
    fn say(&self, before: &Self::State, after: &Self::State, step: Self::Step) -> String;

    /// A line about the step that broke a promise, after which there is no state.
    fn say_last(&self, before: &Self::State, step: Self::Step) -> String {
        self.say(before, before, step)
    }
}

/// How a search ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) states: usize,
    /// The promise that was broken, and how.
    pub(crate) violation: Option<(&'static str, Vec<String>)>,
    /// Every state within the bounds was visited.
    pub(crate) complete: bool,
}

/// Searches from the state that `prefix` leads to.
///
/// # Panics
/// When a step of the prefix is not possible, or breaks a promise itself.
pub(crate) fn search<M: Machine>(machine: &M, prefix: &[M::Step], limit: usize) -> Outcome {
    let mut start = machine.start();
    let mut steps = Vec::new();
    let mut lines = Vec::new();
    for step in prefix {
        machine.steps(&start, &mut steps);
        assert!(
            steps.contains(step),
            "{step:?} is not possible after {lines:#?}"
        );
        start = match machine.act(&start, *step) {
            Ok(next) => {
                lines.push(machine.say(&start, &next, *step));
                next
            }
            Err(broken) => {
                panic!("the prefix breaks a promise: {broken}, by {step:?} after {lines:#?}")
            }
        };
    }

    let mut seen: HashSet<u64, BuildHasherDefault<Same>> = HashSet::default();
    seen.insert(machine.name(&start));
    // Which state came before, and by which step. The start has none.
    let mut parents: Vec<Option<(u32, M::Step)>> = vec![None];
    let mut layer = vec![(start, 0_u32)];
    let mut next_layer = Vec::new();
    let mut violation = None;
    'search: while !layer.is_empty() {
        for (state, id) in layer.drain(..) {
            if let Some(broken) = machine.check(&state) {
                let trace = trace(machine, start, lines, &parents, id, None);
                violation = Some((broken, trace));
                break 'search;
            }
            machine.steps(&state, &mut steps);
            for step in &steps {
                match machine.act(&state, *step) {
                    Ok(next) => {
                        if seen.insert(machine.name(&next)) {
                            next_layer.push((next, parents.len() as u32));
                            parents.push(Some((id, *step)));
                        }
                    }
                    Err(broken) => {
                        let trace = trace(machine, start, lines, &parents, id, Some(*step));
                        violation = Some((broken, trace));
                        break 'search;
                    }
                }
            }
            if parents.len() >= limit {
                break 'search;
            }
        }
        std::mem::swap(&mut layer, &mut next_layer);
    }
    Outcome {
        states: parents.len(),
        complete: violation.is_none() && parents.len() < limit,
        violation,
    }
}

/// The steps to a state in words, and the step that broke the promise.
fn trace<M: Machine>(
    machine: &M,
    start: M::State,
    mut lines: Vec<String>,
    parents: &[Option<(u32, M::Step)>],
    mut id: u32,
    last: Option<M::Step>,
) -> Vec<String> {
    let mut path = Vec::new();
    while let Some((before, step)) = parents[id as usize] {
        path.push(step);
        id = before;
    }
    let mut state = start;
    for step in path.iter().rev() {
        if let Ok(next) = machine.act(&state, *step) {
            lines.push(machine.say(&state, &next, *step));
            state = next;
        }
    }
    lines.extend(last.map(|step| machine.say_last(&state, step)));
    lines
}

// === what tests ask ===

/// Searches, and reports how many states there were and how long it took.
// The machines themselves have no clock: only this report does.
#[allow(clippy::disallowed_methods)]
pub(crate) fn timed<M: Machine>(
    name: &str,
    machine: &M,
    prefix: &[M::Step],
    limit: usize,
) -> Outcome {
    let began = std::time::Instant::now();
    let outcome = search(machine, prefix, limit);
    let took = began.elapsed().as_secs_f32();
    let steps = outcome.violation.as_ref().map(|(_, trace)| trace.len());
    let steps = steps.map(|n| format!(", violated after {n} steps"));
    let cut = if outcome.complete || steps.is_some() {
        ""
    } else {
        ", cut off"
    };
    let steps = steps.unwrap_or_default();
    println!("{name}: {} states, {took:.1} s{steps}{cut}", outcome.states);
    outcome
}

/// Every state within the bounds keeps every promise.
pub(crate) fn expect_holds<M: Machine>(name: &str, machine: &M, prefix: &[M::Step], limit: usize) {
    let outcome = timed(name, machine, prefix, limit);
    if let Some((broken, trace)) = outcome.violation {
        panic!("{name}: {broken}\n{}", numbered(&trace));
    }
    assert!(outcome.complete, "{name}: more than {limit} states");
}

/// The promise breaks, and the trace is a short one.
pub(crate) fn expect_breaks<M: Machine>(
    name: &str,
    machine: &M,
    prefix: &[M::Step],
    limit: usize,
    promise: &str,
) {
    let outcome = timed(name, machine, prefix, limit);
    let Some((broken, trace)) = outcome.violation else {
        panic!("{name}: no violation in {} states", outcome.states);
    };
    println!("{broken}\n{}", numbered(&trace));
    assert!(
        broken.starts_with(promise),
        "{name}: expected \"{promise}\", but: {broken}\n{}",
        numbered(&trace)
    );
}

fn numbered(trace: &[String]) -> String {
    let lines = trace.iter().enumerate();
    let lines: Vec<_> = lines
        .map(|(i, line)| format!("  {:>2}. {line}", i + 1))
        .collect();
    lines.join("\n")
}

// === names of states ===

/// Numbers packed into words, which are hashed as they fill.
#[derive(Default)]
pub(crate) struct Packed {
    hash: u64,
    word: u64,
    bits: u32,
}

// === impl Packed ===

impl Packed {
    pub(crate) fn put(&mut self, value: u8, bits: u32) -> &mut Self {
        debug_assert!(
            u32::from(value) < 1 << bits,
            "{value} needs more than {bits} bits"
        );
        if self.bits + bits > 64 {
            self.next();
        }
        self.word = self.word << bits | u64::from(value);
        self.bits += bits;
        self
    }

    pub(crate) fn next(&mut self) -> &mut Self {
        let word = self.word;
        (self.word, self.bits) = (0, 0);
        self.put_wide(word)
    }

    /// A round of a multiply-and-fold hash.
    pub(crate) fn put_wide(&mut self, word: u64) -> &mut Self {
        let x = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.hash = (x ^ x >> 29)
            .rotate_left(17)
            .wrapping_add(0x632b_e59b_d9b4_e019);
        self
    }

    pub(crate) fn hash(&mut self) -> u64 {
        self.next().hash
    }
}

/// For keys that are hashes already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
