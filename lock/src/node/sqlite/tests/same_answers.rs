//! The embedded file and the node in memory give the same answers to the same calls at the same times.

use proptest::prelude::*;

use super::{AHEAD, ByHand, folder, store};
use crate::node::{Call, NodeMs, calls::step, memory::NodeState};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_file_answers_as_memory_does(steps in prop::collection::vec(step(), 1..40)) {
        let (folder, time) = (folder(), ByHand::at(1_000));
        let mut file = store(&folder, &time, "boot");
        file.skip_the_disk();
        let mut memory = NodeState::default();
        for (wait, not_after, ops) in steps {
            time.forward(wait);
            let (now, wall) = (time.ms(), time.ms().cast_signed() + AHEAD);
            let not_after = not_after.map(|by| NodeMs(now.saturating_add_signed(by)));
            let call = Call { not_after, ops };
            let expected = memory.apply(NodeMs(now), wall, &call);
            prop_assert_eq!(file.call(&call), expected, "{:?}", call);
            let told: Vec<_> = file.releases(0).unwrap().into_iter().map(|(_, news)| news).collect();
            // The file forgets releases after a while, memory when asked.
            let kept = memory.clone().take_announced();
            prop_assert!(kept.ends_with(&told), "{:?} {:?}", kept, told);
        }
    }
}
