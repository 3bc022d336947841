//! Batches without a kernel: coalescing, splitting, and the way back to an operation.

use super::*;
use crate::nft::ElementData;
use crate::nft::reply::{parse_elements, parse_messages};

fn element(key: &[u8]) -> Element<'_> {
    let data = Some(ElementData::Value(&[1, 2, 3, 4]));
    Element { key, key_end: None, data, timeout: None, comment: None }
}

#[test]
fn elements_of_one_set_share_a_message_and_others_do_not() {
    let mut batch = Batch::new();
    batch.add_element(Family::Ip, "t", "a", &element(&[0; 4]));
    batch.add_element(Family::Ip, "t", "a", &element(&[1; 4]));
    assert_eq!(batch.messages(), 1);
    batch.add_element(Family::Ip, "t", "b", &element(&[1; 4]));
    batch.add_element(Family::Ip6, "t", "b", &element(&[1; 4]));
    batch.add_element(Family::Ip6, "u", "b", &element(&[1; 4]));
    batch.delete_element(Family::Ip6, "u", "b", &[1; 4]);
    assert_eq!((batch.messages(), batch.len()), (5, 6));
    batch.flush_chain(Family::Ip6, "u", "c");
    batch.delete_element(Family::Ip6, "u", "b", &[1; 4]);
    assert_eq!((batch.messages(), batch.len()), (7, 8), "order is kept across other operations");
}

#[test]
fn a_message_splits_before_its_nest_overflows_and_loses_nothing() {
    let mut batch = Batch::new();
    let keys: Vec<[u8; 4]> = (0u32..5000).map(u32::to_be_bytes).collect();
    for key in &keys {
        batch.add_element(Family::Ip, "t", "a", &element(key));
    }
    assert!(batch.messages() > 1);

    let mut seen = Vec::new();
    let mut owners = Vec::new();
    let (_, body, _) = batch.seal(100);
    let body = body.to_vec();
    for (index, message) in parse_messages(&body).enumerate() {
        let message = message.expect("well formed");
        assert_eq!(message.seq, 101 + index as u32);
        let before = seen.len();
        parse_elements(&message, &mut |e| seen.push(e.key.to_vec())).expect("well formed");
        owners.extend(std::iter::repeat_n(index, seen.len() - before));
    }
    assert_eq!(seen, keys);

    for (op, message) in owners.iter().enumerate() {
        let offset = batch.offsets[op];
        assert_eq!(batch.locate(*message, Some(offset)), Some(OpId(op as u32)));
        assert_eq!(batch.locate(*message, Some(offset + 8)), Some(OpId(op as u32)));
    }
}

#[test]
fn an_error_without_an_offset_names_no_element() {
    let mut batch = Batch::new();
    batch.add_table(Family::Ip, "t", None);
    batch.add_element(Family::Ip, "t", "a", &element(&[0; 4]));
    batch.add_element(Family::Ip, "t", "a", &element(&[1; 4]));
    assert_eq!(batch.locate(0, None), Some(OpId(0)));
    assert_eq!(batch.locate(1, None), None);
    assert_eq!(batch.locate(1, Some(20)), None, "the table's name belongs to no element");
    assert_eq!(batch.locate(2, None), None);
}

#[test]
fn only_the_last_message_asks_for_an_acknowledgement() {
    let acks = |batch: &mut Batch| -> Vec<bool> {
        let (_, body, _) = batch.seal(1);
        parse_messages(body)
            .map(|m| m.expect("well formed").flags & message::NLM_F_ACK != 0)
            .collect()
    };
    let mut batch = Batch::new();
    batch.add_table(Family::Ip, "t", None);
    assert_eq!(acks(&mut batch), [true]);
    batch.delete_table(Family::Ip, "t");
    assert_eq!(acks(&mut batch), [false, true], "also when it grew after it was sent");
}
