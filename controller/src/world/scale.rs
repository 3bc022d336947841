//! One Service of 20,000 endpoints in a cluster of 5,000 nodes, without an API server: what changes of
//! one endpoint cost, against Endpoints and slices for everyone.

use std::time::Instant;

use super::*;
use crate::testing::Random;

const ZONES: [&str; 3] = ["a", "b", "c"];
const NODES: [u32; 3] = [1667, 1667, 1666];
const ENDPOINTS: usize = 20_000;

/// Bytes of a Service's Endpoints object, in which each address is an entry.
fn endpoints_bytes(world: &World) -> usize {
    let address = |(number, pod): (&u32, &Pod)| {
        serde_json::json!({
            "ip": pod_address(*number), "nodeName": format!("{}-{}", pod.zone, number % 7),
        })
    };
    let addresses: Vec<_> = world.pods.iter().map(address).collect();
    serde_json::json!({"subsets": [{"addresses": addresses}]}).to_string().len()
}

#[test]
fn changes_of_20_000_endpoints_cost_their_zone_one_slice() {
    let mut world = World::new(&[("a", NODES[0]), ("b", NODES[1]), ("c", NODES[2])]);
    world.watched = false;
    world.history.clear();
    for i in 0..ENDPOINTS as u32 {
        world.pods.insert(i + 100, Pod { zone: ZONES[i as usize % 3], ready: true });
    }
    world.next = ENDPOINTS as u64 + 1000;
    world.stock();
    world.ask(Some("Prefer"));
    let start = Instant::now();
    let first = world.converge();
    let first_took = start.elapsed();
    let sent_at_first: u64 = world.bytes_sent(&NODES);

    let mut random = Random(1);
    let (mut slices, mut bytes, mut reallocated) = (0, 0u64, 0);
    let (mut everyone_bytes, mut endpoints_sent) = (0u64, 0u64);
    let changes = changes();
    let nodes: u64 = NODES.iter().map(|&nodes| u64::from(nodes)).sum();
    let mut took = std::time::Duration::ZERO;
    for change in 0..changes {
        if change % 2 == 0 {
            let number = *world.pods.keys().nth(random.below(world.pods.len())).unwrap();
            world.pods.remove(&number);
        } else {
            world.next += 1;
            let zone = ZONES[random.below(3)];
            world.pods.insert(world.next as u32, Pod { zone, ready: true });
        }
        let versions: BTreeMap<Arc<str>, String> =
            world.slices.iter().map(|s| (s.name.clone(), s.version.clone())).collect();
        world.stock();
        for slice in world.changed_since(&versions).filter(|slice| slice.is_source()) {
            everyone_bytes += nodes * slice_bytes(&world.service, slice) as u64;
        }
        if change % 100 == 0 {
            endpoints_sent += changes.min(100) as u64 * nodes * endpoints_bytes(&world) as u64;
        }
        let before = world.writes;
        let start = Instant::now();
        assert!(world.step(usize::MAX), "there is something to write");
        took += start.elapsed();
        slices += world.writes.slices - before.slices;
        reallocated += world.writes.reallocated - before.reallocated;
        if change % 100 == 0 {
            assert_eq!(world.converge(), Writes::default(), "and nothing else");
        }
        for slice in world.changed_since(&versions) {
            let Role::Group(Some(zone)) = &slice.role else { continue };
            let zone = ZONES.iter().position(|name| *name == &**zone).expect("one of three");
            bytes += u64::from(NODES[zone]) * slice_bytes(&world.service, slice) as u64;
        }
    }
    println!("first: {} slices, {} B to all nodes, {first_took:?}", first.slices, sent_at_first);
    println!("{changes} changes of one endpoint, {nodes} nodes, 3 zones:");
    println!("  Endpoints:            {changes} writes, {:.0} GB sent", gigabytes(endpoints_sent));
    println!("  slices for everyone:  {changes} writes, {:.1} GB sent", gigabytes(everyone_bytes));
    println!(
        "  slices for zones:     {slices} writes, {:.1} GB sent, {reallocated} endpoints reallocated",
        gigabytes(bytes)
    );
    println!("  {:?} for each change", took / changes as u32);
    assert!(slices as f64 / changes as f64 <= 1.1, "{slices} slices for {changes} changes");
    assert!(bytes * 5 < everyone_bytes * 2, "about a third: {bytes} of {everyone_bytes}");
}

/// A hundred, or what `ZW_SCALE_CHANGES` says: the published table has a thousand.
fn changes() -> usize {
    std::env::var("ZW_SCALE_CHANGES").ok().and_then(|changes| changes.parse().ok()).unwrap_or(100)
}

fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

fn slice_bytes(service: &Service, slice: &Slice) -> usize {
    let audience = match &slice.role {
        Role::Group(zone) => zone.clone(),
        _ => None,
    };
    let content = Content {
        audience,
        family: slice.family,
        ports: Arc::new(slice.ports.clone()),
        endpoints: slice.endpoints.clone(),
    };
    json_bytes(service, &content)
}

impl World {
    /// Slices that are new or changed.
    fn changed_since<'a>(
        &'a self,
        versions: &'a BTreeMap<Arc<str>, String>,
    ) -> impl Iterator<Item = &'a Slice> {
        self.slices.iter().filter(|slice| versions.get(&slice.name) != Some(&slice.version))
    }

    /// What it takes to send every zone its groups once.
    fn bytes_sent(&self, nodes: &[u32; 3]) -> u64 {
        let of_zone = |(zone, nodes): (&&str, &u32)| {
            let role = Role::Group(Some((*zone).into()));
            let slices = self.groups().filter(|slice| slice.role == role);
            let bytes: usize = slices.map(|slice| slice_bytes(&self.service, slice)).sum();
            u64::from(*nodes) * bytes as u64
        };
        ZONES.iter().zip(nodes).map(of_zone).sum()
    }
}
