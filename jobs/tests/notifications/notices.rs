//! Mails that tell of a job that breaks, from a worker in this process to a real mail server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use watchkeeper::{DurationExt, Outcome, Spec, Worker, clock::Clock, config::LoadOptions};
use watchkeeper_jobs::add_to;

use crate::mail_server::{Does, MailServer, Stage, Taken};

/// Without any store, page or schedule that others would meet.
const CONFIG: &str = r#"
[locks]
backend = "memory"
[admin]
listen = "off"
[notices.post]
kind = "mail"
url = "$SERVER"
from = "Jobs <jobs@example.org>"
to = ["gone@example.org", "Operators <ops@example.org>"]
username = "jobs"
password_file = "$FOLDER/password"
[jobs.check]
notify = ["post"]
"#;

fn of<'a>(taken: &'a [Taken], recipient: &str) -> Vec<&'a Taken> {
    taken
        .iter()
        .filter(|mail| mail.to.contains(recipient))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mail_tells_that_a_job_has_failed_and_that_it_is_well_again() {
    let server = MailServer::start(|stage, mail: &Taken| match stage {
        // One recipient that nobody knows keeps no other one from it.
        Stage::Recipient if mail.to.contains("gone@") => Does::Answers(550),
        _ => Does::Agrees,
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("password"), "hunter2\n").unwrap();
    let file = folder.path().join("watchkeeper.toml");
    let config = CONFIG
        .replace("$SERVER", &server.url())
        .replace("$FOLDER", &folder.path().display().to_string());
    std::fs::write(&file, config).unwrap();
    let fails = Arc::new(AtomicBool::new(true));
    let options = LoadOptions {
        file: Some(file),
        ..LoadOptions::default()
    };
    let ends = fails.clone();
    let worker = add_to(Worker::with(options));
    let worker = worker.job_fn("check", Spec::every(1.secs()).retry(1), move |_run| {
        let fails = ends.load(Ordering::Relaxed);
        async move {
            match fails {
                true => Err("the disk\r\nX-Evil: yes\r\n.\r\nis full".into()),
                false => Ok(Outcome::Done),
            }
        }
    });
    let clock = Clock::system();
    let story = async {
        let limit = clock.now() + Duration::from_secs(30);
        while of(&server.taken(), "ops@").is_empty() {
            assert!(clock.now() < limit, "no mail: {:?}", server.heard());
            clock.sleep(Duration::from_millis(20)).await;
        }
        // The next failures are no news.
        clock.sleep(Duration::from_secs(2)).await;
        fails.store(false, Ordering::Relaxed);
        while of(&server.taken(), "ops@").len() < 2 {
            assert!(clock.now() < limit, "no recovery: {:?}", server.heard());
            clock.sleep(Duration::from_millis(20)).await;
        }
        clock.sleep(Duration::from_secs(2)).await;
    };
    worker.run_until(story).await.unwrap();
    let taken = server.taken();
    let mails = of(&taken, "ops@");
    assert_eq!(mails.len(), 2, "{mails:?}");
    for (mail, subject) in mails.iter().zip(["has failed: failed", "has recovered"]) {
        let (head, text) = mail.text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("Subject: check (watchkeeper) {subject}")),
            "{head}"
        );
        assert!(
            head.contains("Message-ID: <wkn_") && head.contains("Auto-Submitted: auto-generated")
        );
        assert!(!head.contains("X-Evil"), "{head}");
        assert!(text.contains("check"), "{text}");
        assert!(!mail.text.contains("hunter2"), "{}", mail.text);
        assert!(mail.from.contains("jobs@example.org"), "{}", mail.from);
    }
    assert!(mails[0].text.contains("is full"), "{}", mails[0].text);
}
