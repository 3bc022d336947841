//! Random numbers that are the same for the same seed, on every machine and forever.

/// SplitMix64: one word of state, good enough to choose test cases.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// An independent stream for one purpose: what one draws does not move what another gets.
    pub fn stream(seed: u64, number: u64) -> Self {
        let mut rng = Self(seed);
        let base = rng.next();
        Self(base ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below this one.
    pub fn below(&mut self, end: usize) -> usize {
        // The bias is far below what anyone could notice here.
        (self.next() % end as u64) as usize
    }

    /// True so many times in a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Some of these, in their order, each taken so many times in a hundred.
    pub fn some<T: Clone>(&mut self, from: &[T], percent: usize) -> Vec<T> {
        from.iter().filter(|_| self.chance(percent)).cloned().collect()
    }
}
