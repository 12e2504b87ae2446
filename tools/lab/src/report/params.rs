//! Parameters of any shape as lists and tables.

use maud::{Markup, html};
use serde_json::Value;

use crate::protocol::Object;

/// A value: an object as a list, objects of one kind as a table, everything else as text.
pub fn markup(value: &Value) -> Markup {
    match value {
        Value::Object(object) if is_uniform(object.values()) => {
            let lines = object.iter().map(|(name, value)| (Some(name), value));
            table(lines.collect())
        }
        Value::Object(object) => list(object),
        Value::Array(items) if is_uniform(items.iter()) => {
            table(items.iter().map(|value| (None, value)).collect())
        }
        Value::Array(items) if items.iter().any(is_nested) => html! {
            ul { @for item in items { li { (markup(item)) } } }
        },
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            html! { (items.join(", ")) }
        }
        other => html! { (text(other)) },
    }
}

fn list(object: &Object) -> Markup {
    html! {
        dl { @for (name, value) in object {
            @if is_nested(value) {
                dt.wide { (name.replace('_', " ")) }
                dd.wide { details { summary { "show" } (markup(value)) } }
            } @else {
                dt { (name.replace('_', " ")) }
                dd { (markup(value)) }
            }
        } }
    }
}

/// Objects below each other, with the name of each in front if they have names.
fn table(lines: Vec<(Option<&String>, &Value)>) -> Markup {
    let objects = || lines.iter().filter_map(|(_, value)| value.as_object());
    let mut heads: Vec<&String> = Vec::new();
    for key in objects().flat_map(Object::keys) {
        if !heads.contains(&key) {
            heads.push(key);
        }
    }
    html! {
        div.scroll tabindex="0" { table {
            thead { tr {
                @if lines.iter().any(|(name, _)| name.is_some()) { th.words scope="col" { "name" } }
                @for head in &heads { th.words scope="col" { (head.replace('_', " ")) } }
            } }
            tbody { @for (name, value) in &lines { tr {
                @if let Some(name) = name { td.words { (name) } }
                @for head in &heads {
                    td.words { (value.get(head.as_str()).map(markup).unwrap_or_default()) }
                }
            } } }
        } }
    }
}

/// Whether there are several objects, with no more in them than a table's line can show.
fn is_uniform<'a>(mut values: impl ExactSizeIterator<Item = &'a Value>) -> bool {
    let is_flat = |value: &Value| {
        let object = value.as_object();
        object.is_some_and(|object| !object.is_empty() && !object.values().any(is_nested))
    };
    values.len() > 1 && values.all(is_flat)
}

/// Whether a value has objects in it.
fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(items) => items.iter().any(|item| item.is_object() || item.is_array()),
        _ => false,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "not known".into(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::String(words) => words.clone(),
        other => other.to_string(),
    }
}
