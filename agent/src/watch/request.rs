//! Requests to the API server, and answers read as they come in.

use bytes::BytesMut;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use kube::core::params::{ListParams, WatchParams};

use super::decode::{
    ANY_FORM, Decoder, Form, JSON_ONLY, ListDecoder, ListMeta, ListPart, Refusal, Unreadable,
    WatchDecoder,
};
use super::received::Resource;
use crate::config::ContentType;
use crate::convert::Decoded;

/// How many objects a page of a list in JSON has, which is kept until it is read as a whole. Protocol buffers
/// are read as they come, so there a list is one answer: servers take that from their cache, but pages from
/// etcd before 1.34, where all nodes together would be felt.
const PAGE: u32 = 10_000;

/// How long the server keeps a watch open, in seconds.
pub(super) const WATCH_SECONDS: u32 = 290;

/// Why an answer did not come, or not to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// It came, and is a no.
    #[error(transparent)]
    Refused(Refusal),
    /// It was coming, and the server gave it up.
    #[error(transparent)]
    GivenUp(Refusal),
    #[error("{}", with_causes(.0))]
    Request(kube::Error),
    /// It broke off.
    #[error("{}", with_causes(&**.0))]
    Broken(Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("the list has no resourceVersion")]
    NoVersion,
    /// Nobody wants to know any more.
    #[error("nobody listens")]
    Unheard,
}

impl Failure {
    /// The server said this, with this code.
    pub(super) fn is_refused_with(&self, wanted: u16) -> bool {
        matches!(self, Self::Refused(refusal) | Self::GivenUp(refusal) if refusal.code == wanted)
    }

    /// The same may be asked again: nothing is wrong with the question. A server that has too much to do, is
    /// about to start or does not know its clients yet must not be asked for everything because of that, by
    /// every node at once.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Broken(_) | Self::Request(_) => true,
            // Not 504: so it answers who asks for a version that it has yet to reach, and after it was
            // restored from a backup it never will.
            Self::Refused(refusal) => matches!(refusal.code, 401 | 403 | 429 | 500 | 502 | 503),
            // The event that it stumbled over would come again.
            Self::GivenUp(_) | Self::Unreadable(_) | Self::NoVersion | Self::Unheard => false,
        }
    }

    /// The connection ended without a word, as one does whose server stops or whose proxy has enough.
    pub(super) fn is_silent_end(&self) -> bool {
        let Self::Broken(error) = self else { return false };
        let mut next: Option<&dyn std::error::Error> = Some(&**error);
        while let Some(error) = next {
            let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
            if kind == Some(std::io::ErrorKind::UnexpectedEof)
                || error.to_string().contains("unexpected EOF during chunk")
            {
                return true;
            }
            next = error.source();
        }
        false
    }
}

/// An error and why, each reason once: some tell their cause themselves, some leave it to be asked for.
pub(super) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.contains(&why) {
            text = format!("{text}: {why}");
        }
        cause = error.source();
    }
    text
}

/// Whom to ask, and how it may answer.
#[derive(Clone)]
pub(crate) struct Server {
    pub(super) client: Client,
    /// Only in JSON.
    pub(super) json_only: bool,
}

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Selection {
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
}

/// How new a list must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Whatever the server has in its cache, for which it asks nobody: a watch from there tells the rest. A
    /// cache is behind by less than it takes to start a process, and a node that starts while etcd is down,
    /// or has too much to do, gets its Services all the same.
    Cached,
    /// As new as anything that was ever written, for which a server asks etcd and waits, 50 ms and more,
    /// until its cache has caught up.
    Newest,
}

impl Server {
    pub(crate) fn new(client: Client, content_type: ContentType) -> Self {
        Self { client, json_only: content_type == ContentType::Json }
    }

    /// Everything there is, as it is read.
    pub(super) fn list<'a>(
        &'a self,
        resource: Resource,
        selection: &'a Selection,
        freshness: Freshness,
    ) -> Listing<'a> {
        Listing { server: self, resource, selection, freshness, page: None, about: None }
    }

    async fn list_page(
        &self,
        resource: Resource,
        selection: &Selection,
        freshness: Freshness,
        next: Option<&str>,
    ) -> Result<Answer<ListDecoder>, Failure> {
        let params = ListParams {
            label_selector: selection.labels.clone(),
            field_selector: selection.fields.clone(),
            limit: self.json_only.then_some(PAGE),
            continue_token: next.map(str::to_owned),
            // A further page is as new as the first, and must not be asked for otherwise.
            ..match freshness {
                // That is never in pages.
                Freshness::Cached if !self.json_only && next.is_none() => {
                    ListParams::default().match_any()
                }
                _ => ListParams::default(),
            }
        };
        let request = kube::core::Request::new(resource.path()).list(&params);
        let (form, body) = self.ask(request).await?;
        Ok(Answer::new(body, ListDecoder::new(form, resource.kind())))
    }

    /// What happens from a version on.
    pub(super) async fn watch(
        &self,
        resource: Resource,
        selection: &Selection,
        version: &str,
    ) -> Result<Answer<WatchDecoder>, Failure> {
        let params = WatchParams {
            label_selector: selection.labels.clone(),
            field_selector: selection.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            send_initial_events: false,
        };
        let request = kube::core::Request::new(resource.path()).watch(&params, version);
        let (form, body) = self.ask(request).await?;
        Ok(Answer::new(body, WatchDecoder::new(form, resource.kind())))
    }

    async fn ask(
        &self,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<(Form, Body), Failure> {
        let request =
            request.map_err(|error| Failure::Request(kube::Error::BuildRequest(error)))?;
        let mut request = request.map(Body::from);
        let accept = if self.json_only { JSON_ONLY } else { ANY_FORM };
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let answer = self.client.send(request).await.map_err(Failure::Request)?;
        let form = form(&answer);
        if !answer.status().is_success() {
            return Err(refused(answer, form).await);
        }
        Ok((form, answer.into_body()))
    }
}

fn form(answer: &Response<Body>) -> Form {
    let content_type = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    Form::of(content_type.unwrap_or_default())
}

async fn refused(answer: Response<Body>, form: Form) -> Failure {
    /// Longer than any reason, and short enough to wait for.
    const LONGEST: usize = 1 << 20;
    let code = answer.status().as_u16();
    match Limited::new(answer.into_body(), LONGEST).collect().await {
        Ok(body) => Failure::Refused(form.refusal(code, &body.to_bytes())),
        Err(error) => Failure::Broken(error),
    }
}

/// A list, page by page.
pub(super) struct Listing<'a> {
    server: &'a Server,
    resource: Resource,
    selection: &'a Selection,
    freshness: Freshness,
    page: Option<Answer<ListDecoder>>,
    /// Of the last page that told.
    about: Option<ListMeta>,
}

impl Listing<'_> {
    /// The next object; `None` after the last one of the last page.
    pub(super) async fn next(&mut self) -> Result<Option<Decoded>, Failure> {
        loop {
            let Some(page) = &mut self.page else {
                let next = match &self.about {
                    None => None,
                    Some(about) if about.next.is_empty() => return Ok(None),
                    Some(about) => Some(about.next.as_str()),
                };
                let Self { server, resource, selection, freshness, .. } = self;
                let page = server.list_page(*resource, selection, *freshness, next).await?;
                self.page = Some(page);
                self.about = None;
                continue;
            };
            match page.next().await? {
                Some(ListPart::Object(object)) => return Ok(Some(object)),
                Some(ListPart::About(about)) => self.about = Some(about),
                None => {
                    self.page = None;
                    self.about.get_or_insert_default();
                }
            }
        }
    }

    /// The version to watch from.
    pub(super) fn version(self) -> Result<String, Failure> {
        let version = self.about.map(|about| about.version).unwrap_or_default();
        if version.is_empty() { Err(Failure::NoVersion) } else { Ok(version) }
    }
}

/// An answer as it comes in.
pub(super) struct Answer<D> {
    body: Body,
    buffer: BytesMut,
    decoder: D,
    ended: bool,
}

impl<D: Decoder> Answer<D> {
    fn new(body: Body, decoder: D) -> Self {
        Self { body, buffer: BytesMut::new(), decoder, ended: false }
    }

    /// The next part; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<D::Part>, Failure> {
        loop {
            if let Some(part) = self.decoder.decode(&mut self.buffer, self.ended)? {
                return Ok(Some(part));
            }
            if self.ended {
                return Ok(None);
            }
            if self.buffer.is_empty() {
                // One large object is no reason to keep its room.
                self.buffer = BytesMut::new();
            }
            match self.body.frame().await {
                // Trailers say nothing.
                Some(Ok(frame)) => {
                    frame
                        .data_ref()
                        .into_iter()
                        .for_each(|data| self.buffer.extend_from_slice(data));
                }
                Some(Err(error)) => return Err(Failure::Broken(error.into())),
                None => self.ended = true,
            }
        }
    }
}
