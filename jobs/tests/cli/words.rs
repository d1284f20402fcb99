//! What shells and `man` read of the command: made from its own words, without a store.

use super::run;

#[test]
fn each_shell_gets_the_words_of_the_command() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let ran = run(folder.path(), &["completions", shell]).ok();
        for word in ["watchkeeper", "history", "withdraw", "follow"] {
            assert!(ran.out.contains(word), "{shell} has no {word}");
        }
        assert_eq!(ran.err, "", "{shell}");
    }
    let ran = run(folder.path(), &["completions", "dos"]).with(2);
    assert!(ran.err.contains("bash"), "{}", ran.err);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_manual_has_a_page_for_each_command_that_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let page = run(folder.path(), &["man"]).ok();
    assert!(page.out.contains(".TH watchkeeper"), "{}", page.out);
    run(folder.path(), &["man", "--dir", "pages"]).ok();
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder.path().join("pages")).unwrap() {
        pages.push(entry.unwrap().file_name().into_string().unwrap());
    }
    for name in ["watchkeeper", "watchkeeper-run", "watchkeeper-jobs-next"] {
        let page = format!("{name}.1");
        assert!(pages.contains(&page), "no {page} in {pages:?}");
    }
    let hidden = pages.iter().find(|page| page.contains("serve-for-demo"));
    assert_eq!(hidden, None);
    let history = folder.path().join("pages/watchkeeper-history.1");
    let history = std::fs::read_to_string(history).unwrap();
    assert!(history.contains("GLOB"), "{history}");
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let ran = run(folder.path(), &["man", "--dir", "file"]).with(1);
    assert!(ran.err.starts_with("error: file: "), "{}", ran.err);
}
