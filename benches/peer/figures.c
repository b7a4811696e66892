/*
 * The peer's half of the figures: DPDK, through its public API only.
 *
 * A server on a pipe. Each line read from standard input names a figure; one timed trial of it is run and
 * "NAME VALUE" is written, VALUE in TSC cycles per operation. Between lines every thread sleeps, so that a
 * second program can be timed in the gaps. An unknown name is answered with "NAME unknown".
 *
 * Bursts are compile-time constants, as a data path has them.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_ip.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_lpm.h>
#include <rte_lpm6.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_random.h>
#include <rte_ring.h>
#include <rte_thash.h>
#include <rte_timer.h>
#include <rte_udp.h>
#include <rte_version.h>

#define BURST 32
#define RING_SIZE 1024
#define POOL_SIZE 16383
#define POOL_CACHE 512
/* Of a trial on one core, as in ours: its thread is just awake, and a processor takes its time to be fast again. */
#define ROUNDS (1u << 18)

#define DIE(what) \
	do { \
		fprintf(stderr, "figures: %s: %s\n", what, rte_strerror(rte_errno)); \
		exit(1); \
	} while (0)

/* What is in memory now counts, and may be other after this: no copy may be left out. */
#define USED(objects) asm volatile("" : : "r"(objects) : "memory")

static struct rte_ring *spsc, *mpmc;
static struct rte_mempool *objects, *mbufs, *port_mbufs;
static uint16_t null_port;

/* ---- one core ---- */

#define SAME_CORE(ring, enqueue, dequeue) \
	do { \
		void *in[BURST], *out[BURST]; \
		const unsigned rounds = ROUNDS; \
		for (unsigned i = 0; i < BURST; i++) \
			in[i] = (void *)(uintptr_t)(i + 1); \
		uint64_t start = rte_rdtsc_precise(); \
		for (unsigned i = 0; i < rounds; i++) { \
			USED(in); \
			if (enqueue(ring, in, BURST, NULL) != BURST || dequeue(ring, out, BURST, NULL) != BURST) \
				DIE("ring"); \
			USED(out); \
		} \
		return (double)(rte_rdtsc_precise() - start) / (rounds * (double)BURST); \
	} while (0)

static double ring_spsc_same32(void) { SAME_CORE(spsc, rte_ring_sp_enqueue_burst, rte_ring_sc_dequeue_burst); }
static double ring_mpmc_same32(void) { SAME_CORE(mpmc, rte_ring_mp_enqueue_burst, rte_ring_mc_dequeue_burst); }

static double pool_cache32(void)
{
	/* Starts at a cache line, as ours does: where the stack happens to lie is not to be measured. */
	void *objs[BURST] __attribute__((aligned(64)));
	const unsigned rounds = ROUNDS;
	uint64_t start = rte_rdtsc_precise();
	for (unsigned i = 0; i < rounds; i++) {
		if (rte_mempool_get_bulk(objects, objs, BURST))
			DIE("pool");
		rte_mempool_put_bulk(objects, objs, BURST);
	}
	return (double)(rte_rdtsc_precise() - start) / (rounds * (double)BURST);
}

static double mbuf_bulk32(void)
{
	struct rte_mbuf *burst[BURST];
	const unsigned rounds = ROUNDS;
	uint64_t start = rte_rdtsc_precise();
	for (unsigned i = 0; i < rounds; i++) {
		if (rte_pktmbuf_alloc_bulk(mbufs, burst, BURST))
			DIE("mbufs");
		rte_pktmbuf_free_bulk(burst, BURST);
	}
	return (double)(rte_rdtsc_precise() - start) / (rounds * (double)BURST);
}

static double mbuf_single(void)
{
	const unsigned rounds = ROUNDS * BURST;
	uint64_t start = rte_rdtsc_precise();
	for (unsigned i = 0; i < rounds; i++) {
		struct rte_mbuf *one = rte_pktmbuf_alloc(mbufs);
		if (!one)
			DIE("mbuf");
		rte_pktmbuf_free(one);
	}
	return (double)(rte_rdtsc_precise() - start) / rounds;
}

/* RFC 1624: HC' = ~(~HC + ~m + m'). */
static inline uint16_t sum_follows(uint16_t sum, uint32_t old, uint32_t now)
{
	uint32_t s = (uint16_t)~sum + (uint16_t)~old + (uint16_t)~(old >> 16) + (now & 0xffff) + (now >> 16);
	s = (s & 0xffff) + (s >> 16);
	return ~((s & 0xffff) + (s >> 16));
}

static inline void translate(struct rte_mbuf *m, rte_be32_t address, rte_be16_t port)
{
	struct rte_ether_hdr *ether = rte_pktmbuf_mtod(m, struct rte_ether_hdr *);
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(ether + 1);
	if (rte_pktmbuf_data_len(m) < sizeof(*ether) + sizeof(*ip) || ether->ether_type != RTE_BE16(RTE_ETHER_TYPE_IPV4) ||
	    ip->next_proto_id != IPPROTO_UDP || (ip->fragment_offset & RTE_BE16(RTE_IPV4_HDR_OFFSET_MASK)))
		return;
	unsigned header = rte_ipv4_hdr_len(ip);
	struct rte_udp_hdr *udp = (struct rte_udp_hdr *)((char *)ip + header);
	if (rte_pktmbuf_data_len(m) < sizeof(*ether) + header + sizeof(*udp))
		return;
	rte_be32_t old = ip->src_addr;
	rte_be16_t old_port = udp->src_port;
	ip->src_addr = address;
	udp->src_port = port;
	ip->hdr_checksum = sum_follows(ip->hdr_checksum, old, address);
	if (udp->dgram_cksum) {
		uint16_t sum = sum_follows(sum_follows(udp->dgram_cksum, old, address), old_port, port);
		udp->dgram_cksum = sum ? sum : 0xffff;
	}
}

static double nat_rewrite(void)
{
	struct rte_mbuf *burst[BURST];
	const unsigned rounds = ROUNDS;
	if (rte_pktmbuf_alloc_bulk(mbufs, burst, BURST))
		DIE("mbufs");
	for (unsigned i = 0; i < BURST; i++) {
		struct rte_ether_hdr *ether = (struct rte_ether_hdr *)rte_pktmbuf_append(burst[i], 60);
		memset(ether, 0, 60);
		ether->ether_type = RTE_BE16(RTE_ETHER_TYPE_IPV4);
		struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(ether + 1);
		ip->version_ihl = RTE_IPV4_VHL_DEF;
		ip->total_length = RTE_BE16(46);
		ip->time_to_live = 64;
		ip->next_proto_id = IPPROTO_UDP;
		ip->src_addr = RTE_BE32(RTE_IPV4(10, 0, 0, 1));
		ip->dst_addr = RTE_BE32(RTE_IPV4(10, 0, 0, 2));
		ip->hdr_checksum = rte_ipv4_cksum(ip);
		struct rte_udp_hdr *udp = (struct rte_udp_hdr *)(ip + 1);
		udp->src_port = RTE_BE16(1024);
		udp->dst_port = RTE_BE16(9);
		udp->dgram_len = RTE_BE16(26);
		udp->dgram_cksum = rte_ipv4_udptcp_cksum(ip, udp);
	}
	uint64_t start = rte_rdtsc_precise();
	for (unsigned i = 0; i < rounds; i++)
		for (unsigned j = 0; j < BURST; j++)
			translate(burst[j], i & 1 ? RTE_BE32(RTE_IPV4(10, 0, 0, 1)) : RTE_BE32(RTE_IPV4(192, 0, 2, 7)),
				i & 1 ? RTE_BE16(1024) : RTE_BE16(5000));
	double taken = (double)(rte_rdtsc_precise() - start) / (rounds * (double)BURST);
	rte_pktmbuf_free_bulk(burst, BURST);
	return taken;
}

static double null_rxtx32(void)
{
	struct rte_mbuf *burst[BURST];
	const unsigned rounds = ROUNDS;
	uint64_t start = rte_rdtsc_precise();
	for (unsigned i = 0; i < rounds; i++) {
		uint16_t got = rte_eth_rx_burst(null_port, 0, burst, BURST);
		if (got != BURST || rte_eth_tx_burst(null_port, 0, burst, got) != got)
			DIE("null port");
	}
	return (double)(rte_rdtsc_precise() - start) / (rounds * (double)BURST);
}

/* ---- two cores ---- */

struct side {
	struct rte_ring *ring;
	unsigned burst, count;
	uint64_t start, end;
	volatile bool ready;
};

static volatile bool go;

static void begin(struct side *side)
{
	side->ready = true;
	while (!go)
		rte_pause();
	side->start = rte_rdtsc_precise();
}

/* `w` is a constant in each instance. The producer may end up to BURST-1 elements past `count`; the ring is emptied before a trial. */
#define MOVE(side, move, w) \
	do { \
		void *objs[BURST] = {0}; \
		for (unsigned done = 0; done < (side)->count;) { \
			USED(objs); \
			unsigned k = move((side)->ring, objs, w, NULL); \
			USED(objs); \
			done += k; \
			if (k == 0) \
				rte_pause(); \
		} \
	} while (0)

static int produce(void *arg)
{
	struct side *side = arg;
	begin(side);
	if (side->burst == 1)
		MOVE(side, rte_ring_sp_enqueue_burst, 1);
	else
		MOVE(side, rte_ring_sp_enqueue_burst, BURST);
	side->end = rte_rdtsc_precise();
	return 0;
}

static int consume(void *arg)
{
	struct side *side = arg;
	begin(side);
	if (side->burst == 1)
		MOVE(side, rte_ring_sc_dequeue_burst, 1);
	else
		MOVE(side, rte_ring_sc_dequeue_burst, BURST);
	side->end = rte_rdtsc_precise();
	return 0;
}

static int contend(void *arg)
{
	struct side *side = arg;
	void *objs[BURST] = {0};
	begin(side);
	for (unsigned done = 0; done < side->count; done += BURST) {
		while (rte_ring_mp_enqueue_bulk(side->ring, objs, BURST, NULL) == 0)
			rte_pause();
		while (rte_ring_mc_dequeue_bulk(side->ring, objs, BURST, NULL) == 0)
			rte_pause();
		USED(objs);
	}
	side->end = rte_rdtsc_precise();
	return 0;
}

static unsigned other_lcore(void)
{
	unsigned lcore = rte_get_next_lcore(-1, 1, 0);
	if (lcore >= RTE_MAX_LCORE)
		DIE("two lcores are needed");
	return lcore;
}

static double two_cores(lcore_function_t *here, lcore_function_t *there, struct rte_ring *ring, unsigned burst)
{
	struct side a = {.ring = ring, .burst = burst, .count = 1u << (burst == 1 ? 17 : 19)}, b = a;
	void *left;
	while (rte_ring_dequeue(ring, &left) == 0)
		;
	go = false;
	rte_eal_remote_launch(there, &b, other_lcore());
	while (!b.ready)
		rte_pause();
	go = true;
	here(&a);
	rte_eal_mp_wait_lcore();
	return (double)(RTE_MAX(a.end, b.end) - RTE_MIN(a.start, b.start)) / a.count;
}

static double ring_spsc_two1(void) { return two_cores(produce, consume, spsc, 1); }
static double ring_spsc_two32(void) { return two_cores(produce, consume, spsc, BURST); }
static double ring_mpmc_two32(void) { return two_cores(contend, contend, mpmc, BURST); }

/* ---- timers ---- */

#define TIMERS 1000000
static struct rte_timer *timers;
static unsigned fired;
static void on_expiry(struct rte_timer *timer, void *arg) { (void)timer; (void)arg; fired++; }

static void arm(unsigned i, uint64_t ticks)
{
	rte_timer_reset(&timers[i], ticks, SINGLE, rte_lcore_id(), on_expiry, NULL);
}

static uint64_t far(void) { return 60 * rte_get_timer_hz() + rte_rand() % (60 * rte_get_timer_hz()); }

static double rearm(unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		arm(i, far());
	uint64_t start = rte_rdtsc_precise();
	for (unsigned i = 0; i < count; i++)
		arm(i, far());
	double cycles = (double)(rte_rdtsc_precise() - start) / count;
	for (unsigned i = 0; i < count; i++)
		rte_timer_stop(&timers[i]);
	return cycles;
}

static double timer_rearm_1m(void) { return rearm(TIMERS); }
static double timer_rearm_10k(void) { return rearm(10000); }

static double expire(unsigned count, bool random)
{
	const uint64_t span = rte_get_timer_hz() / 1000;
	for (unsigned i = 0; i < count; i++)
		arm(i, random ? 1 + rte_rand() % span : span);
	rte_delay_us_block(2000);
	fired = 0;
	uint64_t start = rte_rdtsc_precise();
	while (fired < count)
		rte_timer_manage();
	return (double)(rte_rdtsc_precise() - start) / count;
}

static double timer_expiry(void) { return expire(100000, false); }
static double timer_expiry_random(void) { return expire(10000, true); }

/* ---- look-ups: the same routes and keys as in src/bin/figures/lookup.rs ---- */

#define ROUTES 100000
#define ROUTES6 20000
#define SOUGHT (1u << 16)
#define HOT 1024
#define LOOKUP_ROUNDS (1u << 17)

/* SplitMix64 */
static uint64_t next(uint64_t *state)
{
	uint64_t mixed = *state += 0x9e3779b97f4a7c15;
	mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
	mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
	return mixed ^ (mixed >> 31);
}

static struct route {
	uint32_t prefix;
	uint8_t length;
} routes[ROUTES];

static void make_routes(void)
{
	uint64_t random = 1;
	for (unsigned i = 0; i < ROUTES; i++) {
		uint64_t share = next(&random) % 100, which = next(&random);
		uint8_t length = share < 60 ? 24 : share < 97 ? 16 + which % 8 : 25 + which % 8;
		routes[i].prefix = (uint32_t)next(&random) & (UINT32_MAX << (32 - length));
		routes[i].length = length;
	}
}

static void add_routes(struct rte_lpm *lpm)
{
	for (unsigned i = 0; i < ROUTES; i++)
		if (rte_lpm_add(lpm, routes[i].prefix, routes[i].length, i & 0xffff))
			DIE("rte_lpm_add");
}

static struct rte_lpm *new_lpm(const char *name)
{
	struct rte_lpm_config config = {.max_rules = 2 * ROUTES, .number_tbl8s = 1 << 14};
	struct rte_lpm *lpm = rte_lpm_create(name, SOCKET_ID_ANY, &config);
	if (!lpm)
		DIE("rte_lpm_create");
	make_routes();
	return lpm;
}

static double lpm_lookups(unsigned count)
{
	static struct rte_lpm *lpm;
	static uint32_t addresses[SOUGHT];
	uint32_t hops[BURST];
	if (!lpm) {
		add_routes(lpm = new_lpm("lookups"));
		uint64_t random = 7;
		for (unsigned i = 0; i < SOUGHT; i++)
			addresses[i] = next(&random);
	}
	uint64_t start = rte_rdtsc_precise();
	for (unsigned round = 0; round < LOOKUP_ROUNDS; round++) {
		rte_lpm_lookup_bulk(lpm, addresses + round * BURST % count, hops, BURST);
		USED(hops);
	}
	return (double)(rte_rdtsc_precise() - start) / (LOOKUP_ROUNDS * (double)BURST);
}

static double lpm_random(void) { return lpm_lookups(SOUGHT); }
static double lpm_hot(void) { return lpm_lookups(HOT); }

/* Into a table that had them before. */
static double lpm_add(void)
{
	struct rte_lpm *lpm = new_lpm("adds");
	add_routes(lpm);
	rte_lpm_delete_all(lpm);
	uint64_t start = rte_rdtsc_precise();
	add_routes(lpm);
	double taken = (double)(rte_rdtsc_precise() - start) / ROUTES;
	rte_lpm_free(lpm);
	return taken;
}

static double lpm6_random(void)
{
	static struct rte_lpm6 *lpm;
	static struct rte_ipv6_addr prefixes[ROUTES6], addresses[SOUGHT];
	int32_t hops[BURST];
	if (!lpm) {
		struct rte_lpm6_config config = {.max_rules = 2 * ROUTES6, .number_tbl8s = 1 << 17};
		if (!(lpm = rte_lpm6_create("lookups6", SOCKET_ID_ANY, &config)))
			DIE("rte_lpm6_create");
		uint64_t random = 1;
		for (unsigned i = 0; i < ROUTES6; i++) {
			unsigned length = 32 + next(&random) % 9 * 4;
			uint32_t block = 0x20000000 | ((uint32_t)next(&random) & 0xfff) << 12;
			unsigned __int128 prefix = (unsigned __int128)block << 96;
			prefix |= ((unsigned __int128)next(&random) << 44) & (~(unsigned __int128)0 >> 20);
			prefix &= ~(unsigned __int128)0 << (128 - length);
			for (unsigned byte = 0; byte < 16; byte++)
				prefixes[i].a[byte] = prefix >> (120 - 8 * byte);
			if (rte_lpm6_add(lpm, &prefixes[i], length, i & 0xfffff))
				DIE("rte_lpm6_add");
		}
		for (unsigned i = 0; i < SOUGHT; i++) {
			addresses[i] = prefixes[next(&random) % ROUTES6];
			uint64_t host = next(&random);
			for (unsigned byte = 0; byte < 8; byte++)
				addresses[i].a[8 + byte] |= host >> (56 - 8 * byte);
		}
	}
	uint64_t start = rte_rdtsc_precise();
	for (unsigned round = 0; round < LOOKUP_ROUNDS; round++) {
		rte_lpm6_lookup_bulk_func(lpm, addresses + round * BURST % SOUGHT, hops, BURST);
		USED(hops);
	}
	return (double)(rte_rdtsc_precise() - start) / (LOOKUP_ROUNDS * (double)BURST);
}

struct keys {
	struct rte_hash *hash;
	uint64_t sought[SOUGHT][2];
	const void *pointers[SOUGHT];
};

static double em_bulk(struct keys *keys, const char *name, unsigned count)
{
	int32_t places[BURST];
	if (!keys->hash) {
		/* Twice the room: it is a power of two, and nearly full tables refuse keys. */
		struct rte_hash_parameters parameters = {
			.name = name, .entries = 2 * count, .key_len = 16, .hash_func = rte_hash_crc, .socket_id = SOCKET_ID_ANY};
		uint64_t random = 3, (*all)[2] = malloc(count * sizeof(*all));
		if (!all || !(keys->hash = rte_hash_create(&parameters)))
			DIE("rte_hash_create");
		for (unsigned i = 0; i < count; i++) {
			all[i][0] = next(&random);
			all[i][1] = next(&random);
		}
		for (unsigned i = 0; i < count; i++)
			if (rte_hash_add_key(keys->hash, all[i]) < 0)
				DIE("rte_hash_add_key");
		for (unsigned i = 0; i < SOUGHT; i++) {
			memcpy(keys->sought[i], all[next(&random) % count], 16);
			keys->pointers[i] = keys->sought[i];
		}
		free(all);
	}
	uint64_t start = rte_rdtsc_precise();
	for (unsigned round = 0; round < LOOKUP_ROUNDS; round++) {
		if (rte_hash_lookup_bulk(keys->hash, keys->pointers + round * BURST % SOUGHT, BURST, places))
			DIE("rte_hash_lookup_bulk");
		USED(places);
	}
	double taken = (double)(rte_rdtsc_precise() - start) / (LOOKUP_ROUNDS * (double)BURST);
	for (unsigned i = 0; i < BURST; i++)
		if (places[i] < 0)
			DIE("a key that is there");
	return taken;
}

static double em_bulk_1m(void)
{
	static struct keys keys;
	return em_bulk(&keys, "keys_1m", 1000000);
}

static double em_bulk_65k(void)
{
	static struct keys keys;
	return em_bulk(&keys, "keys_65k", 65536);
}

static double rss_soft12(void)
{
	/* The key of Microsoft's verification suite. */
	static const uint8_t key[40] = {
		0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
		0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};
	static uint32_t inputs[HOT][3];
	uint64_t random = 5;
	for (unsigned i = 0; i < HOT; i++) {
		uint64_t addresses = next(&random);
		inputs[i][0] = addresses;
		inputs[i][1] = addresses >> 32;
		inputs[i][2] = next(&random);
	}
	uint64_t start = rte_rdtsc_precise();
	for (unsigned round = 0; round < LOOKUP_ROUNDS * BURST / HOT; round++)
		for (unsigned i = 0; i < HOT; i++) {
			uint32_t hash = rte_softrss(inputs[i], 3, key);
			asm volatile("" : : "r"(hash));
		}
	return (double)(rte_rdtsc_precise() - start) / (LOOKUP_ROUNDS * (double)BURST);
}

/* ---- the bare hand-over of one cache line ---- */

#define HOPS 20000
static struct { volatile uint64_t value; } __rte_cache_aligned line;

static int answer(void *arg)
{
	(void)arg;
	for (uint64_t i = 1; i < 2 * HOPS; i += 2) {
		while (line.value != i)
			;
		line.value = i + 1;
	}
	return 0;
}

static double cache_line_one_way(void)
{
	line.value = 0;
	rte_eal_remote_launch(answer, NULL, other_lcore());
	rte_delay_us_block(200);
	uint64_t start = rte_rdtsc_precise();
	for (uint64_t i = 1; i < 2 * HOPS; i += 2) {
		line.value = i;
		while (line.value != i + 1)
			;
	}
	double cycles = (double)(rte_rdtsc_precise() - start) / (2 * HOPS);
	rte_eal_mp_wait_lcore();
	return cycles;
}

static const struct {
	const char *name;
	double (*run)(void);
} figures[] = {
	{"cache_line_one_way", cache_line_one_way},
	{"ring_spsc_same32", ring_spsc_same32},
	{"ring_spsc_two1", ring_spsc_two1},
	{"ring_spsc_two32", ring_spsc_two32},
	{"ring_mpmc_same32", ring_mpmc_same32},
	{"ring_mpmc_two32", ring_mpmc_two32},
	{"pool_cache32", pool_cache32},
	{"mbuf_bulk32", mbuf_bulk32},
	{"mbuf_single", mbuf_single},
	{"timer_rearm_1m", timer_rearm_1m},
	{"timer_rearm_10k", timer_rearm_10k},
	{"timer_expiry", timer_expiry},
	{"timer_expiry_random", timer_expiry_random},
	{"null_rxtx32", null_rxtx32},
	{"nat_rewrite", nat_rewrite},
	{"lpm_random", lpm_random},
	{"lpm_hot", lpm_hot},
	{"lpm_add", lpm_add},
	{"lpm_add_each", lpm_add},
	{"lpm6_random", lpm6_random},
	{"em_bulk_1m", em_bulk_1m},
	{"em_bulk_65k", em_bulk_65k},
	{"rss_soft12", rss_soft12},
};

static void start_port(void)
{
	struct rte_eth_conf conf = {0};
	struct rte_mbuf *burst[BURST];
	if (rte_eth_dev_get_port_by_name("net_null0", &null_port) || rte_eth_dev_configure(null_port, 1, 1, &conf) ||
	    rte_eth_rx_queue_setup(null_port, 0, 1024, SOCKET_ID_ANY, NULL, port_mbufs) ||
	    rte_eth_tx_queue_setup(null_port, 0, 1024, SOCKET_ID_ANY, NULL) || rte_eth_dev_start(null_port))
		DIE("net_null0");
	uint16_t got = rte_eth_rx_burst(null_port, 0, burst, BURST);
	rte_pktmbuf_free_bulk(burst, got);
}

int main(int argc, char **argv)
{
	if (rte_eal_init(argc, argv) < 0)
		DIE("rte_eal_init");
	if (!(port_mbufs = rte_pktmbuf_pool_create("port", 8191, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY)))
		DIE("mbuf pool");
	start_port();
	/* FIRST_PACKET_FROM: wall clock in ns, read by the parent just before it started this process */
	const char *from = getenv("FIRST_PACKET_FROM");
	if (from) {
		struct timespec now;
		clock_gettime(CLOCK_REALTIME, &now);
		printf("start %.3f\n", (now.tv_sec * 1000000000ull + now.tv_nsec - strtoull(from, NULL, 10)) / 1e6);
		fflush(stdout);
		return rte_eal_cleanup() < 0;
	}

	spsc = rte_ring_create("spsc", RING_SIZE, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	mpmc = rte_ring_create("mpmc", RING_SIZE, SOCKET_ID_ANY, 0);
	objects = rte_mempool_create("objects", POOL_SIZE, 2048, POOL_CACHE, 0, NULL, NULL, NULL, NULL, SOCKET_ID_ANY, 0);
	mbufs = rte_pktmbuf_pool_create("mbufs", POOL_SIZE, POOL_CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	timers = rte_malloc(NULL, sizeof(*timers) * TIMERS, 64);
	if (!spsc || !mpmc || !objects || !mbufs || !timers)
		DIE("set-up");
	rte_timer_subsystem_init();
	for (unsigned i = 0; i < TIMERS; i++)
		rte_timer_init(&timers[i]);

	printf("version %s\n", rte_version());
	fflush(stdout);
	char name[128];
	while (scanf("%127s", name) == 1) {
		bool known = false;
		for (unsigned i = 0; i < RTE_DIM(figures); i++)
			if (!strcmp(name, figures[i].name)) {
				printf("%s %.4f\n", name, figures[i].run());
				known = true;
			}
		if (!known)
			printf("%s unknown\n", name);
		fflush(stdout);
	}
	return rte_eal_cleanup() < 0;
}
