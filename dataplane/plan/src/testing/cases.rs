//! The cases. A row reads: what it shows, who sends, where to, who answers.

mod external;
mod odd_addresses;
mod sctp;
mod settings;

pub use odd_addresses::by_ipvs;
pub use sctp::sctp_cases;

use std::net::SocketAddr;

use zw_model::Family;
use zw_model::Protocol::{Tcp, Udp};

use super::fixtures::{Port, World, vip};
use super::{Answerer, Case, Row, Want};

const HTTP: Port = ("http", Tcp, 80);
const AT_8080: Port = ("http", Tcp, 8080);
const DNS: Port = ("dns", Udp, 53);
const AT_5353: Port = ("dns", Udp, 5353);

/// A case's rows, in its family.
struct Rows(Family, Vec<Row>);

impl Rows {
    fn tcp(self, name: &'static str, from: &'static str, to: (u8, u16), want: Want) -> Self {
        self.row(name, from, to, Tcp, want)
    }

    fn udp(self, name: &'static str, from: &'static str, to: (u8, u16), want: Want) -> Self {
        self.row(name, from, to, Udp, want)
    }

    fn row(
        self,
        name: &'static str,
        from: &'static str,
        (last, port): (u8, u16),
        protocol: zw_model::Protocol,
        want: Want,
    ) -> Self {
        let to = SocketAddr::new(vip(self.0, last), port);
        self.to(name, from, to, protocol, want)
    }

    fn to(
        mut self,
        name: &'static str,
        from: &'static str,
        to: SocketAddr,
        protocol: zw_model::Protocol,
        want: Want,
    ) -> Self {
        self.1.push(Row { name, from, to, protocol, want });
        self
    }
}

/// The client's own address is seen.
fn by(hosts: &[&'static str], port: u16) -> Want {
    answered(hosts, port, false)
}

/// The node's address is seen.
fn by_as_node(hosts: &[&'static str], port: u16) -> Want {
    answered(hosts, port, true)
}

fn answered(hosts: &[&'static str], port: u16, as_node: bool) -> Want {
    Want::Reaches(hosts.iter().map(|host| Answerer { host, port, as_node }).collect())
}

fn both(one: Want, other: Want) -> Want {
    match (one, other) {
        (Want::Reaches(one), Want::Reaches(other)) => Want::Reaches([one, other].concat()),
        (one, _) => one,
    }
}

/// Every case, in one family, of TCP and UDP.
pub fn cases(family: Family) -> Vec<Case> {
    let mut cases = basics(family);
    cases.extend(conditions(family));
    cases.extend(hints(family));
    cases.extend(zones(family));
    cases.extend(external::cases(family));
    cases.extend(settings::cases(family));
    cases.extend(odd_addresses::cases(family));
    cases
}

fn basics(family: Family) -> Vec<Case> {
    let world = || World::new(family);
    let rows = || Rows(family, Vec::new());
    let case = |name, world, rows: Rows| Case { name, world, rows: rows.1 };
    let four = ["local-2", "same-zone", "zone-b", "zone-c"];
    vec![
        case(
            "one endpoint, TCP and UDP",
            world().service("web/api", 10, &[HTTP, DNS]).slice(
                "web/api",
                &[AT_8080, AT_5353],
                |s| s.ready(&["zone-b"]),
            ),
            rows()
                .tcp("a pod keeps its address", "client", (10, 80), by(&["zone-b"], 8080))
                .udp("over UDP too", "client", (10, 53), by(&["zone-b"], 5353))
                .tcp("a remote pod keeps its address", "zone-c", (10, 80), by(&["zone-b"], 8080))
                .tcp(
                    "an outsider becomes the node",
                    "outside",
                    (10, 80),
                    by_as_node(&["zone-b"], 8080),
                )
                .udp("over UDP too", "outside", (10, 53), by_as_node(&["zone-b"], 5353))
                .tcp("the node reaches it", "node", (10, 80), by_as_node(&["zone-b"], 8080))
                .udp("over UDP too", "node", (10, 53), by_as_node(&["zone-b"], 5353))
                .tcp("a port nobody serves is refused", "client", (10, 81), Want::Refused)
                .udp("a protocol nobody serves is refused", "client", (10, 80), Want::Refused)
                .tcp("from outside too", "outside", (10, 81), Want::Refused)
                .tcp("from the node too", "node", (10, 81), Want::Refused)
                .tcp("an address nobody has is left alone", "client", (99, 80), Want::Untouched),
        ),
        case(
            "four endpoints share the work",
            world().service("web/api", 10, &[HTTP, DNS]).slice(
                "web/api",
                &[AT_8080, AT_5353],
                |s| s.ready(&four),
            ),
            rows()
                .tcp("from a pod", "client", (10, 80), by(&four, 8080))
                .udp("from a pod", "client", (10, 53), by(&four, 5353))
                .tcp("from the node", "node", (10, 80), by_as_node(&four, 8080)),
        ),
        case(
            "a pod that is its own endpoint",
            world().service("web/api", 10, &[HTTP, DNS]).slice(
                "web/api",
                &[AT_8080, AT_5353],
                |s| s.ready(&["local-1", "zone-b"]),
            ),
            rows()
                .tcp(
                    "it sees the node when it reaches itself",
                    "local-1",
                    (10, 80),
                    both(by_as_node(&["local-1"], 8080), by(&["zone-b"], 8080)),
                )
                .udp(
                    "over UDP too",
                    "local-1",
                    (10, 53),
                    both(by_as_node(&["local-1"], 5353), by(&["zone-b"], 5353)),
                )
                .tcp(
                    "others keep their address",
                    "local-2",
                    (10, 80),
                    by(&["local-1", "zone-b"], 8080),
                ),
        ),
        case(
            "several ports, and one number for two protocols",
            world().service("web/api", 10, &[HTTP, ("admin", Tcp, 81), ("quic", Udp, 80)]).slice(
                "web/api",
                &[AT_8080, ("admin", Tcp, 8081), ("quic", Udp, 5353)],
                |s| s.ready(&["zone-b"]),
            ),
            rows()
                .tcp("http", "client", (10, 80), by(&["zone-b"], 8080))
                .tcp("admin", "client", (10, 81), by(&["zone-b"], 8081))
                .udp("quic", "client", (10, 80), by(&["zone-b"], 5353)),
        ),
        case(
            "several slices, and a port name with two numbers",
            world()
                .service("web/api", 10, &[HTTP])
                .slice("web/api", &[AT_8080], |s| s.ready(&["zone-b"]))
                .slice("web/api", &[("http", Tcp, 8081)], |s| s.ready(&["zone-c"]))
                .slice("web/api", &[("other", Tcp, 8080)], |s| s.ready(&["same-zone"])),
            rows().tcp(
                "each slice's own number",
                "client",
                (10, 80),
                both(by(&["zone-b"], 8080), by(&["zone-c"], 8081)),
            ),
        ),
        case(
            "no endpoints at all",
            world().service("web/api", 10, &[HTTP, DNS]),
            rows()
                .tcp("a pod is refused", "client", (10, 80), Want::Refused)
                .udp("over UDP too", "client", (10, 53), Want::Refused)
                .tcp("an outsider is refused", "outside", (10, 80), Want::Refused)
                .tcp("the node is refused", "node", (10, 80), Want::Refused)
                .udp("over UDP too", "node", (10, 53), Want::Refused),
        ),
        case(
            "a port that no slice names",
            world().service("web/api", 10, &[HTTP, ("admin", Tcp, 81)]).slice(
                "web/api",
                &[AT_8080],
                |s| s.ready(&["zone-b"]),
            ),
            rows().tcp("the other port works", "client", (10, 80), by(&["zone-b"], 8080)).tcp(
                "this one is refused",
                "client",
                (10, 81),
                Want::Refused,
            ),
        ),
        case(
            "two Services claim one address and port",
            world()
                .service("web/second", 10, &[HTTP])
                .service("web/first", 10, &[HTTP])
                .slice("web/second", &[AT_8080], |s| s.ready(&["zone-b"]))
                .slice("web/first", &[AT_8080], |s| s.ready(&["zone-c"])),
            rows().tcp("the first by name has it", "client", (10, 80), by(&["zone-c"], 8080)),
        ),
        case(
            "where pods live is unknown",
            World { config: Default::default(), ..world() }.service("web/api", 10, &[HTTP]).slice(
                "web/api",
                &[AT_8080],
                |s| s.ready(&["zone-b"]),
            ),
            rows().tcp("nobody is masqueraded", "outside", (10, 80), by(&["zone-b"], 8080)),
        ),
    ]
}

fn conditions(family: Family) -> Vec<Case> {
    let world = || World::new(family).service("web/api", 10, &[HTTP]);
    let case = |name, world, want| Case {
        name,
        world,
        rows: Rows(family, Vec::new()).tcp("from a pod", "client", (10, 80), want).1,
    };
    vec![
        case(
            "only ready endpoints are used",
            world().slice("web/api", &[AT_8080], |s| {
                s.ready(&["zone-b"]).not_ready(&["zone-c"]).terminating(&["local-1"])
            }),
            by(&["zone-b"], 8080),
        ),
        case(
            "nothing ready: those that terminate but serve",
            world().slice("web/api", &[AT_8080], |s| {
                s.terminating(&["zone-b", "zone-c"]).not_ready(&["local-1"]).gone(&["local-2"])
            }),
            by(&["zone-b", "zone-c"], 8080),
        ),
        case(
            "nothing usable: refused",
            world().slice("web/api", &[AT_8080], |s| s.not_ready(&["zone-b"]).gone(&["zone-c"])),
            Want::Refused,
        ),
        case(
            "an endpoint in two slices counts once, by its better copy",
            world()
                .slice("web/api", &[AT_8080], |s| s.terminating(&["zone-b"]))
                .slice("web/api", &[AT_8080], |s| s.ready(&["zone-b", "zone-c"]))
                .slice("web/api", &[AT_8080], |s| s.not_ready(&["zone-c"])),
            by(&["zone-b", "zone-c"], 8080),
        ),
    ]
}

fn hints(family: Family) -> Vec<Case> {
    let world = || World::new(family).service("web/api", 10, &[HTTP]);
    let case = |name, world, want| Case {
        name,
        world,
        rows: Rows(family, Vec::new()).tcp("from a pod", "client", (10, 80), want).1,
    };
    let by_zone = |world: World| {
        world.slice("web/api", &[AT_8080], |s| {
            s.ready(&["same-zone"])
                .hint_zones(&["zone-a"])
                .ready(&["zone-b"])
                .hint_zones(&["zone-a", "zone-b"])
                .ready(&["zone-c"])
                .hint_zones(&["zone-c"])
        })
    };
    vec![
        case("zone hints", by_zone(world()), by(&["same-zone", "zone-b"], 8080)),
        case(
            "node hints come before zone hints",
            world().slice("web/api", &[AT_8080], |s| {
                s.ready(&["local-1"])
                    .hint_zones(&["zone-a"])
                    .hint_nodes(&["node-1"])
                    .ready(&["same-zone"])
                    .hint_zones(&["zone-a"])
                    .hint_nodes(&["node-2"])
            }),
            by(&["local-1"], 8080),
        ),
        case(
            "no node hint for us: zone hints decide",
            world().slice("web/api", &[AT_8080], |s| {
                s.ready(&["same-zone"])
                    .hint_zones(&["zone-a"])
                    .hint_nodes(&["node-2"])
                    .ready(&["zone-b"])
                    .hint_zones(&["zone-b"])
                    .hint_nodes(&["node-3"])
            }),
            by(&["same-zone"], 8080),
        ),
        case(
            "one ready endpoint without a hint: no hints",
            by_zone(world()).slice("web/api", &[AT_8080], |s| s.ready(&["local-1"])),
            by(&["local-1", "same-zone", "zone-b", "zone-c"], 8080),
        ),
        case(
            "an endpoint that is not ready needs no hint",
            by_zone(world()).slice("web/api", &[AT_8080], |s| s.not_ready(&["local-1"])),
            by(&["same-zone", "zone-b"], 8080),
        ),
        case(
            "hints for other zones only: no hints",
            world().slice("web/api", &[AT_8080], |s| {
                s.ready(&["zone-b"])
                    .hint_zones(&["zone-b"])
                    .ready(&["zone-c"])
                    .hint_zones(&["zone-c"])
            }),
            by(&["zone-b", "zone-c"], 8080),
        ),
        case(
            "our zone is unknown: no hints",
            by_zone(world()).on_node(|node| node.zone = None),
            by(&["same-zone", "zone-b", "zone-c"], 8080),
        ),
        case(
            "nothing ready: the last resort ignores hints",
            world().slice("web/api", &[AT_8080], |s| {
                s.terminating(&["same-zone"])
                    .hint_zones(&["zone-a"])
                    .terminating(&["zone-b"])
                    .hint_zones(&["zone-b"])
            }),
            by(&["same-zone", "zone-b"], 8080),
        ),
    ]
}

fn zones(family: Family) -> Vec<Case> {
    let world = || World::new(family).service("web/api", 10, &[HTTP]);
    let case = |name, world, want| Case {
        name,
        world,
        rows: Rows(family, Vec::new()).tcp("from a pod", "client", (10, 80), want).1,
    };
    let zoned = || {
        world()
            .slice("web/api", &[AT_8080], |s| s.ready(&["local-1", "zone-b", "zone-c"]))
            .slice("web/api", &[AT_8080], |s| s.for_zone("zone-a").ready(&["same-zone"]))
            .slice("web/api", &[AT_8080], |s| s.for_zone("zone-b").ready(&["zone-b"]))
            .slice("web/api", &[AT_8080], |s| s.for_region("region-1").ready(&["zone-c"]))
            .slice("web/api", &[AT_8080], |s| s.for_region("region-2").ready(&["local-2"]))
    };
    vec![
        case("our zone's slice is all there is", zoned(), by(&["same-zone"], 8080)),
        case(
            "our zone is unknown: everything",
            zoned().on_node(|node| (node.zone, node.region) = (None, None)),
            by(&["local-1", "local-2", "same-zone", "zone-b", "zone-c"], 8080),
        ),
        case(
            "the zone has nothing ready: the region",
            world()
                .slice("web/api", &[AT_8080], |s| s.for_zone("zone-a").terminating(&["same-zone"]))
                .slice("web/api", &[AT_8080], |s| s.for_region("region-1").ready(&["zone-c"])),
            by(&["zone-c"], 8080),
        ),
        case(
            "our region is unknown: any region's slice will do",
            world()
                .slice("web/api", &[AT_8080], |s| s.for_zone("zone-b").ready(&["zone-b"]))
                .slice("web/api", &[AT_8080], |s| s.for_region("region-9").ready(&["zone-c"]))
                .on_node(|node| node.region = None),
            by(&["zone-c"], 8080),
        ),
        case(
            "nothing ready in zone or region: the zone's last resort",
            world()
                .slice("web/api", &[AT_8080], |s| s.for_zone("zone-a").terminating(&["same-zone"]))
                .slice("web/api", &[AT_8080], |s| {
                    s.for_region("region-1").terminating(&["zone-c"])
                }),
            by(&["same-zone"], 8080),
        ),
        case(
            "an empty slice for our zone: refused, though others have endpoints",
            world().slice("web/api", &[AT_8080], |s| s.for_zone("zone-a")).slice(
                "web/api",
                &[AT_8080],
                |s| s.ready(&["zone-b"]),
            ),
            Want::Refused,
        ),
        case(
            "slices for other zones do not make a Service zoned",
            world()
                .slice("web/api", &[AT_8080], |s| s.for_zone("zone-b").ready(&["zone-b"]))
                .slice("web/api", &[AT_8080], |s| s.ready(&["zone-c"])),
            by(&["zone-c"], 8080),
        ),
        case(
            "hints inside a slice for our zone are ignored",
            world().slice("web/api", &[AT_8080], |s| {
                s.for_zone("zone-a")
                    .ready(&["same-zone"])
                    .hint_zones(&["zone-a"])
                    .ready(&["zone-b"])
                    .hint_zones(&["zone-b"])
            }),
            by(&["same-zone", "zone-b"], 8080),
        ),
    ]
}
