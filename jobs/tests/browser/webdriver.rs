//! A browser that is led as a person leads one: the words of WebDriver (W3C), which chromedriver takes as JSON over plain HTTP.
//!
//! What a test looks for is waited for on the page itself, by an observer of its changes.

use std::{
    env,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    http::ask,
    scene::{Scene, TOKEN},
    wait::{SOON, soon},
};

/// The keys that are no characters, as WebDriver writes them.
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const LEFT: &str = "\u{e012}";

const REMEDY: &str = "no chromium with chromedriver: apt-get install chromium chromium-driver";

/// What an element is called in JSON.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The height of the window; its width differs.
const HEIGHT: u32 = 900;

/// Tries of something with an element that is replaced meanwhile, as rows are that have changed.
const TRIES: usize = 20;

const ARGUMENTS: [&str; 13] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-extensions",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-default-browser-check",
    "--lang=en-US",
    "--window-size=1280,900",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// Ends when the condition holds, which is looked at again with each change of the page, or when the time is over.
const WAIT: &str = r"
const [limit] = arguments;
const holds = () => (CONDITION);
return new Promise((done) => {
  if (holds()) {
    done(true);
    return;
  }
  const watcher = new MutationObserver(() => {
    if (!holds()) return;
    watcher.disconnect();
    done(true);
  });
  watcher.observe(document, { attributes: true, characterData: true, childList: true, subtree: true });
  setTimeout(() => done(false), limit);
});";

/// Ends when the window has this width and the page this scheme.
const SETTLE: &str = r"
const [width, scheme] = arguments;
const dark = matchMedia('(prefers-color-scheme: dark)');
return new Promise((done) => {
  const look = () => {
    if (innerWidth === width && dark.matches === (scheme === 'dark')) done(true);
  };
  addEventListener('resize', look);
  dark.addEventListener('change', look);
  look();
});";

/// Chromium with a profile of its own, and its driver. Both end with it.
pub(crate) struct Browser {
    driver: Child,
    /// Where the driver listens.
    address: String,
    /// The browser's name at the driver.
    session: String,
    profile: TempDir,
}

/// Why there is none.
pub(crate) fn missing() -> Option<&'static str> {
    let there = program("chromium").is_some() && program("chromedriver").is_some();
    (!there).then_some(REMEDY)
}

fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

// === impl Browser ===

impl Browser {
    pub(crate) fn start() -> Self {
        Self::start_with(&json!({ "browser": "ALL" }))
    }

    /// One that notes what it asks for, too.
    pub(crate) fn start_watched() -> Self {
        Self::start_with(&json!({ "browser": "ALL", "performance": "ALL" }))
    }

    fn start_with(logs: &Value) -> Self {
        let profile = TempDir::with_prefix("wk-chromium-").expect("a temporary folder");
        let (driver, port) = driver(&profile);
        let mut browser = Self {
            driver,
            address: format!("127.0.0.1:{port}"),
            session: String::new(),
            profile,
        };
        browser.open_session(logs);
        browser
    }

    fn open_session(&mut self, logs: &Value) {
        let profile = self.profile.path().join("profile");
        let profile = format!("--user-data-dir={}", profile.display());
        let arguments: Vec<&str> = ARGUMENTS.into_iter().chain([profile.as_str()]).collect();
        let limit = SOON.as_secs() * 1000;
        let wanted = json!({
            "browserName": "chrome",
            "timeouts": { "script": limit, "pageLoad": limit },
            "goog:loggingPrefs": logs,
            "goog:chromeOptions": { "binary": program("chromium"), "args": arguments },
        });
        let body = json!({ "capabilities": { "alwaysMatch": wanted } }).to_string();
        let asked = ask(&self.address, "POST", "/session", "", &body);
        let (status, answer) = asked.expect("chromedriver answers");
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let session = answer["value"]["sessionId"].as_str();
        self.session = session.expect("a session").to_owned();
        // A window that nobody sees has no focus by itself.
        let enabled = json!({ "enabled": true });
        self.devtools("Emulation.setFocusEmulationEnabled", &enabled);
    }

    // --- pages ---

    /// Opens a page, and waits until it is there.
    #[track_caller]
    pub(crate) fn open(&self, url: &str) {
        self.tell("POST", "/url", &json!({ "url": url }));
    }

    /// Every page that is opened from now on begins with this script.
    #[track_caller]
    pub(crate) fn begin_pages_with(&self, script: &str) {
        let script = json!({ "source": script });
        self.devtools("Page.addScriptToEvaluateOnNewDocument", &script);
    }

    #[track_caller]
    pub(crate) fn reload(&self) {
        self.tell("POST", "/refresh", &json!({}));
    }

    /// The address of the page.
    #[track_caller]
    pub(crate) fn url(&self) -> String {
        let url = self.tell("GET", "/url", &Value::Null);
        url.as_str().unwrap_or_default().to_owned()
    }

    /// Says the token to a worker as the password of `ann`, once: the browser keeps it for this address.
    #[track_caller]
    pub(crate) fn sign_in(&self, scene: &Scene, worker: usize) {
        let address = scene.address(worker);
        self.open(&format!("http://ann:{TOKEN}@{address}/login"));
        // An address with a password in it is none that pages ask from.
        self.open(&scene.url(worker, "/"));
        assert!(!self.has("a[href=\"/login\"]"), "{}", self.seen());
        // What was said on the way there is not about the pages.
        self.log("browser");
    }

    /// Another window, in which nothing is open; what is done from now on is done there. Says its name.
    #[track_caller]
    pub(crate) fn open_window(&self) -> String {
        let opened = self.tell("POST", "/window/new", &json!({ "type": "window" }));
        let name = opened["handle"].as_str().expect("a window").to_owned();
        self.go_to_window(&name);
        name
    }

    /// The name of the window in which things are done.
    #[track_caller]
    pub(crate) fn window(&self) -> String {
        let name = self.tell("GET", "/window", &Value::Null);
        name.as_str().expect("a window").to_owned()
    }

    #[track_caller]
    pub(crate) fn go_to_window(&self, name: &str) {
        self.tell("POST", "/window", &json!({ "handle": name }));
    }

    // --- what a person does ---

    #[track_caller]
    pub(crate) fn click(&self, css: &str) {
        self.with(("css selector", css), "click", &json!({}));
    }

    /// Clicks on what leads to another page, and waits for that.
    #[track_caller]
    pub(crate) fn go(&self, css: &str) {
        // The other page does not have it.
        self.run("window.isLeft = true;", &json!([]));
        self.click(css);
        soon("other page", || {
            self.holds("!window.isLeft && document.readyState === 'complete'")
        });
    }

    /// Chooses this word of a field.
    #[track_caller]
    pub(crate) fn choose(&self, field: &str, word: &str) {
        let option = format!("//select[@name='{field}']/option[.='{word}']");
        self.with(("xpath", option.as_str()), "click", &json!({}));
    }

    /// Writes this into a field, in the place of what stands there.
    #[track_caller]
    pub(crate) fn fill(&self, css: &str, text: &str) {
        self.with(("css selector", css), "clear", &json!({}));
        self.with(("css selector", css), "value", &json!({ "text": text }));
    }

    /// Presses keys, one after the other, wherever the focus is.
    #[track_caller]
    pub(crate) fn press(&self, keys: &[&str]) {
        let strokes = keys.iter().flat_map(|key| {
            ["keyDown", "keyUp"].map(|stroke| json!({ "type": stroke, "value": key }))
        });
        let strokes: Vec<Value> = strokes.collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": strokes });
        self.tell("POST", "/actions", &json!({ "actions": [keyboard] }));
    }

    /// Presses the keys of a text.
    #[track_caller]
    pub(crate) fn write(&self, text: &str) {
        let keys: Vec<String> = text.chars().map(String::from).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        self.press(&keys);
    }

    // --- what is seen ---

    /// What a script answers; `arguments` is the list of what it is given.
    #[track_caller]
    pub(crate) fn run(&self, script: &str, arguments: &Value) -> Value {
        match self.evaluate(script, arguments) {
            Ok(value) => value,
            Err(trouble) => panic!("a script: {}\n{}", trouble["message"], self.seen()),
        }
    }

    /// The value of an expression.
    #[track_caller]
    pub(crate) fn value(&self, expression: &str) -> Value {
        self.run(&format!("return ({expression});"), &json!([]))
    }

    /// Whether an expression is true.
    #[track_caller]
    pub(crate) fn is(&self, expression: &str) -> bool {
        self.value(expression) == true
    }

    /// Waits until an expression is true, which what is on the page decides.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, condition: &str) {
        let script = WAIT.replace("CONDITION", condition);
        let limit = json!([SOON.as_secs() * 1000]);
        let mut why = Value::Null;
        for _ in 0..TRIES {
            match self.evaluate(&script, &limit) {
                Ok(Value::Bool(true)) => return,
                Ok(_) => {
                    why = "it did not come in time".into();
                    break;
                }
                // A page that another one takes the place of takes its scripts along.
                Err(trouble) => why = trouble["message"].clone(),
            }
        }
        panic!("no {what} on the page: {why}\n{}", self.seen());
    }

    /// Whether that is so now; it is not where one page takes the place of another.
    pub(crate) fn holds(&self, condition: &str) -> bool {
        let script = format!("return Boolean({condition});");
        matches!(self.evaluate(&script, &json!([])), Ok(Value::Bool(true)))
    }

    /// Whether an element is there.
    #[track_caller]
    pub(crate) fn has(&self, css: &str) -> bool {
        let found = self.run(
            "return document.querySelector(arguments[0]) !== null;",
            &json!([css]),
        );
        found == true
    }

    /// The text of an element; empty where it is not there.
    #[track_caller]
    pub(crate) fn text(&self, css: &str) -> String {
        let text = self.run(
            "return document.querySelector(arguments[0])?.textContent ?? '';",
            &json!([css]),
        );
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Where the browser is and what it shows, for whoever looks for the reason of a failure.
    pub(crate) fn seen(&self) -> String {
        let script = "return `${location.href}\\n${document.body.innerText}`;";
        match self.evaluate(script, &json!([])) {
            Ok(shown) => shown.as_str().unwrap_or_default().to_owned(),
            Err(trouble) => trouble.to_string(),
        }
    }

    /// What it has noted since it was asked last: `browser` for what it said, `performance` for what it did.
    #[track_caller]
    pub(crate) fn log(&self, kind: &str) -> Vec<Value> {
        let entries = self.tell("POST", "/se/log", &json!({ "type": kind }));
        entries.as_array().cloned().unwrap_or_default()
    }

    /// Makes the window so wide, and the person's machine `light` or `dark`.
    #[track_caller]
    pub(crate) fn dress(&self, width: u32, scheme: &str) {
        self.size(width, HEIGHT);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let media = json!({ "features": features });
        self.devtools("Emulation.setEmulatedMedia", &media);
        self.run(SETTLE, &json!([width, scheme]));
    }

    #[track_caller]
    fn size(&self, width: u32, height: u32) {
        let metrics = json!({
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": false,
        });
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// The whole page as it is shown in a window so wide, as PNG.
    #[track_caller]
    pub(crate) fn picture(&self, width: u32, scheme: &str) -> Vec<u8> {
        self.dress(width, scheme);
        let height = self.value("document.documentElement.scrollHeight");
        let height = height
            .as_u64()
            .and_then(|height| u32::try_from(height).ok());
        self.size(width, height.expect("a height").max(HEIGHT));
        let picture = self.tell("GET", "/screenshot", &Value::Null);
        let picture = picture.as_str().expect("a picture");
        STANDARD.decode(picture).expect("base 64")
    }

    // --- the driver ---

    /// Asks the browser for something that no person can.
    #[track_caller]
    pub(crate) fn devtools(&self, command: &str, parameters: &Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.tell("POST", "/goog/cdp/execute", &body)
    }

    /// What a script answers, which the tools for developers evaluate: neither a policy of the page nor a browser that runs no scripts
    /// of pages keeps them from it.
    fn evaluate(&self, script: &str, arguments: &Value) -> Result<Value, Value> {
        let expression = format!("(async function () {{\n{script}\n}}).apply(null, {arguments})");
        let parameters = json!({
            "expression": expression,
            "awaitPromise": true,
            "returnByValue": true,
        });
        let body = json!({ "cmd": "Runtime.evaluate", "params": parameters });
        let mut told = self.call("POST", "/goog/cdp/execute", &body)?;
        let thrown = told["exceptionDetails"].take();
        match thrown.is_null() {
            true => Ok(told["result"]["value"].take()),
            false => Err(json!({ "message": thrown["exception"]["description"] })),
        }
    }

    /// Does something with the first element that fits. One that is replaced meanwhile is looked for again.
    #[track_caller]
    fn with(&self, (using, value): (&str, &str), verb: &str, body: &Value) {
        let which = json!({ "using": using, "value": value });
        for _ in 0..TRIES {
            let done = self.call("POST", "/element", &which).and_then(|found| {
                let id = found[ELEMENT].as_str().unwrap_or_default().to_owned();
                self.call("POST", &format!("/element/{id}/{verb}"), body)
            });
            match done {
                Ok(_) => return,
                Err(trouble) if trouble["error"] == "stale element reference" => {}
                Err(trouble) => {
                    let why = &trouble["message"];
                    panic!("{verb} of {value}: {why}\n{}", self.seen());
                }
            }
        }
        panic!("{value} is replaced again and again");
    }

    #[track_caller]
    fn tell(&self, method: &str, path: &str, body: &Value) -> Value {
        match self.call(method, path, body) {
            Ok(value) => value,
            Err(trouble) => panic!("{method} {path}: {}", trouble["message"]),
        }
    }

    /// What the driver answers; its trouble, with `error` and `message`.
    fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let path = format!("/session/{}{path}", self.session);
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let answer = ask(&self.address, method, &path, "", &body);
        let (status, answer) = answer.expect("chromedriver answers");
        let mut answer: Value = serde_json::from_str(&answer).expect("JSON");
        let value = answer["value"].take();
        match status {
            200 => Ok(value),
            _ => Err(value),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser is a process of its own, and ends with its session.
        let session = format!("/session/{}", self.session);
        _ = ask(&self.address, "DELETE", &session, "", "");
        _ = self.driver.kill();
        _ = self.driver.wait();
    }
}

/// Starts a driver, and says at which port it listens. It takes a free one of IPv6 and then the same of IPv4, which another program may
/// have: then it ends, and another one is started.
fn driver(profile: &TempDir) -> (Child, u16) {
    let mut all = String::new();
    for _ in 0..5 {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            // What it writes beside its profile is no business of the user who runs the tests.
            .env("HOME", profile.path())
            .env("XDG_CONFIG_HOME", profile.path())
            .env("XDG_CACHE_HOME", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let mut said = BufReader::new(driver.stdout.take().expect("it was piped"));
        match port(&mut said) {
            Ok(port) => {
                // It goes on talking, and must not fill its pipe.
                std::thread::spawn(move || said.lines().map_while(Result::ok).for_each(drop));
                return (driver, port);
            }
            Err(said) => all += &said,
        }
        _ = driver.kill();
        _ = driver.wait();
        if !all.contains("port not available") {
            break;
        }
    }
    panic!("chromedriver does not say where it listens:\n{all}");
}

/// The port that a driver says it listens at.
///
/// # Errors
/// All that it says where it does not.
fn port(said: &mut impl BufRead) -> Result<u16, String> {
    let mut all = String::new();
    for line in said.lines().map_while(Result::ok) {
        all += &line;
        all.push('\n');
        if !line.contains("successfully") {
            continue;
        }
        let digits = |c: char| !c.is_ascii_digit();
        let port = line
            .rsplit_once("port")
            .map(|(_, port)| port.trim_matches(digits));
        if let Some(port) = port.and_then(|port| port.parse().ok()) {
            return Ok(port);
        }
    }
    Err(all)
}
