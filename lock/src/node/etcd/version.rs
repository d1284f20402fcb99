//! Which versions of etcd serve.

/// The oldest one: its gateway is the first at `/v3/`, where everything is asked.
const OLDEST: (u64, u64) = (3, 4);

/// What is wrong with this version; `None` where it serves, and where the text is no version at all.
pub(super) fn too_old(found: &str) -> Option<String> {
    let mut numbers = found.split('.').map(|number| number.parse::<u64>().ok());
    let version = (numbers.next()??, numbers.next()??);
    let (major, minor) = OLDEST;
    // Whoever answers may say what it likes.
    let shown: String = found.chars().take(40).collect();
    (version < OLDEST).then(|| format!("etcd {shown}, where {major}.{minor} or later is needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_too_old_by_its_first_two_numbers() {
        for good in ["3.4.0", "3.4", "3.10.1", "3.6.0-rc.1", "4.0.0"] {
            assert_eq!(too_old(good), None, "{good}");
        }
        for old in ["3.3.27", "3.3.0+git", "2.9.9", "3.0"] {
            let why = too_old(old).unwrap();
            let said = format!("etcd {old}, where 3.4 or later is needed");
            assert_eq!(why, said);
        }
        for nonsense in ["", "3", "three.4", "not_decided", "-1.2", "v3.3.1"] {
            assert_eq!(too_old(nonsense), None, "{nonsense}");
        }
    }
}
