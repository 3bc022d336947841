//! Answers as the kernel gives them, whole and damaged.

use proptest::prelude::*;

use super::*;
use crate::ipvs::Batch;

/// What is asked for has the form of what is answered.
fn echoed(build: impl FnOnce(&mut Batch)) -> Vec<u8> {
    let mut batch = Batch::new();
    build(&mut batch);
    batch.seal(0..1, 0x1c, 7).to_vec()
}

fn only(bytes: &[u8]) -> Message<'_> {
    parse_messages(bytes).next().expect("one").expect("well formed")
}

fn servers() -> [(ServerId, ServerSettings); 2] {
    let settings = |flags, timeout| ServerSettings { scheduler: "wrr".into(), flags, timeout };
    let v6: IpAddr = "fd00:10:96::a".parse().expect("an address");
    [
        (
            ServerId { addr: IpAddr::from([10, 96, 0, 10]), protocol: 6, port: 80 },
            settings(IP_VS_SVC_F_SCHED3, 0),
        ),
        (
            ServerId { addr: v6, protocol: 17, port: 53 },
            settings(IP_VS_SVC_F_SCHED3 | IP_VS_SVC_F_PERSISTENT, 10_800),
        ),
    ]
}

fn real(v6: bool) -> RealServer {
    let addr = if v6 { "[fd00::1]:53" } else { "10.244.1.11:8080" };
    RealServer { addr: addr.parse().expect("an address"), weight: 3 }
}

#[test]
fn virtual_servers_are_read_back_without_the_kernels_own_flag() {
    for (id, settings) in servers() {
        let hashed =
            ServerSettings { flags: settings.flags | IP_VS_SVC_F_HASHED, ..settings.clone() };
        let bytes = echoed(|batch| batch.new_server(&id, &hashed));
        let want = ServerInfo { id: Some(id), settings, whole_netmask: true };
        assert_eq!(parse_server(&only(&bytes)).expect("well formed"), want);
    }
}

#[test]
fn a_virtual_server_known_by_a_mark_has_no_address() {
    let mut bytes = generic::header(1, 1).to_vec();
    let nest = crate::attr::nest(&mut bytes, IPVS_CMD_ATTR_SERVICE);
    crate::attr::put_host_u16(&mut bytes, IPVS_SVC_ATTR_AF, AF_INET);
    crate::attr::put_host_u32(&mut bytes, IPVS_SVC_ATTR_FWMARK, 7);
    crate::attr::put_str(&mut bytes, IPVS_SVC_ATTR_SCHED_NAME, "rr");
    crate::attr::end_nest(&mut bytes, nest);
    let message = Message { kind: 0x1c, flags: 0, seq: 0, port: 0, payload: &bytes };
    let server = parse_server(&message).expect("well formed");
    assert_eq!((server.id, server.whole_netmask), (None, false));
}

#[test]
fn real_servers_are_read_back_with_their_connections() {
    for (v6, (id, _)) in [false, true].into_iter().zip(servers()) {
        let bytes = echoed(|batch| batch.new_real(&id, &real(v6)));
        let want = RealServerInfo { real: real(v6), rewritten: true, active: 0, inactive: 0 };
        assert_eq!(parse_real(&only(&bytes), v6).expect("well formed"), want);
    }
    let mut bytes = generic::header(5, 1).to_vec();
    let nest = crate::attr::nest(&mut bytes, IPVS_CMD_ATTR_DEST);
    crate::attr::put(
        &mut bytes,
        IPVS_DEST_ATTR_ADDR,
        &[10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    crate::attr::put(&mut bytes, IPVS_DEST_ATTR_PORT, &[0, 80]);
    crate::attr::put_host_u32(&mut bytes, IPVS_DEST_ATTR_FWD_METHOD, 3);
    crate::attr::put_host_u32(&mut bytes, IPVS_DEST_ATTR_WEIGHT, 0);
    crate::attr::put_host_u32(&mut bytes, IPVS_DEST_ATTR_ACTIVE_CONNS, 2);
    crate::attr::put_host_u32(&mut bytes, IPVS_DEST_ATTR_INACT_CONNS, 5);
    crate::attr::end_nest(&mut bytes, nest);
    let message = Message { kind: 0x1c, flags: 0, seq: 0, port: 0, payload: &bytes };
    let real = RealServer { addr: "10.0.0.1:80".parse().expect("an address"), weight: 0 };
    let want = RealServerInfo { real, rewritten: false, active: 2, inactive: 5 };
    assert_eq!(parse_real(&message, false).expect("well formed"), want);
}

#[test]
fn timeouts_and_version_are_read() {
    let mut bytes = generic::header(12, 1).to_vec();
    for (kind, value) in [(4, 900), (5, 120), (6, 300)] {
        crate::attr::put_host_u32(&mut bytes, kind, value);
    }
    let message = Message { kind: 0x1c, flags: 0, seq: 0, port: 0, payload: &bytes };
    let want = Timeouts { tcp: 900, tcp_fin: 120, udp: 300 };
    assert_eq!(parse_timeouts(&message).expect("well formed"), want);

    let mut bytes = generic::header(14, 1).to_vec();
    crate::attr::put_host_u32(&mut bytes, IPVS_INFO_ATTR_VERSION, 0x01_02_01);
    crate::attr::put_host_u32(&mut bytes, IPVS_INFO_ATTR_CONN_TAB_SIZE, 4096);
    let message = Message { kind: 0x1c, flags: 0, seq: 0, port: 0, payload: &bytes };
    let want = Info { version: [1, 2, 1], table_size: 4096 };
    assert_eq!(parse_info(&message).expect("well formed"), want);
}

fn try_all(message: &Message<'_>) {
    let _ = parse_server(message);
    let _ = parse_real(message, true);
    let _ = parse_timeouts(message);
    let _ = parse_info(message);
}

proptest! {
    #[test]
    fn random_bytes_never_panic(payload in prop::collection::vec(any::<u8>(), 0..256)) {
        try_all(&Message { kind: 0x1c, flags: 0, seq: 0, port: 0, payload: &payload });
    }

    #[test]
    fn damaged_answers_never_panic(
        v6 in any::<bool>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let (id, settings) = &servers()[usize::from(v6)];
        let server = echoed(|batch| batch.new_server(id, settings));
        let real = echoed(|batch| batch.new_real(id, &real(v6)));
        for mut bytes in [server, real] {
            for (at, value) in &flips {
                let at = at.index(bytes.len());
                bytes[at] ^= value;
            }
            bytes.truncate(cut.index(bytes.len()));
            parse_messages(&bytes).flatten().for_each(|message| try_all(&message));
        }
    }
}
