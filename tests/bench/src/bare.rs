//! The floor: a bare loop that inserts the same elements as a table has, with nothing around it.

use std::time::{Duration, Instant};

use zw_lab::Namespace;
use zw_netlink::nft::{
    Batch, ChainSpec, Element, ElementData, Family, SetData, SetInfo, SetSpec, Socket, TypeOf,
};

use crate::results::Bare;

/// `NFT_SET_INTERVAL`: sets of ranges are of another kind in the kernel, and small.
const INTERVAL: u32 = 0x4;
/// `NFT_SET_EVAL`: packets may add elements.
const DYNAMIC: u32 = 0x20;
/// `NFT_SET_TIMEOUT`: elements may time out, and the kernel may be told another size later.
const TIMEOUT: u32 = 0x10;
/// `NFT_DATA_VERDICT`, the type of a verdict map's data.
const VERDICT: u32 = 0xffff_ff00;
const TABLE: &str = "bare";
/// How many elements the first transaction inserts. Each has twice as many as the last, as in a first sync.
const FIRST: usize = 4096;

/// All maps and sets of a table.
pub(crate) struct Copied {
    sets: Vec<(Family, SetSpec, Vec<Owned>)>,
    chains: Vec<(Family, String)>,
}

struct Owned {
    key: Vec<u8>,
    data: Option<OwnedData>,
    comment: Option<String>,
}

enum OwnedData {
    Value(Vec<u8>),
    Goto(String),
}

impl Copied {
    /// Reads a table in a namespace.
    pub(crate) fn read(namespace: &Namespace, table: &str) -> Self {
        namespace.run(|| {
            let mut socket = Socket::open().expect("a netlink socket, which takes root");
            let mut copied = Self { sets: Vec::new(), chains: Vec::new() };
            for family in [Family::Ip, Family::Ip6] {
                for chain in socket.chains(family, table).expect("chains can be dumped") {
                    copied.chains.push((family, chain.name));
                }
                for info in socket.sets(family, table).expect("sets can be dumped") {
                    if info.flags & INTERVAL == 0 {
                        let elements = elements(&mut socket, family, table, &info.name);
                        copied.sets.push((family, bare_spec(&info), elements));
                    }
                }
            }
            copied
        })
    }

    /// Inserts all of it into a new namespace.
    pub(crate) fn insert(&self) -> Bare {
        let namespace = Namespace::new().expect("a network namespace, which takes root");
        namespace.run(|| {
            let mut socket = Socket::open().expect("a netlink socket, which takes root");
            let started = Instant::now();
            let mut batch = Batch::new();
            for family in [Family::Ip, Family::Ip6] {
                batch.add_table(family, TABLE, None);
            }
            for (family, name) in &self.chains {
                let chain = ChainSpec { name: name.clone(), hook: None, comment: None };
                batch.add_chain(*family, TABLE, &chain);
            }
            for (family, set, _) in &self.sets {
                batch.add_set(*family, TABLE, set);
            }
            let (mut elements, mut in_batch, mut at_most) = (0, 0, FIRST);
            let mut commit = |batch: &mut Batch| {
                socket.commit(batch).expect("what was in one table fits into another");
            };
            for (family, set, list) in &self.sets {
                for owned in list {
                    batch.add_element(*family, TABLE, &set.name, &owned.borrow());
                    in_batch += 1;
                    if in_batch == at_most {
                        commit(&mut std::mem::replace(&mut batch, Batch::new()));
                        (in_batch, at_most) = (0, 2 * at_most);
                    }
                }
                elements += list.len();
            }
            commit(&mut batch);
            Bare { elements, seconds: started.elapsed().as_secs_f64() }
        })
    }
}

impl Owned {
    fn borrow(&self) -> Element<'_> {
        Element {
            key: &self.key,
            key_end: None,
            data: self.data.as_ref().map(|data| match data {
                OwnedData::Value(value) => ElementData::Value(value),
                OwnedData::Goto(chain) => ElementData::Goto(chain),
            }),
            timeout: None,
            comment: self.comment.as_deref(),
        }
    }
}

fn elements(socket: &mut Socket, family: Family, table: &str, set: &str) -> Vec<Owned> {
    let mut elements = Vec::new();
    let dumped = socket.elements(family, table, set, &mut |element| {
        let data = match element.data {
            Some(ElementData::Value(value)) => Some(OwnedData::Value(value.to_vec())),
            Some(ElementData::Goto(chain)) => Some(OwnedData::Goto(chain.to_owned())),
            Some(other) => panic!("the element of {set} goes nowhere: {other:?}"),
            None => None,
        };
        let comment = element.comment.map(str::to_owned);
        elements.push(Owned { key: element.key.to_vec(), data, comment });
    });
    dumped.expect("nobody changes the table");
    elements
}

/// A set of the same widths. What its fields mean is nothing to the kernel.
fn bare_spec(info: &SetInfo) -> SetSpec {
    let fields = |bytes: u32| {
        let (long, short) = (bytes / 16, (bytes % 16).div_ceil(4));
        let long = std::iter::repeat_n(TypeOf::Ip6Daddr, long as usize);
        long.chain(std::iter::repeat_n(TypeOf::MetaMark, short as usize)).collect()
    };
    SetSpec {
        name: info.name.clone(),
        key: fields(info.key_len),
        data: match (info.data_type, info.data_len) {
            (Some(VERDICT), _) => SetData::Verdict,
            (_, Some(bytes)) => SetData::Fields(fields(bytes)),
            _ => SetData::None,
        },
        counter: info.counter,
        timeout: None,
        gc_interval: (info.flags & TIMEOUT != 0).then_some(Duration::from_secs(86_400)),
        dynamic: info.flags & DYNAMIC != 0,
        interval: false,
        size: info.size,
        comment: None,
    }
}
