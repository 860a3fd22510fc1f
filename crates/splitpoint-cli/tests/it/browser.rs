//! A browser without a window, driven through pipes: no port, no server, no other program.
//!
//! Chromium speaks the `DevTools` protocol on its descriptors 3 and 4 if asked so: messages of JSON,
//! each ended by a NUL byte.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::sandbox::{HANG, tool};

/// A running browser.
pub(crate) struct Browser {
    process: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    events: Vec<Value>,
    last_id: u64,
    profile: TempDir,
}

/// How a page is looked at.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) width: u32,
    pub(crate) is_dark: bool,
    pub(crate) is_print: bool,
    pub(crate) has_scripts: bool,
}

impl View {
    /// A light screen of this width.
    pub(crate) fn of_width(width: u32) -> Self {
        Self { width, is_dark: false, is_print: false, has_scripts: true }
    }
}

/// A page in the browser.
#[derive(Clone)]
pub(crate) struct Page {
    session: String,
    url: String,
}

impl Browser {
    /// Starts a browser; without one on this machine says so and returns `None`.
    ///
    /// # Panics
    ///
    /// If there is none and `CI` is set: there, what is not tested is not merged.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = tool("chromium", "chromium") else {
            assert!(std::env::var_os("CI").is_none(), "CI must test in a browser: no `chromium`");
            return None;
        };
        let profile = tempfile::tempdir().expect("a temporary directory can be made");
        let (process, commands, messages) = spawn(&program, profile.path());
        Some(Self { process, commands, messages, events: Vec::new(), last_id: 0, profile })
    }

    /// Opens the page in the file at `path` and waits until it is loaded.
    pub(crate) fn open(&mut self, path: &Path, view: View) -> Page {
        let url = format!("file://{}", path.display());
        let target = self.call("", "Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call("", "Target.attachToTarget", &attach)["sessionId"].clone();
        let page = Page { session: session.as_str().expect("a session").to_string(), url };
        let mut set =
            |method: &str, parameters: Value| self.call(&page.session, method, &parameters);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            set(&format!("{domain}.enable"), json!({}));
        }
        let size = json!({"width": view.width, "height": 800, "deviceScaleFactor": 1,
            "mobile": view.width < 500});
        set("Emulation.setDeviceMetricsOverride", size);
        let scheme = if view.is_dark { "dark" } else { "light" };
        let media = json!({"media": if view.is_print { "print" } else { "screen" },
            "features": [{"name": "prefers-color-scheme", "value": scheme}]});
        set("Emulation.setEmulatedMedia", media);
        set("Emulation.setScriptExecutionDisabled", json!({"value": !view.has_scripts}));
        set("Page.navigate", json!({"url": page.url}));
        while !self.events.iter().any(|event| page.has(event, "Page.loadEventFired")) {
            let event = self.receive();
            self.events.push(event);
        }
        page
    }

    /// Returns the value of an expression in the page.
    #[track_caller]
    pub(crate) fn value(&mut self, page: &Page, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true});
        let answer = self.call(&page.session, "Runtime.evaluate", &parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Presses and releases the mouse over the first element that `selector` finds.
    pub(crate) fn click(&mut self, page: &Page, selector: &str) {
        let place = format!(
            "(() => {{ const it = document.querySelector({selector:?}); \
             it.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const box = it.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        let place = self.value(page, &place);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": place[0], "y": place[1], "button": "left",
                "clickCount": 1});
            self.call(&page.session, "Input.dispatchMouseEvent", &event);
        }
    }

    /// Presses and releases a key, given as its name and its code.
    pub(crate) fn press(&mut self, page: &Page, key: &str, code: u32) {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "text": text,
                "windowsVirtualKeyCode": code, "nativeVirtualKeyCode": code});
            self.call(&page.session, "Input.dispatchKeyEvent", &event);
        }
    }

    /// Returns what a screen reader is told: the nodes of the accessibility tree.
    pub(crate) fn accessible(&mut self, page: &Page) -> Vec<Value> {
        self.call(&page.session, "Accessibility.enable", &json!({}));
        let tree = self.call(&page.session, "Accessibility.getFullAXTree", &json!({}));
        let nodes = tree["nodes"].as_array().expect("a tree").iter();
        nodes.filter(|node| node["ignored"] != true).cloned().collect()
    }

    /// Returns what the browser had to say against a page, and what the page asked for beside
    /// itself.
    pub(crate) fn complaints(&mut self, page: &Page) -> Vec<String> {
        self.call(&page.session, "Runtime.evaluate", &json!({"expression": "0"}));
        let mut complaints = Vec::new();
        for event in &self.events {
            let parameters = &event["params"];
            let url = parameters["request"]["url"].as_str().unwrap_or("");
            let is_complaint = page.has(event, "Runtime.exceptionThrown")
                || page.has(event, "Runtime.consoleAPICalled")
                || page.has(event, "Log.entryAdded")
                || page.has(event, "Page.javascriptDialogOpening")
                || page.has(event, "Network.requestWillBeSent")
                    && url != page.url
                    && !url.starts_with("data:");
            if is_complaint {
                complaints.push(event.to_string());
            }
        }
        complaints
    }

    fn call(&mut self, session: &str, method: &str, parameters: &Value) -> Value {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": parameters});
        if !session.is_empty() {
            message["sessionId"] = session.into();
        }
        let bytes = format!("{message}\0");
        self.commands.write_all(bytes.as_bytes()).expect("the browser listens");
        self.commands.flush().expect("the browser listens");
        loop {
            let mut answer = self.receive();
            if answer["id"] == self.last_id {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    fn receive(&self) -> Value {
        match self.messages.recv_timeout(HANG) {
            Ok(message) => message,
            Err(error) => {
                let log = std::fs::read_to_string(self.profile.path().join("stderr"));
                panic!("no answer from the browser: {error}\n{}", log.unwrap_or_default());
            }
        }
    }
}

impl Page {
    fn has(&self, event: &Value, method: &str) -> bool {
        event["method"] == method && event["sessionId"] == self.session.as_str()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its parts end when the first of them does.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(program: &Path, profile: &Path) -> (Child, ChildStdin, Receiver<Value>) {
    // The shell moves the pipes to where the browser looks for them.
    let script = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>\"$PROFILE/stderr\"";
    let mut process = Command::new("sh")
        .arg("-c")
        .arg(script)
        .arg(program)
        .args(["--headless", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run"])
        .args(["--disable-dev-shm-usage", "--disable-background-networking", "--mute-audio"])
        // Pages of our own making, as a user or as root, who has no sandbox.
        .arg("--no-sandbox")
        .arg(format!("--user-data-dir={}", profile.join("profile").display()))
        .arg("about:blank")
        .env("PROFILE", profile)
        .env("HOME", profile)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell can be started");
    let commands = process.stdin.take().expect("standard input is piped");
    let answers = BufReader::new(process.stdout.take().expect("standard output is piped"));
    let (sender, messages) = mpsc::channel();
    std::thread::spawn(move || {
        for message in answers.split(0).map_while(Result::ok) {
            let message = serde_json::from_slice(&message).expect("messages are JSON");
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    (process, commands, messages)
}

/// Returns the path of a page in the golden files of the lab.
pub(crate) fn golden_page() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crates");
    root.join("splitpoint-lab/tests/golden/page.html")
}
