//! Pictures of every view, for people who want to look at what they have changed.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::{
    scene::Scene,
    tour::{SCHEMES, WIDTHS, views},
    webdriver::Browser,
};

/// Where they are kept: in the folder that is named, as seen from the root, or beside what cargo builds.
fn folder() -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match env::var_os("WATCHKEEPER_PICTURES") {
        Some(named) => root.join(named),
        None => tmp.parent().unwrap_or(tmp).join("pictures"),
    }
}

pub(crate) fn every_view_is_drawn() {
    let folder = folder();
    fs::create_dir_all(&folder).expect("a folder");
    let scene = Scene::of(3);
    scene.liven();
    let browser = Browser::start();
    browser.sign_in(&scene, 0);
    for (name, path) in views(&scene) {
        browser.open(&scene.url(0, &path));
        for scheme in SCHEMES {
            for width in WIDTHS {
                let picture = browser.picture(width, scheme);
                assert!(picture.starts_with(b"\x89PNG"), "{name}");
                let file = folder.join(format!("{name}-{width}-{scheme}.png"));
                fs::write(file, picture).expect("a file");
            }
        }
    }
    println!("pictures: {}", folder.display());
}
