//! What of IPVS there is, as `zw-plan` understands it.

use std::collections::BTreeSet;

use zw_model::Scheduler;
use zw_netlink::Error;
use zw_netlink::ipvs::{
    IP_VS_SVC_F_PERSISTENT, IP_VS_SVC_F_SCHED1, IP_VS_SVC_F_SCHED2, RealServerInfo, ServerInfo,
};
use zw_plan::{ActualIpvs, ActualServer, Link, ServerSettings, VirtualKey};

use super::{EPERM, Ipvs, LINK, OURS, encode, failed, id, key};
use crate::error::WriteError;

impl Ipvs {
    /// Reads the interface, its addresses and all virtual servers. Who is leaving is known after that.
    pub fn read(&mut self) -> Result<ActualIpvs, WriteError> {
        let mut actual = ActualIpvs::default();
        for info in self.all_servers()? {
            // Those known by a packet mark, or of another protocol, are nobody we could meet.
            let Some(key) = info.id.as_ref().and_then(key) else { continue };
            if info.settings.flags & OURS == 0 {
                actual.foreign.insert(key);
                continue;
            }
            let reals = self.reals(&key)?;
            if reals.is_empty() && !self.is_ours(&key)? {
                // Its last real server and itself went meanwhile.
                continue;
            }
            let reals = reals.into_iter();
            let reals = reals.map(|is| (is.real.addr, is.rewritten.then_some(is.real.weight)));
            let server = ActualServer { settings: decode(&info), reals: reals.collect() };
            actual.servers.insert(key, server);
        }
        // After the virtual servers, as they go after them: one without the other is then seldom seen.
        let what = format!("the interface {LINK}");
        let link = self.routes.link(LINK).map_err(|error| failed(&what, error))?;
        if let Some(link) = link.filter(|link| link.dummy) {
            let addresses = self.routes.addresses(link.index);
            actual.link = if link.up { Link::Up } else { Link::Down };
            actual.addresses =
                addresses.map_err(|error| failed(&what, error))?.into_iter().collect();
        }
        self.foreign = actual.foreign.clone();
        self.unserved = BTreeSet::new();
        self.drains.adopt(&actual, self.since.elapsed());
        Ok(actual)
    }

    fn all_servers(&mut self) -> Result<Vec<ServerInfo>, WriteError> {
        let Some(socket) = &mut self.servers else { return Ok(Vec::new()) };
        match socket.servers() {
            // IPVS is only for root of the first user namespace: elsewhere nothing of ours can be there.
            Err(Error::Refused { errno: EPERM, .. }) => Ok(Vec::new()),
            outcome => outcome.map_err(|error| failed("the list of virtual servers", error)),
        }
    }

    pub(super) fn reals(&mut self, server: &VirtualKey) -> Result<Vec<RealServerInfo>, WriteError> {
        let Some(socket) = &mut self.servers else { return Ok(Vec::new()) };
        let what = || format!("the real servers of {server}");
        socket.reals(&id(server)).map_err(|error| failed(&what(), error))
    }
}

/// `None` if we would never have written it like that.
fn decode(info: &ServerInfo) -> Option<ServerSettings> {
    let flags = info.settings.flags;
    let settings = ServerSettings {
        scheduler: Scheduler {
            name: info.settings.scheduler.as_str().into(),
            fallback: flags & IP_VS_SVC_F_SCHED1 != 0,
            port: flags & IP_VS_SVC_F_SCHED2 != 0,
        },
        persistence: (flags & IP_VS_SVC_F_PERSISTENT != 0).then_some(info.settings.timeout),
    };
    (encode(&settings) == info.settings && info.whole_netmask).then_some(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_back_as_they_were_written() {
        for text in ["rr", "mh,fallback,port", "sh,port"] {
            for persistence in [None, Some(10_800)] {
                let settings = ServerSettings { scheduler: text.parse().unwrap(), persistence };
                let info = |whole_netmask| ServerInfo {
                    id: None,
                    settings: encode(&settings),
                    whole_netmask,
                };
                assert_eq!(decode(&info(true)), Some(settings.clone()));
                assert_eq!(decode(&info(false)), None);
            }
        }
    }

    #[test]
    fn a_virtual_server_with_flags_of_its_own_is_written_anew() {
        let settings = ServerSettings { scheduler: Scheduler::default(), persistence: None };
        let mut encoded = encode(&settings);
        encoded.flags |= 0x4; // one-packet scheduling
        let info = ServerInfo { id: None, settings: encoded, whole_netmask: true };
        assert_eq!(decode(&info), None);
    }
}
