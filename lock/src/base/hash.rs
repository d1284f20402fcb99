//! Hashes that are the same on every machine and in every version, unlike the standard library's: what they decide is
//! kept in stores, or agreed upon without a word.

/// FNV-1a.
#[must_use]
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let bytes = bytes.into_iter();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// How much `one` likes `other` (rendezvous hashing, Thaler and Ravishankar, 1998): a number that differs for every pair.
#[must_use]
pub fn liking(one: &str, other: &str) -> u64 {
    let hash = fnv1a(one.bytes().chain([0xff]).chain(other.bytes()));
    // Names that differ in their last letter alone would lie side by side.
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

/// For an instant of a name: as [`fnv1a`] with the whole final mix of murmur3, so that every bit is as good as any other.
#[must_use]
pub fn mixed(name: &str, instant: i128) -> u64 {
    let hash = fnv1a(name.bytes().chain([0xff]).chain(instant.to_be_bytes()));
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hash_ever_changes() {
        assert_eq!(fnv1a([]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(*b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(liking("a", "b"), 0x4248_efee_92e6_cd2e);
        assert_eq!(mixed("a", 1), 0x53cb_f91f_2482_0ea3);
    }
}
