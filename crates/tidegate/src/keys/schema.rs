//! The JSON schemas of configurations and scenarios, made of the table of keys.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::ops::Bound::{Excluded, Included, Unbounded};

use serde_json::{Map, Value, json};
use tidegate_config::keys::{Key, KeyTable, KeyType, TABLES};
use tidegate_testing::markdown::root;

use super::page::is_up_to_date;
use super::plain;

/// The documents with a schema: the table at the root, the file, and its title.
const SCHEMAS: &[(&str, &str, &str)] = &[
    ("serve", "docs/serve.schema.json", "A configuration of tidegate serve"),
    ("agent", "docs/agent.schema.json", "A configuration of tidegate agent"),
    ("broker", "docs/broker.schema.json", "A configuration of tidegate broker"),
    ("scenario", "docs/scenarios.schema.json", "A scenario of tidegate sim"),
];

#[test]
fn the_schemas_are_made_of_the_table_of_keys() {
    for (table, file, title) in SCHEMAS {
        let mut text = serde_json::to_string_pretty(&schema(table, title)).unwrap();
        text.push('\n');
        assert!(
            is_up_to_date(file, &text),
            "run the tests of keys once with UPDATE_DOCS=1, and commit {file}"
        );
    }
}

#[test]
fn every_example_keeps_its_schema() {
    let mut examples: Vec<_> = ["complete", "database", "emulated", "tenants"]
        .map(|name| (root().join(format!("docs/examples/{name}.toml")), "serve"))
        .into();
    examples.push((root().join("docs/examples/agent.toml"), "agent"));
    for folder in fs::read_dir(root().join("scenarios")).unwrap() {
        for file in fs::read_dir(folder.unwrap().path()).unwrap() {
            let file = file.unwrap().path();
            if file.extension().is_some_and(|extension| extension == "toml") {
                examples.push((file, "scenario"));
            }
        }
    }
    assert!(examples.len() > 20, "{examples:?}");
    for (file, table) in examples {
        let document: toml::Table = fs::read_to_string(&file).unwrap().parse().unwrap();
        let wrong = violations(&schema(table, ""), &serde_json::to_value(document).unwrap());
        assert!(wrong.is_empty(), "{}: {wrong:?}", file.display());
    }
}

#[test]
fn a_schema_refuses_unknown_and_missing_keys_types_words_and_numbers_out_of_bounds() {
    let serve = schema("serve", "");
    let with = |backend: Value, window: Value| json!({ "listen": [], "pool": { "a": { "backend": backend, "window": window, "export": {} } } });
    let file = || json!({ "kind": "file" });
    assert_eq!(violations(&serve, &with(file(), json!({ "gamma": 1 }))), [""; 0]);
    for (wrong, place) in [
        (with(file(), json!({ "gama": 1 })), "pool.a.window.gama"),
        (with(file(), json!({ "gamma": 0.0 })), "pool.a.window.gamma"),
        (with(file(), json!({ "gamma": 1.5 })), "pool.a.window.gamma"),
        (with(file(), json!({ "gamma": "1" })), "pool.a.window.gamma"),
        (with(json!({ "kind": "fil" }), json!({})), "pool.a.backend.kind"),
        (with(json!({}), json!({})), "pool.a.backend.kind"),
    ] {
        assert_eq!(violations(&serve, &wrong), [place]);
    }
}

/// Returns the places in a document that its schema refuses. Patterns of texts are not compared.
fn violations(schema: &Value, document: &Value) -> Vec<String> {
    fn walk(root: &Value, schema: &Value, value: &Value, place: &str) -> Vec<String> {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let schema = reference.map_or(schema, |path| root.pointer(&path[1..]).expect("a definition"));
        if let Some(choices) = schema.get("anyOf").and_then(Value::as_array) {
            let choices = choices.iter().map(|choice| walk(root, choice, value, place));
            return choices.min_by_key(Vec::len).unwrap_or_default();
        }
        let at = |key: &str| if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") };
        let is_in_bounds = value.as_f64().is_none_or(|number| {
            let bound = |name| schema.get(name).and_then(Value::as_f64);
            bound("minimum").is_none_or(|least| number >= least)
                && bound("maximum").is_none_or(|most| number <= most)
                && bound("exclusiveMinimum").is_none_or(|least| number > least)
                && bound("exclusiveMaximum").is_none_or(|most| number < most)
        });
        let is_of_type = match schema.get("type").and_then(Value::as_str) {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("integer") => value.is_i64(),
            Some("number") => value.is_number(),
            _ => schema["enum"].as_array().is_some_and(|words| words.contains(value)),
        };
        if !is_of_type || !is_in_bounds {
            return vec![place.to_owned()];
        }
        let mut wrong = Vec::new();
        if let Value::Object(entries) = value {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            wrong.extend(required.filter(|key| !entries.contains_key(*key)).map(at));
            for (key, value) in entries {
                match schema["properties"].get(key).or(schema.get("additionalProperties")) {
                    None | Some(Value::Bool(false)) => wrong.push(at(key)),
                    Some(Value::Bool(true)) => {}
                    Some(inner) => wrong.extend(walk(root, inner, value, &at(key))),
                }
            }
        }
        for item in value.as_array().into_iter().flatten() {
            wrong.extend(walk(root, &schema["items"], item, place));
        }
        wrong
    }
    walk(schema, schema, document, "")
}

fn table(id: &str) -> &'static KeyTable {
    TABLES.iter().find(|table| table.id == id).expect("a table with this id")
}

/// The schema of a document whose root is this table, with a definition for each table below it.
fn schema(root: &'static str, title: &str) -> Value {
    let (mut waiting, mut seen) = (VecDeque::from([root]), BTreeSet::new());
    let mut definitions = Map::new();
    let mut whole = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": "The keys, as far as a schema can say it. The program checks the rest, and says \
            where.",
    });
    while let Some(id) = waiting.pop_front() {
        if !seen.insert(id) {
            continue;
        }
        table(id).keys.iter().for_each(|key| references(&key.kind, &mut waiting));
        let Value::Object(object) = object(table(id)) else { unreachable!("an object") };
        if id == root {
            whole.as_object_mut().expect("an object").extend(object);
        } else {
            definitions.insert(name(id).to_owned(), Value::Object(object));
        }
    }
    whole["$defs"] = Value::Object(definitions);
    whole
}

fn name(id: &str) -> &str {
    id.strip_prefix("scenario.").unwrap_or(id)
}

fn references(kind: &KeyType, found: &mut VecDeque<&'static str>) {
    match kind {
        KeyType::Table(id) | KeyType::Tables(id) | KeyType::TableList(id) => found.push_back(id),
        KeyType::List(of) => references(of, found),
        KeyType::Either(kinds) => kinds.iter().for_each(|kind| references(kind, found)),
        _ => {}
    }
}

fn object(table: &KeyTable) -> Value {
    let properties: Map<_, _> = table.keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let mut object = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    // A key of one kind of backend or carrier is required with that kind alone: the program checks it.
    let is_required = |key: &&Key| key.is_required() && key.applies_to.is_empty();
    let required: Vec<_> = table.keys.iter().filter(is_required).map(|key| key.name).collect();
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

fn property(key: &Key) -> Value {
    let mut value = json!({ "description": plain(key.meaning) });
    let map = value.as_object_mut().expect("an object");
    let Value::Object(kind) = kind(&key.kind) else { unreachable!("an object") };
    map.extend(kind);
    let literal = key.default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    if let Some(default) = literal.and_then(|text| serde_json::from_str(text).ok()) {
        map.insert("default".to_owned(), default);
    }
    value
}

fn kind(kind: &KeyType) -> Value {
    let text = |units: &str| json!({ "type": "string", "pattern": format!("^ *[0-9.]+ *({units}) *$") });
    let reference = |id: &str| json!({ "$ref": format!("#/$defs/{}", name(id)) });
    match kind {
        KeyType::Time => text("ns|us|µs|ms|s|min|h"),
        KeyType::Size => text("B|KiB|MiB|GiB|TiB|kB|MB|GB|TB"),
        KeyType::Rate => text("IO/s|kIO/s|MIO/s|iops"),
        KeyType::ByteRate => text("[kKMGT]?i?B/s"),
        KeyType::Text | KeyType::Path | KeyType::Format(_) => json!({ "type": "string" }),
        KeyType::TimeOfDay => json!({ "type": "string", "pattern": "^[0-9]{1,2}:[0-9]{2}" }),
        KeyType::Span => json!({ "type": "string", "pattern": "\\.\\." }),
        KeyType::Flag => json!({ "type": "boolean" }),
        KeyType::Words(words) => json!({ "enum": words }),
        KeyType::Whole(least, i64::MAX) => json!({ "type": "integer", "minimum": least }),
        KeyType::Whole(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        KeyType::Number((lower, upper)) => {
            let mut value = json!({ "type": "number" });
            match lower {
                Included(least) => value["minimum"] = json!(least),
                Excluded(least) => value["exclusiveMinimum"] = json!(least),
                Unbounded => {}
            }
            match upper {
                Included(most) => value["maximum"] = json!(most),
                Excluded(most) => value["exclusiveMaximum"] = json!(most),
                Unbounded => {}
            }
            value
        }
        KeyType::Table(id) => json!({ "$ref": reference(id)["$ref"] }),
        KeyType::Tables(id) => json!({ "type": "object", "additionalProperties": reference(id) }),
        KeyType::TableList(id) => json!({ "type": "array", "items": reference(id) }),
        KeyType::List(of) => json!({ "type": "array", "items": self::kind(of) }),
        KeyType::NamedNumbers => json!({ "type": "object", "additionalProperties": { "type": "number" } }),
        KeyType::NamedLists => json!({ "type": "object", "additionalProperties": {
            "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }]
        } }),
        KeyType::NamedValues => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        KeyType::Device => json!({
            "type": "object",
            "required": ["model"],
            "properties": { "model": { "enum": [
                "exponential", "disk", "array", "flash", "volume", "tiers", "link",
            ] } },
            "additionalProperties": true
        }),
        KeyType::Either(kinds) => json!({ "anyOf": kinds.iter().map(self::kind).collect::<Vec<_>>() }),
    }
}
