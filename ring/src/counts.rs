//! What every end can say about its ring.

macro_rules! counts {
    () => {
        /// Returns the capacity in elements.
        #[must_use]
        pub fn capacity(&self) -> usize {
            self.core.capacity() as usize
        }

        /// Returns the number of elements in the ring, a snapshot.
        #[must_use]
        pub fn count(&self) -> usize {
            self.core.count()
        }

        /// Returns the number of free entries, a snapshot.
        #[must_use]
        pub fn free(&self) -> usize {
            self.capacity() - self.count()
        }

        /// Returns whether the ring is empty, a snapshot.
        #[must_use]
        pub fn is_empty(&self) -> bool {
            self.count() == 0
        }

        /// Returns whether the ring is full, a snapshot.
        #[must_use]
        pub fn is_full(&self) -> bool {
            self.free() == 0
        }
    };
}
pub(crate) use counts;
