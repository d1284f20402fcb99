//! Cases that run on several stores: each is named by its store and its module, so that a filter finds it.

use libtest_mimic::Trial;

/// `on![masters: module::{ case }]`: these cases on `Store::masters()`. `on![postgres, postgres_pooled: …]`: on both.
macro_rules! on {
    ($one:ident, $other:ident: $($cases:tt)*) => {{
        let mut all = on![$one: $($cases)*];
        all.extend(on![$other: $($cases)*]);
        all
    }};
    ($make:ident: $($module:ident :: { $($case:ident),+ $(,)? }),+ $(,)?) => {
        vec![$($($crate::cases::trial(
            concat!(stringify!($make), "::", stringify!($module), "::", stringify!($case)),
            $module::$case,
            Store::$make,
        )),+),+]
    };
}

/// Stores on Redis, by the first word of the name of a case.
const ON_REDIS: [&str; 3] = ["masters", "sentinel", "cluster"];

/// A case on Redis, in a database or in etcd is ignored, with the reason, where no server is installed.
pub(crate) fn trial<S: 'static>(name: &str, case: fn(S), store: fn() -> S) -> Trial {
    // A stream lies on Redis, wherever its locks are.
    let streams_in_vain = name.contains("::streams::") && crate::server::binary().is_none();
    if streams_in_vain || ON_REDIS.iter().any(|kind| name.starts_with(kind)) {
        return crate::server::trial(name, move || case(store()));
    }
    #[cfg(feature = "postgres")]
    if name.starts_with("postgres_pooled") {
        return crate::pooler::trial(name, move || case(store()));
    }
    #[cfg(feature = "postgres")]
    if name.starts_with("postgres") {
        return crate::postgres::trial_of_its_own(name, move || case(store()));
    }
    #[cfg(feature = "etcd")]
    if name.starts_with("etcd") {
        return crate::etcd_server::trial_of_its_own(name, move || case(store()));
    }
    Trial::test(name, move || {
        case(store());
        Ok(())
    })
}
