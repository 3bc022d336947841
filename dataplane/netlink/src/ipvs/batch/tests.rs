//! Bytes as the kernel's header says they are, written out by hand (for little-endian machines, like
//! all of them that these tests run on).

use super::*;

fn web() -> ServerId {
    ServerId { addr: IpAddr::from([10, 96, 0, 10]), protocol: 6, port: 80 }
}

fn settings() -> ServerSettings {
    ServerSettings {
        scheduler: "rr".into(),
        flags: IP_VS_SVC_F_PERSISTENT | IP_VS_SVC_F_SCHED3,
        timeout: 10_800,
    }
}

/// nlmsghdr and genlmsghdr: length, type 0x1c, flags, number 7, port 0; command, version 1.
fn head(length: u8, flags: u8, command: u8) -> Vec<u8> {
    vec![length, 0, 0, 0, 0x1c, 0, flags, 0, 7, 0, 0, 0, 0, 0, 0, 0, command, 1, 0, 0]
}

/// What names the virtual server, from AF to PORT: 40 bytes.
const NAME: [u8; 44] = [
    6, 0, 1, 0, 2, 0, 0, 0, // AF: AF_INET
    6, 0, 2, 0, 6, 0, 0, 0, // PROTOCOL: TCP
    20, 0, 3, 0, 10, 96, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // ADDR
    6, 0, 4, 0, 0, 80, 0, 0, // PORT, in network order
];

fn sealed(build: impl FnOnce(&mut Batch)) -> Vec<u8> {
    let mut batch = Batch::new();
    build(&mut batch);
    batch.seal(0..batch.len(), 0x1c, 7).to_vec()
}

#[test]
fn a_new_virtual_server() {
    let got = sealed(|batch| batch.new_server(&web(), &settings()));
    let want = [
        head(20 + 4 + 44 + 36, 5, 1),
        vec![84, 0, 1, 0x80], // SERVICE, nested
        NAME.to_vec(),
        vec![7, 0, 6, 0, b'r', b'r', 0, 0], // SCHED_NAME
        vec![12, 0, 7, 0, 0x21, 0, 0, 0, 255, 255, 255, 255], // FLAGS and mask
        vec![8, 0, 8, 0, 0x30, 0x2a, 0, 0], // TIMEOUT
        vec![8, 0, 9, 0, 255, 255, 255, 255], // NETMASK
    ];
    assert_eq!(got, want.concat());
}

#[test]
fn a_deleted_virtual_server_is_only_named() {
    let got = sealed(|batch| batch.delete_server(&web()));
    assert_eq!(got, [head(68, 5, 3), vec![48, 0, 1, 0x80], NAME.to_vec()].concat());
}

#[test]
fn a_real_server_with_a_weight_and_without() {
    let real = RealServer { addr: "10.244.1.11:8080".parse().expect("an address"), weight: 1 };
    let place = [
        20, 0, 1, 0, 10, 244, 1, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // ADDR
        6, 0, 2, 0, 0x1f, 0x90, 0, 0, // PORT, in network order
        6, 0, 11, 0, 2, 0, 0, 0, // ADDR_FAMILY
    ];
    let got = sealed(|batch| batch.new_real(&web(), &real));
    let want = [
        head(20 + 48 + 4 + 36 + 32, 5, 5),
        vec![48, 0, 1, 0x80],
        NAME.to_vec(),
        vec![72, 0, 2, 0x80], // DEST, nested
        place.to_vec(),
        vec![8, 0, 3, 0, 0, 0, 0, 0], // FWD_METHOD: MASQ
        vec![8, 0, 4, 0, 1, 0, 0, 0], // WEIGHT
        vec![8, 0, 5, 0, 0, 0, 0, 0], // U_THRESH
        vec![8, 0, 6, 0, 0, 0, 0, 0], // L_THRESH
    ];
    assert_eq!(got, want.concat());

    let got = sealed(|batch| batch.delete_real(&web(), real.addr));
    let want = [
        head(20 + 48 + 4 + 36, 5, 7),
        vec![48, 0, 1, 0x80],
        NAME.to_vec(),
        vec![40, 0, 2, 0x80],
        place.to_vec(),
    ];
    assert_eq!(got, want.concat());
}

#[test]
fn ipv6_has_its_family_its_whole_address_and_a_mask_by_length() {
    let addr: IpAddr = "fd00:10:96::a".parse().expect("an address");
    let id = ServerId { addr, protocol: 17, port: 53 };
    let got = sealed(|batch| batch.set_server(&id, &settings()));
    let address =
        [20, 0, 3, 0, 0xfd, 0, 0, 0x10, 0, 0x96, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a].as_slice();
    assert_eq!(&got[24..32], [6, 0, 1, 0, 10, 0, 0, 0], "AF_INET6");
    assert_eq!(&got[32..40], [6, 0, 2, 0, 17, 0, 0, 0], "UDP");
    assert_eq!(&got[40..60], address);
    assert_eq!(&got[got.len() - 8..], [8, 0, 9, 0, 128, 0, 0, 0], "128 bits");
}

#[test]
fn operations_are_numbered_in_order_and_only_the_last_of_a_send_asks_for_an_answer() {
    let mut batch = Batch::new();
    for port in [80, 81, 82] {
        batch.delete_server(&ServerId { port, ..web() });
    }
    let parse = |bytes: &[u8]| -> Vec<(u16, u32, u16)> {
        let messages = message::parse_messages(bytes).map(|m| m.expect("well formed"));
        messages.map(|m| (m.kind, m.seq, m.flags)).collect()
    };
    assert_eq!(parse(batch.seal(0..2, 0x1c, 7)), [(0x1c, 7, 1), (0x1c, 8, 5)]);
    assert_eq!(parse(batch.seal(2..3, 0x1c, 9)), [(0x1c, 9, 5)]);
    assert_eq!(batch.len(), 3);
}
