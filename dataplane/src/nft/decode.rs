//! Elements as the kernel tells them, in a dump or in a notification, in our own terms.

use zw_netlink::nft::{DumpedElement, ElementData};
use zw_plan::{Data, Element, Key};

/// `None`: it cannot be told apart by a key, such as a catch-all element.
pub(crate) fn element(dumped: &DumpedElement<'_>) -> Option<Element> {
    let key = Key::from_bytes(dumped.key).filter(|_| !dumped.key.is_empty())?;
    let data = match dumped.data {
        None if dumped.key_end.is_some() => {
            dumped.key_end.and_then(Key::from_bytes).map_or(Data::Foreign, Data::UpTo)
        }
        None => Data::Nothing,
        Some(ElementData::Goto(chain)) => Data::Goto(chain.to_owned().into()),
        Some(ElementData::Value(bytes)) => {
            Key::from_bytes(bytes).map_or(Data::Foreign, Data::Value)
        }
        Some(_) => Data::Foreign,
    };
    Some(Element { key, data, comment: dumped.comment.map(Into::into) })
}
