//! Receiving four completions at a time.
//!
//! A completion is a line of its own, and of each a few fields are wanted; so the gain of vectors is in testing four owner
//! bits, indices and lengths with one branch each, and in making the first 16 bytes of an mbuf's header of a completion by
//! one shuffle. Registers of 128 bits do that; wider ones have nothing more to hold, so the wide modes are the same steps
//! compiled for processors with AVX2 (three-operand instructions), which those with AVX-512 take too.
//!
//! Groups do not cross a ring's end, and hold plain and sane completions only; the scalar loop takes whatever else comes.
//! Source of the idea: DPDK `drivers/net/mlx5/mlx5_rxtx_vec_sse.h`.
#![expect(unsafe_code, reason = "vector loads from completions, mbufs by their addresses")]

use std::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_and_si128, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_min_epu32,
    _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi32, _mm_setr_epi8, _mm_setr_epi32, _mm_setzero_si128,
    _mm_shuffle_epi8, _mm_unpackhi_epi32, _mm_unpackhi_epi64,
};

use pollux_eal::barrier;
use pollux_mempool::{Burst, Mbuf};
use pollux_port::driver::Moved;

use super::meta::Meta;
use super::{AHEAD, KIND, Out, PLAIN, Stop, plain, single_with};
use crate::eth::rq::Rq;
use pollux_mlx5_common::cq::Entry;

/// Where in an entry the dword with counter and `op_own` stands, and the 16 bytes that end with the byte count.
const LAST: usize = 60;
const COUNT: usize = 32;

macro_rules! groups {
    ($(#[$doc:meta])* $burst:ident, $groups:ident, $unzip:path, $feature:literal) => {
        $(#[$doc])*
        ///
        /// Only for queues of processors that have the feature; `super::single_for` looks.
        pub(super) fn $burst<const F: u32>(rq: &mut Rq, burst: &mut Burst, max: usize) -> Moved {
            use $unzip as unzip;
            // SAFETY: the processor has the feature, by who chose this function.
            let run = |rq: &mut Rq, out: &mut Out<'_>| unsafe { $groups::<F>(rq, out) };
            // SAFETY: as above.
            let unzip = |rq: &mut Rq, out: &mut Out<'_>| unsafe { unzip::<F>(rq, out) };
            single_with::<F>(rq, burst, max, run, unzip)
        }

        /// # Safety
        /// The processor has the feature.
        #[target_feature(enable = $feature)]
        unsafe fn $groups<const F: u32>(rq: &mut Rq, out: &mut Out<'_>) -> Stop {
            let most = (out.left() as u32).min(rq.posted.wrapping_sub(rq.taken));
            let (ring, completions) = (rq.mask(), rq.cq.entries() - 1);
            // Of the last dword of each entry: the counter as a number, then pass and op_own, of which some bits say that
            // the entry is ready.
            let order = _mm_setr_epi8(1, 0, 2, 3, 5, 4, 6, 7, 9, 8, 10, 11, 13, 12, 14, 15);
            let validity = rq.cq.validity();
            let judged = u32::from(KIND) << 24 | u32::from(validity.mask()) << 16 | ring & 0xffff;
            let judged = _mm_set1_epi32(judged as i32);
            // The byte count, of the last dword of its 16 bytes, twice, where the header has its two lengths.
            let lengths = _mm_setr_epi8(-1, -1, -1, -1, 15, 14, 13, 12, 15, 14, 13, 12, -1, -1, -1, -1);
            let swap = _mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
            let common = _mm_setr_epi32(rq.headroom as i32, 0, 0, (1 | u32::from(rq.port) << 16) as i32);
            let ones = _mm_set1_epi32(-1);
            let longest = _mm_set1_epi32(rq.longest as i32 - 1);
            let mut bytes = _mm_setzero_si128();
            let mut ahead = 0;
            while ahead + 4 <= most {
                let index = rq.cq.consumer().wrapping_add(ahead);
                let slot = rq.taken.wrapping_add(ahead) & ring;
                if (index & completions) + 3 > completions || slot + 3 > ring {
                    break;
                }
                // SAFETY: not behind the ring's end, as just seen.
                let at = unsafe { rq.cq.run::<4>(index) };
                // SAFETY: inside the entries; volatile loads of 4 bytes bear a device that writes.
                let last = at.map(|at| unsafe { at.add(LAST).cast::<i32>().read_volatile() });
                // Their mbufs' headers are stored to and not loaded, which waits for nothing: to prefetch those here costs a cycle a
                // packet and gains none, warm or cold.
                rq.cq.prefetch_run::<{ AHEAD as usize }>(ahead + AHEAD);
                let last = _mm_setr_epi32(last[0], last[1], last[2], last[3]);
                let valid = validity.of(index, rq.cq.log());
                let want = slot | u32::from(PLAIN) << 24 | u32::from(valid) << 16;
                let want = _mm_add_epi32(_mm_set1_epi32(want as i32), _mm_setr_epi32(0, 1, 2, 3));
                let got = _mm_and_si128(_mm_shuffle_epi8(last, order), judged);
                if _mm_movemask_epi8(_mm_cmpeq_epi32(got, want)) != 0xffff {
                    break;
                }
                barrier::from_device();
                // SAFETY: inside the entries, which are ours now; nobody writes them until their places go back.
                let counts = at.map(|at| unsafe { _mm_loadu_si128(at.add(COUNT).cast::<__m128i>().as_ptr()) });
                let pairs = (_mm_unpackhi_epi32(counts[0], counts[1]), _mm_unpackhi_epi32(counts[2], counts[3]));
                let all = _mm_shuffle_epi8(_mm_unpackhi_epi64(pairs.0, pairs.1), swap);
                let less = _mm_add_epi32(all, ones);
                if _mm_movemask_epi8(_mm_cmpeq_epi32(_mm_min_epu32(less, longest), less)) != 0xffff {
                    break;
                }
                bytes = _mm_add_epi32(bytes, all);
                // SAFETY: below `most`, so posted; not behind the ring's end.
                let raws = unsafe { rq.raws::<4>(ahead) };
                for next in 0..4 {
                    // SAFETY: a place of the queue's own ring, read at once.
                    let meta = Meta::read::<F>(rq, unsafe { Entry::at(at[next]) });
                    let words = _mm_or_si128(_mm_shuffle_epi8(counts[next], lengths), common);
                    // SAFETY: left behind below; the mbuf came of the pool by `alloc_raw`; the length is at most what fits behind
                    // the headroom.
                    let mut mbuf = unsafe {
                        let words = std::mem::transmute::<__m128i, [u32; 4]>(words);
                        Mbuf::adopt_words(raws[next], words, meta.flags, meta.packet_type)
                    };
                    meta.write::<F>(rq, &mut mbuf);
                    // SAFETY: `most` packets have room, and all up to `ahead` are put there before they are counted below.
                    unsafe { out.put(ahead as usize + next, mbuf) };
                }
                ahead += 4;
            }
            // SAFETY: both are 16 bytes.
            let bytes = unsafe { std::mem::transmute::<__m128i, [u32; 4]>(bytes) };
            out.count(ahead as usize, bytes.iter().map(|bytes| u64::from(*bytes)).sum());
            rq.cq.consume(ahead);
            rq.taken = rq.taken.wrapping_add(ahead);
            plain::<F>(rq, out)
        }
    };
}

groups! {
    /// With the 128-bit instructions of SSE4.2.
    burst_sse, groups_sse, super::zip::vector::unzip_sse, "sse4.2"
}
groups! {
    /// With AVX2's.
    burst_avx2, groups_avx2, super::zip::vector::unzip_avx2, "avx2"
}
