//! The cluster tier: a real etcd, kube-apiserver and kube-controller-manager on loopback in a namespace.
//! Needs root, setpriv and what `tests/control-plane/build` builds; fails, never skips, without.

mod continuity;
mod credentials;
mod forms;
mod hostile;
mod install;
mod install_controller;
mod install_profile;
mod install_rights;
mod memory;
mod migration;
mod mirroring;
mod node;
mod road;
mod smoke;
mod subsetting;
mod surface;
mod watches;
mod zone_controller;
mod zone_controller_scale;
mod zone_place;
mod zone_require;
mod zones;
