//! A file's text to JSON values: YAML or JSON, several documents, Lists taken apart.

use serde_json::Value;

/// One document of a file.
#[derive(Debug)]
pub(super) struct Document {
    /// Counting from 1.
    pub(super) number: usize,
    /// Its objects, each with where it stands (`items[3].` in a List), or why it cannot be read.
    pub(super) content: Result<Vec<(String, Value)>, String>,
}

/// Takes a file apart. One document's syntax error does not harm the others.
pub(super) fn documents(text: &str) -> Vec<Document> {
    let text = text.trim_start_matches('\u{feff}');
    let json = text.trim_start().starts_with(['{', '[']);
    let parsed = if json { parse_json(text) } else { parse_yaml(text) };
    let numbered = parsed.into_iter().zip(1..);
    numbered.map(|(value, number)| Document { number, content: value.map(unlist) }).collect()
}

fn parse_json(text: &str) -> Vec<Result<Value, String>> {
    let mut broken = false;
    serde_json::Deserializer::from_str(text)
        .into_iter::<Value>()
        // After a syntax error the stream cannot find the next document, and would repeat itself.
        .take_while(|value| !std::mem::replace(&mut broken, value.is_err()))
        .map(|value| value.map_err(|error| format!("not JSON: {error}")))
        .collect()
}

fn parse_yaml(text: &str) -> Vec<Result<Value, String>> {
    let mut documents = Vec::new();
    for chunk in split_yaml(text) {
        match serde_saphyr::from_str_with_options::<Value>(chunk, yaml_options()) {
            // Only comments, or nothing.
            Ok(Value::Null) => {}
            Ok(value) => documents.push(Ok(value)),
            Err(error) => {
                let error = error.to_string();
                let first = error.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
                documents.push(Err(format!("not YAML: {}", first.trim())));
            }
        }
    }
    documents
}

/// Cuts at `---` lines. YAML knows no other meaning for one at the start of a line, not even in a
/// block of text.
fn split_yaml(text: &str) -> impl Iterator<Item = &str> {
    let marker = |line: &str| {
        line.strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
    };
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut at = 0;
        for (i, line) in rest.split_inclusive('\n').enumerate() {
            if i > 0 && marker(line) {
                break;
            }
            at += line.len();
        }
        let (chunk, after) = rest.split_at(at);
        rest = after;
        Some(chunk)
    })
    .filter(|chunk| !chunk.trim().trim_start_matches("---").trim().is_empty())
}

/// A whole cluster may stand in one List, so size is not what betrays an attack; aliases that multiply
/// are, and those stay limited by the defaults.
fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
        },
    }
}

/// `kubectl get -o yaml` prints a List; so do its typed forms, such as ServiceList.
fn unlist(mut value: Value) -> Vec<(String, Value)> {
    let is_list =
        value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match value.get_mut("items").filter(|_| is_list).map(Value::take) {
        Some(Value::Array(items)) => {
            items.into_iter().enumerate().map(|(i, item)| (format!("items[{i}]."), item)).collect()
        }
        Some(Value::Null) => Vec::new(),
        _ => vec![(String::new(), value)],
    }
}

#[cfg(test)]
mod tests {
    use super::documents;

    fn kinds(text: &str) -> Vec<Result<Vec<String>, String>> {
        documents(text)
            .into_iter()
            .map(|d| d.content.map(|c| c.into_iter().map(|(p, v)| format!("{p}{v}")).collect()))
            .collect()
    }

    #[test]
    fn documents_are_counted_without_the_empty_ones() {
        let text = "---\n# nothing\n---\nkind: A\n---\n---\nkind: B\n...\n";
        let numbers: Vec<usize> = documents(text).iter().map(|d| d.number).collect();
        assert_eq!(numbers, [1, 2]);
        assert_eq!(
            kinds(text),
            [Ok(vec!["{\"kind\":\"A\"}".into()]), Ok(vec!["{\"kind\":\"B\"}".into()])]
        );
    }

    #[test]
    fn a_broken_document_leaves_the_others() {
        let parsed = kinds("kind: A\n---\nkind: [\n---\nkind: B\n");
        assert!(
            matches!(parsed.as_slice(), [Ok(_), Err(why), Ok(_)] if why.starts_with("not YAML"))
        );
    }

    #[test]
    fn json_documents_follow_each_other() {
        let parsed = kinds("{\"kind\":\"A\"}\n{\"kind\":\"B\"} oops");
        assert!(
            matches!(parsed.as_slice(), [Ok(_), Ok(_), Err(why)] if why.starts_with("not JSON"))
        );
    }

    #[test]
    fn a_list_is_taken_apart() {
        let parsed = kinds("kind: ServiceList\nitems:\n- kind: A\n- kind: B\n");
        let want = ["items[0].{\"kind\":\"A\"}", "items[1].{\"kind\":\"B\"}"];
        assert_eq!(parsed, [Ok(want.map(String::from).to_vec())]);
    }
}
