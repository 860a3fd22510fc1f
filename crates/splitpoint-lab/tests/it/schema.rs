//! docs/lab-schema.json describes a saved study: every field of one, and no study with a mistake.

use serde_json::{Value, json};
use splitpoint_lab::replay::{
    Column, Combination, ERAS, Measuring, REPLAY_SCHEMA, Replay, ReplayStudy, Shrink, Streams,
    Trace, recent_buffers, red_black, xarray,
};
use splitpoint_lab::study::{Machine, Program};

/// Checks the part of JSON Schema that docs/lab-schema.json uses, and that every field of the
/// value is described.
struct Validator {
    schema: Value,
}

impl Validator {
    fn new() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab-schema.json");
        let text = std::fs::read_to_string(path).expect("the schema can be read");
        Self { schema: serde_json::from_str(&text).expect("the schema is JSON") }
    }

    fn check_study(&self, study: &Value) -> Result<(), String> {
        self.check(&json!({ "$ref": "#/$defs/Study" }), study, "study")
    }

    fn check(&self, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
        let wrong = |why: &str| Err(format!("{place}: {why}, found {value:.60}"));
        if let Some(reference) = schema["$ref"].as_str() {
            let pointer = reference.strip_prefix('#').expect("a reference inside the schema");
            let target = self.schema.pointer(pointer).expect("the reference leads somewhere");
            self.check(target, value, place)?;
        }
        for forms in ["oneOf", "anyOf"] {
            let Some(forms) = schema[forms].as_array() else { continue };
            let results = forms.iter().map(|form| self.check(form, value, place));
            let failures: Vec<String> = results.filter_map(Result::err).collect();
            if failures.len() == forms.len() {
                return Err(failures.join("; or "));
            }
        }
        match schema.get("const") {
            Some(expected) if expected != value => return wrong(&format!("{expected} expected")),
            _ => {}
        }
        let fits = match schema["type"].as_str() {
            Some("integer") => value.is_u64(),
            Some("number") => value.is_number(),
            Some("boolean") => value.is_boolean(),
            Some("string") => value.is_string(),
            Some("null") => value.is_null(),
            Some("array") => return self.check_array(schema, value, place),
            Some("object") => return self.check_object(schema, value, place),
            _ => true,
        };
        if fits { Ok(()) } else { wrong(&format!("{} expected", schema["type"])) }
    }

    fn check_array(&self, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
        let items = value.as_array().ok_or_else(|| format!("{place}: no array"))?;
        let each = schema.get("items");
        let prefix = schema["prefixItems"].as_array();
        if prefix.is_some_and(|prefix| prefix.len() != items.len()) {
            return Err(format!("{place}: {} items", items.len()));
        }
        for (at, item) in items.iter().enumerate() {
            let schema = each.or_else(|| prefix?.get(at)).expect("items are described");
            self.check(schema, item, &format!("{place}[{at}]"))?;
        }
        Ok(())
    }

    fn check_object(&self, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
        let fields = value.as_object().ok_or_else(|| format!("{place}: no object"))?;
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().expect("a name");
            if !fields.contains_key(name) {
                return Err(format!("{place}: no `{name}`"));
            }
        }
        for (name, field) in fields {
            let described = schema["properties"].get(name);
            let described = described.ok_or_else(|| format!("{place}: `{name}` is unknown"))?;
            self.check(described, field, &format!("{place}.{name}"))?;
        }
        Ok(())
    }
}

/// A replay of a small trace with everything that can be asked.
fn replay_study() -> Value {
    let text = "# kernel cache trace 1\n# name small\nL 1 2 11 usr\nL 1 11 12 bin x3\nL 1 2 0 lib64\n\
                G 1 12 0 4 x2\nB 1 1024 8195\nD 1 1024 9000\n";
    let trace = Trace::new(text.as_bytes()).expect("a trace");
    let streams = Streams::read(trace, Shrink::None, |_| {}).expect("events");
    let measuring =
        Measuring { seed_count: 2, draw_count: 2, at: None, every: None, progress: &|_, _| {} };
    let replay = Replay::new(&streams, measuring);
    let mut trace = replay.trace("small.kct", Shrink::None);
    let columns: Vec<Column> =
        ERAS.iter().flat_map(|era| Column::of_era(era, None).expect("its tables")).collect();
    let functions = columns.iter().map(|column| (column.table(), column.setup.function()));
    trace.curves = replay.curves(&functions.collect::<Vec<_>>()).expect("it fits");
    trace.tables = replay.tables(&columns).expect("it fits");
    trace.trees = vec![red_black(&streams), xarray(&streams), recent_buffers(&streams)];
    trace.combinations = replay.combinations(&Combination::ALL).expect("it fits");
    trace.today = replay.today().expect("it fits");
    let study = ReplayStudy {
        schema: REPLAY_SCHEMA,
        program: Program::default(),
        machine: Machine::default(),
        seed_count: 2,
        draw_count: 2,
        traces: vec![trace],
        attacks: Vec::new(),
    };
    serde_json::to_value(study).expect("it is saved")
}

#[test]
fn the_schema_describes_every_field_of_a_saved_replay() {
    let study = replay_study();
    for part in ["streams", "tables", "trees", "combinations", "curves", "today"] {
        let part = &study["traces"][0][part];
        assert!(part.as_array().is_some_and(|part| !part.is_empty()), "{part}");
    }
    let validator = Validator::new();
    let root = json!({ "$ref": "#/$defs/ReplayStudy" });
    assert_eq!(validator.check(&root, &study, "study"), Ok(()));
    assert_eq!(validator.check(&validator.schema, &study, "study"), Ok(()));
    let read: ReplayStudy = serde_json::from_value(study.clone()).expect("it is read again");
    assert_eq!(serde_json::to_value(read).expect("it is saved"), study);
}

fn golden_study() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/page.json");
    let text = std::fs::read_to_string(path).expect("the study can be read");
    serde_json::from_str(&text).expect("the study is JSON")
}

#[test]
fn the_schema_describes_every_field_of_a_saved_study() {
    let study = golden_study();
    for part in ["reports", "timings", "avalanches", "key_positions", "choices", "gates"] {
        assert!(study[part].as_array().is_some_and(|part| !part.is_empty()), "no {part}");
    }
    assert_eq!(Validator::new().check_study(&study), Ok(()));
}

#[test]
fn the_schema_refuses_studies_with_a_mistake() {
    let validator = Validator::new();
    for (pointer, value, expected) in [
        ("/schema", json!("2"), "study.schema: \"integer\" expected"),
        ("/keys", json!({}), "study.keys: no `source`"),
        ("/reports/0/verdict", json!({ "kind": "perfect" }), "study.reports[0].verdict.kind: "),
        ("/reports/0/verdict", json!({ "kind": "worse" }), "no `cost_ratio`"),
        ("/reports/0/rows/0/buckets", json!(-1), "study.reports[0].rows[0].buckets: "),
        ("/gates/0/bound", json!("at_best"), "study.gates[0].bound: "),
        ("/machine/name", json!("here"), "study.machine: `name` is unknown"),
    ] {
        let mut study = golden_study();
        let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
        study.pointer_mut(parent).expect("the parent is there")[field] = value;
        let failure = validator.check_study(&study).expect_err(pointer);
        assert!(failure.contains(expected), "{pointer}: {failure}");
    }
}
