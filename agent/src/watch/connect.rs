//! The connection to the API server, with `kube`'s TLS and credentials.

use std::path::Path;

use anyhow::Context;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt;
use kube::client::retry::RetryPolicy;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::timeout::TimeoutLayer;
use tower::{BoxError, ServiceBuilder};
use tracing::warn;

use super::received::Received;
use crate::BadInput;

/// Which kubeconfig to use, none for the pod's service account. One that is named only in kube-proxy's
/// configuration may be a path in kube-proxy's pod, as in every cluster that kubeadm made.
pub(crate) fn kubeconfig(named: Option<&Path>, by_flag: bool, in_a_pod: bool) -> Option<&Path> {
    let path = named?;
    if by_flag || !in_a_pod || path.exists() {
        return Some(path);
    }
    warn!(path = %path.display(), "no such kubeconfig; using the pod's service account");
    None
}

/// Connects as a kubeconfig says, or as a pod's service account; to another address, if one is given. What
/// is received is counted.
pub(crate) async fn connect(
    kubeconfig: Option<&Path>,
    server: Option<&str>,
) -> anyhow::Result<(kube::Client, Received)> {
    let mut config = match kubeconfig {
        Some(path) => {
            let unusable = || BadInput(format!("cannot use the kubeconfig {}", path.display()));
            let kubeconfig = Kubeconfig::read_from(path).with_context(unusable)?;
            let options = KubeConfigOptions::default();
            Config::from_custom_kubeconfig(kubeconfig, &options).await.with_context(unusable)?
        }
        // kube's errors tell their cause themselves.
        None => Config::incluster().map_err(|error| {
            BadInput(format!(
                "not in a cluster ({error}): give --kubeconfig FILE, or --state PATH to follow manifests"
            ))
        })?,
    };
    if let Some(server) = server {
        let wrong = || BadInput(format!("--master {server:?} is not a URL"));
        config.cluster_url = server.parse().with_context(wrong)?;
    }
    if let Some(proxy) = &config.proxy_url {
        let message = "the API server is to be reached through a proxy, which is not supported";
        return Err(BadInput(format!("{message}: {proxy}")).into());
    }
    let received = Received::default();
    let client = client(config, &received).context("cannot connect to the API server")?;
    Ok((client, received))
}

/// As `kube` builds one, which does not let anybody choose [`tcp`].
fn client(config: Config, received: &Received) -> kube::Result<Client> {
    let connector = ServiceBuilder::new()
        .map_future(Box::pin)
        .option_layer(config.connect_timeout.map(TimeoutLayer::new))
        .service(config.rustls_https_connector_with_connector(tcp())?);
    let service = ServiceBuilder::new()
        .layer(received.clone())
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(hyper_util::client::legacy::Builder::new(TokioExecutor::new()).build(connector));
    Ok(Client::new(service, config.default_namespace))
}

/// Without `TCP_NODELAY` the kernel keeps the first request of a connection back until the server has
/// acknowledged the end of the handshake, which takes it 40 ms.
fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tower::Service;

    use super::*;

    #[tokio::test]
    async fn what_is_small_is_sent_at_once() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", server.local_addr().unwrap());
        let stream = tcp().call(url.parse().unwrap()).await.unwrap();
        assert!(stream.inner().nodelay().unwrap());
    }

    #[tokio::test]
    async fn a_proxy_that_would_not_be_used_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = r#"{"clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1", "proxy-url": "http://p:1"}}],
            "users": [{"name": "u"}], "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}"#;
        std::fs::write(file.path(), text).unwrap();
        let error = connect(Some(file.path()), None).await.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("not supported: http://p:1"), "{error}");
    }

    #[test]
    fn a_kubeconfig_of_kube_proxys_pod_gives_way_to_the_service_account() {
        let (here, elsewhere) =
            (Path::new("/proc/self/exe"), Path::new("/nowhere/kubeconfig.conf"));
        for (named, by_flag, in_a_pod, want) in [
            (None, false, true, None),
            (Some(here), false, true, Some(here)),
            (Some(elsewhere), false, true, None),
            // Nothing to give way to, or asked for in so many words: its absence is an error.
            (Some(elsewhere), false, false, Some(elsewhere)),
            (Some(elsewhere), true, true, Some(elsewhere)),
        ] {
            assert_eq!(
                kubeconfig(named, by_flag, in_a_pod),
                want,
                "{named:?} {by_flag} {in_a_pod}"
            );
        }
    }
}
