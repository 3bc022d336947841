//! The packet cases' network as namespaces, with a real kernel in the middle.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use zw_dataplane::{Ipvs, IpvsOptions, Kernel, Tables, WithIpvs};
use zw_lab::{Answer, Lab};
use zw_model::{Family, Protocol};
use zw_plan::testing::{Case, HOSTS, NODE, Row, SERVED, Want, host, second_address};
use zw_plan::{Desired, Table, bring_to, walk_with};

/// Long enough for an answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing must happen before we believe that nothing will.
const SILENCE: Duration = Duration::from_millis(300);

/// The cast of the packet cases, each in a namespace, around a node with a real kernel.
pub struct KernelPlane {
    lab: Lab,
}

/// Cases follow each other at once.
const DRAIN: Duration = Duration::ZERO;

/// One answer: who, on which port, and whom he saw.
type Seen = (String, u16, IpAddr);

impl KernelPlane {
    /// Builds the network; every pod serves every port of the cast.
    pub fn new() -> Self {
        let both = |host: zw_plan::testing::Host| Family::BOTH.map(|family| host.addr(family));
        // What leaves as the node shall have its primary address: of IPv4 the kernel takes the first one,
        // of IPv6 the last.
        let [v4, v6] = both(NODE);
        let node = [v4, second_address(Family::V4), second_address(Family::V6), v6];
        let mut lab = Lab::new(&node).expect("a node namespace");
        for host in HOSTS {
            lab.add_host(host.name, &both(host)).expect("a host namespace");
            if host.node.is_some() {
                lab.serve(host.name, &SERVED).expect("servers");
            }
        }
        Self { lab }
    }

    /// The same, and every pod serves them over SCTP too. Needs a kernel that has it.
    pub fn with_sctp() -> Self {
        let mut plane = Self::new();
        for host in HOSTS.into_iter().filter(|host| host.node.is_some()) {
            plane.lab.serve_sctp(host.name, &SERVED).expect("SCTP servers");
        }
        plane
    }

    /// The network.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Runs all rows of a case; says what went wrong, with the rules the walker saw.
    pub fn check(&self, case: &Case) -> Vec<String> {
        let family = case.world.family;
        let desired = case.world.desired();
        self.lab.node().run(|| load(&desired));
        let servers = desired.virtual_servers();
        let table = Table::of(&desired, family).expect("a plan that applies");
        let complain = |row: &Row, got: String| {
            let walk = walk_with(&table, &servers, &NODE.addresses(family), row.packet(family));
            let met = walk.rules().join("\n    ");
            let what = format!("{} -> {}/{}", row.from, row.to, row.protocol);
            format!(
                "{family}, {}: {}\n  {what}\n  {got}\n  rules met:\n    {met}",
                case.name, row.name
            )
        };
        case.rows
            .iter()
            .filter_map(|row| self.row(row, family).err().map(|got| complain(row, got)))
            .collect()
    }

    fn row(&self, row: &Row, family: Family) -> Result<(), String> {
        match &row.want {
            Want::Refused => match self.send(row, PATIENCE) {
                Answer::Refused => Ok(()),
                other => Err(format!("not refused: {other:?}")),
            },
            Want::Dropped => match self.send(row, SILENCE) {
                Answer::Silent => Ok(()),
                other => Err(format!("not dropped: {other:?}")),
            },
            Want::Untouched => match self.send(row, SILENCE) {
                Answer::Silent => Ok(()),
                // Nobody listens there, and the node itself says so.
                Answer::Refused if NODE.addresses(family).contains(&row.to.ip()) => Ok(()),
                other => Err(format!("not left alone: {other:?}")),
            },
            Want::Reaches(answerers) => {
                let node = NODE.addr(family);
                let want: BTreeSet<Seen> = answerers
                    .iter()
                    .map(|a| {
                        let seen = if a.as_node { node } else { host(row.from).addr(family) };
                        (a.host.to_owned(), a.port, seen)
                    })
                    .collect();
                self.reaches(row, &want)
            }
        }
    }

    /// Sends until everyone wanted has answered, and a little longer for those who must not. With n
    /// answerers one is missed by all of 16 n connections about once in 10 million.
    fn reaches(&self, row: &Row, want: &BTreeSet<Seen>) -> Result<(), String> {
        let mut answered = BTreeSet::new();
        for sent in 1..=want.len() * 16 {
            match self.send(row, PATIENCE) {
                Answer::Answered { by, port, seen } => {
                    let answer = (by, port, seen);
                    if !want.contains(&answer) {
                        return Err(format!("answered by {answer:?}, wanted {want:?}"));
                    }
                    answered.insert(answer);
                }
                other => return Err(format!("connection {sent}: {other:?}, wanted {want:?}")),
            }
            if answered.len() == want.len() && sent >= want.len() * 3 {
                return Ok(());
            }
        }
        Err(format!("only {answered:?} ever answered, wanted {want:?}"))
    }

    fn send(&self, row: &Row, patience: Duration) -> Answer {
        self.lab.probe(row.from, row.to, lab_protocol(row.protocol), patience)
    }
}

/// Runs cases in both families, and says how many rows that were.
///
/// # Panics
/// If a packet met another fate than its row says; names all of them.
pub fn check_all(plane: &KernelPlane, cases: impl Fn(Family) -> Vec<Case>) -> usize {
    let mut rows = 0;
    let mut failures = Vec::new();
    for case in Family::BOTH.into_iter().flat_map(cases) {
        rows += case.rows.len();
        failures.extend(plane.check(&case));
    }
    assert!(failures.is_empty(), "{} of {rows} rows:\n\n{}", failures.len(), failures.join("\n\n"));
    rows
}

/// Brings this network namespace's kernel to what is desired, in whichever mode.
///
/// # Panics
/// If the kernel does not take it.
pub fn load(desired: &Desired) {
    let mut ipvs = Ipvs::open(DRAIN).expect("netlink");
    if desired.by_ipvs() {
        ipvs.prepare(&IpvsOptions::default()).expect("a kernel with IPVS");
    }
    let mut kernel = WithIpvs::new(Kernel::open().expect("nf_tables"), ipvs);
    let read = kernel.read_back().expect("the table");
    let changes = bring_to(desired, &read.actual);
    kernel.commit(&changes, read.generation).expect("the kernel takes the case's rules");
    // Nobody is waited for: the next case begins with what it says.
    kernel.ipvs().drain().expect("IPVS");
}

impl Default for KernelPlane {
    fn default() -> Self {
        Self::new()
    }
}

/// The lab's word for a protocol.
pub fn lab_protocol(protocol: Protocol) -> zw_lab::Protocol {
    match protocol {
        Protocol::Tcp => zw_lab::Protocol::Tcp,
        Protocol::Udp => zw_lab::Protocol::Udp,
        Protocol::Sctp => zw_lab::Protocol::Sctp,
    }
}

/// An address of the cast's Service range.
pub fn vip(family: Family, last: u8, port: u16) -> SocketAddr {
    let addr = match family {
        Family::V4 => IpAddr::from([10, 96, 0, last]),
        Family::V6 => IpAddr::from([0xfd00, 0x10, 0x96, 0, 0, 0, 0, u16::from(last)]),
    };
    SocketAddr::new(addr, port)
}
