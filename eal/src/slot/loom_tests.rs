//! Every interleaving of threads that take slots and give them back, explored by loom: `cargo xtask loom`.

use super::Taken;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use pollux_atomic::explore;

/// A slot's caches are its holder's alone, from holder to holder.
#[test]
fn a_slot_brings_what_its_last_holder_left() {
    explore(4, || {
        let taken = Arc::new(Taken::new());
        let caches = Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)]);
        let hold = |taken: &Taken, caches: &[UnsafeCell<u32>; 2]| {
            let slot = taken.take().unwrap();
            caches[slot].with_mut(drop);
            taken.give_back(slot);
        };
        let other = {
            let (taken, caches) = (Arc::clone(&taken), Arc::clone(&caches));
            thread::spawn(move || hold(&taken, &caches))
        };
        hold(&taken, &caches);
        other.join().unwrap();
        assert_eq!(taken.take(), Some(0), "all were given back");
    });
}

#[test]
fn relaxations() {
    pollux_atomic::print(crate::order::RELAXATIONS);
}
