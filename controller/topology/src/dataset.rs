//! The inputs of the published evaluation, in blocks that threads can share out.
//!
//! Three zones. Pairing is positional: the smallest node count goes with the smallest endpoint
//! count, so only non-decreasing triples appear on both sides.

use crate::model::Counts;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A named set of inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dataset {
    /// 1 to 10 nodes and 0 to 100 endpoints a zone, then 30 nodes and 100 to 996 endpoints.
    Large,
    /// 1 to 10 nodes and 0 to 20 endpoints a zone.
    Small,
}

/// A name that is no [`Dataset`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown dataset {0:?}, expected large or small")]
pub struct UnknownDataset(String);

/// All inputs with one node triple and one smallest endpoint count: a few thousand at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    nodes: [u32; 3],
    smallest: u32,
    step: u32,
    largest: u32,
}

impl Dataset {
    /// Every block, in a fixed order.
    pub fn blocks(self) -> impl Iterator<Item = Block> {
        let (largest, many) = match self {
            Self::Large => (100, true),
            Self::Small => (20, false),
        };
        let few = node_triples().flat_map(move |nodes| {
            (0..=largest).map(move |smallest| Block { nodes, smallest, step: 1, largest })
        });
        let many = (100..=1000).step_by(7).filter(move |_| many);
        few.chain(many.map(|smallest| Block { nodes: [30; 3], smallest, step: 7, largest: 1000 }))
    }

    /// Number of inputs, counted from the blocks.
    pub fn size(self) -> u64 {
        self.blocks().map(|block| block.size()).sum()
    }
}

/// Every non-decreasing triple from 1 to 10.
fn node_triples() -> impl Iterator<Item = [u32; 3]> {
    (1..=10).flat_map(|a| (a..=10).flat_map(move |b| (b..=10).map(move |c| [a, b, c])))
}

impl fmt::Display for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Large => "large",
            Self::Small => "small",
        })
    }
}

impl FromStr for Dataset {
    type Err = UnknownDataset;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "large" => Ok(Self::Large),
            "small" => Ok(Self::Small),
            other => Err(UnknownDataset(other.into())),
        }
    }
}

impl Block {
    /// Number of inputs in the block.
    pub fn size(&self) -> u64 {
        let values = u64::from((self.largest - self.smallest) / self.step + 1);
        // No endpoint anywhere is no input.
        values * (values + 1) / 2 - u64::from(self.smallest == 0)
    }

    /// The inputs themselves.
    pub fn inputs(self) -> Inputs {
        let mut inputs = Inputs { block: self, next: [self.smallest; 3] };
        if self.smallest == 0 {
            inputs.next();
        }
        inputs
    }
}

/// Iterator over the inputs of a [`Block`], zones in name order.
#[derive(Debug, Clone)]
pub struct Inputs {
    block: Block,
    next: [u32; 3],
}

impl Iterator for Inputs {
    type Item = [Counts; 3];

    fn next(&mut self) -> Option<Self::Item> {
        let Block { nodes, step, largest, .. } = self.block;
        let endpoints = self.next;
        if endpoints[1] > largest {
            return None;
        }
        self.next[2] += step;
        if self.next[2] > largest {
            self.next[1] += step;
            self.next[2] = self.next[1];
        }
        Some(std::array::from_fn(|z| Counts { nodes: nodes[z], endpoints: endpoints[z] }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_published_ones() {
        assert_eq!(Dataset::Large.size(), 39_273_145);
        assert_eq!(Dataset::Small.size(), 389_400);
    }

    #[test]
    fn a_block_yields_as_many_inputs_as_it_says() {
        for block in Dataset::Small.blocks().chain(Dataset::Large.blocks().skip(22_200)) {
            assert_eq!(block.inputs().count() as u64, block.size(), "{block:?}");
        }
    }

    #[test]
    fn inputs_are_sorted_on_both_sides_and_never_without_endpoints() {
        for zones in Dataset::Small.blocks().flat_map(Block::inputs) {
            assert!(zones.is_sorted_by_key(|z| z.nodes), "{zones:?}");
            assert!(zones.is_sorted_by_key(|z| z.endpoints), "{zones:?}");
            assert!(zones[2].endpoints > 0, "{zones:?}");
        }
    }
}
