//! What axe-core finds: names that are missing for those who hear a page, colours that are too alike, keys that lead nowhere.
//!
//! It is what its makers call serious and critical that counts. In the dark scheme the rules of colours alone are asked again.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    scene::Scene,
    tour::{SCHEMES, WIDTHS, views},
    webdriver::Browser,
};

const REMEDY: &str = "no axe-core: install Node.js and npm, then run tests/interop/install node";

/// Says what is wrong, and how many rules have found something that is right.
const RUN: &str = r"
const [colours] = arguments;
const options = { preload: false, resultTypes: ['violations'] };
if (colours) options.runOnly = { type: 'rule', values: ['color-contrast', 'link-in-text-block'] };
const found = await axe.run(document, options);
const bad = found.violations.filter(({ impact }) => ['serious', 'critical'].includes(impact));
const told = bad.map(({ id, impact, nodes }) => {
  const where = nodes.map(({ target, failureSummary }) => `${target.join(' ')}: ${failureSummary}`);
  return `${id} (${impact}) at ${where.join('; ')}`;
});
return [told, found.passes.length];";

/// A button that says nothing to a person who hears the page.
const SPOIL: &str = "document.querySelector('main').append(document.createElement('button'))";

/// Whatever would change the page meanwhile is stopped, as a person stops it.
const STOP: &str = "document.querySelector('header .tools button')?.click()";

/// Why there is none.
pub(crate) fn missing() -> Option<&'static str> {
    (!file().is_file()).then_some(REMEDY)
}

/// Where it is installed: beside what cargo builds.
fn file() -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = tmp.parent().unwrap_or(tmp);
    target.join("interop/node_modules/axe-core/axe.min.js")
}

pub(crate) fn nothing_on_any_view_keeps_a_person_out() {
    let axe = fs::read_to_string(file()).expect("a script");
    let scene = Scene::of(2);
    scene.liven();
    let browser = Browser::start();
    browser.sign_in(&scene, 0);
    let mut faults = Vec::new();
    for (name, path) in views(&scene) {
        browser.open(&scene.url(0, &path));
        browser.value(STOP);
        browser.run(&axe, &json!([]));
        for scheme in SCHEMES {
            for width in WIDTHS {
                browser.dress(width, scheme);
                let (told, passed) = look(&browser, scheme == "dark");
                assert!(passed > 0, "{name}: no rule was tried");
                let told = told.into_iter();
                faults.extend(told.map(|fault| format!("{name}, {width}, {scheme}: {fault}")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // What is wrong is found.
    browser.value(SPOIL);
    let (told, _) = look(&browser, false);
    assert!(
        told.iter().any(|fault| fault.starts_with("button-name")),
        "{told:?}"
    );
}

/// What is wrong, and how many rules have found something that is right.
#[track_caller]
fn look(browser: &Browser, colours: bool) -> (Vec<String>, u64) {
    let found = browser.run(RUN, &json!([colours]));
    let told = found[0].as_array().into_iter().flatten();
    let told = told.filter_map(Value::as_str).map(str::to_owned).collect();
    (told, found[1].as_u64().unwrap_or_default())
}
