//! Programs that must not compile, for each kind of ring, and beside each its twin that must: so it is for that one
//! reason that the first does not.
//!
//! Both ends are invariant in the element. Were a producer of `&'static str` also one of shorter lives, it would put in what the
//! consumer may keep for ever. A consumer alone could not do harm by it, since it only gives elements out; but both ends are one
//! type's worth of code over one [`Core`](crate::storage::Core), and nobody gains by the difference.

macro_rules! ends_are_invariant {
    ($($kind:ident)*) => { $(
        /// A producer of what lives for ever does not take what does not:
        #[doc = concat!("```compile_fail,E0597\nuse pollux_ring::", stringify!($kind), "::{Producer, ring};")]
        /// let (producer, _consumer) = ring::<&'static str>(8).unwrap();
        /// let text = String::from("short-lived");
        /// #[allow(unused_mut)]
        /// let mut producer: Producer<&str> = producer;
        /// producer.enqueue(&text).unwrap();
        /// ```
        #[doc = concat!("```\nuse pollux_ring::", stringify!($kind), "::{Producer, ring};")]
        /// let (producer, _consumer) = ring::<&'static str>(8).unwrap();
        /// let text = "lives for ever";
        /// #[allow(unused_mut)]
        /// let mut producer: Producer<&str> = producer;
        /// producer.enqueue(&text).unwrap();
        /// ```
        ///
        /// Nor is a consumer of the one a consumer of the other:
        #[doc = concat!("```compile_fail,E0597\nuse pollux_ring::", stringify!($kind), "::{Consumer, ring};")]
        /// fn of_one_life<'a>(_: &Consumer<&'a str>, _: &'a str) {}
        /// let (_producer, consumer) = ring::<&'static str>(8).unwrap();
        /// let text = String::from("short-lived");
        /// of_one_life(&consumer, &text);
        /// ```
        #[doc = concat!("```\nuse pollux_ring::", stringify!($kind), "::{Consumer, ring};")]
        /// fn of_one_life<'a>(_: &Consumer<&'a str>, _: &'a str) {}
        /// let (_producer, consumer) = ring::<&'static str>(8).unwrap();
        /// let text = "lives for ever";
        /// of_one_life(&consumer, &text);
        /// ```
        mod $kind {}
    )* };
}
ends_are_invariant!(spsc mpmc rts hts);
