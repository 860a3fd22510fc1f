//! What the commands of the lab read and save: keys in every format, and studies.

use crate::sandbox::Sandbox;

fn with_keys() -> Sandbox {
    let sandbox = Sandbox::new();
    let keys = (0..500).map(|n| format!("key {n}\n")).collect::<Vec<_>>().concat();
    sandbox.write("keys", keys.as_bytes());
    sandbox
}

#[test]
fn a_study_is_saved_whole_and_replaces_only_a_study() {
    let sandbox = with_keys();
    let args = ["lab", "hash", "keys", "--hash", "sdbm", "--json", "study.json"];
    let saved = sandbox.run(&args);
    assert_eq!(
        (saved.exit, saved.stderr.as_str()),
        (0, "splitpoint: saved the study in `study.json`\n")
    );
    assert!(saved.text().starts_with("keys: 500 keys, "), "{}", saved.text());
    let study: serde_json::Value = serde_json::from_slice(&sandbox.read("study.json")).unwrap();
    assert_eq!(study["schema"], 2);
    assert_eq!(study["program"]["arguments"], serde_json::json!(args));
    assert_eq!(study["keys"]["examples"][0], "key 0");
    assert_eq!(study["keys"]["format"], "lines");
    assert_eq!(study["keys"]["duplicates"]["kind"], "removed");
    assert_eq!(
        study["keys"]["lengths"][1],
        serde_json::json!({"bytes_min": 6, "bytes_max": 6, "key_count": 90})
    );
    // Again over itself, then not over the keys.
    assert_eq!(sandbox.run(&args).exit, 0);
    let before = sandbox.read("keys");
    let args = ["lab", "table", "keys", "--hash", "sdbm", "--json", "keys"];
    sandbox.run(&args).check_error(2, "`keys` exists and is no saved study: it is not replaced");
    assert_eq!(sandbox.read("keys"), before);
    let args = ["lab", "table", "keys", "--hash", "sdbm", "--json", "absent/study.json"];
    let refused = sandbox.run(&args);
    assert_eq!(refused.exit, 5, "{}", refused.stderr);
    let names: Vec<_> = std::fs::read_dir(sandbox.path(".")).unwrap().collect();
    assert_eq!(names.len(), 2, "{names:?}");
}
