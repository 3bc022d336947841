//! What the ipvs mode needs before anything is written: modules, a scheduler, settings of the kernel.

use std::fs;
use std::path::Path;

use tracing::{info, warn};
use zw_model::Scheduler;
use zw_netlink::Error;
use zw_netlink::ipvs::{Batch, ServerId, Socket, Timeouts};
use zw_netlink::route;
use zw_plan::ServerSettings;

use super::{EEXIST, ENOENT, EOPNOTSUPP, EPERM, Ipvs, encode, failed, no_dummy, refused};
use crate::error::WriteError;
use crate::probe::Capability;

const SYSCTLS: &str = "/proc/sys/net/ipv4/vs";

/// In kernels before this one, a connection whose client port is used again waits a second for IPVS
/// where the kernel tracks connections.
const REUSE_IS_FINE: (u32, u32) = (5, 9);

/// What the operator decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpvsOptions {
    /// For Services that ask for no other.
    pub scheduler: Scheduler,
    /// How long IPVS remembers TCP connections, those after a FIN and UDP flows, in seconds; 0 leaves
    /// what is there.
    pub timeouts: [u32; 3],
}

impl Ipvs {
    /// Makes sure that the mode can work, and says what is missing if not. Until then nothing is
    /// written that would stay.
    pub fn prepare(&mut self, options: &IpvsOptions) -> Result<(), WriteError> {
        let socket = self.servers.as_mut().ok_or_else(|| missing("IPVS", "ip_vs"))?;
        socket.info().map_err(|error| failed("IPVS", error))?;
        try_scheduler(socket, &options.scheduler)?;
        self.set_link(true)?;
        Self::set_sysctls()?;
        self.set_timeouts(options.timeouts)
    }

    /// Has IPVS track connections and let go of real servers that are gone. May be done before by who has
    /// more rights.
    pub fn set_sysctls() -> Result<(), WriteError> {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        for (name, value) in sysctls(&release) {
            let path = Path::new(SYSCTLS).join(name);
            let is = fs::read_to_string(&path).unwrap_or_default();
            if is.trim() == value {
                continue;
            }
            match fs::write(&path, value) {
                Ok(()) => info!(file = %path.display(), was = is.trim(), is = value, "set"),
                // Without it nothing can leave with the node's address.
                Err(source) if name == "conntrack" => {
                    let object = format!("{} = {value}", path.display());
                    return Err(WriteError::Refused { object, message: None, part: None, source });
                }
                Err(error) => warn!(file = %path.display(), %error, "left as it is"),
            }
        }
        Ok(())
    }

    fn set_timeouts(&mut self, [tcp, tcp_fin, udp]: [u32; 3]) -> Result<(), WriteError> {
        let Some(socket) = &mut self.servers else { return Ok(()) };
        let access = |error| failed("IPVS' timeouts", error);
        let is = socket.timeouts().map_err(access)?;
        let or = |wanted: u32, is: u32| if wanted == 0 { is } else { wanted };
        let wanted = Timeouts {
            tcp: or(tcp, is.tcp),
            tcp_fin: or(tcp_fin, is.tcp_fin),
            udp: or(udp, is.udp),
        };
        if wanted != is {
            socket.set_timeouts(&wanted).map_err(access)?;
            info!(?wanted, was = ?is, "set IPVS' timeouts");
        }
        Ok(())
    }
}

/// What IPVS is told to do, by the kernel's release.
///
/// Connections are tracked, so that they can leave with the node's address. What is sent to a real server
/// that is gone is given to another one, and a client that stays with one that is leaving moves on.
fn sysctls(release: &str) -> Vec<(&'static str, &'static str)> {
    let mut numbers = release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap_or_default());
    let version = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let mut settings =
        vec![("conntrack", "1"), ("expire_nodest_conn", "1"), ("expire_quiescent_template", "1")];
    if version < REUSE_IS_FINE {
        settings.push(("conn_reuse_mode", "0"));
    }
    settings
}

/// A virtual server that lives for a moment, at an address nobody has.
fn try_scheduler(socket: &mut Socket, scheduler: &Scheduler) -> Result<(), WriteError> {
    let id = ServerId { addr: [198, 51, 100, 0].into(), protocol: 6, port: 20_000 };
    let settings = ServerSettings { scheduler: scheduler.clone(), persistence: None };
    let mut batch = Batch::new();
    batch.new_server(&id, &encode(&settings));
    let refusals = socket.send(&mut batch).map_err(|error| failed("IPVS", error))?;
    match refusals.into_iter().next() {
        None => {
            let mut batch = Batch::new();
            batch.delete_server(&id);
            socket.send(&mut batch).map_err(|error| failed("IPVS", error))?;
            Ok(())
        }
        // Somebody tries the same at this moment.
        Some(refusal) if refusal.errno == EEXIST => Ok(()),
        Some(refusal) if refusal.errno == ENOENT => {
            let name = &scheduler.name;
            Err(missing(&format!("the scheduler {name}"), &format!("ip_vs_{name}")))
        }
        Some(refusal) => Err(refused("a virtual server".into(), refusal.errno, refusal.message)),
    }
}

fn missing(what: &str, module: &str) -> WriteError {
    WriteError::NoIpvs { what: what.into(), module: module.into() }
}

/// What the ipvs mode needs, one answer each.
pub fn probe_ipvs() -> Vec<Capability> {
    let servers = match Socket::open() {
        Ok(Some(mut socket)) => {
            let info = socket.info().map(|_| ()).map_err(|error| failed("IPVS", error));
            info.and_then(|()| try_scheduler(&mut socket, &Scheduler::default()))
        }
        Ok(None) => Err(missing("IPVS", "ip_vs")),
        Err(error) => Err(failed("IPVS", error)),
    };
    vec![answer("IPVS", servers), answer("dummy interfaces", try_dummy())]
}

fn answer(name: &str, outcome: Result<(), WriteError>) -> Capability {
    let missing = outcome.err().map(|error| why(&error));
    Capability { name: name.into(), missing, required: true }
}

/// Why something is missing, and how to get it.
fn why(error: &WriteError) -> String {
    match error {
        WriteError::NoIpvs { module, .. } => format!(
            "not loaded; run `modprobe {module}` on the node, and name it in /etc/modules-load.d for \
             the next start"
        ),
        WriteError::Refused { source, .. } if source.raw_os_error() == Some(EPERM) => {
            "not permitted; IPVS wants root's NET_ADMIN outside of any user namespace".into()
        }
        error => match std::error::Error::source(error) {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        },
    }
}

/// An interface that lives for a moment.
fn try_dummy() -> Result<(), WriteError> {
    let failed = |error| failed("route netlink", error);
    let mut socket = route::Socket::open().map_err(failed)?;
    match socket.add_dummy(&format!("zw-{}", std::process::id())) {
        Ok(link) => socket.delete_link(link.index).map_err(failed),
        Err(Error::Refused { errno: EOPNOTSUPP, .. }) => Err(no_dummy()),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_are_kept_from_waiting_for_a_port_that_is_used_again() {
        let reuse = |release: &str| sysctls(release).contains(&("conn_reuse_mode", "0"));
        for old in ["4.19.0-27-amd64", "5.8.18", "5.4.0", ""] {
            assert!(reuse(old), "{old}");
        }
        for new in ["5.9.0", "5.10.0-30-amd64", "6.1.0-54-amd64", "6.18.44"] {
            assert!(!reuse(new), "{new}");
        }
        assert!(sysctls("6.1.0").contains(&("conntrack", "1")));
    }
}
