//! Who may talk to the control plane: certificates, keys, tokens and kubeconfigs, as files in its folder,
//! and the arguments that point the programs to them.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use serde_json::json;
use zw_lab::Namespace;

use super::client::Client;
use super::{SERVER, SERVICE_RANGES};

/// No secret: only the namespace reaches the server.
pub(super) const ADMIN_TOKEN: &str = "admin";

/// Names under which clients may know the API server.
const SERVER_NAMES: [&str; 5] =
    ["127.0.0.1", "10.96.0.1", "fd00:10:96::1", "localhost", "kubernetes.default.svc"];

/// The files that decide who is who.
pub(super) struct Access {
    folder: PathBuf,
    authority: Vec<u8>,
}

impl Access {
    /// Writes new keys and certificates into a folder.
    pub(super) fn write(folder: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "zoneward-test-ca");
        let authority = CertifiedIssuer::self_signed(params, key()).expect("parameters are valid");

        let mut params =
            CertificateParams::new(SERVER_NAMES.map(String::from)).expect("names are valid");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.distinguished_name.push(DnType::CommonName, "zoneward-test-server");
        let server_key = key();
        let server = params.signed_by(&server_key, &authority).expect("parameters are valid");
        let accounts = key();

        let write = |name: &str, text: &str| {
            fs::write(folder.join(name), text).expect("the folder is writable");
        };
        write("ca.crt", &authority.pem());
        write("server.crt", &server.pem());
        write("server.key", &server_key.serialize_pem());
        write("accounts.key", &accounts.serialize_pem());
        write("accounts.pub", &accounts.public_key_pem());
        write("tokens.csv", &format!("{ADMIN_TOKEN},admin,admin,system:masters\n"));
        Self { folder: folder.to_owned(), authority: authority.der().to_vec() }
    }

    /// A client of the API server with this token.
    pub(super) fn client(&self, namespace: &Namespace, token: &str) -> Client {
        Client::trusting(namespace, SERVER, &self.authority, token)
    }

    /// Writes a kubeconfig with this token.
    pub(super) fn kubeconfig(&self, name: &str, token: &str) -> PathBuf {
        // JSON is YAML.
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "test",
                "cluster": {"server": SERVER, "certificate-authority": self.file("ca.crt")},
            }],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": "test", "user": name}}],
            "current-context": name,
        });
        let path = self.folder.join(format!("{name}.kubeconfig"));
        // Tests share it: whoever reads meanwhile has the old one or the new one, never a half.
        let mut whole = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(&self.folder)
            .expect("the folder is writable");
        whole.write_all(config.to_string().as_bytes()).expect("the folder is writable");
        whole.persist(&path).expect("the folder is writable");
        path
    }

    /// How the API server is started.
    pub(super) fn api_server_args(&self, etcd: &str, advertised: &str) -> Vec<String> {
        vec![
            format!("--etcd-servers={etcd}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--secure-port=6443".to_owned(),
            format!("--advertise-address={advertised}"),
            format!("--service-cluster-ip-range={SERVICE_RANGES}"),
            "--authorization-mode=Node,RBAC".to_owned(),
            // As every cluster with a network plugin of its own; who may use it is admission's business.
            "--allow-privileged=true".to_owned(),
            format!("--token-auth-file={}", self.file("tokens.csv")),
            format!("--tls-cert-file={}", self.file("server.crt")),
            format!("--tls-private-key-file={}", self.file("server.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", self.file("accounts.pub")),
            format!("--service-account-signing-key-file={}", self.file("accounts.key")),
            // Pods are only objects here, and nobody makes their default service account.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
        ]
    }

    /// How the controller manager is started.
    pub(super) fn controller_manager_args(
        &self,
        kubeconfig: &Path,
        controllers: &str,
    ) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--controllers={controllers}"),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            "--secure-port=10257".to_owned(),
            format!("--tls-cert-file={}", self.file("server.crt")),
            format!("--tls-private-key-file={}", self.file("server.key")),
            format!("--root-ca-file={}", self.file("ca.crt")),
            format!("--service-account-private-key-file={}", self.file("accounts.key")),
            format!("--service-cluster-ip-range={SERVICE_RANGES}"),
        ]
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("the system has random numbers")
}
