//! Requests to IPVS and their answers.
//!
//! Owns how many operations go in one send and which answer belongs to which. Retries nothing, and
//! decides nothing about a refusal: what is there already, or gone already, is the caller's to judge.

use std::io::IoSlice;

use super::batch::put_server;
use super::constants::*;
use super::{Batch, Info, RealServerInfo, ServerId, ServerInfo, Timeouts, reply};
use crate::Error;
use crate::attr;
use crate::exchange::Exchange;
use crate::generic;
use crate::message::{Message, NLM_F_ACK, NLM_F_DUMP};

/// Operations in one send. Each may be answered with an error, and all answers queue up before the first
/// is read: these take well under a megabyte of the receive buffer.
const OPERATIONS_PER_SEND: usize = 512;

/// A connection to IPVS in one network namespace.
pub struct Socket {
    exchange: Exchange,
    family: u16,
}

/// An operation the kernel did not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which of the batch, counted from 0.
    pub operation: usize,
    /// The kernel's error number, positive.
    pub errno: i32,
    /// The kernel's own words, where it gave any.
    pub message: Option<String>,
}

impl Socket {
    /// Opens a socket in the network namespace of the calling thread; `None` if the kernel has no IPVS,
    /// or has not loaded it.
    pub fn open() -> Result<Option<Self>, Error> {
        let mut exchange = Exchange::open_to(libc::NETLINK_GENERIC)?;
        let family = generic::resolve(&mut exchange, IPVS_GENL_NAME)?;
        Ok(family.map(|family| Self { exchange, family }))
    }

    /// Does all operations, in order; says which were refused. One refusal keeps none of the others from
    /// being done.
    ///
    /// After an error it is unknown which were.
    pub fn send(&mut self, batch: &mut Batch) -> Result<Vec<Refusal>, Error> {
        let mut refused = Vec::new();
        for start in (0..batch.len()).step_by(OPERATIONS_PER_SEND) {
            let end = batch.len().min(start + OPERATIONS_PER_SEND);
            let count = (end - start) as u32;
            let first = self.exchange.take_seq(count);
            let bytes = batch.seal(start..end, self.family, first);
            self.exchange.send(&[IoSlice::new(bytes)])?;
            self.exchange.read_acks(first, count, count - 1, |index, ack| {
                if ack.errno != 0 {
                    let operation = start + index as usize;
                    refused.push(Refusal { operation, errno: ack.errno, message: ack.message });
                }
            })?;
        }
        Ok(refused)
    }

    /// Every virtual server.
    pub fn servers(&mut self) -> Result<Vec<ServerInfo>, Error> {
        self.dump(IPVS_CMD_GET_SERVICE, |_| {}, reply::parse_server)
    }

    /// One virtual server, if it is there.
    pub fn server(&mut self, id: &ServerId) -> Result<Option<ServerInfo>, Error> {
        let header = generic::header(IPVS_CMD_GET_SERVICE, IPVS_GENL_VERSION);
        let seq = self.exchange.request_with(self.family, 0, &header, |buf| {
            put_server(buf, id, None);
        })?;
        match self.exchange.read_reply(seq, self.family, reply::parse_server) {
            Ok(server) => Ok(Some(server)),
            Err(Error::Refused { errno: libc::ESRCH, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A virtual server's real servers; none if it is not there.
    pub fn reals(&mut self, id: &ServerId) -> Result<Vec<RealServerInfo>, Error> {
        let v6 = id.addr.is_ipv6();
        self.dump(
            IPVS_CMD_GET_DEST,
            |buf| put_server(buf, id, None),
            |message| reply::parse_real(message, v6),
        )
    }

    /// How long connections are remembered.
    pub fn timeouts(&mut self) -> Result<Timeouts, Error> {
        let header = generic::header(IPVS_CMD_GET_CONFIG, IPVS_GENL_VERSION);
        let seq = self.exchange.request_with(self.family, 0, &header, |_| {})?;
        self.exchange.read_reply(seq, self.family, reply::parse_timeouts)
    }

    /// Has connections remembered this long.
    pub fn set_timeouts(&mut self, timeouts: &Timeouts) -> Result<(), Error> {
        let header = generic::header(IPVS_CMD_SET_CONFIG, IPVS_GENL_VERSION);
        let seq = self.exchange.request_with(self.family, NLM_F_ACK, &header, |buf| {
            attr::put_host_u32(buf, IPVS_CMD_ATTR_TIMEOUT_TCP, timeouts.tcp);
            attr::put_host_u32(buf, IPVS_CMD_ATTR_TIMEOUT_TCP_FIN, timeouts.tcp_fin);
            attr::put_host_u32(buf, IPVS_CMD_ATTR_TIMEOUT_UDP, timeouts.udp);
        })?;
        self.exchange.read_ack(seq)
    }

    /// What IPVS says of itself.
    pub fn info(&mut self) -> Result<Info, Error> {
        let header = generic::header(IPVS_CMD_GET_INFO, IPVS_GENL_VERSION);
        let seq = self.exchange.request_with(self.family, 0, &header, |_| {})?;
        self.exchange.read_reply(seq, self.family, reply::parse_info)
    }

    fn dump<T>(
        &mut self,
        command: u8,
        filter: impl FnOnce(&mut Vec<u8>),
        parse: impl Fn(&Message<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let header = generic::header(command, IPVS_GENL_VERSION);
        let seq = self.exchange.request_with(self.family, NLM_F_DUMP, &header, filter)?;
        let mut found = Vec::new();
        self.exchange.read_dump(seq, self.family, |message| {
            found.push(parse(message)?);
            Ok(())
        })?;
        Ok(found)
    }
}
