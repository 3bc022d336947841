//! Operations as requests, and what to make of the answers.

use std::net::{IpAddr, SocketAddr};

use tracing::{debug, warn};
use zw_netlink::ipvs::{Batch, RealServer, Refusal, Socket};
use zw_plan::{Operation, ServerSettings, VirtualKey};

use super::{
    EEXIST, ENOENT, ESRCH, Ipvs, LINK, OURS, RefusedReal, Unserved, WhyUnserved, encode, failed,
    id, is_for_good, refused,
};
use crate::error::WriteError;

impl Ipvs {
    /// Does all of it: what comes before what goes, virtual servers before their real ones.
    pub(super) fn carry_out(&mut self, todo: &[Operation]) -> Result<(), WriteError> {
        if todo.is_empty() {
            return Ok(());
        }
        self.servers(todo)?;
        self.reals_come(todo)?;
        let comes = |op: &Operation| match op {
            Operation::Address(addr) => Some(*addr),
            _ => None,
        };
        self.addresses(todo.iter().filter_map(comes).collect(), true)?;
        self.go(todo)?;
        let goes = |op: &Operation| match op {
            Operation::RemoveAddress(addr) => Some(*addr),
            _ => None,
        };
        self.addresses(todo.iter().filter_map(goes).collect(), false)
    }

    fn socket(&mut self) -> Result<&mut Socket, WriteError> {
        self.servers
            .as_mut()
            .ok_or_else(|| WriteError::NoIpvs { what: "IPVS".into(), module: "ip_vs".into() })
    }

    /// Sends a batch, if there is anything in it.
    fn send(&mut self, mut batch: Batch) -> Result<Vec<Refusal>, WriteError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.requests += batch.len();
        self.socket()?.send(&mut batch).map_err(|error| failed("IPVS", error))
    }

    /// Virtual servers come, or get other settings if they are there and ours.
    fn servers(&mut self, todo: &[Operation]) -> Result<(), WriteError> {
        let wanted: Vec<(&VirtualKey, &ServerSettings)> = todo
            .iter()
            .filter_map(|op| match op {
                Operation::Server(key, settings) => Some((key, settings)),
                _ => None,
            })
            .collect();
        let mut batch = Batch::new();
        for (key, settings) in &wanted {
            self.unserved.remove(key);
            self.foreign.remove(key);
            batch.new_server(&id(key), &encode(settings));
        }
        let mut again = Batch::new();
        let mut changed = Vec::new();
        for refusal in self.send(batch)? {
            let (key, settings) = wanted[refusal.operation];
            match refusal.errno {
                EEXIST if self.is_ours(key)? => {
                    again.set_server(&id(key), &encode(settings));
                    changed.push((key, settings));
                }
                EEXIST => {
                    self.foreign.insert(*key);
                    self.refused.push(Unserved { server: *key, why: WhyUnserved::Foreign });
                }
                _ => self.refuse(key, settings, refusal)?,
            }
        }
        for refusal in self.send(again)? {
            let (key, settings) = changed[refusal.operation];
            self.refuse(key, settings, refusal)?;
        }
        Ok(())
    }

    /// A scheduler that is not there, or anything else that the kernel never takes, costs the Services
    /// that ask for it, and nobody else.
    fn refuse(
        &mut self,
        key: &VirtualKey,
        settings: &ServerSettings,
        refusal: Refusal,
    ) -> Result<(), WriteError> {
        let why = match refusal.errno {
            ENOENT => WhyUnserved::NoScheduler(settings.scheduler.name.to_string()),
            errno if is_for_good(errno) => WhyUnserved::Refused(reason(&refusal)),
            errno => {
                let object = format!("the virtual server {key}");
                return Err(refused(object, errno, refusal.message));
            }
        };
        self.unserved.insert(*key);
        self.refused.push(Unserved { server: *key, why });
        Ok(())
    }

    pub(super) fn is_ours(&mut self, key: &VirtualKey) -> Result<bool, WriteError> {
        let server = self.socket()?.server(&id(key));
        let server = server.map_err(|error| failed(&format!("the virtual server {key}"), error))?;
        Ok(server.is_some_and(|server| server.settings.flags & OURS != 0))
    }

    /// Nobody's business but ours, and there to be changed.
    fn serves(&self, key: &VirtualKey) -> bool {
        !self.foreign.contains(key) && !self.unserved.contains(key)
    }

    /// Real servers come, or get another weight.
    fn reals_come(&mut self, todo: &[Operation]) -> Result<(), WriteError> {
        let wanted: Vec<(&VirtualKey, RealServer)> = todo
            .iter()
            .filter_map(|op| match op {
                Operation::Real(key, addr, weight) if self.serves(key) => {
                    Some((key, RealServer { addr: *addr, weight: *weight }))
                }
                _ => None,
            })
            .collect();
        let mut batch = Batch::new();
        for (key, real) in &wanted {
            match real.weight {
                0 => batch.set_real(&id(key), real),
                _ => batch.new_real(&id(key), real),
            }
        }
        let mut again = Batch::new();
        let mut changed = Vec::new();
        for refusal in self.send(batch)? {
            let (key, real) = wanted[refusal.operation];
            match (real.weight, refusal.errno) {
                // Gone before it could leave.
                (0, ENOENT | ESRCH) => debug!(server = %key, real = %real.addr, "gone already"),
                (_, EEXIST) => {
                    again.set_real(&id(key), &real);
                    changed.push((key, real));
                }
                _ => self.refuse_real(key, real.addr, refusal)?,
            }
        }
        for refusal in self.send(again)? {
            let (key, real) = changed[refusal.operation];
            self.refuse_real(key, real.addr, refusal)?;
        }
        Ok(())
    }

    /// An endpoint that the kernel never takes costs its Service that endpoint, and nobody anything else.
    fn refuse_real(
        &mut self,
        key: &VirtualKey,
        real: SocketAddr,
        refusal: Refusal,
    ) -> Result<(), WriteError> {
        if !is_for_good(refusal.errno) {
            let object = format!("the real server {real} of {key}");
            return Err(refused(object, refusal.errno, refusal.message));
        }
        self.refused_reals.push(RefusedReal { server: *key, real, why: reason(&refusal) });
        Ok(())
    }

    /// Real and virtual servers go.
    fn go(&mut self, todo: &[Operation]) -> Result<(), WriteError> {
        let mut batch = Batch::new();
        let mut what = Vec::new();
        for op in todo {
            match op {
                Operation::RemoveReal(key, real) if self.serves(key) => {
                    batch.delete_real(&id(key), *real);
                }
                // Somebody may have put his own in its place, which nobody was told of.
                Operation::RemoveServer(key) if self.serves(key) && self.is_ours(key)? => {
                    batch.delete_server(&id(key));
                }
                _ => continue,
            }
            what.push(op);
        }
        for refusal in self.send(batch)? {
            if !matches!(refusal.errno, ENOENT | ESRCH) {
                let object = match what[refusal.operation] {
                    Operation::RemoveReal(key, real) => format!("to remove {real} from {key}"),
                    Operation::RemoveServer(key) => format!("to remove the virtual server {key}"),
                    _ => continue,
                };
                return Err(refused(object, refusal.errno, refusal.message));
            }
        }
        Ok(())
    }

    fn addresses(&mut self, addresses: Vec<IpAddr>, come: bool) -> Result<(), WriteError> {
        if addresses.is_empty() {
            return Ok(());
        }
        let what = format!("the interface {LINK}");
        let link = self.routes.link(LINK).map_err(|error| failed(&what, error))?;
        let Some(link) = link else {
            // With it went its addresses.
            return if come { Err(refused(what, ENOENT, None)) } else { Ok(()) };
        };
        self.requests += addresses.len();
        let refusals = if come {
            self.routes.add_addresses(link.index, &addresses)
        } else {
            self.routes.remove_addresses(link.index, &addresses)
        };
        let refusals = refusals.map_err(|error| failed(&what, error))?;
        if come {
            self.refused_addresses.extend(refusals.iter().map(|refusal| refusal.addr));
        }
        // A node without IPv6, say. The rest must not wait for that.
        if let Some(first) = refusals.first() {
            let error = std::io::Error::from_raw_os_error(first.errno);
            warn!(addresses = refusals.len(), first = %first.addr, %error, "addresses refused on {LINK}");
        }
        Ok(())
    }
}

/// The kernel's own words, or what its error number means.
fn reason(refusal: &Refusal) -> String {
    let meaning = || std::io::Error::from_raw_os_error(refusal.errno).to_string();
    refusal.message.clone().unwrap_or_else(meaning)
}
