//! What is refused, what is deleted, and what is left afterwards.

use super::*;

#[test]
fn a_stale_generation_changes_nothing() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        let old = socket.generation().expect("reads");
        let mut batch = Batch::new();
        batch.expect_generation(old);
        batch.add_table(Family::Ip, T, None);
        socket.commit(&mut batch).expect("lands");
        let now = socket.generation().expect("reads");
        assert_eq!(now, old + 1);

        let mut batch = Batch::new();
        batch.expect_generation(old);
        batch.add_table(Family::Ip6, T, None);
        assert!(matches!(socket.commit(&mut batch), Err(Error::StaleGeneration)));
        assert_eq!(socket.generation().expect("reads"), now);

        batch.expect_generation(now);
        socket.commit(&mut batch).expect("the same batch lands with the right generation");
        assert_eq!(socket.generation().expect("reads"), now + 1);
    });
}

#[test]
fn a_refused_element_is_named_exactly_and_changes_nothing() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        for family in FAMILIES {
            let mut batch = Batch::new();
            batch.add_table(family, T, None);
            batch.add_set(family, T, &endpoints_map(family));
            let (key, data) = (endpoint_key(family, 7_000), endpoint_data(family, 1));
            let value = Some(ElementData::Value(&data));
            batch.add_element(family, T, "endpoints", &element(&key, value));
            socket.commit(&mut batch).expect("lands");
            let before = socket.generation().expect("reads");

            // Among 10,000 in several messages, one is there already.
            let mut batch = Batch::new();
            batch.add_chain(family, T, &plain_chain("svc"));
            for n in 0..10_000 {
                let key = endpoint_key(family, n);
                batch.add_element(family, T, "endpoints", &element(&key, value));
            }
            assert!(batch.messages() > 3);
            let error = socket.commit(&mut batch).expect_err("a duplicate");
            let Error::Refused { op, errno, .. } = error else { panic!("{error}") };
            assert_eq!((op, errno), (Some(OpId(7_001)), libc::EEXIST));
            assert_eq!(socket.generation().expect("reads"), before);

            // Among three deleted, the second is not there.
            let mut batch = Batch::new();
            batch.delete_element(family, T, "endpoints", &key);
            let missing = batch.delete_element(family, T, "endpoints", &endpoint_key(family, 1));
            batch.delete_element(family, T, "endpoints", &key);
            let error = socket.commit(&mut batch).expect_err("nothing to delete");
            let Error::Refused { op, errno, .. } = error else { panic!("{error}") };
            assert_eq!((op, errno), (Some(missing), libc::ENOENT));
            assert_eq!(socket.generation().expect("reads"), before);
            assert_eq!(dump(&mut socket, family, "endpoints"), BTreeMap::from([(key, data)]));

            // An operation that is no element names itself too.
            let mut batch = Batch::new();
            batch.add_table(family, T, None);
            let rule = batch.add_rule(family, T, "nowhere", &[Expr::Counter], None);
            let error = socket.commit(&mut batch).expect_err("no such chain");
            let Error::Refused { op, errno, .. } = error else { panic!("{error}") };
            assert_eq!((op, errno), (Some(rule), libc::ENOENT));
        }
        let error = socket.elements(Family::Ip, T, "none", &mut |_| {}).expect_err("no such set");
        assert!(matches!(error, Error::Refused { op: None, errno: libc::ENOENT, .. }), "{error}");
    });
}

#[test]
fn deletions_leave_nothing_behind() {
    in_netns(|| {
        let mut socket = Socket::open().expect("opens");
        for family in FAMILIES {
            let mut batch = Batch::new();
            batch.add_table(family, T, None);
            batch.add_table(family, "other", None);
            batch.add_chain(family, T, &plain_chain("svc"));
            batch.add_rule(family, T, "svc", &[Expr::Counter], None);
            let vmap = set("vmap", &[daddr(family)], SetData::Verdict);
            batch.add_set(family, T, &vmap);
            let key = address(family, 1);
            batch.add_element(family, T, "vmap", &element(&key, Some(ElementData::Goto("svc"))));
            socket.commit(&mut batch).expect("lands");

            let mut batch = Batch::new();
            batch.delete_chain(family, T, "svc");
            let error = socket.commit(&mut batch).expect_err("an element refers to it");
            assert!(matches!(error, Error::Refused { errno: libc::EBUSY, .. }), "{error}");

            let mut batch = Batch::new();
            batch.delete_element(family, T, "vmap", &key);
            batch.delete_chain(family, T, "svc");
            batch.delete_set(family, T, "vmap");
            socket.commit(&mut batch).expect("lands");
            assert_eq!(socket.chains(family, T).expect("dumps"), []);
            assert_eq!(socket.sets(family, T).expect("dumps"), []);

            let mut batch = Batch::new();
            batch.delete_table(family, T);
            socket.commit(&mut batch).expect("lands");
        }
        let left: Vec<_> =
            socket.tables().expect("dumps").into_iter().map(|t| (t.family, t.name)).collect();
        assert_eq!(left, FAMILIES.map(|family| (Some(family), "other".to_owned())));
        let committed = socket.commit(&mut Batch::new()).expect("nothing to do");
        assert_eq!((committed.bytes, committed.ops), (0, 0));
    });
}
