//! The cluster tier: a real etcd, kube-apiserver and kube-controller-manager on loopback in a namespace.
//! Needs root, setpriv and what `tests/control-plane/build` builds; fails, never skips, without.

mod credentials;
mod hostile;
mod install;
mod memory;
mod node;
mod smoke;
mod subsetting;
mod watches;
mod zones;
