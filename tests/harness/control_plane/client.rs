//! A client of the API: plain requests, JSON in and out, from inside the namespace.

use std::io::{self, BufRead as _, BufReader};
use std::time::Duration;

use serde_json::Value;
use ureq::http::Request;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use zw_lab::Namespace;

/// Longer than any request that is not a watch; a watch names its own `timeoutSeconds`.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends requests as one user.
#[derive(Clone)]
pub struct Client {
    namespace: Namespace,
    agent: ureq::Agent,
    base: String,
    token: Option<String>,
}

/// What the API answered.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The HTTP status code.
    pub status: u16,
    /// The body: JSON as a rule, one event a line for a watch.
    pub text: String,
}

impl Reply {
    /// Whether the request did what it asked for.
    pub fn ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as JSON; text where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| Value::String(self.text.clone()))
    }

    /// The events of a watch.
    pub fn events(&self) -> Vec<Value> {
        let event = |line| serde_json::from_str(line).expect("every event is JSON on one line");
        self.text.lines().map(event).collect()
    }

    /// The body of a request that has to succeed.
    pub(super) fn expect(self, method: &str, path: &str) -> Value {
        assert!(self.ok(), "{method} {path}: {}, {}", self.status, self.text);
        self.json()
    }
}

impl Client {
    /// A client of a server whose certificate this authority signed.
    pub(super) fn trusting(
        namespace: &Namespace,
        base: &str,
        authority: &[u8],
        token: &str,
    ) -> Self {
        let roots = RootCerts::new_with_certs(&[Certificate::from_der(authority).to_owned()]);
        let tls = TlsConfig::builder().root_certs(roots).build();
        Self { token: Some(token.to_owned()), ..Self::with(namespace, base, tls) }
    }

    /// A client of a server without encryption.
    pub fn plain(namespace: &Namespace, base: &str) -> Self {
        Self::with(namespace, base, TlsConfig::default())
    }

    /// The same user at another server.
    pub(super) fn at(&self, base: &str) -> Self {
        Self { base: base.to_owned(), ..self.clone() }
    }

    /// The same user in another namespace, which takes a [`Relay`](super::Relay) there.
    pub fn from(&self, namespace: &Namespace) -> Self {
        // Not the same connections.
        let agent = self.agent.config().clone().new_agent();
        Self { namespace: namespace.clone(), agent, ..self.clone() }
    }

    fn with(namespace: &Namespace, base: &str, tls: TlsConfig) -> Self {
        let config = ureq::Agent::config_builder()
            // The caller judges the status, and no proxy of the machine leads into the namespace.
            .http_status_as_error(false)
            .proxy(None)
            .tls_config(tls)
            .timeout_global(Some(TIMEOUT))
            .build();
        let agent = config.new_agent();
        Self { namespace: namespace.clone(), agent, base: base.to_owned(), token: None }
    }

    /// Reads an object, a collection or, until its `timeoutSeconds` end, a watch.
    pub fn get(&self, path: &str) -> io::Result<Reply> {
        self.request("GET", path, None)
    }

    /// Creates an object in a collection.
    pub fn post(&self, path: &str, object: &Value) -> io::Result<Reply> {
        self.request("POST", path, Some(("application/json", object)))
    }

    /// Replaces an object.
    pub fn put(&self, path: &str, object: &Value) -> io::Result<Reply> {
        self.request("PUT", path, Some(("application/json", object)))
    }

    /// Merges fields into an object; `null` removes one.
    pub fn patch(&self, path: &str, fields: &Value) -> io::Result<Reply> {
        self.request("PATCH", path, Some(("application/merge-patch+json", fields)))
    }

    /// Deletes an object or a collection.
    pub fn delete(&self, path: &str) -> io::Result<Reply> {
        self.request("DELETE", path, None)
    }

    /// Gives every event of a watch, a line each, as it arrives. Ends when `each` says false, when the
    /// server ends the watch or when the connection breaks.
    pub fn follow(&self, path: &str, mut each: impl FnMut(&str) -> bool + Send) -> io::Result<()> {
        let mut request = Request::builder().uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request.body(()).expect("a valid request");
        let request = self.agent.configure_request(request).timeout_global(None).build();
        self.namespace.run(|| {
            let mut response = self.agent.run(request).map_err(ureq::Error::into_io)?;
            let mut events = BufReader::new(response.body_mut().as_reader());
            let mut line = String::new();
            while events.read_line(&mut line)? > 0 {
                if !each(&line) {
                    break;
                }
                line.clear();
            }
            Ok(())
        })
    }

    /// Any request; a body comes with its content type. An error means that there was no answer.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> io::Result<Reply> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        // A socket belongs to the namespace of the thread that made it.
        let answer = self.namespace.run(|| {
            let mut response = match body {
                Some((kind, body)) => {
                    let request = request.header("Content-Type", kind).body(body.to_string());
                    self.agent.run(request.expect("a valid request"))
                }
                None => self.agent.run(request.body(()).expect("a valid request")),
            }?;
            let text = response.body_mut().with_config().limit(u64::MAX).read_to_string()?;
            Ok(Reply { status: response.status().as_u16(), text })
        });
        answer.map_err(|error: ureq::Error| error.into_io())
    }
}
