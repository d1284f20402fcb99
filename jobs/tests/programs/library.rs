//! A program of the library and the command, on one file.

use watchkeeper::lock::{LockSettings, Locks};

use crate::{scene::Scene, store::Store};

/// As its README has it.
const SNIPPET: &str =
    r#"let locks = Locks::open(&LockSettings::embedded("locks.db"), "watchkeeper")?.start()?;"#;

pub(crate) fn the_librarys_own_snippet_and_the_command_exclude_each_other(store: Store) {
    let readme = include_str!("../../../lock/README.md");
    assert!(readme.contains(SNIPPET));
    let scene = Scene::new(store);
    let options = scene.options();
    let path = options.last().expect("--embedded FILE");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let locks = runtime.block_on(async {
        let settings = LockSettings::embedded(path);
        Locks::open(&settings, "watchkeeper").unwrap().start()
    });
    let locks = locks.unwrap();
    let ours = || runtime.block_on(locks.lock("report").acquire());
    let lease = ours().unwrap();
    scene.run("lock report --wait 0s", "true").with(3);
    runtime.block_on(lease.release());
    scene.run("lock report --wait 0s", "true").with(0);
    let holder = scene.holder("lock report");
    assert!(ours().is_err(), "the command holds it");
    drop(holder);
}
