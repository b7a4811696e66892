//! What every end can say about its ring.

macro_rules! counts {
    () => {
        /// How many elements the ring holds when it is full.
        #[must_use]
        pub fn capacity(&self) -> usize {
            self.core.capacity() as usize
        }

        /// How many elements are inside, as a moment saw it.
        #[must_use]
        pub fn count(&self) -> usize {
            self.core.count()
        }

        /// How many more elements fit, as a moment saw it.
        #[must_use]
        pub fn free(&self) -> usize {
            self.capacity() - self.count()
        }

        /// Whether no element is inside, as a moment saw it.
        #[must_use]
        pub fn is_empty(&self) -> bool {
            self.count() == 0
        }

        /// Whether no element fits, as a moment saw it.
        #[must_use]
        pub fn is_full(&self) -> bool {
            self.free() == 0
        }
    };
}
pub(crate) use counts;
