//! Compressed packets, four at a time: of the 8 bytes that each has in an array, a shuffle makes the first 16 bytes of its mbuf's
//! header, as of a plain completion (`rx::vector`). What the title says of all of them is read once.
//!
//! Groups do not cross a ring's end, and hold sane lengths only; `Rq::unzip` takes whatever else there is, and ends the session.
//! Source of the idea: DPDK `drivers/net/mlx5/mlx5_rxtx_vec_sse.h`, `rxq_cq_decompress_v`, which makes whole completions of them.
#![expect(unsafe_code, reason = "vector loads from arrays, mbufs by their addresses")]

use std::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_castps_si128, _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_loadu_si128,
    _mm_min_epu32, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi32, _mm_setr_epi8, _mm_setr_epi32,
    _mm_setzero_si128, _mm_shuffle_epi8, _mm_shuffle_ps,
};

use pollux_mempool::Mbuf;
use pollux_mlx5_abi::cqe::MiniFormat;

use super::Mini;
use crate::eth::rq::Rq;
use crate::eth::rx::meta::Meta;
use crate::eth::rx::{HASH, Out};

macro_rules! arrays {
    ($(#[$doc:meta])* $unzip:ident, $fours:ident, $feature:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The processor has the feature.
        #[target_feature(enable = $feature)]
        pub(in crate::eth::rx) unsafe fn $unzip<const F: u32>(rq: &mut Rq, out: &mut Out<'_>) {
            // What else a packet says of itself in the other formats is for the loop of single ones.
            if let Some(format @ (MiniFormat::Hash | MiniFormat::Checksum)) = rq.compressed {
                $fours::<F>(rq, out, format);
            }
            rq.unzip::<F>(out);
        }

        #[target_feature(enable = $feature)]
        fn $fours<const F: u32>(rq: &mut Rq, out: &mut Out<'_>, format: MiniFormat) {
            let (first, count) = (rq.zip.done, rq.zip.count);
            let most = (out.left() as u32).min(count - first);
            let ring = rq.mask();
            let title = rq.session_title();
            let common = Meta::read::<F>(rq, title.entry());
            // The byte count, the second dword of each 8 bytes, twice, where the header has its two lengths.
            let even = _mm_setr_epi8(-1, -1, -1, -1, 7, 6, 5, 4, 7, 6, 5, 4, -1, -1, -1, -1);
            let odd = _mm_setr_epi8(-1, -1, -1, -1, 15, 14, 13, 12, 15, 14, 13, 12, -1, -1, -1, -1);
            let swap = _mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
            let same = _mm_setr_epi32(rq.headroom as i32, 0, 0, (1 | u32::from(rq.port) << 16) as i32);
            let longest = _mm_set1_epi32(rq.longest as i32 - 1);
            let mut bytes = _mm_setzero_si128();
            let mut ahead = 0;
            while ahead + 4 <= most {
                let (at, slot) = (first + ahead, rq.taken.wrapping_add(ahead) & ring);
                // Four of one array.
                if at & 3 != 0 || slot + 3 > ring {
                    break;
                }
                let four = Mini::place(&rq.cq, at).cast::<__m128i>().as_ptr();
                // SAFETY: inside an array of the session, which is ours; nobody writes it until its place goes back.
                let pairs = unsafe { [_mm_loadu_si128(four), _mm_loadu_si128(four.add(1))] };
                let (low, high) = (_mm_castsi128_ps(pairs[0]), _mm_castsi128_ps(pairs[1]));
                let all = _mm_shuffle_epi8(_mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(low, high)), swap);
                let less = _mm_add_epi32(all, _mm_set1_epi32(-1));
                if _mm_movemask_epi8(_mm_cmpeq_epi32(_mm_min_epu32(less, longest), less)) != 0xffff {
                    break;
                }
                bytes = _mm_add_epi32(bytes, all);
                // SAFETY: below `most`, so posted; not behind the ring's end.
                let raws = unsafe { rq.raws::<4>(ahead) };
                for next in 0..4 {
                    let order = if next % 2 == 0 { even } else { odd };
                    let words = _mm_or_si128(_mm_shuffle_epi8(pairs[next / 2], order), same);
                    let mut meta = common;
                    if F & HASH != 0 && format == MiniFormat::Hash {
                        meta.hash = Mini::read(&rq.cq, at + next as u32).hash();
                    }
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
            rq.taken = rq.taken.wrapping_add(ahead);
            rq.zip.done += ahead;
        }
    };
}

arrays! {
    /// Fetches packets of the open session, with the 128-bit instructions of SSE4.2.
    unzip_sse, fours_sse, "sse4.2"
}
arrays! {
    /// Fetches packets of the open session, with AVX2's.
    unzip_avx2, fours_avx2, "avx2"
}
